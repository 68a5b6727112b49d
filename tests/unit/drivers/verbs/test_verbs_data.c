/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests and completions of hardware: all opcodes, both ways of libibverbs for posting and
 * polling, and requests that are refused before the hardware sees them. */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/program.h"
#include "tests/fixtures/verbs_fixture.h"

enum { FAR = 32768 };

static void fill(struct verbs_end *end, uint32_t offset, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		end->memory[offset + i] = (uint8_t)(i * 7 + offset);
}

static uint64_t far_addr(const struct verbs_end *end)
{
	return (uintptr_t)(end->memory + FAR);
}

static void send_and_receive(void)
{
	struct frl_sge from = verbs_sge(one, 0, 5000);
	struct frl_wc wc;

	fill(one, 0, 5000);
	verbs_recv(two, 21, FAR, 8000);
	ck_assert_int_eq(verbs_send(one, FRL_WR_SEND_WITH_IMM, &from, 0, 0), 1);
	wc = verbs_expect(one, FRL_WC_SUCCESS);
	ck_assert_uint_eq(wc.wr_id, 7);
	ck_assert_int_eq(wc.opcode, FRL_WC_SEND);
	ck_assert_uint_eq(wc.flags, 0);
	wc = verbs_expect(two, FRL_WC_SUCCESS);
	ck_assert_uint_eq(wc.wr_id, 21);
	ck_assert_int_eq(wc.opcode, FRL_WC_RECV);
	ck_assert_uint_eq(wc.byte_len, 5000);
	ck_assert_uint_eq(wc.flags, FRL_WC_WITH_IMM);
	ck_assert_uint_eq(wc.imm_data, 0x01020304);
	ck_assert_uint_eq(wc.src_qp, 0);
	ck_assert_mem_eq(one->memory, two->memory + FAR, 5000);
}

static void write_and_read(void)
{
	struct frl_sge from = verbs_sge(one, 100, 3000), to = verbs_sge(one, 10000, 3000);
	uint32_t rkey = frl_mr_rkey(two->mr);
	struct frl_wc wc;

	fill(one, 100, 3000);
	ck_assert_int_eq(verbs_send(one, FRL_WR_RDMA_WRITE, &from, far_addr(two), rkey), 1);
	ck_assert_int_eq(verbs_expect(one, FRL_WC_SUCCESS).opcode, FRL_WC_RDMA_WRITE);
	ck_assert_mem_eq(one->memory + 100, two->memory + FAR, 3000);
	verbs_recv(two, 22, 0, 0);
	ck_assert_int_eq(
		verbs_send(one, FRL_WR_RDMA_WRITE_WITH_IMM, &from, far_addr(two) + 8, rkey), 1);
	verbs_expect(one, FRL_WC_SUCCESS);
	wc = verbs_expect(two, FRL_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, FRL_WC_RECV_RDMA_WITH_IMM);
	ck_assert_uint_eq(wc.byte_len, 3000);
	ck_assert_mem_eq(one->memory + 100, two->memory + FAR + 8, 3000);
	ck_assert_int_eq(verbs_send(one, FRL_WR_RDMA_READ, &to, far_addr(two) + 8, rkey), 1);
	wc = verbs_expect(one, FRL_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, FRL_WC_RDMA_READ);
	ck_assert_uint_eq(wc.byte_len, 3000);
	ck_assert_mem_eq(one->memory + 100, one->memory + 10000, 3000);
}

static void atomics(void)
{
	struct frl_sge result = verbs_sge(one, 0, 8);
	uint32_t rkey = frl_mr_rkey(two->mr);
	uint64_t value = 3;

	memcpy(two->memory + FAR, &value, 8);
	ck_assert_int_eq(
		verbs_send(one, FRL_WR_ATOMIC_CMP_AND_SWP, &result, far_addr(two), rkey), 1);
	ck_assert_int_eq(verbs_expect(one, FRL_WC_SUCCESS).opcode, FRL_WC_COMP_SWAP);
	memcpy(&value, one->memory, 8);
	ck_assert_uint_eq(value, 3);
	ck_assert_int_eq(
		verbs_send(one, FRL_WR_ATOMIC_FETCH_AND_ADD, &result, far_addr(two), rkey), 1);
	ck_assert_int_eq(verbs_expect(one, FRL_WC_SUCCESS).opcode, FRL_WC_FETCH_ADD);
	memcpy(&value, one->memory, 8);
	ck_assert_uint_eq(value, 9);
	memcpy(&value, two->memory + FAR, 8);
	ck_assert_uint_eq(value, 12);
}

