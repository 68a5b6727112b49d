/* SPDX-License-Identifier: BSD-3-Clause */
/* What rows of receives that NCCL's kernels unpack have in common. */
#ifndef TESTS_NCCL_ROWS_UNPACK_H
#define TESTS_NCCL_ROWS_UNPACK_H

#include "tests/nccl/row.h"
#include "tests/nccl/unpack.h"

enum { UNPACK_TAG = 6 }; /* of all messages */

/* Skips the row where devices do not say so. */
void need_unpack(const struct side *side);

/* Into a slot, over the side's first comm. NULL: not now; the second one waits. */
void *post_receive(struct side *side, const struct slots *slots, unsigned int slot, size_t size);
void *post_receive_now(
	struct side *side, const struct slots *slots, unsigned int slot, size_t size);

/* One that is done: as the kernel has it, and as the sender has filled it, with pattern `key`. */
void fetch_receive(struct side *side, struct slots *slots, unsigned int slot, size_t size,
	uint64_t key, const char *when);

/* One after the other, over the first comm: message i is of size_of(i) bytes, `most` at the most,
 * with pattern i. */
void send_messages(struct side *side, size_t most, unsigned int n, size_t (*size_of)(unsigned int));

#endif
