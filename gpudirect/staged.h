/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A batch of work for a GPU as what a stream can do without kernels: copies, and calls of the
 * processor, which reduces in host memory. Copies of pieces that are no more than that go between
 * where the bytes are and where they are to be. What is to be computed goes through a scratch of
 * host memory, as much at a time as fits: copies into it, a call, copies out of it.
 *
 * Nothing here calls the driver. No state; plans are the caller's.
 */
#ifndef FERRULE_GPUDIRECT_STAGED_H
#define FERRULE_GPUDIRECT_STAGED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpudirect/batch.h"

struct gpu;

enum staged_kind {
	STAGED_TO_GPU,
	STAGED_TO_HOST,
	STAGED_ON_GPU,
	STAGED_CALL,
};

/* What a stream is given, one after the other. */
struct staged_op {
	enum staged_kind kind;
	uint64_t dst, src; /* addresses of the GPU's, or of the processor's */
	size_t bytes;
	uint32_t call; /* STAGED_CALL: which */
};

/* What the processor does of a piece in one call. */
struct staged_slice {
	struct gpu_work work;         /* dst and also: the GPU's, that get the result; or 0 */
	const uint8_t *src, *operand; /* in the scratch or, as it lies, outside */
	const uint8_t *copy[2];       /* what is copied to these two before; or NULL */
	uint8_t *dst;                 /* in the scratch; NULL: it is a copy of `src` */
	uint8_t *host[2];             /* get the result as well; or NULL */
};

/* Slices of a plan, from `first` up to, not including, `end`. */
struct staged_call {
	void *owner; /* the caller's */
	struct staged_plan *plan;
	uint32_t first, end;
	uint64_t sequence; /* of the last call: of the batch; else 0 */
	uint64_t n_ops;    /* the caller's: given to the stream up to this one */
};

struct staged_plan {
	struct staged_op *ops;
	struct staged_slice *slices;
	struct staged_call *calls;
	uint32_t n_ops, n_slices, n_calls;
	uint32_t room_ops, room_slices, room_calls;
};

/* Of a batch's pieces: `scratch` is host memory of at least STAGED_SCRATCH_LEAST bytes, a multiple
 * of 64, which plans of batches in one stream share. The last op is a call that has the batch's
 * number. `plan` is empty (all zeros) or one that is not needed any more. -ENOMEM. */
int staged_plan_make(struct staged_plan *plan, const struct gpu *gpu, const struct gpu_work *pieces,
	uint32_t n_pieces, uint8_t *scratch, size_t scratch_bytes, uint64_t sequence, void *owner);
/* It is empty then. */
void staged_plan_free(struct staged_plan *plan);

enum { STAGED_SCRATCH_LEAST = 16 << 10 };

/* What the processor does in a call. Any thread. */
void staged_run(const struct staged_call *call);

#endif
