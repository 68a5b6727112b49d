/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/protocol/recovery.h"
#include "lib/protocol/qp_internal.h"

enum {
	BACKOFF_MAX = 4, /* the ACK timeout grows to 2^4 times its value */
	RNR_RETRY_UNLIMITED = 7,
	HELD_MOST = 2,
	PROBE_LEAST_NS = 1000000, /* how long a busy processor may delay an ACK */
};

/* Sets the ACK deadline to the next probe, or to the retransmission after a probe, if that comes
 * before the timeout. */
static void set_ack_deadline(struct qp *qp, uint64_t now_ns)
{
	struct recovery *r = &qp->recovery;
	uint64_t most_ns = r->ack_timeout_ns << r->backoff;
	uint64_t rtt_ns = qp->counts.rtt_ns, wait_ns = r->suspected ? rtt_ns : 2 * rtt_ns;

	r->ack_deadline_ns = r->ack_expires_ns;
	if (!rtt_ns || qp->unlimited_retry)
		return;
	if (wait_ns < PROBE_LEAST_NS)
		wait_ns = PROBE_LEAST_NS;
	for (unsigned i = 0; i < r->probes && wait_ns < most_ns && !r->suspected; i++)
		wait_ns = 2 * wait_ns < most_ns ? 2 * wait_ns : most_ns;
	if (r->ack_expires_ns > now_ns && wait_ns < r->ack_expires_ns - now_ns)
		r->ack_deadline_ns = now_ns + wait_ns;
}

static void start_ack_timer(struct qp *qp, uint64_t now_ns)
{
	struct recovery *r = &qp->recovery;

	if (!r->ack_timeout_ns)
		return;
	r->ack_expires_ns = now_ns + (r->ack_timeout_ns << r->backoff);
	set_ack_deadline(qp, now_ns);
}

/* Returns false if no retry was left and the queue pair has failed. */
static bool use_up_retry(struct qp *qp)
{
	struct recovery *r = &qp->recovery;

	if (qp->unlimited_retry)
		return true;
	if (r->retries == 0) {
		qp_fail(qp, FRL_WC_RETRY_EXC_ERR);
		return false;
	}
	r->retries--;
	return true;
}

static void end_probe(struct recovery *r)
{
	r->probe_due = r->probing = r->suspected = false;
}

/* Later ACKs may be for the original or the retransmission, so no round trip is measured. */
static void go_back(struct qp *qp)
{
	qp->counts.timed_ns = 0;
	qp->recovery.n_held = 0;
	end_probe(&qp->recovery);
	requester_go_back(&qp->requester);
}

/* RFC 6298: weighs the sample by an eighth. A longer sample after needless probes replaces the
 * value at once, since each step by eighths would cost another probe. */
static void take_sample(struct qp *qp, uint64_t rtt_ns)
{
	struct qp_counts *counts = &qp->counts;

	if (!counts->rtt_ns || (qp->recovery.probes && rtt_ns > counts->rtt_ns))
		counts->rtt_ns = rtt_ns;
	else
		counts->rtt_ns += (rtt_ns >> 3) - (counts->rtt_ns >> 3);
	counts->timed_ns = 0;
	qp->recovery.probes = 0;
}

void recovery_init(struct qp *qp)
{
	uint8_t t = qp->attr.timeout;

	qp->recovery = (struct recovery){
		.ack_deadline_ns = DEADLINE_NONE,
		.rnr_deadline_ns = DEADLINE_NONE,
		.ack_timeout_ns = t ? UINT64_C(4096) << t : 0,
		.retries = qp->attr.retry_cnt,
		.rnr_retries = qp->attr.rnr_retry,
	};
}

void recovery_stop(struct qp *qp)
{
	qp->recovery.ack_deadline_ns = DEADLINE_NONE;
	qp->recovery.rnr_deadline_ns = DEADLINE_NONE;
	end_probe(&qp->recovery);
}

/* Returns true if a READ or atomic is outstanding, which should not be repeated without need. */
static bool awaits_response(const struct requester *q)
{
	return q->outstanding || wr_has_response(send_wqe_at(q, q->head)->opcode);
}

/*
 * Handles an ACK while a probe is out or due. If it ends with the probe, later packets may be lost
 * as well, or the peer acknowledges each packet and the next ACK follows. While a response is
 * awaited, no loss is suspected. Such ACKs must then not postpone the timeout again and again,
 * since each probe causes one.
 */
static void take_probe(struct qp *qp)
{
	const struct requester *q = &qp->requester;
	struct recovery *r = &qp->recovery;
	bool ends_with_it = r->probing && psn_equal(q->una, psn_next(r->probe_psn)) &&
		psn_diff(r->probe_end, q->una) > 0 && !recovery_waits_for_receiver(qp);
	bool may_suspect = !awaits_response(q);

	end_probe(r);
	r->suspected = ends_with_it && may_suspect;
	if (!ends_with_it || may_suspect)
		r->n_held = 0;
	else if (r->n_held < HELD_MOST)
		r->n_held++;
}

