/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libFuzzer entry for the protocol core: a script of bytes sets a queue pair up, posts requests,
 * makes packets by their fields, moves time, changes states and takes memory away. After each step
 * everything that must always hold is looked at; a violation aborts. The corpus is replayed by
 * tests/unit/fuzz/test_fuzz_corpus.c. To build:
 *   clang -std=gnu17 -D_GNU_SOURCE -O1 -g -fsanitize=fuzzer,address,undefined \
 *       -fno-sanitize-recover=all -I. -Ilib/include tests/fuzz/fuzz_input.c tests/fuzz/input_*.c \
 *       lib/protocol/[a-z]*.c lib/reduce/reduce.c lib/reduce/select_other.c \
 *       lib/wire/packet_encode.c lib/wire/opcode.c
 */
#include "tests/fuzz/fuzz_input.h"

#include <string.h>

#include "tests/fuzz/input_state.h"

enum { SETTLED_PACKETS = 2048 }; /* more are not waited for */

static uint32_t take_elements(
	struct script *script, struct frl_sge sge[FRL_MAX_SGE + 1], bool local)
{
	uint32_t n = take(script, 1), region;

	n = n < 0x80 ? n & 3 : n % (FRL_MAX_SGE + 2);
	for (uint32_t i = 0; i < n; i++) {
		region = take(script, 1);
		/* Inline payload is read from a pointer. */
		if (local)
			sge[i].addr = areas[region % AREAS].bytes + take(script, 1);
		else
			sge[i].addr = (void *)(uintptr_t)take_address(script, region % REGIONS);
		sge[i].lkey = region < 0xf8 ? s.keys[region % REGIONS] : region;
		sge[i].length = take_length(script);
	}
	return n;
}

static uint32_t new_request(bool send, uint8_t opcode, const struct frl_sge sge[], uint32_t n)
{
	struct request *request = &s.requests[s.n_requests];

	*request = (struct request){ .send = send, .opcode = opcode };
	for (uint32_t i = 0; i < n && i < FRL_MAX_SGE; i++) {
		request->sge[request->n_sge++] = sge[i];
		request->length += sge[i].length;
	}
	return s.n_requests++;
}

static void check_posted(
	int rc, const char *why, struct book *book, uint32_t id, const uint32_t tails[2])
{
	MUST((rc != 0) == (why != NULL));
	MUST(tails[1] - tails[0] <= (rc == 0));
	if (tails[1] != tails[0])
		book->ids[tails[0] % POSITIONS] = id;
	else if (rc == 0)
		s.direct = id;
}

static struct frl_mw_bind take_bind(struct script *script, unsigned parent, unsigned window)
{
	uint32_t kind = take(script, 1);
	uint64_t addr = take_address(script, parent);

	return (struct frl_mw_bind){
		.addr = addr,
		.length = take_length(script),
		.rkey = s.keys[window] + 1 + (kind & 0x80 ? kind : 0),
		.access = kind & (kind & 0x40 ? 31 : 14),
	};
}

/* Posting a request, and taking it back, changes nothing. */
static void post_and_undo(const struct frl_send_wr *wr, const struct wr_objects *objects)
{
	struct requester before = s.qp.requester;
	const char *why = NULL;

	if (!qp_sends(&s.qp) || qp_post_send(&s.qp, wr, objects, &why))
		return;
	qp_undo_posts(&s.qp, 1);
	MUST(memcmp(&before, &s.qp.requester, sizeof(before)) == 0);
}

