/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions that may lose their memory (FRL_ACCESS_MAY_UNMAP): requests and peers that use them fail,
 * and the process goes on.
 */
#include "tests/unit/api/memory/unmap_fixture.h"

enum { INLINE = 32 };

static void expect_flushed(struct end *end, uint64_t wr_id)
{
	expect(end, wr_id, FRL_WC_WR_FLUSH_ERR);
}

/* ---- what the local end names */

static const struct {
	enum frl_wr_opcode opcode;
	uint32_t length;
} sources[] = {
	{ FRL_WR_SEND, 8 },
	{ FRL_WR_SEND, MESSAGE },
	{ FRL_WR_RDMA_WRITE, 8 },
	{ FRL_WR_RDMA_WRITE, MESSAGE },
	{ FRL_WR_RDMA_WRITE_WITH_IMM, PAGE + 1 },
};

/* Unmapped before the request is posted. */
START_LOOP_TEST(source, PAIRS(ROWS(sources), N_WATCHING))
{
	uint32_t row = (uint32_t)_i / N_WATCHING;
	enum watching watching = _i % N_WATCHING;
	struct frl_sge sge;
	struct frl_send_wr wr;
	int posted;

	start(false, FRL_PROGRESS_INLINE);
	post_recv(1, 0, MEMORY, false);
	make_target(&a, watching);
	sge = target_sge(sources[row].length);
	wr = send_wr(2, sources[row].opcode, &sge);
	unmap_target();
	if (is_watched(watching)) {
		ck_assert_int_eq(frl_post_send(a.qp, &wr, 1, &posted), -EINVAL);
		ck_assert_ptr_nonnull(strstr(frl_last_error(), "unmapped"));
		/* The queue pair is not affected. */
		sge = sge_of(&a, 0, 8);
		post_send(&wr);
		expect(&a, 2, FRL_WC_SUCCESS);
	} else {
		post_send(&wr);
		expect(&a, 2, FRL_WC_LOC_PROT_ERR);
		/* Now it is known. */
		refused(frl_rereg_mr(target.mr, FRL_REREG_ACCESS, NULL, NULL, 0, 1 << 30), -EINVAL,
			"access");
		wr.wr_id = 3;
		post_send(&wr);
		expect_flushed(&a, 3);
	}
	end_target();
}
END_TEST

/* Unmapped while requests wait. Requests that were sent succeed, one fails, the rest is flushed. */
START_LOOP_TEST(source_of_waiting_requests, PAIRS(2, N_WATCHING))
{
	enum frl_wc_status last = FRL_WC_SUCCESS;
	struct frl_send_wr wr;
	struct frl_sge sge;

	start(false, FRL_PROGRESS_INLINE);
	make_target(&a, _i % N_WATCHING);
	sge = target_sge(SIZE);
	for (uint64_t i = 0; i < DEPTH; i++) {
		wr = send_wr(i, FRL_WR_RDMA_WRITE, &sge);
		wr.flags |= i && _i / N_WATCHING ? FRL_SEND_FENCE : 0;
		post_send(&wr);
	}
	unmap_target();
	for (uint64_t i = 0; i < DEPTH; i++) {
		struct frl_wc wc;

		ck_assert_int_eq(poll_both(&a, &wc), 1);
		ck_assert_uint_eq(wc.wr_id, i);
		if (last == FRL_WC_SUCCESS)
			ck_assert_msg(
				wc.status == FRL_WC_SUCCESS || wc.status == FRL_WC_LOC_PROT_ERR,
				"%s", frl_wc_status_str(wc.status));
		else
			ck_assert_int_eq(wc.status, FRL_WC_WR_FLUSH_ERR);
		last = wc.status;
	}
	ck_assert_int_eq(last, FRL_WC_WR_FLUSH_ERR);
	end_target();
}
END_TEST

static const struct {
	enum frl_wr_opcode opcode;
	uint32_t length;
} results[] = {
	{ FRL_WR_RDMA_READ, 8 },
	{ FRL_WR_RDMA_READ, MESSAGE },
	{ FRL_WR_ATOMIC_FETCH_AND_ADD, 8 },
	{ FRL_WR_ATOMIC_CMP_AND_SWP, 8 },
};

