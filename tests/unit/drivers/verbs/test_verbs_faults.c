/* SPDX-License-Identifier: BSD-3-Clause */
/* Every call of libibverbs fails once, in turn: nothing leaks, and the result is a negative errno
 * with a text. And the texts that name a cause and a remedy. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "tests/fixtures/program.h"
#include "tests/fixtures/verbs_fixture.h"

/* ---- everything that can be made, used and taken away */

struct extras {
	struct frl_mw *mw;
	struct frl_ah *ah;
	struct frl_srq *srq;
};

static int make_extras(struct verbs_end *end, struct extras *extras)
{
	const struct frl_srq_config limited = { .max_wr = 8, .limit = 2 };
	struct frl_ah_attr attr = { .sgid_index = 1 };
	struct frl_gid gid;
	int rc = frl_mw_alloc(end->pd, &extras->mw);

	if (!rc)
		rc = frl_srq_create(end->pd, &limited, &extras->srq);
	if (!rc)
		rc = frl_query_gid(end->device, 1, &gid);
	attr.dgid = gid.ip;
	if (!rc)
		rc = frl_ah_create(end->pd, &attr, &extras->ah);
	if (!rc)
		rc = frl_cq_resize(end->cq, 64);
	if (!rc && end->srq)
		rc = frl_srq_set_limit(end->srq, 3);
	if (!rc)
		rc = frl_rereg_mr(end->mr, FRL_REREG_ACCESS, NULL, NULL, 0,
			FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE);
	return rc;
}

static int use(struct verbs_end *from, struct verbs_end *to)
{
	struct frl_sge sge = verbs_sge(from, 0, 64);
	struct frl_qp_attr attr;
	struct frl_wc wc;
	int rc = verbs_send(
		from, FRL_WR_RDMA_WRITE, &sge, (uintptr_t)to->memory, frl_mr_rkey(to->mr));

	if (rc == 1)
		rc = frl_cq_wait(from->cq, 1, &wc, HANG_MS);
	frl_qp_query(from->qp, &attr);
	if (rc == 1 && wc.status != FRL_WC_SUCCESS)
		return -EIO; /* the sentence is the queue pair's */
	return rc < 0 ? rc : 0;
}

static int run(const struct verbs_wants *wants, struct extras *extras)
{
	struct frl_device_info *infos;
	size_t n;
	int rc = frl_device_list(&infos, &n);

	if (rc)
		return rc;
	frl_device_list_free(infos);
	for (int i = 0; i < 2 && !rc; i++)
		rc = verbs_make_end(&ends[i], wants);
	for (int i = 0; i < 2 && !rc; i++)
		rc = verbs_connect(&ends[i], &ends[1 - i], wants);
	if (!rc)
		rc = use(one, two);
	return rc ? rc : make_extras(one, extras);
}

static void drop(struct extras *extras)
{
	frl_mw_dealloc(extras->mw);
	frl_ah_destroy(extras->ah);
	verbs_ok(frl_srq_destroy(extras->srq));
	for (int i = 0; i < 2; i++)
		verbs_drop_end(&ends[i]);
}

static const int errors[] = { ENOMEM, EINVAL, EIO, EOPNOTSUPP, EPERM };

/* Any failure while objects are made is reported, or is not needed. */
START_LOOP_TEST(each_call, 2 * ROWS(errors))
{
	const struct verbs_wants wants = { .has_srq = true, .is_plain = _i % 2 };
	int err = errors[_i / 2];

	for (int n = 1;; n++) {
		struct extras extras = { 0 };
		const char *failed;
		int rc;

		verbs_plug_ends(&wants);
		frl_strerror(0);
		fake_verbs_fail_nth_made(n, err);
		rc = run(&wants, &extras);
		failed = fake_verbs_failed();
		ck_assert_msg(rc <= 0 && (rc == 0 || *frl_last_error()), "%s: %d", failed, rc);
		/* Posting fails with the queue pair's state only. */
		ck_assert_msg(rc == 0 || failed, "%d: %s", rc, frl_last_error());
		fake_verbs_fail_nth_made(0, 0);
		drop(&extras);
		ck_assert_msg(!*fake_verbs_leaks(), "after %s (call %d, %s): %s", failed, n,
			strerror(err), fake_verbs_leaks());
		if (!failed) {
			verbs_ok(rc);
			ck_assert_int_gt(n, 30);
			break;
		}
	}
}
END_TEST

