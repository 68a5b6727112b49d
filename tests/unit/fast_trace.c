/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/fast_trace.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct note {
	const char *what;
	uint64_t value;
};

static struct note *notes;
static size_t n_notes, n_compared, room;
static bool compares;
static uint64_t seed_now;
static uint32_t step_now;

void trace_compare(void (*run)(bool general, uint64_t seed), uint64_t seed)
{
	seed_now = seed;
	n_notes = n_compared = 0;
	compares = false;
	run(true, seed);
	compares = true;
	run(false, seed);
	ck_assert_uint_eq(n_compared, n_notes);
	free(notes);
	notes = NULL;
	room = 0;
}

uint64_t trace_seed(int i)
{
	const char *chosen = getenv("FRL_SEED");

	return chosen ? strtoull(chosen, NULL, 0) : (uint64_t)i;
}

int trace_cases(int n)
{
	return getenv("FRL_SEED") ? 1 : n;
}

void trace_step(uint32_t step)
{
	step_now = step;
}

static void record(const char *what, uint64_t value)
{
	if (n_notes == room) {
		room = room ? 2 * room : 1 << 16;
		notes = realloc(notes, room * sizeof(*notes));
		ck_assert_ptr_nonnull(notes);
	}
	notes[n_notes++] = (struct note){ what, value };
}

void trace_note(const char *what, uint64_t value)
{
	const struct note *note = &notes[n_compared];

	if (!compares) {
		record(what, value);
		return;
	}
	ck_assert_msg(n_compared < n_notes, "FRL_SEED=%llu: step %u: %s is new",
		(unsigned long long)seed_now, step_now, what);
	ck_assert_msg(note->what == what && note->value == value,
		"FRL_SEED=%llu: step %u: general path: %s %#llx, fast path: %s %#llx",
		(unsigned long long)seed_now, step_now, note->what, (unsigned long long)note->value,
		what, (unsigned long long)value);
	n_compared++;
}

static void note_bytes(const char *what, const void *bytes, size_t length)
{
	for (size_t at = 0; at < length; at += sizeof(uint64_t)) {
		uint64_t value = 0;

		memcpy(&value, (const uint8_t *)bytes + at, length - at < 8 ? length - at : 8);
		trace_note(what, value);
	}
}

#define NOTE(value) trace_note(#value, (uint64_t)(value))
/* The fixture is where it was in the other run, and so is all that pointers lead to. */
#define NOTE_POINTER(pointer) trace_note(#pointer, (uintptr_t)(pointer))

/* Fails when a field is new: it has to be noted, too. */
#define ALL_FIELDS(type, size) \
	static_assert(sizeof(void *) != 8 || sizeof(type) == (size), "note the new field of " #type)

static void note_sges(const struct frl_sge sge[], uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		NOTE_POINTER(sge[i].addr);
		NOTE(sge[i].length);
		NOTE(sge[i].lkey);
	}
}

/* All but `fast`, which is what differs. */
static void note_wqe(const struct send_wqe *wqe)
{
	ALL_FIELDS(struct send_wqe, 120);
	NOTE(wqe->wr_id);
	NOTE(wqe->remote_addr);
	NOTE(wqe->rkey);
	NOTE(wqe->length);
	NOTE(wqe->imm_data);
	NOTE(wqe->packets);
	NOTE(wqe->first_psn.value);
	NOTE(wqe->opcode);
	NOTE(wqe->flags);
	NOTE(wqe->n_sge);
	NOTE(wqe->keep);
	note_sges(wqe->sge, wqe->n_sge);
	if (wr_is_atomic(wqe->opcode)) {
		NOTE(wqe->compare_add);
		NOTE(wqe->swap);
	} else if (wqe->opcode == FRL_WR_BIND_MW) {
		NOTE_POINTER(wqe->window);
		NOTE(wqe->parent_key);
		NOTE(wqe->bind.rkey);
	}
}

static void note_requester(const struct requester *r)
{
	ALL_FIELDS(struct requester, 64);
	NOTE_POINTER(r->wqes);
	NOTE(r->mask);
	NOTE(r->size);
	NOTE(r->head);
	NOTE(r->tail);
	NOTE(r->current);
	NOTE(r->una.value);
	NOTE(r->next.value);
	NOTE(r->sent_end.value);
	NOTE(r->end.value);
	NOTE(r->window);
	NOTE(r->slack);
	NOTE(r->outstanding);
	NOTE(r->blocked);
	NOTE(r->draining);
	NOTE(r->stop);
	for (uint32_t at = r->head; at != r->tail; at++)
		note_wqe(send_wqe_at(r, at));
}

static void note_recovery(const struct recovery *r)
{
	ALL_FIELDS(struct recovery, 56);
	NOTE(r->ack_deadline_ns);
	NOTE(r->rnr_deadline_ns);
	NOTE(r->ack_timeout_ns);
	NOTE(r->ack_expires_ns);
	NOTE(r->rnr_psn.value);
	NOTE(r->probe_psn.value);
	NOTE(r->probe_end.value);
	NOTE(r->probe_due);
	NOTE(r->probing);
	NOTE(r->suspected);
	NOTE(r->n_held);
	NOTE(r->probes);
	NOTE(r->retries);
	NOTE(r->rnr_retries);
	NOTE(r->backoff);
	NOTE(r->went_back);
	NOTE(r->refused);
}

static void note_resource(const struct responder_resource *resource)
{
	ALL_FIELDS(struct responder_resource, 72);
	NOTE(resource->packets);
	NOTE(resource->first_psn.value);
	NOTE(resource->first_ordinal);
	NOTE(resource->atomic);
	NOTE(resource->pending);
	NOTE(resource->answered);
	NOTE(resource->msn);
	NOTE(resource->va);
	NOTE(resource->rkey);
	NOTE(resource->length);
	NOTE(resource->original);
	NOTE(resource->next.value);
	NOTE(resource->reply_first.value);
	NOTE(resource->reply_end.value);
	NOTE(resource->reply_length);
}

