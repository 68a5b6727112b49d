/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * safetensors files: a JSON header that describes tensors, followed by their data.
 *
 * The reader does not trust the file. In a file that was opened without an error all tensors are
 * within the data, touch each other without gap or overlap, and have the size of their shape. The
 * reader never guesses and never repairs. It reads data on request: if the file was truncated after
 * opening, the read fails. A mapping could not report this. Any thread, one at a time per file.
 *
 * Source: https://github.com/huggingface/safetensors, "Format".
 */
#ifndef FERRULE_TOOLS_ALLREDUCE_SAFETENSORS_H
#define FERRULE_TOOLS_ALLREDUCE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "tools/common/outfile.h"

struct json_t;

/* One sentence that names the file, the tensor (if there is one), and the reason. */
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

/*
 * Opens a file. Returns 0, or a negative errno with the reason in `error`: -EINVAL for a malformed
 * file.
 */
int safetensors_open(
	const char *path, struct safetensors **ret_file, struct safetensors_error *error);

/* Reads `size` bytes of the data at `offset`. Returns 0 or a negative errno: -EINVAL at the end. */
int safetensors_read(const struct safetensors *file, uint64_t offset, void *bytes, size_t size,
	struct safetensors_error *error);

/* NULL is fine. */
void safetensors_close(struct safetensors *file);

/* Finds a tensor by name. Returns NULL if there is none. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name);

/* Returns a string of __metadata__, or NULL. */
const char *safetensors_metadata(const struct safetensors *file, const char *key);

/* Writes "F32 [256, 64]", truncated to `size` bytes. */
void safetensors_describe(const struct safetensors_tensor *tensor, char *text, size_t size);

/*
 * Prepares a file (outfile.h) with the names, shapes, order and metadata of `like`, and
 * like->data_size bytes of `data`. Returns 0 or a negative errno.
 */
int safetensors_prepare(struct outfile *file, const char *path, const struct safetensors *like,
	const void *data, struct safetensors_error *error);

/* Prepares and commits a file: it is written completely or not at all. */
int safetensors_write(const char *path, const struct safetensors *like, const void *data,
	struct safetensors_error *error);

#endif
