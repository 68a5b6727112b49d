/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduces the tensors of one file a rank. The data of a file is contiguous, so a bucket is a range
 * of a private copy of it: small tensors share one allreduce and large ones are split, and nothing
 * is packed or unpacked. The result replaces the copy.
 */
#include "examples/allreduce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "examples/outfile.h"

enum { MAX_IN_FLIGHT = 8 };

struct gradients {
	struct safetensors *input;
	void *buffer; /* input->data_size bytes, NULL for none */
};

int input_open(const char *path, struct safetensors **ret_file)
{
	struct safetensors_error error;
	struct safetensors *file;
	int rc = safetensors_open(path, &file, &error);

	if (rc) {
		say("%s", error.text);
		return rc;
	}
	for (size_t i = 0; i < file->n_tensors; i++) {
		const struct safetensors_tensor *t = &file->tensors[i];

		if (strcmp(t->dtype, "F32") == 0)
			continue;
		say("%s: tensor '%.100s': dtype is %s, only F32 can be reduced", path, t->name,
			t->dtype);
		safetensors_close(file);
		return -ENOTSUP;
	}
	*ret_file = file;
	return 0;
}

static int gradients_load(struct gradients *g, const char *pattern, int rank)
{
	char *path = path_of_rank(pattern, rank);
	int rc = path ? input_open(path, &g->input) : -ENOMEM;
	struct safetensors_error error;

	free(path);
	if (rc || g->input->data_size == 0)
		return rc;
	g->buffer = frl_mem_alloc(g->input->data_size);
	if (!g->buffer) {
		say_failure(-ENOMEM, "no memory for %zu bytes of tensors", g->input->data_size);
		return -ENOMEM;
	}
	rc = safetensors_read(g->input, 0, g->buffer, g->input->data_size, &error);
	if (rc)
		say("%s", error.text);
	return rc;
}

static void gradients_free(struct gradients *g)
{
	if (g->buffer)
		frl_mem_free(g->buffer, g->input->data_size);
	safetensors_close(g->input);
}

/* Starts bucket after bucket and waits for the oldest once MAX_IN_FLIGHT of them are running. */
static int run_buckets(struct session *session, const struct gradients *g, struct report *report)
{
	struct frl_request *requests[MAX_IN_FLIGHT];
	size_t size = g->input->data_size, bucket = session->options->bucket_bytes;
	size_t n = size / bucket + (size % bucket != 0), started = 0, done = 0;
	int rc = 0;

	while (done < n && !rc) {
		if (started < n && started - done < MAX_IN_FLIGHT) {
			char *at = (char *)g->buffer + started * bucket;
			size_t left = size - started * bucket;

			rc = frl_allreduce_start(session->comm, at, at,
				(left < bucket ? left : bucket) / sizeof(float), FRL_FLOAT32,
				FRL_SUM, &requests[started % MAX_IN_FLIGHT]);
			started++;
		} else {
			rc = frl_request_wait(requests[done % MAX_IN_FLIGHT]);
			done++;
		}
	}
	report->buckets = n;
	return rc;
}

static int timed_reduction(
	struct session *session, const struct gradients *g, struct report *report)
{
	struct frl_stats before, after;
	uint64_t start;
	int rc = frl_barrier(session->comm);

	frl_device_stats(session->device, &before);
	start = now_ns();
	if (!rc)
		rc = run_buckets(session, g, report);
	report->seconds = (double)(now_ns() - start) * 1e-9;
	if (rc) {
		say_failure(rc, "allreduce failed");
		return rc;
	}
	frl_device_stats(session->device, &after);
	report->packets = after.tx_packets - before.tx_packets;
	report->retransmits = after.retransmits - before.retransmits;
	report->timeouts = after.timeouts - before.timeouts;
	return 0;
}

/* FNV-1a by words: equal results have equal digests, whatever the ranks compare. */
static uint64_t digest_words(const uint32_t words[], size_t n)
{
	uint64_t digest = 0xcbf29ce484222325u;

	for (size_t i = 0; i < n; i++)
		digest = (digest ^ words[i]) * 0x100000001b3u;
	return digest;
}

static void fill_report(
	const struct session *session, const struct gradients *g, struct report *report)
{
	report->ok = true;
	report->tensors = g->input->n_tensors;
	report->bytes = g->input->data_size;
	report->elements = g->input->data_size / sizeof(float);
	memcpy(report->port, session->attr.port, sizeof(report->port));
	report->port[sizeof(report->port) - 1] = '\0';
	report->path_mtu = session->attr.path_mtu;
	report->local_fabric = session->attr.local_fabric;
	report->digest = digest_words(g->buffer, report->elements);
}

static int prepare(const struct session *session, const struct gradients *g, struct outfile *output)
{
	char *path = path_of_rank(session->options->output, session->rank);
	struct safetensors_error error;
	int rc = path ? make_folders(path) : -ENOMEM;

	if (rc) {
		say("cannot make the folder of %s: %s", session->options->output, strerror(-rc));
	} else {
		rc = safetensors_prepare(output, path, g->input, g->buffer, &error);
		if (rc)
			say("%s", error.text);
	}
	free(path);
	return rc;
}

/* 0 when all ranks say 0, and everybody comes to the same; a rank that failed has said why. */
static int agree_on_success(struct session *session, int mine)
{
	struct frl_bootstrap *bootstrap = &session->bootstrap;
	uint8_t failed = mine != 0, all[MAX_RANKS];
	int rc = bootstrap->allgather(bootstrap->ctx, &failed, sizeof(failed), all);

	if (rc)
		say_failure(rc, "asking the other ranks for their output");
	for (int r = 0; r < session->options->ranks && !rc; r++)
		rc = all[r] ? -ECANCELED : 0;
	return mine ? mine : rc;
}

/* All outputs lie ready under temporary names before the first takes its own. */
static int save(struct session *session, const struct gradients *g)
{
	struct outfile output = { 0 };
	int rc = agree_on_success(session, prepare(session, g, &output));

	if (rc) {
		outfile_discard(&output);
		return rc;
	}
	rc = outfile_commit(&output);
	if (rc)
		say("cannot write the output %s: %s", session->options->output, strerror(-rc));
	return rc;
}

/* Everybody learns how everybody fared; only then, and only if all is well, output is written. */
static int conclude(struct session *session, const struct gradients *g, const struct report *mine,
	struct report ret_reports[])
{
	int rc = session->bootstrap.allgather(
		session->bootstrap.ctx, mine, sizeof(*mine), ret_reports);

	if (rc) {
		say_failure(rc, "comparing the results with the other ranks");
		return rc;
	}
	if (session->options->output && all_well(session->options, ret_reports))
		rc = save(session, g);
	return rc;
}

int reduce_files(struct session *session, struct report ret_reports[])
{
	struct gradients g = { 0 };
	struct report mine = { 0 };
	int rc = gradients_load(&g, session->options->input, session->rank);

	if (!rc)
		rc = agree_on_tensors(session, g.input);
	if (!rc)
		rc = session_connect(session);
	if (!rc)
		rc = timed_reduction(session, &g, &mine);
	if (!rc)
		fill_report(session, &g, &mine);
	if (rc)
		session_give_up(session);
	session_disconnect(session); /* before the buffer goes, and to get the bootstrap back */
	if (!rc && session->options->check)
		rc = verify_result(session->options, g.input, g.buffer, &mine);
	if (!rc)
		rc = conclude(session, &g, &mine, ret_reports);
	gradients_free(&g);
	return rc;
}
