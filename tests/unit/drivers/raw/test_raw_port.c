/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports of raw packets over a libibverbs in memory: opened, incoming frames, and memory to send
 * from. It shows nothing about NICs. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/interface.h"
#include "lib/base/bytes.h"
#include "tests/fixtures/gpu_fixture.h"
#include "tests/fixtures/program.h"
#include "tests/unit/drivers/raw/raw_fixture.h"

static void setup(void)
{
	gpu_setup();
	raw_setup();
}

static void teardown(void)
{
	raw_teardown();
	gpu_teardown();
}

/* ---- opening */

static const struct {
	const char *text;
	int err;
	const char *word;
} texts[] = {
	{ "raw:", -EINVAL, "names no device" },
	{ "raw:/1", -EINVAL, "names no device" },
	{ "raw:nic0/", -EINVAL, "names no device" },
	{ "raw:nic0/0", -EINVAL, "names no device" },
	{ "raw:nic0/256", -EINVAL, "names no device" },
	{ "raw:nic0,", -EINVAL, "is unknown" },
	{ "raw:nic0,gpu=", -EINVAL, "is unknown" },
	{ "raw:nic0,gpu=x", -EINVAL, "is unknown" },
	{ "raw:nic0,gpu=0x", -EINVAL, ",gpu=N" },
	{ "raw:nic0,slots=127", -EINVAL, "128 to 32768" },
	{ "raw:nic0,slots=32769", -EINVAL, "is unknown" },
	{ "raw:nic0,gpu=0,tracks=3", -EINVAL, "is unknown" },
	{ "raw:nic7", -ENODEV, "there is no RDMA device 'nic7', but nic0" },
	{ "raw:nic0/2", -ENODEV, "no port 2: the device has 1" },
	{ "raw:nic0,gpu=5", -ENODEV, "GPU" },
	{ "raw:nic0,slots=16385", -EINVAL, "slots=16384" },
};

START_LOOP_TEST(refuses_text, ROWS(texts))
{
	raw_plug(0);
	is_refused(raw_open(texts[_i].text, 0, &nic), texts[_i].err, texts[_i].word);
}
END_TEST

static void turn_roce_on(struct fake_verbs_device *device)
{
	fake_verbs_gid_set(&device->ports[0].gids[2], "10.9.9.9", IBV_GID_TYPE_ROCE_V2);
}

static void be_infiniband(struct fake_verbs_device *device)
{
	fake_verbs_port_infiniband(&device->ports[0], 3);
}

static void lack_raw(struct fake_verbs_device *device)
{
	device->has_raw = false;
}

static void lack_right(struct fake_verbs_device *device)
{
	device->may_raw = false;
}

static void lack_flows(struct fake_verbs_device *device)
{
	device->has_flows = false;
}

static void lack_memory(struct fake_verbs_device *device)
{
	device->memlock = 1 << 20;
}

static void lack_interface(struct fake_verbs_device *device)
{
	device->sysfs = "/tmp/raw_is_not_here";
}

static void be_another_port(struct fake_verbs_device *device)
{
	raw_put(0, "dev_port", "1\n");
}

static void lack_mac(struct fake_verbs_device *device)
{
	raw_put(0, "address", "none\n");
}

static void be_narrow(struct fake_verbs_device *device)
{
	raw_put(0, "mtu", "300\n");
}

static void lack_gpudirect(struct fake_verbs_device *device)
{
	device->has_dmabuf = false;
}

