/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/engine/engine_fixture.h"

#include <stdlib.h>
#include <string.h>

#include "tests/vectors/frame.h"

enum {
	ACCESS = FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_READ | FRL_ACCESS_REMOTE_ATOMIC,
	SETTLED = 1000, /* rounds that are enough for anything */
};

static struct frl_ip address(bool v4, uint8_t last)
{
	if (v4)
		return ip_from_v4((const uint8_t[]){ 10, 9, 0, last });
	return (struct frl_ip){ { 0xfd, 0x09, [15] = last } };
}

/* The peer is 10.9.0.1 with mac_a, as in tests/vectors/frame.h; the engine is the other end. */
static struct gid_table make_gids(bool second)
{
	uint8_t last = second ? 1 : 2;

	return (struct gid_table){
		.n = HOST_GIDS,
		.gids = {
			[HOST_GID_LINK_LOCAL] = { gid_link_local(second ? mac_a : mac_b), 64, 0 },
			[HOST_GID_V4] = { address(true, last), 24, 0 },
			[HOST_GID_V6] = { address(false, last), 64, 0 },
			[HOST_GID_VLAN_V4] = { address(true, last), 24, HOST_VLAN },
			[HOST_GID_VLAN_V6] = { address(false, last), 64, HOST_VLAN },
		},
	};
}

struct host *host_new(const struct host_config *config)
{
	static const struct host_config defaults;
	struct host *host = aligned_alloc(64, sizeof(*host));
	struct engine_config engine = {
		.neighbors = { .has_gateway = { true, false },
			.gateway = { ip_from_v4((const uint8_t[]){ 10, 9, 0, 254 }) } },
		.pkey = PKEY_DEFAULT,
		.mtu = HOST_PORT_MTU,
		.seed = 1,
	};

	ck_assert_ptr_nonnull(host);
	memset(host, 0, sizeof(*host));
	if (!config)
		config = &defaults;
	fake_port_init(
		&host->port, config->second ? mac_a : mac_b, config->on_demand, config->in_place);
	engine.port = &host->port.base;
	engine.gids = make_gids(config->second);
	ck_assert_int_eq(engine_init(&host->engine, &engine), 0);
	for (unsigned i = 0; i < HOST_QPS; i++)
		cq_init(&host->cqs[i], host->wcs[i], HOST_CQ, &host->engine.events);
	memset(host->memory, HOST_FILL, sizeof(host->memory));
	host->region = (struct region){
		.addr = host->memory,
		.length = sizeof(host->memory),
		.iova = (uintptr_t)host->memory,
		.access = FRL_ACCESS_LOCAL_WRITE | ACCESS,
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
	engine_port_closed(&host->engine);
	for (unsigned i = 0; i < HOST_QPS; i++)
		free(host->qps[i].storage);
	free(host);
}

struct frl_qp_attr host_attr(unsigned i, const struct host_qp_config *config)
{
	static const struct host_qp_config defaults;
	static const struct frl_ip none;
	struct frl_qp_attr attr = {
		.port_num = 1,
		.qkey = HOST_QKEY,
		.access_flags = ACCESS,
		.path_mtu = HOST_MTU,
		.dest_qpn = HOST_PEER_QPN + i,
		.rq_psn = HOST_RQ_PSN,
		.sq_psn = HOST_SQ_PSN,
		.max_rd_atomic = 4,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
	};
	bool v4;

