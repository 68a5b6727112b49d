/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The invariants, checked after every event on a node. The oracle carries out the same operations
 * on plain memory:
 *
 *	oracle_responder.c	RC: from the expected PSN it knows what has been accepted. It
 *				executes that in order: every byte of the memory that a peer may
 *				change, what READs and atomics find there, every receive.
 *	oracle_requester.c	RC: from the oldest unacknowledged PSN it knows what has come back:
 *				every byte of the results. And the rules that sending obeys.
 *	oracle_unreliable.c	UC, UD: it is told which frames an engine was given, and takes or
 *				drops them as the specification says.
 *	completions.c		each completion, once and in order, says what has happened.
 *	oracle_events.c		notifications and asynchronous events.
 *
 * The result of a READ is known because its bytes do not change between its first execution and its
 * end: see needs_fence() in workload_send.c. For the counter that all flows change only the sum is
 * known at once; at the end of the run the values that operations found there must form one chain.
 */
#ifndef FERRULE_SIM_ORACLE_H
#define FERRULE_SIM_ORACLE_H

#include "tests/sim/world.h"

/* Checks the whole node; only bytes that should have changed are compared. */
void oracle_check_node(struct node *node);

/* Checks every byte of the endpoint's memory, so that no other byte has changed. */
void oracle_check_memory(struct endpoint *endpoint);

/* The FETCH_ADDs of shared counters happened one after the other. */
void oracle_check_chains(struct world *world);

/* The engine of the node is about to be given the frame. */
void oracle_on_receive(struct node *node, const struct frame *frame);
/* The port of the node has taken a frame for sending: members of a group receive it at this moment,
 * too. */
void oracle_on_send(struct node *node, const uint8_t *data, uint32_t len);

/* completions.c: records the new completions of a queue and checks each. */
void oracle_scan_cq(struct node *node, struct sim_cq *cq);
/* Returns the completion at a position from the queue's head on, also if a gate still holds it. */
const struct frl_wc *oracle_completion_at(const struct sim_cq *cq, uint32_t at);

/* The application takes this completion: its data is in memory now, if not before. */
void oracle_check_polled(struct endpoint *endpoint, const struct frl_wc *wc);

/* The requests before `k` have no completion of their own: checks that they were unsignaled and
 * have been executed, which means that their bytes are at the peer. */
void oracle_skip_unsignaled(struct endpoint *endpoint, uint32_t k);

/* The functions below are for the parts of the oracle. */

/* Finds the receives of the endpoint's new completions. */
void oracle_look_ahead(struct endpoint *endpoint);
/* Returns the receive request of the arriving message, which takes one now if it has none. */
uint32_t oracle_take_receive(struct endpoint *endpoint);
/* A completion of that request must come; it leaves the message. */
struct expected *oracle_expect(struct endpoint *endpoint, const struct message *message);

void oracle_touch(
	struct endpoint *endpoint, struct sim_memory *memory, uint32_t offset, uint32_t length);
/* Bytes [offset, offset + len) of a receive, in the shadow. */
void oracle_scatter_receive(struct endpoint *endpoint, uint32_t request, uint32_t offset,
	const uint8_t *payload, uint32_t len);
/* The same for a slot with this layout, read-only. */
typedef void (*oracle_piece)(void *arg, uint32_t at, uint32_t done, uint32_t len);
uint32_t oracle_walk(const struct layout *layout, uint32_t slot, uint32_t offset, uint32_t len,
	oracle_piece piece, void *arg);
void oracle_write(struct endpoint *endpoint, const struct message *message, uint32_t offset,
	const uint8_t *payload, uint32_t len);
void oracle_check_touched(struct endpoint *endpoint, bool source_gone, uint32_t first_gone);

void oracle_follow_responder(struct endpoint *endpoint);
void oracle_follow_requester(struct endpoint *endpoint);
void oracle_follow_unreliable(struct endpoint *endpoint);
void oracle_check_requester(struct endpoint *endpoint);
void oracle_follow_loop(struct endpoint *endpoint);
void oracle_check_events(struct node *node);
/* A completion can be polled: whether it should have been notified. An error is urgent, and so is a
 * completion that the sender has marked solicited. */
void oracle_note_completion(struct sim_cq *cq, bool urgent);
/* Unknown. */
void oracle_accept_notice(struct sim_cq *cq);

#endif