/* Failures of destruction are logged, and nothing hangs or crashes: not even with an event of an
 * object that could not be destroyed. */
START_LOOP_TEST(each_destruction, 7)
{
	static const char *const functions[] = { "ibv_destroy_qp", "ibv_destroy_cq",
		"ibv_destroy_srq", "ibv_destroy_comp_channel", "ibv_destroy_ah", "ibv_dealloc_mw",
		"ibv_close_device" };
	const struct verbs_wants wants = { .has_srq = true };
	struct extras extras = { 0 };
	struct frl_async_event event;
	uint32_t num;

	verbs_plug_ends(&wants);
	verbs_ok(run(&wants, &extras));
	num = frl_qp_num(one->qp);
	fake_verbs_fail(functions[_i], 1, EIO);
	frl_mw_dealloc(extras.mw);
	frl_ah_destroy(extras.ah);
	verbs_ok(frl_srq_destroy(extras.srq));
	frl_qp_destroy(one->qp);
	one->qp = NULL;
	fake_verbs_raise_qp("one", num, IBV_EVENT_QP_FATAL);
	verbs_ok(frl_srq_destroy(one->srq));
	one->srq = NULL;
	verbs_ok(frl_cq_destroy(one->cq));
	one->cq = NULL;
	verbs_ok(frl_comp_channel_destroy(one->channel));
	one->channel = NULL;
	if (_i < 6)
		ck_assert_str_ne(verbs_logged("cannot"), "");
	/* The rest goes with the device. */
	fake_verbs_raise("one", IBV_EVENT_DEVICE_FATAL, 1);
	do
		verbs_ok(frl_get_async_event(one->device, HANG_MS, &event));
	while (event.type != FRL_EVENT_DEVICE_FATAL);
	for (int i = 0; i < 2; i++)
		verbs_drop_end(&ends[i]);
	if (_i == 6)
		ck_assert_str_ne(verbs_logged("cannot close"), "");
	fake_verbs_reset();
}
END_TEST

/* ---- sentences */

/* For this thread. Returns false if it has no such capability. */
static bool set_ipc_lock(bool is_on)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	uint32_t mask = CAP_TO_MASK(CAP_IPC_LOCK);

	ck_assert_int_eq(syscall(SYS_capget, &header, data), 0);
	if (!(data[CAP_TO_INDEX(CAP_IPC_LOCK)].permitted & mask))
		return false;
	data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~mask;
	data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective |= is_on ? mask : 0;
	ck_assert_int_eq(syscall(SYS_capset, &header, data), 0);
	return true;
}

static int register_without_memory(void)
{
	struct frl_mr *mr;
	int rc;

	fake_verbs_fail("ibv_reg_mr", 1, ENOMEM);
	fake_verbs_fail("ibv_reg_mr_iova2", 1, ENOMEM);
	rc = frl_reg_mr(one->pd, one->memory, 100, VERBS_ACCESS, &mr);
	fake_verbs_fail("ibv_reg_mr", 0, 0);
	fake_verbs_fail("ibv_reg_mr_iova2", 0, 0);
	return rc;
}

/* A limit is named if there is one, for a user who may not exceed it. */
static void check_no_memory(void)
{
	struct rlimit before, small = { .rlim_cur = 64 * 1024 };
	bool has_right;
	int rc;

	getrlimit(RLIMIT_MEMLOCK, &before);
	small.rlim_max = before.rlim_max;
	setrlimit(RLIMIT_MEMLOCK, &small);
	has_right = set_ipc_lock(false);
	rc = register_without_memory();
	verbs_refused(rc, -ENOMEM, "64 KiB may be locked (ulimit -l)");
	verbs_refused(rc, -ENOMEM, "LimitMEMLOCK");
	if (has_right) {
		set_ipc_lock(true);
		verbs_refused(register_without_memory(), -ENOMEM, "resources left");
	}
	setrlimit(RLIMIT_MEMLOCK, &before);
}

