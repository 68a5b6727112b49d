/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports over packet sockets: errors of the kernel, and frames that nobody should send. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "drivers/packet/internal.h"
#include "lib/base/memory/fault.h"
#include "lib/base/bytes.h"
#include "lib/wire/opcode.h"
#include "lib/wire/packet.h"
#include "tests/unit/drivers/packet/packet_ends.h"
#include "tests/fixtures/program.h"

enum { UD_SEND_ONLY = TRANSPORT_UD | OP_SEND_ONLY };

/* ---- errors of the kernel */

/* The results of the next calls, in order; 0: the real result. */
static int send_errors[16], waiting_errors[16];
static unsigned n_sends, n_waits;

static struct packet_port *ports[2];

int sendmmsg(int fd, struct mmsghdr *messages, unsigned n, int flags)
{
	int err = n_sends < 16 ? send_errors[n_sends] : 0;

	n_sends++;
	if (err) {
		errno = err;
		return -1;
	}
	return (int)syscall(SYS_sendmmsg, fd, messages, n, flags);
}

int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict len)
{
	if (level == SOL_SOCKET && name == SO_ERROR && n_waits < 16) {
		memcpy(value, &waiting_errors[n_waits++], sizeof(int));
		return 0;
	}
	return (int)syscall(SYS_getsockopt, fd, level, name, value, len);
}

static void setup(void)
{
	fill_memory();
	memset(send_errors, 0, sizeof(send_errors));
	memset(waiting_errors, 0, sizeof(waiting_errors));
	n_sends = n_waits = 0;
	open_both(ports);
}

static void teardown(void)
{
	close_both(ports);
}

/* Errors of a port that sends two frames: one of three packets, and a packet. */
static const struct {
	const char *what;
	uint8_t opcode;
	int errors[8];
	unsigned calls; /* to take all that is not lost */
	unsigned lost;
	bool joins; /* at the end */
} refusals[] = {
	{ "nothing", OP_WRITE_MIDDLE, { 0 }, 1, 0, true },
	{ "an error left behind", OP_WRITE_MIDDLE, { EINVAL }, 1, 0, true },
	{ "a kernel that does not cut", OP_WRITE_MIDDLE, { EINVAL, EINVAL }, 2, 0, false },
	{ "a queue full at times", OP_WRITE_MIDDLE, { ENOBUFS, ENOBUFS, ENOBUFS }, 4, 0, true },
	{ "a filter", OP_WRITE_MIDDLE, { ENOBUFS, ENOBUFS, ENOBUFS, ENOBUFS }, 5, 3, true },
	{ "both", OP_WRITE_MIDDLE, { ENOBUFS, ENOMEM, EAGAIN, ENOBUFS, ENOMEM }, 6, 3, true },
	{ "a datagram", UD_SEND_ONLY, { ENOBUFS }, 2, 3, true },
	{ "one behind", UD_SEND_ONLY, { EINVAL, ENOBUFS }, 2, 3, true },
	{ "an interface that is down", OP_WRITE_MIDDLE, { ENETDOWN, ENETDOWN }, 3, 0, true },
	{ "an interface that is gone", OP_WRITE_MIDDLE, { ENXIO }, 2, 3, true },
};

START_LOOP_TEST(refused, ROWS(refusals))
{
	struct port_packet packets[4];
	unsigned taken = 0, calls = 0;

	make_packets(packets, 4, true, 1024);
	for (unsigned i = 0; i < 3; i++)
		packets[i].header[HEADERS] = (uint8_t)refusals[_i].opcode;
	packets[3].header[0] ^= 2;
	memcpy(send_errors, refusals[_i].errors, sizeof(refusals[_i].errors));
	for (; taken < 4 && calls < 20; calls++)
		taken += packet_tx_burst(
			&ports[0]->base, 0, packets + taken, (uint16_t)(4 - taken));
	ck_assert_msg(calls == refusals[_i].calls, "%s: %u calls", refusals[_i].what, calls);
	ck_assert_uint_eq(taken, 4);
	ck_assert_uint_eq(ports[0]->dropped.tx_dropped, refusals[_i].lost);
	ck_assert_int_eq(ports[0]->joins, refusals[_i].joins);
}
END_TEST

/* Payload that is not mapped: the port stops before its frame if it may be unmapped, and otherwise
 * drops it, also if other payload of the frame may be unmapped. */