static const struct {
	void (*change)(struct fake_verbs_device *device);
	const char *text;
	int err;
	const char *word, *word2;
} machines[] = {
	{ turn_roce_on, "raw:nic0", -EBUSY, "RoCE is on", "name enable_roce value false" },
	{ be_infiniband, "raw:nic0", -ENODEV, "no Ethernet port", "raw:nic0" },
	{ lack_raw, "raw:nic0", -ENOTSUP, "cannot create a raw-packet queue pair",
		"net_af_packet0" },
	{ lack_right, "raw:nic0", -EPERM, "CAP_NET_RAW", "setcap" },
	{ lack_flows, "raw:nic0", -ENOTSUP, "no flow steering", "iface=raw0" },
	{ lack_memory, "raw:nic0", -ENOMEM, "slots=N", "raw:nic0" },
	{ lack_interface, "raw:nic0", -ENODEV, "no network interface", "raw_is_not_here" },
	{ be_another_port, "raw:nic0", -ENODEV, "dev_port 0", "raw:nic0" },
	{ lack_mac, "raw:nic0", -ENODEV, "MAC address", "raw0" },
	{ be_narrow, "raw:nic0", -EMSGSIZE, "MTU 300", "ip link set" },
	{ lack_gpudirect, "raw:nic0,gpu=0", -ENOTSUP, "no dma-bufs", "no peermem" },
};

START_LOOP_TEST(refuses_machine, ROWS(machines))
{
	struct fake_verbs_device device;

	raw_describe(&device, 0);
	machines[_i].change(&device);
	fake_verbs_add(&device);
	is_refused(raw_open(machines[_i].text, 0, &nic), machines[_i].err, machines[_i].word);
	ck_assert_msg(strstr(frl_last_error(), machines[_i].word2), "no '%s' in '%s'",
		machines[_i].word2, frl_last_error());
	ck_assert_str_eq(fake_verbs_leaks(), "");
}
END_TEST

START_TEST(refuses_mac)
{
	struct gid_table gids = { .n = 1 };
	struct nic_config config = { .text = "raw:nic0",
		.mac = { 2, 0, 0, 0, 0, 9 },
		.gids = &gids,
		.max_payload = 1024,
		.min_payload = 1024 };

	raw_plug(0);
	is_refused(raw_port_open(&config, &nic), -ENOTSUP, "02:00:00:00:00:09");
	memcpy(config.mac, own_mac, 6);
	is_ok(raw_port_open(&config, &nic));
	ck_assert_uint_eq(nic->caps.max_frame, 1024 + MTU_OVERHEAD + ETH_HEADER);
}
END_TEST

START_TEST(describes)
{
	struct fake_verbs_device device;
	void *base;
	size_t length;

	raw_describe(&device, 0);
	raw_put(0, "mtu", "1500\n");
	fake_verbs_add(&device);
	/* The kernel reports that of a port with RoCE off. */
	fake_verbs_fail("ibv_query_gid_ex", 1, EOPNOTSUPP);
	is_ok(raw_open("raw:nic0,slots=512", 0, &nic));
	ck_assert_mem_eq(nic->caps.mac, own_mac, 6);
	ck_assert_uint_eq(nic->caps.max_frame, 1024 + MTU_OVERHEAD + ETH_HEADER);
	ck_assert_uint_eq(nic->caps.max_held, 256);
	ck_assert_uint_eq(nic->caps.max_kept, 0);
	ck_assert(!nic->caps.lossless && !nic->caps.on_demand && !nic->caps.has_far);
	ck_assert_int_eq(nic->caps.far_gpu, -1);
	ck_assert_ptr_null(nic->ops->mem_map_far);
	/* Two addresses, each once. */
	ck_assert_uint_eq(fake_verbs_live(FAKE_VERBS_FLOW), 4 + 2);
	ck_assert(nic->ops->rx_memory(nic, 0, &base, &length));
	ck_assert_uint_eq((uintptr_t)base % 4096, 0);
	ck_assert(!nic->ops->rx_memory(nic, 1, &base, &length));
	is_refused(nic->ops->link_open(nic, NULL), -ENOTSUP, "one link");
}
END_TEST

/* Memory that the port itself locks, as in the manual, up to a quarter of a MiB. */
static const struct {
	const char *text, *mtu;
	unsigned kib;
} locked[] = {
	{ "raw:nic0", "4200\n", 6656 },
	{ "raw:nic0", "9000\n", 11520 },
	{ "raw:nic0,gpu=0", "4200\n", 2816 },
	{ "raw:nic0,gpu=0", "9000\n", 2816 },
};