/* Pieces, one of them empty, that are not registered: inline. */
static void inline_pieces(void)
{
	char hello[] = "hello, ", world[] = "world";
	const struct frl_sge sge[] = { { hello, 7, 0 }, { hello, 0, 99 }, { world, 6, 0 } };
	const struct frl_send_wr wr = { .opcode = FRL_WR_SEND,
		.flags = FRL_SEND_SIGNALED | FRL_SEND_INLINE,
		.sge = sge,
		.n_sge = 3 };

	verbs_recv(two, 1, FAR, 100);
	ck_assert_int_eq(frl_post_send(one->qp, &wr, 1, NULL), 1);
	memset(hello, 0, sizeof(hello));
	verbs_expect(one, FRL_WC_SUCCESS);
	ck_assert_uint_eq(verbs_expect(two, FRL_WC_SUCCESS).byte_len, 13);
	ck_assert_str_eq((char *)two->memory + FAR, "hello, world");
}

static void windows(void)
{
	struct frl_sge from = verbs_sge(two, 0, 64);
	struct frl_send_wr bind = { .opcode = FRL_WR_BIND_MW, .flags = FRL_SEND_SIGNALED };
	struct frl_send_wr inv = { .opcode = FRL_WR_LOCAL_INV, .flags = FRL_SEND_SIGNALED };
	struct frl_send_wr send = {
		.opcode = FRL_WR_SEND_WITH_INV, .flags = FRL_SEND_SIGNALED, .sge = &from, .n_sge = 1
	};
	struct frl_mw *mw;
	struct frl_wc wc;

	verbs_ok(frl_mw_alloc(one->pd, &mw));
	bind.bind = (struct frl_mw_bind){ .mw = mw,
		.mr = one->mr,
		.addr = far_addr(one),
		.length = 64,
		.rkey = frl_inc_rkey(frl_mw_rkey(mw)),
		.access = FRL_ACCESS_REMOTE_WRITE };
	ck_assert_int_eq(frl_post_send(one->qp, &bind, 1, NULL), 1);
	ck_assert_int_eq(verbs_expect(one, FRL_WC_SUCCESS).opcode, FRL_WC_BIND_MW);
	ck_assert_uint_eq(frl_mw_rkey(mw), bind.bind.rkey);
	fill(two, 0, 64);
	ck_assert_int_eq(
		verbs_send(two, FRL_WR_RDMA_WRITE, &from, far_addr(one), bind.bind.rkey), 1);
	verbs_expect(two, FRL_WC_SUCCESS);
	ck_assert_mem_eq(two->memory, one->memory + FAR, 64);
	inv.invalidate_rkey = bind.bind.rkey;
	ck_assert_int_eq(frl_post_send(one->qp, &inv, 1, NULL), 1);
	ck_assert_int_eq(verbs_expect(one, FRL_WC_SUCCESS).opcode, FRL_WC_LOCAL_INV);
	bind.bind.rkey = frl_inc_rkey(bind.bind.rkey);
	ck_assert_int_eq(frl_post_send(one->qp, &bind, 1, NULL), 1);
	verbs_expect(one, FRL_WC_SUCCESS);
	verbs_recv(one, 1, 0, 64);
	send.invalidate_rkey = bind.bind.rkey;
	ck_assert_int_eq(frl_post_send(two->qp, &send, 1, NULL), 1);
	verbs_expect(two, FRL_WC_SUCCESS);
	wc = verbs_expect(one, FRL_WC_SUCCESS);
	ck_assert_uint_eq(wc.flags, FRL_WC_WITH_INV);
	ck_assert_uint_eq(wc.invalidated_rkey, bind.bind.rkey);
	frl_mw_dealloc(mw);
}

