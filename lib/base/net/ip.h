/* SPDX-License-Identifier: BSD-3-Clause */
/* IP addresses as text. Any thread. */
#ifndef FERRULE_BASE_IP_H
#define FERRULE_BASE_IP_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/address.h>

/* Parses "10.1.1.1/24" or "fd00::1/64". Without a prefix length, it is that of a single address.
 * Returns -EINVAL for other text. */
int parse_ip(const char *text, struct frl_ip *ret_ip, uint8_t *ret_prefix_len);

/* Returns the address as text, in a buffer of the calling thread that its next call overwrites. */
const char *format_ip(const struct frl_ip *ip);

/* Returns true if an address is in the subnet of a GID. */
bool in_subnet(const struct frl_gid *gid, const struct frl_ip *ip);

/* Parses text that consists of digits only, up to `max`. */
bool parse_digits(const char *text, unsigned long max, unsigned long *ret_number);

#endif
