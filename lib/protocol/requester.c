/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requester: splits requests into packets, keeps the window, and completes requests as they are
 * acknowledged or answered. IBTA volume 1, 9.7.2 and 9.7.3.
 */
#include "lib/protocol/fast_path.h"
#include "lib/protocol/recovery.h"

enum {
	/* Packets between AckReqs in a long message, so that the window moves before it is full. */
	ACK_REQUEST_INTERVAL = 32,
	/* Used where an ACK costs as much as a batch of packets. */
	ACK_REQUEST_INTERVAL_LONG = 64,
};

static uint32_t packets_in_flight(const struct requester *r)
{
	return (uint32_t)psn_diff(r->next, r->una);
}

static bool is_rc(const struct qp *qp)
{
	return qp->type == FRL_QPT_RC;
}

void requester_go_back(struct requester *r)
{
	r->next = r->una;
	r->current = r->head;
	r->outstanding = 0;
	r->blocked = false;
}

uint32_t requester_started(const struct requester *r)
{
	uint32_t position = r->current;

	while (position != r->tail &&
		psn_diff(r->sent_end, send_wqe_at(r, position)->first_psn) > 0)
		position++;
	return position;
}

bool requester_drained(const struct qp *qp)
{
	const struct requester *r = &qp->requester;

	return qp->state == FRL_QPS_SQD && r->draining && r->head == r->stop;
}

void requester_check_drained(struct qp *qp)
{
	if (qp->attr.en_sqd_async_notify && requester_drained(qp))
		event_raise(qp->queues, &qp->events, FRL_EVENT_SQ_DRAINED);
}

/* Writes the completion of a request, if it is signaled. Returns false if the queue pair has
 * failed. */
static __attribute__((noinline)) bool report_done(struct qp *qp, const struct send_wqe *wqe)
{
	static const uint8_t opcodes[] = {
		[FRL_WR_RDMA_WRITE] = FRL_WC_RDMA_WRITE,
		[FRL_WR_RDMA_WRITE_WITH_IMM] = FRL_WC_RDMA_WRITE,
		[FRL_WR_SEND] = FRL_WC_SEND,
		[FRL_WR_SEND_WITH_IMM] = FRL_WC_SEND,
		[FRL_WR_RDMA_READ] = FRL_WC_RDMA_READ,
		[FRL_WR_ATOMIC_CMP_AND_SWP] = FRL_WC_COMP_SWAP,
		[FRL_WR_ATOMIC_FETCH_AND_ADD] = FRL_WC_FETCH_ADD,
		[FRL_WR_LOCAL_INV] = FRL_WC_LOCAL_INV,
		[FRL_WR_BIND_MW] = FRL_WC_BIND_MW,
		[FRL_WR_SEND_WITH_INV] = FRL_WC_SEND,
	};
	struct frl_wc wc = {
		.wr_id = wqe->wr_id,
		.status = FRL_WC_SUCCESS,
		.opcode = (enum frl_wc_opcode)opcodes[wqe->opcode],
		.byte_len = wqe->length,
		.qp_num = qp->qpn,
	};

	if (wqe->flags & FRL_SEND_SIGNALED)
		qp_complete_send(qp, &wc);
	requester_check_drained(qp);
	return qp_sends(qp);
}

/* Removes the oldest request, which is done; `una` is past it. `responded`: wr_has_response().
 * Returns false if the queue pair has failed. */
static inline bool complete_head(struct qp *qp, bool responded)
{
	struct requester *r = &qp->requester;
	const struct send_wqe *wqe = send_wqe_at(r, r->head);

	/* The request was done before its retransmission started. */
	if (r->current == r->head) {
		r->current++;
		r->blocked = false;
	} else {
		r->outstanding -= responded;
	}
	r->head++;
	if (!(wqe->flags & FRL_SEND_SIGNALED) && qp->state == FRL_QPS_RTS)
		return true;
	return report_done(qp, wqe);
}

