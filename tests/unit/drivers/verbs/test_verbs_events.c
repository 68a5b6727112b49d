/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous reports of hardware: events, failed completions and overruns; and their texts for
 * the application and the log. */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/fixtures/wait_limits.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/verbs_fixture.h"

enum { SOON_MS = 50 }; /* drivers/verbs/poll.c */

static void expect_error(struct frl_qp *qp, const char *word)
{
	char text[256];

	frl_qp_error(qp, text, sizeof(text));
	ck_assert_msg(strstr(text, word), "'%s' does not name '%s'", text, word);
}

static enum frl_qp_state state_of(struct frl_qp *qp)
{
	struct frl_qp_attr attr;

	frl_qp_query(qp, &attr);
	ck_assert_int_eq(attr.state, attr.cur_state);
	return attr.state;
}

static enum frl_port_state port_state(struct verbs_end *end)
{
	struct frl_device_attr attr;

	frl_device_query(end->device, &attr);
	return attr.port_state;
}

static void wait_for_log(const char *word)
{
	const struct timespec pause = { .tv_nsec = 1000000 };

	while (!*verbs_logged(word))
		nanosleep(&pause, NULL);
}

START_TEST(port_events)
{
	struct frl_async_event event;
	struct pollfd fd;

	verbs_setup(&defaults);
	fd = (struct pollfd){ .fd = frl_async_fd(one->device), .events = POLLIN };
	ck_assert_int_ge(fd.fd, 0);
	ck_assert_int_eq(poll(&fd, 1, 0), 0);
	/* Events of another port are not this device's. */
	fake_verbs_raise("one", IBV_EVENT_PORT_ERR, 2);
	fake_verbs_raise("one", IBV_EVENT_PORT_ACTIVE, 1);
	verbs_event(one, FRL_EVENT_PORT_ACTIVE);
	ck_assert_str_eq(verbs_logged("check cable"), "");
	fake_verbs_raise("one", IBV_EVENT_PORT_ERR, 1);
	ck_assert_int_eq(poll(&fd, 1, HANG_MS), 1);
	verbs_event(one, FRL_EVENT_PORT_ERR);
	ck_assert_int_eq(port_state(one), FRL_PORT_DOWN);
	ck_assert_str_ne(verbs_logged("check cable"), "");
	fake_verbs_raise("one", IBV_EVENT_PORT_ACTIVE, 1);
	verbs_event(one, FRL_EVENT_PORT_ACTIVE);
	ck_assert_int_eq(port_state(one), FRL_PORT_ACTIVE);
	ck_assert_int_eq(frl_get_async_event(one->device, 0, &event), -EAGAIN);
}
END_TEST

static void keep_event(const struct frl_async_event *event, void *arg)
{
	atomic_int *type = arg;

	atomic_store(type, (int)event->type);
}

static void no_event(struct frl_cq *cq, void *arg)
{
	ck_abort();
}

START_TEST(functions_take_events)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	struct frl_comp_channel *channel;
	struct frl_async_event event;
	atomic_int type = -1;

	verbs_setup(&defaults);
	verbs_ok(frl_device_on_event(one->device, keep_event, &type));
	fake_verbs_raise("one", IBV_EVENT_PORT_ERR, 1);
	while (atomic_load(&type) != FRL_EVENT_PORT_ERR)
		nanosleep(&pause, NULL);
	ck_assert_int_eq(frl_get_async_event(one->device, 0, &event), -EAGAIN);
	verbs_ok(frl_device_on_event(one->device, NULL, NULL));
	fake_verbs_raise("one", IBV_EVENT_PORT_ACTIVE, 1);
	verbs_event(one, FRL_EVENT_PORT_ACTIVE);
	/* A thread would have to wait for the hardware's notifications. */
	verbs_ok(frl_comp_channel_create(one->device, &channel));
	ck_assert_int_eq(frl_comp_channel_on_event(channel, no_event, NULL), -ENOTSUP);
	verbs_ok(frl_comp_channel_destroy(channel));
}
END_TEST

/* An event that is no longer true when it is fetched is not reported. */
START_TEST(link_flap)
{
	struct frl_async_event event;

	verbs_setup(&defaults);
	fake_verbs_raise("one", IBV_EVENT_PORT_ERR, 1);
	fake_verbs_raise("one", IBV_EVENT_PORT_ACTIVE, 1);
	wait_for_log("link is up");
	verbs_event(one, FRL_EVENT_PORT_ACTIVE);
	ck_assert_int_eq(frl_get_async_event(one->device, 0, &event), -EAGAIN);
}
END_TEST

