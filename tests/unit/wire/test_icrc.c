/* SPDX-License-Identifier: BSD-3-Clause */
/* Packets recorded from Linux, and which of their bytes the ICRC must not and must see. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/wire/icrc.h"
#include "lib/wire/icrc_kernels.h"
#include "lib/wire/packet.h"
#include "tests/fixtures/program.h"
#include "tests/unit/wire/icrc_check.h"

/* From the IP header to the ICRC. */
static const struct {
	const char *name;
	const char *hex;
	size_t headers_len;
} rows[] = {
	{ "ACK, IPv4",
		"45000030559340004011d1150a0900020a090001c1ba12b7001c00001100ffff0000001100e34db4"
		"1f0000018ae8183d",
		44 },
	{ "SEND_ONLY of a byte, IPv4",
		"450000300f554000401117540a0900010a090002c1ba12b7001c00000430ffff0000001a80e34db6"
		"e00000004657c365",
		40 },
	{ "CMP_SWAP, IPv4",
		"45000048125340004011143e0a0900010a090002c24412b7003400001300ffff0000001d8002f87d"
		"00007ff30838600000001a58a1a2a3a4a5a6a7a8112233455566778a2f58c0a0",
		68 },
	{ "ACK, IPv6",
		"60000000001c1140fd090000000000000000000000000002fd090000000000000000000000000001"
		"c49212b7001c00001100ffff0000001e00b95bba1f0000011b6db027",
		64 },
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]), MAX_PACKET = 128 };

static size_t from_hex(uint8_t *out, const char *hex)
{
	size_t len = strlen(hex) / 2;

	for (size_t i = 0; i < len; i++) {
		char digits[3] = { hex[2 * i], hex[2 * i + 1], '\0' };

		out[i] = (uint8_t)strtoul(digits, NULL, 16);
	}
	return len;
}

static uint32_t compute(const uint8_t *packet, size_t len, size_t headers_len)
{
	return icrc_update(icrc_headers(packet, headers_len), packet + headers_len,
		len - headers_len - ICRC_LEN);
}

START_LOOP_TEST(recorded, N_ROWS)
{
	uint8_t packet[MAX_PACKET] = { 0 };
	uint8_t stored[ICRC_LEN];
	size_t len = from_hex(packet, rows[_i].hex);
	uint32_t crc = compute(packet, len, rows[_i].headers_len);

	ck_assert_msg(crc == icrc_load(packet + len - ICRC_LEN), "%s", rows[_i].name);
	icrc_store(stored, crc);
	ck_assert_mem_eq(stored, packet + len - ICRC_LEN, ICRC_LEN);
}
END_TEST

/* Changes of masked bits do not change the CRC; all others do. */
START_LOOP_TEST(every_bit, N_ROWS)
{
	uint8_t packet[MAX_PACKET] = { 0 };
	size_t len = from_hex(packet, rows[_i].hex);
	uint32_t right = compute(packet, len, rows[_i].headers_len);

	for (size_t bit = 0; bit < (len - ICRC_LEN) * 8; bit++) {
		size_t at = bit / 8;
		uint8_t flip = (uint8_t)(1 << bit % 8);
		bool masked = icrc_masked_bits(packet, at) & flip;
		bool same;

		if (at == 0 && flip >= 0x10)
			continue; /* another IP version has other masks */
		packet[at] ^= flip;
		same = compute(packet, len, rows[_i].headers_len) == right;
		packet[at] ^= flip;
		ck_assert_msg(same == masked, "%s: bit %zu", rows[_i].name, bit);
	}
}
END_TEST

START_LOOP_TEST(pieces_of_any_size, N_ROWS)
{
	uint8_t packet[MAX_PACKET] = { 0 };
	size_t len = from_hex(packet, rows[_i].hex) - ICRC_LEN;
	size_t headers_len = rows[_i].headers_len;
	uint32_t right = icrc_load(packet + len);

	for (size_t bth_end = headers_len; bth_end <= len; bth_end++) {
		for (size_t cut = bth_end; cut <= len; cut++) {
			uint32_t crc = icrc_headers(packet, bth_end);

			crc = icrc_update(crc, packet + bth_end, cut - bth_end);
			crc = icrc_update(crc, packet + cut, len - cut);
			ck_assert_uint_eq(crc, right);
		}
	}
}
END_TEST

/* Options or extension headers, of any length, between the IP header and UDP. */
START_LOOP_TEST(long_ip_header, N_ROWS)
{
	uint8_t packet[MAX_PACKET] = { 0 };
	uint8_t with_options[8 + MAX_PACKET + 64];
	size_t len = from_hex(packet, rows[_i].hex) - ICRC_LEN;
	bool ipv4 = packet[0] >> 4 == 4;
	size_t ip_len = ipv4 ? IPV4_LEN : IPV6_LEN;

	ck_assert_uint_eq(icrc_packet(packet, ipv4, ip_len, len), icrc_load(packet + len));
	for (size_t options = 0; options <= 64; options += 4) {
		uint8_t *l3 = with_options + 8;
		size_t total = len + options;
		uint32_t crc;

		memcpy(l3, packet, ip_len);
		memset(l3 + ip_len, 0x5a, options);
		memcpy(l3 + ip_len + options, packet + ip_len, len - ip_len);
		crc = icrc_packet(l3, ipv4, ip_len + options, total);
		memset(with_options, 0xff, 8);
		for (size_t at = 0; at < ip_len; at++)
			l3[at] |= icrc_masked_bits(packet, at);
		for (size_t at = ip_len; at < len; at++)
			l3[at + options] |= icrc_masked_bits(packet, at);
		ck_assert_uint_eq(crc, slow_crc(0, with_options, 8 + total));
	}
}
END_TEST

/* Each kernel that the processor supports. */
START_TEST(kernels)
{
	for (const struct icrc_kernel *const *kernel = icrc_all_kernels; *kernel; kernel++) {
		if ((*kernel)->supported())
			ck_assert(icrc_check(*kernel));
		else
			printf("skipped: %s: the processor lacks its instructions\n",
				(*kernel)->name);
	}
}
END_TEST

/* The recorded packets, by each kernel. */
START_LOOP_TEST(selected, N_ROWS)
{
	uint8_t packet[MAX_PACKET] = { 0 };
	size_t len = from_hex(packet, rows[_i].hex) - ICRC_LEN, headers_len = rows[_i].headers_len;

	for (const struct icrc_kernel *const *kernel = icrc_all_kernels; *kernel; kernel++) {
		if (!(*kernel)->supported())
			continue;
		icrc_use(*kernel);
		ck_assert_uint_eq(
			icrc_whole(packet, headers_len, packet + headers_len, len - headers_len),
			icrc_load(packet + len));
		ck_assert_uint_eq(
			compute(packet, len + ICRC_LEN, headers_len), icrc_load(packet + len));
	}
	icrc_use(NULL);
}
END_TEST

/* Without icrc_use(): the fastest kernel that the processor supports. */
START_TEST(chosen)
{
	const struct icrc_kernel kernel = {
		.name = "chosen", .update = icrc_update, .whole = icrc_whole
	};

	ck_assert(icrc_check(&kernel));
}
END_TEST

START_TEST(little_endian)
{
	const uint8_t bytes[4] = { 0x78, 0x56, 0x34, 0x12 };
	uint8_t out[4];

	ck_assert_uint_eq(icrc_load(bytes), 0x12345678);
	icrc_store(out, 0x12345678);
	ck_assert_mem_eq(out, bytes, sizeof(bytes));
}
END_TEST

TEST_FILE(icrc)
