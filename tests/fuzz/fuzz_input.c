/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libFuzzer entry for the protocol core: a script of bytes posts requests, makes packets by their
 * fields, moves time, takes memory away. After each step everything that must always hold is looked
 * at; a violation aborts. The corpus is replayed by tests/unit/test_fuzz_input_corpus.c.
 */
#include "tests/fuzz/fuzz_input.h"

#include "lib/protocol/qp.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                    \
	do {                                                               \
		if (!(condition)) {                                        \
			fprintf(stderr, "%d: %s\n", __LINE__, #condition); \
			abort();                                           \
		}                                                          \
	} while (0)

enum { QUEUE = 8, CQ = 16, REGIONS = 4, MEMORY = 16384, REQUESTS = 4096, OUT = 16 };

enum fate {
	UNUSED,
	POSTED,
	DONE, /* completed, or dropped by RESET, or refused */
};

struct script {
	const uint8_t *at;
	const uint8_t *end;
};

struct state {
	struct qp qp;
	struct cq send_cq, recv_cq;
	struct frl_wc send_wc[CQ], recv_wc[CQ];
	struct send_wqe send_wqes[QUEUE];
	struct recv_wqe recv_wqes[QUEUE];
	struct region_table table;
	struct region *slots[REGIONS + 1];
	struct region regions[REGIONS];
	bool present[REGIONS];
	uint32_t random;
	struct frl_stats stats;
	uint8_t fate[REQUESTS];
	uint32_t recv_length[REQUESTS];
	uint32_t n_requests;
	uint64_t now_ns;
	uint8_t setup[4];
	uint8_t memory[REGIONS][MEMORY];
	uint8_t payload[8192];
};

static struct state s;
static int pds[2];
static const struct frl_ip peer = { { [15] = 1 } };

static uint32_t take(struct script *script, int bytes)
{
	uint32_t value = 0;

	while (bytes--)
		value = value << 8 | (script->at < script->end ? *script->at++ : 0);
	return value;
}

/* Lengths near what matters, or any. */
static uint32_t take_length(struct script *script)
{
	uint32_t kind = take(script, 1), mtu = s.qp.path_mtu;

	switch (kind & 7) {
	case 0: return 0;
	case 1: return mtu;
	case 2: return mtu + (kind >> 3) - 16;
	case 3: return mtu * (kind >> 3);
	case 4: return mtu * (kind >> 6) + (kind >> 3 & 7);
	case 5: return take(script, 2);
	case 6: return take(script, 4);
	default: return kind >> 3;
	}
}

static void add_region(unsigned i)
{
	static const uint32_t access[REGIONS] = { 3, 3, 0, 3 };

	s.regions[i] = (struct region){
		.addr = s.memory[i], .length = MEMORY, .access = access[i], .pd = &pds[i == 3]
	};
	MUST(region_add(&s.table, &s.regions[i], s.random++));
	s.present[i] = true;
}

static void bring_up(enum frl_qp_state state)
{
	static const uint32_t psns[] = { 0, 0xfffff8, 0x7ffff8, 0x123456 };
	struct frl_qp_attr attr = { .state = FRL_QPS_INIT,
		.access_flags = s.setup[0] & 1 ? 0 : FRL_ACCESS_REMOTE_WRITE,
		.remote_ip = peer,
		.path_mtu = 256u << (s.setup[0] >> 1) % 5,
		.dest_qpn = 2,
		.rq_psn = psns[s.setup[1] & 3],
		.sq_psn = psns[s.setup[1] >> 2 & 3],
		.min_rnr_timer = s.setup[1] >> 4,
		.timeout = s.setup[2] & 31,
		.retry_cnt = s.setup[2] >> 5,
		.rnr_retry = s.setup[3] & 7 };
	const char *why;

	MUST(qp_modify(&s.qp, &attr, FRL_QP_STATE | FRL_QP_ACCESS_FLAGS, &why) == 0);
	if (state == FRL_QPS_INIT)
		return;
	attr.state = FRL_QPS_RTR;
	MUST(qp_modify(&s.qp, &attr,
		     FRL_QP_STATE | FRL_QP_PATH | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN |
			     FRL_QP_RQ_PSN | FRL_QP_MIN_RNR_TIMER,
		     &why) == 0);
	if (state == FRL_QPS_RTR)
		return;
	attr.state = FRL_QPS_RTS;
	MUST(qp_modify(&s.qp, &attr,
		     FRL_QP_STATE | FRL_QP_SQ_PSN | FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT |
			     FRL_QP_RNR_RETRY,
		     &why) == 0);
}

static void start(struct script *script)
{
	memset(&s, 0, offsetof(struct state, memory));
	for (int i = 0; i < 4; i++)
		s.setup[i] = (uint8_t)take(script, 1);
	s.random = 0x1000;
	cq_init(&s.send_cq, s.send_wc, CQ);
	cq_init(&s.recv_cq, s.recv_wc, CQ);
	region_table_extend(&s.table, s.slots, REGIONS + 1);
	for (unsigned i = 0; i < REGIONS; i++)
		add_region(i);
	qp_init(&s.qp,
		&(struct qp_config){ .qpn = 1,
			.pd = &pds[0],
			.send_cq = &s.send_cq,
			.recv_cq = &s.recv_cq,
			.regions = &s.table,
			.stats = &s.stats,
			.send_wqes = s.send_wqes,
			.n_send = QUEUE,
			.recv_wqes = s.recv_wqes,
			.n_recv = s.setup[0] & 0x80 ? 0 : QUEUE,
			.window = 1 + (s.setup[3] >> 3 & 15),
			.unlimited_retry = s.setup[3] >> 7 });
	s.now_ns = 1000;
	bring_up(FRL_QPS_RTS);
}

/* May lie outside. */
static void *address(unsigned region, uint32_t offset)
{
	return (void *)((uintptr_t)s.memory[region] + offset);
}

static uint32_t take_elements(struct script *script, struct frl_sge sge[FRL_MAX_SGE])
{
	uint32_t n = take(script, 1) % (FRL_MAX_SGE + 1), region = n ? take(script, 1) : 0;

	for (uint32_t i = 0; i < n; i++) {
		unsigned r = region >> 2 * i & 3;

		sge[i] = (struct frl_sge){ address(r, take(script, 2)), 0, s.regions[r].key };
		sge[i].length = take_length(script);
	}
	return n;
}

static void post(struct script *script, bool send)
{
	struct frl_sge sge[FRL_MAX_SGE];
	uint32_t kind = take(script, 1), n = take_elements(script, sge);
	uint32_t id = s.n_requests++;
	const char *why = NULL;
	int rc;

	s.fate[id] = POSTED;
	if (send) {
		struct frl_send_wr wr = { .wr_id = id,
			.opcode = kind & 7,
			.flags = kind >> 3 & 3,
			.sge = sge,
			.n_sge = (int)n,
			.remote_addr = 77,
			.rkey = 5 };

		rc = qp_post_send(&s.qp, &wr, &why);
	} else {
		struct frl_recv_wr wr = { .wr_id = id, .sge = sge, .n_sge = (int)n };

		wr.action.type = kind & 3;
		wr.action.src = kind & 4 ? address(kind >> 3 & 3, (kind >> 5) * 4096) : NULL;
		wr.action.src_lkey = s.regions[kind >> 3 & 3].key;
		rc = qp_post_recv(&s.qp, &wr, &why);
		for (uint32_t i = 0; i < n; i++)
			s.recv_length[id] += sge[i].length;
	}
	MUST(rc == 0 || why);
	if (rc)
		s.fate[id] = DONE;
}

static void check_placements(const struct placements *placements, const struct wire_packet *packet)
{
	const uint8_t *payload = packet->payload;

	MUST(placements->count <= FRL_MAX_SGE);
	for (uint32_t i = 0; i < placements->count; i++) {
		const struct placement *p = &placements->list[i];

		MUST(p->region && p->length);
		MUST(region_find(&s.table, p->region->key) == p->region);
		MUST(region_allows(
			p->region, &pds[0], (uintptr_t)p->dst, p->length, FRL_ACCESS_LOCAL_WRITE));
		MUST(p->payload == payload);
		payload += p->length;
		if (p->action) {
			MUST(p->action->type == FRL_ACTION_REDUCE && p->length % 4 == 0);
			frl_reduce_plain(
				p->dst, p->src, p->payload, p->length / 4, FRL_FLOAT32, FRL_SUM);
		} else {
			memcpy(p->dst, p->payload, p->length);
		}
	}
	MUST(placements->count == 0 || payload == packet->payload + packet->payload_len);
}

static void input(struct wire_packet *packet, uint8_t opcode)
{
	struct placements placements;

	if (!opcode_known(opcode))
		return; /* wire_decode() lets none pass */
	packet->h.bth.opcode = opcode;
	packet->h.bth.pkey = PKEY_DEFAULT;
	packet->op = &opcode_table[opcode];
	packet->src_ip = peer;
	packet->payload = s.payload;
	packet->payload_len &= sizeof(s.payload) - 1;
	qp_input(&s.qp, packet, &placements, s.now_ns);
	check_placements(&placements, packet);
}

static void request(struct script *script)
{
	uint8_t opcode = (uint8_t)take(script, 1);
	uint32_t ahead = (uint32_t)(int8_t)take(script, 1), keys;
	struct wire_packet packet = { .h.bth.psn = psn_add(s.qp.responder.epsn, ahead),
		.payload_len = take_length(script) };

	packet.h.bth.ack_request = opcode & 0x40;
	if (opcode_table[opcode & 0x1f].headers & HEADER_RETH) {
		keys = take(script, 1);
		packet.h.reth = (struct reth){ (uintptr_t)s.memory[keys & 3] + take(script, 2),
			s.regions[keys & 3].key + (keys >> 7), packet.payload_len };
		if (keys & 4)
			packet.h.reth.dma_length = take_length(script);
	}
	input(&packet, opcode < 0x80 ? opcode & 0x1f : opcode);
}

static void answer(struct script *script)
{
	struct wire_packet packet = { .h.aeth.syndrome = (uint8_t)take(script, 1) };

	packet.h.bth.psn = psn_add(s.qp.requester.una, (uint32_t)(int8_t)take(script, 1));
	input(&packet, OP_ACKNOWLEDGE);
}

static void output(uint32_t max)
{
	struct packet_out out[OUT];
	bool wants = qp_wants_output(&s.qp);
	uint32_t n = qp_output(&s.qp, out, max % (OUT + 1), s.now_ns);

	MUST(n <= max % (OUT + 1));
	MUST(wants || n == 0);
	MUST(!wants || n || max % (OUT + 1) == 0 || s.qp.state == FRL_QPS_ERR);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t sum = 0;

		MUST(out[i].n_pieces <= FRL_MAX_SGE && out[i].payload_len <= s.qp.path_mtu);
		for (uint32_t k = 0; k < out[i].n_pieces; k++) {
			const struct packet_piece *piece = &out[i].pieces[k];

			sum += piece->length;
			MUST(!piece->region ||
				region_allows(piece->region, &pds[0], (uintptr_t)piece->addr,
					piece->length, 0));
		}
		MUST(sum == out[i].payload_len);
	}
}