START_LOOP_TEST(unmapped, PAIRS(2, 3))
{
	bool may_fault = _i % 3 == 1, has_other = _i % 3 == 2, is_joined = _i / 3;
	unsigned at = is_joined ? 1 : 3, taken = 0;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct port_packet packets[4];
	void *gone = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	make_packets(packets, 4, true, 1024);
	packets[3].header[0] ^= 2;
	packets[at].pieces[0].addr = gone;
	packets[at].pieces[0].may_fault = may_fault;
	packets[0].pieces[0].may_fault = has_other;
	fault_start();
	munmap(gone, page);
	for (int i = 0; i < 3; i++)
		taken += packet_tx_burst(
			&ports[0]->base, 0, packets + taken, (uint16_t)(4 - taken));
	ck_assert_int_eq(ports[0]->base.is_unreadable, may_fault);
	ck_assert_uint_eq(taken, !may_fault ? 4 : is_joined ? 0 : 3);
	ck_assert_uint_eq(ports[0]->dropped.tx_dropped, may_fault ? 0 : is_joined ? 3 : 1);
	ports[0]->base.is_unreadable = false;
}
END_TEST

/* Behind another frame: the kernel would not give the reason why it refuses one. */
START_LOOP_TEST(datagrams_lead, 2)
{
	struct port_packet packets[4];

	make_packets(packets, 4, true, 1024);
	packets[0].header[0] ^= 2;
	for (unsigned i = 1; i < 4; i++)
		packets[i].header[HEADERS] = _i ? UD_SEND_ONLY : OP_WRITE_MIDDLE;
	ck_assert_uint_eq(packet_tx_burst(&ports[0]->base, 0, packets, 4), 4);
	ck_assert_uint_eq(n_sends, _i ? 2 : 1);
}
END_TEST

/* A frame that is withdrawn does not pass its count on to the next one. */
START_TEST(counts_each)
{
	struct port_packet packets[5];

	make_packets(packets, 5, true, 1024);
	for (unsigned i = 0; i < 16; i++)
		send_errors[i] = ENOBUFS;
	for (unsigned i = 0; i < PACKET_REFUSALS_MAX - 1; i++)
		ck_assert_uint_eq(packet_tx_burst(&ports[0]->base, 0, packets, 5), 0);
	for (unsigned i = 0; i < PACKET_REFUSALS_MAX - 1; i++)
		ck_assert_uint_eq(packet_tx_burst(&ports[0]->base, 0, packets + 1, 4), 0);
	packets[1].flow = 7;
	ck_assert_uint_eq(packet_tx_burst(&ports[0]->base, 0, packets + 1, 4), 0);
	ck_assert_uint_eq(ports[0]->dropped.tx_dropped, 0);
}
END_TEST

/* An error that ends a call to receive belongs to a frame that came. */
START_TEST(counts_waiting_error)
{
	struct port_packet packets[1];
	struct port_frame frames[PORT_BURST];

	make_packets(packets, 1, true, 1024);
	waiting_errors[0] = EINVAL;
	waiting_errors[1] = ENETDOWN;
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_uint_eq(packet_tx_burst(&ports[0]->base, 0, packets, 1), 1);
		ck_assert_uint_eq(packet_rx_burst(&ports[1]->base, frames, PORT_BURST), 1);
		packet_rx_free(&ports[1]->base, frames, 1);
		ck_assert_uint_eq(ports[1]->dropped.rx_dropped, 1);
	}
}
END_TEST

/* The longest frame, and longer: `len` bytes of it, and its packets. */
static const struct {
	bool v4;
	uint16_t vlan;
	size_t len;
	unsigned n;
} longs[] = {
	{ true, 0, 65569, 17 },
	{ false, 0, 65535, 17 },
	{ false, 0, 65589, 17 },
	{ false, 7, 65593, 17 },
	{ false, 0, 65590, 0 },
	{ false, 7, 65594, 0 },
	{ false, 0, 100000, 0 },
	{ false, 0, 131000, 0 },
	{ true, 0, 131000, 0 },
};

