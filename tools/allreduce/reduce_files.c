/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduces the tensors of one file per rank. The data of a file is contiguous, so a bucket is a
 * range of a private copy of it. Small tensors share an allreduce, large ones are split, and
 * nothing is packed. The result replaces the copy.
 */
#include "tools/allreduce/allreduce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/outfile.h"

enum { MAX_IN_FLIGHT = 8 };

struct gradients {
	const struct options *options;
	struct safetensors *input;
	void *buffer; /* input->data_size bytes; NULL if that is 0 */
};

/* Finds the library's type for a type of safetensors. Returns false if there is none. */
static bool find_dtype(const char *name, enum frl_dtype *ret_dtype)
{
	static const char *const names[FRL_DTYPES] = {
		[FRL_INT8] = "I8",
		[FRL_UINT8] = "U8",
		[FRL_INT32] = "I32",
		[FRL_UINT32] = "U32",
		[FRL_INT64] = "I64",
		[FRL_UINT64] = "U64",
		[FRL_FLOAT16] = "F16",
		[FRL_FLOAT32] = "F32",
		[FRL_FLOAT64] = "F64",
		[FRL_BFLOAT16] = "BF16",
		[FRL_FLOAT8_E4M3] = "F8_E4M3",
		[FRL_FLOAT8_E5M2] = "F8_E5M2",
	};

	for (int i = 0; i < FRL_DTYPES; i++) {
		if (strcmp(names[i], name) != 0)
			continue;
		*ret_dtype = (enum frl_dtype)i;
		return true;
	}
	return false;
}

enum frl_dtype input_dtype(const struct safetensors *input)
{
	enum frl_dtype dtype = FRL_FLOAT32; /* any type, if there are no tensors */

	if (input->n_tensors > 0)
		find_dtype(input->tensors[0].dtype, &dtype);
	return dtype;
}

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
		enum frl_dtype dtype;

		if (!find_dtype(t->dtype, &dtype))
			say("%s: tensor '%.100s': dtype is %s, which cannot be reduced", path,
				t->name, t->dtype);
		else if (dtype != input_dtype(file))
			say("%s: tensor '%.100s': dtype is %s, that of '%.100s' is %s; all of a "
			    "file must have one",
				path, t->name, t->dtype, file->tensors[0].name,
				file->tensors[0].dtype);
		else
			continue;
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

/* Starts the buckets in order. Once MAX_IN_FLIGHT are in flight, waits for the oldest. */
static int run_buckets(struct session *session, const struct gradients *g, struct report *report)
{
	struct frl_request *requests[MAX_IN_FLIGHT];
	size_t size = g->input->data_size, bucket = g->options->bucket_bytes;
	size_t n = size / bucket + (size % bucket != 0), started = 0, done = 0;
	enum frl_dtype dtype = input_dtype(g->input);
	int rc = 0;

	while (done < n && !rc) {
		if (started < n && started - done < MAX_IN_FLIGHT) {
			char *at = (char *)g->buffer + started * bucket;
			size_t left = size - started * bucket;

			rc = frl_allreduce_start(session->comm, at, at,
				(left < bucket ? left : bucket) / frl_dtype_size(dtype), dtype,
				g->options->op, &requests[started % MAX_IN_FLIGHT]);
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

	session_stats(session, &before);
	start = now_ns();
	if (!rc)
		rc = run_buckets(session, g, report);
	report->seconds = (double)(now_ns() - start) * 1e-9;
	if (rc) {
		say_failure(rc, "allreduce failed");
		return rc;
	}
	session_stats(session, &after);
	report->packets = after.tx_packets - before.tx_packets;
	report->retransmits = after.retransmits - before.retransmits;
	report->timeouts = after.timeouts - before.timeouts;
	return 0;
}

/* FNV-1a by words. */
static uint64_t digest_data(const uint8_t *bytes, size_t size)
{
	uint64_t digest = 0xcbf29ce484222325u;
	uint32_t word;

	for (; size >= sizeof(word); size -= sizeof(word), bytes += sizeof(word)) {
		memcpy(&word, bytes, sizeof(word));
		digest = (digest ^ word) * 0x100000001b3u;
	}
	for (; size > 0; size--)
		digest = (digest ^ *bytes++) * 0x100000001b3u;
	return digest;
}

static void fill_report(
	const struct session *session, const struct gradients *g, struct report *report)
{
	report->ok = true;
	report->tensors = g->input->n_tensors;
	report->bytes = g->input->data_size;
	report->dtype = input_dtype(g->input);
	report->elements = g->input->data_size / frl_dtype_size(report->dtype);
	memcpy(report->port, session->attr.port, sizeof(report->port));
	report->port[sizeof(report->port) - 1] = '\0';
	report->path_mtu = session->attr.path_mtu;
	report->local_fabric = session->attr.local_fabric;
	report->digest = digest_data(g->buffer, g->input->data_size);
}

static int prepare(const struct session *session, const struct gradients *g, struct outfile *output)
{
	char *path = path_of_rank(g->options->output, session->rank);
	struct safetensors_error error;
	int rc = path ? make_folders(path) : -ENOMEM;

	if (rc) {
		say("cannot make the folder of %s: %s", g->options->output, strerror(-rc));
	} else {
		rc = safetensors_prepare(output, path, g->input, g->buffer, &error);
		if (rc)
			say("%s", error.text);
	}
	free(path);
	return rc;
}

/*
 * Returns 0 if all ranks pass 0, and otherwise a failure on all ranks. A rank that failed has
 * printed the reason.
 */
static int agree_on_success(struct session *session, int mine)
{
	struct frl_bootstrap *bootstrap = &session->bootstrap;
	uint8_t failed = mine != 0, all[MAX_RANKS];
	int rc = bootstrap->allgather(bootstrap->ctx, &failed, sizeof(failed), all);

	if (rc)
		say_failure(rc, "cannot learn whether the other ranks have their outputs");
	for (int r = 0; r < session->options->ranks && !rc; r++)
		rc = all[r] ? -ECANCELED : 0;
	return mine ? mine : rc;
}

/* Renames the output once all ranks have written theirs under temporary names. */
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
		say("cannot write the output %s: %s", g->options->output, strerror(-rc));
	return rc;
}

/* Exchanges the reports. Writes outputs only if all ranks succeeded. */
static int conclude(struct session *session, const struct gradients *g, const struct report *mine,
	struct report ret_reports[])
{
	int rc = session->bootstrap.allgather(
		session->bootstrap.ctx, mine, sizeof(*mine), ret_reports);

	if (rc) {
		say_failure(rc, "cannot compare the results with the other ranks");
		return rc;
	}
	if (g->options->output && all_well(g->options, ret_reports))
		rc = save(session, g);
	return rc;
}

int reduce_files(
	const struct options *options, struct session *session, struct report ret_reports[])
{
	struct gradients g = { .options = options };
	struct report mine = { 0 };
	int rc = gradients_load(&g, options->input, session->rank);

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
	session_disconnect(session); /* before the buffer is freed; frees the bootstrap */
	if (!rc && options->check)
		rc = verify_result(options, g.input, g.buffer, &mine);
	if (!rc)
		rc = conclude(session, &g, &mine, ret_reports);
	gradients_free(&g);
	return rc;
}
