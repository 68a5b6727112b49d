/* SPDX-License-Identifier: BSD-3-Clause */
/* The public interface: operations of connected queue pairs beyond SEND and WRITE. */
#include "tests/fixtures/api_fixture.h"
#include "tests/fixtures/program.h"

#include <stdbool.h>

static uint64_t load(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static void store(uint8_t *at, uint64_t value)
{
	memcpy(at, &value, sizeof(value));
}

/* Two queue pairs of `a`, the second as a.qp's peer; b does not exist. */
static struct frl_qp *start_loop(enum frl_qp_type type)
{
	struct frl_endpoint first, second;
	struct frl_qp_config config;
	struct frl_qp *other;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	config = (struct frl_qp_config){
		.type = type,
		.send_cq = a.cq,
		.recv_cq = a.cq,
		.max_send_wr = DEPTH,
		.max_recv_wr = DEPTH,
	};
	b = (struct end){ 0 };
	frl_qp_destroy(a.qp);
	ok(frl_qp_create(a.pd, &config, &a.qp));
	ok(frl_qp_create(a.pd, &config, &other));
	ok(frl_qp_endpoint(a.qp, &first));
	ok(frl_qp_endpoint(other, &second));
	ok(frl_qp_connect(a.qp, &second, NULL));
	ok(frl_qp_connect(other, &first, NULL));
	for (uint32_t i = 0; i < MEMORY; i++)
		a.memory[i] = (uint8_t)(i * 13 + i / 247);
	return other;
}

/* 0: to the other device; else within one, over RC or UC. */
START_LOOP_TEST(read_and_atomics, 2)
{
	struct frl_sge sge;
	struct frl_send_wr wr;
	struct frl_wc wc;

	start(_i, FRL_PROGRESS_INLINE);
	for (uint32_t i = 0; i < MEMORY; i++)
		b.memory[i] = (uint8_t)(i * 11 + i / 249);
	sge = sge_of(&a, 5, MESSAGE);
	wr = send_wr(1, FRL_WR_RDMA_READ, &sge);
	wr.remote_addr += 777;
	post_send(&wr);
	wc = expect(&a, 1, FRL_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, FRL_WC_RDMA_READ);
	ck_assert_uint_eq(wc.byte_len, MESSAGE);
	ck_assert_int_eq(memcmp(a.memory + 5, b.memory + 777, MESSAGE), 0);

	store(b.memory + 64, 40);
	sge = sge_of(&a, 8, 8);
	wr = send_wr(2, FRL_WR_ATOMIC_FETCH_AND_ADD, &sge);
	wr.remote_addr += 64;
	wr.compare_add = 2;
	post_send(&wr);
	wc = expect(&a, 2, FRL_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, FRL_WC_FETCH_ADD);
	ck_assert_uint_eq(load(a.memory + 8), 40);
	ck_assert_uint_eq(load(b.memory + 64), 42);

	wr = send_wr(3, FRL_WR_ATOMIC_CMP_AND_SWP, &sge);
	wr.remote_addr += 64;
	wr.compare_add = 41;
	wr.swap = 99;
	post_send(&wr);
	wr.wr_id = 4;
	wr.compare_add = 42;
	post_send(&wr);
	expect(&a, 3, FRL_WC_SUCCESS);
	wc = expect(&a, 4, FRL_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, FRL_WC_COMP_SWAP);
	ck_assert_uint_eq(load(a.memory + 8), 42);
	ck_assert_uint_eq(load(b.memory + 64), 99);

	wr.remote_addr += 4;
	refused(frl_post_send(a.qp, &wr, 1, NULL), -EINVAL, "multiple of 8");
}
END_TEST

/* More READs than may be outstanding, a fence, and the order of the results. */
START_TEST(many_reads)
{
	struct frl_send_wr wr;
	struct frl_sge sge;

	start(false, FRL_PROGRESS_INLINE);
	for (uint32_t i = 0; i < DEPTH - 1; i++) {
		sge = sge_of(&a, 4096 * i, 4096);
		wr = send_wr(i, FRL_WR_RDMA_READ, &sge);
		post_send(&wr);
	}
	sge = sge_of(&a, 4096 * (DEPTH - 2), 4096);
	wr = send_wr(DEPTH - 1, FRL_WR_RDMA_WRITE, &sge);
	wr.remote_addr += 8192;
	wr.flags |= FRL_SEND_FENCE;
	post_send(&wr);
	for (uint32_t i = 0; i < DEPTH; i++)
		expect(&a, i, FRL_WC_SUCCESS);
	ck_assert_int_eq(memcmp(b.memory + 8192, b.memory, 4096), 0);
}
END_TEST

START_LOOP_TEST(loopback, 2)
{
	bool reliable = _i;
	struct frl_qp *other = start_loop(reliable ? FRL_QPT_RC : FRL_QPT_UC);
	struct frl_sge sge = sge_of(&a, 100, 5000), into = sge_of(&a, 20000, 5000);
	struct frl_recv_wr recv = { .wr_id = 1, .sge = &into, .n_sge = 1 };
	struct frl_send_wr wr = {
		.wr_id = 2,
		.opcode = FRL_WR_SEND,
		.flags = FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = 1,
	};
	struct frl_stats stats;
	struct frl_wc wc[2];
	int n = 0;

	ck_assert_int_eq(frl_post_recv(other, &recv, 1, NULL), 1);
	post_on(a.qp, &wr);
	for (uint64_t limit_ns = hang_limit_ns(); n < 2 && may_wait(limit_ns);)
		n += frl_poll_cq(a.cq, 2 - n, wc + n);
	ck_assert_int_eq(n, 2);
	ck_assert(wc[0].status == FRL_WC_SUCCESS && wc[1].status == FRL_WC_SUCCESS);
	ck_assert_uint_eq(wc[0].wr_id + wc[1].wr_id, 3);
	ck_assert_int_eq(memcmp(a.memory + 100, a.memory + 20000, 5000), 0);
	wr.opcode = FRL_WR_RDMA_WRITE;
	wr.remote_addr = (uintptr_t)a.memory + 40000;
	wr.rkey = frl_mr_rkey(a.mr);
	post_on(a.qp, &wr);
	next_wc(&a, 2, FRL_WC_SUCCESS);
	for (int i = 0; i < 100; i++)
		frl_progress(a.device);
	ck_assert_int_eq(memcmp(a.memory + 100, a.memory + 40000, 5000), 0);
	frl_device_stats(a.device, &stats);
	ck_assert(test_port() || stats.loopback_packets >= 4);
	wr.opcode = FRL_WR_RDMA_READ;
	if (reliable) {
		post_on(a.qp, &wr);
		next_wc(&a, 2, FRL_WC_SUCCESS);
	} else {
		refused(frl_post_send(a.qp, &wr, 1, NULL), -EINVAL, "opcode");
	}
	frl_qp_destroy(other);
}
END_TEST

/* UC over a link. */
START_TEST(unreliable)
{
	struct frl_endpoint reliable = { 0 };
	struct frl_qp_config config;
	struct frl_send_wr wr;
	struct frl_sge sge;
	struct frl_wc wc;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	reliable = b.mine;
	for (int i = 0; i < 2; i++) {
		struct end *end = i ? &b : &a;

		frl_qp_destroy(end->qp);
		config = (struct frl_qp_config){
			.type = FRL_QPT_UC,
			.send_cq = end->cq,
			.recv_cq = end->cq,
			.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
		};
		ok(frl_qp_create(end->pd, &config, &end->qp));
		ok(frl_qp_endpoint(end->qp, &end->mine));
	}
	refused(frl_qp_connect(a.qp, &reliable, NULL), -EPROTO, "type");
	connect_both();
	sge = sge_of(&a, 0, MESSAGE);
	post_recv(1, 0, MESSAGE, false);
	wr = send_wr(2, FRL_WR_SEND_WITH_IMM, &sge);
	post_send(&wr);
	expect(&a, 2, FRL_WC_SUCCESS);
	wc = expect(&b, 1, FRL_WC_SUCCESS);
	ck_assert_uint_eq(wc.imm_data, 0xabcd);
	ck_assert_int_eq(memcmp(a.memory, b.memory, MESSAGE), 0);
	/* No receive: no error. */
	post_send(&wr);
	expect(&a, 2, FRL_WC_SUCCESS);
}
END_TEST

START_TEST(sixteen_pieces)
{
	struct frl_sge from[FRL_MAX_SGE + 1], to[FRL_MAX_SGE + 1];
	struct frl_recv_wr recv = { .wr_id = 1, .sge = to, .n_sge = FRL_MAX_SGE };
	struct frl_qp_config config;
	struct frl_send_wr wr;
	uint32_t total = 0;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	for (int i = 0; i < 2; i++) {
		struct end *end = i ? &b : &a;

		frl_qp_destroy(end->qp);
		config = (struct frl_qp_config){
			.send_cq = end->cq,
			.recv_cq = end->cq,
			.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = FRL_MAX_SGE,
			.max_recv_sge = FRL_MAX_SGE,
			.max_inline = FRL_MAX_INLINE,
			.sq_sig_all = true,
		};
		ok(frl_qp_create(end->pd, &config, &end->qp));
		ok(frl_qp_endpoint(end->qp, &end->mine));
	}
	connect_both();
	for (uint32_t i = 0; i < MEMORY; i++)
		a.memory[i] = (uint8_t)(i * 7 + i / 251);
	for (uint32_t i = 0; i < FRL_MAX_SGE; i++) {
		from[i] = sge_of(&a, 3000 * i + i, 100 + 37 * i);
		to[i] = sge_of(&b, 3000 * i, 700 - 37 * i);
		total += from[i].length;
	}
	ck_assert_int_eq(frl_post_recv(b.qp, &recv, 1, NULL), 1);
	wr = send_wr(2, FRL_WR_SEND, from);
	wr.n_sge = FRL_MAX_SGE;
	wr.flags = 0;
	post_send(&wr);
	ck_assert_uint_eq(expect(&b, 1, FRL_WC_SUCCESS).byte_len, total);
	expect(&a, 2, FRL_WC_SUCCESS); /* every request is signaled */
	for (uint32_t k = 0, i = 0, j = 0, at = 0, into = 0; k < total; k++, at++, into++) {
		if (at == from[i].length)
			i++, at = 0;
		if (into == to[j].length)
			j++, into = 0;
		ck_assert_uint_eq(((uint8_t *)from[i].addr)[at], ((uint8_t *)to[j].addr)[into]);
	}
	wr.n_sge = FRL_MAX_SGE + 1;
	refused(frl_post_send(a.qp, &wr, 1, NULL), -EINVAL, "max_send_sge");
	recv.n_sge = FRL_MAX_SGE + 1;
	refused(frl_post_recv(b.qp, &recv, 1, NULL), -EINVAL, "sge");
}
END_TEST

static struct frl_qp *add_srq_qp(struct end *end, struct frl_srq *srq)
{
	struct frl_qp_config config = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.srq = srq,
		.max_send_wr = DEPTH,
		.max_recv_wr = 99999, /* not looked at */
	};
	struct frl_qp *qp;

	ok(frl_qp_create(end->pd, &config, &qp));
	return qp;
}

