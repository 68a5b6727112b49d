/* SPDX-License-Identifier: BSD-3-Clause */
/* The public interface: arguments, objects, and the work of two connected ends. */
#include "tests/fixtures/api_fixture.h"
#include "tests/fixtures/program.h"

static const struct {
	const char *port, *ip, *gateway;
	uint32_t mtu;
	int want;
	const char *word;
} configs[] = {
	{ NULL, NULL, NULL, 100, -EINVAL, "100" },
	{ NULL, NULL, NULL, 1000, -EINVAL, "1000" },
	{ NULL, NULL, NULL, 32768, -EINVAL, "256 to 16384" },
	{ "net_null0", "10.1.1.1/24", NULL, 12288, -EINVAL, "12288" },
	{ NULL, "10.1.1.1/24", NULL, 0, -EINVAL, "port" },
	{ NULL, NULL, "10.1.1.1", 0, -EINVAL, "port" },
	{ "net_null0", NULL, NULL, 0, -EINVAL, "net_null0" },
	{ "net_null0", "10.1.1/24", NULL, 0, -EINVAL, "10.1.1/24" },
	{ "net_null0", "10.1.1.1/33", NULL, 0, -EINVAL, "10.1.1.1/33" },
	{ "net_null0", "10.1.1.1/", NULL, 0, -EINVAL, "10.1.1.1/" },
	{ "net_null0", "10.1.1.1/-1", NULL, 0, -EINVAL, "10.1.1.1/-1" },
	{ "net_null0", "10.1.1.1/24x", NULL, 0, -EINVAL, "10.1.1.1/24x" },
	{ "net_null0", "fd00::1/129", NULL, 0, -EINVAL, "fd00::1/129" },
	{ "net_null0", "", NULL, 0, -EINVAL, "''" },
	{ "net_null0", "10.1.1.1/24,", NULL, 0, -EINVAL, "''" },
	{ "net_null0", "10.1.1.1/24,10.1.2/24", NULL, 0, -EINVAL, "10.1.2/24" },
	{ "net_null0", "10.1.1.1/24@0", NULL, 0, -EINVAL, "VLAN" },
	{ "net_null0", "10.1.1.1/24@4095", NULL, 0, -EINVAL, "4094" },
	{ "net_null0", "10.1.1.1/24@7x", NULL, 0, -EINVAL, "10.1.1.1/24@7x" },
	{ "net_null0", "10.1.1.1/24@", NULL, 0, -EINVAL, "VLAN" },
	{ "net_null0", "10.1.1.1/24,fd00::1/64,10.1.1.1/8", NULL, 0, -EINVAL, "10.1.1.1 is given" },
	{ "net_null0", "fd00::1@5,fd00::2@5,fd00::1/64@5", NULL, 0, -EINVAL, "given twice" },
	{ "net_null0",
		"10.1.1.1,10.1.1.2,10.1.1.3,10.1.1.4,10.1.1.5,10.1.1.6,10.1.1.7,10.1.1.8,"
		"10.1.1.9,10.1.1.10,10.1.1.11,10.1.1.12,10.1.1.13,10.1.1.14,10.1.1.15,10.1.1.16",
		NULL, 0, -EINVAL, "15" },
	{ "net_null0", "10.1.1.1/24", "router", 0, -EINVAL, "router" },
	{ "net_null0", "10.1.1.1/24", "10.1.2.254", 0, -EINVAL, "in no subnet" },
	{ "net_null0", "10.1.1.1/25,fd00::1/64", "10.1.1.128", 0, -EINVAL, "in no subnet" },
	{ "net_null0", "10.1.1.1/24", "10.1.1.1", 0, -EINVAL, "own address" },
	{ "net_null0", "10.1.1.1/24", "224.0.0.1", 0, -EINVAL, "224.0.0.1" },
	{ "net_null0", "10.1.1.1/24", "10.1.1.2,10.1.1.3", 0, -EINVAL, "two gateways" },
	{ "net_null0", "10.1.1.1/24,fd00::1/64", "10.1.1.2,fd01::2", 0, -EINVAL, "fd01::2" },
	{ "net_null0", "10.1.1.1/24", "fd00::1", 0, -EINVAL, "fd00::1" },
	{ "net_null0", "fd00::1/64", "10.1.1.1", 0, -EINVAL, "10.1.1.1" },
	{ "net_af_packet0,iface=nothere0", "10.1.1.1/24", NULL, 0, -ENODEV, "nothere0" },
	{ "no_such_driver", "10.1.1.1/24", NULL, 0, -ENODEV, "no_such_driver" },
};

