/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NCCL plugin over hardware: connections that fail and what NCCL's log has of it, and calls of
 * libibverbs that fail. Both ends are here; what the data looks like on its way is seen by
 * tests/nccl.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl/comm.h"
#include "nccl/connect/setup.h"
#include "tests/fixtures/bootstrap_fixture.h"
#include "tests/unit/nccl/nccl_log.h"
#include "tests/unit/nccl/nccl_verbs_fixture.h"
#include "tests/fixtures/program.h"

enum {
	BYTES = 3 << 20,
	TAG = 5,
	PLAIN = 0, /* device: nic0 */
	CALLS = 54,
	ALIKE = 44, /* these calls, from the 45th on, post receives */
	N_ALIKE = 32,
};

/* ---- two ends */

static struct net_context *context;
static int fused; /* nic0 and nic1 */

struct end {
	struct comm *comm;
	struct registration *registration;
	uint8_t *memory;
	struct request *request;
};

struct pair {
	struct end sender, receiver;
};

static void begin(uint32_t max_inline, bool flushes_late)
{
	const int members[] = { 0, 1 };
	int n = 0;

	warnings[0] = '\0';
	plug_in(max_inline, flushes_late);
	ck_assert_int_eq(net_init(NULL, take_line, NULL, &context), NCCL_SUCCESS);
	/* It is there again if the process has not forgotten it. */
	net_devices(&n);
	fused = 2;
	if (n == fused)
		ck_assert_int_eq(net_make_vdevice(&fused, members, 2), NCCL_SUCCESS);
}

static void end(void)
{
	ck_assert_int_eq(net_finalize(context), NCCL_SUCCESS);
	ck_assert_str_eq(fake_verbs_leaks(), "");
	fake_verbs_reset();
}

static bool take_memory(struct end *end)
{
	end->memory = malloc(BYTES);
	ck_assert_ptr_nonnull(end->memory);
	return net_register(end->comm, end->memory, BYTES, NCCL_PTR_HOST, &end->registration) ==
		NCCL_SUCCESS;
}

static void close_end(struct end *end)
{
	if (end->registration)
		net_deregister(end->registration);
	if (end->comm)
		ck_assert_int_eq(net_close(end->comm), NCCL_SUCCESS);
	free(end->memory);
	*end = (struct end){ .comm = NULL };
}

static void close_pair(struct pair *pair)
{
	close_end(&pair->sender);
	close_end(&pair->receiver);
}

/* False: a call has failed. */
static bool open_pair(int dev, struct pair *pair)
{
	uint64_t handle[NCCL_HANDLE_SIZE / 8] = { 0 }, until = now_ms() + HANG_MS;
	struct listener *listener;
	int rc = net_listen(context, dev, handle, &listener);

	*pair = (struct pair){ .sender.comm = NULL };
	if (rc)
		return false;
	while (!rc && !(pair->sender.comm && pair->receiver.comm)) {
		ck_assert_msg(now_ms() < until, "no connection: %s", warnings);
		if (!pair->sender.comm)
			rc = net_connect(context, NULL, dev, handle, &pair->sender.comm);
		if (!rc && !pair->receiver.comm)
			rc = net_accept(listener, &pair->receiver.comm);
	}
	net_close_listen(listener);
	return !rc && take_memory(&pair->sender) && take_memory(&pair->receiver);
}

static int post_receive(struct pair *pair, size_t size)
{
	const struct net_buffer to = { .data = pair->receiver.memory,
		.size = size,
		.tag = TAG,
		.registration = pair->receiver.registration };

	return net_receive(pair->receiver.comm, 1, &to, &pair->receiver.request);
}

static int post_send(struct pair *pair, size_t size)
{
	const struct net_buffer from = { .data = pair->sender.memory,
		.size = size,
		.tag = TAG,
		.registration = pair->sender.registration };

	return net_send(pair->sender.comm, &from, &pair->sender.request);
}

static int post(struct pair *pair, size_t size)
{
	int rc = post_receive(pair, size);

	return rc ? rc : post_send(pair, size);
}

static int test(struct end *end)
{
	int done, rc = end->request ? net_test(end->request, &done, NULL) : 0;

	if (end->request && done)
		end->request = NULL;
	return rc;
}

/* 0, or what a call said. */
static int transfer(struct pair *pair, size_t size)
{
	uint64_t until = now_ms() + HANG_MS;
	int rc;

	for (size_t i = 0; i < size; i++)
		pair->sender.memory[i] = (uint8_t)(i * 131 + size);
	memset(pair->receiver.memory, 0x5a, BYTES);
	rc = post(pair, size);
	while (!rc && (pair->sender.request || pair->receiver.request)) {
		ck_assert_msg(now_ms() < until, "%zu bytes: no end", size);
		rc = test(&pair->sender);
		if (!rc)
			rc = test(&pair->receiver);
	}
	if (rc)
		return rc;
	ck_assert_mem_eq(pair->sender.memory, pair->receiver.memory, size);
	ck_assert(size == BYTES || pair->receiver.memory[size] == 0x5a);
	return 0;
}

