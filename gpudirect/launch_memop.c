/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels are launched ahead, each behind a wait of the stream for a word in host memory: a batch
 * then costs a store, and no call of the driver. While there is work the chain is made longer, from
 * gpu_queue_done(), outside of the way of a batch; where there is nothing launched ahead a batch is
 * launched as it is.
 *
 * Each wait ends by itself REST_NS after it was put into the stream: gpudirect/rest.h. The chain's
 * end is published before each call that makes it longer, because that call may itself wait, for a
 * lock of the driver's, until the chain so far has ended.
 *
 * Numbers are the ring's: a batch has one, and so has a kernel that was launched ahead and found no
 * batch. Of those not passed there are never GPU_RING_SLOTS: LAUNCHES_MAX batches at most, and as
 * the chain only grows while there are less than LAUNCHES_MAX in all, as many others at most.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpudirect/launch_ring.h"
#include "gpudirect/rest.h"
#include "lib/base/error.h"

enum { MAX_AHEAD = 8 };

struct memop_launcher {
	struct ring_launcher ring;
	struct rest_gate gate;
	unsigned wait_flags;
	uint32_t depth;  /* how many are launched ahead while there is work */
	bool may_extend; /* the driver has not just refused it */
	bool is_broken;  /* it never takes waits */
	bool is_dropped;
};

static struct memop_launcher *of(struct launcher *launcher)
{
	return (struct memop_launcher *)launcher;
}

static void forget(struct launcher *launcher)
{
	struct memop_launcher *own = of(launcher);

	if (own->gate.ring)
		rest_remove(&own->gate);
	launch_ring_forget(&own->ring);
	free(own);
}

/* Whether the GPU can wait, and then sees what a NIC has written before the wait was over. */
static int check(const struct gpu *gpu, unsigned *ret_flags)
{
	const struct gpu_caps *caps = &gpu->caps;

	*ret_flags = CU_STREAM_WAIT_VALUE_GEQ;
	if (!caps->wait_value)
		return frl_fail(-ENOTSUP,
			"FRL_GPU_LAUNCH=memop: GPU %d or its driver has no cuStreamWaitValue64() "
			"(CUDA 11.7, CAN_USE_64_BIT_STREAM_MEM_OPS): use FRL_GPU_LAUNCH=batch",
			gpu->ordinal);
	if (caps->needs_flush && !caps->flush_by_wait)
		return frl_fail(-ENOTSUP,
			"FRL_GPU_LAUNCH=memop: a kernel that was launched ahead may not see what a "
			"NIC has written to GPU %d, which cannot flush remote writes when a wait "
			"ends: use FRL_GPU_LAUNCH=batch",
			gpu->ordinal);
	if (caps->needs_flush)
		*ret_flags |= CU_STREAM_WAIT_VALUE_FLUSH;
	return 0;
}

static int make(struct gpu *gpu, struct launcher **ret_launcher)
{
	struct memop_launcher *own;
	unsigned flags;
	int rc = check(gpu, &flags);

	if (rc)
		return rc;
	own = calloc(1, sizeof(*own));
	if (!own)
		return frl_fail(-ENOMEM, "no memory for a GPU's queue");
	own->wait_flags = flags;
	own->depth = 1;
	rc = launch_ring_make(&own->ring, &launch_memop_ops, gpu);
	if (!rc) {
		own->gate.ring = own->ring.ring;
		rc = rest_add(&own->gate);
		if (rc)
			launch_ring_end(&own->ring);
	}
	if (rc) {
		own->gate.ring = NULL;
		forget(&own->ring.base);
		return rc;
	}
	*ret_launcher = &own->ring.base;
	return 0;
}

/* ---- batches */

/* To a kernel that was launched ahead. False: there is none. */
static bool take_ahead(struct memop_launcher *own, struct launch *open, uint64_t sequence)
{
	uint64_t end = atomic_load(&own->gate.end);

	while (own->ring.next <= end) {
		uint64_t number = own->ring.next++;
		uint64_t word = launch_ring_fill(&own->ring, number, open, sequence);

		if (rest_take(&own->gate, number, word)) {
			rest_pass(&own->gate, number);
			own->depth = own->depth < MAX_AHEAD ? 2 * own->depth : MAX_AHEAD;
			return true;
		}
		own->depth = 1; /* it was let go: there is less to do than was thought */
	}
	return false;
}