START_LOOP_TEST(locks_memory, 2 * ROWS(locked))
{
	struct fake_verbs_device device;
	bool is_short = _i % 2;
	int rc;

	raw_describe(&device, 0);
	raw_put(0, "mtu", locked[_i / 2].mtu);
	device.memlock = (locked[_i / 2].kib - is_short * 256) * 1024;
	fake_verbs_add(&device);
	rc = raw_open(locked[_i / 2].text, 0, &nic);
	if (is_short) {
		is_refused(rc, -ENOMEM, "slots=N");
		return;
	}
	is_ok(rc);
}
END_TEST

/* ---- steering */

static const struct {
	const uint8_t *mac;
	const char *ip; /* NULL: `protocol` is the type of the frame */
	uint16_t protocol, udp;
	bool is_received, kernel_sees;
} steered[] = {
	{ own_mac, "10.0.0.1", 17, 4791, true, false },
	{ own_mac, "10.0.0.1", 17, 53, true, false },
	{ own_mac, "10.0.0.1", 1, 0, true, false },
	{ own_mac, "fd00::1", 17, 4791, true, false },
	{ own_mac, "fd00::1", 58, 0, true, false },
	{ own_mac, "10.0.0.2", 17, 4791, false, true },
	{ own_mac, "fd00::2", 17, 4791, false, true },
	{ other_mac, "10.0.0.1", 17, 4791, false, true },
	{ other_mac, "fd00::1", 17, 4791, false, true },
	/* The link-local address of the MAC: RoCE is ours, ICMPv6 goes to both, the rest is not
	 * ours. */
	{ own_mac, "fe80::ff:fe00:0", 17, 4791, true, false },
	{ own_mac, "fe80::ff:fe00:0", 58, 0, true, true },
	{ own_mac, "fe80::ff:fe00:0", 17, 546, false, true },
	{ own_mac, "fe80::ff:fe00:0", 6, 0, false, true },
	{ own_mac, "fe80::ff:fe00:1", 17, 4791, false, true },
	/* Frames that belong to everybody. */
	{ broadcast, NULL, 0x0806, 0, true, true },
	{ own_mac, NULL, 0x0806, 0, true, true },
	{ other_mac, NULL, 0x0806, 0, false, true },
	{ all_nodes, "ff02::1", 58, 0, true, true },
	{ all_nodes, "ff0e::1:2:3", 17, 4791, true, true },
	{ own_mac, NULL, 0x88cc, 0, false, true },
};

START_LOOP_TEST(steers, ROWS(steered))
{
	struct port_frame frames[4];
	const uint8_t *mac = steered[_i].mac;
	size_t length;

	raw_start("raw:nic0,slots=128");
	for (int is_tagged = 0; is_tagged < 2; is_tagged++) {
		length = steered[_i].ip
			? make_ip(mac, steered[_i].ip, (uint8_t)steered[_i].protocol,
				  steered[_i].udp, 90)
			: make_frame(mac, steered[_i].protocol, 60);
		if (is_tagged) {
			memmove(bytes + 16, bytes + 12, length - 12);
			put_be16(bytes + 12, 0x8100);
			put_be16(bytes + 14, 100);
			length += 4;
		}
		ck_assert_int_eq(arrive(length), steered[_i].kernel_sees);
		ck_assert_uint_eq(receive(frames, 4), steered[_i].is_received);
		if (!steered[_i].is_received)
			continue;
		ck_assert_uint_eq(frames[0].len, length);
		ck_assert_mem_eq(frames[0].data, bytes, length);
		nic->ops->rx_free(nic, frames, 1);
	}
	raw_stop();
	arrive(steered[_i].ip ? roce(90) : 60);
}
END_TEST

/* ---- frames in */