START_LOOP_TEST(reliable, 2)
{
	const struct verbs_wants wants = { .is_plain = _i };
	struct fake_verbs_stats stats;

	verbs_setup(&wants);
	send_and_receive();
	write_and_read();
	atomics();
	inline_pieces();
	windows();
	fake_verbs_stats(&stats);
	ck_assert_uint_eq(stats.wr_api, _i ? 0 : stats.posted);
	ck_assert_uint_eq(stats.polled_ex, _i ? 0 : stats.polled);
}
END_TEST

/* Many at a time: one doorbell for 16 of them; a full queue takes as many as fit. */
START_LOOP_TEST(batches, 2)
{
	const struct verbs_wants wants = { .is_plain = _i };
	struct frl_sge from, to;
	struct frl_send_wr wr[VERBS_DEPTH + 8];
	struct frl_recv_wr recv[VERBS_DEPTH + 8];
	struct fake_verbs_stats before, after;
	int posted = -1;

	verbs_setup(&wants);
	from = verbs_sge(one, 0, 16);
	to = verbs_sge(two, 0, 16);
	for (uint32_t i = 0; i < VERBS_DEPTH + 8; i++) {
		wr[i] = (struct frl_send_wr){ .wr_id = i,
			.opcode = FRL_WR_SEND,
			.flags = FRL_SEND_SIGNALED,
			.sge = &from,
			.n_sge = 1 };
		recv[i] = (struct frl_recv_wr){ .wr_id = i, .sge = &to, .n_sge = 1 };
	}
	verbs_refused(
		frl_post_recv(two->qp, recv, VERBS_DEPTH + 8, &posted), -ENOMEM, "request 64");
	ck_assert_int_eq(posted, VERBS_DEPTH);
	fake_verbs_stats(&before);
	ck_assert_int_eq(frl_post_send(one->qp, wr, 40, &posted), 40);
	ck_assert_int_eq(posted, 40);
	fake_verbs_stats(&after);
	ck_assert_uint_eq(after.posts - before.posts, 3);
	verbs_refused(frl_post_send(one->qp, wr + 40, 32, &posted), -ENOMEM, "full");
	ck_assert_int_eq(posted, VERBS_DEPTH - 40);
	for (uint64_t i = 0; i < VERBS_DEPTH; i++) {
		ck_assert_uint_eq(verbs_expect(one, FRL_WC_SUCCESS).wr_id, i);
		ck_assert_uint_eq(verbs_expect(two, FRL_WC_SUCCESS).wr_id, i);
	}
	/* The first bad one ends it; those before are posted. */
	wr[2].flags = 0x80;
	verbs_recv(two, 0, 0, 16);
	verbs_recv(two, 0, 0, 16);
	verbs_refused(frl_post_send(one->qp, wr, 5, &posted), -EINVAL, "request 2");
	ck_assert_int_eq(posted, 2);
}
END_TEST

/* A provider without ibv_wr_*() would post a part of the list. */
START_LOOP_TEST(all_or_none, 2)
{
	const struct verbs_wants wants = { .is_plain = _i };
	struct fake_verbs_stats before, after;
	struct frl_send_wr wr[17];
	struct frl_sge from;
	struct frl_wc wc;

	verbs_setup(&wants);
	from = verbs_sge(one, 0, 16);
	for (uint32_t i = 0; i < ROWS(wr); i++)
		wr[i] = (struct frl_send_wr){ .wr_id = i,
			.opcode = FRL_WR_RDMA_WRITE,
			.flags = FRL_SEND_SIGNALED,
			.sge = &from,
			.n_sge = 1,
			.remote_addr = far_addr(two),
			.rkey = frl_mr_rkey(two->mr) };
	wr[16].flags = 0x80;
	fake_verbs_stats(&before);
	verbs_refused(frl_post_send_all(one->qp, wr, 17), -ENOTSUP, "fewer");
	verbs_refused(frl_post_send_all(one->qp, wr + 14, 3), _i ? -ENOTSUP : -EINVAL,
		_i ? "frl_post_send()" : "request 2");
	verbs_refused(frl_post_send_all(one->qp, wr + 16, 1), -EINVAL, "flags");
	wr[2].opcode = FRL_WR_BIND_MW;
	verbs_refused(frl_post_send_all(one->qp, wr, 4), -ENOTSUP, "frl_post_send()");
	wr[2].opcode = FRL_WR_RDMA_WRITE;
	fake_verbs_stats(&after);
	ck_assert_uint_eq(after.posts, before.posts);
	verbs_ok(frl_post_send_all(one->qp, wr, 1));
	verbs_expect(one, FRL_WC_SUCCESS);
	if (_i)
		return;
	for (int i = 0; i < VERBS_DEPTH / 8 - 1; i++)
		verbs_ok(frl_post_send_all(one->qp, wr, 8));
	verbs_refused(frl_post_send_all(one->qp, wr, 9), -ENOMEM, "full");
	verbs_ok(frl_post_send_all(one->qp, wr, 8));
	for (uint64_t i = 0; i < VERBS_DEPTH; i++)
		ck_assert_uint_eq(verbs_expect(one, FRL_WC_SUCCESS).wr_id, i % 8);
	ck_assert_int_eq(frl_poll_cq(one->cq, 1, &wc), 0);
}
END_TEST

