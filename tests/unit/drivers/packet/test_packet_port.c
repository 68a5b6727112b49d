/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports over packet sockets: packets joined to frames and cut out of them again. A pair of local
 * sockets joins two ports here, and passes frames on as the kernel does without segmentation. The
 * system test has the kernel's own segmentation.
 */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/packet/internal.h"
#include "lib/base/bytes.h"
#include "lib/base/error.h"
#include "lib/wire/icrc.h"
#include "lib/wire/packet.h"
#include "tests/unit/drivers/packet/packet_ends.h"
#include "tests/fixtures/program.h"

/* ---- the text */

static const struct {
	const char *text;
	int err;
	const char *interface;
	bool no_gso;
} texts[] = {
	{ "packet:eth0", 0, "eth0", false },
	{ "packet:eth0.7,gso=on", 0, "eth0.7", false },
	{ "packet:eth0,gso=off", 0, "eth0", true },
	{ "packet:", -EINVAL, NULL, false },
	{ "packet:,gso=off", -EINVAL, NULL, false },
	{ "packet:abcdefghijklmnop", -EINVAL, NULL, false },
	{ "packet:eth0,", -EINVAL, NULL, false },
	{ "packet:eth0,gso=", -EINVAL, NULL, false },
	{ "packet:eth0,gso=off,gso=on", -EINVAL, NULL, false },
	{ "packet:eth0,iface=eth1", -EINVAL, NULL, false },
};

START_LOOP_TEST(text, ROWS(texts))
{
	struct packet_wanted wanted;

	ck_assert(packet_is_port(texts[_i].text));
	ck_assert_int_eq(packet_parse(texts[_i].text, &wanted), texts[_i].err);
	if (texts[_i].err) {
		ck_assert_ptr_nonnull(strstr(frl_last_error(), texts[_i].text));
		return;
	}
	ck_assert_str_eq(wanted.interface, texts[_i].interface);
	ck_assert_int_eq(wanted.no_gso, texts[_i].no_gso);
}
END_TEST

START_TEST(other_texts)
{
	ck_assert(!packet_is_port(NULL));
	ck_assert(!packet_is_port("packet"));
	ck_assert(!packet_is_port("net_af_packet0,iface=packet:"));
}
END_TEST

/* ---- what another identification changes in the ICRC */

START_TEST(changes_icrc)
{
	struct packet_power power = { 0 };
	uint8_t bytes[300];

	for (unsigned len = 6; len < sizeof(bytes); len++) {
		uint16_t change = (uint16_t)(len * 40503 + 1);
		uint32_t before, after;

		memcpy(bytes, memory + len, len);
		before = icrc_update(7, bytes, len);
		put_be16(bytes + 4, (uint16_t)(get_be16(bytes + 4) ^ change));
		after = icrc_update(7, bytes, len);
		ck_assert_uint_eq(packet_icrc_change(&power, change, len - 6), before ^ after);
		/* And the same as before, by the retained bytes. */
		ck_assert_uint_eq(packet_icrc_change(&power, change, len - 6), before ^ after);
	}
}
END_TEST

/* ---- joined */

/* The change in one of five packets of 1024 bytes; that many of them are joined then. */
static const struct {
	const char *what;
	bool v4;
	unsigned packet;
	unsigned at; /* of its header, this byte is changed */
	int payload; /* or it has so much: 0: as others; */
	unsigned n;
} joins[] = {
	{ "nothing", true, 0, 0, 0, 5 },
	{ "nothing", false, 0, 0, 0, 5 },
	{ "destination", true, 2, 0, 0, 2 },
	{ "source", true, 2, 6, 0, 2 },
	{ "type", true, 2, 12, 0, 2 },
	{ "type of the first", true, 0, 12, 0, 1 },
	{ "header length", true, 0, 14, 0, 1 },
	{ "traffic class", true, 3, 15, 0, 3 },
	{ "identification", true, 3, 18, 0, 5 },
	{ "fragment", true, 0, 20, 0, 1 },
	{ "fragment", true, 1, 20, 0, 1 },
	{ "hop limit", true, 1, 22, 0, 1 },
	{ "protocol", true, 0, 23, 0, 1 },
	{ "header checksum", true, 2, 24, 0, 5 },
	{ "from", true, 4, 26, 0, 4 },
	{ "to", true, 4, 33, 0, 4 },
	{ "source port", true, 2, 35, 0, 2 },
	{ "port", true, 0, 37, 0, 1 },
	{ "length", true, 2, 39, 0, 2 },
	{ "checksum", true, 2, 40, 0, 2 },
	{ "checksum of the first", true, 0, 41, 0, 1 },
	{ "transport", true, 2, 42, 0, 5 },
	{ "shorter", true, 2, 0, 1000, 3 },
	{ "without payload", true, 2, 0, -1, 3 },
	{ "longer", true, 2, 0, 1028, 2 },
	{ "the first shorter", true, 0, 0, 1020, 1 },
	{ "flow label", false, 2, 15, 0, 2 },
	{ "next header", false, 2, 20, 0, 2 },
	{ "from", false, 2, 22, 0, 2 },
	{ "length", false, 2, 58 + 1, 0, 2 },
};

