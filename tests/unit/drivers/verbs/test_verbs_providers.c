/* SPDX-License-Identifier: BSD-3-Clause */
/* Undocumented behaviour of providers of libibverbs, and devices that disappear without notice. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/mman.h>

#include "tests/fixtures/program.h"
#include "tests/fixtures/verbs_fixture.h"

/* The devices' provider. */
static uint32_t vendor_id;
static bool needs_inline_flag;

static void change(struct fake_verbs_device *device)
{
	device->attr.vendor_id = vendor_id;
	device->needs_inline_flag = needs_inline_flag;
}

static const struct verbs_wants changed = { .change = change };

/* ---- ibv_wr_*() */

static const struct {
	uint32_t vendor;
	bool has_good_wr;
} vendors[] = { { 0x02c9, true }, { 0x19e5, true }, { 0x14e4, false }, { 0, false } };

START_LOOP_TEST(vendor, ROWS(vendors))
{
	struct frl_sge sge;
	struct fake_verbs_stats stats;

	vendor_id = vendors[_i].vendor;
	verbs_setup(&changed);
	sge = verbs_sge(one, 0, 8);
	ck_assert_int_eq(verbs_send(one, FRL_WR_RDMA_WRITE, &sge, (uintptr_t)two->memory,
				 frl_mr_rkey(two->mr)),
		1);
	verbs_expect(one, FRL_WC_SUCCESS);
	fake_verbs_stats(&stats);
	ck_assert_uint_eq(stats.posted, 1);
	ck_assert_uint_eq(stats.wr_api, vendors[_i].has_good_wr);
}
END_TEST

START_TEST(inline_flag)
{
	struct frl_send_wr wr = { .opcode = FRL_WR_RDMA_WRITE,
		.flags = FRL_SEND_INLINE | FRL_SEND_SIGNALED,
		.n_sge = 1 };
	struct fake_verbs_stats stats;
	struct frl_sge sge;

	vendor_id = FAKE_VERBS_VENDOR;
	needs_inline_flag = true;
	verbs_setup(&changed);
	sge = verbs_sge(one, 0, 8);
	wr.sge = &sge;
	wr.remote_addr = (uintptr_t)two->memory;
	wr.rkey = frl_mr_rkey(two->mr);
	ck_assert_int_eq(frl_post_send(one->qp, &wr, 1, NULL), 1);
	verbs_expect(one, FRL_WC_SUCCESS);
	fake_verbs_stats(&stats);
	ck_assert_uint_eq(stats.inlined, 1);
	ck_assert_uint_eq(stats.wr_api, 1);
}
END_TEST

/* ---- changes of regions */

static int give_rights(uint32_t access)
{
	return frl_rereg_mr(one->mr, FRL_REREG_ACCESS, NULL, NULL, 0, access);
}

/* Its result tells which of the two regions exists. */
START_LOOP_TEST(changed_region, 2)
{
	const uint32_t access = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_READ;

	verbs_setup(&defaults);
	fake_verbs_fail("ibv_rereg_mr", 1, IBV_REREG_MR_ERR_DO_FORK_OLD);
	verbs_ok(give_rights(access));
	ck_assert_uint_eq(fake_verbs_mr_access("one", frl_mr_lkey(one->mr)), access);
	ck_assert_str_ne(verbs_logged("forked"), "");
	fake_verbs_fail("ibv_rereg_mr", 1, IBV_REREG_MR_ERR_DONT_FORK_NEW);
	verbs_refused(give_rights(0), -ENOMEM, "cannot change");
	fake_verbs_fail("ibv_rereg_mr", 1, EOPNOTSUPP);
	verbs_refused(give_rights(0), -ENOTSUP, "register it again");
	verbs_ok(give_rights(access));
	fake_verbs_fail("ibv_rereg_mr", 1, _i ? IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW : ENOMEM);
	verbs_refused(give_rights(0), -ENOMEM, "is unusable");
	verbs_refused(give_rights(access), -EIO, "deregister it");
}
END_TEST