/* Only the last has a completion, which frees the places of all. */
START_LOOP_TEST(unsignaled, 2)
{
	const struct verbs_wants wants = { .is_plain = _i };
	struct frl_send_wr wr = { .opcode = FRL_WR_RDMA_WRITE, .n_sge = 1 };
	struct frl_sge from;
	struct frl_wc wc;

	verbs_setup(&wants);
	from = verbs_sge(one, 0, 16);
	wr.sge = &from;
	wr.remote_addr = far_addr(two);
	wr.rkey = frl_mr_rkey(two->mr);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < VERBS_DEPTH; i++) {
			wr.flags = i == VERBS_DEPTH - 1 ? FRL_SEND_SIGNALED : 0;
			ck_assert_int_eq(frl_post_send(one->qp, &wr, 1, NULL), 1);
		}
		verbs_expect(one, FRL_WC_SUCCESS);
		ck_assert_int_eq(frl_poll_cq(one->cq, 1, &wc), 0);
	}
}
END_TEST

START_LOOP_TEST(unreliable, 2)
{
	const struct verbs_wants wants = { .type = FRL_QPT_UC, .is_plain = _i };
	struct frl_sge from;

	verbs_setup(&wants);
	send_and_receive();
	inline_pieces();
	from = verbs_sge(one, 0, 8);
	verbs_refused(verbs_send(one, FRL_WR_RDMA_READ, &from, far_addr(two), 1), -EINVAL, "type");
}
END_TEST

static struct frl_ah *ah_to(const struct verbs_end *end, const struct verbs_end *peer)
{
	struct frl_ah_attr attr = { .sgid_index = 1, .hop_limit = 9 };
	struct frl_gid gid;
	struct frl_ah *ah;

	verbs_ok(frl_query_gid(peer->device, 1, &gid));
	attr.dgid = gid.ip;
	verbs_ok(frl_ah_create(end->pd, &attr, &ah));
	return ah;
}

START_LOOP_TEST(datagrams, 2)
{
	/* The value of mlx5 without a tag. */
	const struct verbs_wants wants = {
		.type = FRL_QPT_UD, .is_plain = _i, .wc_sl = 2, .wc_tci = 0xa005
	};
	struct frl_send_wr wr = { .opcode = FRL_WR_SEND_WITH_IMM,
		.flags = FRL_SEND_SIGNALED,
		.imm_data = 5,
		.n_sge = 1 };
	struct frl_ah_attr back;
	struct frl_sge from;
	struct frl_wc wc;

	verbs_setup(&wants);
	from = verbs_sge(one, 0, 1000);
	fill(one, 0, 1000);
	wr.sge = &from;
	verbs_refused(frl_post_send(one->qp, &wr, 1, NULL), -EINVAL, "address handle");
	wr.ah = ah_to(one, two);
	wr.remote_qpn = frl_qp_num(two->qp);
	/* The own one is the peer's, too. */
	wr.remote_qkey = 0x80000000;
	verbs_recv(two, 3, FAR, 2000);
	ck_assert_int_eq(frl_post_send(one->qp, &wr, 1, NULL), 1);
	verbs_expect(one, FRL_WC_SUCCESS);
	wc = verbs_expect(two, FRL_WC_SUCCESS);
	ck_assert_uint_eq(wc.flags, FRL_WC_GRH | FRL_WC_WITH_IMM);
	ck_assert_uint_eq(wc.byte_len, 1000 + FRL_GRH_SIZE);
	ck_assert_uint_eq(wc.src_qp, frl_qp_num(one->qp));
	ck_assert(wc.sl == 0 && wc.vlan == 0);
	ck_assert_mem_eq(one->memory, two->memory + FAR + FRL_GRH_SIZE, 1000);
	verbs_ok(frl_ah_attr_from_wc(two->device, &wc, two->memory + FAR, &back));
	ck_assert_uint_eq(back.sgid_index, 1);
	ck_assert_uint_eq(back.dgid.bytes[15], 1);
	/* An uncertain VLAN only decides between otherwise equal addresses. */
	wc.vlan = 5;
	verbs_ok(frl_ah_attr_from_wc(two->device, &wc, two->memory + FAR, &back));
	ck_assert_uint_eq(back.sgid_index, 1);
	from.length = 4097;
	verbs_refused(frl_post_send(one->qp, &wr, 1, NULL), -EINVAL, "MTU");
	frl_ah_destroy(wr.ah);
}
END_TEST