/* A kernel of its own, behind nothing that waits. */
static enum launch_answer launch_now(
	struct memop_launcher *own, struct launch *open, uint64_t sequence)
{
	uint64_t number = own->ring.next;
	struct gpu_scope scope;
	cu_result result;
	enum launch_answer answer = launcher_enter(&own->ring.base, &scope);

	if (answer != LAUNCH_TAKEN)
		return answer;
	rest_let_go(&own->gate);
	__atomic_store_n(ring_word(own->ring.ring, number),
		launch_ring_fill(&own->ring, number, open, sequence), __ATOMIC_RELEASE);
	result = launch_ring_kernel(&own->ring, &(struct gpu_ring_call){ .last = number });
	gpu_leave(&scope);
	answer = launcher_answer(&own->ring.base, result, "cuLaunchKernel");
	if (answer != LAUNCH_TAKEN)
		return answer;
	rest_pass(&own->gate, number);
	own->ring.next++;
	own->may_extend = true;
	return LAUNCH_TAKEN;
}

static enum launch_answer launch(struct launcher *launcher, struct launch *open, uint64_t sequence)
{
	struct memop_launcher *own = of(launcher);

	if (!launch_ring_is_own(&own->ring))
		return LAUNCH_GONE;
	if (take_ahead(own, open, sequence))
		return LAUNCH_TAKEN;
	return launch_now(own, open, sequence);
}

/* ---- the chain */

static bool wants_more(const struct memop_launcher *own, uint64_t number)
{
	uint64_t passed = __atomic_load_n(&own->ring.ring->passed, __ATOMIC_ACQUIRE);

	return own->may_extend && !own->is_broken && !own->is_dropped &&
		number - own->ring.next < own->depth && number - passed < LAUNCHES_MAX;
}

/* In the context. A wait without a kernel behind it is let go, and so nothing of it is left. */
static cu_result extend(struct memop_launcher *own, uint64_t number, const char **ret_call)
{
	const struct cuda_api *cuda = own->ring.base.gpu->cuda;
	cu_result result;

	__atomic_store_n(ring_word(own->ring.ring, number), 0, __ATOMIC_RELEASE);
	rest_expect(&own->gate, number);
	*ret_call = "cuStreamWaitValue64";
	result = cuda->cuStreamWaitValue64(own->ring.base.stream,
		own->ring.ring_address + offsetof(struct gpu_ring, go), number, own->wait_flags);
	if (!result) {
		*ret_call = "cuLaunchKernel";
		result = launch_ring_kernel(&own->ring, &(struct gpu_ring_call){ .last = number });
	}
	if (result)
		rest_let_go(&own->gate);
	return result;
}

/* What was taken goes on in any case: that the chain cannot grow just now is no failure. */
static enum launch_answer poll(struct launcher *launcher)
{
	struct memop_launcher *own = of(launcher);
	uint64_t number = atomic_load(&own->gate.end) + 1;
	struct gpu_scope scope;
	enum launch_answer answer;
	const char *call = NULL;

	if (!launch_ring_is_own(&own->ring))
		return LAUNCH_GONE;
	if (number < own->ring.next)
		number = own->ring.next;
	if (!wants_more(own, number))
		return LAUNCH_TAKEN;
	answer = launcher_enter(launcher, &scope);
	if (answer == LAUNCH_TAKEN) {
		answer = launcher_answer(launcher, extend(own, number, &call), call);
		gpu_leave(&scope);
	}
	own->may_extend = answer == LAUNCH_TAKEN;
	if (answer == LAUNCH_BROKEN) {
		frl_log(FRL_LOG_WARNING, "%s; from here on each batch is a launch of its own",
			frl_last_error());
		own->is_broken = true;
	}
	return answer == LAUNCH_GONE ? answer : LAUNCH_TAKEN;
}

static void drop(struct launcher *launcher)
{
	struct memop_launcher *own = of(launcher);

	own->is_dropped = true;
	if (own->ring.base.owner == getpid())
		rest_let_go(&own->gate);
}

const struct launcher_ops launch_memop_ops = {
	.max_launches = LAUNCHES_MAX,
	.make = make,
	.launch = launch,
	.poll = poll,
	.drop = drop,
	.unmake = launch_ring_unmake,
	.forget = forget,
};
