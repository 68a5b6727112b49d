/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports of raw packets over a libibverbs in memory, with a double of CUDA's driver: outgoing
 * packets, payload in the memory of a GPU, and failures. It shows nothing about NICs or GPUs. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/fixtures/gpu_fixture.h"
#include "tests/fixtures/program.h"
#include "tests/unit/drivers/raw/raw_fixture.h"

enum { PIECE = 1000 };

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

/* ---- packets out */

static struct {
	uint8_t frame[9100];
	size_t length;
	unsigned n;
} seen;

static bool look(void *arg, const char *device, const uint8_t *frame, size_t length)
{
	memcpy(seen.frame, frame, length);
	seen.length = length;
	seen.n++;
	return true;
}

/* 60 bytes of headers, 4 of trailer. */
static struct port_packet make_packet(void)
{
	struct port_packet packet = { .header_len = 60, .trailer_len = 4 };

	memcpy(packet.header, other_mac, 6);
	memcpy(packet.header + 6, own_mac, 6);
	for (unsigned i = 12; i < 60; i++)
		packet.header[i] = (uint8_t)i;
	memcpy(packet.trailer, "tail", 4);
	return packet;
}

static const struct {
	unsigned pieces;
	bool copy;
	int max_sge;
	bool is_referred;
} ways[] = {
	{ 0, false, 30, false },
	{ 1, false, 30, true },
	{ 1, true, 30, false },
	{ PORT_MAX_PIECES, false, 30, true },
	{ PORT_MAX_PIECES, true, 30, false },
	/* More pieces than fit into a request are copied. */
	{ 2, false, 4, true },
	{ 3, false, 4, false },
	{ PORT_MAX_PIECES, false, 17, false },
	{ 1, false, 1, false },
};

START_LOOP_TEST(sends, ROWS(ways))
{
	struct port_packet packet = make_packet();
	uint8_t *payload = malloc(PORT_MAX_PIECES * PIECE), want[9100];
	struct fake_verbs_device device;
	struct port_mem *mem;
	size_t length = 60;

	raw_describe(&device, 0);
	device.attr.max_sge = ways[_i].max_sge;
	fake_verbs_add(&device);
	is_ok(raw_open("raw:nic0", 0, &nic));
	fake_verbs_tap(look, NULL);
	memset(&seen, 0, sizeof(seen));
	is_ok(nic->ops->mem_map(nic, payload, PORT_MAX_PIECES * PIECE, &mem));
	for (unsigned i = 0; i < PORT_MAX_PIECES * PIECE; i++)
		payload[i] = (uint8_t)(i * 3 + i / 255);
	memcpy(want, packet.header, 60);
	packet.n_pieces = (uint8_t)ways[_i].pieces;
	packet.copy = ways[_i].copy;
	for (unsigned i = 0; i < ways[_i].pieces; i++) {
		packet.pieces[i] = (struct port_piece){
			.addr = payload + i * PIECE, .len = 11 + i, .mem = mem
		};
		memcpy(want + length, payload + i * PIECE, 11 + i);
		length += 11 + i;
	}
	memcpy(want + length, packet.trailer, 4);
	length += 4;
	fake_verbs_hold(true);
	ck_assert_uint_eq(nic->ops->tx_burst(nic, 0, &packet, 1), 1);
	ck_assert_int_eq(nic->ops->mem_idle(nic, mem), !ways[_i].is_referred);
	/* Memory without references is the application's again. */
	if (!ways[_i].is_referred)
		memset(payload, 0, PORT_MAX_PIECES * PIECE);
	memset(&packet, 0, sizeof(packet));
	fake_verbs_hold(false);
	ck_assert(nic->ops->mem_idle(nic, mem));
	ck_assert_uint_eq(seen.n, 1);
	ck_assert_uint_eq(seen.length, length);
	ck_assert_mem_eq(seen.frame, want, length);
	nic->ops->mem_unmap(nic, mem);
	free(payload);
}
END_TEST

