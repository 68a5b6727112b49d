/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpudirect/launch.h"

enum {
	/* What a thread handles in one turn, times the threads of a block: less would leave some
	 * idle. */
	BLOCK_BYTES = 16 * GPU_BLOCK_THREADS,
	/* How many ranges a check goes through: as many as GPU_BATCH_PIECES pieces may have. A
	 * piece that would take longer begins a new launch, which costs less than the checks of
	 * all that would follow it. */
	RANGES_CHECKED = 2 * GPU_BATCH_PIECES,
	/* How many of the last ranges may go on: the packets of so many messages, in turns. */
	RANGES_OPEN = 16,
};

static void clear(struct launch_ranges *ranges)
{
	ranges->n = 0;
	ranges->low = UINT64_MAX;
	ranges->high = 0;
}

/* True as well where it would take long to find out. */
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
	/* What is written as well counts as that. */
	if (work->src != work->dst || src != dst)
		insert(&launch->reads, work->src, work->src + src);
	if (operand && work->operand != work->dst)
		insert(&launch->reads, work->operand, work->operand + operand);
}

static uint64_t wanted_blocks(const struct gpu_work *work)
{
	uint64_t dst = gpu_work_dst_bytes(work), src = gpu_work_src_bytes(work);
	uint64_t longer = dst > src ? dst : src;

	/* There a thread takes a block of the wire's, of float32, in one turn. */
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

		/* Each gets its part of what is left beyond the one that all have. */
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