START_TEST(receives)
{
	static const size_t lengths[] = { 14, 60, 117, 118, 119, 1500, FRAME, FRAME + 4 };
	struct port_frame frames[2];
	struct port_stats stats;

	raw_start("raw:nic0,slots=128");
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		size_t length = lengths[i] < 60 ? make_frame(broadcast, 0x0806, lengths[i])
						: roce(lengths[i]);

		arrive(length);
		ck_assert_uint_eq(receive(frames, 2), 1);
		ck_assert_uint_eq(frames[0].len, length);
		ck_assert_uint_eq(frames[0].far_len, 0);
		ck_assert(frames[0].is_checked && frames[0].link == 0 && frames[0].handle);
		/* Payload behind Ethernet, IPv4, UDP and BTH. */
		ck_assert_uint_eq((uintptr_t)(frames[0].data + 54) % 64, 0);
		ck_assert_mem_eq(frames[0].data, bytes, length);
		nic->ops->rx_free(nic, frames, 1);
	}
	/* A frame longer than any of ours is dropped, and its slot is used again. */
	for (unsigned i = 0; i < 2 * SLOTS; i++) {
		arrive(roce(FRAME + 5 + i % 20));
		ck_assert_uint_eq(receive(frames, 2), 0);
	}
	nic->ops->stats(nic, &stats);
	ck_assert_uint_eq(stats.rx_dropped, 2 * SLOTS);
	fake_verbs_frame("nic0", 1, bytes, 60, false);
	ck_assert_uint_eq(receive(frames, 2), 1);
	ck_assert(!frames[0].is_checked);
	nic->ops->rx_free(nic, frames, 1);
}
END_TEST

/* All slots are held, and given back in another order, several times over. */
START_TEST(holds_frames)
{
	static struct port_frame frames[SLOTS + 1];
	struct fake_verbs_stats stats;

	raw_start("raw:nic0,slots=128");
	for (unsigned round = 0; round < 3; round++) {
		unsigned n = 0;

		for (unsigned i = 0; i < SLOTS + 5; i++) {
			roce(100);
			put_be16(bytes + 80, (uint16_t)i);
			arrive(100);
		}
		while (n < SLOTS + 1) {
			uint16_t got = receive(frames + n, 40);

			ck_assert_uint_le(got, PORT_BURST);
			if (!got)
				break;
			n += got;
		}
		ck_assert_uint_eq(n, SLOTS);
		for (unsigned i = 0; i < n; i++)
			ck_assert_uint_eq(get_be16(frames[i].data + 80), i);
		for (unsigned i = 0; i < n; i++)
			nic->ops->rx_free(nic, &frames[(i * 37 + round) % n], 1);
	}
	fake_verbs_stats(&stats);
	ck_assert_uint_eq(stats.lost, 3 * 5);
}
END_TEST

/* Empty buffers beside the slots, for an engine that retains packets: as large as a frame, in
 * memory that is reported, and not the NIC's. */
START_TEST(takes_buffers)
{
	struct port_frame taken[10], frame;
	uint8_t *base;
	size_t length;

	raw_plug(0);
	is_ok(raw_open("raw:nic0,slots=128", 10, &nic));
	ck_assert_uint_eq(nic->caps.max_kept, 10);
	ck_assert_uint_eq(nic->caps.max_held, 64);
	ck_assert(nic->ops->rx_memory(nic, 0, (void **)&base, &length));
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < 10; i++) {
			ck_assert(nic->ops->rx_take(nic, &taken[i]));
			ck_assert(taken[i].len == 0 && taken[i].far_len == 0);
			ck_assert(taken[i].data >= base &&
				taken[i].data + FRAME + 4 <= base + length);
			memset(taken[i].data, (int)i + 1, FRAME + 4);
		}
		ck_assert(!nic->ops->rx_take(nic, &frame));
		for (unsigned i = 0; i < SLOTS; i++) {
			arrive(roce(FRAME));
			ck_assert_uint_eq(receive(&frame, 1), 1);
			nic->ops->rx_free(nic, &frame, 1);
		}
		for (unsigned i = 0; i < 10; i++)
			for (unsigned j = 0; j < FRAME + 4; j++)
				ck_assert_uint_eq(taken[i].data[j], i + 1);
		nic->ops->rx_free(nic, taken, 10);
	}
}
END_TEST

