/* SPDX-License-Identifier: BSD-3-Clause */
/* ferrule-train: output of rank 0, as text and as JSON. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "tools/train/train.h"

static double seconds(uint64_t ns)
{
	return (double)ns * 1e-9;
}

static size_t count_buckets(const struct training *t)
{
	size_t bytes = t->n_parameters * sizeof(float), bucket = (size_t)t->options->bucket_bytes;

	return (bytes + bucket - 1) / bucket;
}

static double accuracy(const struct training *t, const struct train_epoch *epoch)
{
	return (double)epoch->correct / (double)t->data->test.count;
}

void train_print_heading(const struct training *t)
{
	const struct train_options *o = t->options;
	char bucket[16];

	if (o->json || o->quiet)
		return;
	printf("%s: %zu images to learn from, %zu to test with\n", o->data, t->data->train.count,
		t->data->test.count);
	for (size_t i = 0; i <= o->shape.n_layers; i++)
		printf("%s%zu", i == 0 ? "network " : "-", o->shape.widths[i]);
	printf(", %zu parameters; %d rank%s, batches of %" PRIu64 ", seed %" PRIu64 "\n",
		t->n_parameters, (int)o->ranks, o->ranks == 1 ? "" : "s", o->batch, o->seed);
	printf("gradients in %zu buckets of up to %s, reduced %s the backward pass\n\n",
		count_buckets(t), format_bytes(o->bucket_bytes, bucket),
		o->overlap ? "during" : "after");
	fflush(stdout);
}

void train_print_epoch(const struct training *t, uint64_t epoch)
{
	if (t->options->json || t->options->quiet)
		return;
	printf("epoch %3d   loss %-11.6g   accuracy %6.2f %%\n", (int)epoch + 1,
		t->epochs[epoch].loss, 100 * accuracy(t, &t->epochs[epoch]));
	fflush(stdout);
}

/* Returns the largest value of each column. The columns may be of different ranks. */
static struct train_report largest(const struct training *t)
{
	struct train_report most = { 0 };

	for (uint64_t r = 0; r < t->options->ranks; r++) {
		const uint64_t from[] = { t->reports[r].total_ns, t->reports[r].times.compute_ns,
			t->reports[r].times.hidden_ns, t->reports[r].times.drive_ns,
			t->reports[r].times.wait_ns };
		uint64_t *const to[] = { &most.total_ns, &most.times.compute_ns,
			&most.times.hidden_ns, &most.times.drive_ns, &most.times.wait_ns };

		for (size_t i = 0; i < sizeof(from) / sizeof(from[0]); i++)
			*to[i] = from[i] > *to[i] ? from[i] : *to[i];
	}
	return most;
}

static void print_time(const char *name, uint64_t first, uint64_t most)
{
	printf("  %-36s %9.3f %9.3f\n", name, seconds(first), seconds(most));
}

static void print_table(const struct training *t)
{
	const struct train_report *first = &t->reports[0], most = largest(t);
	const struct train_epoch *last = &t->epochs[t->options->epochs - 1];

	if (!t->options->quiet)
		printf("\n");
	printf("  %-36s %9s %9s\n", "seconds", "rank 0", "largest");
	print_time("in all, with testing", first->total_ns, most.total_ns);
	print_time("computing", first->times.compute_ns, most.times.compute_ns);
	print_time("  of it with communication in flight", first->times.hidden_ns,
		most.times.hidden_ns);
	print_time(
		"starting and driving communication", first->times.drive_ns, most.times.drive_ns);
	print_time("waiting for communication", first->times.wait_ns, most.times.wait_ns);
	printf("\n  loss            %.6g in the last epoch\n", last->loss);
	printf("  accuracy        %.2f %% (%" PRIu64 " of %zu test images)\n",
		100 * accuracy(t, last), last->correct, t->data->test.count);
	printf("  same on ranks   %s\n", train_ranks_agree(t) ? "yes, bit by bit" : "NO");
	printf("\n%s\n", train_ranks_agree(t) ? "OK" : "FAILED");
}

static json_t *json_times(const struct train_report *report)
{
	return json_pack("{s:f, s:f, s:f, s:f, s:f}", "total", seconds(report->total_ns), "compute",
		seconds(report->times.compute_ns), "hidden", seconds(report->times.hidden_ns),
		"drive", seconds(report->times.drive_ns), "wait", seconds(report->times.wait_ns));
}

static json_t *json_epochs(const struct training *t)
{
	json_t *epochs = json_array();

	for (uint64_t i = 0; i < t->options->epochs; i++) {
		json_t *one = json_pack("{s:f, s:f}", "loss", t->epochs[i].loss, "accuracy",
			accuracy(t, &t->epochs[i]));

		if (json_array_append_new(epochs, one)) {
			json_decref(epochs);
			return NULL;
		}
	}
	return epochs;
}

static json_t *json_options(const struct training *t)
{
	const struct train_options *o = t->options;
	json_t *widths = json_array();
	bool ok = widths != NULL;

	for (size_t i = 0; i <= o->shape.n_layers && ok; i++)
		ok = json_array_append_new(widths, json_integer((json_int_t)o->shape.widths[i])) ==
			0;
	if (!ok) {
		json_decref(widths);
		return NULL;
	}
	return json_pack("{s:s, s:i, s:o, s:I, s:I, s:f, s:I, s:I, s:b}", "data", o->data, "ranks",
		(int)o->ranks, "widths", widths, "epochs", (json_int_t)o->epochs, "batch",
		(json_int_t)o->batch, "lr", o->rate, "seed", (json_int_t)o->seed, "bucket",
		(json_int_t)o->bucket_bytes, "overlap", (int)o->overlap);
}

static int print_json(const struct training *t)
{
	const struct train_epoch *last = &t->epochs[t->options->epochs - 1];
	const struct train_report most = largest(t);
	char digest[20];
	json_t *root;
	int rc = -ENOMEM;

	snprintf(digest, sizeof(digest), "%016" PRIx64, t->reports[0].digest);
	root = json_pack("{s:s, s:o, s:I, s:I, s:f, s:f, s:b, s:s, s:{s:o, s:o}, s:o}", "version",
		FERRULE_VERSION, "options", json_options(t), "parameters",
		(json_int_t)t->n_parameters, "buckets", (json_int_t)count_buckets(t), "loss",
		last->loss, "accuracy", accuracy(t, last), "same_on_ranks",
		(int)train_ranks_agree(t), "digest", digest, "seconds", "rank0",
		json_times(&t->reports[0]), "largest", json_times(&most), "history",
		json_epochs(t));
	if (root && json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) == 0)
		rc = 0;
	printf("\n");
	json_decref(root);
	return rc;
}

int train_print_result(const struct training *t)
{
	int rc = 0;

	if (t->options->json)
		rc = print_json(t);
	else
		print_table(t);
	fflush(stdout);
	return rc;
}
