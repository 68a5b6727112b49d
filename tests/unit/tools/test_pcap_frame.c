/* SPDX-License-Identifier: BSD-3-Clause */
/* Which frames of a capture are RoCE, where their packet is, and whether its ICRC is right. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include <pcap/dlt.h>

#include "tools/pcap/frame.h"
#include "tests/fixtures/program.h"
#include "tests/vectors/frame.h"

enum {
	PAYLOAD = 5,
	ROCE_LEN = BTH_LEN + PAYLOAD + 3 + ICRC_LEN, /* of a SEND_ONLY */
	MAX_EXTENSION = 64,
	MAX_BYTES = 512,
};

/* A recorded frame, to be made of pieces. */
struct recorded {
	uint8_t bytes[MAX_BYTES];
	size_t len;
	size_t l3;
};

static void append(struct recorded *r, const void *bytes, size_t len)
{
	ck_assert_uint_le(r->len + len, MAX_BYTES);
	memcpy(r->bytes + r->len, bytes, len);
	r->len += len;
}

/* An IP packet, to be put behind a link header. */
static void append_ip(struct recorded *r, bool ipv4)
{
	struct wire_headers h = simple_headers(OP_SEND_ONLY);
	struct frame frame = make_frame(!ipv4, &h, PAYLOAD, true);

	r->l3 = r->len;
	append(r, frame.bytes + frame.l3, frame.len - frame.l3);
}

/* In a block of exactly its size, so that the address sanitizer sees a read behind it. */
static bool find(struct pcap_packet *packet, int link, const struct recorded *r, size_t captured,
	size_t len, bool *ret_icrc_ok)
{
	uint8_t *copy = malloc(captured ? captured : 1);
	bool found;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, r->bytes, captured);
	found = pcap_find(packet, link, captured ? copy : copy + 1, captured, len);
	*ret_icrc_ok = found && packet->captured == packet->end && pcap_icrc_ok(packet);
	if (found)
		ck_assert_ptr_eq(packet->l3, copy + r->l3);
	free(copy);
	return found;
}

/* Link headers; the type or family at their end is of IPv4 or IPv6. */
static const struct {
	const char *name;
	int link;
	size_t len[2];
	uint8_t header[2][32]; /* IPv4, IPv6 */
	unsigned n_tags;
	uint16_t tags[PCAP_MAX_TAGS];
} link_rows[] = {
	{ "Ethernet", DLT_EN10MB, { 14, 14 }, { { [12] = 0x08, 0x00 }, { [12] = 0x86, 0xdd } }, 0,
		{ 0 } },
	{ "one tag", DLT_EN10MB, { 18, 18 },
		{ { [12] = 0x81, 0x00, 0x60, 0x0a, 0x08, 0x00 },
			{ [12] = 0x81, 0x00, 0x60, 0x0a, 0x86, 0xdd } },
		1, { 0x600a } },
	{ "QinQ", DLT_EN10MB, { 22, 22 },
		{ { [12] = 0x88, 0xa8, 0x00, 0x64, 0x81, 0x00, 0x60, 0x0a, 0x08, 0x00 },
			{ [12] = 0x88, 0xa8, 0x00, 0x64, 0x81, 0x00, 0x60, 0x0a, 0x86, 0xdd } },
		2, { 100, 0x600a } },
	{ "QinQ as it was before the standard", DLT_EN10MB, { 22, 22 },
		{ { [12] = 0x91, 0x00, 0x00, 0x64, 0x81, 0x00, 0x60, 0x0a, 0x08, 0x00 },
			{ [12] = 0x91, 0x00, 0x00, 0x64, 0x81, 0x00, 0x60, 0x0a, 0x86, 0xdd } },
		2, { 100, 0x600a } },
	{ "Linux cooked", DLT_LINUX_SLL, { 16, 16 },
		{ { [14] = 0x08, 0x00 }, { [14] = 0x86, 0xdd } }, 0, { 0 } },
	{ "Linux cooked with a tag", DLT_LINUX_SLL, { 20, 20 },
		{ { [14] = 0x81, 0x00, 0x00, 0x0a, 0x08, 0x00 },
			{ [14] = 0x81, 0x00, 0x00, 0x0a, 0x86, 0xdd } },
		1, { 10 } },
	{ "Linux cooked 2", DLT_LINUX_SLL2, { 20, 20 },
		{ { 0x08, 0x00, [19] = 1 }, { 0x86, 0xdd, [19] = 1 } }, 0, { 0 } },
	{ "raw IP", DLT_RAW, { 0, 0 }, { { 0 }, { 0 } }, 0, { 0 } },
	{ "BSD loopback, little-endian", DLT_NULL, { 4, 4 }, { { 2 }, { 30 } }, 0, { 0 } },
	{ "BSD loopback, big-endian", DLT_NULL, { 4, 4 }, { { [3] = 2 }, { [3] = 24 } }, 0, { 0 } },
	{ "OpenBSD loopback", DLT_LOOP, { 4, 4 }, { { [3] = 2 }, { [3] = 24 } }, 0, { 0 } },
};

