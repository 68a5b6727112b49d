/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared parts of the rows of receives that NCCL's kernels unpack. */
#ifndef TESTS_NCCL_ROWS_UNPACK_H
#define TESTS_NCCL_ROWS_UNPACK_H

#include "tests/nccl/caller/row.h"
#include "tests/nccl/caller/unpack.h"

enum { UNPACK_TAG = 6 }; /* of all messages */

/* Skips the row if devices do not report UNPACK. */
void need_unpack(const struct side *side);

/* Receives into a slot, over the side's first comm. Returns NULL if refused for now; the second
 * form waits. */
void *post_receive(struct side *side, const struct slots *slots, unsigned int slot, size_t size);
void *post_receive_now(
	struct side *side, const struct slots *slots, unsigned int slot, size_t size);

/* Checks a completed receive: unpacked as by the kernel, and with the sender's pattern `key`. */
void fetch_receive(struct side *side, struct slots *slots, unsigned int slot, size_t size,
	uint64_t key, const char *when);

/* Receives one message after the other, over the first comm: message i has size_of(i) bytes, at
 * most `most`, with pattern i. */
void send_messages(struct side *side, size_t most, unsigned int n, size_t (*size_of)(unsigned int));

#endif
