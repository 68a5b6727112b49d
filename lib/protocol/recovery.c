/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/protocol/recovery.h"
#include "lib/protocol/qp_internal.h"

enum {
	BACKOFF_MAX = 4, /* the ACK timeout grows to 2^4 times its value */
	RNR_RETRY_UNLIMITED = 7,
	HELD_MOST = 2,
	PROBE_LEAST_NS = 1000000, /* processors that do something else take as long as that */
};

/* The ACK timer fires for a probe, or for what a probe made suspected, if there is time for one. */
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

/* False when none was left: the queue pair has failed then. */
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

/* What is answered from now on may be the answer to what was sent first, or again. */
static void go_back(struct qp *qp)
{
	qp->counts.timed_ns = 0;
	qp->recovery.n_held = 0;
	end_probe(&qp->recovery);
	requester_go_back(&qp->requester);
}

/* RFC 6298: an eighth of what is new. But what was so short that probes were sent for nothing since
 * is not told by eighths, each of which would cost a probe again. */
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

/* The peer may be at a READ or atomic, which is not to be done again without need. */
static bool awaits_response(const struct requester *q)
{
	return q->outstanding || wr_has_response(send_wqe_at(q, q->head)->opcode);
}

/*
 * An acknowledgement that ends with the probe: perhaps that was what the peer waited for, and what
 * was sent behind it is lost, too; or the peer acknowledges each packet, and the next one comes
 * soon. Where a response is awaited nothing is suspected; but then such acknowledgements, of which
 * each probe brings one, must not put off the timeout again and again.
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
	/* Its acknowledgement may be that of either. */
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
		/* Responses that were missing before it say nothing about what was refused. */
		if (psn_diff(q->una, r->rnr_psn) <= 0)
			return;
		/* It has been taken after all. */
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

	/* The packets are on their way again already, or will be; only the timer may doubt that
	 * they arrive. */
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

	/* Where nothing is lost or repeated on the way, the packet has come again since the first
	 * one, and found no room again. */
	if (qp->unlimited_retry && psn_equal(psn, q->una) && psn_diff(q->next, q->una) > 0)
		qp->recovery.went_back = false;
	recovery_on_loss(qp, now_ns);
}

void recovery_repeat(struct qp *qp, uint64_t now_ns)
{
	/* After an RNR wait everything is sent again. */
	if (recovery_waits_for_receiver(qp))
		return;
	qp->recovery.went_back = true;
	go_back(qp);
	start_ack_timer(qp, now_ns);
}

void recovery_on_rnr_nak(struct qp *qp, struct psn psn, uint8_t timer_code, uint64_t now_ns)
{
	struct recovery *r = &qp->recovery;

	/* One refusal is one try, however many packets behind it were refused as well. */
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

/* Where time alone ends nothing, a port without room is a peer that is slow: there is nothing to be
 * sent again. */
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
		set_ack_deadline(qp, now_ns); /* what is due is a probe */
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

/* What has not left yet, or has to be sent again anyway, tells nothing. What would have to be
 * fetched first takes too long. */
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

/* Before the timeout. What has been sent again because of this may be asked for by a NAK that is on
 * its way already. */
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
	r->refused = false; /* by now the try after it would have been, too */
	qp->stats->timeouts++;
	qp->counts.timeouts++;
	/* There was progress meanwhile, which alone would have put it off. */
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