START_TEST(memory)
{
	struct frl_mr *mr;

	verbs_setup(&defaults);
	check_no_memory();
	fake_verbs_fail("ibv_reg_mr", 1, EFAULT);
	verbs_refused(
		frl_reg_mr(one->pd, one->memory, 100, VERBS_ACCESS, &mr), -EFAULT, "is read-only");
	fake_verbs_fail("ibv_dereg_mr", 1, EBUSY);
	verbs_refused(frl_dereg_mr(one->mr), -EBUSY, "windows");
	fake_verbs_fail("ibv_rereg_mr", 1, EOPNOTSUPP);
	verbs_refused(frl_rereg_mr(one->mr, FRL_REREG_ACCESS, NULL, NULL, 0, 0), -ENOTSUP,
		"register it again");
	fake_verbs_fail("ibv_alloc_mw", 1, EOPNOTSUPP);
	verbs_refused(frl_mw_alloc(one->pd, &(struct frl_mw *){ 0 }), -ENOTSUP, "window");
}
END_TEST

/* Writes may overtake each other only where completions report what has arrived. */
START_TEST(relaxed_ordering)
{
	static const struct {
		uint32_t access;
		bool is_relaxed;
	} rows[] = {
		{ 0, true },
		{ FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_READ, true },
		{ FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE, false },
		{ FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_ATOMIC, false },
		{ FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_MW_BIND, false },
	};

	verbs_setup(&defaults);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct frl_mr *mr;
		unsigned access;

		verbs_ok(frl_reg_mr(one->pd, one->memory, 4096, rows[i].access, &mr));
		access = fake_verbs_mr_access("one", frl_mr_lkey(mr));
		ck_assert_int_eq(!!(access & IBV_ACCESS_RELAXED_ORDERING), rows[i].is_relaxed);
		verbs_ok(frl_dereg_mr(mr));
		/* A device that does not know it registers the memory without. */
		fake_verbs_fail("ibv_reg_mr_iova2", 1, EOPNOTSUPP);
		verbs_ok(frl_reg_mr(one->pd, one->memory, 4096, rows[i].access, &mr));
		verbs_ok(frl_dereg_mr(mr));
		fake_verbs_fail("ibv_reg_mr_iova2", 0, 0);
	}
}
END_TEST

START_TEST(iova)
{
	struct frl_sge from;
	struct frl_mr *mr;

	verbs_setup(&defaults);
	verbs_ok(frl_reg_mr_iova(two->pd, two->memory, 4096, 0x1000000, VERBS_ACCESS, &mr));
	from = verbs_sge(one, 0, 8);
	memcpy(one->memory, "\1\2\3\4\5\6\7\10", 8);
	ck_assert_int_eq(verbs_send(one, FRL_WR_RDMA_WRITE, &from, 0x1000010, frl_mr_rkey(mr)), 1);
	verbs_expect(one, FRL_WC_SUCCESS);
	ck_assert_mem_eq(two->memory + 0x10, one->memory, 8);
	verbs_ok(frl_dereg_mr(mr));
}
END_TEST

START_TEST(dmabuf)
{
	int fd = memfd_create("dmabuf", MFD_CLOEXEC);
	struct frl_mr *mr;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, 8192), 0);
	verbs_setup(&defaults);
	verbs_ok(frl_reg_dmabuf_mr(one->pd, fd, 4096, 4096, 0x4000, VERBS_ACCESS, &mr));
	verbs_ok(frl_dereg_mr(mr));
	fake_verbs_fail("ibv_reg_dmabuf_mr", 1, EOPNOTSUPP);
	verbs_refused(frl_reg_dmabuf_mr(one->pd, fd, 4096, 4096, 0x4000, VERBS_ACCESS, &mr),
		-ENOTSUP, "dma-buf");
	close(fd);
}
END_TEST

/* ---- states */

