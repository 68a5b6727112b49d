/* SPDX-License-Identifier: BSD-3-Clause */
/* Stages of engine_poll() and their helpers. Private to lib/engine. */
#ifndef FERRULE_ENGINE_STAGES_H
#define FERRULE_ENGINE_STAGES_H

#include <stddef.h>
#include <stdint.h>

#include "lib/engine/engine.h"

/* Iterates over queue pairs: returns the next one at or after *index, and advances *index. */
static inline struct engine_qp *engine_next_qp(const struct engine *e, uint32_t *index)
{
	while (*index < e->qp_end) {
		struct engine_qp *qp = e->qps[(*index)++];

		if (qp)
			return qp;
	}
	return NULL;
}

/* Returns true for RC and UC with a path to the peer (from RTR on). */
static inline bool engine_is_connected(const struct engine_qp *qp)
{
	return qp->path.wire.headers_len != 0;
}

/* rx.c: receives a burst. Returns the number of frames. */
uint32_t receive_burst(struct engine *e, uint64_t now_ns);
/* Receives one frame of the port or of this engine itself. */
void receive_frame(struct engine *e, const struct port_frame *frame, uint64_t now_ns);

/* Returns true if the link of the connection is up. */
static inline bool engine_has_link(const struct engine *e, const struct engine_qp *qp)
{
	return qp->path.link == ENGINE_LOOP_LINK ||
		(qp->path.link != ENGINE_NO_LINK &&
			e->port->ops->link_state(e->port, qp->path.link) == PORT_LINK_UP);
}

/* deadlines.c: fires expired deadlines. */
void fire_deadlines(struct engine *e, uint64_t now_ns);

/*
 * path_probe.c: path MTU probes.
 * - path_probe_on_timeout() is called when the ACK timer of the connection has fired.
 * - path_probe_input() handles a frame. Returns false if it is no reply to a probe.
 * - path_probe_explain() is called when retries are exhausted. Sets the error text if only large
 *   packets are lost.
 */
void path_probe_on_timeout(struct engine *e, struct engine_qp *qp);
bool path_probe_input(struct engine *e, const struct port_frame *frame);
void path_probe_explain(const struct engine *e, struct engine_qp *qp);

/* tx.c: encodes packets into transmit queues, and hands them to the port. */
enum {
	/* On the local fabric a stopped process must not block datagrams to other processes. */
	DATAGRAM_TIMEOUT_NS = 10000000,
};
uint32_t emit_packets(struct engine *e, uint64_t now_ns);
void flush_tx(struct engine *e, uint64_t now_ns);

/*
 * batches.c: batches, for ports that send packets together (caps.max_batch).
 * - batch_begin() starts a round.
 * - batch_follow() records the packet that `qp` appended to `q`.
 * - batch_turn() returns how many packets the queue pair may send in its turn; 0: none before the
 *   queue is flushed.
 */
void batch_begin(struct engine *e);
void batch_follow(struct engine *e, struct engine_qp *qp, struct tx_queue *q,
	const struct packet_out *out, struct port_packet *packet);
uint32_t batch_turn(const struct engine *e, const struct engine_qp *qp);
/* Logs once, outside the data path, that a queue pair must send single packets. */
void batch_report(struct engine *e);

/* Counts packets that the port has taken. */
void engine_count_sent(struct frl_stats *stats, const struct port_packet packets[], uint16_t n);

/* Removes the first `taken` packets of a queue: they were copied, or are kept. Notifies their
 * queue pairs. */
void engine_packets_taken(struct engine *e, struct tx_queue *q, uint16_t taken);

/* Returns true if a frame can be queued for the link. */
bool engine_has_room(const struct engine *e, uint16_t link);

/* Queues a complete frame. Returns false if the queue is full; the frame is lost, as on any
 * network. The part that exceeds a packet's header must be in e->scratch. */
bool engine_queue_frame(struct engine *e, uint16_t link, const uint8_t *frame, size_t len);
/* Returns true while a frame in e->scratch is queued. */
bool engine_scratch_queued(const struct engine *e);