static struct recorded record(int row, int family)
{
	struct recorded r = { .len = 0 };

	append(&r, link_rows[row].header[family], link_rows[row].len[family]);
	append_ip(&r, family == 0);
	return r;
}

START_LOOP_TEST(every_link, ROWS(link_rows))
{
	for (int family = 0; family < 2; family++) {
		struct recorded r = record(_i, family);
		size_t ip_len = family == 0 ? IPV4_LEN : IPV6_LEN;
		struct pcap_packet packet;
		bool icrc_ok;

		ck_assert(pcap_knows_link(link_rows[_i].link));
		ck_assert_msg(find(&packet, link_rows[_i].link, &r, r.len, r.len, &icrc_ok), "%s",
			link_rows[_i].name);
		ck_assert(packet.ipv4 == (family == 0));
		ck_assert_uint_eq(packet.n_tags, link_rows[_i].n_tags);
		for (unsigned i = 0; i < packet.n_tags; i++)
			ck_assert_uint_eq(packet.tags[i], link_rows[_i].tags[i]);
		ck_assert_uint_eq(packet.udp, ip_len);
		ck_assert_uint_eq(packet.bth, ip_len + UDP_LEN);
		ck_assert_uint_eq(packet.end, ip_len + UDP_LEN + ROCE_LEN);
		ck_assert(icrc_ok);
	}
}
END_TEST

/* The capture kept fewer bytes: the packet is told as soon as its port is there. */
START_LOOP_TEST(cut_by_the_capture, ROWS(link_rows))
{
	for (int family = 0; family < 2; family++) {
		struct recorded r = record(_i, family);
		size_t port_end = r.l3 + (family == 0 ? IPV4_LEN : IPV6_LEN) + 4;

		for (size_t captured = 0; captured <= r.len; captured++) {
			struct pcap_packet packet;
			bool icrc_ok;
			bool found = find(
				&packet, link_rows[_i].link, &r, captured, r.len, &icrc_ok);

			ck_assert_msg(found == (captured >= port_end), "%s: %zu",
				link_rows[_i].name, captured);
			if (found)
				ck_assert_uint_eq(packet.captured, captured - r.l3);
			ck_assert(icrc_ok == (captured == r.len));
		}
	}
}
END_TEST

/* The frame itself was that short: what IP says is not true. */
START_LOOP_TEST(cut_frame, ROWS(link_rows))
{
	for (int family = 0; family < 2; family++) {
		struct recorded r = record(_i, family);
		struct pcap_packet packet;
		bool icrc_ok;

		for (size_t len = 0; len < r.len; len++)
			ck_assert(!find(&packet, link_rows[_i].link, &r, len, len, &icrc_ok));
		/* Padding and checksum sequences follow; they are not the packet's. */
		for (int extra = 0; extra < 32; extra++) {
			append(&r, "\xee", 1);
			ck_assert(find(&packet, link_rows[_i].link, &r, r.len, r.len, &icrc_ok));
			ck_assert(icrc_ok);
		}
	}
}
END_TEST

START_TEST(more_tags_than_are_kept)
{
	struct recorded r = { .len = 12 };
	struct pcap_packet packet;
	bool icrc_ok;

	for (int i = 0; i < PCAP_MAX_TAGS + 3; i++)
		append(&r, (const uint8_t[]){ 0x88, 0xa8, 0, (uint8_t)i }, 4);
	append(&r, (const uint8_t[]){ 0x08, 0x00 }, 2);
	append_ip(&r, true);
	ck_assert(find(&packet, DLT_EN10MB, &r, r.len, r.len, &icrc_ok));
	ck_assert(icrc_ok);
	ck_assert_uint_eq(packet.n_tags, PCAP_MAX_TAGS);
	ck_assert_uint_eq(packet.tags[PCAP_MAX_TAGS - 1], PCAP_MAX_TAGS - 1);
}
END_TEST