START_LOOP_TEST(joined, ROWS(joins))
{
	struct port_packet packets[5];
	struct packet_batch train;
	struct wire_path path;

	make_packets(packets, 5, joins[_i].v4, 1024);
	make_path(&path, joins[_i].v4, 0, 0xc123);
	if (joins[_i].payload)
		make_packet(&packets[joins[_i].packet], &path, joins[_i].packet,
			joins[_i].payload > 0 ? (uint32_t)joins[_i].payload : 0);
	else if (strcmp(joins[_i].what, "nothing") != 0)
		packets[joins[_i].packet].header[joins[_i].at] ^= 2;
	packet_join(packets, 5, &train);
	ck_assert_msg(
		train.n == joins[_i].n, "%s: %u, not %u", joins[_i].what, train.n, joins[_i].n);
}
END_TEST

START_LOOP_TEST(alone, 5)
{
	struct port_packet packets[5];
	struct packet_batch train;

	make_packets(packets, 5, true, 1024);
	packets[_i].alone = true;
	packet_join(packets, 5, &train);
	ck_assert_uint_eq(train.n, _i ? _i : 1);
}
END_TEST

/* No frame is longer than IP can tell. */
START_TEST(joined_at_most)
{
	struct port_packet *packets = calloc(PACKET_JOIN_MAX + 2, sizeof(*packets));
	struct packet_batch train;
	struct wire_path path;

	for (int v4 = 0; v4 < 2; v4++) {
		make_path(&path, v4, 0, 0xc123);
		for (unsigned i = 0; i < 20; i++)
			make_packet(&packets[i], &path, i, PAYLOAD);
		packet_join(packets, 20, &train);
		ck_assert_uint_eq(train.n, 15);
		for (unsigned i = 0; i < PACKET_JOIN_MAX + 2; i++)
			make_packet(&packets[i], &path, 0, 8);
		packet_join(packets, PACKET_JOIN_MAX + 2, &train);
		ck_assert_uint_eq(train.n, PACKET_JOIN_MAX);
	}
	free(packets);
}
END_TEST

/* ---- cut */

/* A frame of IPv4 with 100 bytes behind UDP's header, of which something is changed. */
static const struct {
	const char *what;
	uint8_t type;
	uint16_t size;
	uint16_t header_len;
	size_t len;
	int at;     /* this byte is changed, or -1 */
	uint32_t n; /* 0: refused */
	uint32_t last;
} cuts[] = {
	{ "as it should be", PACKET_GSO_UDP, 40, HEADERS, 142, -1, 3, 20 },
	{ "with marks", PACKET_GSO_UDP | VIRTIO_NET_HDR_GSO_ECN, 50, HEADERS, 142, -1, 2, 50 },
	{ "of TCP", VIRTIO_NET_HDR_GSO_TCPV4, 40, HEADERS, 142, -1, 0, 0 },
	{ "of fragments", VIRTIO_NET_HDR_GSO_UDP, 40, HEADERS, 142, -1, 0, 0 },
	{ "of no kind", 77, 40, HEADERS, 142, -1, 0, 0 },
	{ "size 0", PACKET_GSO_UDP, 0, HEADERS, 142, -1, 0, 0 },
	{ "size 1", PACKET_GSO_UDP, 1, HEADERS, 142, -1, 100, 1 },
	{ "larger than the frame", PACKET_GSO_UDP, 101, HEADERS, 142, -1, 1, 100 },
	{ "largest", PACKET_GSO_UDP, 65535, HEADERS, 142, -1, 1, 100 },
	{ "header length 0", PACKET_GSO_UDP, 40, 0, 142, -1, 3, 20 },
	{ "header length 65535", PACKET_GSO_UDP, 40, 65535, 142, -1, 3, 20 },
	{ "headers alone", PACKET_GSO_UDP, 40, HEADERS, 42, -1, 0, 0 },
	{ "cut in the headers", PACKET_GSO_UDP, 40, HEADERS, 41, -1, 0, 0 },
	{ "14 bytes", PACKET_GSO_UDP, 40, HEADERS, 14, -1, 0, 0 },
	{ "nothing", PACKET_GSO_UDP, 40, HEADERS, 0, -1, 0, 0 },
	{ "shorter than it says", PACKET_GSO_UDP, 40, HEADERS, 141, -1, 0, 0 },
	{ "longer than it says", PACKET_GSO_UDP, 40, HEADERS, 143, -1, 0, 0 },
	{ "another type", PACKET_GSO_UDP, 40, HEADERS, 142, 12, 0, 0 },
	{ "IP options", PACKET_GSO_UDP, 40, HEADERS, 142, 14, 0, 0 },
	{ "fragment", PACKET_GSO_UDP, 40, HEADERS, 142, 21, 0, 0 },
	{ "another protocol", PACKET_GSO_UDP, 40, HEADERS, 142, 23, 0, 0 },
	{ "another port", PACKET_GSO_UDP, 40, HEADERS, 142, 37, 0, 0 },
	{ "another UDP length", PACKET_GSO_UDP, 40, HEADERS, 142, 39, 0, 0 },
};