START_TEST(shared_receives)
{
	struct frl_srq_config config = { .max_wr = 4, .context = &b };
	struct frl_recv_wr recv = { .n_sge = 1 };
	struct frl_qp *early[2], *late[2]; /* of a, of b */
	struct frl_send_wr wr;
	struct frl_sge sge;
	struct frl_srq *srq;
	int extra = 0, rc;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	ok(frl_srq_create(b.pd, &config, &srq));
	ck_assert_ptr_eq(frl_srq_context(srq), &b);
	frl_srq_query(srq, &config);
	ck_assert(config.max_wr == 4 && config.max_sge == 4 && config.limit == 0);
	for (int i = 0; i < 2; i++) {
		struct frl_qp **qps = i ? late : early;

		if (i == 0) {
			frl_qp_destroy(a.qp);
			frl_qp_destroy(b.qp);
		}
		a.qp = qps[0] = add_qp(&a);
		b.qp = qps[1] = add_srq_qp(&b, srq);
		ok(frl_qp_endpoint(a.qp, &a.mine));
		ok(frl_qp_endpoint(b.qp, &b.mine));
		connect_both();
	}
	refused(frl_srq_destroy(srq), -EBUSY, "queue pairs");
	refused(frl_post_recv(b.qp, &recv, 1, NULL), -EINVAL, "shared");
	for (uint32_t i = 0; i < 4; i++) {
		sge = sge_of(&b, 1000 * i, 1000);
		recv.wr_id = i;
		recv.sge = &sge;
		ck_assert_int_eq(frl_post_srq_recv(srq, &recv, 1, NULL), 1);
	}
	/* Hardware may have made it larger. */
	while ((rc = frl_post_srq_recv(srq, &recv, 1, NULL)) == 1 && extra < 100)
		extra++;
	refused(rc, -ENOMEM, "full");
	ck_assert(test_port() || extra == 0);
	for (uint32_t i = 0; i < 4; i++) {
		sge = sge_of(&a, 500 * i, 500);
		wr = send_wr(10 + i, FRL_WR_SEND, &sge);
		post_on(i % 2 ? late[0] : early[0], &wr);
		ck_assert_uint_eq(next_wc(&b, i, FRL_WC_SUCCESS).qp_num,
			frl_qp_num(i % 2 ? late[1] : early[1]));
		next_wc(&a, 10 + i, FRL_WC_SUCCESS);
		ck_assert_int_eq(memcmp(b.memory + 1000 * i, a.memory + 500 * i, 500), 0);
	}
	frl_qp_destroy(early[0]);
	frl_qp_destroy(early[1]);
	frl_qp_destroy(late[1]);
	b.qp = NULL;
	refused(frl_srq_set_limit(srq, 5), -EINVAL, "max_wr");
	ok(frl_srq_destroy(srq));
	ok(frl_srq_destroy(NULL));
}
END_TEST