START_LOOP_TEST(bad_config, ROWS(configs))
{
	struct frl_device_config config;
	struct frl_device *device = (void *)&config;
	int rc;

	frl_device_config_init(&config);
	config.port = configs[_i].port;
	config.ip = configs[_i].ip;
	config.gateway = configs[_i].gateway;
	config.path_mtu = configs[_i].mtu;
	rc = frl_device_open(&config, &device);
	if (rc == -ENODEV && strstr(frl_last_error(), "ports of DPDK need")) {
		say_skipped(__func__, _i, "DPDK's ports were not built");
		return;
	}
	refused(rc, configs[_i].want, configs[_i].word);
	ck_assert_ptr_eq(device, (void *)&config);
}
END_TEST

START_TEST(busy)
{
	struct frl_cq *cq;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	refused(frl_device_close(a.device), -EBUSY, "2 protection domains");
	refused(frl_pd_destroy(a.pd), -EBUSY, "memory regions");
	refused(frl_cq_destroy(a.cq), -EBUSY, "queue pairs");
	ok(frl_cq_create(a.device, 1, &cq));
	ok(frl_cq_destroy(cq));
	close_end(&a);
	ok(frl_device_close(NULL));
	ok(frl_pd_destroy(NULL));
	ok(frl_cq_destroy(NULL));
	ok(frl_dereg_mr(NULL));
	frl_qp_destroy(NULL);
	frl_mem_free(NULL, 1);
}
END_TEST

static void try_qp(struct frl_pd *pd, struct frl_cq *send, struct frl_cq *recv, uint32_t n_send,
	uint32_t n_recv, const char *word)
{
	struct frl_qp_config config = {
		.send_cq = send, .recv_cq = recv, .max_send_wr = n_send, .max_recv_wr = n_recv
	};
	struct frl_qp *qp = NULL;

	refused(frl_qp_create(pd, &config, &qp), -EINVAL, word);
	ck_assert_ptr_null(qp);
}

START_TEST(arguments)
{
	uint8_t *top = (uint8_t *)UINTPTR_MAX;
	char most_cqe[16], most_wr[16];
	struct frl_device_attr attr;
	struct frl_mr *mr = NULL;
	struct frl_cq *cq = NULL;
	struct frl_pd *pd = NULL;
	struct frl_qp *qp;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	frl_device_query(a.device, &attr);
	snprintf(most_cqe, sizeof(most_cqe), "%u", attr.max_cqe);
	snprintf(most_wr, sizeof(most_wr), "%u", attr.max_qp_wr);
	ck_assert(test_port() || (attr.max_cqe == 65536 && attr.max_qp_wr == 16384));
	refused(frl_pd_create(NULL, &pd), -EINVAL, "device");
	refused(frl_pd_create(a.device, NULL), -EINVAL, "ret_pd");
	refused(frl_cq_create(NULL, 1, &cq), -EINVAL, "device");
	refused(frl_cq_create(a.device, 0, &cq), -EINVAL, "depth");
	refused(frl_cq_create(a.device, attr.max_cqe + 1, &cq), -EINVAL, most_cqe);
	refused(frl_cq_create(a.device, 1, NULL), -EINVAL, "device");
	refused(frl_reg_mr(NULL, a.memory, 1, 0, &mr), -EINVAL, "pd");
	refused(frl_reg_mr(a.pd, NULL, 1, 0, &mr), -EINVAL, "addr");
	refused(frl_reg_mr(a.pd, a.memory, 0, 0, &mr), -EINVAL, "length");
	refused(frl_reg_mr(a.pd, a.memory, 1, 0, NULL), -EINVAL, "ret_mr");
	refused(frl_reg_mr(a.pd, top - 10, 100, 0, &mr), -EINVAL, "wraps");
	refused(frl_reg_mr(a.pd, a.memory, 1, 0x80, &mr), -EINVAL, "0x80");
	refused(frl_reg_mr(a.pd, a.memory, 1, FRL_ACCESS_REMOTE_WRITE, &mr), -EINVAL,
		"LOCAL_WRITE");
	ck_assert(!mr && !cq && !pd);
	try_qp(NULL, a.cq, a.cq, 1, 1, "pd");
	try_qp(a.pd, NULL, a.cq, 1, 1, "completion queues");
	try_qp(a.pd, a.cq, NULL, 1, 1, "completion queues");
	try_qp(a.pd, a.cq, b.cq, 1, 1, "another device");
	try_qp(a.pd, b.cq, a.cq, 1, 1, "another device");
	try_qp(a.pd, a.cq, a.cq, 0, 1, "max_send_wr");
	try_qp(a.pd, a.cq, a.cq, attr.max_qp_wr + 1, 1, most_wr);
	try_qp(a.pd, a.cq, a.cq, 1, attr.max_qp_wr + 1, "max_recv_wr");
	refused(frl_qp_create(a.pd, NULL, &qp), -EINVAL, "config");
	ck_assert_ptr_null(frl_mem_alloc(0));
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "size"));
	ck_assert_ptr_null(frl_mem_alloc(SIZE_MAX));
	ck_assert_ptr_null(frl_mem_alloc(SIZE_MAX - 4096));
	ck_assert_ptr_eq(frl_qp_context(a.qp), &a);
}
END_TEST