/* Skips retransmissions that were acknowledged meanwhile. */
static void catch_up(struct requester *r)
{
	if (psn_diff(r->next, r->una) < 0)
		r->next = r->una;
}

bool requester_acknowledge(struct qp *qp, struct psn psn)
{
	struct requester *r = &qp->requester;
	struct psn before = r->una, una = before;

	while (psn_diff(psn, una) > 0) {
		const struct send_wqe *wqe = send_wqe_at(r, r->head);

		if (wr_has_response(wqe->opcode))
			break;
		if (psn_diff(psn, wqe->first_psn) < (int32_t)wqe->packets) {
			r->una = psn;
			break;
		}
		r->una = una = psn_add(wqe->first_psn, wqe->packets);
		if (!complete_head(qp, false))
			return true;
	}
	catch_up(r);
	return !psn_equal(r->una, before);
}

void requester_response_taken(struct qp *qp)
{
	qp->requester.una = psn_next(qp->requester.una);
	catch_up(&qp->requester);
}

void requester_response_placed(struct qp *qp, uint64_t now_ns)
{
	requester_response_taken(qp);
	complete_head(qp, true);
	if (qp_sends(qp))
		recovery_on_progress(qp, now_ns);
}

void qp_transmitted(struct qp *qp, uint32_t packets)
{
	const struct requester *r = &qp->requester;
	uint32_t in_flight = packets_in_flight(r);

	/* Nothing is in flight after an error. */
	if (!is_rc(qp))
		requester_acknowledge(
			qp, psn_add(r->una, packets < in_flight ? packets : in_flight));
}

/* Returns true if the request at `current` may be started or continued. A request that has started
 * is never held back. */
static bool may_start(const struct qp *qp, const struct send_wqe *wqe)
{
	const struct requester *r = &qp->requester;

	if ((wqe->flags & FRL_SEND_FENCE) && r->outstanding)
		return false;
	/* The limit became 0 after the request was posted; build_packet() refuses it. */
	return !wr_has_response(wqe->opcode) || r->outstanding == 0 ||
		r->outstanding < qp->attr.max_rd_atomic;
}

/* Returns true if there is something to do while fewer than `window` PSNs are in flight. */
static inline bool may_output(const struct qp *qp, uint32_t window)
{
	const struct requester *r = &qp->requester;
	const struct send_wqe *wqe;

	if (qp->recovery.probe_due)
		return true;
	if (r->current == r->tail || (r->draining && r->current == r->stop) ||
		recovery_waits_for_receiver(qp) || (r->blocked && r->current != r->head))
		return false;
	wqe = send_wqe_at(r, r->current);
	if (wr_is_local(wqe->opcode))
		return r->current == r->head;
	if (is_rc(qp) && packets_in_flight(r) >= window)
		return false;
	return may_start(qp, wqe);
}

bool requester_wants_output(const struct qp *qp)
{
	return may_output(qp, qp->requester.window);
}

bool requester_held_back(const struct qp *qp)
{
	const struct requester *r = &qp->requester;

	return r->current != r->tail && !(r->draining && r->current == r->stop) &&
		!may_start(qp, send_wqe_at(r, r->current));
}

/* Executes a local request; everything before it is done. 10.6.7.2 and 10.6.7.2.2. */
static void execute_local(struct qp *qp, const struct send_wqe *wqe)
{
	bool invalidate = wqe->opcode == FRL_WR_LOCAL_INV;

	if (invalidate ? region_invalidate(qp->regions, wqe->invalidate_rkey, qp)
		       : region_bind_posted(
				 qp->regions, qp->pd, wqe->window, wqe->parent_key, &wqe->bind, qp))
		complete_head(qp, false);
	else
		qp_fail_send(qp, invalidate ? FRL_WC_LOC_QP_OP_ERR : FRL_WC_MW_BIND_ERR);
}

