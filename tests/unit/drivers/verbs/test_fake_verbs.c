/* SPDX-License-Identifier: BSD-3-Clause */
/* The refusals of the libibverbs in memory, which a device may make and Ferrule does not cause:
 * other tests do not see them. Other tests show its correct use. */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/drivers/verbs/fake_verbs_fixture.h"
#include "tests/fixtures/program.h"

static struct fixture fixture;
static struct fixture_end *const a = &fixture.ends[0], *const b = &fixture.ends[1];
static const struct fixture_wants connected = { .is_connected = true };

static void setup(void)
{
	fixture_plug(&fixture, 0xffff, IBV_MTU_4096);
}

static void teardown(void)
{
	fixture_close(&fixture);
	fake_verbs_reset();
}

static uint64_t at(const struct fixture_end *end, uint32_t offset)
{
	return (uintptr_t)end->bytes + offset;
}

/* ---- ends that do not fit */

static const struct {
	const char *name;
	uint16_t pkey;
	struct fixture_wants wants;
	enum ibv_wr_opcode opcode;
	uint32_t length;
	enum ibv_wc_status status;
} ends[] = {
	{ "one packet", 0xffff, { .mtu = IBV_MTU_512 }, IBV_WR_RDMA_WRITE, 512, IBV_WC_SUCCESS },
	{ "two", 0xffff, { .mtu = IBV_MTU_512 }, IBV_WR_RDMA_WRITE, 513, IBV_WC_REM_INV_REQ_ERR },
	{ "reads", 0xffff, { .max_rd_atomic = 5 }, IBV_WR_RDMA_READ, 8, IBV_WC_REM_INV_REQ_ERR },
	{ "no reads", 0xffff, { .max_rd_atomic = 255 }, IBV_WR_RDMA_READ, 8, IBV_WC_LOC_QP_OP_ERR },
	{ "limited member", 0x7fff, { 0 }, IBV_WR_RDMA_WRITE, 8, IBV_WC_SUCCESS },
	{ "PSNs", 0xffff, { .psn_gap = 1 }, IBV_WR_RDMA_WRITE, 8, IBV_WC_RETRY_EXC_ERR },
	{ "partition", 0x8001, { 0 }, IBV_WR_RDMA_WRITE, 8, IBV_WC_RETRY_EXC_ERR },
};

START_LOOP_TEST(ends_that_do_not_fit, ROWS(ends))
{
	struct ibv_sge sge;
	struct ibv_wc wc;

	fixture_plug(&fixture, ends[_i].pkey, IBV_MTU_4096);
	fixture_open(&fixture, &ends[_i].wants);
	fixture_connect(&fixture, &ends[_i].wants);
	sge = fixture_sge(a, 0, ends[_i].length);
	ck_assert_int_eq(
		fixture_post(a, ends[_i].opcode, IBV_SEND_SIGNALED, &sge, at(b, 0), b->mr->rkey),
		0);
	wc = fixture_expect(a, ends[_i].status);
	/* Invalid fields have wrong values. */
	if (ends[_i].status != IBV_WC_SUCCESS)
		ck_assert_int_eq(wc.opcode, IBV_WC_RECV);
}
END_TEST

START_TEST(mtu_of_the_port)
{
	struct fixture_wants wants = { .mtu = IBV_MTU_1024 };

	fixture_plug(&fixture, 0xffff, IBV_MTU_512);
	fixture_open(&fixture, &wants);
	ck_assert_int_eq(fixture_move(b, a, &wants, 0, 0), EINVAL);
	wants.mtu = IBV_MTU_512;
	ck_assert_int_eq(ibv_modify_qp(b->qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET },
				 IBV_QP_STATE),
		0);
	ck_assert_int_eq(fixture_move(b, a, &wants, 0, 0), 0);
}
END_TEST

/* The responder was connected to another QP, or has been reset since. */
START_LOOP_TEST(unconnected_responder_times_out, 2)
{
	struct fixture_wants wants = { 0 };
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	union ibv_gid own;
	struct ibv_sge sge;

	fixture_open(&fixture, &wants);
	ck_assert_int_eq(fixture_move(a, b, &wants, 0, 0), 0);
	own = a->gid;
	if (_i == 0)
		a->gid = b->gid;
	ck_assert_int_eq(fixture_move(b, a, &wants, 0, 0), 0);
	a->gid = own;
	if (_i == 1)
		ck_assert_int_eq(ibv_modify_qp(b->qp, &reset, IBV_QP_STATE), 0);
	sge = fixture_sge(a, 0, 8);
	ck_assert_int_eq(fixture_post(a, IBV_WR_RDMA_WRITE, 0, &sge, at(b, 0), b->mr->rkey), 0);
	fixture_expect(a, IBV_WC_RETRY_EXC_ERR);
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
}
END_TEST