static int try_srq(uint32_t max_wr, uint32_t max_sge, uint32_t limit)
{
	struct frl_srq_config config = { .max_wr = max_wr, .max_sge = max_sge, .limit = limit };
	struct frl_srq *srq;

	return frl_srq_create(a.pd, &config, &srq);
}

static int try_qp(uint32_t send_sge, uint32_t recv_sge, uint32_t max_inline, int type)
{
	struct frl_qp_config config = {
		.type = (enum frl_qp_type)type,
		.send_cq = a.cq,
		.recv_cq = a.cq,
		.max_send_wr = 1,
		.max_send_sge = send_sge,
		.max_recv_sge = recv_sge,
		.max_inline = max_inline,
	};
	struct frl_qp *qp;

	return frl_qp_create(a.pd, &config, &qp);
}

START_TEST(limits_of_software)
{
	struct frl_device_attr attr;

	SOFTWARE_ONLY("hardware has limits of its own");
	open_end(&a, false, FRL_PROGRESS_INLINE);
	frl_device_query(a.device, &attr);
	ck_assert_uint_eq(attr.max_qp, 16382);
	ck_assert_uint_eq(attr.max_sge, FRL_MAX_SGE);
	ck_assert_uint_eq(attr.max_srq_wr, 16384);
	ck_assert_uint_eq(attr.max_rd_atomic, FRL_MAX_RD_ATOMIC);
	ck_assert_uint_eq(attr.max_msg_size, UINT32_C(1) << 31);
	ck_assert_uint_eq(attr.n_gids, 2);
}
END_TEST