/* A hint, with dma-bufs as well. */
START_LOOP_TEST(relaxed_dmabuf, 2)
{
	int fd = memfd_create("dmabuf", MFD_CLOEXEC);
	struct frl_mr *mr;

	ck_assert_int_eq(ftruncate(fd, 4096), 0);
	verbs_setup(&defaults);
	if (_i)
		fake_verbs_fail("ibv_reg_dmabuf_mr", 1, EINVAL);
	verbs_ok(frl_reg_dmabuf_mr(one->pd, fd, 0, 4096, 0x4000, FRL_ACCESS_LOCAL_WRITE, &mr));
	ck_assert_int_eq(
		!!(fake_verbs_mr_access("one", frl_mr_lkey(mr)) & IBV_ACCESS_RELAXED_ORDERING),
		!_i);
	verbs_ok(frl_dereg_mr(mr));
	close(fd);
}
END_TEST

/* ---- what cannot be destroyed, and who is gone */

static const char *const destroyers[] = { "ibv_destroy_qp", "ibv_destroy_srq", "ibv_destroy_ah",
	"ibv_dealloc_mw" };

/* It holds its domain, whose owner can destroy it all the same. */
START_LOOP_TEST(left, ROWS(destroyers))
{
	const struct verbs_wants wants = { .has_srq = true };
	struct frl_ah_attr attr = { .sgid_index = 1 };
	struct frl_gid gid;
	struct frl_mw *mw;
	struct frl_ah *ah;
	struct frl_pd *pd;

	verbs_setup(&wants);
	verbs_ok(frl_query_gid(two->device, 1, &gid));
	attr.dgid = gid.ip;
	verbs_ok(frl_ah_create(one->pd, &attr, &ah));
	verbs_ok(frl_mw_alloc(one->pd, &mw));
	fake_verbs_fail(destroyers[_i], 1, EINVAL);
	frl_ah_destroy(ah);
	frl_mw_dealloc(mw);
	verbs_drop_end(one);
	ck_assert_str_ne(verbs_logged("cannot"), "");
	/* An unrelated error is reported. */
	verbs_ok(frl_pd_create(two->device, &pd));
	fake_verbs_fail("ibv_dealloc_pd", 1, EBUSY);
	ck_assert_int_eq(frl_pd_destroy(pd), -EBUSY);
	verbs_ok(frl_pd_destroy(pd));
	verbs_drop_end(two);
	fake_verbs_reset();
}
END_TEST

/* The kernel need not say so. */
START_TEST(pulled_out)
{
	struct frl_wc wc;

	verbs_setup(&defaults);
	fake_verbs_pull_out("one");
	verbs_event(one, FRL_EVENT_QP_FATAL);
	verbs_event(one, FRL_EVENT_DEVICE_FATAL);
	ck_assert_int_eq(frl_poll_cq(one->cq, 1, &wc), -EIO);
}
END_TEST

/* Nobody polls such a queue empty; and closing the device closes it without a request. */
START_TEST(full_and_gone)
{
	struct frl_recv_wr receive = { 0 };
	struct frl_sge sge;

	verbs_setup(&defaults);
	sge = verbs_sge(one, 0, 8);
	fake_verbs_fail("ibv_wr_complete", 1, ENOMEM);
	verbs_refused(verbs_send(one, FRL_WR_SEND, &sge, 0, 0), -ENOMEM, "queue is full");
	fake_verbs_raise("one", IBV_EVENT_DEVICE_FATAL, 1);
	verbs_event(one, FRL_EVENT_QP_FATAL);
	verbs_event(one, FRL_EVENT_DEVICE_FATAL);
	fake_verbs_fail("ibv_wr_complete", 1, ENOMEM);
	verbs_refused(verbs_send(one, FRL_WR_SEND, &sge, 0, 0), -EIO, "dmesg");
	fake_verbs_fail("ibv_post_recv", 1, ENOMEM);
	verbs_refused(frl_post_recv(one->qp, &receive, 1, NULL), -EIO, "dmesg");
	verbs_logged("");
	fake_verbs_fail("ibv_destroy_qp", 1, EIO);
	fake_verbs_fail("ibv_destroy_cq", 1, EIO);
	verbs_drop_end(one);
	ck_assert_str_eq(verbs_logged("cannot destroy"), "");
	verbs_drop_end(two);
	fake_verbs_reset();
}
END_TEST

TEST_MAIN(verbs_providers)
{
	return run_suite_unforked(all_tests(NULL, verbs_teardown));
}