/* ---- memory to send from */

static struct port_mem *map(const uint8_t *address, size_t length)
{
	struct port_mem *mem;

	is_ok(nic->ops->mem_map(nic, (void *)address, length, &mem));
	return mem;
}

/* A packet with payload that is in flight until the NIC is released. */
static void send_from(const uint8_t *address, struct port_mem *mem)
{
	struct port_packet packet = { .header_len = 60, .n_pieces = 1 };

	memcpy(packet.header, other_mac, 6);
	memcpy(packet.header + 6, own_mac, 6);
	packet.pieces[0] = (struct port_piece){ .addr = address, .len = 100, .mem = mem };
	ck_assert_uint_eq(nic->ops->tx_burst(nic, 0, &packet, 1), 1);
}

/* The order in which the whole and its parts go. */
enum { WHOLE_LAST, WHOLE_FIRST, WHOLE_BETWEEN };

/* Memory inside a mapped range needs no registration of its own, has its own packets in flight, and
 * stays known until the last part is gone. */
START_RANGE_TEST(shares_registration, WHOLE_LAST, WHOLE_BETWEEN + 1)
{
	enum { PARTS = 16 };
	struct port_mem *whole, *parts[PARTS];
	unsigned calls, live;

	raw_start("raw:nic0");
	calls = fake_verbs_calls("ibv_reg_mr");
	live = fake_verbs_live(FAKE_VERBS_MR);
	whole = map(memory, PARTS * PAGE);
	for (unsigned i = 0; i < PARTS; i++)
		parts[i] = map(memory + i * PAGE, PAGE);
	ck_assert_uint_eq(fake_verbs_calls("ibv_reg_mr"), calls + 1);
	fake_verbs_hold(true);
	send_from(memory + 3 * PAGE, parts[3]);
	for (unsigned i = 0; i < PARTS; i++)
		ck_assert_int_eq(nic->ops->mem_idle(nic, parts[i]), i != 3);
	ck_assert(nic->ops->mem_idle(nic, whole));
	if (_i == WHOLE_FIRST)
		nic->ops->mem_unmap(nic, whole);
	fake_verbs_hold(false);
	ck_assert(nic->ops->mem_idle(nic, parts[3]));
	ck_assert_int_eq(nic->ops->link_state(nic, 0), PORT_LINK_UP);
	for (unsigned i = 0; i < PARTS; i++) {
		ck_assert_uint_eq(fake_verbs_live(FAKE_VERBS_MR), live + 1);
		if (_i == WHOLE_BETWEEN && i == PARTS / 2)
			nic->ops->mem_unmap(nic, whole);
		nic->ops->mem_unmap(nic, parts[i]);
	}
	ck_assert_uint_eq(fake_verbs_live(FAKE_VERBS_MR), live + (_i == WHOLE_LAST));
	if (_i == WHOLE_LAST)
		nic->ops->mem_unmap(nic, whole);
	ck_assert_uint_eq(fake_verbs_live(FAKE_VERBS_MR), live);
	ck_assert_uint_eq(fake_verbs_calls("ibv_reg_mr"), calls + 1);
}
END_TEST

/* A second registration, and whether it lies in the first one, of pages 4 to 7. */
static const struct {
	unsigned at, length;
	bool is_shared;
} others[] = {
	{ 4 * PAGE, 4 * PAGE, true },
	{ 4 * PAGE, 1, true },
	{ 8 * PAGE - 1, 1, true },
	{ 4 * PAGE - 1, 2, false },
	{ 4 * PAGE - 1, 4 * PAGE + 2, false },
	{ 8 * PAGE - 1, 2, false },
	{ 8 * PAGE, 1, false },
	{ 0, PAGE, false },
};

