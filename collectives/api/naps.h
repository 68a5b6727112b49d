/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When the thread of a driver (driver.h) rests, and when it makes progress. A caller that has
 * started a request usually waits for it at once. A wake-up of the thread would then help nobody,
 * and a thread that makes progress would be in the caller's way: both take a multiple of the time of
 * a short request. So the thread makes progress if a request is pending at two looks, and no caller
 * has led in between. While callers lead, it naps, longer each time, and need not be woken. It
 * sleeps if no caller has led for a long nap, or if it has completed all requests itself: the next
 * request then wakes it.
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

/* Rest that ends when the thread is woken. */
#define NAP_SLEEP UINT64_MAX

enum need {
	NO_NEED,
	CALLER_MAY_COME, /* requests are pending, and no caller waits for one yet */
	NEEDED_NOW,      /* no caller is about to wait for a detached request */
};

/* Zeroed at first. */
struct naps {
	uint64_t nap_ns;  /* the last nap of growing length; 0: none yet */
	uint32_t leads;   /* at the last look */
	bool is_idle;     /* no caller leads, and no request is pending */
	bool was_pending; /* a request, at the last look; at the next one it is not new */
};

/* A rest has ended. Returns whether the thread makes progress now. `leads` is the number of callers
 * that have led so far. */
static inline bool naps_look(struct naps *naps, enum need need, uint32_t leads)
{
	bool has_led = leads != naps->leads, was_pending = naps->was_pending;

	naps->leads = leads;
	naps->is_idle = need == NO_NEED && !has_led;
	naps->was_pending = need == CALLER_MAY_COME && !was_pending;
	return need == NEEDED_NOW || (need == CALLER_MAY_COME && was_pending && !has_led);
}

/* The thread has made progress until no request was pending, or a caller led. */
static inline void naps_restart(struct naps *naps, uint32_t leads)
{
	*naps = (struct naps){
		.leads = leads,
		.nap_ns = leads == naps->leads ? NAP_MOST_NS : 0,
	};
}

/* Returns the length of the next rest, in ns. */
static inline uint64_t naps_next(struct naps *naps)
{
	if (naps->was_pending)
		return NAP_LEAST_NS;
	if (naps->nap_ns < NAP_MOST_NS)
		return naps->nap_ns = naps->nap_ns ? 2 * naps->nap_ns : NAP_LEAST_NS;
	if (!naps->is_idle)
		return NAP_MOST_NS;
	naps->nap_ns = 0;
	return NAP_SLEEP;
}

#endif
