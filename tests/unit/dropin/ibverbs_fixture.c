/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/dropin/ibverbs_fixture.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct end a, b;

void ibverbs_ok(int rc, const char *call)
{
	ck_assert_msg(rc == 0, "%s: %d, errno %d", call, rc, errno);
}

/* ---- ends */

struct ibv_context *open_context(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;

	made(list);
	made(list[0]);
	context = ibv_open_device(list[0]);
	made(context);
	ibv_free_device_list(list);
	return context;
}

static uint32_t or_else(uint32_t n, uint32_t otherwise)
{
	return n ? n : otherwise;
}

static enum ibv_qp_type type_of(const struct wants *wants)
{
	return wants->type ? wants->type : IBV_QPT_RC;
}

struct ibv_qp *create_qp(const struct end *end, const struct wants *wants)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_context = (void *)end,
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.srq = end->srq,
		.cap = {
			.max_send_wr = or_else(wants->max_send_wr, DEPTH),
			.max_recv_wr = or_else(wants->max_recv_wr, DEPTH),
			.max_send_sge = or_else(wants->max_sge, 4),
			.max_recv_sge = or_else(wants->max_sge, 4),
			.max_inline_data = wants->max_inline,
		},
		.qp_type = type_of(wants),
		.sq_sig_all = wants->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = end->pd,
	};

	if (wants->ops) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = wants->ops;
	}
	return ibv_create_qp_ex(end->context, &attr);
}

static struct ibv_cq *create_cq(const struct end *end, const struct wants *wants)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = or_else(wants->cqe, 4 * DEPTH),
		.cq_context = (void *)end,
		.channel = end->channel,
		.wc_flags = IBV_WC_STANDARD_FLAGS,
	};

	if (!wants->has_cq_ex)
		return ibv_create_cq(end->context, (int)attr.cqe, attr.cq_context, attr.channel, 0);
	return ibv_cq_ex_to_cq(ibv_create_cq_ex(end->context, &attr));
}

static void open_end(struct end *end, const struct wants *wants)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = DEPTH, .max_sge = 4 } };

	end->pd = ibv_alloc_pd(end->context);
	made(end->pd);
	if (wants->has_channel) {
		end->channel = ibv_create_comp_channel(end->context);
		made(end->channel);
	}
	end->cq = create_cq(end, wants);
	made(end->cq);
	if (wants->has_srq) {
		end->srq = ibv_create_srq(end->pd, &srq);
		made(end->srq);
	}
	end->memory = aligned_alloc(4096, MEMORY);
	memset(end->memory, 0, MEMORY);
	end->mr = ibv_reg_mr(end->pd, end->memory, MEMORY, RIGHTS);
	made(end->mr);
	end->qp = create_qp(end, wants);
	made(end->qp);
}

void open_ends(const struct wants *wants)
{
	a = b = (struct end){ 0 };
	a.context = open_context();
	b.context = wants->one_context ? a.context : open_context();
	b.shares_context = wants->one_context;
	open_end(&a, wants);
	open_end(&b, wants);
}

static uint8_t rnr_retry_of(const struct wants *wants)
{
	return wants->rnr_retry ? wants->rnr_retry : 7;
}

void start_half(const struct wants *wants)
{
	open_ends(wants);
	ok(to_init(a.qp, wants->rights, 0));
	ok(to_init(b.qp, wants->rights, 0));
	ok(to_rtr(a.qp, b.qp, 0));
	ok(to_rtr(b.qp, a.qp, 0));
	ok(to_rts(a.qp, rnr_retry_of(wants), 0));
}

void start(const struct wants *wants)
{
	start_half(wants);
	ok(to_rts(b.qp, rnr_retry_of(wants), 0));
}

void destroy_qp(struct end *end)
{
	ok(ibv_destroy_qp(end->qp));
	end->qp = NULL;
}

static void close_end(struct end *end)
{
	if (end->qp)
		destroy_qp(end);
	if (end->srq)
		ok(ibv_destroy_srq(end->srq));
	if (end->cq)
		ok(ibv_destroy_cq(end->cq));
	if (end->channel)
		ok(ibv_destroy_comp_channel(end->channel));
	ok(ibv_dereg_mr(end->mr));
	ok(ibv_dealloc_pd(end->pd));
	if (!end->shares_context)
		ok(ibv_close_device(end->context));
	free(end->memory);
}

