/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of a queue pair call of each other. Private to lib/protocol. */
#ifndef FERRULE_PROTOCOL_QP_INTERNAL_H
#define FERRULE_PROTOCOL_QP_INTERNAL_H

#include "lib/protocol/qp.h"

/* Types and codes of the AETH syndrome. IBTA volume 1, 9.7.5.2. */
enum aeth_syndrome {
	AETH_TYPE_MASK = 0x60,
	AETH_ACK = 0x00,
	AETH_RNR_NAK = 0x20,
	AETH_NAK = 0x60,
	AETH_VALUE_MASK = 0x1f,
	AETH_RESERVED = 0x80,
	AETH_CREDITS_NONE = 0x1f, /* an ACK that carries no credits */
};

enum nak_code {
	NAK_SEQUENCE = 0,
	NAK_INVALID_REQUEST = 1,
	NAK_REMOTE_ACCESS = 2,
	NAK_REMOTE_OPERATIONAL = 3,
};

static inline struct send_wqe *send_wqe_at(const struct requester *r, uint32_t position)
{
	return &r->wqes[position & r->mask];
}

static inline struct recv_wqe *recv_wqe_at(const struct responder *r, uint32_t position)
{
	return &r->wqes[position & r->mask];
}

/* As qp_fail(), but the request at `position` of the send queue is the one that completes with
 * `status`; those before it are flushed. */
void qp_fail_at(struct qp *qp, uint32_t position, enum frl_wc_status status);

/* Writes a completion; a full queue takes the queue pair to ERR. Returns the entry or NULL. */
struct frl_wc *qp_complete(struct qp *qp, struct cq *cq, const struct frl_wc *wc);

/* requester.c: packets [psn, ...) are to be sent (again); una <= psn <= sent_end. */
void requester_go_back(struct requester *r, struct psn psn);
/* Everything before `psn` is acknowledged: completes requests. True when una moved. */
bool requester_acknowledge(struct qp *qp, struct psn psn);
uint32_t requester_output(struct qp *qp, struct packet_out out[], uint32_t max, uint64_t now_ns);
bool requester_wants_output(const struct qp *qp);

void completer_input(struct qp *qp, const struct wire_packet *packet, uint64_t now_ns);

void responder_input(
	struct qp *qp, const struct wire_packet *packet, struct placements *placements);
/* A request for a queue pair in ERR. */
void responder_refuse_late(struct qp *qp, const struct wire_packet *packet);
/* Fills `out` with the pending acknowledgement. */
void responder_output(struct qp *qp, struct packet_out *out);

#endif
