/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving from NICs that DPDK drives: buffers, frames in pieces, and frames that are dropped. */
#include <check.h>
#include <errno.h>
#include <string.h>

#include <ferrule/error.h>

#include "tests/unit/drivers/dpdk/nic_fixture.h"
#include "tests/fixtures/program.h"

START_TEST(buffers_in_kib)
{
	nic_must_open();
	ck_assert_uint_ge(nic_room_of(), nic_port->caps.max_frame);
	ck_assert_uint_eq(nic_room_of() % 1024, 0);
	nic_close_port(nic_free_buffers());
}
END_TEST

START_TEST(buffers_as_large_as_asked)
{
	nic.min_buffer = 7000;
	nic_must_open();
	ck_assert_uint_ge(nic_room_of(), 7000);
	nic_close_port(nic_free_buffers());
}
END_TEST

START_TEST(mtu_of_the_nic)
{
	nic.max_mtu = 1500;
	nic_must_open();
	ck_assert_uint_le(nic.mtu, 1500);
	ck_assert_uint_eq(nic_port->caps.max_frame, 1514);
	ck_assert_uint_eq(nic_port->caps.speed_mbps, 25000);
	nic_close_port(nic_free_buffers());
}
END_TEST

static const struct buffer_row {
	uint32_t holds; /* as rte_eth_rx_queue_info_get() has it */
	bool scatters;
	const char *advice; /* NULL: the port opens */
	const char *fails;
} buffer_rows[] = {
	{ 0, false, NULL, NULL },
	/* A frame of path MTU 4096, with a VLAN tag. */
	{ 4198, false, NULL, NULL },
	{ 4197, true, NULL, NULL },
	{ 4197, false, "set FRL_PATH_MTU=2048", NULL },
	{ 4194, false, "set FRL_PATH_MTU=2048", NULL },
	{ 2048, false, "set FRL_PATH_MTU=1024", NULL },
	{ 500, false, "set FRL_PATH_MTU=256", NULL },
	{ 500, false, NULL, "rte_eth_rx_queue_info_get" },
};

START_LOOP_TEST(buffers_that_the_driver_has, ROWS(buffer_rows))
{
	const struct buffer_row *row = &buffer_rows[_i];

	nic.holds = row->holds;
	nic.scatters = row->scatters;
	nic.fails = row->fails;
	if (!row->advice) {
		nic_must_open();
		ck_assert_uint_eq(nic_port->caps.max_frame, 4194);
		nic_close_port(nic_free_buffers());
		return;
	}
	ck_assert_int_eq(nic_open_port(), -EMSGSIZE);
	ck_assert_msg(strstr(frl_last_error(), row->advice), "%s", frl_last_error());
	free(nic_memory);
}
END_TEST

/* The NIC's buffers are shorter than ours. */
START_TEST(frames_in_pieces)
{
	struct port_frame frame;
	unsigned before;

	nic.buffer = 1000;
	nic_must_open();
	before = nic_free_buffers();
	for (uint32_t len = 60; len <= nic_port->caps.max_frame; len += 97) {
		nic_receive(nic_memory + len, len);
		ck_assert_uint_eq(nic_port->ops->rx_burst(nic_port, &frame, 1), 1);
		ck_assert_uint_eq(frame.len, len);
		ck_assert_mem_eq(frame.data, nic_memory + len, len);
		ck_assert_uint_eq(nic_free_buffers(), before - 1);
		nic_port->ops->rx_free(nic_port, &frame, 1);
	}
	nic_close_port(before);
}
END_TEST

START_TEST(frame_without_room)
{
	struct port_frame frame;
	struct port_stats stats;
	unsigned before;

	nic.buffer = 2048;
	nic_must_open();
	before = nic_free_buffers();
	nic_receive(nic_memory, nic_room_of() + 1);
	nic_receive(nic_memory, 100);
	/* The one behind it arrives. */
	ck_assert_uint_eq(nic_port->ops->rx_burst(nic_port, &frame, 1), 0);
	ck_assert_uint_eq(nic_port->ops->rx_burst(nic_port, &frame, 1), 1);
	ck_assert_uint_eq(frame.len, 100);
	nic_port->ops->rx_free(nic_port, &frame, 1);
	nic_port->ops->stats(nic_port, &stats);
	ck_assert_uint_eq(stats.rx_dropped, 1);
	/* The first one is reported, once, and not by a burst. */
	ck_assert_uint_eq(nic_logged.lines, 0);
	nic_port->ops->link_state(nic_port, 0);
	nic_receive(nic_memory, nic_room_of() + 2);
	ck_assert_uint_eq(nic_port->ops->rx_burst(nic_port, &frame, 1), 0);
	nic_port->ops->link_state(nic_port, 0);
	nic_check_logged("dropped a frame of 5121 bytes, its path MTU allows 4194");
	nic_close_port(before);
}
END_TEST

/* Without the addresses in front of a tag. */
START_TEST(tag_of_a_short_frame)
{
	struct port_frame frame;
	unsigned before;

	nic_must_open();
	before = nic_free_buffers();
	nic_receive(nic_memory, 13);
	nic.arrived[0]->ol_flags |= RTE_MBUF_F_RX_VLAN_STRIPPED;
	nic_receive(nic_memory, 100);
	nic.arrived[1]->ol_flags |= RTE_MBUF_F_RX_VLAN_STRIPPED;
	nic.arrived[1]->vlan_tci = 7;
	ck_assert_uint_eq(nic_port->ops->rx_burst(nic_port, &frame, 2), 1);
	ck_assert_uint_eq(frame.len, 104);
	nic_port->ops->rx_free(nic_port, &frame, 1);
	nic_port->ops->link_state(nic_port, 0);
	nic_port->ops->link_state(nic_port, 0);
	nic_check_logged("dropped a frame of 13 bytes, whose VLAN tag");
	nic_close_port(before);
}
END_TEST

START_TEST(frames_that_the_driver_drops)
{
	struct port_stats stats;

	nic_must_open();
	nic_port->ops->stats(nic_port, &stats);
	ck_assert_uint_eq(nic_logged.lines, 0);
	nic.bad_frames = 12;
	nic_port->ops->stats(nic_port, &stats);
	nic_port->ops->stats(nic_port, &stats);
	ck_assert_uint_eq(stats.rx_dropped, 12);
	nic_check_logged("dropped 12 received frames");
	nic_close_port(nic_free_buffers());
}
END_TEST

TEST_MAIN(nic_receive)
{
	return run_suite_unforked(all_tests(nic_setup, NULL));
}
