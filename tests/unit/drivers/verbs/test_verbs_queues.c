/* SPDX-License-Identifier: BSD-3-Clause */
/* Hardware queue pairs and completion queues with a slow kernel, a provider with fewer features
 * than wished for, or failures while another thread works or sleeps. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/fixtures/program.h"
#include "tests/fixtures/verbs_fixture.h"

static enum frl_qp_state state_of(struct frl_qp *qp)
{
	struct frl_qp_attr attr;

	frl_qp_query(qp, &attr);
	return attr.state;
}

static void reset(struct frl_qp *qp)
{
	const struct frl_qp_attr attr = { .state = FRL_QPS_RESET };

	verbs_ok(frl_qp_modify(qp, &attr, FRL_QP_STATE));
}

/* ---- calls by other threads */

struct call {
	pthread_t thread;
	int rc;
	char text[512]; /* why */
};

static void start(struct call *call, void *(*function)(void *))
{
	ck_assert_int_eq(pthread_create(&call->thread, NULL, function, call), 0);
}

static void keep(struct call *call, int rc)
{
	call->rc = rc;
	strncpy(call->text, rc ? frl_last_error() : "", sizeof(call->text) - 1);
}

/* Returns whether it is over within the time; otherwise it is still to be joined. */
static bool is_over(struct call *call, unsigned ms)
{
	struct timespec limit;

	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_nsec += (long)ms * 1000000;
	limit.tv_sec += limit.tv_nsec / 1000000000;
	limit.tv_nsec %= 1000000000;
	return pthread_timedjoin_np(call->thread, NULL, &limit) == 0;
}

static void join(struct call *call)
{
	ck_assert_int_eq(pthread_join(call->thread, NULL), 0);
}

static void *connect_one(void *arg)
{
	keep(arg, verbs_connect(one, two, &defaults));
	return NULL;
}

static void *reset_one(void *arg)
{
	const struct frl_qp_attr attr = { .state = FRL_QPS_RESET };

	keep(arg, frl_qp_modify(one->qp, &attr, FRL_QP_STATE));
	return NULL;
}

static void *query_one(void *arg)
{
	struct frl_qp_attr attr;

	frl_qp_query(one->qp, &attr);
	keep(arg, 0);
	return NULL;
}

/* A call that needs the guard, and nothing of the kernel. */
static void *look_at_device(void *arg)
{
	struct frl_device_attr attr;
	char text[64];

	frl_device_query(one->device, &attr);
	frl_qp_error(one->qp, text, sizeof(text));
	keep(arg, 0);
	return NULL;
}

/* ---- the depth of a queue */

START_LOOP_TEST(resized, 2)
{
	struct frl_sge sge;
	struct frl_wc wc[4];

	verbs_setup(&(struct verbs_wants){ .is_plain = _i });
	sge = verbs_sge(one, 0, 8);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(verbs_send(one, FRL_WR_RDMA_WRITE, &sge, (uintptr_t)two->memory,
					 frl_mr_rkey(two->mr)),
			1);
	verbs_refused(frl_cq_resize(one->cq, 2), -EINVAL, "in use");
	fake_verbs_fail("ibv_resize_cq", 1, EOPNOTSUPP);
	verbs_refused(frl_cq_resize(one->cq, 100), -ENOTSUP, "resize");
	verbs_ok(frl_cq_resize(one->cq, 3));
	ck_assert_int_eq(frl_poll_cq(one->cq, 4, wc), 3);
	verbs_ok(frl_cq_resize(one->cq, 100));
}
END_TEST

/* ---- bytes inline */

static const struct {
	uint32_t has, given; /* where nobody asked for any */
} inlines[] = { { 512, 64 }, { 64, 64 }, { 40, 32 }, { 4, 0 }, { 0, 0 } };

static void open_small(uint32_t max_inline, bool is_silent)
{
	struct fake_verbs_device device;

	verbs_plug(&defaults);
	fake_verbs_reset();
	memset(ends, 0, sizeof(ends));
	one->name = "one";
	fake_verbs_device_init(&device, "one", "10.0.0.1");
	device.max_inline = max_inline;
	device.is_silent = is_silent;
	fake_verbs_add(&device);
	verbs_ok(verbs_make_end(one, &defaults));
}

