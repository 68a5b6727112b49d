/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory windows, as the two applications of a connection use them. The owner binds a window and
 * passes on its key once the completion says that it is bound. The peer uses the key for some of
 * its requests; then one of them invalidates it. The peer does that behind all its uses, with a
 * fence if one of those is a READ, which might have to be repeated. The owner does it only when no
 * use is under way.
 */
#ifndef FERRULE_SIM_WINDOWS_H
#define FERRULE_SIM_WINDOWS_H

#include "tests/sim/endpoint.h"

/* Makes the local request of the script a bind or an invalidation, whichever is possible. */
void windows_prepare_local(struct endpoint *endpoint, struct message *message,
	struct frl_send_wr *wr, struct wr_objects *ret_objects);

/* Returns a window of the peer with all of that range and these rights, or NULL. */
struct window *windows_for(
	struct endpoint *endpoint, uint32_t offset, uint32_t length, uint32_t access);

/* Any window of the peer that may be invalidated, or NULL. */
struct window *windows_to_invalidate(struct endpoint *endpoint);

/* The oracle has seen it. */
void windows_executed(struct endpoint *endpoint, struct message *message, uint32_t request);

/* The bound windows are those that should be bound. */
void windows_check(const struct endpoint *endpoint);

#endif
