/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The invariant CRC over a packet in parts: CRC-32 (IEEE 802.3), with the fields masked that
 * routers change. Annex A17, A17.3.3; IBTA volume 1, 7.8.1. Any thread.
 *
 *	crc = icrc_headers(l3, headers_len);        IP header to the last extended header
 *	crc = icrc_update(crc, payload, len);       any number of parts, then the pad
 *	icrc_store(trailer, crc);                   little-endian
 *
 * icrc_whole() does the first two together, for a third less.
 */
#ifndef FERRULE_WIRE_ICRC_H
#define FERRULE_WIRE_ICRC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/bytes.h"

/* `l3` points to an IPv4 or IPv6 header. `len` is the length from there to the payload: at least
 * through the BTH, at most WIRE_MAX_HEADERS. */
uint32_t icrc_headers(const uint8_t *l3, size_t len);
uint32_t icrc_update(uint32_t crc, const void *data, size_t len);

/* icrc_headers() and icrc_update() of the first part of the payload, which may be empty. */
uint32_t icrc_whole(const uint8_t *l3, size_t headers_len, const void *payload, size_t payload_len);

static inline void icrc_store(uint8_t out[4], uint32_t crc)
{
	put_le32(out, crc);
}

static inline uint32_t icrc_load(const uint8_t in[4])
{
	return get_le32(in);
}

/*
 * Returns the CRC of a whole packet of `len` bytes without the ICRC. The IP header may have
 * options or extension headers: UDP starts `udp_offset` bytes after l3. For tools that decode any
 * packet.
 */
uint32_t icrc_packet(const uint8_t *l3, bool ipv4, size_t udp_offset, size_t len);

#endif