START_LOOP_TEST(inline_bytes, 2 * ROWS(inlines))
{
	struct frl_qp_config config = { .max_send_wr = 4, .max_inline = FRL_MAX_INLINE };
	uint32_t has = inlines[_i / 2].has;
	struct frl_qp_attr attr;
	struct frl_qp *qp;

	open_small(has, _i % 2);
	frl_qp_query(one->qp, &attr);
	ck_assert_uint_eq(attr.max_inline, inlines[_i / 2].given);
	config.send_cq = config.recv_cq = one->cq;
	if (has < FRL_MAX_INLINE) {
		verbs_refused(frl_qp_create(one->pd, &config, &qp), -EINVAL, "inline");
	} else {
		verbs_ok(frl_qp_create(one->pd, &config, &qp));
		frl_qp_query(qp, &attr);
		ck_assert_uint_eq(attr.max_inline, FRL_MAX_INLINE);
		frl_qp_destroy(qp);
	}
}
END_TEST

static void take_wr_inv(struct fake_verbs_device *device)
{
	device->lacks_wr_inv = true;
}

/* Not all providers keep their promises. */
START_TEST(holes)
{
	struct frl_send_wr wr = { .opcode = FRL_WR_LOCAL_INV, .flags = FRL_SEND_SIGNALED };

	verbs_setup(&(struct verbs_wants){ .change = take_wr_inv });
	wr.invalidate_rkey = 0x1234;
	ck_assert_int_eq(frl_post_send(one->qp, &wr, 1, NULL), 1);
	ck_assert_int_eq(frl_cq_wait(one->cq, 1, &(struct frl_wc){ 0 }, HANG_MS), 1);
}
END_TEST

static bool has_qp_ex;

static void take_windows(struct fake_verbs_device *device)
{
	device->has_mw = false;
	device->attr.max_mw = 0;
	device->has_qp_ex = has_qp_ex;
}

/* A request that the queue pair was not made for is refused, not called. */
START_LOOP_TEST(no_windows, 2)
{
	static const enum frl_wr_opcode opcodes[] = { FRL_WR_LOCAL_INV, FRL_WR_BIND_MW,
		FRL_WR_SEND_WITH_INV };
	struct frl_send_wr wr = { .flags = FRL_SEND_SIGNALED };

	has_qp_ex = !_i;
	verbs_setup(&(struct verbs_wants){ .change = take_windows });
	for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
		wr.opcode = opcodes[i];
		verbs_refused(frl_post_send(one->qp, &wr, 1, NULL), -EINVAL, "opcode");
	}
}
END_TEST

/* Windows of another device are other structs. */
START_TEST(foreign_window)
{
	struct frl_send_wr wr = { .opcode = FRL_WR_BIND_MW };
	struct frl_mw *mws[2];

	verbs_setup(&defaults);
	for (int i = 0; i < 2; i++)
		verbs_ok(frl_mw_alloc(ends[i].pd, &mws[i]));
	wr.bind = (struct frl_mw_bind){ .mw = mws[1], .mr = one->mr };
	verbs_refused(frl_post_send(one->qp, &wr, 1, NULL), -EINVAL, "another device");
	wr.bind = (struct frl_mw_bind){ .mw = mws[0], .mr = two->mr };
	verbs_refused(frl_post_send(one->qp, &wr, 1, NULL), -EINVAL, "another device");
	for (int i = 0; i < 2; i++)
		frl_mw_dealloc(mws[i]);
}
END_TEST

/* The NIC handles packets. */
START_TEST(no_packet_buffers)
{
	struct frl_fragments *fragments;
	struct frl_device_attr attr;
	size_t length;
	void *addr;

	verbs_setup(&defaults);
	frl_device_query(one->device, &attr);
	ck_assert_uint_eq(attr.held_frames, 0);
	verbs_refused(frl_fragments_create(one->pd, 1, &fragments), -ENOTSUP, "packet buffers");
	verbs_refused(frl_fragments_memory(one->pd, 0, &addr, &length), -ENOTSUP, "frl_reg_mr");
}
END_TEST