static void post_send(struct script *script)
{
	static const uint32_t qkeys[4] = { QKEY, 0x80000000, QKEY_GSI, 1 };
	struct frl_sge sge[FRL_MAX_SGE + 1];
	uint32_t kind = take(script, 1), flags = take(script, 1), where = take(script, 1);
	unsigned region = where % REGIONS, window = WINDOW_A + (where >> 3 & 1);
	struct wr_objects objects = { 0 };
	struct frl_send_wr wr = {
		.opcode = (kind & 31) % 11, .flags = flags & (flags & 0x80 ? 0x1f : 0xf), .sge = sge
	};
	uint32_t tails[2] = { s.qp.requester.tail };
	const char *why = NULL;
	int rc;

	wr.n_sge = (int)take_elements(script, sge, wr.flags & FRL_SEND_INLINE);
	wr.wr_id = new_request(true, (uint8_t)wr.opcode, sge, (uint32_t)wr.n_sge);
	s.requests[wr.wr_id].signaled = s.qp.sq_sig_all || (wr.flags & FRL_SEND_SIGNALED);
	wr.imm_data = where & 0x10 ? where : s.keys[window];
	wr.remote_addr = (where & 0x80) ? where : where * UINT64_C(0x100000008);
	wr.rkey = where;
	wr.compare_add = UINT64_C(0x5a5a5a5a5a5a5a5a) + (where >> 5);
	wr.swap = where;
	wr.remote_qpn = where & 0x80 ? where << 17 | where : QPN_PEER;
	wr.remote_qkey = qkeys[kind >> 6];
	if (qp_is_datagram(&s.qp) && !(kind & 0x20))
		objects.ah = &s.handles[(where & 0x60) == 0x60];
	if (wr.opcode == FRL_WR_BIND_MW) {
		wr.bind = take_bind(script, region, window);
		objects.window = s.regions[window];
		objects.parent = s.regions[region];
	}
	post_and_undo(&wr, &objects);
	rc = qp_post_send(&s.qp, &wr, &objects, &why);
	tails[1] = s.qp.requester.tail;
	MUST(tails[1] == tails[0] || !wr_is_atomic((uint8_t)wr.opcode) ||
		s.requests[wr.wr_id].length == ATOMIC_SIZE);
	check_posted(rc, why, &s.sends, (uint32_t)wr.wr_id, tails);
}

static void post_recv(struct script *script)
{
	struct recv_queue *queue = s.qp.responder.srq ? &s.srq.queue : &s.qp.responder.queue;
	uint32_t kind = take(script, 1), tails[2] = { queue->tail };
	struct frl_sge sge[FRL_MAX_SGE + 1];
	struct frl_recv_wr wr = { .sge = sge };
	const char *why = NULL;
	int rc;

	wr.n_sge = (int)take_elements(script, sge, false);
	wr.wr_id = new_request(false, 0, sge, (uint32_t)wr.n_sge);
	if (kind & 0x80) {
		wr.action.type = kind & 0x40 ? kind & 3 : FRL_ACTION_REDUCE;
		wr.action.dtype = (kind & 0x3c) == 0x3c ? FRL_DTYPES : FRL_FLOAT32;
		wr.action.op = (kind & 0x3c) == 0x38 ? FRL_AVG : FRL_SUM;
		if (kind & 4)
			wr.action.src = (const void *)(uintptr_t)take_address(
				script, kind >> 3 & 7);
		wr.action.src_lkey = s.keys[kind >> 3 & 7];
	}
	if (s.qp.responder.srq && !(kind & 8))
		rc = recv_queue_post(queue, &wr, &why);
	else
		rc = qp_post_recv(&s.qp, &wr, &why);
	tails[1] = queue->tail;
	check_posted(rc, why, &s.recvs, (uint32_t)wr.wr_id, tails);
}

static void output(uint32_t max)
{
	const struct requester *r = &s.qp.requester;
	struct packet_out *out = malloc((max + 1) * sizeof(*out));
	bool wants = qp_wants_output(&s.qp);
	uint32_t head = r->head, pending = s.qp.responder.n_pending, n;
	enum frl_qp_state state = s.qp.state;
	struct psn next = r->next;

	MUST(out);
	if (qp_is_datagram(&s.qp))
		MUST(wants == !!qp_next_target(&s.qp) || wr_is_local(send_wqe_at(r, head)->opcode));
	n = qp_output(&s.qp, out, max, s.now_ns);
	MUST(n <= max && (wants || n == 0));
	/* Work that sends no packet is progress, too. */
	MUST(!wants || !max || n || r->head != head || s.qp.state != state || r->blocked ||
		s.qp.responder.n_pending != pending);
	for (uint32_t i = 0; i < n; i++) {
		check_packet(&out[i]);
		if (opcode_table[out[i].h.bth.opcode].flags & OPCODE_RESPONSE)
			continue;
		/* Requests leave in order. */
		MUST(psn_equal(out[i].h.bth.psn, next));
		next = psn_next(next);
		if ((out[i].h.bth.opcode) == OP_READ_REQUEST)
			next = psn_add(out[i].h.bth.psn,
				packets_for(out[i].h.reth.dma_length, s.qp.path_mtu));
		s.untold += s.qp.type != FRL_QPT_RC;
	}
	if (n)
		check_order(&out[n - 1]);
	MUST(!qp_sends(&s.qp) || psn_equal(r->next, next));
	free(out);
}

