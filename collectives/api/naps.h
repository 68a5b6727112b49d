/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When the thread of a driver (driver.h) rests, and when it makes progress. A caller that has
 * started a request usually waits for it at once. A wake-up of the thread would then help nobody,
 * and a thread that makes progress would be in the caller's way: both take a multiple of the time
 * of a short request. So the thread makes progress if it has found the same request pending
 * before, and no caller leads. While callers lead, it naps, longer each time, and need not be
 * woken. It sleeps if none has begun to lead during a long nap, and after it has made progress
 * itself: the next request then wakes it.
 *
 * No function takes a clock. One thread has a struct naps.
 */
#ifndef FERRULE_COLLECTIVES_API_NAPS_H
#define FERRULE_COLLECTIVES_API_NAPS_H

#include <stdbool.h>
#include <stdint.h>

enum {
	NAP_LEAST_NS = 100000,
	NAP_MOST_NS = NAP_LEAST_NS << 5,
};

/* A rest that ends when the thread is woken. */
#define NAP_SLEEP UINT64_MAX

enum need {
	NO_NEED,
	CALLER_MAY_COME, /* requests are pending, and no caller waits for one yet */
	NEEDED_NOW,      /* no caller is about to wait for a detached request */
};

struct naps {
	uint64_t nap_ns;  /* the last nap of growing length; 0: none since the last sleep */
	uint32_t pending; /* the oldest request, when one was last found; 0: none since progress */
	uint32_t leads;   /* at the last look */
	bool is_idle;     /* nothing was pending, and no caller had begun to lead */
	bool looks_again; /* soon, at a request that may have been new */
};

/* The thread sleeps at first. */
static inline void naps_init(struct naps *naps)
{
	*naps = (struct naps){ .nap_ns = NAP_MOST_NS };
}

/* The thread is awake. Returns whether it makes progress now. `oldest` is the number of the oldest
 * request, not 0, if one is pending; `leads` is how often a caller has begun to lead so far. */
static inline bool naps_look(struct naps *naps, enum need need, uint32_t oldest, uint32_t leads)
{
	bool is_pending = need == CALLER_MAY_COME;
	bool is_old = is_pending && oldest == naps->pending;

	naps->is_idle = need == NO_NEED && leads == naps->leads;
	naps->leads = leads;
	if (is_pending)
		naps->pending = oldest;
	/* Callers that start one request after the other would keep it awake by short naps. */
	naps->looks_again = is_pending && !naps->looks_again;
	return need == NEEDED_NOW || is_old;
}

/* The thread has looked for progress, and made some or none, until no request was pending or a
 * caller led. */
static inline void naps_restart(struct naps *naps, bool has_done, uint32_t leads)
{
	naps->nap_ns = has_done ? NAP_MOST_NS : 0;
	naps->pending = 0;
	naps->leads = leads;
	naps->looks_again = false;
}

/* Returns the length of the next rest, in ns. */
static inline uint64_t naps_next(struct naps *naps)
{
	if (naps->looks_again)
		return NAP_LEAST_NS;
	if (naps->nap_ns < NAP_MOST_NS)
		return naps->nap_ns = naps->nap_ns ? 2 * naps->nap_ns : NAP_LEAST_NS;
	if (!naps->is_idle)
		return NAP_MOST_NS;
	naps->nap_ns = 0;
	return NAP_SLEEP;
}

#endif