static const struct {
	enum frl_qp_state from, to;
	uint32_t mask;
	struct frl_qp_attr attr;
	const char *word;
} transitions[] = {
	{ FRL_QPS_RESET, FRL_QPS_RTS, 0, { 0 }, "no such transition" },
	{ FRL_QPS_RESET, FRL_QPS_INIT, FRL_QP_PKEY_INDEX, { 0 }, "access_flags" },
	{ FRL_QPS_RESET, FRL_QPS_INIT, FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_ACCESS_FLAGS,
		{ .port_num = 2 }, "port_num" },
	{ FRL_QPS_INIT, FRL_QPS_RTR, 0x121180, { .path_mtu = 3000 }, "path_mtu" },
	{ FRL_QPS_INIT, FRL_QPS_RTR, 0x121180, { .path_mtu = 4096, .dest_qpn = 1 },
		"path_mtu 4096 exceeds the port's 1024" },
	{ FRL_QPS_INIT, FRL_QPS_RTR, 0x121180,
		{ .path_mtu = 1024, .dest_qpn = 1, .max_dest_rd_atomic = 32 },
		"max_dest_rd_atomic 32 is more than the" },
	{ FRL_QPS_INIT, FRL_QPS_RTR, 0x121180,
		{ .path_mtu = 1024, .dest_qpn = 1, .ah = { .sgid_index = 9 } }, "sgid_index" },
	{ FRL_QPS_INIT, FRL_QPS_RTR, 0x121180,
		{ .path_mtu = 1024, .dest_qpn = 1, .ah = { .sgid_index = 1 } }, "IPv4" },
	{ FRL_QPS_RTR, FRL_QPS_RTS, 0x12e00, { .max_rd_atomic = 32 },
		"max_rd_atomic 32 is more than the" },
};

static void go_to(struct frl_qp *qp, enum frl_qp_state state)
{
	struct frl_qp_attr attr = { .state = FRL_QPS_INIT,
		.port_num = 1,
		.path_mtu = 1024,
		.dest_qpn = 2,
		.ah = { .dgid = { { [10] = 0xff, 0xff, 10, 0, 0, 1 } }, .sgid_index = 1 } };

	if (state >= FRL_QPS_INIT)
		verbs_ok(frl_qp_modify(qp, &attr,
			FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_ACCESS_FLAGS));
	attr.state = FRL_QPS_RTR;
	if (state >= FRL_QPS_RTR)
		verbs_ok(frl_qp_modify(qp, &attr,
			FRL_QP_STATE | FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN |
				FRL_QP_RQ_PSN | FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_MIN_RNR_TIMER));
}

static void plug_small(void)
{
	struct fake_verbs_device device;

	verbs_plug_ends(&defaults);
	fake_verbs_reset();
	fake_verbs_device_init(&device, "one", "10.0.0.1");
	device.ports[0].active_mtu = IBV_MTU_1024;
	device.attr.max_qp_rd_atom = device.attr.max_qp_init_rd_atom = 16;
	fake_verbs_add(&device);
	verbs_ok(verbs_make_end(one, &defaults));
}

START_LOOP_TEST(bad_transition, ROWS(transitions))
{
	struct frl_qp_attr attr = transitions[_i].attr;
	uint32_t mask = transitions[_i].mask | FRL_QP_STATE;

	/* By name, so that a number that is wrong does not pass. */
	if (transitions[_i].mask == 0x121180)
		mask = FRL_QP_STATE | FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN |
			FRL_QP_RQ_PSN | FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_MIN_RNR_TIMER;
	else if (transitions[_i].mask == 0x12e00)
		mask = FRL_QP_STATE | FRL_QP_SQ_PSN | FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT |
			FRL_QP_RNR_RETRY | FRL_QP_MAX_QP_RD_ATOMIC;
	plug_small();
	go_to(one->qp, transitions[_i].from);
	attr.state = transitions[_i].to;
	verbs_refused(frl_qp_modify(one->qp, &attr, mask), -EINVAL, transitions[_i].word);
	frl_qp_query(one->qp, &attr);
	ck_assert_int_eq(attr.state, transitions[_i].from);
}
END_TEST

static const struct {
	int err, rc;
	const char *word;
} kernel_errors[] = {
	{ ETIMEDOUT, -EHOSTUNREACH, "10.0.0.2: ARP does not answer" },
	{ EHOSTUNREACH, -EHOSTUNREACH, "ip neigh" },
	{ EINVAL, -EINVAL, "INIT to RTR: the device refuses it (EINVAL): it is in INIT" },
	{ ENOMEM, -ENOMEM, "no memory" },
	{ EPERM, -EPERM, "not permitted" },
	{ ENOSYS, -ENOTSUP, "cannot do it" },
};