/* Appends a slot to the link's queue, which must have room. The caller fills it in. */
struct port_packet *engine_queue_slot(struct engine *e, uint16_t link);

/* Encode headers and pieces with the ICRC; headers alone (returns their length); the ICRC. */
void engine_encode(const struct wire_path *path, bool has_icrc, const struct packet_out *out,
	struct port_packet *packet);
uint32_t engine_encode_headers(const struct wire_path *path, bool has_icrc,
	const struct packet_out *out, struct port_packet *packet);
void engine_store_icrc(struct port_packet *packet, uint32_t l3_offset, uint32_t headers);

/* Returns true if the payload must be copied: it is short, or may be gone or change before the
 * port takes the packet. */
bool packet_is_copied(const struct packet_out *out);
static inline bool packet_is_answer(const struct packet_out *out)
{
	return opcode_table[out->h.bth.opcode].flags & OPCODE_RESPONSE;
}
/* UC, UD, GSI: reports `n` more packets of the flow as taken or dropped. */
void engine_report_sent(struct engine *e, uint32_t flow, uint16_t n);

/* Creates the transmit queue of a link. -ENOMEM, -EINVAL. */
int engine_use_link(struct engine *e, uint16_t link);

/* Sends a NAK for a request over `link` to a connection in time-wait. */
void engine_refuse(struct engine *e, uint16_t link, const struct time_wait *entry, struct psn psn);

/* Withdraws requests that wait in the link's queue, and payload that the peer would read in place.
 * Responses stay. */
void engine_withdraw(struct engine *e, struct engine_qp *qp);

/* Drops datagrams in a queue, and on a network also UC packets. They are reported as sent. */
void engine_drop_datagrams(struct engine *e, struct tx_queue *q);

/* time_wait.c: returns the UDP source port of a connected queue pair on the local fabric. */
uint16_t engine_fabric_port(uint32_t qpn);
/* Adds a time-wait entry for the connection of the queue pair, which is about to end. */
void engine_enter_time_wait(struct engine *e, const struct engine_qp *qp);
/* Returns the time-wait entry that a request belongs to, or NULL. `qp` is the queue pair with the
 * destination number now, or NULL. The link must have a table. */
const struct time_wait *engine_find_time_wait(const struct engine *e, const struct engine_qp *qp,
	uint16_t link, const struct wire_packet *packet);
void engine_drop_time_wait(struct engine *e, uint16_t link);

/* tx.c: removes the packets with this flow and sender from a queue, from `position` on. Returns how
 * many. */
uint16_t engine_remove_packets(
	struct engine *e, struct tx_queue *q, uint16_t position, uint32_t flow, uint32_t sender);

/* unmapped.c: marks the regions with this address as gone, if their memory may be unmapped. */
void engine_lose_memory(struct engine *e, uintptr_t at);
/* Removes a packet whose payload cannot be read from the queue, and fails its request. Returns
 * false if there is none. May change the queue further. */
bool engine_drop_unreadable(struct engine *e, struct tx_queue *q, uint64_t now_ns);

/* loop.c: delivers the packets now queued from this engine to itself. */
void flush_loop(struct engine *e, uint64_t now_ns);
/* Delivers a sent multicast packet to the members of the group on this engine. */
void loop_multicast(struct engine *e, const struct port_packet *packet, uint64_t now_ns);

/* groups_tx.c: sends multicast packets to all links of the local fabric. */
void flush_groups(struct engine *e, uint64_t now_ns);
/* Call when the first of these packets is gone: the next one has not been sent to any link. */
void restart_groups(struct tx_queue *q);

/* paths.c: updates all paths to the MAC addresses of their neighbors. */
void follow_neighbors(struct engine *e);
/* Discards datagrams for a link from now on, posted ones and those of existing address handles. */
void forget_link(struct engine *e, uint16_t link);
/* Releases the neighbors of a queue pair's path. */
void release_path(struct engine *e, struct engine_qp *qp);

/* placement.c: carries out the placements of a packet in this frame, in order, and its atomic.
 * Returns false if memory is gone. The regions are marked then, and some bytes may be placed. */
bool place(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
	struct placements *placements);

#endif