void finish(void)
{
	close_end(&b);
	close_end(&a);
	a = b = (struct end){ 0 };
}

/* ---- states */

int to_init(struct ibv_qp *qp, int rights, int mask)
{
	bool is_ud = qp->qp_type == IBV_QPT_UD;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = QKEY,
		.qp_access_flags = rights ? (unsigned)rights : RIGHTS,
	};

	if (!mask)
		mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			(is_ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	return ibv_modify_qp(qp, &attr, mask);
}

int rtr_mask(enum ibv_qp_type type)
{
	const int connected = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	const int reliable = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

	switch (type) {
	case IBV_QPT_UD: return IBV_QP_STATE;
	case IBV_QPT_UC: return IBV_QP_STATE | connected;
	default: return IBV_QP_STATE | connected | reliable;
	}
}

int rts_mask(enum ibv_qp_type type)
{
	const int reliable = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		IBV_QP_MAX_QP_RD_ATOMIC;

	return IBV_QP_STATE | IBV_QP_SQ_PSN | (type == IBV_QPT_RC ? reliable : 0);
}

struct ibv_ah_attr own_path(struct ibv_context *context)
{
	struct ibv_ah_attr path = { .is_global = 1, .port_num = 1 };

	path.grh.sgid_index = 1;
	path.grh.hop_limit = 64;
	ok(ibv_query_gid(context, 1, 1, &path.grh.dgid));
	return path;
}

int to_rtr(struct ibv_qp *qp, const struct ibv_qp *peer, int mask)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp_num,
		.rq_psn = peer->qp_num & 0xfff,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = own_path(peer->context),
	};

	return ibv_modify_qp(qp, &attr, mask ? mask : rtr_mask(qp->qp_type));
}

int to_rts(struct ibv_qp *qp, uint8_t rnr_retry, int mask)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = qp->qp_num & 0xfff,
		.max_rd_atomic = 4,
		.timeout = LEAST_TIMEOUT,
		.retry_cnt = 7,
		.rnr_retry = rnr_retry,
	};

	return ibv_modify_qp(qp, &attr, mask ? mask : rts_mask(qp->qp_type));
}

int to_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	ok(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	ck_assert_int_eq(attr.qp_state, qp->state);
	return attr.qp_state;
}

void connect_qps(struct ibv_qp *one, struct ibv_qp *two)
{
	struct ibv_qp *qps[] = { one, two };
	int n = one == two ? 1 : 2;

	for (int i = 0; i < n; i++)
		ok(to_init(qps[i], 0, 0));
	for (int i = 0; i < n; i++)
		ok(to_rtr(qps[i], qps[n - 1 - i], 0));
	for (int i = 0; i < n; i++)
		ok(to_rts(qps[i], 7, 0));
}

/* ---- requests */

struct ibv_sge sge_of(const struct end *end, uint32_t offset, uint32_t length)
{
	ck_assert_uint_le((uint64_t)offset + length, MEMORY);
	return (struct ibv_sge){ (uintptr_t)end->memory + offset, length, end->mr->lkey };
}

/* Programs leave members uninitialised that the opcode does not use. */
struct ibv_send_wr request(uint64_t wr_id, enum ibv_wr_opcode opcode, struct ibv_sge *sge)
{
	struct ibv_send_wr wr;

	memset(&wr, 0xa5, sizeof(wr));
	wr.wr_id = wr_id;
	wr.next = NULL;
	wr.opcode = opcode;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.sg_list = sge;
	wr.num_sge = sge ? 1 : 0;
	wr.wr.ud.ah = NULL; /* the type of the queue pair decides whether it is used */
	return wr;
}

void aim(struct ibv_send_wr *wr, const struct end *peer, uint32_t offset)
{
	uint64_t addr = (uintptr_t)peer->memory + offset;

	if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr->wr.atomic.remote_addr = addr;
		wr->wr.atomic.rkey = peer->mr->rkey;
	} else {
		wr->wr.rdma.remote_addr = addr;
		wr->wr.rdma.rkey = peer->mr->rkey;
	}
}

void post(const struct end *end, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;

	ok(ibv_post_send(end->qp, wr, &bad));
	ck_assert_ptr_null(bad);
}

