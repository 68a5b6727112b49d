/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hooks of the engine for memory that the processor does not reach (struct region.owner). The
 * engine calls them where engine.offloads is set, and knows nothing else of this folder.
 * engine_prepare_offload() sets it, with the first offload. All are called with the device's guard
 * held.
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
	/* A queue pair is being made: sets qp->offloads. -ENOMEM. */
	int (*add_qp)(struct engine *e, struct engine_qp *qp, const struct qp_config *config);
	/* It is removed; it has come to RESET, or ERR. */
	void (*remove_qp)(struct engine *e, struct engine_qp *qp);
	void (*reset_qp)(struct engine *e, struct engine_qp *qp);
	void (*fail_qp)(struct engine *e, struct engine_qp *qp);
	/* A completion queue that no queue pair uses is removed. */
	void (*remove_cq)(struct cq *cq);
	/* A region is about to be removed, or to become another one. */
	void (*forget_region)(struct engine *e, const struct region *region);
	/* True while its memory is read or written. */
	bool (*region_busy)(const struct engine *e, const struct region *region);
	/* A link is gone, or is about to be closed. */
	void (*drop_link)(struct engine *e, uint16_t link);
	/* True while packets for it are not in its queue yet. */
	bool (*link_queued)(const struct engine *e, uint16_t link);
	/* engine_fini(), engine_port_closed(). */
	void (*fini)(struct engine *e);
	void (*port_closed)(struct engine *e);

	/* A round begins: handles what has been done since the last one. Returns how much. */
	uint32_t (*progress)(struct engine *e, uint64_t now_ns);
	/* Has the work begin that a stage has given. */
	void (*launch)(struct engine *e);
	/* True while work is not done. */
	bool (*is_busy)(const struct engine *e);
	/* True while this end keeps the peer of the queue pair from answering. */
	bool (*holds_timer)(const struct engine_qp *qp);

	/* Receiving. True: the frame is received later, or was dropped; `qp` NULL: for a group. */
	bool (*defers)(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
		const struct wire_packet *packet);
	/* The same of a frame that is not RoCE. */
	bool (*defers_other)(struct engine *e, const struct port_frame *frame);
	/* False: the packet was dropped: there is no room for it. */
	bool (*admits)(struct engine *e, struct engine_qp *qp, const struct wire_packet *packet,
		uint64_t now_ns);
	/* A placement into memory of an owner. */
	void (*place)(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
		const struct placement *placement);
	/* All placements of a packet were made. */
	void (*placed)(struct engine *e);
	/* Their payload was lost. */
	void (*forget_placed)(struct engine *e, const struct placements *placements);
	/* True: the frame that was received is kept, and freed later. */
	bool (*keeps_frame)(struct engine *e);

	/* Sending. Returns how many packets of the queue pair may be made for the link now, up to
	 * `max`; *ret_waits: none, because this end is not ready. */
	uint32_t (*room)(struct engine *e, struct engine_qp *qp, uint16_t link, uint32_t max,
		bool *ret_waits);
	/* Makes a packet that cannot go to its link's queue yet. NULL: it can, and none was made.
	 */
	struct port_packet *(*queue)(struct engine *e, struct engine_qp *qp, uint16_t link,
		const struct packet_out *out);
	/* All packets of a round are made. */
	void (*emitted)(struct engine *e, uint64_t now_ns);
	/* Requests of the flow that are not in a queue yet are dropped. */
	void (*withdraw)(struct engine *e, uint32_t flow);
	/* The packet has left its queue: `taken` by the port, or dropped. */
	void (*release)(struct engine *e, struct port_packet *packet, bool taken);
};

#endif
