/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports over NICs that DPDK drives: what such a NIC asks of buffers, segments and addresses. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferrule/error.h>

#include "drivers/dpdk/pci.h"
#include "lib/base/gids.h"
#include "tests/unit/nic_double.h"
#include "tests/unit/program.h"

enum {
	PAGE = 4096,
	PAYLOAD = 4096,
	HEADER = 54,
	TRAILER = 4,
	MEMORY = 64 << 10,
};

static struct port *port;
static struct port_mem *mem;
static uint8_t *memory;
static bool is_huge; /* physical_pages() finds the memory's pages to stay */
static const struct gid_table *gids;
static const char *devargs;
/* What /sys says of a PCI device; `exists`: it is asked for here. */
static struct pci_device pci;

static struct {
	unsigned lines;
	char last[256];
} logged;

static void lock(void *arg)
{
}

static void keep_line(enum frl_log_level level, const char *line, void *arg)
{
	logged.lines++;
	snprintf(logged.last, sizeof(logged.last), "%s", line);
}

/* A warning that has all of `text` in it, and no other one. */
static void check_logged(const char *text)
{
	ck_assert_uint_eq(logged.lines, 1);
	ck_assert_msg(strstr(logged.last, text), "%s", logged.last);
}

/* Each page is below the one before it. */
rte_iova_t *__wrap_physical_pages(const uint8_t *addr, size_t len);
rte_iova_t *__wrap_physical_pages(const uint8_t *addr, size_t len)
{
	rte_iova_t *pages = is_huge ? malloc(len / PAGE * sizeof(pages[0])) : NULL;

	for (size_t i = 0; pages && i < len / PAGE; i++)
		pages[i] = (UINT64_C(1) << 40) - i * PAGE;
	return pages;
}

void __wrap_pci_look(const char *root, const char *address, struct pci_device *ret_device);
void __wrap_pci_look(const char *root, const char *address, struct pci_device *ret_device)
{
	*ret_device = pci;
	snprintf(ret_device->address, sizeof(ret_device->address), "%s", address);
}

void __wrap_pci_explain(
	const char *root, const struct pci_device *device, char *ret_text, unsigned size);
void __wrap_pci_explain(
	const char *root, const struct pci_device *device, char *ret_text, unsigned size)
{
	snprintf(ret_text, size, "%s has a cause", device->address);
}

static int open_port(void)
{
	const struct dpdk_port_config config = {
		.devargs = devargs,
		.gids = gids,
		.max_payload = PAYLOAD,
		.min_payload = 256,
		.guard = { lock, lock, NULL },
	};

	return dpdk_port_open(&config, &port);
}

static void must_open(void)
{
	int rc = open_port();

	ck_assert_msg(rc == 0, "%s", frl_last_error());
}

static void map_memory(void)
{
	ck_assert_int_eq(port->ops->mem_map(port, memory, MEMORY, &mem), 0);
}

static void setup(void)
{
	nic = (struct nic_double){ 0 };
	nic_go_physical(false);
	nic_say_huge(false);
	is_huge = false;
	gids = NULL;
	devargs = "nic_double0";
	pci = (struct pci_device){ 0 };
	logged.lines = 0;
	frl_set_log(keep_line, FRL_LOG_WARNING, NULL);
	memory = aligned_alloc(PAGE, MEMORY);
	ck_assert_ptr_nonnull(memory);
	for (size_t i = 0; i < MEMORY; i++)
		memory[i] = (uint8_t)(i * 7 + i / 251);
}

/* Nothing refers to the memory, and all buffers of the port are where they were. */
static void close_port(unsigned free_buffers)
{
	nic_let_go();
	ck_assert_uint_eq(rte_mempool_avail_count(nic.pool), free_buffers);
	if (mem) {
		ck_assert(port->ops->mem_idle(port, mem));
		port->ops->mem_unmap(port, mem);
		mem = NULL;
	}
	port->ops->close(port);
	ck_assert_uint_eq(nic.mapped, 0);
	free(memory);
}

