/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses written as text, in tests. */
#ifndef FERRULE_TESTS_UNIT_IP_TEXT_H
#define FERRULE_TESTS_UNIT_IP_TEXT_H

#include <arpa/inet.h>
#include <check.h>

#include "lib/base/ip.h"

static inline struct frl_ip ip(const char *text)
{
	struct frl_ip address = { { 0 } };
	uint8_t v4[4];

	if (inet_pton(AF_INET, text, v4) == 1)
		return ip_from_v4(v4);
	ck_assert_int_eq(inet_pton(AF_INET6, text, address.bytes), 1);
	return address;
}

#endif
