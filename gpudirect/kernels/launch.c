/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpudirect/kernels/launch.h"

enum {
	/* The bytes that a block's threads handle in one iteration. Smaller shares would leave
	 * threads idle. */
	BLOCK_BYTES = 16 * GPU_BLOCK_THREADS,
	/* The most ranges that one check compares: GPU_BATCH_PIECES pieces have at most this many.
	 * A piece that needs a longer check starts a new launch, which costs less than the checks
	 * of all later pieces. */
	RANGES_CHECKED = 2 * GPU_BATCH_PIECES,
	/* How many of the latest ranges can be extended, that is, how many messages may have
	 * interleaved packets. */
	RANGES_OPEN = 16,
};

static void clear(struct launch_ranges *ranges)
{
	ranges->n = 0;
	ranges->low = UINT64_MAX;
	ranges->high = 0;
}

/* Returns true if a range overlaps [begin, end), or if the check would take long. */
static bool touch(const struct launch_ranges *ranges, uint64_t begin, uint64_t end)
{
	bool found = false;

	if (begin >= ranges->high || end <= ranges->low || begin == end)
		return false;
	if (ranges->n > RANGES_CHECKED)
		return true;
	for (uint32_t i = 0; i < ranges->n; i++)
		found |= begin < ranges->end[i] && end > ranges->begin[i];
	return found;
}

static void insert(struct launch_ranges *ranges, uint64_t begin, uint64_t end)
{
	if (begin == end)
		return;
	if (begin < ranges->low)
		ranges->low = begin;
	if (end > ranges->high)
		ranges->high = end;
	for (uint32_t i = ranges->n; i > 0 && ranges->n - i < RANGES_OPEN; i--) {
		if (begin == ranges->end[i - 1]) {
			ranges->end[i - 1] = end;
			return;
		}
	}
	ranges->begin[ranges->n] = begin;
	ranges->end[ranges->n] = end;
	ranges->n++;
}

void launch_clear(struct launch *launch)
{
	launch->batch.n_pieces = 0;
	launch->batch.n_blocks = 0;
	clear(&launch->writes);
	clear(&launch->reads);
	clear(&launch->also);
}

static bool is_written(const struct launch *launch, uint64_t begin, uint64_t end)
{
	return touch(&launch->writes, begin, end) || touch(&launch->also, begin, end);
}

static bool is_used(const struct launch *launch, uint64_t begin, uint64_t end)
{
	return is_written(launch, begin, end) || touch(&launch->reads, begin, end);
}

bool launch_takes(const struct launch *launch, const struct gpu_work *work)
{
	uint64_t dst = gpu_work_dst_bytes(work), src = gpu_work_src_bytes(work);
	uint64_t operand = gpu_work_operand_bytes(work);

	if (launch->batch.n_pieces == launch->max_pieces)
		return false;
	if (is_used(launch, work->dst, work->dst + dst) ||
		is_written(launch, work->src, work->src + src))
		return false;
	if (operand && work->operand != work->dst &&
		is_written(launch, work->operand, work->operand + operand))
		return false;
	return !work->also || !is_used(launch, work->also, work->also + dst);
}

void launch_add(struct launch *launch, const struct gpu_work *work)
{
	uint64_t dst = gpu_work_dst_bytes(work), src = gpu_work_src_bytes(work);
	uint64_t operand = gpu_work_operand_bytes(work);

	launch->batch.pieces[launch->batch.n_pieces++] = *work;
	insert(&launch->writes, work->dst, work->dst + dst);
	if (work->also)
		insert(&launch->also, work->also, work->also + dst);
	/* Bytes that are also written need no entry among the reads. */
	if (work->src != work->dst || src != dst)
		insert(&launch->reads, work->src, work->src + src);
	if (operand && work->operand != work->dst)
		insert(&launch->reads, work->operand, work->operand + operand);
}

static uint64_t wanted_blocks(const struct gpu_work *work)
{
	uint64_t dst = gpu_work_dst_bytes(work), src = gpu_work_src_bytes(work);
	uint64_t longer = dst > src ? dst : src;

	/* ENCODE of int8: a thread handles a whole block of the wire format in one iteration. */
	if (work->action == GPU_ENCODE && work->wire == FRL_WIRE_INT8)
		longer = src / (4 * FRL_WIRE_BLOCK) * 16;
	return longer ? (longer - 1) / BLOCK_BYTES + 1 : 1;
}

void launch_deal(struct launch *launch, uint32_t max_blocks)
{
	struct gpu_batch_many *batch = &launch->batch;
	uint64_t sum = 0;
	uint32_t first = 0;

	for (uint32_t i = 0; i < batch->n_pieces; i++)
		sum += wanted_blocks(&batch->pieces[i]);
	for (uint32_t i = 0; i < batch->n_pieces; i++) {
		uint64_t n = wanted_blocks(&batch->pieces[i]);

		/* Every piece has one block. Distribute the remaining blocks in proportion. */
		if (sum > max_blocks)
			n = 1 +
				(double)(n - 1) / (double)sum *
					(max_blocks > batch->n_pieces ? max_blocks - batch->n_pieces
								      : 0);
		batch->first_block[i] = (uint16_t)first;
		first += (uint32_t)n;
	}
	batch->first_block[batch->n_pieces] = (uint16_t)first;
	batch->n_blocks = first;
}
