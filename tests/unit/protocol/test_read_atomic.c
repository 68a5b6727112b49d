/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * READs and atomics as the requester sees them: scripts of what is posted, sent and answered. MTU
 * 1024; every script runs at several first PSNs, which its own are relative to. Request n has
 * memory at n * SLOT.
 */
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

#include <string.h>

enum {
	MTU = 1024,
	SLOT = 4096,
	REMOTE = 0x700000,
	MAX_STEPS = 32,
	MAX_REQUESTS = 12,
};

enum action {
	ACT_END,
	ACT_POST,
	ACT_SENT,
	ACT_QUIET,
	ACT_ACK,
	ACT_READ,
	ACT_ATOMIC,
	ACT_DONE,
	ACT_PENDING,
	ACT_TIMEOUT,
	ACT_IMPLIED,
	ACT_STALE,
	ACT_BAD,
	ACT_RETRIES,
};

struct step {
	enum action action;
	uint32_t a, b, c;
};

/* clang-format off */
/* Requests are numbered from 1. */
#define POST(opcode, length) {ACT_POST, FRL_WR_##opcode, length, 0}
/* The next packet is this; of a READ request, `length` is what it asks for. */
#define SENT(opcode, psn, length) {ACT_SENT, OP_##opcode, psn, length}
/* Nothing may be sent. */
#define QUIET {ACT_QUIET, 0, 0, 0}
#define ACK(syndrome, psn) {ACT_ACK, syndrome, psn, 0}
/* A response to a READ or an atomic. */
#define READ(opcode, psn, length) {ACT_READ, OP_READ_RESP_##opcode, psn, length}
#define ATOMIC(psn) {ACT_ATOMIC, 0, psn, 0}
/* The next completion; or there is none more. */
#define DONE(request, status) {ACT_DONE, request, FRL_WC_##status, 0}
#define PENDING {ACT_PENDING, 0, 0, 0}
/* The time of the next deadline comes. */
#define TIMEOUT {ACT_TIMEOUT, 0, 0, 0}
/* So far: implied NAKs; answers out of the window, and ones that nobody asked for. */
#define IMPLIED(n) {ACT_IMPLIED, n, 0, 0}
#define STALE(n) {ACT_STALE, n, 0, 0}
#define BAD(n) {ACT_BAD, n, 0, 0}
/* Left. */
#define RETRIES(n) {ACT_RETRIES, n, 0, 0}