	if (!config)
		config = &defaults;
	attr.ah.sgid_index = config->sgid_index ? config->sgid_index : HOST_GID_V4;
	v4 = attr.ah.sgid_index == HOST_GID_V4 || attr.ah.sgid_index == HOST_GID_VLAN_V4;
	attr.ah.dgid = ip_equal(&config->dgid, &none) ? address(v4, 1) : config->dgid;
	attr.ah.sl = config->sl;
	attr.ah.link = config->link;
	if (!config->resolve)
		memcpy(attr.ah.dmac, config->dmac ? config->dmac : mac_a, 6);
	attr.capabilities = config->capabilities;
	if (config->dest_qpn)
		attr.dest_qpn = config->dest_qpn;
	if (config->psn)
		attr.rq_psn = attr.sq_psn = config->psn;
	if (config->path_mtu)
		attr.path_mtu = config->path_mtu;
	return attr;
}

uint32_t host_mask(enum frl_qp_type type, enum frl_qp_state state)
{
	bool rc = type == FRL_QPT_RC || !type;
	bool datagrams = type == FRL_QPT_UD || type == FRL_QPT_GSI;

	switch (state) {
	case FRL_QPS_INIT:
		return FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT |
			(datagrams ? FRL_QP_QKEY : FRL_QP_ACCESS_FLAGS);
	case FRL_QPS_RTR:
		if (datagrams)
			return FRL_QP_STATE;
		return FRL_QP_STATE | FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN |
			FRL_QP_RQ_PSN |
			(rc ? FRL_QP_MIN_RNR_TIMER | FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_CAPABILITIES
			    : 0);
	case FRL_QPS_RTS:
		return FRL_QP_STATE | FRL_QP_SQ_PSN |
			(rc ? FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT | FRL_QP_RNR_RETRY |
						FRL_QP_MAX_QP_RD_ATOMIC
			    : 0);
	default: return FRL_QP_STATE;
	}
}

int host_modify(struct host *host, unsigned i, const struct frl_qp_attr *attr, uint32_t mask,
	const char **why)
{
	const char *ignored;

	return engine_modify_qp(
		&host->engine, &host->qps[i].qp, attr, mask, host->now_ns, why ? why : &ignored);
}

struct engine_qp *host_create(struct host *host, unsigned i, const struct host_qp_config *config)
{
	struct host_qp *own = &host->qps[i];
	struct cq *cq = &host->cqs[i];
	struct qp_config qp = {
		.type = config && config->type ? config->type : FRL_QPT_RC,
		.pd = &host->pd,
		.send_cq = config && config->send_cq ? config->send_cq : cq,
		.recv_cq = config && config->recv_cq ? config->recv_cq : cq,
		.max_send_wr = HOST_QUEUE,
		.max_recv_wr = HOST_QUEUE,
		.max_send_sge = FRL_MAX_SGE,
		.max_recv_sge = 4,
		.max_inline = FRL_MAX_INLINE,
		.window = 1024,
		.unlimited_retry = config && config->unlimited_retry,
	};

	free(own->storage);
	own->storage = calloc(1, qp_storage_size(&qp));
	ck_assert_ptr_nonnull(own->storage);
	qp.storage = own->storage;
	ck_assert_int_eq(engine_add_qp(&host->engine, &own->qp, &qp), 0);
	return &own->qp;
}

void host_connect(struct host *host, unsigned i, const struct host_qp_config *config)
{
	struct frl_qp_attr attr = host_attr(i, config);
	const char *why = "";

	for (int step = 0; step < 3; step++) {
		attr.state = (enum frl_qp_state)(FRL_QPS_INIT + step);
		ck_assert_msg(host_modify(host, i, &attr,
				      host_mask(host->qps[i].qp.core.type, attr.state), &why) == 0,
			"to %s: %s", frl_qp_state_str(attr.state), why);
	}
}

struct engine_qp *host_add(struct host *host, unsigned i, const struct host_qp_config *config)
{
	struct engine_qp *qp = host_create(host, i, config);

	host_connect(host, i, config);
	return qp;
}

void host_pair(
	struct host *a, unsigned i, struct host *b, unsigned k, const struct host_qp_config *config)
{
	struct host_qp_config own = { 0 };
	struct host *hosts[] = { a, b };
	unsigned numbers[] = { i, k };