START_TEST(limits)
{
	struct frl_device_attr attr;
	struct frl_gid gid;
	char number[32];

	open_end(&a, false, FRL_PROGRESS_INLINE);
	frl_device_query(a.device, &attr);
	ck_assert_int_eq(attr.port_state, FRL_PORT_ACTIVE);
	ck_assert_uint_le(attr.max_sge, FRL_MAX_SGE);
	ck_assert_uint_eq(attr.max_inline, FRL_MAX_INLINE);
	ck_assert(attr.max_mr && attr.max_mw && attr.max_mr_size && attr.max_mcast_groups &&
		attr.max_mcast_attach && attr.n_pkeys == 1);
	refused(try_srq(0, 1, 0), -EINVAL, "max_wr");
	snprintf(number, sizeof(number), "%u", attr.max_srq_wr);
	refused(try_srq(attr.max_srq_wr + 1, 1, 0), -EINVAL, number);
	refused(try_srq(1, attr.max_srq_sge + 1, 0), -EINVAL, "max_sge");
	refused(try_srq(1, 1, 2), -EINVAL, "limit");
	refused(try_qp(attr.max_sge + 1, 0, 0, 0), -EINVAL, "max_send_sge");
	refused(try_qp(0, attr.max_sge + 1, 0, 0), -EINVAL, "max_recv_sge");
	refused(try_qp(0, 0, attr.max_inline + 1, 0), -EINVAL, "max_inline");
	refused(try_qp(0, 0, 0, 5), -EINVAL, "type 5");
	refused(try_qp(0, 0, 0, -1), -EINVAL, "type");

	ck_assert_uint_ge(attr.n_gids, 2);
	ok(frl_query_gid(a.device, 0, &gid));
	ck_assert(gid.ip.bytes[0] == 0xfe && gid.ip.bytes[1] == 0x80 && gid.prefix_len == 64);
	ck_assert(gid.ip.bytes[8] == (attr.mac[0] ^ 2) && gid.ip.bytes[15] == attr.mac[5]);
	ck_assert(gid.ip.bytes[11] == 0xff && gid.ip.bytes[12] == 0xfe);
	ok(frl_query_gid(a.device, 1, &gid));
	ck_assert_int_eq(memcmp(&gid.ip, &attr.ip, sizeof(gid.ip)), 0);
	ck_assert(gid.prefix_len && gid.vlan == 0);
	snprintf(number, sizeof(number), "%u GIDs", attr.n_gids);
	refused(frl_query_gid(a.device, attr.n_gids, &gid), -ENOENT, number);
	refused(frl_query_gid(NULL, 0, &gid), -EINVAL, "device");
}
END_TEST