static const struct script {
	const char *name;
	uint8_t retry_cnt;
	uint32_t window;
	uint8_t depth;
	struct step steps[MAX_STEPS];
} scripts[] = {
	{"rc_read_mtu1024: one READ", 0, 0, 0, {
		POST(RDMA_READ, 3849), SENT(READ_REQUEST, 0, 3849), QUIET, READ(FIRST, 0, 1024),
		READ(MIDDLE, 1, 1024), READ(MIDDLE, 2, 1024), PENDING, READ(LAST, 3, 777),
		DONE(1, SUCCESS), PENDING, POST(SEND, 10), SENT(SEND_ONLY, 4, 10), ACK(0x1f, 4),
		DONE(2, SUCCESS)}},
	{"rc_read_mtu1024: five READs, four at once", 0, 0, 4, {
		POST(RDMA_READ, 2148), POST(RDMA_READ, 2148), POST(RDMA_READ, 2148),
		POST(RDMA_READ, 2148), POST(RDMA_READ, 2148), SENT(READ_REQUEST, 0, 2148),
		SENT(READ_REQUEST, 3, 2148), SENT(READ_REQUEST, 6, 2148),
		SENT(READ_REQUEST, 9, 2148), QUIET, READ(FIRST, 0, 1024), READ(MIDDLE, 1, 1024),
		QUIET, READ(LAST, 2, 100), DONE(1, SUCCESS), SENT(READ_REQUEST, 12, 2148), QUIET,
		READ(FIRST, 3, 1024), READ(MIDDLE, 4, 1024), READ(LAST, 5, 100), DONE(2, SUCCESS),
		QUIET}},
	{"sizes", 0, 0, 1, {
		POST(RDMA_READ, 0), SENT(READ_REQUEST, 0, 0), READ(ONLY, 0, 0), DONE(1, SUCCESS),
		POST(RDMA_READ, 1), SENT(READ_REQUEST, 1, 1), READ(ONLY, 1, 1), DONE(2, SUCCESS),
		POST(RDMA_READ, 1024), SENT(READ_REQUEST, 2, 1024), READ(ONLY, 2, 1024),
		DONE(3, SUCCESS), POST(RDMA_READ, 1025), SENT(READ_REQUEST, 3, 1025),
		READ(FIRST, 3, 1024), READ(LAST, 4, 1), DONE(4, SUCCESS), POST(RDMA_READ, 2048),
		SENT(READ_REQUEST, 5, 2048), READ(FIRST, 5, 1024), PENDING, READ(LAST, 6, 1024),
		DONE(5, SUCCESS), QUIET}},
	{"rc_atomic", 0, 0, 0, {
		POST(ATOMIC_FETCH_AND_ADD, 8), SENT(FETCH_ADD, 0, 0), ATOMIC(0), DONE(1, SUCCESS),
		POST(ATOMIC_CMP_AND_SWP, 8), SENT(CMP_SWAP, 1, 0), ATOMIC(1), DONE(2, SUCCESS)}},
	{"atomics count as READs do", 0, 0, 2, {
		POST(ATOMIC_FETCH_AND_ADD, 8), POST(RDMA_READ, 1), POST(ATOMIC_CMP_AND_SWP, 8),
		POST(SEND, 1), SENT(FETCH_ADD, 0, 0), SENT(READ_REQUEST, 1, 1), QUIET, ATOMIC(0),
		DONE(1, SUCCESS), SENT(CMP_SWAP, 2, 0), SENT(SEND_ONLY, 3, 1), READ(ONLY, 1, 1),
		DONE(2, SUCCESS), ATOMIC(2), DONE(3, SUCCESS), ACK(0x1f, 3), DONE(4, SUCCESS)}},
	{"a response acknowledges what came before", 0, 0, 0, {
		POST(SEND, 1), POST(RDMA_WRITE, 2000), POST(RDMA_READ, 1025), POST(SEND, 1),
		SENT(SEND_ONLY, 0, 1), SENT(WRITE_FIRST, 1, 1024), SENT(WRITE_LAST, 2, 976),
		SENT(READ_REQUEST, 3, 1025), SENT(SEND_ONLY, 5, 1), READ(FIRST, 3, 1024),
		DONE(1, SUCCESS), DONE(2, SUCCESS), PENDING, READ(LAST, 4, 1), DONE(3, SUCCESS),
		PENDING, ACK(0x1f, 5), DONE(4, SUCCESS), IMPLIED(0)}},
	{"ACKs do not pass a READ, nor complete it", 3, 0, 0, {
		POST(SEND, 1), POST(RDMA_READ, 1), POST(SEND, 1), SENT(SEND_ONLY, 0, 1),
		SENT(READ_REQUEST, 1, 1), SENT(SEND_ONLY, 2, 1), ACK(0x1f, 0), DONE(1, SUCCESS),
		IMPLIED(0), ACK(0x1f, 1), PENDING, IMPLIED(1), SENT(READ_REQUEST, 1, 1),
		SENT(SEND_ONLY, 2, 1), READ(ONLY, 1, 1), DONE(2, SUCCESS), ACK(0x1f, 2),
		DONE(3, SUCCESS)}},
	/* 9.7.5.1.3; a retry asks for what is missing. */
	{"peer_partial_read_retry: FIRST", 1, 0, 0, {
		POST(RDMA_READ, 3849), SENT(READ_REQUEST, 0, 3849), READ(FIRST, 0, 1024),
		RETRIES(1), TIMEOUT, RETRIES(0), SENT(READ_REQUEST, 1, 2825), READ(FIRST, 1, 1024),
		RETRIES(1), READ(MIDDLE, 2, 1024), READ(LAST, 3, 777), DONE(1, SUCCESS)}},
	{"peer_partial_read_retry: as rxe, MIDDLE", 1, 0, 0, {
		POST(RDMA_READ, 3849), SENT(READ_REQUEST, 0, 3849), READ(FIRST, 0, 1024), TIMEOUT,
		SENT(READ_REQUEST, 1, 2825), READ(MIDDLE, 1, 1024), READ(MIDDLE, 2, 1024),
		READ(LAST, 3, 777), DONE(1, SUCCESS)}},
	{"partial retry of the last packet: ONLY", 1, 0, 0, {
		POST(RDMA_READ, 3849), SENT(READ_REQUEST, 0, 3849), READ(FIRST, 0, 1024),
		READ(MIDDLE, 1, 1024), READ(MIDDLE, 2, 1024), TIMEOUT, SENT(READ_REQUEST, 3, 777),
		READ(ONLY, 3, 777), DONE(1, SUCCESS)}},
	{"answered from its start again", 1, 0, 0, {
		POST(RDMA_READ, 2049), SENT(READ_REQUEST, 0, 2049), READ(FIRST, 0, 1024), TIMEOUT,
		SENT(READ_REQUEST, 1, 1025), READ(FIRST, 0, 1024), STALE(1), READ(MIDDLE, 1, 1024),
		READ(LAST, 2, 1), DONE(1, SUCCESS)}},
	{"peer_implied_nak_read: by the ACK of a later SEND", 1, 0, 0, {
		POST(RDMA_READ, 2000), POST(SEND, 1), POST(SEND, 1), SENT(READ_REQUEST, 0, 2000),
		SENT(SEND_ONLY, 2, 1), SENT(SEND_ONLY, 3, 1), ACK(0x1f, 2), IMPLIED(1), RETRIES(0),
		PENDING, SENT(READ_REQUEST, 0, 2000), SENT(SEND_ONLY, 2, 1), SENT(SEND_ONLY, 3, 1),
		ACK(0x1f, 3), IMPLIED(1), QUIET, READ(FIRST, 0, 1024), RETRIES(1),
		READ(LAST, 1, 976), DONE(1, SUCCESS), ACK(0x1f, 3), DONE(2, SUCCESS),
		DONE(3, SUCCESS)}},
	{"implied NAK: by the response to a later READ", 1, 0, 0, {
		POST(RDMA_READ, 2000), POST(RDMA_READ, 1), SENT(READ_REQUEST, 0, 2000),
		SENT(READ_REQUEST, 2, 1), READ(ONLY, 2, 1), IMPLIED(1), PENDING,
		SENT(READ_REQUEST, 0, 2000), SENT(READ_REQUEST, 2, 1), READ(FIRST, 0, 1024),
		READ(LAST, 1, 976), DONE(1, SUCCESS), READ(ONLY, 2, 1), DONE(2, SUCCESS)}},
	{"implied NAK: by the answer to a later atomic", 1, 0, 0, {
		POST(ATOMIC_CMP_AND_SWP, 8), POST(ATOMIC_FETCH_AND_ADD, 8), SENT(CMP_SWAP, 0, 0),
		SENT(FETCH_ADD, 1, 0), ATOMIC(1), IMPLIED(1), PENDING, SENT(CMP_SWAP, 0, 0),
		SENT(FETCH_ADD, 1, 0), ATOMIC(0), DONE(1, SUCCESS), ATOMIC(1), DONE(2, SUCCESS)}},
	{"implied NAK: a gap inside a response", 2, 0, 0, {
		POST(RDMA_READ, 3849), SENT(READ_REQUEST, 0, 3849), READ(FIRST, 0, 1024),
		READ(MIDDLE, 2, 1024), IMPLIED(1), RETRIES(1), READ(LAST, 3, 777), IMPLIED(1),
		RETRIES(1), SENT(READ_REQUEST, 1, 2825), READ(LAST, 3, 777), QUIET, RETRIES(1),
		READ(FIRST, 1, 1024), RETRIES(2), READ(LAST, 3, 777), IMPLIED(2), RETRIES(1),
		SENT(READ_REQUEST, 2, 1801), READ(MIDDLE, 2, 1024), READ(LAST, 3, 777),
		DONE(1, SUCCESS)}},
	{"implied NAKs use retries up", 0, 0, 0, {
		POST(RDMA_READ, 1), POST(SEND, 1), SENT(READ_REQUEST, 0, 1), SENT(SEND_ONLY, 1, 1),
		ACK(0x1f, 1), DONE(1, RETRY_EXC_ERR), DONE(2, WR_FLUSH_ERR)}},
	{"timeouts use retries up", 2, 0, 0, {
		POST(ATOMIC_FETCH_AND_ADD, 8), SENT(FETCH_ADD, 0, 0), TIMEOUT,
		SENT(FETCH_ADD, 0, 0), TIMEOUT, SENT(FETCH_ADD, 0, 0), PENDING, TIMEOUT,
		DONE(1, RETRY_EXC_ERR)}},
	{"sequence NAK behind a missing response", 1, 0, 0, {
		POST(RDMA_READ, 1025), POST(SEND, 1), POST(SEND, 1), SENT(READ_REQUEST, 0, 1025),
		SENT(SEND_ONLY, 2, 1), SENT(SEND_ONLY, 3, 1), ACK(0x60, 3), IMPLIED(0), PENDING,
		SENT(READ_REQUEST, 0, 1025), SENT(SEND_ONLY, 2, 1), SENT(SEND_ONLY, 3, 1), QUIET}},
	{"sequence NAK of a READ request", 1, 0, 0, {
		POST(SEND, 1), POST(RDMA_READ, 1025), SENT(SEND_ONLY, 0, 1),
		SENT(READ_REQUEST, 1, 1025), ACK(0x60, 1), DONE(1, SUCCESS), IMPLIED(0),
		SENT(READ_REQUEST, 1, 1025)}},
	{"RNR NAK behind a missing response, which then comes", 0, 0, 0, {
		POST(RDMA_READ, 1025), POST(SEND, 1), SENT(READ_REQUEST, 0, 1025),
		SENT(SEND_ONLY, 2, 1), ACK(0x3c, 2), IMPLIED(0), QUIET, ACK(0x60, 2),
		READ(FIRST, 0, 1024), QUIET, READ(LAST, 1, 1), DONE(1, SUCCESS), QUIET, TIMEOUT,
		SENT(SEND_ONLY, 2, 1), ACK(0x1f, 2), DONE(2, SUCCESS)}},
	{"RNR NAK behind a missing response, which does not come", 0, 0, 0, {
		POST(RDMA_READ, 1025), POST(SEND, 1), SENT(READ_REQUEST, 0, 1025),
		SENT(SEND_ONLY, 2, 1), READ(FIRST, 0, 1024), ACK(0x3c, 2), QUIET, TIMEOUT,
		SENT(READ_REQUEST, 1, 1), SENT(SEND_ONLY, 2, 1), QUIET}},
	{"fatal NAK of a READ", 0, 0, 0, {
		POST(SEND, 1), POST(RDMA_READ, 1025), POST(SEND, 1), SENT(SEND_ONLY, 0, 1),
		SENT(READ_REQUEST, 1, 1025), SENT(SEND_ONLY, 3, 1), ACK(0x62, 1), DONE(1, SUCCESS),
		DONE(2, REM_ACCESS_ERR), DONE(3, WR_FLUSH_ERR)}},
	{"fatal NAK in place of a READ response", 0, 0, 0, {
		POST(RDMA_READ, 2049), SENT(READ_REQUEST, 0, 2049), READ(FIRST, 0, 1024),
		ACK(0x63, 1), DONE(1, REM_OP_ERR)}},
	{"the same, with one lost before it", 0, 0, 0, {
		POST(RDMA_READ, 2049), SENT(READ_REQUEST, 0, 2049), READ(FIRST, 0, 1024),
		ACK(0x62, 2), DONE(1, REM_ACCESS_ERR)}},
	{"fatal NAK behind missing responses", 0, 0, 0, {
		POST(RDMA_READ, 2049), POST(SEND, 1), POST(RDMA_WRITE, 2000),
		POST(ATOMIC_FETCH_AND_ADD, 8), SENT(READ_REQUEST, 0, 2049), SENT(SEND_ONLY, 3, 1),
		SENT(WRITE_FIRST, 4, 1024), SENT(WRITE_LAST, 5, 976), SENT(FETCH_ADD, 6, 0),
		ACK(0x62, 5), DONE(1, WR_FLUSH_ERR), DONE(2, WR_FLUSH_ERR), DONE(3, REM_ACCESS_ERR),
		DONE(4, WR_FLUSH_ERR)}},
	{"invalid RD request", 0, 0, 0, {
		POST(RDMA_READ, 1), SENT(READ_REQUEST, 0, 1), ACK(0x64, 0),
		DONE(1, REM_INV_RD_REQ_ERR)}},
	{"nobody asked", 0, 0, 0, {
		READ(ONLY, 0, 1), ATOMIC(0), STALE(2), POST(SEND, 1), READ(ONLY, 0, 1), STALE(3),
		SENT(SEND_ONLY, 0, 1), READ(ONLY, 0, 1), ATOMIC(0), READ(FIRST, 0, 1024), BAD(3),
		PENDING, POST(RDMA_READ, 1), SENT(READ_REQUEST, 1, 1), READ(ONLY, 2, 1), STALE(4),
		READ(ONLY, 0x7fffff, 1), READ(ONLY, 0x800002, 1), STALE(6), READ(ONLY, 1, 1),
		DONE(1, SUCCESS), DONE(2, SUCCESS), READ(ONLY, 1, 1), STALE(7)}},
	{"an atomic comes again as it was", 1, 0, 0, {
		POST(ATOMIC_CMP_AND_SWP, 8), POST(ATOMIC_FETCH_AND_ADD, 8), SENT(CMP_SWAP, 0, 0),
		SENT(FETCH_ADD, 1, 0), ATOMIC(0), DONE(1, SUCCESS), TIMEOUT, SENT(FETCH_ADD, 1, 0),
		ATOMIC(0), STALE(1), ATOMIC(1), DONE(2, SUCCESS)}},
	{"rxe quirk 7: an ACK older than the newest READ", 0, 0, 0, {
		POST(SEND, 1), POST(RDMA_READ, 1), POST(SEND, 1), SENT(SEND_ONLY, 0, 1),
		SENT(READ_REQUEST, 1, 1), SENT(SEND_ONLY, 2, 1), READ(ONLY, 1, 1), DONE(1, SUCCESS),
		DONE(2, SUCCESS), ACK(0x1f, 0), STALE(1), ACK(0x1f, 2), DONE(3, SUCCESS),
		IMPLIED(0)}},
	{"a READ longer than the window", 0, 2, 0, {
		POST(RDMA_READ, 3849), POST(RDMA_READ, 1), POST(SEND, 1),
		SENT(READ_REQUEST, 0, 3849), QUIET, READ(FIRST, 0, 1024), READ(MIDDLE, 1, 1024),
		QUIET, READ(MIDDLE, 2, 1024), SENT(READ_REQUEST, 4, 1), QUIET, READ(LAST, 3, 777),
		DONE(1, SUCCESS), SENT(SEND_ONLY, 5, 1), READ(ONLY, 4, 1), DONE(2, SUCCESS),
		ACK(0x1f, 5), DONE(3, SUCCESS)}},
	{"answered while it waits to be sent again", 1, 0, 1, {
		POST(RDMA_READ, 2049), POST(RDMA_READ, 1), SENT(READ_REQUEST, 0, 2049), TIMEOUT,
		READ(FIRST, 0, 1024), SENT(READ_REQUEST, 1, 1025), QUIET, READ(MIDDLE, 1, 1024),
		TIMEOUT, READ(LAST, 2, 1), DONE(1, SUCCESS), SENT(READ_REQUEST, 3, 1), QUIET,
		TIMEOUT, READ(ONLY, 3, 1), DONE(2, SUCCESS), QUIET}},
	{"depth 1 through a retry", 1, 0, 1, {
		POST(RDMA_READ, 1), POST(RDMA_READ, 1), SENT(READ_REQUEST, 0, 1), QUIET, TIMEOUT,
		SENT(READ_REQUEST, 0, 1), QUIET, READ(ONLY, 0, 1), DONE(1, SUCCESS),
		SENT(READ_REQUEST, 1, 1)}},
	{"rc_loss: responses of two READs lost in part", 3, 0, 0, {
		POST(RDMA_READ, 2048), POST(RDMA_READ, 2048), POST(SEND, 1),
		SENT(READ_REQUEST, 0, 2048), SENT(READ_REQUEST, 2, 2048), SENT(SEND_ONLY, 4, 1),
		READ(FIRST, 0, 1024), READ(FIRST, 2, 1024), IMPLIED(1), READ(LAST, 3, 1024),
		ACK(0x1f, 4), IMPLIED(1), RETRIES(2), SENT(READ_REQUEST, 1, 1024),
		SENT(READ_REQUEST, 2, 2048), SENT(SEND_ONLY, 4, 1), READ(LAST, 1, 1024),
		DONE(1, SUCCESS), READ(FIRST, 2, 1024), READ(LAST, 3, 1024), DONE(2, SUCCESS),
		ACK(0x1f, 4), DONE(3, SUCCESS)}},
};
/* clang-format on */

