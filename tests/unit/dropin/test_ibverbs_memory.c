/* SPDX-License-Identifier: BSD-3-Clause */
/* The drop-in libibverbs: protection domains and memory regions. */
#include "tests/unit/dropin/ibverbs_fixture.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static enum ibv_wc_status write_to(uint64_t addr, uint32_t rkey)
{
	struct ibv_sge sge = sge_of(&a, 0, 8);
	struct ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, &sge);

	memset(a.memory, 0x77, 8);
	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = rkey;
	post(&a, &wr);
	return next_wc(&a).status;
}

START_TEST(members)
{
	struct ibv_mr *mr;

	open_ends(&(struct wants){ 0 });
	ck_assert_ptr_eq(a.mr->context, a.context);
	ck_assert_ptr_eq(a.mr->pd, a.pd);
	ck_assert_ptr_eq(a.mr->addr, a.memory);
	ck_assert_uint_eq(a.mr->length, MEMORY);
	ck_assert_uint_ne(a.mr->rkey, b.mr->rkey);
	mr = ibv_reg_mr(a.pd, a.memory, 8, 0);
	made(mr);
	refused(EBUSY, ibv_dealloc_pd(a.pd));
	ok(ibv_dereg_mr(mr));
	finish();
}
END_TEST

/* Hints are accepted, and flags that need support are refused. In <infiniband/verbs.h>, a constant
 * and a variable take two paths. */
START_LOOP_TEST(access_flags, 2)
{
	static const struct {
		int access, error;
	} rows[] = {
		{ 0, 0 },
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING, 0 },
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_HUGETLB, 0 },
		{ 1 << 29, 0 },
		{ IBV_ACCESS_REMOTE_READ, 0 },
		{ IBV_ACCESS_REMOTE_WRITE, EINVAL },
		{ IBV_ACCESS_REMOTE_ATOMIC, EINVAL },
		{ IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND, EOPNOTSUPP },
		{ 1 << 15, EINVAL },
	};
	struct ibv_mr *mr;

	open_ends(&(struct wants){ 0 });
	for (int i = 0; i < ROWS(rows); i++) {
		errno = 0;
		if (_i)
			mr = ibv_reg_mr_iova2(
				a.pd, a.memory, 64, (uintptr_t)a.memory, (unsigned)rows[i].access);
		else
			mr = ibv_reg_mr(a.pd, a.memory, 64, rows[i].access);
		ck_assert_msg(!mr == !!rows[i].error && (mr || errno == rows[i].error),
			"row %d: errno %d", i, errno);
		if (mr)
			ok(ibv_dereg_mr(mr));
	}
	mr = ibv_reg_mr(a.pd, a.memory, 64, IBV_ACCESS_LOCAL_WRITE);
	made(mr);
	ok(ibv_dereg_mr(mr));
	finish();
}
END_TEST

START_TEST(refused_ranges)
{
	open_ends(&(struct wants){ 0 });
	refused_null(EINVAL, ibv_reg_mr(a.pd, NULL, 64, IBV_ACCESS_LOCAL_WRITE));
	refused_null(EINVAL, ibv_reg_mr(a.pd, a.memory, 0, IBV_ACCESS_LOCAL_WRITE));
	refused_null(EINVAL, ibv_reg_mr(a.pd, a.memory, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE));
	/* Programs call so to learn whether the function works. */
	refused_null(EINVAL, ibv_reg_mr_iova2(NULL, NULL, 0, 0, 0));
	refused_null(EOPNOTSUPP, ibv_reg_dmabuf_mr(a.pd, 0, 4096, 0, -1, 0));
	finish();
}
END_TEST

/* The peer names places by the iova, and so do local elements. */
START_LOOP_TEST(translated, 4)
{
	const unsigned zero_based = RIGHTS | IBV_ACCESS_ZERO_BASED;
	uint64_t iova = _i == 0 ? UINT64_C(0x123456789abc0000) : 0;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_mr *mr;

	start(&(struct wants){ 0 });
	if (_i == 0)
		mr = ibv_reg_mr_iova(b.pd, b.memory + 4096, 4096, iova, RIGHTS);
	else if (_i == 1)
		mr = ibv_reg_mr(b.pd, b.memory + 4096, 4096, RIGHTS | IBV_ACCESS_ZERO_BASED);
	else if (_i == 2)
		mr = ibv_reg_mr_iova2(b.pd, b.memory + 4096, 4096, 0, RIGHTS);
	else
		mr = ibv_reg_mr_iova2(b.pd, b.memory + 4096, 4096, 8, zero_based);
	made(mr);
	ck_assert_ptr_eq(mr->addr, b.memory + 4096);
	ck_assert_int_eq(write_to(iova + 8, mr->rkey), IBV_WC_SUCCESS);
	ck_assert_uint_eq(b.memory[4096 + 8], 0x77);
	ck_assert_uint_eq(b.memory[4096 + 16], 0);
	sge = (struct ibv_sge){ iova + 8, 8, mr->lkey };
	wr = request(1, IBV_WR_RDMA_WRITE, &sge);
	aim(&wr, &a, 1024);
	post(&b, &wr);
	expect(&b, 1, IBV_WC_SUCCESS);
	ck_assert_uint_eq(a.memory[1024 + 7], 0x77);
	ck_assert_int_eq(write_to((uintptr_t)b.memory + 4096, mr->rkey), IBV_WC_REM_ACCESS_ERR);
	ok(ibv_dereg_mr(mr));
	finish();
}
END_TEST

