/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks that all ranks have tensors of the same names, types and shapes, in the same order. The
 * ranks first compare one digest. If it differs, they search for the first tensor that differs, so
 * that the error can name it. All ranks take the same steps, because all see the same data.
 */
#include "tools/allreduce/allreduce.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GATHER = 1 << 20 }; /* the most bytes of one rank in an allgather of a bootstrap */

struct summary {
	uint64_t digest;
	uint64_t n_tensors;
};

struct description {
	char path[200];
	char tensor[200];
};

/* FNV-1a: detects accidental differences, not attacks. */
static uint64_t digest_bytes(uint64_t digest, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;

	for (size_t i = 0; i < size; i++)
		digest = (digest ^ at[i]) * 0x100000001b3u;
	return digest;
}

static uint64_t digest_tensor(const struct safetensors_tensor *t)
{
	uint64_t digest = 0xcbf29ce484222325u;

	digest = digest_bytes(digest, t->name, strlen(t->name) + 1);
	digest = digest_bytes(digest, t->dtype, strlen(t->dtype) + 1);
	return digest_bytes(digest, t->shape, t->n_dims * sizeof(t->shape[0]));
}

static int gather(struct session *session, const void *mine, size_t size, void *all)
{
	int rc = session->bootstrap.allgather(session->bootstrap.ctx, mine, size, all);

	if (rc)
		say_failure(rc, "cannot compare the tensors with the other ranks");
	return rc;
}

/* Finds the first tensor whose digest differs between ranks; n_tensors if there is none. */
static int first_difference(
	struct session *session, const uint64_t digests[], size_t n_tensors, size_t *ret_index)
{
	size_t shown = n_tensors < MAX_GATHER / sizeof(uint64_t) ? n_tensors
								 : MAX_GATHER / sizeof(uint64_t);
	size_t ranks = (size_t)session->options->ranks, index = shown;
	uint64_t *all = malloc(ranks * shown * sizeof(*all) + 1);
	int rc = all ? gather(session, digests, shown * sizeof(*all), all) : -ENOMEM;

	for (size_t r = 1; !rc && r < ranks; r++)
		for (size_t i = 0; i < index; i++)
			if (all[r * shown + i] != all[i])
				index = i;
	free(all);
	if (!rc)
		*ret_index = index;
	return rc;
}

static void describe(const struct safetensors *input, size_t index, struct description *d)
{
	const struct safetensors_tensor *t;
	char shape[120];

	memset(d, 0, sizeof(*d));
	snprintf(d->path, sizeof(d->path), "%s", input->path);
	if (index >= input->n_tensors) {
		snprintf(d->tensor, sizeof(d->tensor), "no tensor");
		return;
	}
	t = &input->tensors[index];
	safetensors_describe(t, shape, sizeof(shape));
	snprintf(d->tensor, sizeof(d->tensor), "tensor '%.70s' %s", t->name, shape);
}

static int report_difference(struct session *session, const struct safetensors *input, size_t index)
{
	struct description mine, all[MAX_RANKS];
	int rc;

	describe(input, index, &mine);
	rc = gather(session, &mine, sizeof(mine), all);
	/* Local ranks share one terminal, so only rank 0 prints the difference. */
	if (rc || (session->options->rank < 0 && session->rank != 0))
		return rc ? rc : -EINVAL;
	for (int r = 0; r < session->options->ranks; r++) {
		all[r].path[sizeof(all[r].path) - 1] =
			'\0'; /* the text comes from another process */
		all[r].tensor[sizeof(all[r].tensor) - 1] = '\0';
	}
	for (int r = 1; r < session->options->ranks; r++) {
		if (strcmp(all[r].tensor, all[0].tensor) == 0)
			continue;
		say("the ranks hold different tensors: in place %zu, rank %d (%s) has %s where "
		    "rank 0 (%s) has %s",
			index, r, all[r].path, all[r].tensor, all[0].path, all[0].tensor);
		return -EINVAL;
	}
	say("the ranks hold different tensors, from place %zu on", index);
	return -EINVAL;
}

int agree_on_tensors(struct session *session, const struct safetensors *input)
{
	struct summary mine = { .n_tensors = input->n_tensors }, all[MAX_RANKS];
	uint64_t *digests = malloc((input->n_tensors + 1) * sizeof(*digests));
	size_t common = input->n_tensors, index;
	bool same = true;
	int rc;

	if (!digests) {
		say("no memory");
		return -ENOMEM;
	}
	for (size_t i = 0; i < input->n_tensors; i++)
		digests[i] = digest_tensor(&input->tensors[i]);
	mine.digest = digest_bytes(
		0xcbf29ce484222325u, digests, input->n_tensors * sizeof(*digests));
	rc = gather(session, &mine, sizeof(mine), all);
	for (int r = 0; r < session->options->ranks && !rc; r++) {
		same = same && memcmp(&all[r], &all[0], sizeof(all[r])) == 0;
		common = all[r].n_tensors < common ? all[r].n_tensors : common;
	}
	/* If one file has fewer tensors, the place after its last one is the first difference. */
	index = common;
	if (!rc && !same && common > 0)
		rc = first_difference(session, digests, common, &index);
	if (!rc && !same)
		rc = report_difference(session, input, index);
	free(digests);
	return rc;
}