static void works(int dev)
{
	static const size_t sizes[] = { 0, 1, 4097, 16384, 16385, 1000003, BYTES };
	struct pair pair;

	ck_assert_msg(open_pair(dev, &pair), "%s", warnings);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		ck_assert_msg(transfer(&pair, sizes[i]) == 0, "%s", warnings);
	close_pair(&pair);
}

/* ---- what works */

START_TEST(properties)
{
	struct net_properties is;
	int dev, n = 0;

	begin(64, false);
	net_devices(&n);
	ck_assert_int_eq(n, 3);
	ck_assert_int_eq(net_properties(1, &is), NCCL_SUCCESS);
	ck_assert_str_eq(is.name, "nic1");
	ck_assert_int_eq(is.speed_mbps, 400000);
	ck_assert_ptr_null(is.pci_path);
	ck_assert_int_eq(net_properties(fused, &is), NCCL_SUCCESS);
	ck_assert_str_eq(is.name, "nic0+nic1");
	ck_assert_int_eq(is.speed_mbps, 500000);
	ck_assert_int_eq(is.n_rails, 2);
	ck_assert_int_eq(is.rails[1], 1);
	ck_assert_int_ne(net_make_vdevice(&dev, (int[]){ 0, fused }, 2), NCCL_SUCCESS);
	ck_assert_int_ne(net_make_vdevice(&dev, (int[]){ 0, 0 }, 2), NCCL_SUCCESS);
	end();
}
END_TEST

/* Some NICs take few bytes inline, or none. */
START_LOOP_TEST(data, 8)
{
	static const uint32_t inlines[] = { 64, 0, 28, 512 };

	begin(inlines[_i / 2], false);
	works(_i % 2 ? fused : PLAIN);
	end();
}
END_TEST

/* ---- what fails */

enum what {
	CUT,
	CUT_SECOND_RAIL,
	PORT_DOWN,
	SENDS_FATAL,
	TAKES_FATAL,
	DEVICE_FATAL,
	OVERRUN,
	WHATS
};

#define NAMES "QP 0x[0-9a-f]+ to QP 0x[0-9a-f]+, "

static const struct trouble {
	bool is_fused;
	bool is_final; /* for the device */
	const char *sender, *receiver;
} troubles[WHATS] = {
	/* Announcements get lost as well. */
	[CUT] = { .sender = "sending to .*, 10\\.0\\.0\\.1\\) over nic0, " NAMES
			    "sent up to PSN [0-9]+: .*(retries exhausted|closed the connection)",
		.receiver = "receiving from .*, 10\\.0\\.0\\.1\\) over nic0, " NAMES
			    "expecting PSN [0-9]+: .*(retries exhausted|closed the connection)" },
	[CUT_SECOND_RAIL] = { .is_fused = true,
		.sender = "sending to .*, 10\\.0\\.1\\.1\\) over nic0\\+nic1, " NAMES
			  "sent up to PSN [0-9]+: .*retries exhausted",
		.receiver = "receiving from .* over nic0\\+nic1, " NAMES
			    "expecting PSN [0-9]+: .*closed the connection" },
	[PORT_DOWN] = { .sender = "sending to .* over nic0, " NAMES "sent up to PSN [0-9]+: ",
		.receiver = "receiving from .* over nic0, " NAMES "expecting PSN [0-9]+: " },
	[SENDS_FATAL] = { .sender = "sending to .* over nic0, " NAMES "sent up to PSN [0-9]+: ",
		.receiver = "receiving from .* over nic0, " NAMES
			    "expecting PSN [0-9]+: .*(retries exhausted|closed the connection)" },
	[TAKES_FATAL] = { .sender = "sending to .* over nic0, " NAMES "sent up to PSN [0-9]+: ",
		.receiver = "receiving from .* over nic0, " NAMES "expecting PSN [0-9]+: " },
	[DEVICE_FATAL] = { .is_final = true,
		.sender = "sending to .* over nic0, " NAMES "sent up to PSN [0-9]+: ",
		.receiver = "receiving from .* over nic0, " NAMES "expecting PSN [0-9]+: " },
	[OVERRUN] = { .sender = "sending to .* over nic0, " NAMES "sent up to PSN [0-9]+: ",
		.receiver = "receiving from .* over nic0, " NAMES "expecting PSN [0-9]+: " },
};

static void make_trouble(const struct pair *pair, enum what what)
{
	const struct comm *sender = pair->sender.comm, *receiver = pair->receiver.comm;

	switch (what) {
	case CUT: fake_verbs_cut("nic0", "nic0", true); break;
	case CUT_SECOND_RAIL: fake_verbs_cut("nic1", "nic1", true); break;
	case PORT_DOWN: fake_verbs_raise("nic0", IBV_EVENT_PORT_ERR, 1); break;
	case SENDS_FATAL:
		fake_verbs_raise_qp("nic0", frl_qp_num(sender->paths[0].qp), IBV_EVENT_QP_FATAL);
		break;
	case TAKES_FATAL:
		fake_verbs_raise_qp("nic0", frl_qp_num(receiver->paths[0].qp), IBV_EVENT_QP_FATAL);
		break;
	case DEVICE_FATAL: fake_verbs_raise("nic0", IBV_EVENT_DEVICE_FATAL, 1); break;
	case OVERRUN: fake_verbs_overrun("nic0"); break;
	case WHATS: break;
	}
}