static void note_recv_queue(const struct recv_queue *queue)
{
	NOTE(queue->head);
	NOTE(queue->tail);
	for (uint32_t at = queue->head; at != queue->tail; at++) {
		const struct recv_wqe *wqe = &queue->wqes[at & queue->mask];

		NOTE(wqe->wr_id);
		NOTE(wqe->length);
		NOTE(wqe->n_sge);
	}
}

/* What is known of the message is noted while there is one. */
static void note_responder(const struct responder *r)
{
	ALL_FIELDS(struct responder, 216);
	note_recv_queue(&r->queue);
	NOTE_POINTER(r->srq);
	NOTE_POINTER(r->recv);
	NOTE(r->srq_wqe.wr_id);
	NOTE(r->epsn.value);
	NOTE(r->ordinal);
	NOTE(r->msn);
	NOTE(r->nak_sent);
	NOTE(r->message);
	if (r->message != MESSAGE_NONE)
		NOTE(r->offset);
	if (r->message == MESSAGE_WRITE) {
		NOTE(r->write_va);
		NOTE(r->write_rkey);
		NOTE(r->write_length);
	}
	NOTE(r->ack_pending);
	NOTE(r->ack_syndrome);
	NOTE(r->ack_psn.value);
	NOTE(r->unacked);
	NOTE(r->n_resources);
	NOTE(r->resource_tail);
	NOTE(r->resource_cursor);
	NOTE(r->n_pending);
	for (uint32_t i = 0; i < FRL_MAX_RD_ATOMIC; i++)
		if (r->resources[i].packets)
			note_resource(&r->resources[i]);
}

static void note_counts(const struct qp_counts *counts)
{
	ALL_FIELDS(struct qp_counts, 112);
	note_bytes("counts", counts, offsetof(struct qp_counts, timed_psn));
	NOTE(counts->timed_psn.value);
}

void trace_qp(const struct fixture *f)
{
	const struct qp *qp = &f->qp;

	ALL_FIELDS(struct qp, 696);
	NOTE(qp->state);
	NOTE(qp->dest_qpn);
	NOTE(qp->path_mtu);
	NOTE(qp->capabilities);
	NOTE(qp->qkey);
	note_requester(&qp->requester);
	note_recovery(&qp->recovery);
	note_responder(&qp->responder);
	note_counts(&qp->counts);
	NOTE(qp->attr.state);
	NOTE(qp->attr.sq_psn);
	NOTE(qp->attr.rq_psn);
	NOTE(qp->events.pending);
	NOTE(qp->comm_est);
	NOTE(qp->answers_turn);
	NOTE_POINTER(qp->error);
	NOTE(qp->error_status);
	if (f->srq.queue.wqes)
		note_recv_queue(&f->srq.queue);
	NOTE(f->window.key);
	NOTE_POINTER(f->window.parent);
	note_bytes("stats", &f->stats, sizeof(f->stats));
}

void trace_packet(const struct fixture *f, const struct packet_out *out)
{
	uint8_t frame[WIRE_MAX_HEADERS], trailer_len;
	size_t length = wire_encode(
		frame, &f->ah.path, &out->h, out->payload_len, true, &trailer_len);

	note_bytes("packet", frame, length);
	NOTE(trailer_len);
	NOTE(out->payload_len);
	NOTE(out->response);
	NOTE_POINTER(out->target);
	if (out->payload_len && !out->response)
		NOTE(out->keep);
	NOTE(out->n_pieces);
	for (uint32_t i = 0; i < out->n_pieces; i++) {
		NOTE_POINTER(out->pieces[i].addr);
		NOTE(out->pieces[i].length);
		NOTE_POINTER(out->pieces[i].region);
	}
}

void trace_placements(const struct fixture *f)
{
	const struct placements *all = &f->placements;

	NOTE(all->count);
	NOTE(all->completes);
	for (uint32_t i = 0; i < all->count; i++) {
		NOTE_POINTER(all->list[i].dst);
		NOTE_POINTER(all->list[i].payload);
		NOTE(all->list[i].length);
		NOTE_POINTER(all->list[i].region);
		NOTE_POINTER(all->list[i].action);
		if (all->list[i].action)
			NOTE_POINTER(all->list[i].src);
		NOTE(all->list[i].keep);
	}
	NOTE_POINTER(all->atomic.addr);
	if (!all->atomic.addr)
		return;
	NOTE(all->atomic.compare_swap);
	NOTE(all->atomic.compare);
	NOTE(all->atomic.swap_add);
	NOTE_POINTER(all->atomic.region);
	NOTE_POINTER(all->atomic.ret_original);
}

static uint32_t take_completions(struct cq *cq)
{
	struct frl_wc wc;
	uint32_t n = 0;

	NOTE(cq->overrun);
	NOTE(cq->events.pending);
	for (; cq_pop(cq, &wc); n++) {
		NOTE(wc.wr_id);
		NOTE(wc.status);
		NOTE(wc.qp_num);
		/* The rest has no meaning otherwise. */
		if (wc.status != FRL_WC_SUCCESS)
			continue;
		NOTE(wc.opcode);
		NOTE(wc.byte_len);
		NOTE(wc.flags);
		NOTE(wc.imm_data);
	}
	return n;
}

uint32_t trace_completions(struct fixture *f)
{
	uint32_t n = take_completions(&f->send_cq);

	return n + take_completions(&f->recv_cq);
}