void recovery_on_probe(struct qp *qp)
{
	struct recovery *r = &qp->recovery;

	r->probe_due = false;
	r->probing = true;
	r->probe_psn = qp->requester.una;
	r->probe_end = qp->requester.sent_end;
	/* Its ACK may be for the original or the probe. */
	qp->counts.timed_ns = 0;
}

void recovery_on_sent(struct qp *qp, uint64_t now_ns)
{
	if (qp->recovery.ack_deadline_ns == DEADLINE_NONE)
		start_ack_timer(qp, now_ns);
}

void recovery_on_progress(struct qp *qp, uint64_t now_ns)
{
	const struct requester *q = &qp->requester;
	struct qp_counts *counts = &qp->counts;
	struct recovery *r = &qp->recovery;

	counts->progress_ns = now_ns;
	if (counts->timed_ns && psn_diff(q->una, counts->timed_psn) >= 0)
		take_sample(qp, now_ns - counts->timed_ns);
	r->retries = qp->attr.retry_cnt;
	r->rnr_retries = qp->attr.rnr_retry;
	r->backoff = 0;
	r->went_back = false;
	if (r->probe_due || r->probing || r->suspected)
		take_probe(qp);
	else
		r->n_held = 0;
	r->refused = recovery_waits_for_receiver(qp);
	r->ack_deadline_ns = DEADLINE_NONE;
	if (recovery_waits_for_receiver(qp)) {
		/* Progress before the refused PSN does not end the RNR wait. */
		if (psn_diff(q->una, r->rnr_psn) <= 0)
			return;
		/* The refused packet was accepted after all. */
		r->rnr_deadline_ns = DEADLINE_NONE;
		r->refused = false;
	}
	if (psn_equal(q->una, q->sent_end))
		return;
	if (r->n_held == HELD_MOST)
		set_ack_deadline(qp, now_ns);
	else
		start_ack_timer(qp, now_ns);
}

bool recovery_on_loss(struct qp *qp, uint64_t now_ns)
{
	struct recovery *r = &qp->recovery;

	/* Retransmission is in progress or scheduled. Only the timer may start another one. */
	if (r->went_back || recovery_waits_for_receiver(qp) || !use_up_retry(qp))
		return false;
	r->went_back = true;
	go_back(qp);
	start_ack_timer(qp, now_ns);
	return true;
}

void recovery_on_nak(struct qp *qp, struct psn psn, uint64_t now_ns)
{
	const struct requester *q = &qp->requester;

	/* On a lossless link a second NAK means that the retransmitted packet was dropped again
	 * for lack of room. */
	if (qp->unlimited_retry && psn_equal(psn, q->una) && psn_diff(q->next, q->una) > 0)
		qp->recovery.went_back = false;
	recovery_on_loss(qp, now_ns);
}

void recovery_repeat(struct qp *qp, uint64_t now_ns)
{
	/* Everything is sent again after an RNR wait anyway. */
	if (recovery_waits_for_receiver(qp))
		return;
	qp->recovery.went_back = true;
	go_back(qp);
	start_ack_timer(qp, now_ns);
}

void recovery_on_rnr_nak(struct qp *qp, struct psn psn, uint8_t timer_code, uint64_t now_ns)
{
	struct recovery *r = &qp->recovery;

	/* One RNR NAK counts as one try, even if later packets are refused, too. */
	if (recovery_waits_for_receiver(qp))
		return;
	if (qp->attr.rnr_retry != RNR_RETRY_UNLIMITED) {
		if (r->rnr_retries == 0) {
			qp_fail(qp, FRL_WC_RNR_RETRY_EXC_ERR);
			return;
		}
		r->rnr_retries--;
	}
	go_back(qp);
	r->ack_deadline_ns = DEADLINE_NONE;
	r->rnr_deadline_ns = now_ns + rnr_timer_ns(timer_code);
	r->rnr_psn = psn;
	r->refused = true;
}

void qp_take_back(struct qp *qp, uint32_t packets, uint64_t now_ns)
{
	struct requester *r = &qp->requester;

	if (qp->type == FRL_QPT_RC) {
		recovery_repeat(qp, now_ns);
		return;
	}
	if (!qp_sends(qp))
		return;
	r->next = r->sent_end = psn_add(r->next, PSN_MASK + 1 - packets);
	r->current = r->head;
	while (r->current != r->tail) {
		const struct send_wqe *wqe = send_wqe_at(r, r->current);

		if (psn_diff(r->next, wqe->first_psn) < (int32_t)wqe->packets)
			break;
		r->current++;
	}
	r->blocked = false;
}

