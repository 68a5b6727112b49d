/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports over NICs that DPDK drives: addresses of memory, options, and reasons for a refusal. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ferrule/error.h>

#include "lib/base/net/gids.h"
#include "tests/unit/drivers/dpdk/nic_fixture.h"
#include "tests/fixtures/program.h"

/* ---- physical addresses */

static void open_by_physical(void)
{
	/* EAL has started by virtual ones, with memory of no huge pages. */
	nic_must_open();
	nic_port->ops->close(nic_port);
	nic_go_physical(true);
	nic_must_open();
}

START_TEST(memory_that_may_move)
{
	unsigned before;

	nic.page = 2 << 20;
	open_by_physical();
	before = nic_free_buffers();
	nic_map_memory();
	ck_assert_uint_eq(nic.mapped, 0);
	ck_assert_uint_eq(nic_segments_of(100, 3000), 1);
	nic_send_all_kinds();
	nic_close_port(before);
}
END_TEST

START_TEST(memory_that_stays)
{
	unsigned before;

	nic_is_huge = true;
	open_by_physical();
	before = nic_free_buffers();
	nic_map_memory();
	/* Header, three references, trailer: no two pages are adjacent. */
	ck_assert_uint_eq(nic_segments_of(PAGE - 10, 10 + PAGE - 20), 4);
	ck_assert_uint_eq(
		rte_mbuf_data_iova(nic.sent[0].mbuf->next), (UINT64_C(1) << 40) + PAGE - 10);
	ck_assert_uint_eq(
		rte_mbuf_data_iova(nic.sent[0].mbuf->next->next), (UINT64_C(1) << 40) - PAGE);
	ck_assert_uint_eq(nic_free_buffers(), before);
	nic_send_all_kinds();
	nic_close_port(before);
}
END_TEST

START_TEST(buffers_lie_together)
{
	struct rte_mbuf *all[4096];
	unsigned n = 0;

	open_by_physical();
	while (n < RTE_DIM(all) && (all[n] = rte_pktmbuf_alloc(nic.pool)))
		n++;
	ck_assert_uint_gt(n, 2048);
	for (unsigned i = 0; i < n; i++) {
		const uint8_t *first = all[i]->buf_addr;

		ck_assert_uint_eq(all[i]->buf_iova, rte_mem_virt2iova(first));
		ck_assert_uint_eq(rte_mem_virt2iova(first + all[i]->buf_len - 1),
			all[i]->buf_iova + all[i]->buf_len - 1);
		rte_pktmbuf_free(all[i]);
	}
	nic_close_port(n);
}
END_TEST

/* ---- opening */

START_TEST(vlans_are_let_in)
{
	const struct gid_table table = { .n = 3, .gids = { [1].vlan = 7, [2].vlan = 4094 } };

	nic.filters_vlans = true;
	nic_gids = &table;
	nic_must_open();
	ck_assert_uint_eq(nic.n_vlans, 2);
	ck_assert_uint_eq(nic.vlans[0], 7);
	ck_assert_uint_eq(nic.vlans[1], 4094);
	nic_close_port(nic_free_buffers());
}
END_TEST

START_TEST(no_filter_without_vlans)
{
	nic.filters_vlans = true;
	nic_must_open();
	ck_assert_uint_eq(nic.rx_offloads, 0);
	nic_close_port(nic_free_buffers());
}
END_TEST

START_TEST(any_call_may_fail)
{
	static const char *const calls[] = { "rte_dev_probe", "rte_eth_dev_configure",
		"rte_eth_dev_set_mtu", "rte_eth_rx_queue_setup", "rte_eth_tx_queue_setup",
		"rte_eth_dev_start", "rte_eth_macaddr_get" };

	for (size_t i = 0; i < RTE_DIM(calls); i++) {
		nic.fails = calls[i];
		ck_assert_msg(nic_open_port() < 0, "%s", calls[i]);
		ck_assert_msg(strstr(frl_last_error(), "nic_double0"), "%s: %s", calls[i],
			frl_last_error());
	}
	nic.fails = "rte_dev_dma_map";
	nic_must_open();
	ck_assert_int_lt(nic_port->ops->mem_map(nic_port, nic_memory, MEMORY, &nic_mem), 0);
	nic.mapped = 0;
	nic_mem = NULL;
	nic_close_port(nic_free_buffers());
}
END_TEST

