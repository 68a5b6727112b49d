/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending by NICs that DPDK drives: segments, references, and memory that is unmapped. */
#include <check.h>
#include <errno.h>
#include <string.h>

#include <ferrule/error.h>

#include "tests/unit/drivers/dpdk/nic_fixture.h"
#include "tests/fixtures/program.h"

/* ---- sending */

START_TEST(references)
{
	unsigned before;

	nic_must_open();
	before = nic_free_buffers();
	nic_map_memory();
	ck_assert_uint_eq(nic.mapped, 1);
	ck_assert_uint_eq(nic_segments_of(100, 3000), 3);
	ck_assert_uint_eq(nic_free_buffers(), before);
	nic_send_all_kinds();
	nic_close_port(before);
}
END_TEST

START_TEST(few_segments)
{
	unsigned before;

	nic.segments = 2;
	nic_must_open();
	before = nic_free_buffers();
	nic_map_memory();
	ck_assert_uint_eq(nic_segments_of(100, 3000), 1);
	nic_send_all_kinds();
	nic_close_port(before);
}
END_TEST

START_TEST(one_segment)
{
	unsigned before;

	nic.has_no_chains = true;
	nic.segments = 1;
	nic_must_open();
	before = nic_free_buffers();
	nic_map_memory();
	ck_assert_uint_eq(nic.mapped, 0);
	ck_assert_uint_eq(nic.tx_offloads, 0);
	nic_send_all_kinds();
	nic_close_port(before);
}
END_TEST

/* As Ethernet requires, with zeros behind the data. A software port leaves that to the next
 * sender. */
START_LOOP_TEST(short_frames, 3)
{
	static const char *const drivers[] = { "net_ice", "net_e1000_em", "net_double" };
	static const uint32_t lens[] = { 42, 58, 59, 60, 61 };
	const uint8_t zeros[60] = { 0 };
	unsigned before;

	nic.driver = drivers[_i];
	nic.is_vdev = _i == 2;
	nic.page = _i == 1 ? PAGE : 0;
	nic_must_open();
	before = nic_free_buffers();
	for (size_t i = 0; i < RTE_DIM(lens); i++) {
		struct port_packet packet = nic_packet_of(0, 0);
		uint32_t len = nic.is_vdev ? lens[i] : RTE_MAX(lens[i], 60u);
		const struct nic_sent *sent = &nic.sent[i];

		packet.header_len = (uint16_t)(lens[i] - TRAILER);
		memset(packet.header, 0x11, packet.header_len);
		ck_assert_uint_eq(nic_port->ops->tx_burst(nic_port, 0, &packet, 1), 1);
		ck_assert_uint_eq(sent->len, len);
		ck_assert_mem_eq(sent->bytes, packet.header, packet.header_len);
		ck_assert_mem_eq(sent->bytes + packet.header_len, packet.trailer, TRAILER);
		ck_assert_mem_eq(sent->bytes + lens[i], zeros, len - lens[i]);
	}
	nic_close_port(before);
}
END_TEST

/* Without and with a driver that releases sent packets: copies and references. */
START_LOOP_TEST(segments_within_pages, 2)
{
	unsigned before;

	nic.driver = "net_e1000_igb";
	nic.has_no_cleanup = _i == 0;
	nic.page = PAGE;
	nic_must_open();
	before = nic_free_buffers();
	nic_map_memory();
	ck_assert_uint_eq(nic.mapped, _i);
	nic_send_all_kinds();
	nic_close_port(before);
}
END_TEST

