/* SPDX-License-Identifier: BSD-3-Clause */
/* IP addresses as text. Any thread. */
#ifndef FERRULE_BASE_IP_H
#define FERRULE_BASE_IP_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/address.h>

/* "10.1.1.1/24", "fd00::1/64"; without a prefix length it is that of one address. -EINVAL. */
int parse_ip(const char *text, struct frl_ip *ret_ip, uint8_t *ret_prefix_len);

/* For messages; the text is the calling thread's, until its next call. */
const char *format_ip(const struct frl_ip *ip);

/* Whether an address is in the subnet of a GID. */
bool in_subnet(const struct frl_gid *gid, const struct frl_ip *ip);

/* Digits to the end of the text, and no more than `max`. */
bool parse_digits(const char *text, unsigned long max, unsigned long *ret_number);

#endif
