/* SPDX-License-Identifier: BSD-3-Clause */
/* ferrule-bench: the contents of the picture of --plot: this run, and earlier ones. */
#include "tools/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>

static void describe_place(const struct bench *b, char *text, size_t size)
{
	const struct session *s = b->session;
	int used = snprintf(
		text, size, ", %s", s->attr.local_fabric ? "local fabric" : "Ethernet port");

	if (s->n_devices > 1 && used > 0 && (size_t)used < size)
		snprintf(text + used, size - (size_t)used, ", %d rails", s->n_devices);
}

int bench_compare_check(const struct bench_options *o)
{
	for (int i = 0; i < o->n_compared; i++) {
		struct bench_results results;
		int rc = bench_load(o->compared[i], &results);

		if (rc)
			return rc;
		free(results.rows);
	}
	return 0;
}

int bench_compare(const struct bench_options *o, const struct bench *b)
{
	struct bench_results sets[1 + BENCH_COMPARED];
	char where[64] = "";
	int n = 0, first, rc = 0;

	if (b) {
		sets[n++] = (struct bench_results){ .name = o->n_compared ? "this run" : "",
			.rows = b->rows,
			.n_rows = b->n_rows,
			.ranks = o->job.ranks };
		describe_place(b, where, sizeof(where));
	}
	first = n;
	for (int i = 0; i < o->n_compared && !rc; i++) {
		rc = bench_load(o->compared[i], &sets[n]);
		n += rc == 0;
	}
	if (!rc)
		rc = bench_plot(sets, n, o->n_compared ? "" : where, o->plot);
	for (int i = first; i < n; i++)
		free(sets[i].rows);
	return rc;
}