static unsigned free_buffers(void)
{
	return rte_mempool_avail_count(nic.pool);
}

static struct port_packet packet_of(uint32_t at, uint32_t len)
{
	struct port_packet packet = {
		.header_len = HEADER,
		.trailer_len = TRAILER,
		.n_pieces = len ? 1 : 0,
		.pieces[0] = { memory + at, len, mem },
	};

	memset(packet.header, 0x11, HEADER);
	memset(packet.trailer, 0x22, TRAILER);
	return packet;
}

/* The n-th packet that the driver has taken is the one of packet_of(). */
static void check_sent(unsigned n, uint32_t at, uint32_t len)
{
	const struct nic_sent *sent = &nic.sent[n];
	uint8_t header[HEADER], trailer[TRAILER];

	memset(header, 0x11, HEADER);
	memset(trailer, 0x22, TRAILER);
	ck_assert_uint_eq(sent->len, len ? HEADER + len + TRAILER : 60);
	ck_assert_mem_eq(sent->bytes, header, HEADER);
	ck_assert_mem_eq(sent->bytes + HEADER, memory + at, len);
	ck_assert_mem_eq(sent->bytes + HEADER + len, trailer, TRAILER);
}

static unsigned segments_of(uint32_t at, uint32_t len)
{
	struct port_packet packet = packet_of(at, len);
	unsigned n = nic.n_sent;

	ck_assert_uint_eq(port->ops->tx_burst(port, 0, &packet, 1), 1);
	check_sent(n, at, len);
	return nic.sent[n].segments;
}

/* Payloads of all kinds of lengths and places, with the NIC's rules checked by its double. */
static void send_all_kinds(void)
{
	static const uint32_t lens[] = { 1, 3, 255, 256, 1024, PAYLOAD - 1, PAYLOAD };

	for (uint32_t at = 0; at < 3 * PAGE; at += 509) {
		for (size_t i = 0; i < RTE_DIM(lens); i++) {
			segments_of(at, lens[i]);
			nic_let_go();
		}
	}
	segments_of(0, 0);
}

static uint32_t room_of(void)
{
	return rte_pktmbuf_data_room_size(nic.pool) - RTE_PKTMBUF_HEADROOM;
}

/* ---- receiving */

START_TEST(buffers_in_kib)
{
	setup();
	must_open();
	ck_assert_uint_ge(room_of(), port->caps.max_frame);
	ck_assert_uint_eq(room_of() % 1024, 0);
	close_port(free_buffers());
}
END_TEST

START_TEST(buffers_as_large_as_asked)
{
	setup();
	nic.min_buffer = 7000;
	must_open();
	ck_assert_uint_ge(room_of(), 7000);
	close_port(free_buffers());
}
END_TEST

START_TEST(mtu_of_the_nic)
{
	setup();
	nic.max_mtu = 1500;
	must_open();
	ck_assert_uint_le(nic.mtu, 1500);
	ck_assert_uint_eq(port->caps.max_frame, 1514);
	ck_assert_uint_eq(port->caps.speed_mbps, 25000);
	close_port(free_buffers());
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

	setup();
	nic.holds = row->holds;
	nic.scatters = row->scatters;
	nic.fails = row->fails;
	if (!row->advice) {
		must_open();
		ck_assert_uint_eq(port->caps.max_frame, 4194);
		close_port(free_buffers());
		return;
	}
	ck_assert_int_eq(open_port(), -EMSGSIZE);
	ck_assert_msg(strstr(frl_last_error(), row->advice), "%s", frl_last_error());
	free(memory);
}
END_TEST

/* The NIC's buffers are shorter than ours. */
START_TEST(frames_in_pieces)
{
	struct port_frame frame;
	unsigned before;

	setup();
	nic.buffer = 1000;
	must_open();
	before = free_buffers();
	for (uint32_t len = 60; len <= port->caps.max_frame; len += 97) {
		nic_receive(memory + len, len);
		ck_assert_uint_eq(port->ops->rx_burst(port, &frame, 1), 1);
		ck_assert_uint_eq(frame.len, len);
		ck_assert_mem_eq(frame.data, memory + len, len);
		ck_assert_uint_eq(free_buffers(), before - 1);
		port->ops->rx_free(port, &frame, 1);
	}
	close_port(before);
}
END_TEST