/* As many as it reports, and then no more; a.qp and a.mr are some of them. */
START_TEST(full)
{
	struct frl_qp_config config = { .max_send_wr = 1 };
	struct frl_device_attr attr;
	struct frl_mr *mr = NULL;
	struct frl_qp **qps;
	struct frl_mw **mws;
	uint32_t n;

	SOFTWARE_ONLY("hardware has too much room to fill it");
	open_end(&a, false, FRL_PROGRESS_INLINE);
	config.send_cq = config.recv_cq = a.cq;
	frl_device_query(a.device, &attr);
	qps = calloc(attr.max_qp, sizeof(struct frl_qp *));
	mws = calloc(attr.max_mw, sizeof(struct frl_mw *));
	ck_assert(qps && mws);
	for (n = 1; n < attr.max_qp; n++)
		ok(frl_qp_create(a.pd, &config, &qps[n]));
	refused(frl_qp_create(a.pd, &config, &qps[0]), -ENOSPC, "16382");
	while (n > 1)
		frl_qp_destroy(qps[--n]);
	for (n = 1; n < attr.max_mw; n++)
		ok(frl_mw_alloc(a.pd, &mws[n]));
	refused(frl_mw_alloc(a.pd, &mws[0]), -ENOSPC, "65536");
	refused(frl_reg_mr(a.pd, a.memory, 1, 0, &mr), -ENOSPC, "65536");
	ck_assert(!mr && !qps[0] && !mws[0]);
	while (n > 1)
		frl_mw_dealloc(mws[--n]);
	free(qps);
	free(mws);
}
END_TEST

