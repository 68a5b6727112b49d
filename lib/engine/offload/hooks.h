/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hooks that the engine calls for memory that the processor cannot reach (struct region.owner).
 * engine_prepare_offload() sets engine.offloads when the first offload is prepared; until then it
 * is NULL. The engine includes no other header of this folder. Every hook is called with the
 * device's guard held.
 */
#ifndef FERRULE_ENGINE_OFFLOAD_HOOKS_H
#define FERRULE_ENGINE_OFFLOAD_HOOKS_H

#include <stdbool.h>
#include <stdint.h>

struct cq;
struct engine;
struct engine_qp;
struct packet_out;
struct placement;
struct placements;
struct port_frame;
struct port_packet;
struct qp_config;
struct region;
struct wire_packet;

struct offload_hooks {
	/* Called while a queue pair is created; sets qp->offloads. -ENOMEM. */
	int (*add_qp)(struct engine *e, struct engine_qp *qp, const struct qp_config *config);
	/* Called when a queue pair is removed, enters RESET, or enters ERR. */
	void (*remove_qp)(struct engine *e, struct engine_qp *qp);
	void (*reset_qp)(struct engine *e, struct engine_qp *qp);
	void (*fail_qp)(struct engine *e, struct engine_qp *qp);
	/* Called before a completion queue gets room for `count` completions, a power of two. All
	 * that it has fit. -ENOMEM. */
	int (*resize_cq)(struct cq *cq, uint32_t count);
	/* Called when a completion queue is removed; no queue pair uses it. */
	void (*remove_cq)(struct cq *cq);
	/* Called before a region is removed or rebound to other memory. */
	void (*release_region)(struct engine *e, const struct region *region);
	/* Returns true while a transfer reads or writes the memory of the region. */
	bool (*region_busy)(const struct engine *e, const struct region *region);
	/* Called when a link is gone or about to be closed. */
	void (*drop_link)(struct engine *e, uint16_t link);
	/* Returns true while packets for the link wait outside its transmit queue. */
	bool (*link_queued)(const struct engine *e, uint16_t link);
	/* Called by engine_fini() and engine_port_closed(). */
	void (*fini)(struct engine *e);
	void (*port_closed)(struct engine *e);

	/* Called at the start of a round: handles finished transfers. Returns how many. */
	uint32_t (*progress)(struct engine *e, uint64_t now_ns);
	/* Starts the work that a stage has queued. */
	void (*launch)(struct engine *e);
	/* Returns true while work is unfinished. */
	bool (*is_busy)(const struct engine *e);
	/* Returns true while this end keeps the peer from answering; the ACK timer is stopped
	 * then. */
	bool (*holds_timer)(const struct engine_qp *qp);

	/* Receiving. Returns true if the frame is received later or was dropped. `qp` is NULL for
	 * a multicast packet. */
	bool (*defers)(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
		const struct wire_packet *packet);
	/* The same for a frame that is not RoCE. */
	bool (*defers_other)(struct engine *e, const struct port_frame *frame);
	/* Returns false if the packet was dropped for lack of room. */
	bool (*admits)(struct engine *e, struct engine_qp *qp, const struct wire_packet *packet,
		uint64_t now_ns);
	/* Carries out a placement into memory that has an owner. */
	void (*place)(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
		const struct placement *placement);
	/* Called after the last placement of a packet. */
	void (*placed)(struct engine *e);
	/* Called when the payload of these placements turns out to be lost. */
	void (*void_placed)(struct engine *e, const struct placements *placements);
	/* Returns true if the received frame is held; the hook frees it later. */
	bool (*keeps_frame)(struct engine *e);

	/* Sending. Returns how many packets of the queue pair may be built for the link now, up to
	 * `max`. Sets *ret_waits if the result is 0 because this end is not ready. */
	uint32_t (*room)(struct engine *e, struct engine_qp *qp, uint16_t link, uint32_t max,
		bool *ret_waits);
	/* Builds a packet whose payload is not yet in host memory. Returns NULL, and builds none,
	 * if the packet can go to its link's queue at once. */
	struct port_packet *(*queue)(struct engine *e, struct engine_qp *qp, uint16_t link,
		const struct packet_out *out);
	/* Called after all packets of a round are built. */
	void (*emitted)(struct engine *e, uint64_t now_ns);
	/* Drops packets of the flow's requests that are not in a transmit queue yet. Returns how
	 * many. */
	uint16_t (*withdraw)(struct engine *e, uint32_t flow);
	/* Called when a packet leaves its queue: `taken` by the port, or dropped. */
	void (*release)(struct engine *e, struct port_packet *packet, bool taken);
};

#endif