START_TEST(frame_without_room)
{
	struct port_frame frame;
	struct port_stats stats;
	unsigned before;

	setup();
	nic.buffer = 2048;
	must_open();
	before = free_buffers();
	nic_receive(memory, room_of() + 1);
	nic_receive(memory, 100);
	/* The one behind it arrives. */
	ck_assert_uint_eq(port->ops->rx_burst(port, &frame, 1), 0);
	ck_assert_uint_eq(port->ops->rx_burst(port, &frame, 1), 1);
	ck_assert_uint_eq(frame.len, 100);
	port->ops->rx_free(port, &frame, 1);
	port->ops->stats(port, &stats);
	ck_assert_uint_eq(stats.rx_dropped, 1);
	/* The first one is reported, once, and not by a burst. */
	ck_assert_uint_eq(logged.lines, 0);
	port->ops->link_state(port, 0);
	nic_receive(memory, room_of() + 2);
	ck_assert_uint_eq(port->ops->rx_burst(port, &frame, 1), 0);
	port->ops->link_state(port, 0);
	check_logged("dropped a frame of 5121 bytes, its path MTU allows 4194");
	close_port(before);
}
END_TEST

/* Without the addresses that a tag comes behind. */
START_TEST(tag_of_a_short_frame)
{
	struct port_frame frame;
	unsigned before;

	setup();
	must_open();
	before = free_buffers();
	nic_receive(memory, 13);
	nic.arrived[0]->ol_flags |= RTE_MBUF_F_RX_VLAN_STRIPPED;
	nic_receive(memory, 100);
	nic.arrived[1]->ol_flags |= RTE_MBUF_F_RX_VLAN_STRIPPED;
	nic.arrived[1]->vlan_tci = 7;
	ck_assert_uint_eq(port->ops->rx_burst(port, &frame, 2), 1);
	ck_assert_uint_eq(frame.len, 104);
	port->ops->rx_free(port, &frame, 1);
	port->ops->link_state(port, 0);
	port->ops->link_state(port, 0);
	check_logged("dropped a frame of 13 bytes, whose VLAN tag");
	close_port(before);
}
END_TEST

START_TEST(frames_that_the_driver_drops)
{
	struct port_stats stats;

	setup();
	must_open();
	port->ops->stats(port, &stats);
	ck_assert_uint_eq(logged.lines, 0);
	nic.bad_frames = 12;
	port->ops->stats(port, &stats);
	port->ops->stats(port, &stats);
	ck_assert_uint_eq(stats.rx_dropped, 12);
	check_logged("dropped 12 received frames");
	close_port(free_buffers());
}
END_TEST

/* ---- sending */

START_TEST(references)
{
	unsigned before;

	setup();
	must_open();
	before = free_buffers();
	map_memory();
	ck_assert_uint_eq(nic.mapped, 1);
	ck_assert_uint_eq(segments_of(100, 3000), 3);
	ck_assert_uint_eq(free_buffers(), before);
	send_all_kinds();
	close_port(before);
}
END_TEST

START_TEST(few_segments)
{
	unsigned before;

	setup();
	nic.segments = 2;
	must_open();
	before = free_buffers();
	map_memory();
	ck_assert_uint_eq(segments_of(100, 3000), 1);
	send_all_kinds();
	close_port(before);
}
END_TEST

START_TEST(one_segment)
{
	unsigned before;

	setup();
	nic.has_no_chains = true;
	nic.segments = 1;
	must_open();
	before = free_buffers();
	map_memory();
	ck_assert_uint_eq(nic.mapped, 0);
	ck_assert_uint_eq(nic.tx_offloads, 0);
	send_all_kinds();
	close_port(before);
}
END_TEST