static void take_rd_atomic(struct fake_verbs_device *device)
{
	device->attr.max_qp_rd_atom = device->attr.max_qp_init_rd_atom = 4;
}

/* A connection asks for no more than the device has, unless it is set. */
START_TEST(few_rd_atomic)
{
	struct frl_connect_config config;
	struct frl_endpoint mine[2];

	verbs_plug_ends(&(struct verbs_wants){ .change = take_rd_atomic });
	for (int i = 0; i < 2; i++) {
		verbs_ok(verbs_make_end(&ends[i], &defaults));
		verbs_ok(frl_qp_endpoint(ends[i].qp, &mine[i]));
	}
	frl_connect_config_init(one->device, &config);
	ck_assert_uint_eq(config.max_rd_atomic, 4);
	for (int i = 0; i < 2; i++)
		verbs_ok(frl_qp_connect(ends[i].qp, &mine[1 - i], NULL));
	reset(one->qp);
	verbs_ok(frl_qp_endpoint(one->qp, &mine[0]));
	config.max_rd_atomic = 5;
	verbs_refused(frl_qp_connect(one->qp, &mine[1], &config), -EINVAL, "rd_atomic 5");
}
END_TEST

/* ---- a kernel that takes its time */

/* Nobody else waits for it: neither the device's events, nor other callers. */
START_TEST(slow_kernel)
{
	struct call connecting, looking;
	bool is_free;

	verbs_setup(&defaults);
	reset(one->qp);
	fake_verbs_pause("ibv_modify_qp");
	start(&connecting, connect_one);
	fake_verbs_wait_paused();
	start(&looking, look_at_device);
	is_free = is_over(&looking, HANG_MS);
	if (is_free) {
		fake_verbs_raise("one", IBV_EVENT_PORT_ERR, 1);
		verbs_event(one, FRL_EVENT_PORT_ERR);
		fake_verbs_raise("one", IBV_EVENT_PORT_ACTIVE, 1);
		verbs_event(one, FRL_EVENT_PORT_ACTIVE);
	}
	fake_verbs_pause(NULL);
	join(&connecting);
	if (!is_free)
		join(&looking);
	ck_assert(is_free);
	ck_assert_msg(connecting.rc == 0, "%s", connecting.text);
	ck_assert_int_eq(state_of(one->qp), FRL_QPS_RTS);
}
END_TEST

/* The queue pair is reset while the kernel is in the middle of `call`. */
static void reset_during(struct call *connecting, void *(*call)(void *))
{
	struct call resetting;

	fake_verbs_pause("ibv_modify_qp");
	start(connecting, call);
	fake_verbs_wait_paused();
	start(&resetting, reset_one);
	ck_assert(!is_over(&resetting, 20));
	fake_verbs_pause(NULL);
	join(connecting);
	join(&resetting);
	ck_assert_msg(resetting.rc == 0, "%s", resetting.text);
}

/* Two threads move a queue pair: one after the other. */
START_TEST(two_movers)
{
	struct call connecting;

	verbs_setup(&defaults);
	reset(one->qp);
	reset_during(&connecting, connect_one);
	/* Either all of it came before, or the rest of it was refused. */
	ck_assert_msg(connecting.rc == 0 || connecting.rc == -EINVAL, "%s", connecting.text);
	ck_assert_int_eq(state_of(one->qp), FRL_QPS_RESET);
	verbs_ok(verbs_connect(one, two, &defaults));
}
END_TEST