/* Short frames are padded, whatever their pieces; frames that are too long are dropped, and
 * reported. */
START_TEST(sends_lengths)
{
	struct port_packet packets[3] = { make_packet(), make_packet(), make_packet() };
	uint8_t *payload = calloc(1, 5000), zeros[64] = { 0 };
	struct port_stats stats;
	struct port_mem *mem;

	raw_start("raw:nic0");
	fake_verbs_tap(look, NULL);
	is_ok(nic->ops->mem_map(nic, payload, 5000, &mem));
	/* They contain nothing of other packets, of as many as are sent from one place. */
	for (unsigned i = 0; i < 512; i++)
		ck_assert_uint_eq(nic->ops->tx_burst(nic, 0, packets, 1), 1);
	memset(&seen, 0, sizeof(seen));
	packets[0].header_len = 42;
	packets[0].trailer_len = 0;
	ck_assert_uint_eq(nic->ops->tx_burst(nic, 0, packets, 1), 1);
	ck_assert_uint_eq(seen.length, 60);
	ck_assert_mem_eq(seen.frame, packets[0].header, 42);
	ck_assert_mem_eq(seen.frame + 42, zeros, 18);
	packets[0].n_pieces = 1;
	for (uint32_t n = 1; n <= 18; n++) {
		packets[0].trailer_len = (uint8_t)(n % 4);
		packets[0].pieces[0] = (struct port_piece){ .addr = payload, .len = n, .mem = mem };
		memset(payload, (int)n, n);
		ck_assert_uint_eq(nic->ops->tx_burst(nic, 0, packets, 1), 1);
		ck_assert_uint_eq(seen.length, n % 4 + n > 18 ? 42 + n % 4 + n : 60);
		ck_assert_mem_eq(seen.frame + 42, payload, n);
		ck_assert_mem_eq(seen.frame + 42 + n, "tail", n % 4);
		ck_assert_mem_eq(seen.frame + 42 + n + n % 4, zeros, seen.length - 42 - n - n % 4);
	}
	packets[0].trailer_len = 0;
	packets[0].pieces[0].len = FRAME - 42;
	packets[1].n_pieces = 1;
	packets[1].pieces[0] = (struct port_piece){
		.addr = payload, .len = FRAME + 4 - 64, .mem = mem
	};
	seen.n = 0;
	ck_assert_uint_eq(nic->ops->tx_burst(nic, 0, packets, 3), 3);
	ck_assert_uint_eq(seen.n, 3);
	packets[1].pieces[0].len++;
	ck_assert_uint_eq(nic->ops->tx_burst(nic, 0, packets, 3), 3);
	ck_assert_uint_eq(seen.n, 5);
	ck_assert_uint_eq(seen.length, 64);
	nic->ops->stats(nic, &stats);
	ck_assert_uint_eq(stats.tx_dropped, 1);
	ck_assert(nic->ops->mem_idle(nic, mem));
	nic->ops->mem_unmap(nic, mem);
	free(payload);
}
END_TEST

/* The queue is full until the NIC has sent some, and many packets all arrive in order. */
START_TEST(fills_queue)
{
	struct port_packet packets[2 * PORT_BURST];
	unsigned sent = 0;
	uint16_t n;

	raw_start("raw:nic0");
	fake_verbs_tap(look, NULL);
	for (unsigned i = 0; i < 2 * PORT_BURST; i++)
		packets[i] = make_packet();
	ck_assert_uint_eq(nic->ops->tx_burst(nic, 0, packets, 2 * PORT_BURST), PORT_BURST);
	for (unsigned round = 0; round < 5; round++) {
		memset(&seen, 0, sizeof(seen));
		fake_verbs_hold(true);
		for (sent = 0;; sent += n) {
			for (unsigned i = 0; i < PORT_BURST; i++)
				put_be16(packets[i].header + 20, (uint16_t)(sent + i));
			n = nic->ops->tx_burst(nic, 0, packets, (uint16_t)(7 + round));
			if (n == 0)
				break;
		}
		ck_assert_uint_eq(sent, 512);
		/* A signaled one completes, and makes room for all before it. */
		fake_verbs_step(32);
		ck_assert_uint_ge(nic->ops->tx_burst(nic, 0, packets, 1), 1);
		fake_verbs_hold(false);
		ck_assert_uint_eq(seen.n, 513);
	}
}
END_TEST