/* ---- rights, keys and lengths */

static const struct {
	const char *name;
	enum ibv_wr_opcode opcode;
	uint32_t length;
	int addr_off;
	bool is_lkey;
	unsigned taken_away; /* of the QP's rights */
	enum ibv_wc_status status;
	int event; /* at the peer; -1: none */
} refused[] = {
	{ "rkey", IBV_WR_RDMA_WRITE, 8, 0, true, 0, IBV_WC_REM_ACCESS_ERR,
		IBV_EVENT_QP_ACCESS_ERR },
	{ "below", IBV_WR_RDMA_WRITE, 8, -1, false, 0, IBV_WC_REM_ACCESS_ERR,
		IBV_EVENT_QP_ACCESS_ERR },
	{ "beyond", IBV_WR_RDMA_READ, 8, FIXTURE_BYTES - 7, false, 0, IBV_WC_REM_ACCESS_ERR,
		IBV_EVENT_QP_ACCESS_ERR },
	{ "crooked", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 4, false, 0, IBV_WC_REM_INV_REQ_ERR,
		IBV_EVENT_QP_REQ_ERR },
	{ "short atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 0, false, 0, IBV_WC_LOC_LEN_ERR, -1 },
	{ "no writes", IBV_WR_RDMA_WRITE, 8, 0, false, IBV_ACCESS_REMOTE_WRITE,
		IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR },
	{ "no reads", IBV_WR_RDMA_READ, 8, 0, false, IBV_ACCESS_REMOTE_READ, IBV_WC_REM_INV_REQ_ERR,
		IBV_EVENT_QP_REQ_ERR },
	{ "no atomics", IBV_WR_ATOMIC_CMP_AND_SWP, 8, 0, false, IBV_ACCESS_REMOTE_ATOMIC,
		IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR },
};

START_LOOP_TEST(access_errors, ROWS(refused))
{
	struct fixture_wants wants = { .is_connected = true, .access = refused[_i].taken_away };
	struct ibv_sge sge;
	uint64_t addr;

	fixture_open(&fixture, &wants);
	sge = fixture_sge(a, 0, refused[_i].length);
	addr = at(b, 0) + (uint64_t)(int64_t)refused[_i].addr_off;
	fixture_post_recv(a, 11, 0, 8);
	fixture_post_recv(b, 22, 0, 8);
	ck_assert_int_eq(fixture_post(a, refused[_i].opcode, 0, &sge, addr,
				 refused[_i].is_lkey ? b->mr->lkey : b->mr->rkey),
		0);
	ck_assert_uint_eq(fixture_expect(a, refused[_i].status).wr_id, refused[_i].opcode + 1000);
	ck_assert_uint_eq(fixture_expect(a, IBV_WC_WR_FLUSH_ERR).wr_id, 11);
	ck_assert_int_eq(a->qp->state, IBV_QPS_ERR);
	if (refused[_i].event >= 0) {
		fixture_event(b, (enum ibv_event_type)refused[_i].event);
		ck_assert_uint_eq(fixture_expect(b, IBV_WC_WR_FLUSH_ERR).wr_id, 22);
	} else {
		fixture_expect_none(b);
	}
	/* A QP that has failed takes sends, and flushes them. */
	ck_assert_int_eq(fixture_post(a, IBV_WR_SEND, 0, &sge, 0, 0), 0);
	fixture_expect(a, IBV_WC_WR_FLUSH_ERR);
}
END_TEST

static const struct {
	uint32_t room;
	bool is_foreign; /* the receive's key */
	enum ibv_wc_status send, recv;
} receives[] = {
	{ 7, false, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR },
	{ 8, true, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR },
};

START_LOOP_TEST(receive_errors, ROWS(receives))
{
	struct ibv_sge sge, into;
	struct ibv_recv_wr wr = { .wr_id = 4, .sg_list = &into, .num_sge = 1 }, *bad;

	fixture_open(&fixture, &connected);
	sge = fixture_sge(a, 0, 8);
	into = fixture_sge(b, 0, receives[_i].room);
	into.lkey ^= receives[_i].is_foreign ? 0x100000 : 0;
	ck_assert_int_eq(ibv_post_recv(b->qp, &wr, &bad), 0);
	ck_assert_int_eq(fixture_post(a, IBV_WR_SEND, 0, &sge, 0, 0), 0);
	fixture_expect(a, receives[_i].send);
	ck_assert_uint_eq(fixture_expect(b, receives[_i].recv).wr_id, 4);
}
END_TEST

START_LOOP_TEST(region_of_another_domain, 2)
{
	struct ibv_sge sge;
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	fixture_open(&fixture, &connected);
	pd = ibv_alloc_pd(_i ? b->context : a->context);
	mr = ibv_reg_mr(
		pd, _i ? b->bytes : a->bytes, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	sge = fixture_sge(a, 0, 8);
	sge.lkey = _i ? sge.lkey : mr->lkey;
	ck_assert_int_eq(
		fixture_post(a, IBV_WR_RDMA_WRITE, 0, &sge, at(b, 0), _i ? mr->rkey : b->mr->rkey),
		0);
	fixture_expect(a, _i ? IBV_WC_REM_ACCESS_ERR : IBV_WC_LOC_PROT_ERR);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
}
END_TEST

/* Nothing to invalidate: the receive ends, and nobody answers any more. */
START_TEST(invalid_key)
{
	struct ibv_sge sge;

	fixture_open(&fixture, &connected);
	fixture_post_recv(b, 5, 0, 8);
	sge = fixture_sge(a, 0, 8);
	ck_assert_int_eq(fixture_post(a, IBV_WR_SEND_WITH_INV, 0, &sge, 0, 0), 0);
	ck_assert_uint_eq(fixture_expect(b, IBV_WC_REM_INV_REQ_ERR).wr_id, 5);
	fixture_expect(a, IBV_WC_RETRY_EXC_ERR);
}
END_TEST

/* The window ends before the region, which cannot be deregistered while it is bound. */
START_TEST(window)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	struct ibv_sge sge;

	fixture_open(&fixture, &connected);
	wr.bind_mw.mw = ibv_alloc_mw(b->pd, IBV_MW_TYPE_2);
	wr.bind_mw.rkey = ibv_inc_rkey(wr.bind_mw.mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ b->mr, at(b, 64), 64,
		IBV_ACCESS_REMOTE_WRITE };
	ck_assert_int_eq(ibv_post_send(b->qp, &wr, &bad), 0);
	fixture_expect(b, IBV_WC_SUCCESS);
	ck_assert_int_eq(ibv_dereg_mr(b->mr), EBUSY);
	sge = fixture_sge(a, 0, 8);
	ck_assert_int_eq(
		fixture_post(a, IBV_WR_RDMA_WRITE, 0, &sge, at(b, 121), wr.bind_mw.rkey), 0);
	fixture_expect(a, IBV_WC_REM_ACCESS_ERR);
	ck_assert_int_eq(ibv_dealloc_mw(wr.bind_mw.mw), 0);
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
	fake_verbs_reset();
	close(fd);
}
END_TEST

/* ---- queues and states */

/* Places are free once the completion has been polled. */
START_TEST(queue_slots_free_on_poll)
{
	struct ibv_recv_wr wr = { 0 }, *bad;
	struct ibv_sge sge;

	fixture_open(&fixture, &connected);
	sge = fixture_sge(a, 0, 0);
	for (int i = 0; i < 16; i++) {
		ck_assert_int_eq(ibv_post_recv(b->qp, &wr, &bad), 0);
		ck_assert_int_eq(
			fixture_post(a, IBV_WR_SEND, i ? 0 : IBV_SEND_SIGNALED, &sge, 0, 0), 0);
	}
	ck_assert_int_eq(ibv_post_recv(b->qp, &wr, &bad), ENOMEM);
	ck_assert_ptr_eq(bad, &wr);
	fixture_expect(b, IBV_WC_SUCCESS);
	ck_assert_int_eq(ibv_post_recv(b->qp, &wr, &bad), 0);
	ck_assert_int_eq(ibv_post_recv(b->qp, &wr, &bad), ENOMEM);
	fixture_expect(a, IBV_WC_SUCCESS);
	ck_assert_int_eq(fixture_post(a, IBV_WR_SEND, 0, &sge, 0, 0), 0);
	ck_assert_int_eq(fixture_post(a, IBV_WR_SEND, 0, &sge, 0, 0), ENOMEM);
}
END_TEST

/* rnr_retry 7 waits for ever, not seven times. */
/* --- Waits */

START_LOOP_TEST(receiver_not_ready, 2)
{
	struct fixture_wants wants = { .is_connected = true, .rnr_retry = _i ? 7 : 2 };
	struct timespec longer = { 0, 5000000 };
	struct ibv_sge sge;

	fixture_open(&fixture, &wants);
	sge = fixture_sge(a, 0, 8);
	ck_assert_int_eq(fixture_post(a, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0), 0);
	if (_i) {
		nanosleep(&longer, NULL);
		fixture_expect_none(a);
		fixture_post_recv(b, 1, 0, 8);
		fixture_expect(a, IBV_WC_SUCCESS);
		fixture_expect(b, IBV_WC_SUCCESS);
	} else {
		fixture_expect(a, IBV_WC_RNR_RETRY_EXC_ERR);
	}
}
END_TEST

/* An interruption shorter than the retries goes unnoticed. */
START_TEST(late_answer)
{
	struct fixture_wants wants = { .is_connected = true, .timeout = 20, .retry_cnt = 7 };
	struct ibv_sge sge;

	fixture_open(&fixture, &wants);
	sge = fixture_sge(a, 0, 8);
	fake_verbs_cut("fake0", "fake1", true);
	ck_assert_int_eq(
		fixture_post(a, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, at(b, 0), b->mr->rkey),
		0);
	fixture_expect_none(a);
	fake_verbs_cut("fake0", "fake1", false);
	fixture_expect(a, IBV_WC_SUCCESS);
}
END_TEST

static const struct {
	uint32_t room; /* of the receive, which has the GRH in front; 0: none */
	uint32_t qkey;
} lost[] = { { 0, FIXTURE_QKEY }, { 139, FIXTURE_QKEY }, { 140, FIXTURE_QKEY + 1 } };

START_LOOP_TEST(lost_datagram, ROWS(lost))
{
	const struct fixture_wants wants = { .is_connected = true, .type = IBV_QPT_UD };
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1 };
	struct ibv_send_wr wr = { .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_sge sge;

	fixture_open(&fixture, &wants);
	sge = fixture_sge(a, 0, 100);
	to.grh.dgid = b->gid;
	to.grh.sgid_index = (uint8_t)a->sgid_index;
	wr.sg_list = &sge;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.ud.ah = ibv_create_ah(a->pd, &to);
	wr.wr.ud.remote_qpn = b->qp->qp_num;
	wr.wr.ud.remote_qkey = lost[_i].qkey;
	if (lost[_i].room)
		fixture_post_recv(b, 1, 0, lost[_i].room);
	ck_assert_int_eq(ibv_post_send(a->qp, &wr, &bad), 0);
	fixture_expect(a, IBV_WC_SUCCESS);
	fixture_expect_none(b);
	ck_assert_int_eq(ibv_destroy_ah(wr.wr.ud.ah), 0);
}
END_TEST

/* An existing completion raises no event. */
START_TEST(late_request_for_an_event)
{
	struct pollfd waits = { .events = POLLIN };
	struct ibv_sge sge;

	fixture_open(&fixture, &connected);
	waits.fd = b->channel->fd;
	sge = fixture_sge(a, 0, 1);
	for (uint64_t i = 0; i < 2; i++) {
		fixture_post_recv(b, i, 0, 1);
		ck_assert_int_eq(fixture_post(a, IBV_WR_SEND, 0, &sge, 0, 0), 0);
		ck_assert_int_eq(poll(&waits, 1, 0), (int)i);
		ck_assert_int_eq(ibv_req_notify_cq(b->cq, 0), 0);
		ck_assert_int_eq(poll(&waits, 1, 0), (int)i);
	}
}
END_TEST

/* It reports that once nothing is taken from it any more; its receives are not flushed. */
START_TEST(shared_receives)
{
	struct fixture_wants wants = { .is_connected = true, .has_srq = true };
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };

	fixture_open(&fixture, &wants);
	fixture_post_recv(b, 9, 0, 8);
	ck_assert_int_eq(ibv_modify_qp(b->qp, &error, IBV_QP_STATE), 0);
	ck_assert_ptr_eq(fixture_event(b, IBV_EVENT_QP_LAST_WQE_REACHED).element.qp, b->qp);
	fixture_expect_none(b);
}
END_TEST

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

START_LOOP_TEST(invalid_modify_is_refused, ROWS(moves))
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
}
END_TEST

TEST_MAIN(fake_verbs)
{
	return run_suite(all_tests(setup, teardown));
}