struct player {
	struct fixture *f;
	uint32_t base;
	uint32_t requests; /* posted */
	uint32_t psns;     /* that those have, relative */
	uint32_t sent;     /* packets of the last output that were looked at */
	struct {
		enum frl_wr_opcode opcode;
		uint32_t psn, length;
	} request[MAX_REQUESTS + 1];
};

static uint8_t response_byte(uint32_t psn, uint32_t i)
{
	return (uint8_t)(psn * 31 + i * 7 + 1);
}

static uint64_t atomic_value(uint32_t psn)
{
	return UINT64_C(0x0102030405060708) * (psn + 1);
}

static void play_post(struct player *p, const struct step *step)
{
	uint32_t n = ++p->requests;
	struct frl_sge sge = { p->f->memory + (size_t)n * SLOT, step->b, p->f->local.key };

	ck_assert_uint_le(n, MAX_REQUESTS);
	fixture_post(p->f,
		&(struct frl_send_wr){ .wr_id = n,
			.opcode = (enum frl_wr_opcode)step->a,
			.flags = FRL_SEND_SIGNALED,
			.sge = &sge,
			.n_sge = 1,
			.remote_addr = REMOTE + n * SLOT,
			.rkey = 0x55 + n,
			.compare_add = 100 + n,
			.swap = 200 + n },
		NULL);
	p->request[n].opcode = (enum frl_wr_opcode)step->a;
	p->request[n].psn = p->psns;
	p->request[n].length = step->b;
	p->psns += step->b ? (step->b + MTU - 1) / MTU : 1;
}