/* Returns the opcode of a SEND or WRITE packet by its position in the message. */
static inline uint8_t choose_opcode(const struct send_wqe *wqe, bool first, bool last)
{
	static const uint8_t opcodes[][4] = {
		[FRL_WR_RDMA_WRITE] = { OP_WRITE_MIDDLE, OP_WRITE_LAST, OP_WRITE_FIRST,
			OP_WRITE_ONLY },
		[FRL_WR_RDMA_WRITE_WITH_IMM] = { OP_WRITE_MIDDLE, OP_WRITE_LAST_IMM, OP_WRITE_FIRST,
			OP_WRITE_ONLY_IMM },
		[FRL_WR_SEND] = { OP_SEND_MIDDLE, OP_SEND_LAST, OP_SEND_FIRST, OP_SEND_ONLY },
		[FRL_WR_SEND_WITH_IMM] = { OP_SEND_MIDDLE, OP_SEND_LAST_IMM, OP_SEND_FIRST,
			OP_SEND_ONLY_IMM },
		[FRL_WR_SEND_WITH_INV] = { OP_SEND_MIDDLE, OP_SEND_LAST_INV, OP_SEND_FIRST,
			OP_SEND_ONLY_INV },
	};

	return opcodes[wqe->opcode][2 * first + last];
}

/* Adds the pieces of payload [offset, offset + length) of the request. Returns false if a region
 * is gone. */
static bool gather(const struct qp *qp, const struct send_wqe *wqe, uint32_t offset,
	uint32_t length, struct packet_out *out)
{
	if (wqe->flags & FRL_SEND_INLINE) {
		if (length)
			out->pieces[out->n_pieces++] = (struct packet_piece){
				wqe->inline_data + offset, length, 0
			};
		return true;
	}
	for (unsigned i = 0; i < wqe->n_sge && length; i++) {
		const struct frl_sge *sge = &wqe->sge[i];
		const struct region *region;
		uint32_t n;

		if (offset >= sge->length) {
			offset -= sge->length;
			continue;
		}
		region = region_local(qp->regions, qp->pd, sge, 0);
		if (!region)
			return false;
		n = sge->length - offset < length ? sge->length - offset : length;
		out->pieces[out->n_pieces++] = (struct packet_piece){
			region_memory(region, (uintptr_t)sge->addr + offset), n, region
		};
		length -= n;
		offset = 0;
	}
	return true;
}

static uint32_t ack_request_interval(const struct requester *r)
{
	return r->slack ? ACK_REQUEST_INTERVAL_LONG : ACK_REQUEST_INTERVAL;
}

/* Returns true if packet `k` of a SEND or WRITE sets AckReq. requester_output() may set it in the
 * last packet of a batch as well. */
static inline bool requests_ack(
	const struct requester *r, const struct send_wqe *wqe, uint32_t k, bool last)
{
	uint32_t interval = ack_request_interval(r);

	return (last && (wqe->flags & FRL_SEND_SIGNALED)) || (k & (interval - 1)) == interval - 1;
}

/* Builds a packet of a SEND or WRITE. */
static bool build_message(const struct qp *qp, const struct send_wqe *wqe, struct packet_out *out)
{
	static const uint8_t transports[] = {
		[FRL_QPT_GSI] = TRANSPORT_UD,
		[FRL_QPT_RC] = TRANSPORT_RC,
		[FRL_QPT_UC] = TRANSPORT_UC,
		[FRL_QPT_UD] = TRANSPORT_UD,
	};
	const struct requester *r = &qp->requester;
	uint32_t k = (uint32_t)psn_diff(r->next, wqe->first_psn);
	uint32_t offset = k * qp->path_mtu;
	bool last = k + 1 == wqe->packets;
	struct bth *bth = &out->h.bth;

	out->payload_len = last ? wqe->length - offset : qp->path_mtu;
	bth->opcode = transports[qp->type] | choose_opcode(wqe, k == 0, last);
	bth->solicited = last && (wqe->flags & FRL_SEND_SOLICITED) &&
		wqe->opcode != FRL_WR_RDMA_WRITE;
	bth->ack_request = is_rc(qp) && requests_ack(r, wqe, k, last);
	out->h.imm_data = wqe->imm_data; /* or the key to invalidate */
	out->keep = is_rc(qp) && psn_diff(r->next, r->sent_end) >= 0 ? wqe->keep : 0;
	if (qp_is_datagram(qp)) {
		out->target = wqe->target;
		bth->dest_qpn = wqe->target->qpn;
		out->h.deth = (struct deth){ wqe->target->qkey, qp->qpn };
	} else {
		out->h.reth = (struct reth){ wqe->remote_addr, wqe->rkey, wqe->length };
	}
	return gather(qp, wqe, offset, out->payload_len, out);
}