/* It failed after the kernel had moved it, and before that was recorded. */
START_LOOP_TEST(fails_while_moved, 2)
{
	struct call connecting;
	struct ibv_qp_attr at;
	char text[256];

	verbs_setup(&defaults);
	reset(one->qp);
	fake_verbs_pause("ibv_modify_qp, done");
	start(&connecting, connect_one);
	fake_verbs_wait_paused();
	if (_i)
		fake_verbs_raise_qp("one", frl_qp_num(one->qp), IBV_EVENT_QP_FATAL);
	else
		fake_verbs_raise("one", IBV_EVENT_DEVICE_FATAL, 1);
	verbs_event(one, FRL_EVENT_QP_FATAL);
	if (!_i)
		verbs_event(one, FRL_EVENT_DEVICE_FATAL);
	fake_verbs_pause(NULL);
	join(&connecting);
	ck_assert_int_eq(connecting.rc, -EINVAL);
	ck_assert_msg(strstr(connecting.text, "failed meanwhile"), "%s", connecting.text);
	ck_assert_int_eq(state_of(one->qp), FRL_QPS_ERR);
	ck_assert_str_ne(frl_qp_error(one->qp, text, sizeof(text)), "");
	if (_i) {
		ck_assert(fake_verbs_qp_attr("one", frl_qp_num(one->qp), &at));
		ck_assert_int_eq(at.qp_state, IBV_QPS_ERR);
		/* It can be used again. */
		reset(one->qp);
		verbs_ok(verbs_connect(one, two, &defaults));
	}
}
END_TEST

/* An event of its last life does not end the next one. */
START_TEST(old_event_while_moved)
{
	const struct frl_qp_attr to_init = { .state = FRL_QPS_INIT, .port_num = 1 };
	struct call resetting;

	verbs_setup(&defaults);
	fake_verbs_pause("ibv_modify_qp, done");
	start(&resetting, reset_one);
	fake_verbs_wait_paused();
	/* Reports it, and changes nothing. */
	fake_verbs_raise_qp("one", frl_qp_num(one->qp), IBV_EVENT_COMM_EST);
	verbs_event(one, FRL_EVENT_COMM_EST);
	fake_verbs_pause(NULL);
	join(&resetting);
	ck_assert_msg(resetting.rc == 0, "%s", resetting.text);
	verbs_ok(frl_qp_modify(one->qp, &to_init,
		FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_ACCESS_FLAGS));
}
END_TEST

/* An answer that is old when it arrives is ignored. */
START_TEST(stale_query)
{
	struct frl_sge sge;
	struct call query;

	verbs_setup(&defaults);
	reset(one->qp);
	fake_verbs_pause("ibv_query_qp, done");
	start(&query, query_one);
	fake_verbs_wait_paused();
	verbs_ok(verbs_connect(one, two, &defaults));
	fake_verbs_pause(NULL);
	join(&query);
	sge = verbs_sge(one, 0, 8);
	verbs_recv(two, 1, 0, 8);
	ck_assert_msg(verbs_send(one, FRL_WR_SEND, &sge, 0, 0) == 1, "%s", frl_last_error());
	verbs_expect(one, FRL_WC_SUCCESS);
}
END_TEST

static struct frl_endpoint endpoint_of_two;

static void *connect_by_endpoint(void *arg)
{
	keep(arg, frl_qp_connect(one->qp, &endpoint_of_two, NULL));
	return NULL;
}

/* A queue pair that is reset while it is being connected is not connected. */
START_TEST(reset_while_connecting)
{
	struct call connecting;
	struct frl_endpoint mine;

	verbs_setup(&defaults);
	reset(one->qp);
	reset(two->qp);
	verbs_ok(frl_qp_endpoint(two->qp, &endpoint_of_two));
	verbs_ok(frl_qp_endpoint(one->qp, &mine));
	reset_during(&connecting, connect_by_endpoint);
	ck_assert_msg(connecting.rc == -ECANCELED, "%d: %s", connecting.rc, connecting.text);
	ck_assert_int_eq(state_of(one->qp), FRL_QPS_RESET);
	/* It can be connected again. */
	verbs_ok(frl_qp_endpoint(one->qp, &mine));
	verbs_ok(frl_qp_connect(one->qp, &endpoint_of_two, NULL));
}
END_TEST

/* ---- what the kernel says of a move that is not to an address */