/* A missing argument is reported, and nothing is done. */
START_TEST(missing_queue_arguments)
{
	struct frl_srq_config config = { .max_wr = 1 };
	struct frl_send_wr send = { .opcode = FRL_WR_SEND };
	struct frl_recv_wr recv = { .wr_id = 1 };
	struct frl_srq *srq;
	struct frl_wc wc;
	int posted = -1;

	start(false, FRL_PROGRESS_INLINE);
	ok(frl_srq_create(a.pd, &config, &srq));
	refused(frl_post_send(NULL, &send, 1, &posted), -EINVAL, "qp");
	ck_assert_int_eq(posted, 0);
	posted = -1;
	refused(frl_post_send(a.qp, NULL, 1, &posted), -EINVAL, "wr");
	ck_assert_int_eq(posted, 0);
	refused(frl_post_send(a.qp, &send, -1, NULL), -EINVAL, "n ");
	ck_assert_int_eq(frl_post_send(a.qp, NULL, 0, &posted), 0);
	posted = -1;
	refused(frl_post_recv(NULL, &recv, 1, &posted), -EINVAL, "qp");
	ck_assert_int_eq(posted, 0);
	refused(frl_post_recv(a.qp, NULL, 1, NULL), -EINVAL, "wr");
	refused(frl_post_recv(a.qp, &recv, -1, NULL), -EINVAL, "n ");
	ck_assert_int_eq(frl_post_recv(a.qp, NULL, 0, &posted), 0);
	posted = -1;
	refused(frl_post_srq_recv(NULL, &recv, 1, &posted), -EINVAL, "srq");
	ck_assert_int_eq(posted, 0);
	refused(frl_post_srq_recv(srq, NULL, 1, NULL), -EINVAL, "wr");
	refused(frl_post_srq_recv(srq, &recv, -1, NULL), -EINVAL, "n ");
	ck_assert_int_eq(frl_post_srq_recv(srq, NULL, 0, &posted), 0);
	refused(frl_srq_set_limit(NULL, 1), -EINVAL, "srq");
	refused(frl_poll_cq(NULL, 1, &wc), -EINVAL, "cq");
	refused(frl_poll_cq(a.cq, 1, NULL), -EINVAL, "wc");
	refused(frl_poll_cq(a.cq, -1, &wc), -EINVAL, "max");
	ck_assert_int_eq(frl_poll_cq(a.cq, 0, NULL), 0);
	refused(frl_cq_wait(NULL, 1, &wc, 0), -EINVAL, "cq");
	refused(frl_cq_wait(a.cq, 1, NULL, 0), -EINVAL, "wc");
	refused(frl_cq_wait(a.cq, -1, &wc, 0), -EINVAL, "max");
	ok(frl_srq_destroy(srq));
}
END_TEST