START_TEST(query_queue_pair)
{
	struct frl_qp_attr attr, more = { .state = FRL_QPS_SQD };
	struct frl_device_attr device;

	start(false, FRL_PROGRESS_INLINE);
	frl_device_query(b.device, &device);
	frl_qp_query(a.qp, &attr);
	ck_assert_int_eq(attr.state, FRL_QPS_RTS);
	ck_assert_int_eq(attr.cur_state, FRL_QPS_RTS);
	ck_assert_uint_eq(attr.dest_qpn, frl_qp_num(b.qp));
	ck_assert_uint_eq(attr.max_rd_atomic, 16);
	ck_assert_uint_eq(attr.max_dest_rd_atomic, 16);
	ck_assert_uint_eq(attr.access_flags,
		FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_READ | FRL_ACCESS_REMOTE_ATOMIC);
	ck_assert_uint_eq(attr.port_num, 1);
	ck_assert_uint_eq(attr.path_mtu, device.path_mtu);
	ck_assert_uint_eq(attr.ah.sgid_index, 1);
	ck_assert_int_eq(memcmp(&attr.ah.dgid, &device.ip, sizeof(device.ip)), 0);
	ck_assert_uint_eq(attr.ah.hop_limit, 64);
	ck_assert(!attr.sq_draining);
	ok(frl_qp_modify(a.qp, &more, FRL_QP_STATE));
	more.timeout = 9;
	more.cur_state = FRL_QPS_RTS;
	refused(frl_qp_modify(a.qp, &more, FRL_QP_CUR_STATE), -EINVAL, "cur_state");
	refused(frl_qp_modify(a.qp, &more, FRL_QP_PATH_MTU), -EINVAL, "does not take");
	ok(frl_qp_modify(a.qp, &more, FRL_QP_TIMEOUT));
	frl_qp_query(a.qp, &attr);
	ck_assert_int_eq(attr.state, FRL_QPS_SQD);
	ck_assert_uint_eq(attr.timeout, 9);
	more.state = FRL_QPS_RTS;
	ok(frl_qp_modify(a.qp, &more, FRL_QP_STATE));
	more.state = FRL_QPS_RESET;
	refused(frl_qp_modify(a.qp, &more, FRL_QP_STATE | FRL_QP_TIMEOUT), -EINVAL, "only");
	ok(frl_qp_modify(a.qp, &more, FRL_QP_STATE));
	frl_qp_query(a.qp, &attr);
	ck_assert_int_eq(attr.state, FRL_QPS_RESET);
	ck_assert_uint_eq(attr.dest_qpn, 0);
}
END_TEST

/* The headers have the version of meson.build, and so does the library. */
START_TEST(version)
{
	char text[32];

	ck_assert_int_eq(frl_version(), FRL_VERSION);
	snprintf(text, sizeof(text), "%d.%d.%d", FRL_VERSION_MAJOR, FRL_VERSION_MINOR,
		FRL_VERSION_PATCH);
	ck_assert_str_eq(text, FERRULE_VERSION);
	ck_assert_int_eq(FRL_VERSION / 10000, FRL_VERSION_MAJOR);
}
END_TEST

TEST_MAIN(api_verbs)
{
	return run_rows(all_tests(NULL, close_ends));
}
