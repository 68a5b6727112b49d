/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/allreduce/allreduce.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/common/number.h"

/* Totals over all ranks. */
struct total {
	uint64_t packets, retransmits, timeouts;
	double seconds, max_error, max_relative;
	bool same;
};

static struct total add_up(const struct options *options, const struct report reports[])
{
	struct total total = { .same = true };

	for (int r = 0; r < options->job.ranks; r++) {
		const struct report *one = &reports[r];

		total.packets += one->packets;
		total.retransmits += one->retransmits;
		total.timeouts += one->timeouts;
		/* The job takes as long as its slowest rank. */
		total.seconds = one->seconds > total.seconds ? one->seconds : total.seconds;
		if (one->max_error > total.max_error)
			total.max_error = one->max_error;
		if (one->max_relative > total.max_relative)
			total.max_relative = one->max_relative;
		total.same = total.same && one->digest == reports[0].digest;
	}
	return total;
}

bool all_well(const struct options *options, const struct report reports[])
{
	bool ok = add_up(options, reports).same;

	for (int r = 0; r < options->job.ranks; r++)
		ok = ok && reports[r].ok;
	return ok;
}

static void print_work(const struct options *options, const struct report *first)
{
	char bytes[16], bucket[16];

	printf("  ranks           %d\n", options->job.ranks);
	printf("  device          %s, path MTU %" PRIu32 "\n",
		first->local_fabric ? "local fabric" : first->port, first->path_mtu);
	if (device_count(&options->job.device) > 1)
		printf("  rails           %d, the first of them as above\n",
			device_count(&options->job.device));
	printf("  tensors         %" PRIu64 " (%" PRIu64 " elements, %s, %s)\n", first->tensors,
		first->elements, frl_dtype_name(first->dtype), frl_op_name(options->op));
	printf("  buckets         %" PRIu64 " of up to %s\n", first->buckets,
		format_bytes(options->bucket_bytes, bucket));
	printf("  bytes           %" PRIu64 " a rank (%s)\n", first->bytes,
		format_bytes(first->bytes, bytes));
}

static void print_speed(
	const struct options *options, const struct report *first, const struct total *total)
{
	double n = options->job.ranks;
	double rate = total->seconds > 0 ? (double)first->bytes / total->seconds / 1e9 : 0;

	printf("  time            %.3f ms (slowest rank)\n", total->seconds * 1e3);
	printf("  algbw           %.3f GB/s (bytes / time)\n", rate);
	printf("  busbw           %.3f GB/s (algbw * 2(n-1)/n)\n", rate * 2 * (n - 1) / n);
	printf("  packets         %" PRIu64 " sent\n", total->packets);
	printf("  retransmitted   %" PRIu64 " (%" PRIu64 " timeouts)\n", total->retransmits,
		total->timeouts);
}

static void print_result(const struct options *options, const struct report *first,
	const struct total *total, bool ok)
{
	if (first->checked) {
		printf("  largest error   %.3g absolute\n", total->max_error);
		printf("                  %.3g of the sum of |inputs|, allowed are %.3g: "
		       "(n-1) * 2^-%d\n",
			total->max_relative, first->bound, number_precision(first->dtype));
		printf("  compared with   %s\n", options->check);
	}
	printf("  same on ranks   %s\n", total->same ? "yes, bit by bit" : "NO");
	if (options->output)
		printf("  written         %s\n", ok ? options->output : "nothing");
	printf("\n%s\n", !ok ? "FAILED" : first->checked ? "OK" : "OK (not compared: no --check)");
}

void print_table(const struct options *options, const struct report reports[])
{
	struct total total = add_up(options, reports);

	printf("allreduce of %s\n\n", options->input);
	print_work(options, &reports[0]);
	print_speed(options, &reports[0], &total);
	print_result(options, &reports[0], &total, all_well(options, reports));
	fflush(stdout);
}