START_TEST(missing_arguments)
{
	const struct frl_ip group = { { [10] = 0xff, 0xff, 239, 1, 2, 3 } };
	const struct frl_qp_attr attr = { .state = FRL_QPS_ERR };
	struct frl_async_event event;
	struct frl_comp_channel *channel;
	struct frl_cq *cq = NULL;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	ok(frl_comp_channel_create(a.device, &channel));
	refused(frl_attach_mcast(NULL, &group), -EINVAL, "qp");
	refused(frl_attach_mcast(a.qp, NULL), -EINVAL, "group");
	refused(frl_detach_mcast(NULL, &group), -EINVAL, "qp");
	refused(frl_detach_mcast(a.qp, NULL), -EINVAL, "group");
	refused(frl_qp_modify(NULL, &attr, FRL_QP_STATE), -EINVAL, "qp");
	refused(frl_qp_modify(a.qp, NULL, FRL_QP_STATE), -EINVAL, "attr");
	refused(frl_qp_endpoint(NULL, &a.theirs), -EINVAL, "qp");
	refused(frl_qp_endpoint(a.qp, NULL), -EINVAL, "ret_endpoint");
	refused(frl_qp_connect(NULL, &a.mine, NULL), -EINVAL, "qp");
	refused(frl_qp_connect(a.qp, NULL, NULL), -EINVAL, "remote");
	refused(frl_req_notify_cq(NULL, false), -EINVAL, "cq");
	refused(frl_get_cq_event(NULL, 0, &cq), -EINVAL, "channel");
	refused(frl_get_cq_event(channel, 0, NULL), -EINVAL, "ret_cq");
	refused(frl_async_fd(NULL), -EINVAL, "device");
	refused(frl_get_async_event(NULL, 0, &event), -EINVAL, "device");
	refused(frl_get_async_event(a.device, 0, NULL), -EINVAL, "ret_event");
	ck_assert_ptr_null(cq);
	ok(frl_comp_channel_destroy(channel));
}
END_TEST

/* The texts for errors of posting. */
START_TEST(bad_posts)
{
	struct frl_sge sge = { NULL, 16, 0 };
	struct frl_send_wr wr[3];
	int posted = -1;

	start(false, FRL_PROGRESS_INLINE);
	sge = (struct frl_sge){ a.memory, 16, frl_mr_lkey(a.mr) };
	for (int i = 0; i < 3; i++)
		wr[i] = send_wr((uint64_t)i, FRL_WR_SEND, &sge);
	wr[0].flags = 0x100;
	refused(frl_post_send(a.qp, wr, 3, &posted), -EINVAL, "flags");
	ck_assert_int_eq(posted, 0);
	wr[0].flags = 0;
	wr[0].opcode = wr[1].opcode = FRL_WR_RDMA_WRITE;
	wr[2].n_sge = 5;
	refused(frl_post_send(a.qp, wr, 3, &posted), -EINVAL, "request 2");
	ck_assert_int_eq(posted, 2);
	expect(&a, 1, FRL_WC_SUCCESS);
	wr[0].opcode = (enum frl_wr_opcode)10;
	refused(frl_post_send(a.qp, wr, 1, NULL), -EINVAL, "opcode");
	wr[1].flags = FRL_SEND_INLINE;
	sge.length = FRL_MAX_INLINE + 1;
	refused(frl_post_send(a.qp, &wr[1], 1, NULL), -EINVAL, "inline");
	sge.length = 16;
	sge.addr = NULL;
	refused(frl_post_send(a.qp, &wr[1], 1, NULL), -EINVAL, "NULL");
}
END_TEST

START_TEST(bad_memory)
{
	struct frl_sge sge;
	struct frl_send_wr wr;
	struct frl_recv_wr recv = { .sge = &sge, .n_sge = 1 };

	SOFTWARE_ONLY("hardware looks at keys when it uses them");
	start(false, FRL_PROGRESS_INLINE);
	sge = (struct frl_sge){ a.memory, MEMORY + 1, frl_mr_lkey(a.mr) };
	wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);
	refused(frl_post_send(a.qp, &wr, 1, NULL), -EINVAL, "memory region");
	sge.length = 16;
	sge.lkey ^= 1 << 20;
	refused(frl_post_send(a.qp, &wr, 1, NULL), -EINVAL, "lkey");
	refused(frl_post_recv(a.qp, &recv, 1, NULL), -EINVAL, "lkey");
}
END_TEST