/* Builds the request of an atomic or of a READ, or of the missing part of a READ (9.7.5.1.3). */
static void build_request(const struct qp *qp, const struct send_wqe *wqe, struct packet_out *out)
{
	uint32_t k = (uint32_t)psn_diff(qp->requester.next, wqe->first_psn);
	uint32_t offset = k * qp->path_mtu;
	bool swap = wqe->opcode == FRL_WR_ATOMIC_CMP_AND_SWP;

	out->h.bth.ack_request = true;
	if (wqe->opcode == FRL_WR_RDMA_READ) {
		out->h.bth.opcode = OP_READ_REQUEST;
		out->h.reth = (struct reth){ wqe->remote_addr + offset, wqe->rkey,
			wqe->length - offset };
		return;
	}
	out->h.bth.opcode = swap ? OP_CMP_SWAP : OP_FETCH_ADD;
	out->h.atomic = (struct atomic_eth){
		.va = wqe->remote_addr,
		.rkey = wqe->rkey,
		.swap_add = swap ? wqe->swap : wqe->compare_add,
		.compare = swap ? wqe->compare_add : 0,
	};
}

/* Advances `next` to `end`, the start of the next packet. */
static void move_on(struct qp *qp, const struct send_wqe *wqe, struct psn end)
{
	struct requester *r = &qp->requester;

	if (psn_diff(r->next, r->sent_end) < 0) {
		qp->stats->retransmits++;
		qp->counts.retransmits++;
	}
	r->next = end;
	if (psn_diff(end, r->sent_end) > 0)
		r->sent_end = end;
	if (psn_diff(end, wqe->first_psn) < (int32_t)wqe->packets)
		return;
	r->current++;
	r->outstanding += wr_has_response(wqe->opcode);
}

/* The request cannot be sent. Its failure waits for earlier requests, as completions must be in
 * order (10.8.5.1). */
static void fail_current(struct qp *qp, enum frl_wc_status status)
{
	struct requester *r = &qp->requester;

	if (r->current == r->head)
		qp_fail_send(qp, status);
	else
		r->blocked = true;
}

/* Returns false if no packet can be sent now, or if the queue pair has failed. */
static bool build_packet(struct qp *qp, const struct send_wqe *wqe, struct packet_out *out)
{
	struct requester *r = &qp->requester;

	r->blocked = false;
	out->payload_len = 0;
	out->n_pieces = 0;
	out->response = false;
	out->target = 0;
	out->h.bth = (struct bth){
		.migrated = true,
		.pkey = qp->pkey,
		.dest_qpn = qp->dest_qpn,
		.psn = r->next,
	};
	if (!wr_has_response(wqe->opcode)) {
		if (!build_message(qp, wqe, out)) {
			fail_current(qp, FRL_WC_LOC_PROT_ERR);
			return false;
		}
		move_on(qp, wqe, psn_next(r->next));
		return true;
	}
	if (qp->attr.max_rd_atomic == 0) {
		fail_current(qp, FRL_WC_LOC_QP_OP_ERR);
		return false;
	}
	build_request(qp, wqe, out);
	move_on(qp, wqe, psn_add(wqe->first_psn, wqe->packets));
	return true;
}