START_LOOP_TEST(cut_up, ROWS(cuts))
{
	struct port_packet packet;
	struct wire_path path;
	struct virtio_net_hdr vnet = {
		.gso_type = cuts[_i].type, .gso_size = cuts[_i].size, .hdr_len = cuts[_i].header_len
	};
	struct packet_cut cut;
	uint8_t *frame = malloc(cuts[_i].len + 1);
	bool is_cut;

	make_path(&path, true, 0, 0xc123);
	make_packet(&packet, &path, 0, 84); /* BTH and ICRC: 100 */
	memcpy(frame, packet.header, cuts[_i].len < HEADERS ? cuts[_i].len : HEADERS);
	if (cuts[_i].at >= 0)
		frame[cuts[_i].at] ^= 1;
	/* A block of exactly that length: a sanitizer finds reads behind it. */
	frame = realloc(frame, cuts[_i].len ? cuts[_i].len : 1);
	is_cut = packet_cut(&vnet, frame, cuts[_i].len, cuts[_i].len, &cut);
	ck_assert_msg(is_cut == (cuts[_i].n > 0), "%s", cuts[_i].what);
	if (is_cut) {
		ck_assert_uint_eq(cut.n, cuts[_i].n);
		ck_assert_uint_eq(cut.last, cuts[_i].last);
	}
	free(frame);
}
END_TEST

/* ---- two ports */

/* Packet `psn` arrived unchanged, except for its identification. */
static void check_packet(const struct port_frame *frame, uint32_t psn, uint32_t len)
{
	struct wire_packet packet;

	ck_assert_int_eq(wire_decode(&packet, frame->data, frame->len), WIRE_OK);
	ck_assert(wire_trim(&packet, true) == WIRE_OK);
	ck_assert(wire_icrc_ok(&packet));
	ck_assert_uint_eq(packet.h.bth.psn.value, psn);
	ck_assert_uint_eq(packet.payload_len, len);
	ck_assert_mem_eq(packet.payload, memory + (size_t)psn * PAYLOAD, len);
}

static const struct {
	bool v4;
	uint16_t vlan;
	uint32_t len;  /* payload of a packet; */
	uint32_t last; /* of the last one */
	unsigned n;
} ways[] = {
	{ true, 0, PAYLOAD, PAYLOAD, 1 },
	{ true, 0, PAYLOAD, PAYLOAD, 15 },
	{ true, 0, PAYLOAD, PAYLOAD, 16 },
	{ true, 0, PAYLOAD, 1, MANY },
	{ true, 0, PAYLOAD, 4095, MANY },
	{ true, 0, 1024, 1024, MANY },
	{ true, 0, 256, 255, MANY },
	{ true, 0, 1, 0, MANY },
	{ true, 5, PAYLOAD, 77, MANY },
	{ false, 0, PAYLOAD, PAYLOAD, MANY },
	{ false, 0, 2048, 3, MANY },
	{ false, 9, 1000, 998, MANY },
};

/* All sent packets arrive, segmented as expected or not. */
static void pass(struct packet_port *ports[2], unsigned way)
{
	struct port_packet packets[MANY];
	struct port_frame frames[PORT_BURST];
	unsigned n = ways[way].n, sent = 0, seen = 0;
	struct wire_path path;

	make_path(&path, ways[way].v4, ways[way].vlan, 0xc555);
	for (unsigned i = 0; i < n; i++)
		make_packet(&packets[i], &path, i, i + 1 == n ? ways[way].last : ways[way].len);
	while (seen < n) {
		uint16_t got;

		if (sent < n)
			sent += packet_tx_burst(
				&ports[0]->base, 0, packets + sent, (uint16_t)(n - sent));
		got = packet_rx_burst(&ports[1]->base, frames, PORT_BURST);
		for (uint16_t i = 0; i < got; i++, seen++)
			check_packet(
				&frames[i], seen, seen + 1 == n ? ways[way].last : ways[way].len);
		packet_rx_free(&ports[1]->base, frames, got);
	}
	ck_assert_uint_eq(packet_rx_burst(&ports[1]->base, frames, PORT_BURST), 0);
	ck_assert_uint_eq(ports[1]->dropped.rx_dropped, 0);
	ck_assert_uint_eq(ports[0]->dropped.tx_dropped, 0);
}