START_LOOP_TEST(long_frames, ROWS(longs))
{
	static uint8_t frame[PACKET_VNET_LEN + 131072];
	struct virtio_net_hdr vnet = { .gso_type = PACKET_GSO_UDP, .gso_size = 4000 };
	struct port_frame frames[PORT_BURST];
	struct port_packet packet;
	struct wire_path path;

	make_path(&path, longs[_i].v4, longs[_i].vlan, 0xc555);
	make_packet(&packet, &path, 0, 100);
	memcpy(frame, &vnet, PACKET_VNET_LEN);
	memcpy(frame + PACKET_VNET_LEN, packet.header, packet.header_len);
	put_be16(frame + PACKET_VNET_LEN + path.headers_len - 4,
		(uint16_t)(longs[_i].len - path.headers_len + 8));
	ck_assert_int_gt(send(ports[0]->fd, frame, PACKET_VNET_LEN + longs[_i].len, 0), 0);
	ck_assert_uint_eq(packet_rx_burst(&ports[1]->base, frames, PORT_BURST), longs[_i].n);
	packet_rx_free(&ports[1]->base, frames, (uint16_t)longs[_i].n);
	ck_assert_uint_eq(ports[1]->dropped.rx_dropped, longs[_i].n == 0);
}
END_TEST

/* Another segmentation is expected only after two frames of it in a row. */
START_TEST(expects)
{
	static const uint32_t lens[] = { 1024, 2048, 1024, 2048, 2048, PAYLOAD, 1024 };
	static const uint32_t expected[] = { PAYLOAD, PAYLOAD, PAYLOAD, PAYLOAD, 2048, 2048, 2048 };
	struct port_frame frames[PORT_BURST];
	struct wire_path path;

	make_path(&path, true, 0, 0xc555);
	for (unsigned k = 0; k < sizeof(lens) / sizeof(lens[0]); k++) {
		struct port_packet packets[3];

		for (unsigned i = 0; i < 3; i++)
			make_packet(&packets[i], &path, i, lens[k]);
		ck_assert_uint_eq(packet_tx_burst(&ports[0]->base, 0, packets, 3), 3);
		ck_assert_uint_eq(packet_rx_burst(&ports[1]->base, frames, PORT_BURST), 3);
		packet_rx_free(&ports[1]->base, frames, 3);
		ck_assert_uint_eq(ports[1]->expect_body, expected[k] + 16);
	}
}
END_TEST

/* No input is read or written out of bounds. */
START_LOOP_TEST(garbage, 4)
{
	struct port_frame frames[PORT_BURST];
	static uint8_t frame[PACKET_VNET_LEN + 131072];
	uint32_t seed = (uint32_t)_i * 7919 + 1;
	unsigned n = 0;

	for (int k = 0; k < 2000; k++) {
		struct port_packet packet;
		struct virtio_net_hdr vnet;
		struct wire_path path;
		size_t len;

		seed = seed * 1664525 + 1013904223;
		make_path(&path, seed >> 20 & 1, seed >> 21 & 1, 0xc555);
		make_packet(&packet, &path, 0, 100);
		vnet = (struct virtio_net_hdr){ .flags = (uint8_t)(seed >> 8 & 3),
			.gso_type = seed >> 10 & 3 ? PACKET_GSO_UDP : (uint8_t)(seed >> 12),
			.gso_size = seed >> 16 & 1 ? (uint16_t)(seed >> 15 & 0x1fff)
						   : (uint16_t)(seed >> 24 & 7),
			.hdr_len = (uint16_t)(seed >> 9),
			.csum_start = (uint16_t)(seed >> 3),
			.csum_offset = (uint16_t)(seed >> 5) };
		len = seed >> 13 & 3 ? seed >> 11 & 0x1ffff : seed >> 11 & 0x7f;
		memcpy(frame, &vnet, PACKET_VNET_LEN);
		memcpy(frame + PACKET_VNET_LEN, packet.header, packet.header_len);
		if (seed >> 14 & 7 && len > path.headers_len) {
			uint8_t *udp = frame + PACKET_VNET_LEN + path.headers_len - 8;

			put_be16(udp + 4, (uint16_t)(len - path.headers_len + 8));
		}
		if (send(ports[0]->fd, frame, PACKET_VNET_LEN + len, 0) < 0)
			k--;
		for (;;) {
			uint16_t got = packet_rx_burst(&ports[1]->base, frames, PORT_BURST);

			for (uint16_t i = 0; i < got; i++) {
				ck_assert_uint_le(
					frames[i].len, ports[1]->base.caps.max_frame + VLAN_TAG);
				for (uint32_t j = 0; j < frames[i].len; j++)
					n += frames[i].data[j];
			}
			packet_rx_free(&ports[1]->base, frames, got);
			if (!got)
				break;
		}
	}
	ck_assert_uint_gt(n, 0);
	ck_assert_uint_gt(ports[1]->dropped.rx_dropped, 0);
}
END_TEST

TEST_MAIN(packet_faults)
{
	return run_suite(all_tests(setup, teardown));
}