/* Times the last of these packets that is sent for the first time and sets AckReq. */
static void time_packet(struct qp *qp, const struct packet_out out[], uint32_t n,
	struct psn sent_end, uint64_t now_ns)
{
	while (n-- && psn_diff(out[n].h.bth.psn, sent_end) >= 0) {
		if (!out[n].h.bth.ack_request)
			continue;
		qp->counts.timed_psn = psn_next(out[n].h.bth.psn);
		qp->counts.timed_ns = now_ns;
		return;
	}
}

/* Builds packet `k` of `packets` of a request on the fast path, with `length` bytes at `addr`. */
static inline void build_fast(const struct qp *qp, const struct send_wqe *wqe, uint32_t k,
	uint32_t packets, const struct region *region, const uint8_t *addr, uint32_t length,
	struct packet_out *out)
{
	bool last = k + 1 == packets;

	out->h.bth.opcode = choose_opcode(wqe, k == 0, last);
	out->h.bth.flags = (struct bth){ .migrated = true }.flags;
	out->h.bth.pkey = qp->pkey;
	out->h.bth.dest_qpn = qp->dest_qpn;
	out->h.bth.psn = psn_add(wqe->first_psn, k);
	out->h.bth.congestion = 0;
	out->h.bth.ack_request = requests_ack(&qp->requester, wqe, k, last);
	if (last && (wqe->flags & FRL_SEND_SOLICITED))
		out->h.bth.solicited = wqe->opcode != FRL_WR_RDMA_WRITE;
	out->h.reth = (struct reth){ wqe->remote_addr, wqe->rkey, wqe->length };
	out->h.imm_data = wqe->imm_data; /* or the key to invalidate */
	out->payload_len = length;
	out->n_pieces = 1;
	out->response = false;
	out->target = NULL;
	out->keep = wqe->keep;
	out->pieces[0] = (struct packet_piece){ addr, length, region };
}

/* Builds at most `max` packets of a request on the fast path, from packet `k`. Returns how many. */
static __attribute__((noinline)) uint32_t output_long(const struct qp *qp,
	const struct send_wqe *wqe, const struct region *region, uint32_t k,
	struct packet_out out[], uint32_t max, bool *ended)
{
	const uint8_t *addr = region_memory(region, (uintptr_t)wqe->sge->addr);
	uint32_t mtu = qp->path_mtu, packets = wqe->packets, n = 0;

	for (; n < max && k + 1 < packets; n++, k++) {
		build_fast(qp, wqe, k, packets, region, addr + (size_t)k * mtu, mtu, &out[n]);
		*ended = *ended && !out[n].h.bth.ack_request;
	}
	if (n == max)
		return n;
	build_fast(qp, wqe, k, packets, region, addr + (size_t)k * mtu, wqe->length - k * mtu,
		&out[n]);
	*ended = !out[n].h.bth.ack_request;
	return n + 1;
}

/*
 * Builds packets of the request at `current` and of later ones, while they take the fast path: at
 * most `max`, for which the window has room. Sets `ended` if a message has ended since the last
 * AckReq. Returns 0 if its region is gone; build_packet() then reports that.
 */
static __attribute__((noinline)) uint32_t output_fast(
	struct qp *qp, struct packet_out out[], uint32_t max, bool *ended)
{
	struct requester *r = &qp->requester;
	uint32_t current = r->current, stop = r->draining ? r->stop : r->tail;
	struct packet_out *at = out, *end = out + max;
	const struct region *region = NULL;
	struct psn next = r->next;

	while (at != end && current != stop) {
		const struct send_wqe *wqe = send_wqe_at(r, current);
		const struct frl_sge *sge = wqe->sge;

		if (wqe->fast)
			region = region_local_read(qp->regions, qp->pd, sge, region);
		if (!wqe->fast || !region)
			break;
		if (wqe->packets == 1) {
			build_fast(qp, wqe, 0, 1, region,
				region_memory(region, (uintptr_t)sge->addr), sge->length, at);
			*ended = !at++->h.bth.ack_request;
			next = psn_next(next);
			current++;
		} else {
			uint32_t k = (uint32_t)psn_diff(next, wqe->first_psn);
			uint32_t n = output_long(
				qp, wqe, region, k, at, (uint32_t)(end - at), ended);

			next = psn_add(next, n);
			current += k + n == wqe->packets;
			at += n;
		}
	}
	if (at == out)
		return 0;
	r->current = current;
	r->next = r->sent_end = next;
	r->blocked = false;
	return (uint32_t)(at - out);
}