START_TEST(registered_again)
{
	uint32_t rkey, lkey;

	start(&(struct wants){ 0 });
	rkey = b.mr->rkey;
	lkey = b.mr->lkey;
	ok(ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, b.memory + 4096, 4096, 0));
	ck_assert_uint_eq(b.mr->rkey, rkey);
	ck_assert_uint_eq(b.mr->lkey, lkey);
	ck_assert_ptr_eq(b.mr->addr, b.memory + 4096);
	ck_assert_uint_eq(b.mr->length, 4096);
	ck_assert_int_eq(write_to((uintptr_t)b.memory + 4096, rkey), IBV_WC_SUCCESS);
	ok(ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING));
	ck_assert_uint_eq(b.mr->rkey, rkey);
	ck_assert_int_eq(write_to((uintptr_t)b.memory + 4096, rkey), IBV_WC_REM_ACCESS_ERR);
	finish();
}
END_TEST

/* The region's new domain is not that of the queue pair. */
START_TEST(moved_to_other_domain)
{
	struct ibv_pd *pd;

	start(&(struct wants){ 0 });
	pd = ibv_alloc_pd(b.context);
	made(pd);
	ok(ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0));
	ck_assert_ptr_eq(b.mr->pd, pd);
	refused(EBUSY, ibv_dealloc_pd(pd));
	ck_assert_int_eq(write_to((uintptr_t)b.memory, b.mr->rkey), IBV_WC_REM_ACCESS_ERR);
	ok(ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_PD, b.pd, NULL, 0, 0));
	ok(ibv_dealloc_pd(pd));
	finish();
}
END_TEST

/* The region is as before. */
START_TEST(refused_changes)
{
	start(&(struct wants){ 0 });
	refused(IBV_REREG_MR_ERR_INPUT, ibv_rereg_mr(b.mr, 1 << 10, NULL, NULL, 0, 0));
	refused(IBV_REREG_MR_ERR_INPUT, ibv_rereg_mr(b.mr, 0, NULL, NULL, 0, 0));
	refused(IBV_REREG_MR_ERR_INPUT,
		ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0));
	refused(IBV_REREG_MR_ERR_INPUT,
		ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 8, 0));
	refused(IBV_REREG_MR_ERR_INPUT,
		ibv_rereg_mr(
			b.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_ON_DEMAND));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_ptr_eq(b.mr->pd, b.pd);
	ck_assert_int_eq(write_to((uintptr_t)b.memory, b.mr->rkey), IBV_WC_SUCCESS);
	finish();
}
END_TEST

/* A key of another domain is no key. */
START_TEST(other_domain)
{
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	start(&(struct wants){ 0 });
	pd = ibv_alloc_pd(b.context);
	made(pd);
	mr = ibv_reg_mr(pd, b.memory, 4096, RIGHTS);
	made(mr);
	ck_assert_int_eq(write_to((uintptr_t)b.memory, mr->rkey), IBV_WC_REM_ACCESS_ERR);
	ok(ibv_dereg_mr(mr));
	ok(ibv_dealloc_pd(pd));
	finish();
}
END_TEST

/* As with a NIC, unmapped memory of a region harms no process. Its key is no key any more. */
START_LOOP_TEST(unmapped, 3)
{
	enum { BYTES = 1 << 16 };
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_mr *mr;
	uint8_t *memory;

	start(&(struct wants){ 0 });
	memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(memory, MAP_FAILED);
	mr = ibv_reg_mr(b.pd, memory, BYTES, RIGHTS);
	made(mr);
	ck_assert_int_eq(write_to((uintptr_t)memory, mr->rkey), IBV_WC_SUCCESS);
	ck_assert_uint_eq(memory[0], 0x77);
	if (_i == 2) {
		/* A receive was posted before. */
		struct ibv_sge to = { (uintptr_t)memory, 64, mr->lkey };
		struct ibv_recv_wr recv = { .wr_id = 2, .sg_list = &to, .num_sge = 1 }, *bad;

		ok(ibv_post_recv(b.qp, &recv, &bad));
	}
	ok(munmap(memory, BYTES));
	sge = sge_of(&a, 0, 64);
	wr = request(1, IBV_WR_SEND, &sge);
	if (_i == 0) {
		ck_assert_int_eq(write_to((uintptr_t)memory, mr->rkey), IBV_WC_REM_ACCESS_ERR);
	} else if (_i == 1) {
		wr.opcode = IBV_WR_RDMA_READ;
		wr.wr.rdma.remote_addr = (uintptr_t)memory;
		wr.wr.rdma.rkey = mr->rkey;
		post(&a, &wr);
		expect(&a, 1, IBV_WC_REM_ACCESS_ERR);
	} else {
		post(&a, &wr);
		expect(&a, 1, IBV_WC_REM_OP_ERR);
		expect(&b, 2, IBV_WC_LOC_PROT_ERR);
	}
	ok(ibv_dereg_mr(mr));
	finish();
}
END_TEST