START_LOOP_TEST(passes, ROWS(ways))
{
	struct packet_port *ports[2];

	open_both(ports);
	for (int k = 0; k < 50; k++)
		pass(ports, (unsigned)_i);
	close_both(ports);
}
END_TEST

/* A sleeping receiver is notified of frames in the socket, and does not sleep while some are
 * left. */
START_TEST(tells)
{
	struct packet_port *ports[2];
	struct port_packet packets[2];
	struct port_frame frame;
	struct pollfd event = { .events = POLLIN };

	open_both(ports);
	event.fd = packet_rx_arm(&ports[1]->base);
	ck_assert_int_ge(event.fd, 0);
	ck_assert_int_eq(poll(&event, 1, 0), 0);
	make_packets(packets, 2, true, PAYLOAD);
	ck_assert_uint_eq(packet_tx_burst(&ports[0]->base, 0, packets, 2), 2);
	ck_assert_int_eq(poll(&event, 1, HANG_MS), 1);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_uint_eq(packet_rx_burst(&ports[1]->base, &frame, 1), 1);
		ck_assert_int_eq(packet_rx_arm(&ports[1]->base), i == 0 ? -EAGAIN : event.fd);
		check_packet(&frame, i, PAYLOAD);
		packet_rx_free(&ports[1]->base, &frame, 1);
	}
	ck_assert_int_eq(poll(&event, 1, 0), 0);
	close_both(ports);
}
END_TEST

/* One after the other: the expectation is wrong every time. */
START_TEST(passes_in_turns)
{
	struct packet_port *ports[2];

	open_both(ports);
	for (unsigned k = 0; k < 500; k++)
		pass(ports, (k * 7 + k / 12) % (sizeof(ways) / sizeof(ways[0])));
	close_both(ports);
}
END_TEST

/* 40 packets of 1 KiB become one frame, and 40 frames if the kernel cannot segment. */
START_LOOP_TEST(few_frames, 2)
{
	struct port_packet packets[MANY];
	struct packet_port *ports[2];
	uint8_t frame[70000];
	unsigned n = 0;

	open_both(ports);
	ports[0]->joins = _i == 0;
	make_packets(packets, MANY, true, 1024);
	for (unsigned sent = 0; sent < MANY;) {
		sent += packet_tx_burst(
			&ports[0]->base, 0, packets + sent, (uint16_t)(MANY - sent));
		while (recv(ports[1]->fd, frame, sizeof(frame), 0) > 0)
			n++;
	}
	ck_assert_uint_eq(n, _i == 0 ? 1 : MANY);
	close_both(ports);
}
END_TEST

/* Retained frames stay unchanged while others arrive. */
START_TEST(keeps)
{
	struct port_frame frames[2 * MANY];
	struct packet_port *ports[2];
	unsigned n = 0;

	open_both(ports);
	for (int k = 0; k < 2; k++) {
		struct port_packet packets[MANY];
		unsigned sent = 0;

		make_packets(packets, MANY, true, PAYLOAD);
		while (sent < MANY || n < (unsigned)(k + 1) * MANY) {
			if (sent < MANY)
				sent += packet_tx_burst(&ports[0]->base, 0, packets + sent,
					(uint16_t)(MANY - sent));
			n += packet_rx_burst(&ports[1]->base, frames + n, PORT_BURST);
		}
	}
	for (unsigned i = 0; i < n; i++)
		check_packet(&frames[i], i % MANY, PAYLOAD);
	packet_rx_free(&ports[1]->base, frames, (uint16_t)n);
	close_both(ports);
}
END_TEST

/* The socket takes none: they stay with the engine, or are dropped if the socket is unusable. */
START_TEST(not_taken)
{
	struct port_packet packets[5];
	struct packet_port *ports[2];
	unsigned n = 0, taken = 1;

	open_both(ports);
	make_packets(packets, 5, true, 1024);
	packets[2].header[0] ^= 2; /* three frames */
	while (taken && n < 100000)
		n += taken = packet_tx_burst(&ports[0]->base, 0, packets, 5);
	ck_assert_uint_lt(n, 100000);
	ck_assert_uint_eq(ports[0]->dropped.tx_dropped, 0);
	close_end(ports[1]);
	ck_assert_uint_eq(packet_tx_burst(&ports[0]->base, 0, packets, 5), 2);
	ck_assert_uint_eq(ports[0]->dropped.tx_dropped, 2);
	close_end(ports[0]);
}
END_TEST

TEST_MAIN(packet_port)
{
	return run_suite(all_tests(fill_memory, NULL));
}