START_LOOP_TEST(kernel_error, ROWS(kernel_errors))
{
	plug_small();
	go_to(one->qp, FRL_QPS_INIT);
	fake_verbs_fail("ibv_modify_qp", 1, kernel_errors[_i].err);
	{
		struct frl_qp_attr attr = { .state = FRL_QPS_RTR,
			.path_mtu = 1024,
			.dest_qpn = 2,
			.ah = { .dgid = { { [10] = 0xff, 0xff, 10, 0, 0, 2 } }, .sgid_index = 1 } };

		verbs_refused(frl_qp_modify(one->qp, &attr,
				      FRL_QP_STATE | FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN |
					      FRL_QP_RQ_PSN | FRL_QP_MAX_DEST_RD_ATOMIC |
					      FRL_QP_MIN_RNR_TIMER),
			kernel_errors[_i].rc, kernel_errors[_i].word);
	}
}
END_TEST

START_TEST(no_answer)
{
	struct frl_ah_attr attr = { .sgid_index = 1 };
	struct frl_gid gid;
	struct frl_ah *ah;

	verbs_setup(&defaults);
	verbs_ok(frl_query_gid(two->device, 1, &gid));
	attr.dgid = gid.ip;
	fake_verbs_fail("ibv_create_ah", 1, ETIMEDOUT);
	verbs_refused(frl_ah_create(one->pd, &attr, &ah), -EHOSTUNREACH, "10.0.0.2");
	fake_verbs_fail("ibv_create_ah", 1, EIO);
	verbs_refused(frl_ah_create(one->pd, &attr, &ah), -EIO, "dmesg");
	fake_verbs_fail("ibv_create_ah", 1, EINVAL);
	verbs_refused(frl_ah_create(one->pd, &attr, &ah), -EHOSTUNREACH, "does not take this path");
	/* The parts that the driver would omit from the path. */
	attr.link = 1;
	verbs_refused(frl_ah_create(one->pd, &attr, &ah), -EINVAL, "ah.link");
	attr.link = 0;
	attr.dmac[5] = 1;
	verbs_refused(frl_ah_create(one->pd, &attr, &ah), -EINVAL, "ah.dmac");
	attr.dmac[5] = 0;
	attr.sgid_index = 0;
	verbs_refused(frl_ah_create(one->pd, &attr, &ah), -EINVAL, "IPv4");
}
END_TEST

/* The attributes arrive unchanged. */
START_TEST(translated)
{
	struct ibv_qp_attr at;
	struct frl_qp_attr own;

	verbs_setup(&defaults);
	ck_assert(fake_verbs_qp_attr("one", frl_qp_num(one->qp), &at));
	ck_assert_int_eq(at.qp_state, IBV_QPS_RTS);
	ck_assert_int_eq(at.path_mtu, IBV_MTU_1024);
	ck_assert_uint_eq(at.dest_qp_num, frl_qp_num(two->qp));
	ck_assert_uint_eq(at.rq_psn, 100);
	ck_assert_uint_eq(at.sq_psn, 100);
	ck_assert_uint_eq(at.ah_attr.grh.sgid_index, 3);
	ck_assert_uint_eq(at.ah_attr.grh.hop_limit, 64);
	ck_assert_uint_eq(at.ah_attr.grh.dgid.raw[15], 2);
	ck_assert_uint_eq(at.ah_attr.port_num, 1);
	frl_qp_query(one->qp, &own);
	ck_assert_int_eq(own.state, FRL_QPS_RTS);
	ck_assert_uint_eq(own.path_mtu, 1024);
	ck_assert_uint_eq(own.ah.sgid_index, 1);
	ck_assert_uint_eq(own.dest_qpn, frl_qp_num(two->qp));
}
END_TEST

START_TEST(gsi)
{
	struct frl_qp_config config = { .type = FRL_QPT_GSI, .max_send_wr = 1, .max_recv_wr = 1 };
	struct frl_qp *qp;

	verbs_setup(&defaults);
	config.send_cq = config.recv_cq = one->cq;
	verbs_refused(frl_qp_create(one->pd, &config, &qp), -ENOTSUP, "the kernel owns");
	fake_verbs_fail("ibv_create_qp_ex", 1, EINVAL);
	fake_verbs_fail("ibv_create_qp", 1, EINVAL);
	config.type = FRL_QPT_RC;
	config.max_inline = 64; /* else it is tried with less */
	verbs_refused(frl_qp_create(one->pd, &config, &qp), -EINVAL, "request less");
}
END_TEST

TEST_MAIN(verbs_faults)
{
	return run_suite_unforked(all_tests(NULL, verbs_teardown));
}