/* Unmapped before the response arrives. */
START_LOOP_TEST(result, PAIRS(ROWS(results), N_WATCHING))
{
	uint32_t row = (uint32_t)_i / N_WATCHING;
	struct frl_sge sge;
	struct frl_send_wr wr;

	start(false, FRL_PROGRESS_INLINE);
	make_target(&a, _i % N_WATCHING);
	sge = target_sge(results[row].length);
	wr = send_wr(2, results[row].opcode, &sge);
	post_send(&wr);
	unmap_target();
	expect(&a, 2, FRL_WC_LOC_PROT_ERR);
	end_target();
}
END_TEST

/* The payload was copied when the request was posted, and the key does not matter. */
START_LOOP_TEST(inline_payload, N_WATCHING)
{
	char text[INLINE] = "copied at once";
	struct frl_sge sge;
	struct frl_send_wr wr;

	start(false, FRL_PROGRESS_INLINE);
	make_target(&a, _i);
	unmap_target();
	sge = (struct frl_sge){ text, INLINE, frl_mr_lkey(target.mr) };
	wr = send_wr(2, FRL_WR_RDMA_WRITE, &sge);
	wr.flags |= FRL_SEND_INLINE;
	post_send(&wr);
	expect(&a, 2, FRL_WC_SUCCESS);
	ck_assert_str_eq((char *)b.memory, text);
	end_target();
}
END_TEST

/* ---- what the peer names */

static const struct {
	enum frl_wr_opcode opcode;
	uint32_t length;
	bool takes_recv;
} remotes[] = {
	{ FRL_WR_RDMA_WRITE, 8, false },
	{ FRL_WR_RDMA_WRITE, MESSAGE, false },
	{ FRL_WR_RDMA_WRITE_WITH_IMM, 8, true },
	{ FRL_WR_RDMA_WRITE_WITH_IMM, MESSAGE, false },
	{ FRL_WR_RDMA_READ, 8, false },
	{ FRL_WR_RDMA_READ, MESSAGE, false },
	{ FRL_WR_ATOMIC_FETCH_AND_ADD, 8, false },
	{ FRL_WR_ATOMIC_CMP_AND_SWP, 8, false },
};

START_LOOP_TEST(remote, PAIRS(ROWS(remotes), N_WATCHING))
{
	uint32_t row = (uint32_t)_i / N_WATCHING;
	struct frl_sge sge;
	struct frl_send_wr wr;

	start(false, FRL_PROGRESS_INLINE);
	post_recv(1, 0, MEMORY, false);
	make_target(&b, _i % N_WATCHING);
	sge = sge_of(&a, 0, remotes[row].length);
	wr = send_wr(2, remotes[row].opcode, &sge);
	wr.remote_addr = (uintptr_t)target.memory;
	wr.rkey = frl_mr_rkey(target.mr);
	unmap_target();
	post_send(&wr);
	expect(&a, 2, FRL_WC_REM_ACCESS_ERR);
	expect(&b, 1, remotes[row].takes_recv ? FRL_WC_REM_ACCESS_ERR : FRL_WC_WR_FLUSH_ERR);
	end_target();
}
END_TEST

/* The READ was accepted, and some of its responses are sent. */
START_LOOP_TEST(remote_read_in_the_middle, N_WATCHING)
{
	struct frl_send_wr wr;
	struct frl_sge sge;

	start(false, FRL_PROGRESS_INLINE);
	make_target(&b, _i);
	sge = sge_of(&a, 0, SIZE);
	wr = send_wr(0, FRL_WR_RDMA_READ, &sge);
	wr.remote_addr = (uintptr_t)target.memory;
	wr.rkey = frl_mr_rkey(target.mr);
	for (int i = 0; i < DEPTH; i++) {
		wr.wr_id = (uint64_t)i;
		post_send(&wr);
	}
	frl_progress(b.device);
	unmap_target();
	for (int i = 0;; i++) {
		struct frl_wc wc;

		ck_assert_int_lt(i, DEPTH);
		ck_assert_int_eq(poll_both(&a, &wc), 1);
		ck_assert_uint_eq(wc.wr_id, i);
		if (wc.status == FRL_WC_REM_ACCESS_ERR)
			break;
		ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
	}
	end_target();
}
END_TEST