static uint32_t request_at(const struct player *p, uint32_t psn)
{
	uint32_t n = 1;

	while (n < p->requests && p->request[n + 1].psn <= psn)
		n++;
	return n;
}

static void play_sent(struct player *p, const struct step *step)
{
	uint32_t n = request_at(p, step->b);
	const struct packet_out *out;
	bool message = opcode_table[step->a].operation == OPERATION_SEND ||
		opcode_table[step->a].operation == OPERATION_WRITE;

	if (p->sent == p->f->n_out) {
		p->sent = 0;
		ck_assert_uint_gt(fixture_output(p->f), 0);
	}
	out = &p->f->out[p->sent];
	expect_out(p->f, p->sent++, (uint8_t)step->a, p->base + step->b, message ? step->c : 0,
		opcode_table[step->a].flags & OPCODE_LAST);
	ck_assert(!out->h.bth.solicited && out->h.bth.migrated);
	switch (opcode_table[step->a].operation) {
	case OPERATION_READ:
		ck_assert_uint_eq(out->n_pieces, 0);
		ck_assert_uint_eq(out->h.reth.dma_length, step->c);
		ck_assert_uint_eq(out->h.reth.rkey, 0x55 + n);
		ck_assert_uint_eq(
			out->h.reth.va, REMOTE + n * SLOT + (step->b - p->request[n].psn) * MTU);
		ck_assert_uint_eq(
			(step->b - p->request[n].psn) * MTU + step->c, p->request[n].length);
		break;
	case OPERATION_ATOMIC:
		ck_assert_uint_eq(out->n_pieces, 0);
		ck_assert_uint_eq(out->h.atomic.va, REMOTE + n * SLOT);
		ck_assert_uint_eq(out->h.atomic.rkey, 0x55 + n);
		ck_assert_uint_eq(out->h.atomic.compare, step->a == OP_CMP_SWAP ? 100 + n : 0);
		ck_assert_uint_eq(out->h.atomic.swap_add, (step->a == OP_CMP_SWAP ? 200 : 100) + n);
		break;
	default: break;
	}
}