static void transmitted(uint32_t n)
{
	n = n % 4 == 0 ? s.untold : n % (s.untold + 1);
	s.untold -= n;
	qp_transmitted(&s.qp, n);
}

static void reset(uint32_t kind)
{
	static const enum frl_qp_state states[4] = { FRL_QPS_RTS, FRL_QPS_RTR, FRL_QPS_INIT,
		FRL_QPS_RESET };
	const struct frl_qp_attr attr = { .state = FRL_QPS_RESET };
	const char *why = NULL;

	MUST(qp_modify(&s.qp, &attr, FRL_QP_STATE, &why) == 0);
	/* Queued requests complete without notice. */
	MUST(s.seen[0] == s.send_cq.tail && s.seen[1] == s.recv_cq.tail);
	s.sends.done = 0;
	s.recvs.done = s.qp.responder.srq ? s.srq.queue.head : 0;
	s.untold = 0;
	if (kind & 4) {
		list_remove(&s.send_cq.notify);
		list_remove(&s.recv_cq.notify);
		list_remove(&s.send_cq.events.node);
		list_remove(&s.recv_cq.events.node);
		make_cqs();
	}
	s.setup[1] ^= kind & 8 ? 0x69 : 0;
	bring_up(states[kind & 3]);
}

/* A refused request changes nothing. */
static void modify(const struct frl_qp_attr *attr, uint32_t mask)
{
	const struct qp before = s.qp;
	const char *why = NULL;
	int rc = qp_modify(&s.qp, attr, mask, &why);

	MUST((rc != 0) == (why != NULL));
	if (rc) {
		MUST(memcmp(&before, &s.qp, sizeof(before)) == 0);
		return;
	}
	if (s.qp.state == FRL_QPS_RTS)
		s.send_error = s.send_failed = false;
	if (s.qp.responder.n_resources > s.max_resources)
		s.max_resources = s.qp.responder.n_resources;
}

static void change(struct script *script)
{
	static const uint32_t masks[8] = { FRL_QP_ACCESS_FLAGS, FRL_QP_MIN_RNR_TIMER,
		FRL_QP_TIMEOUT, FRL_QP_RETRY_CNT, FRL_QP_RNR_RETRY, FRL_QP_MAX_QP_RD_ATOMIC,
		FRL_QP_MAX_DEST_RD_ATOMIC, FRL_QP_QKEY };
	uint32_t kind = take(script, 1), value = take(script, 1), mask = 0;
	struct frl_qp_attr attr = {
		.state = kind & 7,
		.cur_state = s.qp.state,
		.en_sqd_async_notify = value & 1,
		.access_flags = value & 14,
		.min_rnr_timer = value & 31,
		.timeout = value & 31,
		.retry_cnt = value & 7,
		.rnr_retry = value & 7,
		.max_rd_atomic = value & 3,
		.max_dest_rd_atomic = value & 3,
		.qkey = QKEY,
		.port_num = 1,
		.path_mtu = 512,
		.dest_qpn = QPN_PEER,
		.ah.dgid = s.peer_ip,
	};

	if (kind & 8)
		mask |= masks[kind >> 5];
	if (kind & 0x10)
		mask |= take(script, 4);
	/* RESET has a step of its own, as it discards state. */
	if (attr.state != FRL_QPS_RESET)
		mask |= FRL_QP_STATE;
	else
		mask &= ~(uint32_t)FRL_QP_STATE;
	modify(&attr, mask);
}

/* Removes, restores or changes rights of a region, as the API allows. */
static void change_region(struct script *script)
{
	uint32_t kind = take(script, 1), i = kind % REGIONS;
	struct region *region = s.regions[i];

	if (!region) {
		add_region(i);
	} else if (region->windows) {
		return;
	} else if (!(kind & 8)) {
		region_remove(&s.table, region);
		free(region);
		s.regions[i] = NULL;
	} else if (region->parent) {
		region->qp = &pds[1]; /* as if another queue pair had bound it */
	} else if (i == PLAIN || i == MOVED) {
		region->pd = &pds[kind >> 4 & 1];
		region->access = kind >> 5 == 0 ? 31 : kind >> 5 | FRL_ACCESS_LOCAL_WRITE;
	}
}