START_LOOP_TEST(remote_window, N_WATCHING)
{
	struct frl_send_wr wr = { .opcode = FRL_WR_BIND_MW, .flags = FRL_SEND_SIGNALED };
	struct frl_sge sge;
	struct frl_mw *mw;

	start(false, FRL_PROGRESS_INLINE);
	make_target(&b, _i);
	ok(frl_mw_alloc(b.pd, &mw));
	wr.bind = (struct frl_mw_bind){ mw, target.mr, (uintptr_t)target.memory, 64,
		frl_inc_rkey(frl_mw_rkey(mw)), FRL_ACCESS_REMOTE_WRITE };
	post_on(b.qp, &wr);
	expect(&b, 0, FRL_WC_SUCCESS);
	unmap_target();
	sge = sge_of(&a, 0, 64);
	wr = send_wr(2, FRL_WR_RDMA_WRITE, &sge);
	wr.remote_addr = (uintptr_t)target.memory;
	wr.rkey = frl_mw_rkey(mw);
	post_send(&wr);
	expect(&a, 2, FRL_WC_REM_ACCESS_ERR);
	frl_mw_dealloc(mw);
	end_target();
}
END_TEST

/* ---- receives */

START_LOOP_TEST(receive, PAIRS(2, N_WATCHING))
{
	uint32_t length = _i / N_WATCHING ? MESSAGE : 8;
	struct frl_recv_wr recv = { .wr_id = 1, .n_sge = 1 };
	struct frl_sge sge;
	struct frl_send_wr wr;

	start(false, FRL_PROGRESS_INLINE);
	make_target(&b, _i % N_WATCHING);
	sge = target_sge(SIZE);
	recv.sge = &sge;
	ck_assert_int_eq(frl_post_recv(b.qp, &recv, 1, NULL), 1);
	unmap_target();
	sge = sge_of(&a, 0, length);
	wr = send_wr(2, FRL_WR_SEND, &sge);
	post_send(&wr);
	expect(&a, 2, FRL_WC_REM_OP_ERR);
	ck_assert_uint_eq(expect(&b, 1, FRL_WC_LOC_PROT_ERR).byte_len, 0);
	end_target();
}
END_TEST

START_LOOP_TEST(receive_of_shared_queue, N_WATCHING)
{
	struct frl_srq_config queue = { .max_wr = DEPTH, .max_sge = 1 };
	struct frl_recv_wr recv = { .wr_id = 1, .n_sge = 1 };
	struct frl_qp_config config = { .max_send_wr = DEPTH };
	struct frl_send_wr wr;
	struct frl_srq *srq;
	struct frl_sge sge;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	frl_qp_destroy(b.qp);
	ok(frl_srq_create(b.pd, &queue, &srq));
	config.send_cq = config.recv_cq = b.cq;
	config.srq = srq;
	ok(frl_qp_create(b.pd, &config, &b.qp));
	ok(frl_qp_endpoint(b.qp, &b.mine));
	connect_both();
	make_target(&b, _i);
	sge = target_sge(SIZE);
	recv.sge = &sge;
	ck_assert_int_eq(frl_post_srq_recv(srq, &recv, 1, NULL), 1);
	unmap_target();
	sge = sge_of(&a, 0, MESSAGE);
	wr = send_wr(2, FRL_WR_SEND, &sge);
	post_send(&wr);
	expect(&a, 2, FRL_WC_REM_OP_ERR);
	expect(&b, 1, FRL_WC_LOC_PROT_ERR);
	end_target();
	frl_qp_destroy(b.qp);
	b.qp = NULL;
	ok(frl_srq_destroy(srq));
}
END_TEST

/* ---- datagrams, between two queue pairs of a device */

static struct frl_ah *make_ah(void)
{
	struct frl_device_attr device;
	struct frl_ah_attr attr = { .sgid_index = 1, .hop_limit = 1 };
	struct frl_ah *ah;