/* Sends the packet at `una` again, without changing what is sent next. Returns 1, or 0 if it
 * cannot be sent and the queue pair has failed. */
static __attribute__((noinline)) uint32_t output_probe(struct qp *qp, struct packet_out *out)
{
	struct requester *r = &qp->requester;
	struct psn next = r->next;
	uint32_t current = r->current, outstanding = r->outstanding;
	bool blocked = r->blocked;

	r->next = r->una;
	r->current = r->head;
	if (!build_packet(qp, send_wqe_at(r, r->head), out))
		return 0;
	out->h.bth.ack_request = true;
	r->next = next;
	r->current = current;
	r->outstanding = outstanding;
	r->blocked = blocked;
	recovery_on_probe(qp);
	return 1;
}

/* Returns true if an earlier packet of the message sent last is in flight and has AckReq set. With
 * slack a new AckReq would only cost an ACK. */
static bool has_requested_ack(const struct requester *r)
{
	const struct send_wqe *wqe = send_wqe_at(r, r->current);
	uint32_t sent;

	if (!r->slack)
		return false;
	if (r->current == r->tail || psn_equal(r->next, wqe->first_psn))
		wqe = send_wqe_at(r, r->current - 1);
	sent = (uint32_t)psn_diff(r->next, wqe->first_psn);
	return sent >= ack_request_interval(r) &&
		sent % ack_request_interval(r) < packets_in_flight(r);
}

/* Returns true if the last packet of this batch must set AckReq: a message ended, or the window is
 * full. There may be no later packet that does. */
static bool last_requests_ack(const struct requester *r, bool ended)
{
	return ended || (packets_in_flight(r) >= r->window && !has_requested_ack(r));
}

uint32_t requester_output(struct qp *qp, struct packet_out out[], uint32_t max, uint64_t now_ns)
{
	const struct requester *r = &qp->requester;
	struct psn sent_end = r->sent_end;
	bool idle = psn_equal(r->una, sent_end), ended = false;
	uint32_t window = r->window, n = 0;

	if (qp->recovery.probe_due && max)
		n = output_probe(qp, out);
	while (n < max && qp_sends(qp) && may_output(qp, window)) {
		const struct send_wqe *wqe = send_wqe_at(r, r->current);
		uint32_t current = r->current, fast = 0;

		/* The window does not cut a batch that has started. */
		window = r->window + r->slack;
		if (takes_fast_output(r, wqe)) {
			uint32_t room = window - packets_in_flight(r);

			fast = output_fast(qp, out + n, max - n < room ? max - n : room, &ended);
		}
		if (fast) {
			n += fast;
		} else if (wr_is_local(wqe->opcode)) {
			execute_local(qp, wqe);
		} else if (build_packet(qp, wqe, &out[n])) {
			ended = (ended || r->current != current) && !out[n].h.bth.ack_request;
			n++;
		}
	}
	if (!n)
		return 0;
	if (is_rc(qp) && last_requests_ack(r, ended))
		out[n - 1].h.bth.ack_request = true;
	if (idle) {
		qp->counts.progress_ns = now_ns;
		/* The timer may run because there was no room for these packets. */
		qp->recovery.ack_deadline_ns = DEADLINE_NONE;
	}
	if (is_rc(qp) && qp_sends(qp)) {
		recovery_on_sent(qp, now_ns);
		if (!qp->counts.timed_ns)
			time_packet(qp, out, n, sent_end, now_ns);
	}
	return n;
}
