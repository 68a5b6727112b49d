/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The layout of struct frl_endpoint (connect.h). The library writes and reads it; the daemon checks
 * that it is the sender's own. Numbers are big-endian, unused bytes are zero.
 */
#ifndef FERRULE_CONTROL_ENDPOINT_H
#define FERRULE_CONTROL_ENDPOINT_H

#include <stddef.h>

enum {
	ENDPOINT_MAGIC = 0x46524c45, /* "FRLE" */
	ENDPOINT_VERSION = 2,
	ENDPOINT_LOCAL_FABRIC = 1 << 0,
	ENDPOINT_QPN_END = 0xffffff, /* the QPN of multicast */

	ENDPOINT_AT_MAGIC = 0,
	ENDPOINT_AT_VERSION = 4,
	ENDPOINT_AT_FLAGS = 6,
	ENDPOINT_AT_QPN = 8,
	ENDPOINT_AT_PSN = 12,
	ENDPOINT_AT_MAC = 16,
	ENDPOINT_AT_MTU = 22,
	ENDPOINT_AT_IP = 24, /* the main address */
	ENDPOINT_AT_CAPABILITIES = 40,
	ENDPOINT_AT_NONCE = 44,
	ENDPOINT_AT_TYPE = 60,
	ENDPOINT_AT_ADDRESSES = 61,  /* number of addresses */
	ENDPOINT_AT_PREFIX_LEN = 62, /* one byte for each address */
	ENDPOINT_AT_RD_ATOMIC = 66,  /* max_rd_atomic of the device; 0: unknown */
	ENDPOINT_AT_MORE_IPS = 68,   /* all addresses but the main one */
	ENDPOINT_IP_SIZE = 16,
	/*
	 * On the local fabric: the first bytes of host_id(), which identify the host; zero:
	 * unknown.
	 */
	ENDPOINT_AT_HOST = 116,
	ENDPOINT_HOST_SIZE = 12,
};

/* Returns the offset of address `index`. */
static inline size_t endpoint_ip_at(unsigned index)
{
	return index ? ENDPOINT_AT_MORE_IPS + (index - 1) * (size_t)ENDPOINT_IP_SIZE
		     : (size_t)ENDPOINT_AT_IP;
}

#endif