static const struct {
	enum ibv_event_type from;
	enum frl_event_type to;
	const char *word; /* of frl_qp_error(), or NULL: it goes on */
} qp_events[] = {
	{ IBV_EVENT_QP_FATAL, FRL_EVENT_QP_FATAL, "dmesg" },
	{ IBV_EVENT_QP_REQ_ERR, FRL_EVENT_QP_REQ_ERR, "invalid" },
	{ IBV_EVENT_QP_ACCESS_ERR, FRL_EVENT_QP_ACCESS_ERR, "without permission" },
	{ IBV_EVENT_COMM_EST, FRL_EVENT_COMM_EST, NULL },
	{ IBV_EVENT_SQ_DRAINED, FRL_EVENT_SQ_DRAINED, NULL },
	{ IBV_EVENT_QP_LAST_WQE_REACHED, FRL_EVENT_QP_LAST_WQE_REACHED, NULL },
};

START_LOOP_TEST(queue_pair_events, ROWS(qp_events))
{
	verbs_setup(&defaults);
	/* An event that Ferrule has no name for is not reported. */
	fake_verbs_raise_qp("one", frl_qp_num(one->qp), IBV_EVENT_PATH_MIG);
	fake_verbs_raise_qp("one", frl_qp_num(one->qp), qp_events[_i].from);
	ck_assert_ptr_eq(verbs_event(one, qp_events[_i].to).qp, one->qp);
	ck_assert_int_eq(state_of(one->qp), qp_events[_i].word ? FRL_QPS_ERR : FRL_QPS_RTS);
	expect_error(one->qp, qp_events[_i].word ? qp_events[_i].word : "");
	if (qp_events[_i].word)
		ck_assert_str_ne(verbs_logged("has failed"), "");
}
END_TEST

/* Two ends whose first one's shared receive queue and completion queue have events as well. */
static void raise_all(void)
{
	struct frl_sge from = verbs_sge(two, 0, 8);

	verbs_ok(frl_srq_set_limit(one->srq, 1));
	verbs_recv(one, 0, 0, 8);
	verbs_send(two, FRL_WR_SEND, &from, 0, 0);
	verbs_expect(two, FRL_WC_SUCCESS);
	from = verbs_sge(one, 0, 8);
	for (int i = 0; i < 8; i++)
		verbs_send(one, FRL_WR_RDMA_WRITE, &from, (uintptr_t)two->memory,
			frl_mr_rkey(two->mr));
	wait_for_log("overran");
}

/* An unfetched event goes with its object. */
START_TEST(forgotten)
{
	const struct verbs_wants wants = { .has_srq = true, .depth = 4 };
	struct frl_async_event event;

	verbs_setup(&wants);
	raise_all();
	fake_verbs_raise_qp("one", frl_qp_num(one->qp), IBV_EVENT_QP_FATAL);
	wait_for_log("has failed");
	frl_qp_destroy(one->qp);
	verbs_ok(frl_srq_destroy(one->srq));
	verbs_ok(frl_cq_destroy(one->cq));
	one->qp = NULL;
	one->srq = NULL;
	one->cq = NULL;
	ck_assert_int_eq(frl_get_async_event(one->device, 0, &event), -EAGAIN);
}
END_TEST

START_TEST(gid_change)
{
	struct fake_verbs_gid gid;

	verbs_setup(&defaults);
	fake_verbs_gid_set(&gid, "10.0.0.3", IBV_GID_TYPE_ROCE_V2);
	fake_verbs_change_gid("one", 1, 3, &gid);
	wait_for_log("10.0.0.1 was removed");
}
END_TEST

static int path_from(struct verbs_end *end, struct frl_ah **ret_ah)
{
	struct frl_ah_attr attr = { .sgid_index = 1 };
	struct frl_gid gid;

	verbs_ok(frl_query_gid(two->device, 1, &gid));
	attr.dgid = gid.ip;
	return frl_ah_create(end->pd, &attr, ret_ah);
}