/* The log says how payload is sent. */
static const struct way_row {
	const char *driver;
	uint16_t segments;
	bool is_vdev, has_no_cleanup, is_physical;
	const char *text;
} way_rows[] = {
	{ .text = "\"nic_double0\": the NIC reads payload in place" },
	{ .is_physical = true, .text = "in place from shared huge pages only (IOVA as PA)" },
	{ .has_no_cleanup = true, .text = "copied: the driver frees no transmitted packets" },
	{ .segments = 1, .text = "copied: the driver needs one buffer for each packet" },
	{ .driver = "net_virtio", .text = "copied: the driver needs one buffer for each packet" },
	{ .is_vdev = true, .text = "copied: the driver may share its memory" },
	{ .driver = "net_pcap", .is_vdev = true, .text = "the driver copies payload" },
};

START_LOOP_TEST(way_is_logged, ROWS(way_rows))
{
	const struct way_row *row = &way_rows[_i];

	nic_must_open(); /* EAL starts, and logs */
	nic_port->ops->close(nic_port);
	nic.driver = row->driver;
	nic.segments = row->segments;
	nic.has_no_chains = row->segments == 1;
	nic.is_vdev = row->is_vdev;
	nic.has_no_cleanup = row->has_no_cleanup;
	nic_go_physical(row->is_physical);
	frl_set_log(nic_keep_line, FRL_LOG_INFO, NULL);
	nic_logged.lines = 0;
	nic_must_open();
	nic_check_logged(row->text);
	nic_close_port(nic_free_buffers());
}
END_TEST

/* ---- PCI devices that DPDK does not open */

static void check_refused(int err, const char *text)
{
	int rc;

	nic_must_open(); /* EAL starts */
	nic_port->ops->close(nic_port);
	nic_devargs = "0000:3b:00.1";
	nic_pci.exists = true;
	nic.fails = "rte_dev_probe";
	rc = nic_open_port();
	ck_assert_msg(rc == err, "%d: %s", rc, frl_last_error());
	ck_assert_msg(strstr(frl_last_error(), text), "%s", frl_last_error());
	free(nic_memory);
}

START_TEST(cause_that_is_found)
{
	check_refused(-ENODEV, "0000:3b:00.1 has a cause");
}
END_TEST

START_TEST(other_process_before_the_cause)
{
	nic.says = "cannot open it: Device or resource busy";
	check_refused(-EBUSY, "0000:3b:00.1 is in use by another process");
}
END_TEST

START_TEST(mode_of_eal_before_the_cause)
{
	nic_pci.by_physical = true;
	check_refused(-ENODEV, "--iova-mode=pa");
}
END_TEST

START_TEST(uio_behind_an_iommu)
{
	nic_pci.by_physical = nic_pci.is_translated = true;
	nic.says = "probed";
	check_refused(-EBUSY, "0000:3b:00.1 has a cause");
}
END_TEST

/* ---- memory that is missing */

START_LOOP_TEST(too_little_memory, 2)
{
	nic.min_buffer = 60000;
	nic_say_huge(_i == 1);
	ck_assert_int_eq(nic_open_port(), -ENOMEM);
	ck_assert_msg(strstr(frl_last_error(), _i ? "huge pages" : "FRL_EAL_ARGS=\"-m 1024\""),
		"%s", frl_last_error());
	free(nic_memory);
}
END_TEST

TEST_MAIN(nic_port)
{
	return run_suite_unforked(all_tests(nic_setup, NULL));
}