static void play_response(struct player *p, uint8_t opcode, uint32_t psn, uint32_t length)
{
	struct wire_packet packet = fixture_packet(p->f, opcode, p->base + psn, length);

	for (uint32_t i = 0; i < length; i++)
		p->f->peer[i] = response_byte(psn, i);
	if (opcode == OP_ATOMIC_ACK)
		packet.h.atomic_original = atomic_value(psn);
	fixture_input(p->f, &packet);
	fixture_place(p->f);
}

static void play_done(struct player *p, const struct step *step)
{
	static const enum frl_wc_opcode opcodes[] = {
		[FRL_WR_RDMA_WRITE] = FRL_WC_RDMA_WRITE,
		[FRL_WR_SEND] = FRL_WC_SEND,
		[FRL_WR_RDMA_READ] = FRL_WC_RDMA_READ,
		[FRL_WR_ATOMIC_CMP_AND_SWP] = FRL_WC_COMP_SWAP,
		[FRL_WR_ATOMIC_FETCH_AND_ADD] = FRL_WC_FETCH_ADD,
	};
	uint32_t n = step->a;
	const uint8_t *memory = p->f->memory + (size_t)n * SLOT;
	uint64_t value = atomic_value(p->request[n].psn);
	struct frl_wc wc;

	ck_assert(cq_pop(&p->f->send_cq, &wc));
	ck_assert_uint_eq(wc.wr_id, n);
	ck_assert_uint_eq(wc.qp_num, F_QPN);
	ck_assert_int_eq(wc.status, step->b);
	if (step->b != FRL_WC_SUCCESS)
		return;
	ck_assert_int_eq(wc.opcode, opcodes[p->request[n].opcode]);
	ck_assert_uint_eq(wc.byte_len, p->request[n].length);
	if (p->request[n].opcode == FRL_WR_RDMA_READ)
		for (uint32_t i = 0; i < wc.byte_len; i++)
			ck_assert_uint_eq(
				memory[i], response_byte(p->request[n].psn + i / MTU, i % MTU));
	else if (wr_is_atomic((uint8_t)p->request[n].opcode))
		ck_assert_mem_eq(memory, &value, 8);
}