/* An address is known by its value, wherever the port has it now. */
START_TEST(gid_moves)
{
	const struct frl_qp_attr reset = { .state = FRL_QPS_RESET };
	struct fake_verbs_gid gone = { .type = -1 }, gid;
	struct ibv_qp_attr at;
	struct frl_ah *ah;

	verbs_setup(&defaults);
	verbs_ok(frl_qp_modify(one->qp, &reset, FRL_QP_STATE));
	fake_verbs_change_gid("one", 1, 3, &gone);
	wait_for_log("10.0.0.1 was removed");
	verbs_refused(path_from(one, &ah), -EINVAL, "ip addr add");
	verbs_refused(verbs_connect(one, two, &defaults), -EINVAL, "ip addr add");
	verbs_ok(frl_qp_modify(one->qp, &reset, FRL_QP_STATE));
	/* Another address in its place is not taken for it, and there is no second report. */
	fake_verbs_gid_set(&gid, "10.0.0.9", IBV_GID_TYPE_ROCE_V2);
	fake_verbs_change_gid("one", 1, 3, &gid);
	fake_verbs_raise("one", IBV_EVENT_PORT_ACTIVE, 1);
	verbs_event(one, FRL_EVENT_PORT_ACTIVE);
	ck_assert_str_eq(verbs_logged("was removed"), "");
	verbs_refused(path_from(one, &ah), -EINVAL, "ip addr add");
	/* It comes back elsewhere. */
	fake_verbs_gid_set(&gid, "10.0.0.1", IBV_GID_TYPE_ROCE_V2);
	fake_verbs_change_gid("one", 1, 5, &gid);
	wait_for_log("10.0.0.1 is available again");
	verbs_ok(path_from(one, &ah));
	frl_ah_destroy(ah);
	verbs_ok(verbs_connect(one, two, &defaults));
	ck_assert(fake_verbs_qp_attr("one", frl_qp_num(one->qp), &at));
	ck_assert_uint_eq(at.ah_attr.grh.sgid_index, 5);
}
END_TEST

/* The port's present MTU counts, not that at its opening. */
START_TEST(mtu_change)
{
	const struct frl_qp_attr reset = { .state = FRL_QPS_RESET };

	verbs_setup(&defaults);
	verbs_ok(frl_qp_modify(one->qp, &reset, FRL_QP_STATE));
	fake_verbs_change_mtu("one", 1, IBV_MTU_512);
	fake_verbs_raise("one", IBV_EVENT_PORT_ACTIVE, 1);
	verbs_event(one, FRL_EVENT_PORT_ACTIVE);
	verbs_refused(verbs_connect(one, two, &defaults), -EINVAL, "exceeds the port's 512");
	verbs_ok(frl_qp_modify(one->qp, &reset, FRL_QP_STATE));
	fake_verbs_change_mtu("one", 1, IBV_MTU_4096);
	fake_verbs_raise("one", IBV_EVENT_PORT_ACTIVE, 1);
	verbs_event(one, FRL_EVENT_PORT_ACTIVE);
	verbs_ok(verbs_connect(one, two, &defaults));
}
END_TEST

START_TEST(device_fatal)
{
	struct frl_async_event event;
	struct frl_wc wc;
	int n;

	verbs_setup(&defaults);
	fake_verbs_raise("one", IBV_EVENT_DEVICE_FATAL, 1);
	/* The queue pair's comes first. */
	ck_assert_ptr_eq(verbs_event(one, FRL_EVENT_QP_FATAL).qp, one->qp);
	verbs_event(one, FRL_EVENT_DEVICE_FATAL);
	ck_assert_int_eq(frl_get_async_event(one->device, 0, &event), -EAGAIN);
	ck_assert_str_ne(verbs_logged("the device has failed"), "");
	ck_assert_int_eq(state_of(one->qp), FRL_QPS_ERR);
	expect_error(one->qp, "device has failed");
	ck_assert_int_eq(port_state(one), FRL_PORT_DOWN);
	/* A waiter for a completion is not left waiting. */
	while ((n = frl_cq_wait(one->cq, 1, &wc, HANG_MS)) > 0)
		;
	verbs_refused(n, -EIO, "no further completions");
	/* Everything can still be destroyed. */
}
END_TEST

static void *poll_one(void *arg)
{
	int *ret_n = arg;
	struct frl_wc wc;

	*ret_n = frl_poll_cq(one->cq, 1, &wc);
	return NULL;
}