START_TEST(groups)
{
	const struct verbs_wants wants = { .type = FRL_QPT_UD };
	const struct frl_ip group = { { [10] = 0xff, 0xff, 239, 1, 2, 3 } };
	struct frl_ip host = { { [10] = 0xff, 0xff, 10, 1, 2, 3 } };

	verbs_setup(&wants);
	verbs_refused(frl_attach_mcast(two->qp, &host), -EINVAL, "no multicast group");
	verbs_refused(frl_detach_mcast(two->qp, &group), -EINVAL, "not attached");
	verbs_ok(frl_attach_mcast(two->qp, &group));
	verbs_ok(frl_attach_mcast(two->qp, &group));
	ck_assert_uint_eq(fake_verbs_live(FAKE_VERBS_MCAST), 1);
	verbs_ok(frl_detach_mcast(two->qp, &group));
	ck_assert_uint_eq(fake_verbs_live(FAKE_VERBS_MCAST), 0);
	fake_verbs_fail("ibv_attach_mcast", 1, ENOMEM);
	ck_assert_int_eq(frl_attach_mcast(two->qp, &group), -ENOMEM);
	/* Queued requests leave the queue pair when it is destroyed. */
	verbs_ok(frl_attach_mcast(two->qp, &group));
}
END_TEST

START_LOOP_TEST(shared_receives, 2)
{
	const struct verbs_wants wants = { .has_srq = true, .is_plain = _i };
	const struct frl_sge none[1];
	const struct frl_recv_wr wr = { .sge = none, .n_sge = 5 };
	struct frl_async_event event;
	struct frl_srq_config config;
	struct frl_sge from;
	int posted = 7;

	verbs_setup(&wants);
	verbs_refused(frl_post_recv(two->qp, &wr, 1, &posted), -EINVAL, "shared");
	ck_assert_int_eq(posted, 0);
	verbs_refused(frl_post_srq_recv(two->srq, &wr, 1, &posted), -EINVAL, "n_sge");
	verbs_ok(frl_srq_set_limit(two->srq, 5));
	frl_srq_query(two->srq, &config);
	ck_assert_uint_eq(config.limit, 5);
	for (uint64_t i = 0; i < 5; i++)
		verbs_recv(two, i, FAR, 100);
	inline_pieces();
	/* That posted a sixth one: five are left. */
	ck_assert_int_eq(frl_get_async_event(two->device, 0, &event), -EAGAIN);
	inline_pieces();
	inline_pieces();
	from = verbs_sge(one, 0, 8);
	ck_assert_int_eq(verbs_send(one, FRL_WR_SEND, &from, 0, 0), 1);
	verbs_expect(one, FRL_WC_SUCCESS);
	verbs_expect(two, FRL_WC_SUCCESS);
	ck_assert_ptr_eq(verbs_event(two, FRL_EVENT_SRQ_LIMIT_REACHED).srq, two->srq);
	frl_srq_query(two->srq, &config);
	ck_assert_uint_eq(config.limit, 0);
}
END_TEST