/* A 16-bit word of the packet is another one. */
static const struct {
	const char *name;
	bool ipv4;
	size_t at; /* from the IP header */
	uint16_t value;
	bool found;
	bool icrc_ok;
	size_t len; /* BTH to ICRC */
} word_rows[] = {
	{ "checksum of IPv4", true, 10, 0x1234, true, true, ROCE_LEN },
	{ "checksum of UDP", true, 26, 0x1234, true, true, ROCE_LEN },
	{ "type of service", true, 0, 0x45ff, true, true, ROCE_LEN },
	{ "version of IPv4", true, 0, 0x656a, true, false, ROCE_LEN },
	{ "header of IPv4 too short", true, 0, 0x446a, false, false, 0 },
	{ "TCP", true, 8, 0x4006, false, false, 0 },
	{ "source port", true, 20, 4791, true, false, ROCE_LEN },
	{ "destination port", true, 22, 4790, false, false, 0 },
	{ "opcode and flags", true, 28, 0x15ff, true, false, ROCE_LEN },
	{ "no room for an ICRC", true, 2, IPV4_LEN + UDP_LEN + 15, false, false, 0 },
	{ "just a BTH and an ICRC", true, 2, IPV4_LEN + UDP_LEN + 16, true, false, 16 },
	{ "IPv4 longer than the frame", true, 2, IPV4_LEN + UDP_LEN + ROCE_LEN + 1, false, false,
		0 },
	{ "UDP longer than IP", true, 24, UDP_LEN + ROCE_LEN + 1, true, false, ROCE_LEN },
	{ "UDP length 0", true, 24, 0, true, false, ROCE_LEN },
	{ "UDP length too short", true, 24, UDP_LEN + 15, true, false, ROCE_LEN },
	{ "UDP shorter than IP", true, 24, UDP_LEN + 20, true, false, 20 },
	{ "first fragment", true, 6, 0x2000, true, false, ROCE_LEN },
	{ "damaged fragment offset", true, 6, 0x4001, true, false, ROCE_LEN },
	{ "ICMPv6", false, 6, 0x3a40, false, false, 0 },
	{ "no next header", false, 6, 0x3b40, false, false, 0 },
	{ "hop limit", false, 6, 0x1101, true, true, ROCE_LEN },
	{ "flow label", false, 2, 0xffff, true, true, ROCE_LEN },
	{ "version of IPv6", false, 0, 0x46a0, true, false, ROCE_LEN },
	{ "IPv6 longer than the frame", false, 4, UDP_LEN + ROCE_LEN + 1, false, false, 0 },
	{ "IPv6 of length 0", false, 4, 0, false, false, 0 },
};

START_LOOP_TEST(damaged, ROWS(word_rows))
{
	struct recorded r = record(0, !word_rows[_i].ipv4);
	struct pcap_packet packet;
	bool icrc_ok;

	put_be16(r.bytes + r.l3 + word_rows[_i].at, word_rows[_i].value);
	ck_assert_msg(find(&packet, DLT_EN10MB, &r, r.len, r.len, &icrc_ok) == word_rows[_i].found,
		"%s", word_rows[_i].name);
	ck_assert_msg(icrc_ok == word_rows[_i].icrc_ok, "%s: ICRC", word_rows[_i].name);
	if (word_rows[_i].found)
		ck_assert_uint_eq(packet.end - packet.bth, word_rows[_i].len);
}
END_TEST

/* Payload that happens to look like our port, in the middle of another datagram. */
START_TEST(later_fragment)
{
	struct recorded r = record(0, 0);
	struct pcap_packet packet;
	bool icrc_ok;

	put_be16(r.bytes + r.l3 + 6, 0x0100);
	put_be16(r.bytes + r.l3 + 24, 0x5a5a);
	ck_assert(!find(&packet, DLT_EN10MB, &r, r.len, r.len, &icrc_ok));
	ck_assert(!find(&packet, DLT_EN10MB, &r, r.l3 + 24, r.len, &icrc_ok));
}
END_TEST