static void poll(struct cq *cq)
{
	struct frl_wc wc;

	while (cq_pop(cq, &wc)) {
		MUST(wc.wr_id < s.n_requests && s.fate[wc.wr_id] == POSTED);
		s.fate[wc.wr_id] = DONE;
		MUST(wc.status == FRL_WC_SUCCESS || s.qp.state == FRL_QPS_ERR);
		if (cq == &s.recv_cq && wc.status == FRL_WC_SUCCESS && wc.opcode == FRL_WC_RECV)
			MUST(wc.byte_len <= s.recv_length[wc.wr_id]);
	}
}

static void change_state(uint32_t kind)
{
	struct frl_qp_attr attr = { .state = kind & 1 ? FRL_QPS_ERR : FRL_QPS_RESET };
	const char *why;

	poll(&s.send_cq);
	poll(&s.recv_cq);
	if (qp_modify(&s.qp, &attr, FRL_QP_STATE, &why))
		return;
	poll(&s.send_cq);
	poll(&s.recv_cq);
	if (s.qp.state != FRL_QPS_RESET)
		return;
	for (uint32_t i = 0; i < s.n_requests; i++)
		s.fate[i] = DONE;
	bring_up(FRL_QPS_INIT + (kind >> 1) % 3);
}

static void check(void)
{
	const struct requester *r = &s.qp.requester;
	const struct responder *q = &s.qp.responder;

	MUST(psn_diff(r->una, r->next) <= 0 && psn_diff(r->next, r->sent_end) <= 0);
	MUST(psn_diff(r->sent_end, r->end) <= 0);
	MUST((uint32_t)psn_diff(r->sent_end, r->una) <= r->window);
	MUST(r->tail - r->head <= QUEUE && r->current - r->head <= r->tail - r->head);
	MUST((r->head == r->tail) == psn_equal(r->una, r->end));
	MUST(q->tail - q->head <= q->size && q->msn <= PSN_MASK);
	MUST(q->message == MESSAGE_NONE || s.qp.state >= FRL_QPS_RTR);
	if (s.qp.state == FRL_QPS_ERR)
		MUST(r->head == r->tail && q->head == q->tail);
	if (s.qp.state != FRL_QPS_RTS)
		MUST(qp_next_deadline(&s.qp) == DEADLINE_NONE);
	/* Whatever is unacknowledged has a timer. */
	else if (!psn_equal(r->una, r->next) && s.qp.recovery.ack_timeout_ns)
		MUST(qp_next_deadline(&s.qp) != DEADLINE_NONE);
}

