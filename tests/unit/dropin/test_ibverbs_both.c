/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two copies of Ferrule in one process: libferrule.so, and the one inside the drop-in libibverbs.
 * Neither binds to functions of the other, and both move data.
 */
#include "tests/unit/dropin/ibverbs_fixture.h"

#include <ferrule/ferrule.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 20, EACH = 2000 };

/* libferrule's end, which is connected to itself. */
static struct {
	struct frl_device *device;
	struct frl_pd *pd;
	struct frl_cq *cq;
	struct frl_qp *qp;
	struct frl_mr *mr;
	uint8_t memory[2 * EACH];
	struct frl_gid gid;
} own;

static void connect_own(void)
{
	struct frl_qp_attr attr = {
		.state = FRL_QPS_INIT,
		.port_num = 1,
		.access_flags = FRL_ACCESS_REMOTE_WRITE,
		.path_mtu = 1024,
		.dest_qpn = frl_qp_num(own.qp),
		.max_dest_rd_atomic = 1,
		.timeout = 14,
		.retry_cnt = 7,
		.ah = { .dgid = own.gid.ip, .sgid_index = 1 },
	};

	ok(frl_qp_modify(own.qp, &attr,
		FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_ACCESS_FLAGS));
	attr.state = FRL_QPS_RTR;
	ok(frl_qp_modify(own.qp, &attr,
		FRL_QP_STATE | FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN | FRL_QP_RQ_PSN |
			FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_MIN_RNR_TIMER));
	attr.state = FRL_QPS_RTS;
	ok(frl_qp_modify(own.qp, &attr,
		FRL_QP_STATE | FRL_QP_SQ_PSN | FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT |
			FRL_QP_RNR_RETRY | FRL_QP_MAX_QP_RD_ATOMIC));
}

static void open_own(void)
{
	struct frl_qp_config config = { .max_send_wr = 4, .max_recv_wr = 4 };
	struct frl_device_config device;

	frl_device_config_init(&device);
	ok(frl_device_open(&device, &own.device));
	ok(frl_query_gid(own.device, 1, &own.gid));
	ok(frl_pd_create(own.device, &own.pd));
	ok(frl_cq_create(own.device, 16, &own.cq));
	ok(frl_reg_mr(own.pd, own.memory, sizeof(own.memory),
		FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE, &own.mr));
	config.send_cq = config.recv_cq = own.cq;
	ok(frl_qp_create(own.pd, &config, &own.qp));
	connect_own();
}

static void close_own(void)
{
	frl_qp_destroy(own.qp);
	ok(frl_cq_destroy(own.cq));
	ok(frl_dereg_mr(own.mr));
	ok(frl_pd_destroy(own.pd));
	ok(frl_device_close(own.device));
}

static void transfer_own(uint8_t seed)
{
	const struct frl_sge sge = { own.memory, EACH, frl_mr_lkey(own.mr) };
	const struct frl_send_wr wr = {
		.opcode = FRL_WR_RDMA_WRITE,
		.flags = FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = 1,
		.remote_addr = (uintptr_t)own.memory + EACH,
		.rkey = frl_mr_rkey(own.mr),
	};
	struct frl_wc wc;

	memset(own.memory, seed, EACH);
	ck_assert_int_eq(frl_post_send(own.qp, &wr, 1, NULL), 1);
	ck_assert_int_eq(frl_cq_wait(own.cq, 1, &wc, HANG_MS), 1);
	ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
	ck_assert_mem_eq(own.memory, own.memory + EACH, EACH);
}

static void transfer_verbs(uint8_t seed)
{
	struct ibv_sge sge = sge_of(&a, 0, EACH);
	struct ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, &sge);

	aim(&wr, &b, 0);
	fill(&a, 0, EACH, seed);
	post(&a, &wr);
	expect(&a, 1, IBV_WC_SUCCESS);
	check_filled(&b, 0, EACH, seed);
}

/* Each opens and closes while the other one works. */
START_LOOP_TEST(both_work, 2)
{
	union ibv_gid gid;

	if (_i)
		open_own();
	start(&(struct wants){ .has_channel = true });
	if (!_i)
		open_own();
	ok(ibv_query_gid(a.context, 1, 1, &gid));
	ck_assert_mem_ne(gid.raw, own.gid.ip.bytes, 16);
	for (uint8_t i = 0; i < ROUNDS; i++) {
		transfer_own(i);
		transfer_verbs(i);
	}
	if (_i) {
		finish();
		transfer_own(1);
		close_own();
	} else {
		close_own();
		transfer_verbs(1);
		finish();
	}
}
END_TEST

static const char *file_of(const char *symbol)
{
	void *address = dlsym(RTLD_DEFAULT, symbol);
	Dl_info info;

	made(address);
	ck_assert_int_ne(dladdr(address, &info), 0);
	return info.dli_fname;
}

/* The functions of verbs are the drop-in's, also for libferrule; the drop-in exports no others. */
START_TEST(symbols)
{
	void *dropin = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);

	made(dropin);
	ck_assert_ptr_nonnull(strstr(file_of("ibv_open_device"), "dropin/rdma/libibverbs.so.1"));
	ck_assert_ptr_nonnull(strstr(file_of("frl_device_open"), "libferrule.so"));
	ck_assert_ptr_eq(dlsym(dropin, "ibv_open_device"), dlsym(RTLD_DEFAULT, "ibv_open_device"));
	ck_assert_ptr_null(dlsym(dropin, "frl_device_open"));
	dlclose(dropin);
}
END_TEST

TEST_FILE(ibverbs_both)
