/* SPDX-License-Identifier: BSD-3-Clause */
/* Offloads come to an engine, and go. With the device's guard held, unless said otherwise. */
#ifndef FERRULE_ENGINE_OFFLOAD_ATTACH_H
#define FERRULE_ENGINE_OFFLOAD_ATTACH_H

#include <stdbool.h>

struct engine;
struct offload;

/*
 * Regions may have this `offload` as their owner from now on: it reaches the engine's buffers, and
 * the frames that the port can spare. In three steps, of one offload at a time: prepared, which is
 * -ENOMEM or -ENOSPC (there are ENGINE_OFFLOADS); mapped, with the result of the offload's map();
 * attached, which does not fail. The first one to be prepared sets engine.offloads, which stays.
 * The reason of a failure is in frl_last_error. Another one may be detached meanwhile.
 * Detached when there are no such regions any more and none of their transfers is under way, and
 * then unmapped; at the latest both by engine_fini().
 * To map host memory for a GPU takes long, and to unmap it may wait for all that the GPU has to do:
 * these two are called without the guard of the device, whose other queue pairs go on meanwhile.
 */
int engine_prepare_offload(struct engine *engine);
int engine_map_offload(const struct engine *engine, struct offload *offload);
void engine_attach_offload(struct engine *engine, struct offload *offload);
void engine_detach_offload(struct engine *engine, struct offload *offload);
/* It is to be detached: frames that come from now on, and that it would have to fetch, are thrown
 * away, so that it becomes idle at some time. */
void engine_retire_offload(struct engine *engine, struct offload *offload);
/* Nothing that the offload was given is under way: not even frames that nobody waits for any more,
 * which it writes to memory that must stay mapped until then. Goes on with that. */
bool engine_offload_is_idle(const struct engine *engine, struct offload *offload);
void engine_unmap_offload(const struct engine *engine, struct offload *offload);

#endif
