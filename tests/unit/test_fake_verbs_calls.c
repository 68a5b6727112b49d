/* SPDX-License-Identifier: BSD-3-Clause */
/* The libibverbs in memory: events, states, memory, capabilities, and calls that fail. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/fake_verbs_fixture.h"
#include "tests/unit/program.h"

static struct fixture fixture;
static struct fixture_end *const a = &fixture.ends[0], *const b = &fixture.ends[1];
static const struct fixture_wants connected = { .is_connected = true };

static void setup(void)
{
	fixture_plug(&fixture, 0xffff, IBV_MTU_4096);
}

static void send_byte(unsigned flags)
{
	struct ibv_sge sge = fixture_sge(a, 0, 1);

	ck_assert_int_eq(fixture_post(a, IBV_WR_SEND, flags, &sge, 0, 0), 0);
}

/* --- Completion events */

static bool is_readable(int fd, int ms)
{
	struct pollfd waits = { .fd = fd, .events = POLLIN };

	return poll(&waits, 1, ms) == 1;
}

START_TEST(completion_events)
{
	struct ibv_cq *cq;
	void *context;

	fixture_open(&fixture, &connected);
	ck_assert_int_eq(fcntl(b->channel->fd, F_SETFL, O_NONBLOCK), 0);
	for (uint64_t i = 0; i < 4; i++)
		fixture_post_recv(b, i, 0, 1);
	/* Nobody asked. */
	send_byte(0);
	ck_assert(!is_readable(b->channel->fd, 0));
	ck_assert_int_eq(ibv_get_cq_event(b->channel, &cq, &context), -1);
	ck_assert_int_eq(errno, EAGAIN);
	/* A completion that is there already is no event. */
	ck_assert_int_eq(ibv_req_notify_cq(b->cq, 1), 0);
	ck_assert(!is_readable(b->channel->fd, 0));
	send_byte(0);
	ck_assert(!is_readable(b->channel->fd, 0));
	send_byte(IBV_SEND_SOLICITED);
	ck_assert(is_readable(b->channel->fd, 0));
	ck_assert_int_eq(ibv_get_cq_event(b->channel, &cq, &context), 0);
	ck_assert_ptr_eq(cq, b->cq);
	ck_assert(!is_readable(b->channel->fd, 0));
	ibv_ack_cq_events(cq, 1);
	/* One request, one event. */
	send_byte(IBV_SEND_SOLICITED);
	ck_assert(!is_readable(b->channel->fd, 0));
	fixture_close(&fixture);
}
END_TEST

enum { ROUNDS = 2000 };

/* Answers each message; sleeps until one is there. */
static void *answer(void *unused)
{
	struct ibv_sge sge = fixture_sge(b, 64, 8);
	struct ibv_cq *cq;
	void *context;
	struct ibv_wc wc;

	for (int got = 0; got < ROUNDS;) {
		ck_assert_int_eq(ibv_req_notify_cq(b->cq, 0), 0);
		if (ibv_poll_cq(b->cq, 1, &wc) == 0) {
			ck_assert_int_eq(ibv_get_cq_event(b->channel, &cq, &context), 0);
			ibv_ack_cq_events(cq, 1);
			continue;
		}
		ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
		if (wc.opcode != IBV_WC_RECV)
			continue;
		got++;
		memcpy(b->bytes + 64, b->bytes, 8);
		fixture_post_recv(b, 0, 0, 8);
		ck_assert_int_eq(fixture_post(b, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0), 0);
	}
	return NULL;
}

