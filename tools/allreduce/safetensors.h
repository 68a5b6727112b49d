/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * safetensors files: a JSON header that names tensors, then their bytes.
 *
 * The reader trusts nothing in the file: one that opens has tensors that lie within the data, touch
 * each other without gap or overlap, and have the size that their shape says. It never guesses and
 * never repairs. The data is read when it is asked for; a file that was cut off meanwhile is an
 * error then, which is why nothing is mapped. Any thread, one at a time for one file.
 *
 * Source: https://github.com/huggingface/safetensors, "Format".
 */
#ifndef FERRULE_TOOLS_ALLREDUCE_SAFETENSORS_H
#define FERRULE_TOOLS_ALLREDUCE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "tools/common/outfile.h"

struct json_t;

/* One sentence that names the file, the tensor where there is one, and the reason. */
struct safetensors_error {
	char text[600];
};

struct safetensors_tensor {
	const char *name;
	const char *dtype; /* "F32", "F64", ... */
	uint64_t *shape;
	size_t n_dims;
	uint64_t count;      /* elements */
	uint64_t begin, end; /* bytes, in the data */
	size_t index;        /* in the header */
};

struct safetensors {
	char *path;
	struct safetensors_tensor *tensors; /* in the order of their data */
	size_t n_tensors;
	int fd;
	size_t data_start; /* in the file */
	size_t data_size;
	struct json_t *header; /* owns the names */
	struct json_t *metadata;
};

/* 0, or a negative errno with the reason in `error`: -EINVAL for a malformed file. */
int safetensors_open(
	const char *path, struct safetensors **ret_file, struct safetensors_error *error);

/* Reads `size` bytes of the data, from `offset` on. 0, or a negative errno: -EINVAL at an end. */
int safetensors_read(const struct safetensors *file, uint64_t offset, void *bytes, size_t size,
	struct safetensors_error *error);

/* NULL is fine. */
void safetensors_close(struct safetensors *file);

/* NULL when there is none of that name. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name);

/* A string of __metadata__, or NULL. */
const char *safetensors_metadata(const struct safetensors *file, const char *key);

/* "F32 [256, 64]", cut off where `size` ends. */
void safetensors_describe(const struct safetensors_tensor *tensor, char *text, size_t size);

/*
 * Prepares a file (see outfile.h) with the names, shapes, order and metadata of `like` and its own
 * `data`, which has like->data_size bytes. 0 or a negative errno.
 */
int safetensors_prepare(struct outfile *file, const char *path, const struct safetensors *like,
	const void *data, struct safetensors_error *error);

/* Prepares and commits it: the file appears whole or not at all. */
int safetensors_write(const char *path, const struct safetensors *like, const void *data,
	struct safetensors_error *error);

#endif
