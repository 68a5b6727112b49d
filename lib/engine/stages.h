/* SPDX-License-Identifier: BSD-3-Clause */
/* The stages of engine_poll() and what they share. Private to lib/engine. */
#ifndef FERRULE_ENGINE_STAGES_H
#define FERRULE_ENGINE_STAGES_H

#include <stddef.h>
#include <stdint.h>

#include "lib/engine/engine.h"

/* receive.c: frames handled. */
uint32_t receive_burst(struct engine *e, uint64_t now_ns);

/* emit.c: packets encoded into transmit queues; then as many as the port takes go out. */
uint32_t emit_packets(struct engine *e, uint64_t now_ns);
void flush_tx(struct engine *e);

/* Queues a ready-made frame; lost when the queue is full, as on any network. */
void engine_queue_frame(struct engine *e, uint16_t link, const uint8_t *frame, size_t len);

/* Makes the transmit queue of a link. -ENOMEM, -EINVAL. */
int engine_use_link(struct engine *e, uint16_t link);

/* Refuses a request to a queue pair that was removed a while ago, if it is remembered. */
void engine_answer_for_gone(struct engine *e, const struct wire_packet *packet);

/* Takes back what waits in the link's queue and carries payload of the flow. */
void engine_withdraw(struct engine *e, uint16_t link, uint32_t flow);

/* placement.c: carries placements out, in order. */
void place(struct frl_stats *stats, const struct placements *placements);

#endif
