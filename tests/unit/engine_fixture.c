/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/engine_fixture.h"

#include <stdlib.h>
#include <string.h>

#include "tests/vectors/frame.h"

const uint32_t host_mask_init = FRL_QP_STATE | FRL_QP_ACCESS_FLAGS;
const uint32_t host_mask_rtr = FRL_QP_STATE | FRL_QP_PATH | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN |
	FRL_QP_RQ_PSN | FRL_QP_MIN_RNR_TIMER | FRL_QP_CAPABILITIES;
const uint32_t host_mask_rts = FRL_QP_STATE | FRL_QP_SQ_PSN | FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT |
	FRL_QP_RNR_RETRY;

/* The peer is 10.9.0.1 with mac_a, as in tests/vectors/frame.h; the engine is the other end. */
struct host *host_new(const struct host_config *config)
{
	struct host *host = calloc(1, sizeof(*host));
	struct engine_config engine = {
		.neighbors = {
			.ip = ip_from_v4((const uint8_t[]){ 10, 9, 0, 2 }),
			.prefix_len = 24,
		},
		.seed = 1,
	};

	ck_assert_ptr_nonnull(host);
	fake_port_init(&host->port, mac_b, config && config->on_demand, config && config->in_place);
	engine.port = &host->port.base;
	memcpy(engine.neighbors.mac, mac_b, 6);
	ck_assert_int_eq(engine_init(&host->engine, &engine), 0);
	for (unsigned i = 0; i < HOST_QPS; i++)
		cq_init(&host->cqs[i], host->wcs[i], HOST_CQ);
	memset(host->memory, HOST_FILL, sizeof(host->memory));
	host->region = (struct region){
		.addr = host->memory,
		.length = sizeof(host->memory),
		.access = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE,
		.pd = &host->pd,
		.port_mem = host->memory,
	};
	ck_assert_int_eq(engine_add_region(&host->engine, &host->region), 0);
	host->now_ns = 1000000000;
	return host;
}

void host_free(struct host *host)
{
	engine_fini(&host->engine);
	fake_port_fini(&host->port);
	free(host);
}

struct frl_qp_attr host_attr(unsigned i, const struct host_qp_config *config)
{
	struct frl_qp_attr attr = {
		.access_flags = FRL_ACCESS_REMOTE_WRITE,
		.remote_ip = ip_from_v4((const uint8_t[]){ 10, 9, 0, 1 }),
		.link = config ? config->link : 0,
		.hop_limit = 64,
		.path_mtu = HOST_MTU,
		.dest_qpn = HOST_PEER_QPN + i,
		.rq_psn = HOST_RQ_PSN,
		.sq_psn = HOST_SQ_PSN,
		.min_rnr_timer = 1,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.capabilities = config ? config->capabilities : 0,
	};

	memcpy(attr.remote_mac, mac_a, 6);
	return attr;
}

struct engine_qp *host_add(struct host *host, unsigned i, const struct host_qp_config *config)
{
	struct host_qp *own = &host->qps[i];
	struct cq *cq = &host->cqs[i];
	struct qp_config qp = {
		.pd = &host->pd,
		.send_cq = config && config->send_cq ? config->send_cq : cq,
		.recv_cq = config && config->recv_cq ? config->recv_cq : cq,
		.send_wqes = own->send_wqes,
		.n_send = HOST_QUEUE,
		.recv_wqes = own->recv_wqes,
		.n_recv = HOST_QUEUE,
		.window = 1024,
		.unlimited_retry = config && config->unlimited_retry,
	};
	const uint32_t masks[] = { host_mask_init, host_mask_rtr, host_mask_rts };
	struct frl_qp_attr attr = host_attr(i, config);
	const char *why = "";

	ck_assert_int_eq(engine_add_qp(&host->engine, &own->qp, &qp), 0);
	for (int step = 0; step < 3; step++) {
		attr.state = (enum frl_qp_state)(FRL_QPS_INIT + step);
		ck_assert_msg(
			engine_modify_qp(&host->engine, &own->qp, &attr, masks[step], &why) == 0,
			"%s", why);
	}
	return &own->qp;
}

void host_poll(struct host *host)
{
	host->now_ns += 1000;
	engine_poll(&host->engine, host->now_ns);
}

void host_post_recv(struct host *host, unsigned i, uint64_t wr_id, uint32_t offset, uint32_t length)
{
	struct frl_sge sge = { host->memory + offset, length, host->region.key };
	struct frl_recv_wr wr = { .wr_id = wr_id, .sge = &sge, .n_sge = 1 };
	const char *why = "";

	ck_assert_msg(qp_post_recv(&host->qps[i].qp.core, &wr, &why) == 0, "%s", why);
	engine_update(&host->engine, &host->qps[i].qp);
}

void host_post_send(struct host *host, unsigned i, uint64_t wr_id, uint32_t length, uint32_t flags)
{
	struct frl_sge sge = { host->memory, length, host->region.key };
	struct frl_send_wr wr = {
		.wr_id = wr_id, .flags = FRL_SEND_SIGNALED | flags, .sge = &sge, .n_sge = 1
	};
	const char *why = "";

	ck_assert_msg(qp_post_send(&host->qps[i].qp.core, &wr, &why) == 0, "%s", why);
	engine_update(&host->engine, &host->qps[i].qp);
}

void host_acknowledge(struct host *host, unsigned i, uint32_t psn, bool has_icrc)
{
	struct wire_headers h = {
		.bth = { .opcode = OP_ACKNOWLEDGE,
			.pkey = PKEY_DEFAULT,
			.dest_qpn = host->qps[i].qp.core.qpn,
			.psn = psn_make(HOST_SQ_PSN + psn) },
		.aeth = { 0x1f, 1 },
	};
	struct frame frame = make_frame(0, &h, 0, has_icrc);

	fake_port_receive(&host->port, host->qps[i].qp.link, frame.bytes, (uint32_t)frame.len);
}

void host_expect_wc(struct cq *cq, uint64_t wr_id, enum frl_wc_status status)
{
	struct frl_wc wc;

	ck_assert_msg(cq_pop(cq, &wc), "no completion for request %d", (int)wr_id);
	ck_assert_uint_eq(wc.wr_id, wr_id);
	ck_assert_int_eq(wc.status, status);
}

void host_expect_no_wc(struct cq *cq)
{
	ck_assert_uint_eq(cq->tail, cq->head);
}