	if (config)
		own = *config;
	own.psn = 7000;
	host_create(a, i, &own);
	host_create(b, k, &own);
	for (int end = 0; end < 2; end++) {
		struct host *peer = hosts[!end];
		uint8_t sgid = own.sgid_index ? own.sgid_index : HOST_GID_V4;

		own.dest_qpn = peer->qps[numbers[!end]].qp.core.qpn;
		own.dgid = peer->engine.gids.gids[sgid].ip;
		own.dmac = peer->port.base.caps.mac;
		host_connect(hosts[end], numbers[end], &own);
	}
}

void host_poll(struct host *host)
{
	host->now_ns += 1000;
	engine_poll(&host->engine, host->now_ns);
}

uint32_t host_carry(struct host *from, struct host *to)
{
	uint32_t n = from->port.n_sent;
	uint8_t frame[FAKE_MAX_FRAME];

	for (uint32_t k = 0; k < n; k++) {
		size_t len = fake_port_flatten(&from->port.sent[k].packet, frame);

		fake_port_receive(&to->port, 0, frame, (uint32_t)len);
	}
	from->port.n_sent = 0;
	return n;
}

uint32_t host_step(struct host *a, struct host *b)
{
	uint32_t moved;

	a->now_ns += 1000;
	moved = engine_poll(&a->engine, a->now_ns);
	if (a == b)
		return moved;
	b->now_ns = a->now_ns;
	moved += engine_poll(&b->engine, b->now_ns);
	return moved + host_carry(a, b) + host_carry(b, a);
}

void host_settle(struct host *a, struct host *b)
{
	for (unsigned round = 0; round < SETTLED; round++)
		if (!host_step(a, b))
			return;
	ck_abort_msg("it does not settle");
}

void host_attach(struct host *host, unsigned i, const struct frl_ip *group)
{
	const char *why = "";

	ck_assert_msg(
		engine_attach(&host->engine, &host->qps[i].qp, group, host->now_ns, &why) == 0,
		"%s", why);
}

int host_detach(struct host *host, unsigned i, const struct frl_ip *group)
{
	const char *why;

	return engine_detach(&host->engine, &host->qps[i].qp, group, &why);
}

int host_add_small(struct host *host, struct engine_qp *qp, enum frl_qp_type type)
{
	static _Alignas(64) uint8_t storage[16384];
	struct qp_config config = {
		.type = type,
		.pd = &host->pd,
		.send_cq = &host->cqs[0],
		.recv_cq = &host->cqs[0],
		.max_send_wr = 1,
		.max_recv_wr = 1,
		.max_send_sge = 1,
		.max_recv_sge = 1,
		.window = 1,
		.storage = storage,
	};

	ck_assert_uint_le(qp_storage_size(&config), sizeof(storage));
	return engine_add_qp(&host->engine, qp, &config);
}

void host_post_recv(struct host *host, unsigned i, uint64_t wr_id, uint32_t offset, uint32_t length)
{
	struct frl_sge sge = { host->memory + offset, length, host->region.key };
	struct frl_recv_wr wr = { .wr_id = wr_id, .sge = &sge, .n_sge = 1 };
	const char *why = "";

	ck_assert_msg(qp_post_recv(&host->qps[i].qp.core, &wr, &why) == 0, "%s", why);
	engine_update(&host->engine, &host->qps[i].qp);
}

void host_post(struct host *host, unsigned i, struct frl_send_wr wr, uint32_t offset,
	uint32_t length, const struct engine_ah *ah)
{
	struct frl_sge sge = { host->memory + offset, length, host->region.key };
	const struct wr_objects objects = { .ah = ah ? &ah->core : NULL };
	const char *why = "";

	wr.flags |= FRL_SEND_SIGNALED;
	wr.sge = &sge;
	wr.n_sge = 1;
	ck_assert_msg(qp_post_send(&host->qps[i].qp.core, &wr, &objects, &why) == 0, "%s", why);
	engine_update(&host->engine, &host->qps[i].qp);
}

void host_post_send(struct host *host, unsigned i, uint64_t wr_id, uint32_t length, uint32_t flags)
{
	const struct frl_send_wr wr = {
		.wr_id = wr_id,
		.opcode = FRL_WR_RDMA_WRITE,
		.flags = flags,
	};

	host_post(host, i, wr, 0, length, NULL);
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

	fake_port_receive(&host->port, host->qps[i].qp.path.link, frame.bytes, (uint32_t)frame.len);
}

const struct wire_packet *host_sent(const struct host *host, uint32_t k, const uint8_t **frame)
{
	static uint8_t bytes[FAKE_MAX_FRAME];
	static struct wire_packet packet;
	size_t len;

	ck_assert_uint_lt(k, host->port.n_sent);
	len = fake_port_flatten(&host->port.sent[k].packet, bytes);
	ck_assert_int_eq(wire_decode(&packet, bytes, len), WIRE_OK);
	if (frame)
		*frame = bytes;
	return &packet;
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
	ck_assert(cq_is_empty(cq));
}
