/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/windows.h"

#include "tests/sim/common/fail.h"
#include "tests/sim/world.h"

static uint64_t below(struct endpoint *endpoint, uint64_t n)
{
	return random_below(&endpoint->world->random, n);
}

/* Bound, and the application knows it. */
static bool is_usable(const struct endpoint *owner, const struct window *window)
{
	return window->state == WINDOW_BOUND && owner->send.polled > window->request;
}

static struct window *find_local(struct endpoint *endpoint, bool *ret_bind)
{
	uint32_t from = (uint32_t)below(endpoint, endpoint->n_windows);

	for (uint32_t i = 0; i < endpoint->n_windows; i++) {
		struct window *window = &endpoint->windows[(from + i) % endpoint->n_windows];

		*ret_bind = window->state == WINDOW_UNBOUND;
		if (*ret_bind || (is_usable(endpoint, window) && window->users == 0))
			return window;
	}
	/* There are as many windows as requests that bind one. */
	SIM_CHECK(false, "endpoint %u: no window", endpoint->index);
	return NULL;
}

static void prepare_bind(struct endpoint *endpoint, struct window *window, struct frl_send_wr *wr,
	struct wr_objects *ret_objects)
{
	static const uint32_t rights[] = { FRL_ACCESS_REMOTE_WRITE, FRL_ACCESS_REMOTE_READ,
		FRL_ACCESS_REMOTE_ATOMIC };
	struct sim_memory *target = &endpoint->target;
	struct region *parent = &target->regions[below(endpoint, target->n_keys)];
	uint32_t size = (uint32_t)parent->length;

	window->offset = (uint32_t)below(endpoint, size / 2);
	window->length = 1 + (uint32_t)below(endpoint, size - window->offset);
	if (below(endpoint, 2)) {
		window->offset = 0;
		window->length = size;
	}
	window->access = 0;
	for (int i = 0; i < 3; i++)
		if (below(endpoint, 4))
			window->access |= rights[i];
	if (target->mock)
		window->access &= ~(uint32_t)FRL_ACCESS_REMOTE_ATOMIC;
	window->key = frl_inc_rkey(window->region.key);
	wr->opcode = FRL_WR_BIND_MW;
	wr->bind = (struct frl_mw_bind){
		.addr = parent->iova + window->offset,
		.length = window->length,
		.rkey = window->key,
		.access = window->access,
	};
	ret_objects->window = &window->region;
	ret_objects->parent = parent;
	window->state = WINDOW_BINDING;
}

void windows_prepare_local(struct endpoint *endpoint, struct message *message,
	struct frl_send_wr *wr, struct wr_objects *ret_objects)
{
	bool bind;
	struct window *window = find_local(endpoint, &bind);

	message->window = window;
	window->request = endpoint->send.posted;
	if (bind) {
		prepare_bind(endpoint, window, wr, ret_objects);
	} else {
		wr->opcode = FRL_WR_LOCAL_INV;
		wr->invalidate_rkey = window->key;
		window->state = WINDOW_INVALIDATING;
	}
	message->opcode = wr->opcode;
	message->window_key = window->key;
}

struct window *windows_for(
	struct endpoint *endpoint, uint32_t offset, uint32_t length, uint32_t access)
{
	struct endpoint *peer = endpoint->peer;

	for (uint32_t i = 0; i < peer->n_windows; i++) {
		struct window *window = &peer->windows[i];

		if (is_usable(peer, window) && (window->access & access) == access &&
			offset >= window->offset &&
			offset + length <= window->offset + window->length)
			return window;
	}
	return NULL;
}

struct window *windows_to_invalidate(struct endpoint *endpoint)
{
	struct endpoint *peer = endpoint->peer;

	for (uint32_t i = 0; i < peer->n_windows; i++)
		if (is_usable(peer, &peer->windows[i]))
			return &peer->windows[i];
	return NULL;
}

void windows_executed(struct endpoint *endpoint, struct message *message, uint32_t request)
{
	struct window *window = message->window;

	SIM_CHECK(window->request == request &&
			window->state ==
				(message->opcode == FRL_WR_BIND_MW ? WINDOW_BINDING
								   : WINDOW_INVALIDATING),
		"endpoint %u: window of request %u", endpoint->index, request);
	window->state = message->opcode == FRL_WR_BIND_MW ? WINDOW_BOUND : WINDOW_UNBOUND;
}

void windows_check(const struct endpoint *endpoint)
{
	for (uint32_t i = 0; i < endpoint->n_windows; i++) {
		const struct window *window = &endpoint->windows[i];
		const struct region *region = &window->region;

		if (window->state == WINDOW_UNBOUND)
			SIM_CHECK(!region->parent && region->length == 0,
				"endpoint %u: window %u is bound", endpoint->index, i);
		if (window->state == WINDOW_BOUND)
			SIM_CHECK(region->parent && region->length == window->length &&
					region->key == window->key &&
					region->access == window->access,
				"endpoint %u: window %u is not bound", endpoint->index, i);
	}
}