/* In the middle of a packet: none of it stays. */
START_TEST(buffers_run_out)
{
	struct rte_mbuf *taken[4096];
	struct port_packet packet;
	unsigned before, n = 0;

	nic.driver = "net_e1000_em";
	nic.has_no_cleanup = true;
	nic_must_open();
	before = nic_free_buffers();
	nic_map_memory();
	packet = nic_packet_of(0, PAYLOAD);
	for (; nic_free_buffers() > 1; n++)
		taken[n] = rte_pktmbuf_alloc(nic.pool);
	ck_assert_uint_eq(nic_port->ops->tx_burst(nic_port, 0, &packet, 1), 0);
	ck_assert_uint_eq(nic_free_buffers(), 1);
	while (n > 0)
		rte_pktmbuf_free(taken[--n]);
	nic_segments_of(0, PAYLOAD);
	nic_close_port(before);
}
END_TEST

/* The requirements of virtio's driver to work without indirect descriptors. */
START_TEST(one_buffer_for_virtio)
{
	unsigned before;

	nic.driver = "net_virtio";
	nic_must_open();
	before = nic_free_buffers();
	nic_map_memory();
	for (uint32_t len = 0; len <= PAYLOAD; len += 512) {
		ck_assert_uint_eq(nic_segments_of(1, len), 1);
		ck_assert(RTE_MBUF_DIRECT(nic.sent[nic.n_sent - 1].mbuf));
		ck_assert_uint_ge(rte_pktmbuf_headroom(nic.sent[nic.n_sent - 1].mbuf), 12);
	}
	nic_close_port(before);
}
END_TEST

/* Its memory may be shared with another process, the application's is not. net_ring passes packets
 * on unchanged. */
START_LOOP_TEST(unknown_vdev, 2)
{
	unsigned before;

	nic.is_vdev = true;
	nic.driver = _i == 0 ? "net_double" : "net_ring";
	nic_must_open();
	before = nic_free_buffers();
	nic_map_memory();
	ck_assert_uint_eq(nic_segments_of(100, 3000), 1);
	nic_close_port(before);
}
END_TEST

START_TEST(driver_that_takes_nothing)
{
	struct port_packet packets[3];
	unsigned before;

	nic_must_open();
	before = nic_free_buffers();
	nic_map_memory();
	for (unsigned i = 0; i < 3; i++)
		packets[i] = nic_packet_of(100 * i, 1000);
	nic.takes_nothing = true;
	for (int i = 0; i < 5000; i++)
		ck_assert_uint_eq(nic_port->ops->tx_burst(nic_port, 0, packets, 3), 0);
	ck_assert(nic_port->ops->mem_idle(nic_port, nic_mem));
	nic.takes_nothing = false;
	for (unsigned sent = 0; sent < 3;)
		sent += nic_port->ops->tx_burst(nic_port, 0, packets + sent, (uint16_t)(3 - sent));
	for (unsigned i = 0; i < 3; i++)
		nic_check_sent(i, 100 * i, 1000);
	nic_close_port(before);
}
END_TEST

/* ---- memory that is to go */

START_TEST(sent_packets_are_given_up)
{
	nic_must_open();
	nic_map_memory();
	nic.is_stuck = true;
	nic_segments_of(0, 1000);
	ck_assert(!nic_port->ops->mem_idle(nic_port, nic_mem));
	nic.is_stuck = false;
	ck_assert(nic_port->ops->mem_idle(nic_port, nic_mem));
	ck_assert_uint_eq(nic.starts, 1);
	nic_close_port(nic_free_buffers());
}
END_TEST

static void check_filler(const struct nic_sent *sent)
{
	uint8_t frame[60] = { 0 };

	memcpy(frame, nic_port->caps.mac, 6);
	memcpy(frame + 6, nic_port->caps.mac, 6);
	frame[12] = 0x88;
	frame[13] = 0xb5;
	ck_assert_uint_eq(sent->len, sizeof(frame));
	ck_assert_mem_eq(sent->bytes, frame, sizeof(frame));
}