/* Two ports on one switch. */
START_TEST(meets_another)
{
	struct gid_table gids = { .n = 1 };
	struct nic_config config = {
		.text = "raw:nic1", .gids = &gids, .max_payload = 4096, .min_payload = 256
	};
	struct port_packet packet = make_packet();
	struct port_frame frames[2];
	struct port *other;

	raw_start("raw:nic0");
	raw_plug(1);
	add_address(&gids, "10.0.0.2/24");
	is_ok(raw_port_open(&config, &other));
	make_ip((const uint8_t[6]){ 2, 0, 0, 0, 0, 1 }, "10.0.0.2", 17, 4791, 60);
	memcpy(packet.header, bytes, 60);
	ck_assert_uint_eq(nic->ops->tx_burst(nic, 0, &packet, 1), 1);
	ck_assert_uint_eq(receive(frames, 2), 0);
	ck_assert_uint_eq(other->ops->rx_burst(other, frames, 2), 1);
	ck_assert_uint_eq(frames[0].len, 64);
	ck_assert_mem_eq(frames[0].data, packet.header, 60);
	other->ops->rx_free(other, frames, 1);
	other->ops->close(other);
}
END_TEST

/* ---- payload in the memory of a GPU */

/* The far part of a frame, as the GPU sees it. */
static void has_far(const struct port_frame *frame, size_t length)
{
	uint8_t found[9100];

	ck_assert_uint_eq(frame->len, length < PORT_SPLIT ? length : PORT_SPLIT);
	ck_assert_uint_eq(frame->len + frame->far_len, length);
	ck_assert_mem_eq(frame->data, bytes, frame->len);
	if (!frame->far_len)
		return;
	ck_assert(fake->read(found, (cu_deviceptr)frame->far, frame->far_len));
	ck_assert_mem_eq(found, bytes + PORT_SPLIT, frame->far_len);
}

/* Long frames continue in the GPU's memory, short ones do not; also those of other senders. */
START_TEST(splits)
{
	static const size_t lengths[] = { 60, 117, 118, 119, 122, 1500, FRAME, FRAME + 4 };
	/* All that are posted: that many at a time are given back. */
	enum { HELD = SLOTS - sizeof(lengths) / sizeof(lengths[0]) };
	struct port_frame frames[2], held[HELD];
	/* The context stays, and with it everything that nobody frees. */
	struct gpu *gpu = hold(0);

	raw_start("raw:nic0,gpu=0,slots=128");
	ck_assert(nic->caps.has_far && nic->caps.far_gpu == 0 && nic->caps.max_held == 64);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_FD), 0);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		arrive(roce(lengths[i]));
		ck_assert_uint_eq(receive(frames, 2), 1);
		has_far(&frames[0], lengths[i]);
		ck_assert_uint_eq((uintptr_t)(frames[0].data + 54) % 64, 0);
		ck_assert_uint_eq(frames[0].far % 64, 0);
		ck_assert(frames[0].is_checked);
		nic->ops->rx_free(nic, frames, 1);
	}
	/* No slot is given twice. */
	for (unsigned i = 0; i < HELD; i++) {
		roce(FRAME + 4);
		put_be32(bytes + PORT_SPLIT + 4000, i);
		arrive(FRAME + 4);
		ck_assert_uint_eq(receive(&held[i], 1), 1);
	}
	for (unsigned i = 0; i < HELD; i++) {
		put_be32(bytes + PORT_SPLIT + 4000, i);
		has_far(&held[i], FRAME + 4);
	}
	arrive(roce(200));
	ck_assert_uint_eq(receive(frames, 1), 0);
	nic->ops->rx_free(nic, held, HELD);
	arrive(roce(200));
	ck_assert_uint_eq(receive(frames, 1), 1);
	has_far(&frames[0], 200);
	raw_stop();
	ck_assert_uint_eq(fake->live(FAKE_CUDA_ALLOCATION), 0);
	gpu_release(gpu);
}
END_TEST