/* As Ethernet wants it, with zeros behind what was to be sent. A software port leaves that to the
 * next one that sends. */
START_LOOP_TEST(short_frames, 3)
{
	static const char *const drivers[] = { "net_ice", "net_e1000_em", "net_double" };
	static const uint32_t lens[] = { 42, 58, 59, 60, 61 };
	const uint8_t zeros[60] = { 0 };
	unsigned before;

	setup();
	nic.driver = drivers[_i];
	nic.is_vdev = _i == 2;
	nic.page = _i == 1 ? PAGE : 0;
	must_open();
	before = free_buffers();
	for (size_t i = 0; i < RTE_DIM(lens); i++) {
		struct port_packet packet = packet_of(0, 0);
		uint32_t len = nic.is_vdev ? lens[i] : RTE_MAX(lens[i], 60u);
		const struct nic_sent *sent = &nic.sent[i];

		packet.header_len = (uint16_t)(lens[i] - TRAILER);
		memset(packet.header, 0x11, packet.header_len);
		ck_assert_uint_eq(port->ops->tx_burst(port, 0, &packet, 1), 1);
		ck_assert_uint_eq(sent->len, len);
		ck_assert_mem_eq(sent->bytes, packet.header, packet.header_len);
		ck_assert_mem_eq(sent->bytes + packet.header_len, packet.trailer, TRAILER);
		ck_assert_mem_eq(sent->bytes + lens[i], zeros, len - lens[i]);
	}
	close_port(before);
}
END_TEST

/* Without and with a driver that gives up what is sent: copies and references. */
START_LOOP_TEST(segments_within_pages, 2)
{
	unsigned before;

	setup();
	nic.driver = "net_e1000_igb";
	nic.has_no_cleanup = _i == 0;
	nic.page = PAGE;
	must_open();
	before = free_buffers();
	map_memory();
	ck_assert_uint_eq(nic.mapped, _i);
	send_all_kinds();
	close_port(before);
}
END_TEST

/* In the middle of a packet: none of it stays. */
START_TEST(buffers_run_out)
{
	struct rte_mbuf *taken[4096];
	struct port_packet packet;
	unsigned before, n = 0;

	setup();
	nic.driver = "net_e1000_em";
	nic.has_no_cleanup = true;
	must_open();
	before = free_buffers();
	map_memory();
	packet = packet_of(0, PAYLOAD);
	for (; free_buffers() > 1; n++)
		taken[n] = rte_pktmbuf_alloc(nic.pool);
	ck_assert_uint_eq(port->ops->tx_burst(port, 0, &packet, 1), 0);
	ck_assert_uint_eq(free_buffers(), 1);
	while (n > 0)
		rte_pktmbuf_free(taken[--n]);
	segments_of(0, PAYLOAD);
	close_port(before);
}
END_TEST

/* What virtio's driver needs to do without indirect descriptors. */
START_TEST(one_buffer_for_virtio)
{
	unsigned before;

	setup();
	nic.driver = "net_virtio";
	must_open();
	before = free_buffers();
	map_memory();
	for (uint32_t len = 0; len <= PAYLOAD; len += 512) {
		ck_assert_uint_eq(segments_of(1, len), 1);
		ck_assert(RTE_MBUF_DIRECT(nic.sent[nic.n_sent - 1].mbuf));
		ck_assert_uint_ge(rte_pktmbuf_headroom(nic.sent[nic.n_sent - 1].mbuf), 12);
	}
	close_port(before);
}
END_TEST

/* Its memory may be shared with somebody, the application's is not. net_ring passes packets on as
 * they are. */
START_LOOP_TEST(unknown_vdev, 2)
{
	unsigned before;

	setup();
	nic.is_vdev = true;
	nic.driver = _i == 0 ? "net_double" : "net_ring";
	must_open();
	before = free_buffers();
	map_memory();
	ck_assert_uint_eq(segments_of(100, 3000), 1);
	close_port(before);
}
END_TEST