static const struct {
	int err, rc;
	const char *word;
} moves[] = {
	{ ETIMEDOUT, -EIO, "firmware" },
	{ EAGAIN, -EBUSY, "try again" },
	{ EIO, -EIO, "dmesg" },
};

START_LOOP_TEST(move_error, ROWS(moves))
{
	const struct frl_qp_attr attr = { .state = FRL_QPS_ERR };

	verbs_setup(&defaults);
	fake_verbs_fail("ibv_modify_qp", 1, moves[_i].err);
	verbs_refused(frl_qp_modify(one->qp, &attr, FRL_QP_STATE), moves[_i].rc, moves[_i].word);
	ck_assert_int_eq(state_of(one->qp), FRL_QPS_RTS);
}
END_TEST

START_TEST(privileged_qkey)
{
	const struct verbs_wants wants = { .type = FRL_QPT_UD };
	struct frl_qp_attr attr = { .state = FRL_QPS_INIT, .port_num = 1, .qkey = 0x80010000 };
	const uint32_t mask = FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_QKEY;

	verbs_setup(&wants);
	reset(one->qp);
	fake_verbs_fail("ibv_modify_qp", 1, EPERM);
	verbs_refused(frl_qp_modify(one->qp, &attr, mask), -EPERM, "CAP_NET_RAW");
	attr.qkey = 1;
	fake_verbs_fail("ibv_modify_qp", 1, EPERM);
	verbs_refused(frl_qp_modify(one->qp, &attr, mask), -EPERM, "/dev/infiniband");
}
END_TEST

/* ---- who sleeps on a completion channel */

static void *sleep_on_channel(void *arg)
{
	struct frl_cq *cq;
	int rc = frl_get_cq_event(one->channel, HANG_MS, &cq);

	keep(arg, rc ? rc : cq == one->cq ? 0 : -EBADF);
	return NULL;
}

/* Nothing will come any more: that is an event, too. */
START_LOOP_TEST(sleeper, 2)
{
	struct call sleeping;
	struct frl_sge sge;
	struct frl_cq *cq;
	struct frl_wc wc;
	int n;

	verbs_setup(&defaults);
	verbs_ok(frl_req_notify_cq(one->cq, false));
	start(&sleeping, sleep_on_channel);
	if (_i) {
		fake_verbs_overrun("one");
		sge = verbs_sge(one, 0, 8);
		verbs_send(
			one, FRL_WR_RDMA_WRITE, &sge, (uintptr_t)two->memory, frl_mr_rkey(two->mr));
	} else {
		fake_verbs_raise("one", IBV_EVENT_DEVICE_FATAL, 1);
	}
	join(&sleeping);
	ck_assert_msg(sleeping.rc == 0, "%d: %s", sleeping.rc, sleeping.text);
	while ((n = frl_poll_cq(one->cq, 1, &wc)) > 0)
		;
	ck_assert_int_lt(n, 0);
	/* It was reported; another request is reported again, or refused. */
	ck_assert_int_eq(frl_get_cq_event(one->channel, 0, &cq), -EAGAIN);
	n = frl_req_notify_cq(one->cq, false);
	ck_assert_int_eq(frl_get_cq_event(one->channel, 0, &cq), n ? -EAGAIN : 0);
}
END_TEST

/* The queue that is destroyed takes its event along. */
START_TEST(sleeper_and_no_queue)
{
	struct frl_cq *cq;

	verbs_setup(&defaults);
	fake_verbs_raise("one", IBV_EVENT_DEVICE_FATAL, 1);
	verbs_event(one, FRL_EVENT_QP_FATAL);
	verbs_event(one, FRL_EVENT_DEVICE_FATAL);
	frl_qp_destroy(one->qp);
	verbs_ok(frl_cq_destroy(one->cq));
	one->qp = NULL;
	one->cq = NULL;
	ck_assert_int_eq(frl_get_cq_event(one->channel, 0, &cq), -EAGAIN);
}
END_TEST

TEST_MAIN(verbs_queues)
{
	return run_suite_unforked(all_tests(NULL, verbs_teardown));
}