START_LOOP_TEST(shares_what_lies_within, ROWS(others))
{
	struct port_mem *first, *second;
	unsigned calls;

	raw_start("raw:nic0");
	first = map(memory + 4 * PAGE, 4 * PAGE);
	calls = fake_verbs_calls("ibv_reg_mr");
	second = map(memory + others[_i].at, others[_i].length);
	ck_assert_uint_eq(fake_verbs_calls("ibv_reg_mr"), calls + !others[_i].is_shared);
	nic->ops->mem_unmap(nic, first);
	nic->ops->mem_unmap(nic, second);
}
END_TEST

/* Unmapped memory may have other pages now, though a part of it is still known. */
START_TEST(shares_no_past)
{
	struct port_mem *whole, *part, *later;
	unsigned calls;

	raw_start("raw:nic0");
	whole = map(memory, 4 * PAGE);
	part = map(memory, PAGE);
	calls = fake_verbs_calls("ibv_reg_mr");
	nic->ops->mem_unmap(nic, whole);
	later = map(memory + PAGE, PAGE);
	ck_assert_uint_eq(fake_verbs_calls("ibv_reg_mr"), calls + 1);
	/* Memory that cannot be registered leaves nothing. */
	fake_verbs_fail("ibv_reg_mr", 1, ENOMEM);
	is_refused(nic->ops->mem_map(nic, memory + 2 * PAGE, PAGE, &whole), -ENOMEM,
		"cannot register memory to send from");
	nic->ops->mem_unmap(nic, part);
	nic->ops->mem_unmap(nic, later);
}
END_TEST

/* Memory that is still mapped goes with the port, with packets in flight that refer to it, of a
 * port that works and of one that has failed. */
START_LOOP_TEST(closes_with_memory, 2)
{
	struct port_mem *whole, *parts[3];

	raw_start("raw:nic0");
	whole = map(memory, 3 * PAGE);
	for (unsigned i = 0; i < 3; i++)
		parts[i] = map(memory + i * PAGE, PAGE);
	map(memory + 8 * PAGE, PAGE);
	fake_verbs_hold(true);
	send_from(memory + PAGE, parts[1]);
	send_from(memory, whole);
	ck_assert(!nic->ops->mem_idle(nic, parts[1]));
	nic->ops->mem_unmap(nic, parts[0]);
	if (_i) {
		fake_verbs_raise("nic0", IBV_EVENT_DEVICE_FATAL, 1);
		ck_assert_int_eq(nic->ops->link_state(nic, 0), PORT_LINK_DOWN);
	}
	raw_stop();
	ck_assert_str_eq(fake_verbs_leaks(), "");
	fake_verbs_hold(false);
}
END_TEST

static void count_lines(enum frl_log_level level, const char *line, void *arg)
{
	++*(unsigned *)arg;
}

/* Calls that fail at the end, first of a packet's memory: later calls cannot work either, and are
 * made all the same. Reported once. */
START_TEST(closes_with_failures)
{
	unsigned n_lines = 0;

	raw_start("raw:nic0");
	for (unsigned i = 0; i < 4; i++)
		map(memory + i * PAGE, PAGE);
	for (int n = 1; n <= 3; n++)
		fake_verbs_fail("ibv_dereg_mr", n, EIO);
	frl_set_log(count_lines, FRL_LOG_WARNING, &n_lines);
	raw_stop();
	frl_set_log(NULL, FRL_LOG_WARNING, NULL);
	ck_assert_uint_eq(n_lines, 1);
	ck_assert_uint_eq(fake_verbs_calls("ibv_dereg_mr"), 4 + 1);
	ck_assert_uint_eq(fake_verbs_calls("ibv_dealloc_pd"), 1);
	ck_assert_uint_eq(fake_verbs_live(FAKE_VERBS_CONTEXT), 0);
	/* The kernel frees the rest with the device's file. */
	fake_verbs_reset();
}
END_TEST

TEST_MAIN(raw_port)
{
	if (!gpu_is_fake())
		return 77;
	return run_suite(all_tests(setup, teardown));
}
