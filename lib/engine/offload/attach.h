/* SPDX-License-Identifier: BSD-3-Clause */
/* Attaches offloads to an engine and detaches them. Called with the device's guard held, unless
 * said otherwise. */
#ifndef FERRULE_ENGINE_OFFLOAD_ATTACH_H
#define FERRULE_ENGINE_OFFLOAD_ATTACH_H

#include <stdbool.h>

struct engine;
struct offload;

/*
 * After engine_attach_offload(), regions may name the offload as their owner. The offload then
 * reaches the engine's buffers and the frames that the port can spare. Attaching takes three
 * steps, for one offload at a time; another offload may be detached meanwhile:
 *
 * 1. engine_prepare_offload() allocates. -ENOMEM; -ENOSPC beyond ENGINE_OFFLOADS. The first call
 *    sets engine.offloads, which stays set.
 * 2. engine_map_offload() returns the result of the offload's map().
 * 3. engine_attach_offload() does not fail.
 *
 * The reason of a failure is in frl_last_error. Detach an offload when no region names it and none
 * of its transfers is under way, then unmap it. engine_fini() does both at the latest.
 * Mapping and unmapping host memory for a GPU may block for long. Both are called without the
 * device's guard, so the other queue pairs go on.
 */
int engine_prepare_offload(struct engine *engine);
int engine_map_offload(const struct engine *engine, struct offload *offload);
void engine_attach_offload(struct engine *engine, struct offload *offload);
void engine_detach_offload(struct engine *engine, struct offload *offload);
/* The offload will be detached. Frames that arrive from now on and that it would have to fetch are
 * dropped, so that it becomes idle. */
void engine_retire_offload(struct engine *engine, struct offload *offload);
/* Returns true if the offload is idle: it has finished everything, including fetches of frames
 * whose receiver is gone, and the memory may be unmapped. Starts queued work. */
bool engine_offload_is_idle(const struct engine *engine, struct offload *offload);
void engine_unmap_offload(const struct engine *engine, struct offload *offload);

#endif
