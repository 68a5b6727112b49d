/* SPDX-License-Identifier: BSD-3-Clause */
/* Packets recorded from Linux, and which of their bytes the ICRC must not and must see. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/base/random.h"
#include "lib/wire/icrc.h"
#include "lib/wire/icrc_kernels.h"
#include "lib/wire/packet.h"
#include "tests/fixtures/program.h"

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

/* Bits that routers may change: not seen. All others: seen. */
static uint8_t masked_bits(const uint8_t *packet, size_t at)
{
	bool ipv4 = packet[0] >> 4 == 4;
	size_t udp = ipv4 ? IPV4_LEN : IPV6_LEN;

	if (at == udp + 6 || at == udp + 7 || at == udp + UDP_LEN + 4)
		return 0xff;
	if (ipv4)
		return at == 1 || at == 8 || at == 10 || at == 11 ? 0xff : 0;
	if (at == 0)
		return 0x0f;
	return (at >= 1 && at <= 3) || at == 7 ? 0xff : 0;
}

START_LOOP_TEST(every_bit, N_ROWS)
{
	uint8_t packet[MAX_PACKET] = { 0 };
	size_t len = from_hex(packet, rows[_i].hex);
	uint32_t right = compute(packet, len, rows[_i].headers_len);

	for (size_t bit = 0; bit < (len - ICRC_LEN) * 8; bit++) {
		size_t at = bit / 8;
		uint8_t flip = (uint8_t)(1 << bit % 8);
		bool masked = masked_bits(packet, at) & flip;
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

/* As an independent implementation would: bit by bit, over what is masked beforehand. */
static uint32_t slow_crc(const uint8_t *data, size_t len)
{
	uint32_t crc = UINT32_MAX;

	for (size_t i = 0; i < len; i++) {
		crc ^= data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

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
			l3[at] |= masked_bits(packet, at);
		for (size_t at = ip_len; at < len; at++)
			l3[at + options] |= masked_bits(packet, at);
		ck_assert_uint_eq(crc, slow_crc(with_options, 8 + total));
	}
}
END_TEST

typedef uint32_t whole_fn(const uint8_t *l3, size_t headers_len, const void *payload, size_t len);
typedef uint32_t update_fn(uint32_t crc, const void *data, size_t len);

enum { PAGE = 4096, MAX_PAYLOAD = 5 * PAGE };

/* `len` bytes of noise that nothing but themselves can be read of: before them, or behind them, is
 * memory that is not there. */
static uint8_t *fenced(struct random_state *random, size_t len, bool before)
{
	size_t room = (len + PAGE - 1) / PAGE * PAGE;
	uint8_t *map = mmap(NULL, room + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *bytes = map + PAGE + (before ? 0 : room - len);

	ck_assert(map != MAP_FAILED);
	ck_assert(room == 0 || mprotect(map + PAGE, room, PROT_READ | PROT_WRITE) == 0);
	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)random_u64(random);
	return bytes;
}

static void unfence(uint8_t *bytes, size_t len, bool before)
{
	size_t room = (len + PAGE - 1) / PAGE * PAGE;

	munmap(bytes - PAGE - (before ? 0 : room - len), room + 2 * PAGE);
}

static uint32_t slow_whole(
	const uint8_t *l3, size_t headers_len, const uint8_t *payload, size_t len)
{
	static uint8_t all[8 + WIRE_MAX_HEADERS + MAX_PAYLOAD];

	memset(all, 0xff, 8);
	for (size_t at = 0; at < headers_len; at++)
		all[8 + at] = l3[at] | masked_bits(l3, at);
	memcpy(all + 8 + headers_len, payload, len);
	return slow_crc(all, 8 + headers_len + len);
}

static void check_whole(
	whole_fn *whole, struct random_state *random, size_t headers_len, size_t len, bool ipv4)
{
	bool before = random_u64(random) & 1;
	uint8_t *l3 = fenced(random, headers_len, before);
	uint8_t *payload = fenced(random, len, !before);

	l3[0] = (uint8_t)((ipv4 ? 0x40 : 0x60) | (l3[0] & 0x0f));
	ck_assert_msg(
		whole(l3, headers_len, payload, len) == slow_whole(l3, headers_len, payload, len),
		"IPv%d, %zu bytes of headers, %zu of payload", ipv4 ? 4 : 6, headers_len, len);
	unfence(l3, headers_len, before);
	unfence(payload, len, !before);
}

static void check_kernels(whole_fn *whole, update_fn *update)
{
	struct random_state random;

	random_seed(&random, 7);
	for (size_t len = 0; len <= 1100; len++)
		check_whole(whole, &random, 40 + random_u64(&random) % 73, len, true);
	for (size_t headers_len = 40; headers_len <= WIRE_MAX_HEADERS; headers_len++)
		for (int i = 0; i < 4; i++)
			check_whole(whole, &random, headers_len,
				i == 0 ? WIRE_IBTA_MTU : random_u64(&random) % MAX_PAYLOAD,
				i % 2 == 0 || headers_len < 60);
	for (size_t len = 0; len <= 1100; len++) {
		size_t start = random_u64(&random) % 64;
		uint8_t *bytes = fenced(&random, start + len, false);
		uint32_t begun = slow_crc(bytes, start);

		ck_assert_msg(update(begun, bytes + start, len) == slow_crc(bytes, start + len),
			"%zu bytes behind %zu", len, start);
		unfence(bytes, start + len, false);
	}
}

START_TEST(plain)
{
	check_kernels(icrc_whole_plain, icrc_update_plain);
}
END_TEST

START_TEST(avx512)
{
#if defined(__x86_64__)
	if (icrc_has_avx512()) {
		check_kernels(icrc_whole_avx512, icrc_update_avx512);
		return;
	}
#endif
	puts("skipped: avx512: the processor lacks what the kernel needs");
}
END_TEST

START_TEST(chosen)
{
	check_kernels(icrc_whole, icrc_update);
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