START_TEST(threads)
{
	struct ibv_sge sge;
	struct ibv_wc wc;
	pthread_t thread;

	fixture_open(&fixture, &connected);
	sge = fixture_sge(a, 0, 8);
	fixture_post_recv(b, 0, 0, 8);
	fixture_post_recv(a, 0, 64, 8);
	ck_assert_int_eq(pthread_create(&thread, NULL, answer, NULL), 0);
	for (int i = 0; i < ROUNDS; i++) {
		a->bytes[0] = (uint8_t)i;
		ck_assert_int_eq(fixture_post(a, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0), 0);
		for (int n = 0; n < 2; n++) {
			wc = fixture_expect(a, IBV_WC_SUCCESS);
			if (wc.opcode == IBV_WC_RECV)
				fixture_post_recv(a, 0, 64, 8);
		}
		ck_assert_uint_eq(a->bytes[64], (uint8_t)i);
	}
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	fixture_close(&fixture);
}
END_TEST

/* --- Asynchronous events */

START_TEST(shared_receives)
{
	struct fixture_wants wants = { .is_connected = true, .has_srq = true };
	struct ibv_srq_attr limit = { .srq_limit = 2 };
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };

	fixture_open(&fixture, &wants);
	ck_assert_int_eq(ibv_modify_srq(b->srq, &limit, IBV_SRQ_LIMIT), 0);
	for (uint64_t i = 0; i < 3; i++)
		fixture_post_recv(b, i, 0, 8);
	send_byte(0);
	ck_assert(!is_readable(b->context->async_fd, 0));
	send_byte(0);
	ck_assert_ptr_eq(fixture_event(b, IBV_EVENT_SRQ_LIMIT_REACHED).element.srq, b->srq);
	/* Once armed, once told. */
	send_byte(0);
	ck_assert(!is_readable(b->context->async_fd, 0));
	for (uint64_t i = 0; i < 3; i++)
		ck_assert_uint_eq(fixture_expect(b, IBV_WC_SUCCESS).wr_id, i);
	fixture_post_recv(b, 9, 0, 8);
	ck_assert_int_eq(ibv_modify_qp(b->qp, &error, IBV_QP_STATE), 0);
	ck_assert_ptr_eq(fixture_event(b, IBV_EVENT_QP_LAST_WQE_REACHED).element.qp, b->qp);
	/* Receives of an SRQ are not flushed. */
	fixture_expect_none(b);
	fixture_close(&fixture);
}
END_TEST

START_TEST(overrun)
{
	struct fixture_wants wants = { .is_connected = true, .cqe = 2 };

	fixture_open(&fixture, &wants);
	for (uint64_t i = 0; i < 4; i++)
		fixture_post_recv(b, i, 0, 8);
	for (int i = 0; i < 4; i++)
		send_byte(0);
	ck_assert_ptr_eq(fixture_event(b, IBV_EVENT_CQ_ERR).element.cq, b->cq);
	ck_assert(!is_readable(b->context->async_fd, 0));
	fixture_expect(b, IBV_WC_SUCCESS);
	fixture_expect(b, IBV_WC_SUCCESS);
	fixture_expect_none(b);
	fixture_close(&fixture);
}
END_TEST