/* ---- domains of domains, and what is not supported */

START_TEST(parent_domain)
{
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_parent_domain_init_attr attr = { 0 };
	struct ibv_pd *parent;
	struct ibv_td *td;
	struct end end;

	start(&(struct wants){ 0 });
	td = ibv_alloc_td(b.context, &td_attr);
	made(td);
	attr.pd = b.pd;
	attr.td = td;
	parent = ibv_alloc_parent_domain(b.context, &attr);
	made(parent);
	refused(EBUSY, ibv_dealloc_pd(b.pd));
	/* Regions and queue pairs of either one work together. */
	end = b;
	end.pd = parent;
	destroy_qp(&b);
	b.qp = create_qp(&end, &(struct wants){ 0 });
	made(b.qp);
	ck_assert_ptr_eq(b.qp->pd, parent);
	ok(to_state(a.qp, IBV_QPS_RESET));
	connect_qps(a.qp, b.qp);
	ck_assert_int_eq(write_to((uintptr_t)b.memory, b.mr->rkey), IBV_WC_SUCCESS);
	destroy_qp(&b);
	ok(ibv_dealloc_pd(parent));
	ok(ibv_dealloc_td(td));
	attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	refused_null(EOPNOTSUPP, ibv_alloc_parent_domain(b.context, &attr));
	attr = (struct ibv_parent_domain_init_attr){ 0 };
	refused_null(EINVAL, ibv_alloc_parent_domain(b.context, &attr));
	finish();
}
END_TEST

/* A domain without other objects. */
START_TEST(parent_of_empty_domain)
{
	struct ibv_parent_domain_init_attr attr = { 0 };
	struct ibv_pd *parent;

	open_ends(&(struct wants){ 0 });
	attr.pd = ibv_alloc_pd(a.context);
	made(attr.pd);
	parent = ibv_alloc_parent_domain(a.context, &attr);
	made(parent);
	refused(EBUSY, ibv_dealloc_pd(attr.pd));
	ok(ibv_dealloc_pd(parent));
	ok(ibv_dealloc_pd(attr.pd));
	finish();
}
END_TEST

START_TEST(not_supported)
{
	struct ibv_alloc_dm_attr dm = { .length = 64 };
	struct ibv_xrcd_init_attr xrcd = { .fd = -1 };
	struct ibv_flow_attr flow = { .size = sizeof(flow), .port = 1 };
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct ibv_wq_init_attr wq = { .max_wr = 1, .max_sge = 1 };
	struct ibv_counters_init_attr counters = { 0 };
	struct ibv_qp_rate_limit_attr rate = { 0 };
	struct ibv_sge sge;
	struct ibv_ece ece;

	open_ends(&(struct wants){ 0 });
	sge = sge_of(&a, 0, 8);
	wq.pd = a.pd;
	wq.cq = a.cq;
	refused_null(EOPNOTSUPP, ibv_alloc_dm(a.context, &dm));
	refused_null(EOPNOTSUPP, ibv_alloc_null_mr(a.pd));
	refused_null(EOPNOTSUPP, ibv_open_xrcd(a.context, &xrcd));
	refused_null(EOPNOTSUPP, ibv_create_flow(a.qp, &flow));
	refused_null(EOPNOTSUPP, ibv_create_wq(a.context, &wq));
	refused_null(EOPNOTSUPP, ibv_create_counters(a.context, &counters));
	refused(EOPNOTSUPP, ibv_query_rt_values_ex(a.context, &values));
	refused(EOPNOTSUPP, ibv_modify_qp_rate_limit(a.qp, &rate));
	refused(EOPNOTSUPP, ibv_advise_mr(a.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
	refused(EOPNOTSUPP, ibv_query_ece(a.qp, &ece));
	refused(EOPNOTSUPP, ibv_set_ece(a.qp, &ece));
	ck_assert_int_eq(ibv_query_qp_data_in_order(a.qp, IBV_WR_RDMA_WRITE, 0), 0);
	finish();
}
END_TEST

TEST_FILE(ibverbs_memory)