START_TEST(driver_that_takes_nothing)
{
	struct port_packet packets[3];
	unsigned before;

	setup();
	must_open();
	before = free_buffers();
	map_memory();
	for (unsigned i = 0; i < 3; i++)
		packets[i] = packet_of(100 * i, 1000);
	nic.takes_nothing = true;
	for (int i = 0; i < 5000; i++)
		ck_assert_uint_eq(port->ops->tx_burst(port, 0, packets, 3), 0);
	ck_assert(port->ops->mem_idle(port, mem));
	nic.takes_nothing = false;
	for (unsigned sent = 0; sent < 3;)
		sent += port->ops->tx_burst(port, 0, packets + sent, (uint16_t)(3 - sent));
	for (unsigned i = 0; i < 3; i++)
		check_sent(i, 100 * i, 1000);
	close_port(before);
}
END_TEST

/* ---- memory that is to go */

START_TEST(sent_packets_are_given_up)
{
	setup();
	must_open();
	map_memory();
	nic.is_stuck = true;
	segments_of(0, 1000);
	ck_assert(!port->ops->mem_idle(port, mem));
	nic.is_stuck = false;
	ck_assert(port->ops->mem_idle(port, mem));
	ck_assert_uint_eq(nic.starts, 1);
	close_port(free_buffers());
}
END_TEST

static void check_filler(const struct nic_sent *sent)
{
	uint8_t frame[60] = { 0 };

	memcpy(frame, port->caps.mac, 6);
	memcpy(frame + 6, port->caps.mac, 6);
	frame[12] = 0x88;
	frame[13] = 0xb5;
	ck_assert_uint_eq(sent->len, sizeof(frame));
	ck_assert_mem_eq(sent->bytes, frame, sizeof(frame));
}

START_TEST(packet_that_stays_at_the_tail)
{
	unsigned before;

	setup();
	must_open();
	before = free_buffers();
	map_memory();
	for (int i = 0; i < 3; i++)
		segments_of(1000 * i, 1000);
	nic.keeps_tail = true;
	ck_assert(!port->ops->mem_idle(port, mem));
	ck_assert_uint_eq(nic.n_sent, 3);
	ck_assert(port_mem_flush(port, mem));
	ck_assert_uint_eq(nic.n_sent, 4);
	check_filler(&nic.sent[3]);
	ck_assert_uint_eq(nic.starts, 1);
	close_port(before);
}
END_TEST

/* One frame for what was sent before it, however often the memory is asked for. */
START_TEST(packets_under_way)
{
	unsigned before;

	setup();
	must_open();
	before = free_buffers();
	map_memory();
	nic.is_stuck = true;
	segments_of(0, 1000);
	nic.takes_nothing = true;
	ck_assert(!port_mem_flush(port, mem));
	nic.takes_nothing = false;
	for (int i = 0; i < 3; i++)
		ck_assert(!port_mem_flush(port, mem));
	ck_assert_uint_eq(nic.n_sent, 2);
	segments_of(0, 1000);
	for (int i = 0; i < 3; i++)
		ck_assert(!port_mem_flush(port, mem));
	ck_assert_uint_eq(nic.n_sent, 4);
	/* The link goes down: they never leave. */
	nic.is_down = true;
	ck_assert(port_mem_flush(port, mem));
	ck_assert_uint_eq(nic.starts, 2);
	close_port(before);
}
END_TEST

/* Nothing leaves before the link is back. */
START_TEST(packets_that_wait_for_a_link)
{
	setup();
	must_open();
	map_memory();
	nic.is_stuck = true;
	segments_of(0, 1000);
	nic.is_down = true;
	ck_assert(!port->ops->mem_idle(port, mem));
	ck_assert_uint_eq(nic.starts, 1);
	ck_assert(port_mem_flush(port, mem));
	ck_assert_uint_eq(nic.starts, 2);
	/* The link is not to be trained anew again and again. */
	ck_assert(port_mem_flush(port, mem));
	ck_assert_uint_eq(nic.starts, 2);
	/* A queue pair tries again. */
	nic.n_sent = 0;
	segments_of(0, 1000);
	ck_assert(port_mem_flush(port, mem));
	ck_assert_uint_eq(nic.starts, 3);
	ck_assert_uint_eq(nic.n_sent, 1);
	close_port(free_buffers());
}
END_TEST