/* Hardware may have made it larger. */
START_TEST(full_queue)
{
	struct frl_sge sge;
	struct frl_recv_wr recv = { .sge = &sge, .n_sge = 1 };
	int posted = 0, rc;

	start(false, FRL_PROGRESS_INLINE);
	sge = sge_of(&a, 0, 16);
	while ((rc = frl_post_recv(a.qp, &recv, 1, NULL)) == 1 && posted < 100 * DEPTH)
		posted++;
	refused(rc, -ENOMEM, "full");
	ck_assert(test_port() ? posted >= DEPTH : posted == DEPTH);
}
END_TEST

/* Malloc'ed or shared memory; driven by the caller or by threads of the library. */
START_LOOP_TEST(traffic, 4)
{
	struct frl_sge sge;
	struct frl_send_wr wr;
	struct frl_wc wc;

	start(_i & 1, _i & 2 ? FRL_PROGRESS_THREAD : FRL_PROGRESS_INLINE);
	sge = (struct frl_sge){ a.memory + 3, MESSAGE, frl_mr_lkey(a.mr) };
	post_recv(1, 100, MESSAGE + 5, false);
	wr = send_wr(10, FRL_WR_SEND_WITH_IMM, &sge);
	post_send(&wr);
	wc = expect(&b, 1, FRL_WC_SUCCESS);
	ck_assert_uint_eq(wc.byte_len, MESSAGE);
	ck_assert_uint_eq(wc.flags, FRL_WC_WITH_IMM);
	ck_assert_uint_eq(wc.imm_data, 0xabcd);
	ck_assert_int_eq(memcmp(b.memory + 100, a.memory + 3, MESSAGE), 0);
	ck_assert_uint_eq(b.memory[99], 0x11);
	ck_assert_uint_eq(b.memory[100 + MESSAGE], 0x11);
	expect(&a, 10, FRL_WC_SUCCESS);

	wr = send_wr(11, FRL_WR_RDMA_WRITE, &sge);
	wr.remote_addr += 30000;
	post_send(&wr);
	expect(&a, 11, FRL_WC_SUCCESS);
	ck_assert_int_eq(memcmp(b.memory + 30000, a.memory + 3, MESSAGE), 0);

	post_recv(2, 0, 16, false);
	wr = send_wr(12, FRL_WR_RDMA_WRITE_WITH_IMM, &sge);
	sge.length = 1000;
	wr.remote_addr += 60000;
	post_send(&wr);
	wc = expect(&b, 2, FRL_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, FRL_WC_RECV_RDMA_WITH_IMM);
	ck_assert_uint_eq(wc.byte_len, 1000);
	ck_assert_int_eq(memcmp(b.memory + 60000, a.memory + 3, 1000), 0);
	expect(&a, 12, FRL_WC_SUCCESS);

	post_recv(4, 0, 64, false);
	sge = (struct frl_sge){ a.memory + 50000, 64, 0 };
	wr = send_wr(14, FRL_WR_SEND, &sge);
	wr.flags |= FRL_SEND_INLINE;
	memcpy(b.memory + 64, a.memory + 50000, 64);
	post_send(&wr);
	memset(a.memory + 50000, 0, 64);
	expect(&b, 4, FRL_WC_SUCCESS);
	expect(&a, 14, FRL_WC_SUCCESS);
	ck_assert_int_eq(memcmp(b.memory, b.memory + 64, 64), 0);
}
END_TEST

/* As above. */
START_LOOP_TEST(reduce_on_receive, 4)
{
	struct frl_sge sge;
	struct frl_send_wr wr;
	float *mine, *theirs;

	SOFTWARE_ONLY("hardware does not reduce what it receives");
	start(_i & 1, _i & 2 ? FRL_PROGRESS_THREAD : FRL_PROGRESS_INLINE);
	mine = (float *)(void *)a.memory;
	theirs = (float *)(void *)b.memory;
	for (int i = 0; i < MESSAGE / 4; i++) {
		mine[i] = (float)i;
		theirs[i] = 0.5f;
	}
	post_recv(3, 0, MESSAGE, true);
	sge = (struct frl_sge){ a.memory, MESSAGE, frl_mr_lkey(a.mr) };
	wr = send_wr(13, FRL_WR_SEND, &sge);
	post_send(&wr);
	expect(&b, 3, FRL_WC_SUCCESS);
	for (int i = 0; i < MESSAGE / 4; i++)
		ck_assert(theirs[i] == (float)i + 0.5f);
	expect(&a, 13, FRL_WC_SUCCESS);
}
END_TEST