static void step(struct script *script)
{
	uint32_t op = take(script, 1), i = op >> 4 & 3;

	switch (op & 15) {
	case 0:
	case 1: post(script, true); break;
	case 2:
	case 3: post(script, false); break;
	case 4:
	case 5:
	case 6: request(script); break;
	case 7:
	case 8: answer(script); break;
	case 9: output(op >> 4); break;
	case 10: output(OUT); break;
	case 11: s.now_ns += take(script, 2); break;
	case 12:
		if (qp_next_deadline(&s.qp) != DEADLINE_NONE && qp_next_deadline(&s.qp) > s.now_ns)
			s.now_ns = qp_next_deadline(&s.qp);
		qp_on_deadline(&s.qp, s.now_ns);
		break;
	case 13:
		if (s.present[i])
			region_remove(&s.table, &s.regions[i]);
		else
			add_region(i);
		s.present[i] = s.table.slots[s.regions[i].key & (REGION_MAX - 1)] == &s.regions[i];
		break;
	case 14: change_state(op >> 4); break;
	case 15:
		poll(&s.send_cq);
		poll(&s.recv_cq);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script script = { data, data + size };

	start(&script);
	while (script.at < script.end && s.n_requests < REQUESTS) {
		step(&script);
		check();
	}
	if (s.qp.state != FRL_QPS_RESET)
		change_state(1);
	poll(&s.send_cq);
	poll(&s.recv_cq);
	/* Nothing is forgotten: only unsignaled successes have no completion. */
	check();
	return 0;
}