/* With unlimited retries, a port without room is like a slow peer: there is nothing to
 * retransmit. */
void qp_not_taken(struct qp *qp, uint64_t now_ns)
{
	if (qp->type == FRL_QPT_RC && !qp->unlimited_retry && qp_sends(qp) &&
		requester_wants_output(qp))
		recovery_on_sent(qp, now_ns);
}

void qp_restart_timer(struct qp *qp, uint64_t now_ns)
{
	if (qp->recovery.ack_deadline_ns != DEADLINE_NONE)
		start_ack_timer(qp, now_ns);
}

void qp_hold_timer(struct qp *qp, uint64_t now_ns)
{
	const struct recovery *r = &qp->recovery;

	if (r->ack_deadline_ns <= now_ns && now_ns < r->ack_expires_ns)
		set_ack_deadline(qp, now_ns); /* a probe is due */
	else
		qp_restart_timer(qp, now_ns);
}

uint64_t qp_next_deadline(const struct qp *qp)
{
	const struct recovery *r = &qp->recovery;

	return r->ack_deadline_ns < r->rnr_deadline_ns ? r->ack_deadline_ns : r->rnr_deadline_ns;
}

uint64_t qp_next_look(const struct qp *qp, uint64_t least_ns)
{
	const struct recovery *r = &qp->recovery;
	uint64_t ack_ns = r->ack_deadline_ns;

	if (ack_ns < least_ns && ack_ns < r->ack_expires_ns)
		ack_ns = least_ns < r->ack_expires_ns ? least_ns : r->ack_expires_ns;
	return ack_ns < r->rnr_deadline_ns ? ack_ns : r->rnr_deadline_ns;
}

/* Returns false if the oldest packet was not sent yet, will be retransmitted anyway, or belongs to
 * a READ or an atomic. Returns false also if the host cannot read its payload: another processor
 * would have to fetch it first, which takes too long. */
static bool may_probe(const struct qp *qp)
{
	const struct requester *q = &qp->requester;
	const struct send_wqe *wqe = send_wqe_at(q, q->head);

	if (!qp_sends(qp) || psn_diff(q->next, q->una) <= 0 || wr_has_response(wqe->opcode))
		return false;
	for (unsigned i = 0; i < wqe->n_sge && !(wqe->flags & FRL_SEND_INLINE); i++)
		if (!region_local(qp->regions, qp->pd, &wqe->sge[i], REGION_HOST_READ))
			return false;
	return true;
}

/* Handles a probe deadline, which comes before the timeout. A NAK that is already in flight may
 * ask for the same packets. */
static void on_probe_time(struct qp *qp, uint64_t now_ns)
{
	const struct requester *q = &qp->requester;
	struct recovery *r = &qp->recovery;

	if (r->suspected && qp_sends(qp) && psn_diff(q->next, q->una) > 0 && !awaits_response(q)) {
		r->went_back = true;
		go_back(qp);
	} else {
		r->suspected = false;
		r->probe_due = may_probe(qp);
		if (r->probes < UINT8_MAX)
			r->probes++;
	}
	set_ack_deadline(qp, now_ns);
}

void qp_on_deadline(struct qp *qp, uint64_t now_ns)
{
	struct recovery *r = &qp->recovery;

	if (r->rnr_deadline_ns <= now_ns)
		r->rnr_deadline_ns = DEADLINE_NONE;
	if (r->ack_deadline_ns > now_ns)
		return;
	if (now_ns < r->ack_expires_ns) {
		on_probe_time(qp, now_ns);
		return;
	}
	r->ack_deadline_ns = DEADLINE_NONE;
	r->refused = false; /* the retry has timed out as well */
	qp->stats->timeouts++;
	qp->counts.timeouts++;
	/* There was progress meanwhile, which would have postponed the timeout. */
	if (r->n_held < HELD_MOST && !use_up_retry(qp))
		return;
	if (r->n_held < HELD_MOST && r->backoff < BACKOFF_MAX)
		r->backoff++;
	r->went_back = false;
	go_back(qp);
}

uint64_t recovery_gives_up_after(const struct qp *qp)
{
	uint64_t total_ns = 0;

	if (qp->unlimited_retry)
		return 0;
	for (unsigned i = 0; i <= qp->attr.retry_cnt; i++)
		total_ns += qp->recovery.ack_timeout_ns << (i < BACKOFF_MAX ? i : BACKOFF_MAX);
	return total_ns;
}

uint64_t rnr_timer_ns(uint8_t code)
{
	/* In units of 10 us. */
	static const uint16_t table[32] = { 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128,
		192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384,
		24576, 32768, 49152 };

	return (code & 0x1f) == 0 ? UINT64_C(655360000) : table[code & 0x1f] * UINT64_C(10000);
}
