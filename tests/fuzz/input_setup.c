/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/fuzz/input_state.h"

#include <string.h>

struct state s;
struct area areas[AREAS];
int pds[2];

static const struct frl_ip own_v4 = { { [10] = 0xff, [11] = 0xff, 10, 9, 0, 1 } };
static const struct frl_ip peer_v4 = { { [10] = 0xff, [11] = 0xff, 10, 9, 0, 2 } };
static const struct frl_ip own_v6 = { { 0xfd, 9, [15] = 1 } };
static const struct frl_ip peer_v6 = { { 0xfd, 9, [15] = 2 } };

/* Properties of each region: `shift` is its start in its area. */
static const struct {
	uint32_t access;
	uint32_t shift;
	uint64_t iova; /* 0: the address in memory */
} kinds[REGIONS] = {
	[PLAIN] = { 31, 0, 0 },
	[MOVED] = { 31, 0, UINT64_C(0x7766554400001000) },
	[READ_ONLY] = { FRL_ACCESS_REMOTE_READ, 0, 0 },
	[FOREIGN] = { 31, 0, 0 },
	[ODD] = { 15, 3, 0x10000 },
	[HUGE] = { 31, 0, 0 },
};

static bool is_window(unsigned i)
{
	return i >= WINDOW_A;
}

uint64_t region_length(unsigned i)
{
	if (is_window(i))
		return s.regions[i] ? s.regions[i]->length : 0;
	return i == HUGE ? UINT64_C(1) << 32 : MEMORY - 2 * kinds[i].shift;
}

static uint8_t *region_memory_of(unsigned i)
{
	return i == HUGE ? (uint8_t *)(uintptr_t)0x100000000 : areas[i].bytes + kinds[i].shift;
}

uint64_t region_start(unsigned i)
{
	if (is_window(i))
		return s.regions[i] && s.regions[i]->parent ? s.regions[i]->iova
							    : region_start(PLAIN);
	return kinds[i].iova ? kinds[i].iova : (uintptr_t)region_memory_of(i);
}

void add_region(unsigned i)
{
	struct region *region = calloc(1, sizeof(*region));

	MUST(region);
	region->pd = &pds[i == FOREIGN];
	region->is_window = is_window(i);
	if (!is_window(i)) {
		region->addr = region_memory_of(i);
		region->length = region_length(i);
		region->iova = region_start(i);
		region->access = kinds[i].access;
	}
	s.random = s.random * 1103515245 + 12345;
	MUST(region_add(&s.table, region, s.random >> 8));
	s.regions[i] = region;
	s.keys[i] = region->key;
}

static bool is_datagram(enum frl_qp_type type)
{
	return type == FRL_QPT_UD || type == FRL_QPT_GSI;
}

static void describe(struct frl_qp_attr *attr)
{
	static const uint32_t psns[4] = { 0, 0xfffffa, 0x7ffffa, 0x123456 };
	static const uint8_t limits[8] = { 4, 1, 2, 3, 16, 32, 0, 8 };

	*attr = (struct frl_qp_attr){
		.access_flags = s.setup[5] & 14,
		.port_num = 1,
		.qkey = QKEY,
		.ah.dgid = s.peer_ip,
		.path_mtu = 256u << (s.setup[1] & 7) % 7,
		.dest_qpn = QPN_PEER,
		.rq_psn = psns[s.setup[1] >> 3 & 3],
		.sq_psn = psns[s.setup[1] >> 5 & 3],
		.max_rd_atomic = limits[s.setup[4] & 7],
		.max_dest_rd_atomic = limits[s.setup[4] >> 3 & 7],
		.min_rnr_timer = s.setup[3] >> 3,
		.timeout = s.setup[2] & 31,
		.retry_cnt = s.setup[2] >> 5,
		.rnr_retry = s.setup[3] & 7,
	};
}

void bring_up(enum frl_qp_state state)
{
	const uint32_t connected = FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN | FRL_QP_RQ_PSN;
	bool rc = s.qp.type == FRL_QPT_RC, ud = is_datagram(s.qp.type);
	const uint32_t masks[] = {
		FRL_QP_PKEY_INDEX | FRL_QP_PORT | (ud ? FRL_QP_QKEY : FRL_QP_ACCESS_FLAGS),
		(ud ? 0 : connected) | (rc ? FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_MIN_RNR_TIMER : 0),
		FRL_QP_SQ_PSN |
			(rc ? FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT | FRL_QP_RNR_RETRY |
						FRL_QP_MAX_QP_RD_ATOMIC
			    : 0),
	};
	struct frl_qp_attr attr;
	const char *why = NULL;

	describe(&attr);
	for (attr.state = FRL_QPS_INIT; attr.state <= state; attr.state++)
		MUST(qp_modify(&s.qp, &attr, FRL_QP_STATE | masks[attr.state - FRL_QPS_INIT],
			     &why) == 0);
	s.send_error = s.send_failed = false;
	s.max_resources = s.qp.responder.n_resources;
}