/* A descriptor to sleep on. */
START_LOOP_TEST(channels, 2)
{
	const struct verbs_wants wants = { .is_plain = _i };
	struct pollfd fd;
	struct frl_sge from;
	struct frl_cq *cq;
	struct frl_wc wc;

	verbs_setup(&wants);
	fd = (struct pollfd){ .fd = frl_comp_channel_fd(two->channel), .events = POLLIN };
	from = verbs_sge(one, 0, 8);
	ck_assert_int_eq(frl_get_cq_event(two->channel, 0, &cq), -EAGAIN);
	verbs_ok(frl_req_notify_cq(two->cq, false));
	ck_assert_int_eq(poll(&fd, 1, 0), 0);
	verbs_recv(two, 1, 0, 8);
	ck_assert_int_eq(verbs_send(one, FRL_WR_SEND, &from, 0, 0), 1);
	ck_assert_int_eq(poll(&fd, 1, HANG_MS), 1);
	verbs_ok(frl_get_cq_event(two->channel, 0, &cq));
	ck_assert_ptr_eq(cq, two->cq);
	ck_assert_int_eq(poll(&fd, 1, 0), 0);
	ck_assert_int_eq(frl_poll_cq(two->cq, 1, &wc), 1);
	/* Not solicited: no event. */
	verbs_ok(frl_req_notify_cq(two->cq, true));
	verbs_recv(two, 1, 0, 8);
	ck_assert_int_eq(verbs_send(one, FRL_WR_SEND, &from, 0, 0), 1);
	verbs_expect(two, FRL_WC_SUCCESS);
	ck_assert_int_eq(frl_get_cq_event(two->channel, 0, &cq), -EAGAIN);
	fake_verbs_fail("ibv_req_notify_cq", 1, EIO);
	verbs_refused(frl_req_notify_cq(two->cq, true), -EIO, "event");
}
END_TEST

/* By endpoints, as connection management and collectives do it. */
START_LOOP_TEST(endpoints, 2)
{
	const struct frl_qp_attr reset = { .state = FRL_QPS_RESET };
	const struct verbs_wants wants = { .is_plain = _i, .is_rxe = _i, .two_rd_atomic = 4 };
	struct frl_connect_config config;
	struct frl_endpoint mine[2];
	struct frl_qp_attr attr;
	int rc;

	verbs_setup(&wants);
	for (int i = 0; i < 2; i++) {
		verbs_ok(frl_qp_modify(ends[i].qp, &reset, FRL_QP_STATE));
		verbs_ok(frl_qp_endpoint(ends[i].qp, &mine[i]));
	}
	for (int i = 0; i < 2; i++) {
		frl_connect_config_init(ends[i].device, &config);
		/* A NIC is waited for longer, and only its capabilities are requested. */
		ck_assert_uint_eq(config.timeout, _i ? 14 : 18);
		ck_assert_uint_eq(config.max_rd_atomic, i ? 4 : 16);
		ck_assert_uint_eq(config.traffic_class, 0);
		config.traffic_class = 0x20;
		verbs_ok(frl_qp_connect_start(ends[i].qp, &mine[1 - i], &config));
	}
	for (int i = 0; i < 2; i++) {
		while ((rc = frl_qp_connect_test(ends[i].qp)) == -EAGAIN)
			;
		verbs_ok(rc);
		frl_qp_query(ends[i].qp, &attr);
		ck_assert_int_eq(attr.state, FRL_QPS_RTS);
		ck_assert_uint_eq(attr.path_mtu, 4096);
		ck_assert_uint_eq(attr.ah.sgid_index, 1);
		ck_assert_uint_eq(attr.ah.traffic_class, 0x20);
		ck_assert_uint_eq(attr.max_rd_atomic, 4);
	}
	send_and_receive();
	write_and_read();
}
END_TEST

static void expect_psns(const struct verbs_end *end, uint32_t sends, uint32_t takes)
{
	struct frl_qp_attr attr;

	frl_qp_query(end->qp, &attr);
	ck_assert_uint_eq(attr.sq_psn, sends);
	ck_assert_uint_eq(attr.rq_psn, takes);
}

