/* SPDX-License-Identifier: BSD-3-Clause */
/* The stages of engine_poll() and what they share. Private to lib/engine. */
#ifndef FERRULE_ENGINE_STAGES_H
#define FERRULE_ENGINE_STAGES_H

#include <stddef.h>
#include <stdint.h>

#include "lib/engine/engine.h"

/* Walks the queue pairs: the one at *index or after it, and *index is then behind it. */
static inline struct engine_qp *engine_next_qp(const struct engine *e, uint32_t *index)
{
	while (*index < e->qp_end) {
		struct engine_qp *qp = e->qps[(*index)++];

		if (qp)
			return qp;
	}
	return NULL;
}

/* RC, UC: it has a path to its peer, from RTR on. */
static inline bool engine_is_connected(const struct engine_qp *qp)
{
	return qp->path.wire.headers_len != 0;
}

/* receive.c: frames handled. */
uint32_t receive_burst(struct engine *e, uint64_t now_ns);
/* One frame, of the port or of this engine itself. */
void receive_frame(struct engine *e, const struct port_frame *frame, uint64_t now_ns);

/* The link of the connection is up. */
static inline bool engine_has_link(const struct engine *e, const struct engine_qp *qp)
{
	return qp->path.link == ENGINE_LOOP_LINK ||
		e->port->ops->link_state(e->port, qp->path.link) == PORT_LINK_UP;
}

/* deadlines.c: those that have come fire. */
void fire_deadlines(struct engine *e, uint64_t now_ns);

/* emit.c: packets encoded into transmit queues; then as many as the port takes go out. */
uint32_t emit_packets(struct engine *e, uint64_t now_ns);
void flush_tx(struct engine *e, uint64_t now_ns);

/*
 * trains.c: where the port sends packets together (caps.train). Before a round; a packet of `qp`
 * has become the last one of the queue `q`; and how many it may send in its turn: 0, when none
 * before the queue has left.
 */
void train_begin(struct engine *e);
void train_follow(struct engine *e, struct engine_qp *qp, struct tx_queue *q,
	const struct packet_out *out, struct port_packet *packet);
uint32_t train_turn(const struct engine *e, const struct engine_qp *qp);
/* Says once, outside of the data path, that packets have to leave alone. */
void train_report(struct engine *e);

/* Takes the packets at the head of a queue out of it: `taken` of them, which somebody has copied or
 * keeps. Their queue pairs are told where they are to be. */
void engine_packets_taken(struct engine *e, struct tx_queue *q, uint16_t taken);

/* True when a frame can be queued for the link. */
bool engine_has_room(const struct engine *e, uint16_t link);

/* Queues a ready-made frame; lost when the queue is full, as on any network: false. What does not
 * fit a packet's header must be in e->scratch. */
bool engine_queue_frame(struct engine *e, uint16_t link, const uint8_t *frame, size_t len);
/* True while a frame in e->scratch waits. */
bool engine_scratch_queued(const struct engine *e);

/* The slot behind the last one of the link's queue, which has room: for a packet that is sent as it
 * is then. */
struct port_packet *engine_queue_slot(struct engine *e, uint16_t link);

/* Headers and pieces, and the ICRC over them; headers alone, of so many bytes; the ICRC. */
void engine_encode(const struct wire_path *path, bool has_icrc, const struct packet_out *out,
	struct port_packet *packet);
uint32_t engine_encode_headers(const struct wire_path *path, bool has_icrc,
	const struct packet_out *out, struct port_packet *packet);
void engine_store_icrc(struct port_packet *packet, uint32_t l3_offset, uint32_t headers);

/* Payload that may be gone, or change, before the port takes the packet, and is short. */
bool packet_is_copied(const struct packet_out *out);
static inline bool packet_is_answer(const struct packet_out *out)
{
	return opcode_table[out->h.bth.opcode].flags & OPCODE_RESPONSE;
}
/* UC, UD, GSI: `n` more packets of the flow were taken, or dropped. */
void engine_tell(struct engine *e, uint32_t flow, uint16_t n);

/* Makes the transmit queue of a link. -ENOMEM, -EINVAL. */
int engine_use_link(struct engine *e, uint16_t link);

/* Refuses a request over `link` for the connection in time-wait. */
void engine_refuse(struct engine *e, uint16_t link, const struct time_wait *entry, struct psn psn);

/* Takes back its requests that wait in the link's queue, and what the peer would read in place.
 * Answers to the peer's requests stay. */
void engine_take_back(struct engine *e, struct engine_qp *qp);

/* Drops the datagrams that wait in a queue, on a network UC's packets as well; their queue pairs
 * hear that they are sent. */
void engine_drop_datagrams(struct engine *e, struct tx_queue *q);

/* time_wait.c: the UDP source port of a connected queue pair on the local fabric. */
uint16_t engine_fabric_port(uint32_t qpn);
/* The connection of the queue pair is about to end here. */
void engine_enter_time_wait(struct engine *e, const struct engine_qp *qp);
/* The ended connection that a request belongs to, or NULL. `qp` has the number that the request is
 * for; NULL: nobody has. The link has a table. */
const struct time_wait *engine_find_time_wait(const struct engine *e, const struct engine_qp *qp,
	uint16_t link, const struct wire_packet *packet);
void engine_drop_time_wait(struct engine *e, uint16_t link);

/* loop.c: packets whose destination is this engine itself: those that are queued now. */
void flush_loop(struct engine *e, uint64_t now_ns);
/* A packet to a multicast group goes also to the queue pairs here that are attached to it. */
void loop_multicast(struct engine *e, const struct port_packet *packet, uint64_t now_ns);

/* paths.c: has all paths follow the MAC addresses of neighbours. */
void follow_neighbors(struct engine *e);
/* Datagrams for a link, posted or to be posted with address handles of now, go nowhere. */
void forget_link(struct engine *e, uint16_t link);
/* Gives up what a queue pair's path holds. */
void release_path(struct engine *e, struct engine_qp *qp);

/* placement.c: carries placements out of a packet in this frame, in order. */
void place(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
	struct placements *placements);

#endif