START_TEST(packet_that_stays_at_the_tail)
{
	unsigned before;

	nic_must_open();
	before = nic_free_buffers();
	nic_map_memory();
	for (int i = 0; i < 3; i++)
		nic_segments_of(1000 * i, 1000);
	nic.keeps_tail = true;
	ck_assert(!nic_port->ops->mem_idle(nic_port, nic_mem));
	ck_assert_uint_eq(nic.n_sent, 3);
	ck_assert(port_mem_flush(nic_port, nic_mem));
	ck_assert_uint_eq(nic.n_sent, 4);
	check_filler(&nic.sent[3]);
	ck_assert_uint_eq(nic.starts, 1);
	nic_close_port(before);
}
END_TEST

/* One frame for everything sent before it, however often the memory is queried. */
START_TEST(packets_under_way)
{
	unsigned before;

	nic_must_open();
	before = nic_free_buffers();
	nic_map_memory();
	nic.is_stuck = true;
	nic_segments_of(0, 1000);
	nic.takes_nothing = true;
	ck_assert(!port_mem_flush(nic_port, nic_mem));
	nic.takes_nothing = false;
	for (int i = 0; i < 3; i++)
		ck_assert(!port_mem_flush(nic_port, nic_mem));
	ck_assert_uint_eq(nic.n_sent, 2);
	nic_segments_of(0, 1000);
	for (int i = 0; i < 3; i++)
		ck_assert(!port_mem_flush(nic_port, nic_mem));
	ck_assert_uint_eq(nic.n_sent, 4);
	/* The link goes down: they never leave. */
	nic.is_down = true;
	ck_assert(port_mem_flush(nic_port, nic_mem));
	ck_assert_uint_eq(nic.starts, 2);
	nic_close_port(before);
}
END_TEST

/* Nothing leaves before the link is back. */
START_TEST(packets_that_wait_for_a_link)
{
	nic_must_open();
	nic_map_memory();
	nic.is_stuck = true;
	nic_segments_of(0, 1000);
	nic.is_down = true;
	ck_assert(!nic_port->ops->mem_idle(nic_port, nic_mem));
	ck_assert_uint_eq(nic.starts, 1);
	ck_assert(port_mem_flush(nic_port, nic_mem));
	ck_assert_uint_eq(nic.starts, 2);
	/* The link is not restarted again and again. */
	ck_assert(port_mem_flush(nic_port, nic_mem));
	ck_assert_uint_eq(nic.starts, 2);
	/* A queue pair tries again. */
	nic.n_sent = 0;
	nic_segments_of(0, 1000);
	ck_assert(port_mem_flush(nic_port, nic_mem));
	ck_assert_uint_eq(nic.starts, 3);
	ck_assert_uint_eq(nic.n_sent, 1);
	nic_close_port(nic_free_buffers());
}
END_TEST

START_TEST(driver_that_keeps_what_is_sent)
{
	nic.has_no_cleanup = true;
	nic_must_open();
	nic_map_memory();
	ck_assert_uint_eq(nic.mapped, 0);
	ck_assert_uint_eq(nic_segments_of(100, 3000), 1);
	ck_assert(nic_port->ops->mem_idle(nic_port, nic_mem));
	nic_close_port(nic.n_sent + nic_free_buffers());
}
END_TEST

/* The function would damage the ring of the first one, and the others' devices do not read memory
 * of the application. */
START_LOOP_TEST(drivers_that_are_not_asked, 3)
{
	static const char *const drivers[] = { "net_iavf", "net_cn10k", "net_netvsc" };

	nic.driver = drivers[_i];
	nic_must_open();
	nic_map_memory();
	ck_assert_uint_eq(nic.mapped, 0);
	ck_assert_uint_eq(nic_segments_of(100, 3000), 1);
	ck_assert(nic_port->ops->mem_idle(nic_port, nic_mem));
	ck_assert_uint_eq(nic.cleanups, 0);
	nic_close_port(nic.n_sent + nic_free_buffers());
}
END_TEST

TEST_MAIN(nic_send)
{
	return run_suite_unforked(all_tests(nic_setup, NULL));
}
