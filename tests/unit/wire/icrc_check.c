/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/wire/icrc_check.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/base/random.h"

enum {
	PAGE = 4096,
	MAX_PAYLOAD = 5 * PAGE,
	LENGTHS = WIRE_IBTA_MTU + 104, /* of which each is checked */
	STARTS = 64,
	LEAST_IPV4 = IPV4_LEN + UDP_LEN + BTH_LEN,
	LEAST_IPV6 = IPV6_LEN + UDP_LEN + BTH_LEN,
};

uint32_t slow_crc(uint32_t crc, const uint8_t *data, size_t len)
{
	crc = ~crc;
	for (size_t i = 0; i < len; i++) {
		crc ^= data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

uint8_t icrc_masked_bits(const uint8_t *l3, size_t at)
{
	bool ipv4 = l3[0] >> 4 == 4;
	size_t udp = ipv4 ? IPV4_LEN : IPV6_LEN;

	if (at == udp + 6 || at == udp + 7 || at == udp + UDP_LEN + 4)
		return 0xff;
	if (ipv4)
		return at == 1 || at == 8 || at == 10 || at == 11 ? 0xff : 0;
	if (at == 0)
		return 0x0f;
	return (at >= 1 && at <= 3) || at == 7 ? 0xff : 0;
}

static uint32_t slow_headers(const uint8_t *l3, size_t headers_len)
{
	uint8_t all[8 + WIRE_MAX_HEADERS];

	memset(all, 0xff, 8);
	for (size_t at = 0; at < headers_len; at++)
		all[8 + at] = l3[at] | icrc_masked_bits(l3, at);
	return slow_crc(0, all, 8 + headers_len);
}

static void fill(uint8_t *bytes, size_t len, struct random_state *random)
{
	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)random_u64(random);
}

static void set_version(uint8_t *l3, bool ipv4)
{
	l3[0] = (uint8_t)((ipv4 ? 0x40 : 0x60) | (l3[0] & 0x0f));
}

/* Every length, from every address within 64 bytes, as the second part of a packet. */
static bool check_updates(const struct icrc_kernel *kernel, struct random_state *random)
{
	static uint8_t bytes[STARTS + LENGTHS];

	fill(bytes, sizeof(bytes), random);
	for (size_t start = 0; start < STARTS; start++) {
		uint32_t begun = slow_crc(0, bytes, start), want = begun;

		for (size_t len = 0; len <= LENGTHS; len++) {
			if (len)
				want = slow_crc(want, bytes + start + len - 1, 1);
			if (kernel->update(begun, bytes + start, len) == want)
				continue;
			printf("%s: %zu bytes, %zu behind the start\n", kernel->name, len, start);
			return false;
		}
	}
	return true;
}

/* Every length of headers with every length of payload. Both are at varying addresses. */
static bool check_packets(const struct icrc_kernel *kernel, struct random_state *random, bool ipv4)
{
	static uint8_t headers[STARTS + WIRE_MAX_HEADERS], bytes[STARTS + LENGTHS];
	size_t least = ipv4 ? LEAST_IPV4 : LEAST_IPV6;

	for (size_t headers_len = least; headers_len <= WIRE_MAX_HEADERS; headers_len++) {
		uint8_t *l3 = headers + random_below(random, STARTS);
		uint8_t *payload = bytes + headers_len % STARTS;
		uint32_t want;

		fill(headers, sizeof(headers), random);
		fill(bytes, sizeof(bytes), random);
		set_version(l3, ipv4);
		want = slow_headers(l3, headers_len);
		for (size_t len = 0; len <= LENGTHS; len++) {
			if (len)
				want = slow_crc(want, payload + len - 1, 1);
			if (kernel->whole(l3, headers_len, payload, len) == want)
				continue;
			printf("%s: IPv%d, %zu bytes of headers, %zu of payload\n", kernel->name,
				ipv4 ? 4 : 6, headers_len, len);
			return false;
		}
	}
	return true;
}

/* Random bytes with inaccessible memory before or behind them. */
static uint8_t *fenced(struct random_state *random, size_t len, bool before)
{
	size_t room = (len + PAGE - 1) / PAGE * PAGE;
	uint8_t *map = mmap(NULL, room + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *bytes = map + PAGE + (before ? 0 : room - len);

	if (map == MAP_FAILED || (room && mprotect(map + PAGE, room, PROT_READ | PROT_WRITE)))
		return NULL;
	fill(bytes, len, random);
	return bytes;
}

static void unfence(uint8_t *bytes, size_t len, bool before)
{
	size_t room = (len + PAGE - 1) / PAGE * PAGE;

	munmap(bytes - PAGE - (before ? 0 : room - len), room + 2 * PAGE);
}

static bool check_fenced(const struct icrc_kernel *kernel, struct random_state *random,
	size_t headers_len, size_t len, bool ipv4)
{
	bool before = random_u64(random) & 1, right;
	uint8_t *l3 = fenced(random, headers_len, before), *payload = fenced(random, len, !before);
	uint32_t begun;

	if (!l3 || !payload) {
		puts("no memory");
		return false;
	}
	set_version(l3, ipv4);
	begun = slow_headers(l3, headers_len);
	right = kernel->whole(l3, headers_len, payload, len) == slow_crc(begun, payload, len) &&
		kernel->update(begun, payload, len) == slow_crc(begun, payload, len);
	if (!right)
		printf("%s: IPv%d, %zu bytes of headers, %zu of payload, fenced\n", kernel->name,
			ipv4 ? 4 : 6, headers_len, len);
	unfence(l3, headers_len, before);
	unfence(payload, len, !before);
	return right;
}

/* A read beside the bytes ends the program. */
static bool check_reads(const struct icrc_kernel *kernel, struct random_state *random)
{
	bool right = true;

	for (size_t len = 0; right && len <= 1100; len++)
		right = check_fenced(kernel, random, 40 + random_below(random, 73), len, true);
	for (size_t n = LEAST_IPV4; right && n <= WIRE_MAX_HEADERS; n++)
		for (int i = 0; right && i < 4; i++)
			right = check_fenced(kernel, random, n,
				i == 0 ? WIRE_IBTA_MTU : random_below(random, MAX_PAYLOAD),
				i % 2 == 0 || n < LEAST_IPV6);
	return right;
}

bool icrc_check(const struct icrc_kernel *kernel)
{
	struct random_state random;

	random_seed(&random, 7);
	return check_updates(kernel, &random) && check_packets(kernel, &random, true) &&
		check_packets(kernel, &random, false) && check_reads(kernel, &random);
}