/* The device reports its progress, and its progress at a failure. */
START_TEST(psns)
{
	const struct verbs_wants wants = { .retry_cnt = 1 };
	struct frl_sge from;
	struct frl_qp_attr attr;

	verbs_setup(&wants);
	expect_psns(one, 100, 100);
	from = verbs_sge(one, 0, 5000);
	verbs_recv(two, 1, 0, 5000);
	ck_assert_int_eq(verbs_send(one, FRL_WR_SEND, &from, 0, 0), 1);
	verbs_expect(one, FRL_WC_SUCCESS);
	expect_psns(one, 105, 100);
	expect_psns(two, 100, 105);
	fake_verbs_cut("one", "two", true);
	ck_assert_int_eq(verbs_send(one, FRL_WR_SEND, &from, 0, 0), 1);
	verbs_expect(one, FRL_WC_RETRY_EXC_ERR);
	frl_qp_query(one->qp, &attr);
	ck_assert_int_eq(attr.state, FRL_QPS_ERR);
	expect_psns(one, 105, 100);
	verbs_expect(two, FRL_WC_SUCCESS);
}
END_TEST

static void refuse_sends(void)
{
	struct frl_sge sge[FRL_MAX_SGE + 1] = { verbs_sge(one, 0, 100) };
	char bytes[FRL_MAX_INLINE] = { 0 };
	const struct frl_sge large = { bytes, sizeof(bytes), 0 };
	const struct {
		struct frl_send_wr wr;
		const char *word;
	} rows[] = {
		{ { .opcode = 33 }, "opcode" },
		{ { .opcode = FRL_WR_SEND, .flags = 0x100 }, "flags" },
		{ { .opcode = FRL_WR_SEND, .n_sge = -1 }, "n_sge" },
		{ { .opcode = FRL_WR_SEND, .sge = sge, .n_sge = 5 }, "n_sge" },
		{ { .opcode = FRL_WR_SEND, .n_sge = 1 }, "n_sge" },
		{ { .opcode = FRL_WR_RDMA_READ, .flags = FRL_SEND_INLINE }, "inline" },
		{ { .opcode = FRL_WR_LOCAL_INV, .flags = FRL_SEND_INLINE }, "inline" },
		{ { .opcode = FRL_WR_SEND, .flags = FRL_SEND_INLINE, .sge = &large, .n_sge = 1 },
			"max_inline" },
		{ { .opcode = FRL_WR_ATOMIC_FETCH_AND_ADD, .remote_addr = 4 }, "multiple of 8" },
		{ { .opcode = FRL_WR_ATOMIC_FETCH_AND_ADD, .sge = sge, .n_sge = 1 }, "8 bytes" },
		{ { .opcode = FRL_WR_BIND_MW }, "bind.mw" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		verbs_refused(frl_post_send(one->qp, &rows[i].wr, 1, NULL), -EINVAL, rows[i].word);
}

START_LOOP_TEST(refused_requests, 2)
{
	const struct verbs_wants wants = { .is_plain = _i };
	struct frl_recv_wr recv = { .action = { .type = FRL_ACTION_REDUCE } };
	const struct frl_qp_attr reset = { .state = FRL_QPS_RESET };
	struct frl_send_wr send = { .opcode = FRL_WR_SEND };

	verbs_setup(&wants);
	refuse_sends();
	verbs_refused(frl_post_recv(one->qp, &recv, 1, NULL), -ENOTSUP, "frl_reduce_local");
	recv.action.type = 7;
	verbs_refused(frl_post_recv(one->qp, &recv, 1, NULL), -EINVAL, "action");
	recv.action.type = FRL_ACTION_COPY;
	recv.n_sge = 5;
	verbs_refused(frl_post_recv(one->qp, &recv, 1, NULL), -EINVAL, "n_sge");
	recv.n_sge = 0;
	fake_verbs_fail("ibv_post_recv", 1, EIO);
	verbs_refused(frl_post_recv(one->qp, &recv, 1, NULL), -EIO, "dmesg");
	fake_verbs_fail(_i ? "ibv_post_send" : "ibv_wr_complete", 1, EIO);
	verbs_refused(frl_post_send(one->qp, &send, 1, NULL), -EIO, "dmesg");
	verbs_ok(frl_qp_modify(one->qp, &reset, FRL_QP_STATE));
	verbs_refused(frl_post_recv(one->qp, &recv, 1, NULL), -EINVAL, "RESET");
	verbs_refused(frl_post_send(one->qp, &send, 1, NULL), -EINVAL, "RTS");
}
END_TEST

TEST_MAIN(verbs_data)
{
	return run_suite_unforked(all_tests(NULL, verbs_teardown));
}