	frl_device_query(a.device, &device);
	attr.dgid = device.ip;
	ok(frl_ah_create(a.pd, &attr, &ah));
	return ah;
}

START_LOOP_TEST(datagram, PAIRS(2, N_WATCHING))
{
	bool is_source = _i / N_WATCHING;
	struct frl_recv_wr recv = { .wr_id = 1, .n_sge = 1 };
	struct frl_qp *from, *to;
	struct frl_sge mine, theirs;
	struct frl_send_wr wr;
	struct frl_ah *ah;
	int posted;

	start(false, FRL_PROGRESS_INLINE);
	from = add_datagram_qp(&a, FRL_QPT_UD, 5);
	to = add_datagram_qp(&a, FRL_QPT_UD, 5);
	ah = make_ah();
	make_target(&a, _i % N_WATCHING);
	mine = is_source ? target_sge(1000) : sge_of(&a, 0, 1000);
	theirs = is_source ? sge_of(&a, 0, 2000) : target_sge(2000);
	recv.sge = &theirs;
	ck_assert_int_eq(frl_post_recv(to, &recv, 1, NULL), 1);
	unmap_target();
	wr = send_wr(2, FRL_WR_SEND, &mine);
	wr.ah = ah;
	wr.remote_qpn = frl_qp_num(to);
	wr.remote_qkey = 5;
	if (is_source && is_watched(_i % N_WATCHING)) {
		ck_assert_int_eq(frl_post_send(from, &wr, 1, &posted), -EINVAL);
	} else {
		post_on(from, &wr);
		if (!is_source) {
			struct frl_wc wc;

			for (int i = 0; i < 2; i++) {
				ck_assert_int_eq(poll_both(&a, &wc), 1);
				ck_assert_int_eq(wc.status,
					wc.wr_id == 1 ? FRL_WC_LOC_PROT_ERR : FRL_WC_SUCCESS);
			}
		} else {
			next_wc(&a, 2, FRL_WC_LOC_PROT_ERR);
		}
	}
	frl_qp_destroy(from);
	frl_qp_destroy(to);
	frl_ah_destroy(ah);
	end_target();
}
END_TEST

/* ---- what makes memory gone, and what does not */

static int discard(void)
{
	return madvise(target.memory + PAGE, PAGE, MADV_DONTNEED);
}

static int unmap_last_page(void)
{
	return munmap(target.memory + SIZE - PAGE, PAGE);
}

static int unmap_all(void)
{
	return munmap(target.memory, SIZE);
}

static int move_away(void)
{
	void *to = mremap(target.memory, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, map_at(NULL));

	return to == MAP_FAILED ? -1 : munmap(to, SIZE);
}

static int shrink(void)
{
	return mremap(target.memory, SIZE, SIZE / 2, 0) == MAP_FAILED;
}

static int map_over(void)
{
	map_at(target.memory);
	return 0;
}

static const struct {
	int (*change)(void);
	bool is_gone;
} changes[] = {
	{ discard, false },
	{ unmap_last_page, true },
	{ unmap_all, true },
	{ move_away, true },
	{ shrink, true },
	{ map_over, true },
};

/* The first page is used in each row: a region is gone as a whole. */
START_LOOP_TEST(change, ROWS(changes))
{
	bool is_gone = changes[_i].is_gone;
	struct frl_sge sge;
	struct frl_send_wr wr;

	if (!is_watched(WATCHED))
		return;
	start(false, FRL_PROGRESS_INLINE);
	make_target(&b, WATCHED);
	ck_assert_int_eq(changes[_i].change(), 0);
	sge = sge_of(&a, 0, 2 * PAGE);
	wr = send_wr(2, FRL_WR_RDMA_WRITE, &sge);
	wr.remote_addr = (uintptr_t)target.memory;
	wr.rkey = frl_mr_rkey(target.mr);
	post_send(&wr);
	expect(&a, 2, is_gone ? FRL_WC_REM_ACCESS_ERR : FRL_WC_SUCCESS);
	if (!is_gone)
		ck_assert_mem_eq(target.memory, a.memory, 2 * PAGE);
	end_target();
}
END_TEST