void refused_send(const struct end *end, struct ibv_send_wr *wr, int err)
{
	struct ibv_send_wr *bad = NULL;

	ck_assert_int_eq(ibv_post_send(end->qp, wr, &bad), err);
	ck_assert_ptr_eq(bad, wr);
}

void post_recv(const struct end *end, uint64_t wr_id, uint32_t offset, uint32_t length)
{
	struct ibv_sge sge = sge_of(end, offset, length);
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad = NULL;

	if (end->srq)
		ok(ibv_post_srq_recv(end->srq, &wr, &bad));
	else
		ok(ibv_post_recv(end->qp, &wr, &bad));
	ck_assert_ptr_null(bad);
}

/* ---- completions and events */

struct ibv_wc next_wc(const struct end *end)
{
	uint64_t limit_ns = hang_limit_ns();
	struct ibv_wc wc;
	int n;

	memset(&wc, 0xee, sizeof(wc));
	do
		n = ibv_poll_cq(end->cq, 1, &wc);
	while (n == 0 && may_wait(limit_ns));
	ck_assert_int_eq(n, 1);
	return wc;
}

struct ibv_wc expect(const struct end *end, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = next_wc(end);

	ck_assert_msg(wc.wr_id == wr_id && wc.status == status,
		"request %llu, %s instead of request %llu, %s", (unsigned long long)wc.wr_id,
		ibv_wc_status_str(wc.status), (unsigned long long)wr_id, ibv_wc_status_str(status));
	if (end->qp)
		ck_assert_uint_eq(wc.qp_num, end->qp->qp_num);
	return wc;
}

void expect_none(const struct end *end)
{
	struct ibv_wc wc;

	ck_assert_int_eq(ibv_poll_cq(end->cq, 1, &wc), 0);
}

enum { SYNC_ID = 0x5c5c };

void sync_ends(const struct end *from, const struct end *to)
{
	struct ibv_send_wr wr = request(SYNC_ID, IBV_WR_SEND, NULL);

	post_recv(to, SYNC_ID, 0, 0);
	post(from, &wr);
	expect(from, SYNC_ID, IBV_WC_SUCCESS);
	expect(to, SYNC_ID, IBV_WC_SUCCESS);
}

bool is_readable(int fd)
{
	struct pollfd event = { .fd = fd, .events = POLLIN };

	return poll(&event, 1, 0) == 1;
}

static char thread_state(int tid)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	file = fopen(path, "re");
	made(file);
	ck_assert_int_eq(fscanf(file, "%*d %*s %c", &state), 1);
	fclose(file);
	return state;
}

void await_sleep(atomic_int *tid)
{
	uint64_t limit_ns = hang_limit_ns();

	while ((!atomic_load(tid) || thread_state(atomic_load(tid)) != 'S') && may_wait(limit_ns))
		sched_yield();
	ck_assert(may_wait(limit_ns));
}

void await_readable(int fd)
{
	struct pollfd event = { .fd = fd, .events = POLLIN };

	ck_assert_int_eq(poll(&event, 1, HANG_MS), 1);
}

struct ibv_async_event next_event(struct ibv_context *context, enum ibv_event_type type)
{
	struct ibv_async_event event;

	await_readable(context->async_fd);
	ok(ibv_get_async_event(context, &event));
	ck_assert_msg(event.event_type == type, "%s instead of %s",
		ibv_event_type_str(event.event_type), ibv_event_type_str(type));
	return event;
}

void expect_no_event(struct ibv_context *context)
{
	ck_assert(!is_readable(context->async_fd));
}

/* ---- bytes */

static uint8_t byte_of(uint32_t i, uint8_t seed)
{
	return (uint8_t)(i * 7 + (i >> 8) + seed);
}

void fill(const struct end *end, uint32_t offset, uint32_t length, uint8_t seed)
{
	for (uint32_t i = 0; i < length; i++)
		end->memory[offset + i] = byte_of(i, seed);
}

void check_filled(const struct end *end, uint32_t offset, uint32_t length, uint8_t seed)
{
	for (uint32_t i = 0; i < length; i++)
		ck_assert_msg(end->memory[offset + i] == byte_of(i, seed),
			"byte %u of %u is 0x%02x instead of 0x%02x", i, length,
			end->memory[offset + i], byte_of(i, seed));
}