START_TEST(drained)
{
	struct fixture_wants wants = { .is_connected = true, .rnr_retry = 7 };
	struct ibv_qp_attr sqd = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct ibv_qp_attr is;
	struct ibv_qp_init_attr init;

	fixture_open(&fixture, &wants);
	send_byte(IBV_SEND_SIGNALED);
	send_byte(IBV_SEND_SIGNALED);
	ck_assert_int_eq(ibv_modify_qp(a->qp, &sqd, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	ck_assert_int_eq(ibv_query_qp(a->qp, &is, IBV_QP_STATE, &init), 0);
	ck_assert_int_eq(is.qp_state, IBV_QPS_SQD);
	ck_assert(is.sq_draining);
	ck_assert(!is_readable(a->context->async_fd, 0));
	for (uint64_t i = 0; i < 2; i++)
		fixture_post_recv(b, i, 0, 1);
	ck_assert_ptr_eq(fixture_event(a, IBV_EVENT_SQ_DRAINED).element.qp, a->qp);
	fixture_expect(a, IBV_WC_SUCCESS);
	/* The other one had not begun. */
	fixture_expect_none(a);
	sqd.qp_state = IBV_QPS_RTS;
	ck_assert_int_eq(ibv_modify_qp(a->qp, &sqd, IBV_QP_STATE), 0);
	fixture_expect(a, IBV_WC_SUCCESS);
	fixture_close(&fixture);
}
END_TEST

START_TEST(port_events)
{
	struct fake_verbs_gid gid;
	struct ibv_async_event event;
	struct ibv_port_attr port;

	fixture_open(&fixture, &connected);
	ck_assert_int_eq(fcntl(a->context->async_fd, F_SETFL, O_NONBLOCK), 0);
	ck_assert_int_eq(ibv_get_async_event(a->context, &event), -1);
	ck_assert_int_eq(errno, EAGAIN);
	fake_verbs_raise("fake0", IBV_EVENT_PORT_ERR, 1);
	ck_assert_int_eq(fixture_event(a, IBV_EVENT_PORT_ERR).element.port_num, 1);
	ck_assert_int_eq(ibv_query_port(a->context, 1, &port), 0);
	ck_assert_int_eq(port.state, IBV_PORT_DOWN);
	fake_verbs_raise("fake0", IBV_EVENT_PORT_ACTIVE, 1);
	fixture_event(a, IBV_EVENT_PORT_ACTIVE);
	fake_verbs_gid_set(&gid, "10.9.9.9", IBV_GID_TYPE_ROCE_V2);
	fake_verbs_change_gid("fake0", 1, 3, &gid);
	fixture_event(a, IBV_EVENT_GID_CHANGE);
	fake_verbs_raise_qp("fake0", a->qp->qp_num, IBV_EVENT_QP_FATAL);
	ck_assert_ptr_eq(fixture_event(a, IBV_EVENT_QP_FATAL).element.qp, a->qp);
	ck_assert_int_eq(a->qp->state, IBV_QPS_ERR);
	fixture_close(&fixture);
}
END_TEST

/* --- States */

static const struct {
	enum ibv_qp_type type;
	enum ibv_qp_state state;
	int mask;
	struct ibv_qp_attr attr;
	int err;
} moves[] = {
	{ IBV_QPT_RC, IBV_QPS_RTR, 0, { 0 }, EINVAL },
	{ IBV_QPT_RC, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT, { .port_num = 1 }, EINVAL },
	{ IBV_QPT_RC, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		{ .port_num = 1 }, 0 },
	{ IBV_QPT_RC, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		{ .port_num = 2 }, EINVAL },
	{ IBV_QPT_RC, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		{ .port_num = 1, .pkey_index = 1 }, EINVAL },
	{ IBV_QPT_UD, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		{ .port_num = 1 }, EINVAL },
	{ IBV_QPT_UD, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
		{ .port_num = 1 }, 0 },
	{ IBV_QPT_UD, IBV_QPS_ERR, 0, { 0 }, 0 },
};

START_LOOP_TEST(states, ROWS(moves))
{
	struct fixture_wants wants = { .type = moves[_i].type };
	struct ibv_recv_wr wr = { 0 }, *bad;
	struct ibv_qp_attr attr = moves[_i].attr;
	struct ibv_sge sge;

	fixture_open(&fixture, &wants);
	sge = fixture_sge(a, 0, 1);
	ck_assert_int_eq(ibv_post_recv(a->qp, &wr, &bad), EINVAL);
	attr.qp_state = moves[_i].state;
	ck_assert_int_eq(ibv_modify_qp(a->qp, &attr, moves[_i].mask | IBV_QP_STATE), moves[_i].err);
	ck_assert_int_eq(a->qp->state, moves[_i].err == 0 ? moves[_i].state : IBV_QPS_RESET);
	if (a->qp->state != IBV_QPS_ERR)
		ck_assert_int_eq(fixture_post(a, IBV_WR_SEND, 0, &sge, 0, 0), EINVAL);
	fixture_close(&fixture);
}
END_TEST

static const struct {
	const char *to;
	int err;
} paths[] = { { "10.0.0.2", 0 }, { "10.0.0.3", ETIMEDOUT }, { "2001:db8::1", ENETUNREACH } };

START_LOOP_TEST(unknown_addresses, ROWS(paths))
{
	struct fixture_wants wants = { 0 };
	struct fake_verbs_gid gid;

	fixture_open(&fixture, &wants);
	fake_verbs_gid_set(&gid, paths[_i].to, 0);
	b->gid = gid.gid;
	ck_assert_int_eq(fixture_move(a, b, &wants, 0, 0), paths[_i].err);
	fixture_close(&fixture);
}
END_TEST

/* --- Memory */

START_TEST(registration)
{
	long page = sysconf(_SC_PAGESIZE);
	uint8_t *pages = mmap(
		NULL, (size_t)page * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct fake_verbs_device device;
	struct ibv_device **list;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	int fd = memfd_create("buffer", MFD_CLOEXEC);

	ck_assert(pages != MAP_FAILED && fd >= 0 && ftruncate(fd, 2 * page) == 0);
	fake_verbs_reset();
	fake_verbs_device_init(&device, "fake0", "10.0.0.1");
	device.memlock = (uint64_t)page;
	fake_verbs_add(&device);
	list = ibv_get_device_list(NULL);
	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	ck_assert_ptr_null(ibv_reg_mr(pd, pages, (size_t)page + 1, 0));
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_ptr_null(ibv_reg_mr(pd, pages, 8, IBV_ACCESS_REMOTE_WRITE));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_null(ibv_reg_mr(pd, pages, 8, IBV_ACCESS_ON_DEMAND));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	mr = ibv_reg_mr(pd, pages, 8, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	ck_assert_ptr_nonnull(mr);
	ck_assert_uint_ne(mr->lkey, mr->rkey);
	ck_assert_uint_eq(fake_verbs_mr_access("fake0", mr->lkey),
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	ck_assert_int_eq(ibv_dealloc_pd(pd), EBUSY);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	ck_assert_int_eq(munmap(pages, (size_t)page * 2), 0);
	ck_assert_ptr_null(ibv_reg_mr(pd, pages, 8, 0));
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_ptr_null(ibv_reg_dmabuf_mr(pd, 0, 8, 0, -1, 0));
	ck_assert_int_eq(errno, EBADF);
	mr = ibv_reg_dmabuf_mr(pd, (uint64_t)page - 8, 16, 0x1000, fd, IBV_ACCESS_LOCAL_WRITE);
	ck_assert_ptr_nonnull(mr);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	/* Objects that are left when the device is closed count. */
	ck_assert_ptr_nonnull(ibv_alloc_pd(context));
	ck_assert_int_eq(ibv_close_device(context), 0);
	ck_assert_str_eq(fake_verbs_leaks(), "1 PD");
	close(fd);
}
END_TEST

/* --- Capabilities */

START_TEST(old_provider)
{
	struct fake_verbs_device device;
	struct ibv_cq_init_attr_ex cq = { .cqe = 4 };
	struct ibv_device_attr_ex attr;
	struct ibv_gid_entry entries[FAKE_VERBS_GIDS];
	struct ibv_device **list;
	struct ibv_context *context;
	struct ibv_port_attr port;

	fake_verbs_reset();
	fake_verbs_device_init(&device, "old0", "10.0.0.1");
	device.has_verbs_context = device.has_gid_table = false;
	fake_verbs_add(&device);
	list = ibv_get_device_list(NULL);
	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	ck_assert_ptr_null(ibv_create_cq_ex(context, &cq));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_int_eq(ibv_query_device_ex(context, NULL, &attr), 0);
	ck_assert_int_eq(attr.orig_attr.max_qp, device.attr.max_qp);
	ck_assert_int_eq(ibv_query_port(context, 1, &port), 0);
	ck_assert_int_eq(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	ck_assert_int_eq(ibv_query_gid_table(context, entries, FAKE_VERBS_GIDS, 0), -EOPNOTSUPP);
	ck_assert_int_eq(ibv_close_device(context), 0);
}
END_TEST

START_TEST(gid_table)
{
	struct ibv_gid_entry entries[FAKE_VERBS_GIDS];

	fixture_open(&fixture, &connected);
	ck_assert_int_eq(ibv_query_gid_table(a->context, entries, FAKE_VERBS_GIDS, 0), 4);
	ck_assert_int_eq(ibv_query_gid_table(a->context, entries, 3, 0), -EINVAL);
	ck_assert_uint_eq(entries[3].gid_type, IBV_GID_TYPE_ROCE_V2);
	ck_assert_mem_eq(entries[3].gid.raw, a->gid.raw, 16);
	ck_assert_int_eq(ibv_query_gid_ex(a->context, 1, 4, entries, 0), ENODATA);
	ck_assert_int_eq(ibv_query_gid_ex(a->context, 2, 0, entries, 0), EINVAL);
	fixture_close(&fixture);
}
END_TEST

/* --- Calls that fail */

/* Makes what it can, and puts away what it made; 0 or the error. */
static int make_and_break(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	struct ibv_comp_channel *channel = pd ? ibv_create_comp_channel(context) : NULL;
	struct ibv_cq *cq = channel ? ibv_create_cq(context, 4, NULL, channel, 0) : NULL;
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1, 0 }, .qp_type = IBV_QPT_UD
	};
	struct ibv_qp *qp = cq ? ibv_create_qp(pd, &attr) : NULL;
	int err = qp ? 0 : errno;

	if (qp)
		ibv_destroy_qp(qp);
	if (cq)
		ibv_destroy_cq(cq);
	if (channel)
		ibv_destroy_comp_channel(channel);
	if (pd)
		ibv_dealloc_pd(pd);
	if (context)
		ibv_close_device(context);
	if (list)
		ibv_free_device_list(list);
	return err;
}

static const char *const made[] = { "ibv_get_device_list", "ibv_open_device", "ibv_alloc_pd",
	"ibv_create_comp_channel", "ibv_create_cq", "ibv_create_qp" };

START_TEST(each_call_fails)
{
	ck_assert_int_eq(make_and_break(), 0);
	/* Six make, five destroy. */
	ck_assert_uint_eq(fake_verbs_calls(NULL), 11);
	ck_assert_uint_eq(fake_verbs_calls("ibv_alloc_pd"), 1);
	for (int i = 0; i < ROWS(made); i++) {
		fake_verbs_fail_nth_made(i + 1, 1000 + i);
		ck_assert_int_eq(make_and_break(), 1000 + i);
		ck_assert_str_eq(fake_verbs_failed(), made[i]);
		ck_assert_str_eq(fake_verbs_leaks(), "");
	}
	fake_verbs_fail("ibv_create_cq", 2, EPERM);
	ck_assert_int_eq(make_and_break(), 0);
	ck_assert_int_eq(make_and_break(), EPERM);
	ck_assert_int_eq(make_and_break(), 0);
	/* The seventh is the first that destroys, and those that it needed stay as well. */
	fake_verbs_fail_nth(7, EIO);
	ck_assert_int_eq(make_and_break(), 0);
	ck_assert_str_eq(fake_verbs_failed(), "ibv_destroy_qp");
	ck_assert_str_eq(fake_verbs_leaks(), "1 PD, 1 completion channel, 1 CQ, 1 QP");
}
END_TEST

TEST_MAIN(fake_verbs_calls)
{
	return run_suite(all_tests(setup, fake_verbs_reset));
}