/* A message that comes after a poll of the completion queue, and before the device fails. */
START_LOOP_TEST(fatal_while_polled, 2)
{
	const struct verbs_wants wants = { .is_plain = _i };
	struct frl_sge from;
	pthread_t thread;
	int n;

	verbs_setup(&wants);
	verbs_recv(one, 1, 0, 8);
	fake_verbs_pause(_i ? "ibv_poll_cq, empty" : "ibv_start_poll, empty");
	ck_assert_int_eq(pthread_create(&thread, NULL, poll_one, &n), 0);
	fake_verbs_wait_paused();
	from = verbs_sge(two, 0, 8);
	ck_assert_int_eq(verbs_send(two, FRL_WR_SEND, &from, 0, 0), 1);
	fake_verbs_raise("one", IBV_EVENT_DEVICE_FATAL, 1);
	verbs_event(one, FRL_EVENT_QP_FATAL);
	verbs_event(one, FRL_EVENT_DEVICE_FATAL);
	fake_verbs_pause(NULL);
	pthread_join(thread, NULL);
	ck_assert_int_eq(n, 1);
}
END_TEST

START_LOOP_TEST(overrun, 2)
{
	const struct verbs_wants wants = { .depth = 4, .is_plain = _i };
	struct frl_sge from;
	struct frl_wc wc[8];
	int n;

	verbs_setup(&wants);
	from = verbs_sge(one, 0, 8);
	for (int i = 0; i < 8; i++)
		verbs_send(one, FRL_WR_RDMA_WRITE, &from, (uintptr_t)two->memory,
			frl_mr_rkey(two->mr));
	ck_assert_ptr_eq(verbs_event(one, FRL_EVENT_CQ_ERR).cq, one->cq);
	ck_assert_str_ne(verbs_logged("overran"), "");
	/* Completions that fitted can be polled. */
	n = frl_poll_cq(one->cq, 8, wc);
	ck_assert_int_le(n, 4);
	verbs_refused(n < 0 ? n : frl_poll_cq(one->cq, 8, wc), -EOVERFLOW, "poll more often");
	ck_assert_int_eq(state_of(one->qp), FRL_QPS_ERR);
	expect_error(one->qp, "overran");
}
END_TEST

/* Nobody answers. */
START_LOOP_TEST(retries, 2)
{
	const struct verbs_wants wants = { .is_plain = _i };
	struct frl_sge from;
	struct frl_wc wc;

	verbs_setup(&wants);
	from = verbs_sge(one, 0, 8);
	fake_verbs_cut("one", "two", true);
	verbs_send(one, FRL_WR_RDMA_WRITE, &from, (uintptr_t)two->memory, frl_mr_rkey(two->mr));
	verbs_send(one, FRL_WR_RDMA_WRITE, &from, (uintptr_t)two->memory, frl_mr_rkey(two->mr));
	verbs_recv(one, 5, 0, 8);
	wc = verbs_expect(one, FRL_WC_RETRY_EXC_ERR);
	ck_assert_uint_eq(wc.wr_id, 7);
	ck_assert_uint_eq(wc.byte_len, 0);
	verbs_expect(one, FRL_WC_WR_FLUSH_ERR);
	verbs_expect(one, FRL_WC_WR_FLUSH_ERR);
	ck_assert_int_eq(state_of(one->qp), FRL_QPS_ERR);
	expect_error(one->qp, "retries exhausted");
	/* Requests are taken and flushed. */
	ck_assert_int_eq(verbs_send(one, FRL_WR_SEND, &from, 0, 0), 1);
	verbs_expect(one, FRL_WC_WR_FLUSH_ERR);
}
END_TEST

/* An unreadable completion is lost: nobody waits for it. */
START_LOOP_TEST(unreadable, 3)
{
	static const char *const calls[] = { "ibv_next_poll", "ibv_start_poll", "ibv_poll_cq" };
	const struct verbs_wants wants = { .is_plain = _i == 2 };
	struct frl_sge from;
	struct frl_wc wc[4];
	int n;

	verbs_setup(&wants);
	from = verbs_sge(one, 0, 8);
	for (int i = 0; i < 2; i++)
		verbs_send(one, FRL_WR_RDMA_WRITE, &from, (uintptr_t)two->memory,
			frl_mr_rkey(two->mr));
	fake_verbs_fail(calls[_i], 1, EINVAL);
	do
		n = frl_poll_cq(one->cq, 4, wc);
	while (n > 0);
	verbs_refused(n, -EIO, "is lost");
}
END_TEST