START_TEST(driver_that_keeps_what_is_sent)
{
	setup();
	nic.has_no_cleanup = true;
	must_open();
	map_memory();
	ck_assert_uint_eq(nic.mapped, 0);
	ck_assert_uint_eq(segments_of(100, 3000), 1);
	ck_assert(port->ops->mem_idle(port, mem));
	close_port(nic.n_sent + free_buffers());
}
END_TEST

/* The function would damage the ring of the first one, and the others' devices do not read memory
 * of the application. */
START_LOOP_TEST(drivers_that_are_not_asked, 3)
{
	static const char *const drivers[] = { "net_iavf", "net_cn10k", "net_netvsc" };

	setup();
	nic.driver = drivers[_i];
	must_open();
	map_memory();
	ck_assert_uint_eq(nic.mapped, 0);
	ck_assert_uint_eq(segments_of(100, 3000), 1);
	ck_assert(port->ops->mem_idle(port, mem));
	ck_assert_uint_eq(nic.cleanups, 0);
	close_port(nic.n_sent + free_buffers());
}
END_TEST

/* ---- physical addresses */

static void open_by_physical(void)
{
	/* EAL has started by virtual ones, with memory of no huge pages. */
	must_open();
	port->ops->close(port);
	nic_go_physical(true);
	must_open();
}

START_TEST(memory_that_may_move)
{
	unsigned before;

	setup();
	nic.page = 2 << 20;
	open_by_physical();
	before = free_buffers();
	map_memory();
	ck_assert_uint_eq(nic.mapped, 0);
	ck_assert_uint_eq(segments_of(100, 3000), 1);
	send_all_kinds();
	close_port(before);
}
END_TEST

START_TEST(memory_that_stays)
{
	unsigned before;

	setup();
	is_huge = true;
	open_by_physical();
	before = free_buffers();
	map_memory();
	/* Header, three references, trailer: no page is followed by the next one. */
	ck_assert_uint_eq(segments_of(PAGE - 10, 10 + PAGE - 20), 4);
	ck_assert_uint_eq(
		rte_mbuf_data_iova(nic.sent[0].mbuf->next), (UINT64_C(1) << 40) + PAGE - 10);
	ck_assert_uint_eq(
		rte_mbuf_data_iova(nic.sent[0].mbuf->next->next), (UINT64_C(1) << 40) - PAGE);
	ck_assert_uint_eq(free_buffers(), before);
	send_all_kinds();
	close_port(before);
}
END_TEST

START_TEST(buffers_lie_together)
{
	struct rte_mbuf *all[4096];
	unsigned n = 0;

	setup();
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
	close_port(n);
}
END_TEST

/* ---- opening */

START_TEST(vlans_are_let_in)
{
	const struct gid_table table = { .n = 3, .gids = { [1].vlan = 7, [2].vlan = 4094 } };

	setup();
	nic.filters_vlans = true;
	gids = &table;
	must_open();
	ck_assert_uint_eq(nic.n_vlans, 2);
	ck_assert_uint_eq(nic.vlans[0], 7);
	ck_assert_uint_eq(nic.vlans[1], 4094);
	close_port(free_buffers());
}
END_TEST

START_TEST(no_filter_without_vlans)
{
	setup();
	nic.filters_vlans = true;
	must_open();
	ck_assert_uint_eq(nic.rx_offloads, 0);
	close_port(free_buffers());
}
END_TEST