enum { TOO_SMALL, WRONG_RKEY, PAST_THE_REGION, SOURCE_GONE, TARGET_GONE, N_FAILURES };

static const enum frl_wc_status failures[N_FAILURES][2] = {
	[TOO_SMALL] = { FRL_WC_REM_INV_REQ_ERR, FRL_WC_LOC_LEN_ERR },
	[WRONG_RKEY] = { FRL_WC_REM_ACCESS_ERR, FRL_WC_WR_FLUSH_ERR },
	[PAST_THE_REGION] = { FRL_WC_REM_ACCESS_ERR, FRL_WC_WR_FLUSH_ERR },
	[SOURCE_GONE] = { FRL_WC_LOC_PROT_ERR, FRL_WC_SUCCESS },
	[TARGET_GONE] = { FRL_WC_REM_OP_ERR, FRL_WC_LOC_PROT_ERR },
};

/* It reports that its own operation failed (NAK 3, LOC_QP_OP_ERR) where others are more exact. */
static const enum frl_wc_status failures_of_rxe[N_FAILURES][2] = {
	[TOO_SMALL] = { FRL_WC_REM_OP_ERR, FRL_WC_LOC_QP_OP_ERR },
	[WRONG_RKEY] = { FRL_WC_REM_ACCESS_ERR, FRL_WC_WR_FLUSH_ERR },
	[PAST_THE_REGION] = { FRL_WC_REM_ACCESS_ERR, FRL_WC_WR_FLUSH_ERR },
	[TARGET_GONE] = { FRL_WC_REM_OP_ERR, FRL_WC_LOC_QP_OP_ERR },
};

/* A request that is posted behind two others leaves later than with the call. */
static void post_behind(const struct frl_send_wr *wr)
{
	struct frl_send_wr nothing = *wr;

	nothing.opcode = FRL_WR_RDMA_WRITE;
	nothing.flags = 0;
	nothing.n_sge = 0;
	post_send(&nothing);
	post_send(&nothing);
	post_send(wr);
}

START_LOOP_TEST(failure, N_FAILURES)
{
	const enum frl_wc_status *want = is_rxe() ? failures_of_rxe[_i] : failures[_i];
	struct frl_qp_attr attr;
	struct frl_send_wr wr;
	struct frl_sge sge;

	SOFTWARE_ONLY_IF(_i == SOURCE_GONE, "hardware sends before the region can go");
	start(false, FRL_PROGRESS_INLINE);
	sge = (struct frl_sge){ a.memory, 1000, frl_mr_lkey(a.mr) };
	wr = send_wr(10,
		_i == WRONG_RKEY || _i == PAST_THE_REGION ? FRL_WR_RDMA_WRITE : FRL_WR_SEND, &sge);
	post_recv(1, 0, _i == TOO_SMALL ? 999 : 1000, false);
	if (_i == WRONG_RKEY)
		wr.rkey ^= 1 << 20;
	if (_i == PAST_THE_REGION)
		wr.remote_addr += MEMORY - 999;
	if (_i == TARGET_GONE)
		deregister(&b);
	if (_i == SOURCE_GONE)
		post_behind(&wr);
	else
		post_send(&wr);
	wr.wr_id = 11;
	if (_i != SOURCE_GONE)
		post_send(&wr);
	if (_i == SOURCE_GONE)
		deregister(&a);
	expect(&a, 10, want[0]);
	if (_i != SOURCE_GONE)
		expect(&a, 11, FRL_WC_WR_FLUSH_ERR);
	frl_qp_query(a.qp, &attr);
	ck_assert_int_eq(attr.state, FRL_QPS_ERR);
	if (want[1] != FRL_WC_SUCCESS)
		expect(&b, 1, want[1]);
	for (uint32_t i = 0; i < MEMORY; i++)
		ck_assert_uint_eq(b.memory[i], 0x11);
}
END_TEST

TEST_MAIN(api)
{
	return run_rows(all_tests(NULL, close_ends));
}