static void mend(enum what what)
{
	if (what == CUT)
		fake_verbs_cut("nic0", "nic0", false);
	if (what == CUT_SECOND_RAIL)
		fake_verbs_cut("nic1", "nic1", false);
	if (what == PORT_DOWN)
		fake_verbs_raise("nic0", IBV_EVENT_PORT_ACTIVE, 1);
}

/* Both ends hear of it, in the middle of messages, though a NIC may tell of no request that it has
 * given up; others go on, and new ones. */
START_LOOP_TEST(trouble, 2 * WHATS)
{
	const struct trouble *what = &troubles[_i % WHATS];
	int dev, sent = 0, received = 0;
	uint64_t until;
	struct pair pair;

	begin(64, _i / WHATS);
	dev = what->is_fused ? fused : PLAIN;
	ck_assert_msg(open_pair(dev, &pair), "%s", warnings);
	ck_assert_msg(transfer(&pair, BYTES) == 0, "%s", warnings);
	make_trouble(&pair, (enum what)(_i % WHATS));
	until = now_ms() + HANG_MS;
	while (!sent || !received) {
		ck_assert_msg(
			now_ms() < until, "sender %d, receiver %d: %s", sent, received, warnings);
		/* Data in flight may still arrive. */
		if (!sent)
			sent = pair.sender.request ? test(&pair.sender) : post_send(&pair, BYTES);
		if (!received)
			received = pair.receiver.request ? test(&pair.receiver)
							 : post_receive(&pair, BYTES);
	}
	expect_logged(what->sender);
	expect_logged(what->receiver);
	if (_i % WHATS == CUT)
		expect_logged("retries exhausted");
	close_pair(&pair);
	mend((enum what)(_i % WHATS));
	if (!what->is_final)
		works(dev);
	end();
}
END_TEST

/* The memory of a killed process may go before its queue pairs, and the event of it come last. */
START_LOOP_TEST(memory_gone, 2)
{
	uint64_t until = now_ms() + HANG_MS;
	struct pair pair;
	int sent = 0;

	begin(64, false);
	ck_assert_msg(open_pair(PLAIN, &pair), "%s", warnings);
	ck_assert_int_eq(post_receive(&pair, BYTES), 0);
	while (pair.sender.comm->send.next == 0)
		net_comm_poll(pair.sender.comm);
	pair.sender.comm->send.groups[0].targets[0].rkeys[0] ^= 0xff00;
	ck_assert_int_eq(post_send(&pair, BYTES), 0);
	while (!pair.sender.comm->err)
		ck_assert_int_eq(test(&pair.sender), 0);
	if (_i == 0)
		close_end(&pair.receiver);
	while (!sent) {
		ck_assert_msg(now_ms() < until, "no end");
		sent = test(&pair.sender);
	}
	expect_logged(_i == 0 ? "sending to .* over nic0, " NAMES "sent up to PSN [0-9]+: remote "
				"access error.*; the peer has closed the connection"
			      : "sending to .* over nic0, " NAMES "sent up to PSN [0-9]+: remote "
				"access error");
	close_pair(&pair);
	end();
}
END_TEST

/* A request that NCCL abandons ends when its memory is gone, even if a side still waits. */
START_LOOP_TEST(close_in_flight, 8)
{
	struct pair pair;

	begin(64, false);
	ck_assert_msg(open_pair(_i % 2 ? fused : PLAIN, &pair), "%s", warnings);
	ck_assert_msg(transfer(&pair, 1000) == 0, "%s", warnings);
	if (_i / 2 % 2)
		fake_verbs_hold(true);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(post(&pair, BYTES), 0);
	if (_i / 4)
		close_end(&pair.receiver);
	close_end(&pair.sender);
	close_end(&pair.receiver);
	fake_verbs_hold(false);
	works(_i % 2 ? fused : PLAIN);
	end();
}
END_TEST

/* Any call may fail: an error, or nothing that matters; nothing stays, and all works afterwards. */
START_LOOP_TEST(calls, CALLS)
{
	struct pair pair;

	begin(64, false);
	fake_verbs_fail_nth_made((_i < ALIKE ? _i : _i + N_ALIKE) + 1, _i % 2 ? ENOMEM : EIO);
	if (open_pair(_i % 3 ? PLAIN : fused, &pair))
		transfer(&pair, 100000);
	close_pair(&pair);
	fake_verbs_fail_nth_made(0, 0);
	end();
}
END_TEST

TEST_MAIN(nccl_verbs)
{
	set_socket_path();
	setenv("FERRULE_DEVICES", "verbs:nic0;verbs:nic1", 1);
	setenv("FERRULE_TIMEOUT_S", "1", 1);
	return run_with_daemon(run_suite, all_tests(NULL, NULL));
}