static void play(struct player *p, const struct step *step)
{
	struct fixture *f = p->f;

	if (step->action != ACT_SENT) {
		ck_assert_uint_eq(p->sent, f->n_out); /* nothing but what the script has */
		p->sent = f->n_out = 0;
	}
	switch (step->action) {
	case ACT_POST: play_post(p, step); break;
	case ACT_SENT: play_sent(p, step); break;
	case ACT_QUIET: expect_silence(f); break;
	case ACT_ACK: fixture_ack(f, (uint8_t)step->a, p->base + step->b); break;
	case ACT_READ: play_response(p, (uint8_t)step->a, step->b, step->c); break;
	case ACT_ATOMIC: play_response(p, OP_ATOMIC_ACK, step->b, 0); break;
	case ACT_DONE: play_done(p, step); break;
	case ACT_PENDING: expect_no_wc(&f->send_cq); break;
	case ACT_TIMEOUT: fixture_deadline(f); break;
	case ACT_IMPLIED: ck_assert_uint_eq(f->stats.implied_naks, step->a); break;
	case ACT_STALE: ck_assert_uint_eq(f->stats.stale_acks, step->a); break;
	case ACT_BAD: ck_assert_uint_eq(f->stats.drop_bad_aeth, step->a); break;
	case ACT_RETRIES: ck_assert_uint_eq(f->qp.recovery.retries, step->a); break;
	case ACT_END: break;
	}
}

START_LOOP_TEST(scripted, ROWS(scripts))
{
	static const uint32_t bases[] = { 0, 0xffffff, 0xfffffe, 0xfffffd, 0x7fffff, 0x123456 };
	const struct script *script = &scripts[_i];

	for (unsigned b = 0; b < sizeof(bases) / sizeof(bases[0]); b++) {
		struct player player = { .f = fixture_new(
						 &(struct fixture_config){ .sq_psn = bases[b],
							 .retry_cnt = script->retry_cnt,
							 .rnr_retry = 7,
							 .window = script->window,
							 .max_rd_atomic = script->depth }),
			.base = bases[b] };

		for (unsigned i = 0; i < MAX_STEPS && script->steps[i].action != ACT_END; i++) {
			mark_point();
			play(&player, &script->steps[i]);
		}
		play(&player, &(struct step){ .action = ACT_PENDING });
	}
}
END_TEST

TEST_FILE(read_atomic)