/* Sets the ICRC behind `len` bytes of a packet. */
static void fix_icrc(struct recorded *r, bool ipv4, size_t udp)
{
	size_t len = r->len - r->l3 - ICRC_LEN;

	icrc_store(r->bytes + r->l3 + len, icrc_packet(r->bytes + r->l3, ipv4, udp, len));
}

static void insert(struct recorded *r, size_t at, const uint8_t *bytes, size_t len)
{
	memmove(r->bytes + r->l3 + at + len, r->bytes + r->l3 + at, r->len - r->l3 - at);
	memcpy(r->bytes + r->l3 + at, bytes, len);
	r->len += len;
}

START_TEST(ipv4_options)
{
	static const uint8_t nops[40] = { 1, 1, 1, 1 };

	for (size_t words = 1; words <= 10; words++) {
		struct recorded r = record(0, 0);
		struct pcap_packet packet;
		bool icrc_ok;

		insert(&r, IPV4_LEN, nops, words * 4);
		r.bytes[r.l3] = (uint8_t)(0x45 + words);
		put_be16(r.bytes + r.l3 + 2, (uint16_t)(r.len - r.l3));
		fix_icrc(&r, true, IPV4_LEN + words * 4);
		ck_assert(find(&packet, DLT_EN10MB, &r, r.len, r.len, &icrc_ok));
		ck_assert_uint_eq(packet.udp, IPV4_LEN + words * 4);
		ck_assert(icrc_ok);
	}
}
END_TEST

/* Chains of extension headers; each one names the next. */
static const struct {
	const char *name;
	uint8_t first;
	uint8_t bytes[MAX_EXTENSION];
	size_t len;
	bool found;
} extension_rows[] = {
	{ "hop-by-hop", 0, { 17, 0, 1, 4 }, 8, true },
	{ "destination options of 24 bytes", 60, { 17, 2, 1, 20 }, 24, true },
	{ "routing, destination", 43, { 60, 0, 0, 0, 0, 0, 0, 0, 17, 0, 1, 4 }, 16, true },
	{ "mobility", 135, { 17, 0 }, 8, true },
	{ "authentication of 24 bytes", 51, { 17, 4 }, 24, true },
	{ "whole in one fragment", 44, { 17, 0, 0, 0, 1, 2, 3, 4 }, 8, true },
	{ "first fragment", 44, { 17, 0, 0, 1, 1, 2, 3, 4 }, 8, true },
	{ "hop-by-hop, then TCP", 0, { 6, 0, 1, 4 }, 8, false },
	{ "none after it", 60, { 59, 0, 1, 4 }, 8, false },
	{ "encrypted", 50, { 17, 0, 0, 0 }, 8, false },
	{ "longer than the frame", 60, { 17, 255 }, 8, false },
};

START_LOOP_TEST(ipv6_extensions, ROWS(extension_rows))
{
	struct recorded r = record(0, 1);
	size_t len = extension_rows[_i].len;
	struct pcap_packet packet;
	bool icrc_ok;

	insert(&r, IPV6_LEN, extension_rows[_i].bytes, len);
	r.bytes[r.l3 + 6] = extension_rows[_i].first;
	put_be16(r.bytes + r.l3 + 4, (uint16_t)(r.len - r.l3 - IPV6_LEN));
	fix_icrc(&r, false, IPV6_LEN + len);
	ck_assert_msg(
		find(&packet, DLT_EN10MB, &r, r.len, r.len, &icrc_ok) == extension_rows[_i].found,
		"%s", extension_rows[_i].name);
	ck_assert(icrc_ok == extension_rows[_i].found);
	for (size_t captured = 0; captured < r.len; captured++)
		find(&packet, DLT_EN10MB, &r, captured, r.len, &icrc_ok);
}
END_TEST

START_TEST(other_links)
{
	ck_assert(!pcap_knows_link(DLT_IEEE802_11));
	ck_assert(!pcap_knows_link(-1));
	ck_assert(pcap_knows_link(DLT_IPV4));
	ck_assert(pcap_knows_link(DLT_IPV6));
}
END_TEST

TEST_FILE(pcap_frame)