static void *pull_soon(void *arg)
{
	usleep(10000);
	fake_verbs_raise("one", IBV_EVENT_PORT_ERR, 1);
	return NULL;
}

/* rxe blames its own queue pair for a failure of the link: a link that is up, that was down, and
 * that is reported down a moment later. */
START_LOOP_TEST(rxe_without_link, 3)
{
	const struct frl_send_wr bad = {
		.opcode = FRL_WR_LOCAL_INV, .flags = FRL_SEND_SIGNALED, .invalidate_rkey = 0x777
	};
	const struct verbs_wants wants = { .is_rxe = true };
	pthread_t thread;

	verbs_setup(&wants);
	if (_i == 1) {
		fake_verbs_raise("one", IBV_EVENT_PORT_ERR, 1);
		fake_verbs_raise("one", IBV_EVENT_PORT_ACTIVE, 1);
		wait_for_log("link is up");
	}
	if (_i == 2)
		ck_assert_int_eq(pthread_create(&thread, NULL, pull_soon, NULL), 0);
	/* The time in which it may still be reported is over, unless it is reported. */
	limits_expire(_i == 0 ? SOON_MS : 0);
	ck_assert_int_eq(frl_post_send(one->qp, &bad, 1, NULL), 1);
	verbs_expect(one, _i ? FRL_WC_RETRY_EXC_ERR : FRL_WC_LOC_QP_OP_ERR);
	limits_expire(0);
	ck_assert_int_eq(*verbs_logged("reported as retries") != 0, _i > 0);
	if (_i == 2)
		pthread_join(thread, NULL);
}
END_TEST

START_TEST(access_error)
{
	struct frl_sge from;
	struct frl_qp_attr reset = { .state = FRL_QPS_RESET };

	verbs_setup(&defaults);
	from = verbs_sge(one, 0, 8);
	verbs_send(one, FRL_WR_RDMA_WRITE, &from, (uintptr_t)two->memory, 0x777);
	verbs_expect(one, FRL_WC_REM_ACCESS_ERR);
	expect_error(one->qp, "remote access error");
	/* Reset clears it, and it can be used again. */
	for (int i = 0; i < 2; i++)
		verbs_ok(frl_qp_modify(ends[i].qp, &reset, FRL_QP_STATE));
	expect_error(one->qp, "");
	for (int i = 0; i < 2; i++)
		verbs_ok(verbs_connect(&ends[i], &ends[1 - i], &defaults));
	verbs_send(one, FRL_WR_RDMA_WRITE, &from, (uintptr_t)two->memory, frl_mr_rkey(two->mr));
	verbs_expect(one, FRL_WC_SUCCESS);
}
END_TEST

/* UC continues to receive when its send queue has failed. */
START_TEST(send_queue_error)
{
	const struct verbs_wants wants = { .type = FRL_QPT_UC };
	struct frl_sge bad;
	struct frl_qp_attr attr = { .state = FRL_QPS_RTS };

	verbs_setup(&wants);
	bad = verbs_sge(one, 0, 8);
	bad.lkey ^= 0x5500;
	verbs_send(one, FRL_WR_SEND, &bad, 0, 0);
	verbs_expect(one, FRL_WC_LOC_PROT_ERR);
	/* Known before anybody asks. */
	attr.state = FRL_QPS_SQD;
	verbs_refused(frl_qp_modify(one->qp, &attr, FRL_QP_STATE), -EINVAL, "SQE to SQD");
	ck_assert_int_eq(state_of(one->qp), FRL_QPS_SQE);
	attr.state = FRL_QPS_RTS;
	verbs_ok(frl_qp_modify(one->qp, &attr, FRL_QP_STATE));
	ck_assert_int_eq(state_of(one->qp), FRL_QPS_RTS);
}
END_TEST

/* FRL_ settings are the defaults of every connection. */
START_TEST(connection_defaults)
{
	struct frl_connect_config config;

	verbs_setup(&defaults);
	frl_connect_config_init(one->device, &config);
	ck_assert_uint_eq(config.traffic_class, 104);
	ck_assert_uint_eq(config.timeout, 20);
}
END_TEST

TEST_MAIN(verbs_events)
{
	/* Settings are read once. */
	setenv("FRL_TRAFFIC_CLASS", "104", 1);
	setenv("FRL_ACK_TIMEOUT", "20", 1);
	return run_suite_unforked(all_tests(NULL, verbs_teardown));
}