/* 0: by a dma-buf; 1: by its address; 2: not at all, as a request has too few pieces. */
START_LOOP_TEST(sends_from_gpu, 3)
{
	struct port_packet packet = make_packet();
	struct fake_verbs_device device;
	struct port_mem *mem = NULL;
	cu_context context = own_context();
	cu_deviceptr memory_of_gpu = allocate(context, 2 * MIB);
	uint8_t payload[PIECE];
	int fd = -1, rc;

	for (unsigned i = 0; i < PIECE; i++)
		payload[i] = (uint8_t)(i * 5 + 3);
	ck_assert(fake->write(memory_of_gpu + 100, payload, PIECE));
	raw_describe(&device, 0);
	if (_i == 2)
		device.attr.max_sge = 17;
	device.has_peermem = _i == 1;
	fake_verbs_add(&device);
	is_ok(raw_open("raw:nic0,gpu=0", 0, &nic));
	fake_verbs_tap(look, NULL);
	memset(&seen, 0, sizeof(seen));
	ck_assert_int_eq(cu.cuCtxPushCurrent(context), 0);
	if (_i == 0)
		ck_assert_int_eq(cu.cuMemGetHandleForAddressRange(&fd, memory_of_gpu, 2 * MIB,
					 CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
			0);
	ck_assert_int_eq(cu.cuCtxPopCurrent(&context), 0);
	rc = nic->ops->mem_map_far(nic, at(memory_of_gpu), 2 * MIB, fd, 0, &mem);
	if (fd >= 0)
		close(fd);
	if (_i == 2)
		is_refused(rc, -ENOTSUP, "17 pieces");
	else
		is_ok(rc);
	for (unsigned i = 0; mem && i < 2; i++) {
		packet.n_pieces = 1;
		packet.pieces[0] = (struct port_piece){
			.addr = at(memory_of_gpu + 100), .len = PIECE, .mem = mem
		};
		fake_verbs_hold(true);
		ck_assert_uint_eq(nic->ops->tx_burst(nic, 0, &packet, 1), 1);
		ck_assert(!nic->ops->mem_idle(nic, mem));
		fake_verbs_hold(false);
		ck_assert(nic->ops->mem_idle(nic, mem));
		ck_assert_uint_eq(seen.length, 64 + PIECE);
		ck_assert_mem_eq(seen.frame + 60, payload, PIECE);
		ck_assert_mem_eq(seen.frame + 60 + PIECE, "tail", 4);
	}
	if (mem)
		nic->ops->mem_unmap(nic, mem);
	raw_stop();
	release(context, memory_of_gpu);
	ck_assert_int_eq(cu.cuCtxDestroy(context), 0);
}
END_TEST

/* Memory that is unmapped, or was never mapped: the port reports it and goes down; nothing stays
 * busy. */
START_TEST(sends_what_is_gone)
{
	struct port_packet packets[2] = { make_packet(), make_packet() };
	struct port_stats stats;
	struct port_mem *mem;

	raw_start("raw:nic0");
	is_ok(nic->ops->mem_map(nic, memory, PAGE, &mem));
	for (unsigned i = 0; i < 2; i++) {
		packets[i].n_pieces = 1;
		packets[i].pieces[0] = (struct port_piece){
			.addr = memory + i * PAGE, .len = 100, .mem = mem
		};
	}
	ck_assert_uint_eq(nic->ops->tx_burst(nic, 0, packets, 2), 2);
	ck_assert(nic->ops->mem_idle(nic, mem));
	ck_assert_int_eq(nic->ops->link_state(nic, 0), PORT_LINK_DOWN);
	ck_assert_uint_eq(nic->ops->tx_burst(nic, 0, packets, 2), 2);
	nic->ops->stats(nic, &stats);
	ck_assert_uint_eq(stats.tx_dropped, 2);
	nic->ops->mem_unmap(nic, mem);
}
END_TEST

/* ---- what fails */

static void must_be(enum port_link_state state)
{
	ck_assert_int_eq(nic->ops->link_state(nic, 0), state);
}

START_TEST(follows_carrier)
{
	raw_start("raw:nic0");
	must_be(PORT_LINK_UP);
	ck_assert_int_eq(nic->ops->link_state(nic, 1), PORT_LINK_CLOSED);
	raw_put(0, "operstate", "down\n");
	must_be(PORT_LINK_DOWN);
	raw_put(0, "operstate", "lowerlayerdown\n");
	must_be(PORT_LINK_DOWN);
	raw_put(0, "operstate", "unknown\n");
	must_be(PORT_LINK_UP);
	raw_put(0, "operstate", "");
	must_be(PORT_LINK_DOWN);
	/* Events of the port add nothing to the interface's state. */
	raw_put(0, "operstate", "up\n");
	fake_verbs_raise("nic0", IBV_EVENT_PORT_ERR, 1);
	fake_verbs_raise("nic0", IBV_EVENT_PORT_ACTIVE, 1);
	must_be(PORT_LINK_UP);
}
END_TEST

static void fail_device(void)
{
	fake_verbs_raise("nic0", IBV_EVENT_DEVICE_FATAL, 1);
}

static void pull_out(void)
{
	fake_verbs_pull_out("nic0");
}

static void fail_qp(void)
{
	fake_verbs_raise_qp("nic0", 17, IBV_EVENT_QP_FATAL);
}

static void misread_work(void)
{
	fake_verbs_raise_qp("nic0", 17, IBV_EVENT_QP_REQ_ERR);
}

static void reach_beyond(void)
{
	fake_verbs_raise_qp("nic0", 17, IBV_EVENT_QP_ACCESS_ERR);
}

static void overrun(void)
{
	fake_verbs_overrun("nic0");
	arrive(roce(100));
}

/* The MTU was raised behind the port's back, and a frame is longer than a slot. */
static void outgrow(void)
{
	struct port_frame frame;

	arrive(roce(4300));
	ck_assert_uint_eq(receive(&frame, 1), 0);
}

static void refuse_send(void)
{
	struct port_packet packet = make_packet();

	fake_verbs_fail("ibv_post_send", 1, EIO);
	ck_assert_uint_eq(nic->ops->tx_burst(nic, 0, &packet, 1), 1);
}

static void refuse_recv(void)
{
	struct port_frame frame;

	fake_verbs_fail("ibv_post_recv", 1, EIO);
	for (unsigned i = 0; i < 32; i++) {
		arrive(roce(100));
		ck_assert_uint_eq(receive(&frame, 1), 1);
		nic->ops->rx_free(nic, &frame, 1);
	}
}

static void lose_recv_queue(void)
{
	struct port_frame frame;

	fake_verbs_fail("ibv_poll_cq", 1, EIO);
	ck_assert_uint_eq(receive(&frame, 1), 0);
}

static void lose_send_queue(void)
{
	struct port_packet packet = make_packet();

	fake_verbs_fail("ibv_poll_cq", 1, EIO);
	ck_assert_uint_eq(nic->ops->tx_burst(nic, 0, &packet, 1), 1);
}

static void (*const breakages[])(void) = { fail_device, pull_out, fail_qp, overrun, outgrow,
	refuse_send, refuse_recv, lose_recv_queue, lose_send_queue, misread_work, reach_beyond };

/* The port is down for good, with packets under way: their memory is free, held frames can be given
 * back, and packets are dropped. With a GPU as without. */
START_LOOP_TEST(breaks, 2 * ROWS(breakages))
{
	struct port_packet packet = make_packet();
	struct port_frame held[40];
	struct port_stats before, stats;
	struct port_mem *mem;

	raw_start(_i % 2 ? "raw:nic0,gpu=0" : "raw:nic0");
	is_ok(nic->ops->mem_map(nic, memory, PAGE, &mem));
	for (unsigned i = 0; i < 40; i++) {
		arrive(roce(200));
		ck_assert_uint_eq(receive(&held[i], 1), 1);
	}
	fake_verbs_hold(true);
	packet.n_pieces = 1;
	packet.pieces[0] = (struct port_piece){ .addr = memory, .len = 100, .mem = mem };
	ck_assert_uint_eq(nic->ops->tx_burst(nic, 0, &packet, 1), 1);
	ck_assert(!nic->ops->mem_idle(nic, mem));
	must_be(PORT_LINK_UP);
	breakages[_i / 2]();
	must_be(PORT_LINK_DOWN);
	fake_verbs_hold(false);
	must_be(PORT_LINK_DOWN);
	ck_assert(nic->ops->mem_idle(nic, mem));
	nic->ops->stats(nic, &before);
	ck_assert_uint_eq(nic->ops->tx_burst(nic, 0, &packet, 1), 1);
	nic->ops->stats(nic, &stats);
	ck_assert_uint_eq(stats.tx_dropped, before.tx_dropped + 1);
	nic->ops->rx_free(nic, held, 40);
	ck_assert_uint_eq(receive(held, 32), 0);
	nic->ops->mem_unmap(nic, mem);
}
END_TEST

/* Every call of libibverbs fails in its turn: opening reports it, and leaves nothing. */
START_LOOP_TEST(fails_to_open, 2)
{
	const char *text = _i ? "raw:nic0,gpu=0,slots=128" : "raw:nic0,slots=128";
	unsigned n = 0;
	int rc = -1;

	raw_plug(0);
	/* Already done: its failure is only reported. */
	ck_assert_int_eq(ibv_fork_init(), 0);
	while (rc) {
		ck_assert_uint_lt(n, 200);
		fake_verbs_fail_nth_made((int)++n, EIO);
		rc = raw_open(text, 4, &nic);
		fake_verbs_fail_nth_made(0, 0);
		ck_assert_uint_eq(fake->live(FAKE_CUDA_FD), 0);
		if (!rc)
			break;
		ck_assert_msg(*frl_last_error() && fake_verbs_failed(), "call %u", n);
		ck_assert_str_eq(fake_verbs_leaks(), "");
		ck_assert_str_eq(fake->leaks(), "");
	}
	ck_assert_uint_gt(n, 15);
}
END_TEST

static const struct {
	const char *function;
	cu_result result;
	const char *word;
} denied[] = {
	{ "cuDevicePrimaryCtxRetain", CUDA_ERROR_OUT_OF_MEMORY, "GPU 0" },
	{ "cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY, "bytes of memory on GPU 0" },
	{ "cuMemGetHandleForAddressRange", CUDA_ERROR_NOT_SUPPORTED, "no peermem" },
};

/* The same of CUDA's driver. */
START_LOOP_TEST(is_denied_memory, ROWS(denied))
{
	raw_plug(0);
	fake->fail_call(denied[_i].function, 1, denied[_i].result, 0);
	ck_assert_int_lt(raw_open("raw:nic0,gpu=0,slots=128", 0, &nic), 0);
	ck_assert_msg(strstr(frl_last_error(), denied[_i].word), "no '%s' in '%s'", denied[_i].word,
		frl_last_error());
	ck_assert_str_eq(fake_verbs_leaks(), "");
	ck_assert_str_eq(fake->leaks(), "");
}
END_TEST

TEST_MAIN(raw_faults)
{
	if (!gpu_is_fake())
		return 77;
	return run_suite(all_tests(setup, teardown));
}