static void poll(uint32_t n)
{
	struct frl_wc wc;

	if (n % 4 == 0)
		n = MAX_CQ;
	for (uint32_t i = 0; i < n; i++) {
		cq_pop(&s.send_cq, &wc);
		cq_pop(&s.recv_cq, &wc);
	}
}

static void arm(uint32_t kind)
{
	struct cq *cq = kind & 1 ? s.recv_to : &s.send_cq;

	while (!list_empty(&s.queues.completions))
		list_remove(s.queues.completions.next);
	while (!list_empty(&s.queues.async))
		event_take(container_of(s.queues.async.next, struct event_source, node));
	cq->armed = kind & 2 ? CQ_ARMED : CQ_ARMED_SOLICITED;
	if (s.qp.responder.srq)
		s.srq.limit = kind >> 2;
}

static void pass_time(struct script *script, uint32_t kind)
{
	uint64_t deadline = qp_next_deadline(&s.qp);

	if (kind & 1)
		s.now_ns += (uint64_t)take(script, 2) << (kind & 14);
	else if (deadline != DEADLINE_NONE && deadline > s.now_ns)
		s.now_ns = deadline;
	if (kind == 15)
		return;
	qp_on_deadline(&s.qp, s.now_ns);
	deadline = qp_next_deadline(&s.qp);
	MUST(deadline == DEADLINE_NONE || deadline > s.now_ns);
}

static void step(struct script *script)
{
	uint32_t op = take(script, 1), kind = op >> 4;

	switch (op & 15) {
	case 0:
	case 1: post_send(script); break;
	case 2:
	case 3: post_recv(script); break;
	case 4: input_request(script); break;
	case 5:
	case 6: input_proper_request(script); break;
	case 7: input_answer(script); break;
	case 8: input_proper_answer(kind); break;
	case 9: output(kind); break;
	case 10:
		output(MAX_OUT);
		transmitted(0);
		break;
	case 11: transmitted(kind); break;
	case 12: pass_time(script, kind); break;
	case 13:
		if (kind >= 8)
			reset(kind);
		else
			change(script);
		break;
	case 14: change_region(script); break;
	case 15:
		if (kind >= 8)
			arm(kind);
		else
			poll(kind);
		break;
	}
}

/* Sends packets until the send queue is empty. */
static uint32_t packets_left(void)
{
	const struct requester *r = &s.qp.requester;

	return (uint32_t)psn_diff(r->end, r->una);
}

static void check(void)
{
	if (!qp_sends(&s.qp))
		s.untold = 0;
	check_completions();
	check_state();
}

/* With a peer that answers, all posted requests complete, whatever happened before. */
static void settle(void)
{
	const struct requester *r = &s.qp.requester;

	if (packets_left() > SETTLED_PACKETS)
		return;
	for (int round = 0; round < SETTLED_PACKETS && r->head != r->tail; round++) {
		uint32_t before = packets_left(), head = r->head;

		if (r->draining && r->head == r->stop)
			break;
		output(MAX_OUT);
		check();
		transmitted(0);
		for (int i = 0; i < MAX_OUT && r->head != r->tail; i++)
			input_proper_answer(MAX_OUT - 1);
		check();
		poll(0);
		if (packets_left() == before && r->head == head && !qp_wants_output(&s.qp)) {
			MUST(qp_next_deadline(&s.qp) != DEADLINE_NONE);
			s.now_ns = qp_next_deadline(&s.qp);
			qp_on_deadline(&s.qp, s.now_ns);
			check();
		}
	}
	MUST(r->head == r->tail || (r->draining && r->head == r->stop));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script script = { data, data + size };
	struct frl_qp_attr error = { .state = FRL_QPS_ERR };

	start(&script);
	while (script.at < script.end && s.n_requests < REQUESTS) {
		step(&script);
		/* Binding a window changes its key. */
		for (unsigned i = 0; i < REGIONS; i++)
			s.keys[i] = s.regions[i] ? s.regions[i]->key : s.keys[i];
		check();
	}
	settle();
	/* All requests complete. */
	if (s.qp.state != FRL_QPS_RESET)
		modify(&error, FRL_QP_STATE);
	check();
	check_untouched();
	finish();
	return 0;
}