/* A new region of the same addresses is not affected, nor are its neighbours. */
START_LOOP_TEST(other_regions, N_WATCHING)
{
	struct frl_mr *gone, *next;
	struct frl_sge sge;

	start(false, FRL_PROGRESS_INLINE);
	make_target(&a, _i);
	gone = target.mr;
	ok(frl_reg_mr(a.pd, target.memory + 8 * PAGE, PAGE, FLAGGED, &next));
	reserve(PAGE);
	sge = (struct frl_sge){ target.memory + 8 * PAGE, PAGE, frl_mr_lkey(next) };
	for (uint64_t i = 1; i <= 2; i++) {
		struct frl_send_wr wr = send_wr(i, FRL_WR_RDMA_WRITE, &sge);

		post_send(&wr);
		expect(&a, i, FRL_WC_SUCCESS);
		if (i == 2)
			break;
		/* The next round uses the memory that is mapped in place of it. */
		ok(frl_dereg_mr(next));
		map_at(target.memory);
		ok(frl_reg_mr(a.pd, target.memory, SIZE, FLAGGED, &next));
		sge = (struct frl_sge){ target.memory, PAGE, frl_mr_lkey(next) };
	}
	ok(frl_dereg_mr(next));
	target.mr = gone;
	target.is_reserved = true;
	end_target();
}
END_TEST

/* Other memory makes a region usable again. */
START_LOOP_TEST(reregistration, N_WATCHING)
{
	struct frl_sge sge;
	struct frl_send_wr wr;

	start(false, FRL_PROGRESS_INLINE);
	make_target(&a, _i);
	unmap_target();
	target.memory = map_at(NULL);
	ok(frl_rereg_mr(target.mr, FRL_REREG_TRANSLATION, NULL, target.memory, SIZE, 0));
	sge = target_sge(SIZE);
	wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);
	post_send(&wr);
	expect(&a, 1, FRL_WC_SUCCESS);
	unmap_target();
	wr = send_wr(2, FRL_WR_RDMA_READ, &sge);
	if (is_watched(WATCHED)) {
		ck_assert_int_eq(frl_post_send(a.qp, &wr, 1, NULL), -EINVAL);
		ok(frl_rereg_mr(target.mr, FRL_REREG_ACCESS, NULL, NULL, 0, ALL_ACCESS));
	}
	end_target();
}
END_TEST

/* The region keeps its memory, and the watch of it. */
START_TEST(failed_reregistration)
{
	struct frl_send_wr wr = { .opcode = FRL_WR_BIND_MW, .flags = FRL_SEND_SIGNALED };
	struct frl_sge sge;
	struct frl_mw *mw;
	void *other;

	if (!is_watched(WATCHED))
		return;
	start(false, FRL_PROGRESS_INLINE);
	make_target(&a, WATCHED);
	ok(frl_mw_alloc(a.pd, &mw));
	wr.bind = (struct frl_mw_bind){ mw, target.mr, (uintptr_t)target.memory, 64,
		frl_inc_rkey(frl_mw_rkey(mw)), FRL_ACCESS_REMOTE_WRITE };
	post_send(&wr);
	expect(&a, 0, FRL_WC_SUCCESS);
	other = map_at(NULL);
	refused(frl_rereg_mr(target.mr, FRL_REREG_TRANSLATION, NULL, other, SIZE, 0), -EBUSY,
		"windows");
	munmap(other, SIZE);
	sge = target_sge(8);
	wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);
	post_send(&wr);
	expect(&a, 1, FRL_WC_SUCCESS);
	unmap_target();
	ck_assert_int_eq(frl_post_send(a.qp, &wr, 1, NULL), -EINVAL);
	frl_mw_dealloc(mw);
	end_target();
}
END_TEST

TEST_MAIN(api_unmap)
{
	if (test_port()) {
		printf("skipped: a NIC pins the memory\n");
		return TEST_SKIPPED;
	}
	return run_rows(all_tests(NULL, close_ends));
}