START_TEST(any_call_may_fail)
{
	static const char *const calls[] = { "rte_dev_probe", "rte_eth_dev_configure",
		"rte_eth_dev_set_mtu", "rte_eth_rx_queue_setup", "rte_eth_tx_queue_setup",
		"rte_eth_dev_start", "rte_eth_macaddr_get" };

	setup();
	for (size_t i = 0; i < RTE_DIM(calls); i++) {
		nic.fails = calls[i];
		ck_assert_msg(open_port() < 0, "%s", calls[i]);
		ck_assert_msg(strstr(frl_last_error(), "nic_double0"), "%s: %s", calls[i],
			frl_last_error());
	}
	nic.fails = "rte_dev_dma_map";
	must_open();
	ck_assert_int_lt(port->ops->mem_map(port, memory, MEMORY, &mem), 0);
	nic.mapped = 0;
	mem = NULL;
	close_port(free_buffers());
}
END_TEST

/* How payload leaves is logged. */
static const struct way_row {
	const char *driver;
	uint16_t segments;
	bool is_vdev, has_no_cleanup, is_physical;
	const char *text;
} way_rows[] = {
	{ .text = "\"nic_double0\": the NIC reads payload in place" },
	{ .is_physical = true, .text = "in place from shared huge pages only (IOVA as PA)" },
	{ .has_no_cleanup = true, .text = "copied: the driver frees no transmitted packets" },
	{ .segments = 1, .text = "copied: the driver takes one buffer for each packet" },
	{ .driver = "net_virtio", .text = "copied: the driver takes one buffer for each packet" },
	{ .is_vdev = true, .text = "copied: the driver may share its memory" },
	{ .driver = "net_pcap", .is_vdev = true, .text = "the driver copies payload" },
};

START_LOOP_TEST(way_is_logged, ROWS(way_rows))
{
	const struct way_row *row = &way_rows[_i];

	setup();
	must_open(); /* EAL starts, and logs */
	port->ops->close(port);
	nic.driver = row->driver;
	nic.segments = row->segments;
	nic.has_no_chains = row->segments == 1;
	nic.is_vdev = row->is_vdev;
	nic.has_no_cleanup = row->has_no_cleanup;
	nic_go_physical(row->is_physical);
	frl_set_log(keep_line, FRL_LOG_INFO, NULL);
	logged.lines = 0;
	must_open();
	check_logged(row->text);
	close_port(free_buffers());
}
END_TEST

/* ---- PCI devices that DPDK does not open */

static void check_refused(int err, const char *text)
{
	int rc;

	must_open(); /* EAL starts */
	port->ops->close(port);
	devargs = "0000:3b:00.1";
	pci.exists = true;
	nic.fails = "rte_dev_probe";
	rc = open_port();
	ck_assert_msg(rc == err, "%d: %s", rc, frl_last_error());
	ck_assert_msg(strstr(frl_last_error(), text), "%s", frl_last_error());
	free(memory);
}

START_TEST(cause_that_is_found)
{
	setup();
	check_refused(-ENODEV, "0000:3b:00.1 has a cause");
}
END_TEST

START_TEST(other_process_before_the_cause)
{
	setup();
	nic.says = "cannot open it: Device or resource busy";
	check_refused(-EBUSY, "0000:3b:00.1 is in use by another process");
}
END_TEST

START_TEST(mode_of_eal_before_the_cause)
{
	setup();
	pci.by_physical = true;
	check_refused(-ENODEV, "--iova-mode=pa");
}
END_TEST

START_TEST(uio_behind_an_iommu)
{
	setup();
	pci.by_physical = pci.is_translated = true;
	nic.says = "probed";
	check_refused(-EBUSY, "0000:3b:00.1 has a cause");
}
END_TEST

/* ---- memory that is missing */

START_LOOP_TEST(too_little_memory, 2)
{
	setup();
	nic.min_buffer = 60000;
	nic_say_huge(_i == 1);
	ck_assert_int_eq(open_port(), -ENOMEM);
	ck_assert_msg(strstr(frl_last_error(), _i ? "huge pages" : "raise FRL_EAL_MEM_MB"), "%s",
		frl_last_error());
	free(memory);
}
END_TEST

TEST_MAIN(nic_port)
{
	return run_suite_unforked(all_tests(NULL, NULL));
}