void make_cqs(void)
{
	cq_init(&s.send_cq, s.send_wc, s.n_cq, &s.queues);
	cq_init(&s.recv_cq, s.recv_wc, s.n_cq, &s.queues);
	s.seen[0] = s.seen[1] = 0;
}

static void make_paths(void)
{
	const struct wire_path_config config = {
		.src_ip = ip_is_v4(&s.peer_ip) ? own_v4 : own_v6,
		.dst_ip = s.peer_ip,
		.hop_limit = 64,
	};

	for (int i = 0; i < 2; i++) {
		s.handles[i] = (struct address_handle){ .pd = &pds[i], .link = 3 };
		wire_path_init(&s.handles[i].path, &config);
	}
}

static void make_srq(uint32_t size, uint32_t max_sge)
{
	s.srq = (struct srq){ .limit = s.setup[6] & 3, .queues = &s.queues };
	event_source_init(&s.srq.events, EVENT_OF_SRQ, NULL);
	s.srq_storage = calloc(1, recv_queue_storage(size, max_sge));
	MUST(s.srq_storage);
	recv_queue_init(&s.srq.queue, s.srq_storage, size, max_sge, &pds[0], &s.table);
}

static void make_qp(void)
{
	static const enum frl_qp_type types[8] = { FRL_QPT_RC, FRL_QPT_RC, FRL_QPT_RC, FRL_QPT_RC,
		FRL_QPT_UC, FRL_QPT_UC, FRL_QPT_UD, FRL_QPT_GSI };
	static const uint32_t sges[4] = { 4, 1, 16, 2 }, inlines[4] = { 64, 0, 16, 256 };
	static const uint32_t windows[16] = { 128, 1, 2, 3, 4, 5, 8, 16, 32, 33, 64, 127, 1000,
		16384, 0x7fffff, 7 };
	bool srq = s.setup[0] & 8;
	struct qp_config config = {
		.type = types[s.setup[0] & 7],
		.pkey = PKEY_DEFAULT,
		.port_mtu = 1024,
		.pd = &pds[0],
		.send_cq = &s.send_cq,
		.recv_cq = s.recv_to,
		.srq = srq ? &s.srq : NULL,
		.regions = &s.table,
		.stats = &s.stats,
		.queues = &s.queues,
		.max_send_wr = 8 - (s.setup[6] & 7),
		.max_recv_wr = srq || (s.setup[0] & 0x80) ? 0 : 8 - (s.setup[6] >> 3 & 7),
		.max_send_sge = sges[s.setup[7] & 3],
		.max_recv_sge = sges[s.setup[7] >> 2 & 3],
		.max_inline = inlines[s.setup[7] >> 4 & 3],
		.sq_sig_all = s.setup[0] & 0x10,
		.unlimited_retry = s.setup[0] & 0x40,
		.window = windows[s.setup[5] >> 4],
	};

	config.qpn = config.type == FRL_QPT_GSI ? QPN_GSI : QPN_OWN;
	if (srq)
		make_srq(8 - (s.setup[6] >> 3 & 7), config.max_recv_sge);
	s.storage = calloc(1, qp_storage_size(&config));
	MUST(s.storage);
	config.storage = s.storage;
	qp_init(&s.qp, &config);
}

static void fill_areas(void)
{
	for (int i = 0; i < AREAS; i++) {
		memset(areas[i].before, 0xe1, GUARD);
		memset(areas[i].bytes, 0x5a, MEMORY);
		memset(areas[i].after, 0xe2, GUARD);
	}
}

void start(struct script *script)
{
	static const uint32_t cq_sizes[4] = { 64, 4, 8, 32 };
	static const enum frl_qp_state states[4] = { FRL_QPS_RTS, FRL_QPS_RTS, FRL_QPS_RTR,
		FRL_QPS_INIT };

	memset(&s, 0, offsetof(struct state, requests));
	fill_areas();
	for (int i = 0; i < 8; i++)
		s.setup[i] = (uint8_t)take(script, 1);
	s.random = 0x1000;
	s.now_ns = 1000;
	s.n_cq = cq_sizes[s.setup[6] >> 6];
	s.direct = NOBODY;
	s.recv_to = s.setup[0] & 0x20 ? &s.send_cq : &s.recv_cq;
	s.peer_ip = s.setup[1] & 0x80 ? peer_v6 : peer_v4;
	event_queues_init(&s.queues);
	make_cqs();
	make_paths();
	region_table_extend(&s.table, s.slots, SLOTS);
	for (unsigned i = 0; i < REGIONS; i++)
		add_region(i);
	make_qp();
	bring_up(states[s.setup[7] >> 6]);
}

void finish(void)
{
	for (unsigned i = 0; i < REGIONS; i++)
		free(s.regions[i]);
	free(s.storage);
	free(s.srq_storage);
}
