/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/allreduce/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "tools/common/outfile.h"
#include "tools/common/printable.h"

enum {
	LENGTH_SIZE = 8,        /* bytes of the header length at the start */
	MAX_HEADER = 100000000, /* as in the reference implementation */
	ALIGNMENT = 8,          /* alignment of the data in written files */
	MAX_DIMS = 64,          /* a file with more is damaged */
};

static const char metadata_name[] = "__metadata__";

struct dtype {
	const char *name;
	unsigned bits;
};

static const struct dtype dtypes[] = {
	{ "BOOL", 8 },
	{ "U8", 8 },
	{ "I8", 8 },
	{ "U16", 16 },
	{ "I16", 16 },
	{ "U32", 32 },
	{ "I32", 32 },
	{ "U64", 64 },
	{ "I64", 64 },
	{ "F16", 16 },
	{ "BF16", 16 },
	{ "F32", 32 },
	{ "F64", 64 },
	{ "C64", 64 },
	{ "F8_E4M3", 8 },
	{ "F8_E5M2", 8 },
	{ "F8_E8M0", 8 },
	{ "F6_E2M3", 6 },
	{ "F6_E3M2", 6 },
	{ "F4", 4 },
};

__attribute__((format(printf, 5, 6))) static int fail(struct safetensors_error *error, int err,
	const char *path, const char *tensor, const char *format, ...)
{
	char reason[300];
	va_list args;

	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	if (tensor)
		snprintf(error->text, sizeof(error->text), "%.180s: tensor '%.100s': %s", path,
			tensor, reason);
	else
		snprintf(error->text, sizeof(error->text), "%.280s: %s", path, reason);
	/* Names come from the file and may contain control characters. */
	make_printable(error->text, strlen(error->text));
	return -err;
}

static int open_file(struct safetensors *file, size_t *ret_size, struct safetensors_error *error)
{
	struct stat st;

	/* O_NONBLOCK: open() must not wait for a FIFO, which is refused below. */
	file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (file->fd < 0)
		return fail(error, errno, file->path, NULL, "cannot open it: %s", strerror(errno));
	if (fstat(file->fd, &st))
		return fail(error, errno, file->path, NULL, "cannot read it: %s", strerror(errno));
	if (!S_ISREG(st.st_mode))
		return fail(error, EINVAL, file->path, NULL, "is not a regular file");
	if (st.st_size < LENGTH_SIZE)
		return fail(error, EINVAL, file->path, NULL,
			"truncated: it has %jd bytes and its header length alone needs %d",
			(intmax_t)st.st_size, LENGTH_SIZE);
	*ret_size = (size_t)st.st_size;
	return 0;
}

static int read_at(const struct safetensors *file, uint64_t offset, void *bytes, size_t size,
	struct safetensors_error *error)
{
	char *at = bytes;

	while (size > 0) {
		ssize_t n = pread(file->fd, at, size, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail(error, errno, file->path, NULL, "cannot read it: %s",
				strerror(errno));
		if (n == 0)
			return fail(error, EINVAL, file->path, NULL,
				"truncated while it was read: it ends at byte %" PRIu64, offset);
		at += n;
		size -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

int safetensors_read(const struct safetensors *file, uint64_t offset, void *bytes, size_t size,
	struct safetensors_error *error)
{
	return read_at(file, file->data_start + offset, bytes, size, error);
}

static int parse_header(struct safetensors *file, size_t length, struct safetensors_error *error)
{
	char *text = malloc(length + 1);
	json_error_t json_error;
	int rc;

	if (!text)
		return fail(error, ENOMEM, file->path, NULL, "no memory");
	rc = read_at(file, LENGTH_SIZE, text, length, error);
	if (!rc) {
		file->header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &json_error);
		if (!file->header)
			rc = fail(error, EINVAL, file->path, NULL,
				"its header is not valid JSON: %s", json_error.text);
	}
	free(text);
	if (!rc && !json_is_object(file->header))
		rc = fail(error, EINVAL, file->path, NULL, "its header is not a JSON object");
	return rc;
}

static int load_header(struct safetensors *file, size_t size, struct safetensors_error *error)
{
	size_t rest = size - LENGTH_SIZE;
	uint8_t bytes[LENGTH_SIZE];
	uint64_t length = 0;
	int rc = read_at(file, 0, bytes, sizeof(bytes), error);

	if (rc)
		return rc;
	for (int i = LENGTH_SIZE - 1; i >= 0; i--)
		length = length << 8 | bytes[i];
	if (length > MAX_HEADER)
		return fail(error, EINVAL, file->path, NULL,
			"its header length is %" PRIu64 " bytes, more than the format allows (%d)",
			length, MAX_HEADER);
	if (length > rest)
		return fail(error, EINVAL, file->path, NULL,
			"truncated: its header has %" PRIu64 " bytes, %zu are there", length, rest);
	file->data_start = LENGTH_SIZE + (size_t)length;
	file->data_size = rest - (size_t)length;
	return parse_header(file, (size_t)length, error);
}

static int load_metadata(struct safetensors *file, struct safetensors_error *error)
{
	const char *key;
	json_t *value;

	file->metadata = json_object_get(file->header, metadata_name);
	if (!file->metadata)
		return 0;
	if (!json_is_object(file->metadata))
		return fail(error, EINVAL, file->path, NULL, "%s is not an object", metadata_name);
	json_object_foreach(file->metadata, key, value) if (!json_is_string(value)) return fail(
		error, EINVAL, file->path, NULL, "%s: the value of '%.100s' is not a string",
		metadata_name, key);
	return 0;
}

static bool json_u64(const json_t *value, uint64_t *ret_number)
{
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return false;
	*ret_number = (uint64_t)json_integer_value(value);
	return true;
}

static const struct dtype *find_dtype(const char *name)
{
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
		if (strcmp(dtypes[i].name, name) == 0)
			return &dtypes[i];
	return NULL;
}

static int load_shape(const char *path, struct safetensors_tensor *t, const json_t *shape,
	struct safetensors_error *error)
{
	bool overflow = false;

	if (!json_is_array(shape))
		return fail(error, EINVAL, path, t->name, "has no shape, or one that is no array");
	t->n_dims = json_array_size(shape);
	if (t->n_dims > MAX_DIMS)
		return fail(error, EINVAL, path, t->name, "has %zu dimensions, at most %d are read",
			t->n_dims, MAX_DIMS);
	t->shape = calloc(t->n_dims + 1, sizeof(t->shape[0]));
	if (!t->shape)
		return fail(error, ENOMEM, path, t->name, "no memory");
	t->count = 1;
	for (size_t i = 0; i < t->n_dims; i++) {
		if (!json_u64(json_array_get(shape, i), &t->shape[i]))
			return fail(error, EINVAL, path, t->name,
				"dimension %zu of its shape is not a whole number from 0", i);
		overflow |= __builtin_mul_overflow(t->count, t->shape[i], &t->count);
	}
	if (overflow)
		return fail(error, EINVAL, path, t->name, "its shape overflows 64 bits");
	return 0;
}

static int load_offsets(const struct safetensors *file, struct safetensors_tensor *t,
	const json_t *offsets, struct safetensors_error *error)
{
	if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
		!json_u64(json_array_get(offsets, 0), &t->begin) ||
		!json_u64(json_array_get(offsets, 1), &t->end))
		return fail(error, EINVAL, file->path, t->name,
			"its data_offsets are not two whole numbers from 0");
	if (t->begin > t->end)
		return fail(error, EINVAL, file->path, t->name,
			"its data_offsets are reversed: [%" PRIu64 ", %" PRIu64 "]", t->begin,
			t->end);
	if (t->end > file->data_size)
		return fail(error, EINVAL, file->path, t->name,
			"its data_offsets [%" PRIu64 ", %" PRIu64
			"] are out of range: the file has %zu bytes of data (truncated?)",
			t->begin, t->end, file->data_size);
	return 0;
}

static int load_tensor(const struct safetensors *file, struct safetensors_tensor *t,
	const json_t *entry, struct safetensors_error *error)
{
	const char *name = json_string_value(json_object_get(entry, "dtype"));
	const struct dtype *dtype;
	uint64_t bits;
	int rc;

	if (!json_is_object(entry))
		return fail(error, EINVAL, file->path, t->name, "its header entry is no object");
	if (!name)
		return fail(error, EINVAL, file->path, t->name, "has no dtype, or no string in it");
	dtype = find_dtype(name);
	if (!dtype)
		return fail(error, EINVAL, file->path, t->name, "unknown dtype '%.40s'", name);
	t->dtype = dtype->name;
	rc = load_shape(file->path, t, json_object_get(entry, "shape"), error);
	if (rc)
		return rc;
	rc = load_offsets(file, t, json_object_get(entry, "data_offsets"), error);
	if (rc)
		return rc;
	if (__builtin_mul_overflow(t->count, (uint64_t)dtype->bits, &bits))
		return fail(error, EINVAL, file->path, t->name, "its shape overflows 64 bits");
	if (bits % 8 || bits / 8 != t->end - t->begin)
		return fail(error, EINVAL, file->path, t->name,
			"its data has %" PRIu64 " bytes, dtype and shape say %" PRIu64 "%s",
			t->end - t->begin, bits / 8, bits % 8 ? " and a part" : "");
	return 0;
}

static int compare_tensors(const void *a, const void *b)
{
	const struct safetensors_tensor *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	/* An empty tensor has the offset of its successor and precedes it. */
	if (x->end != y->end)
		return x->end < y->end ? -1 : 1;
	return (x->index > y->index) - (x->index < y->index);
}

/* Checks, after sorting, that each byte of the data belongs to exactly one tensor. */
static int check_cover(const struct safetensors *file, struct safetensors_error *error)
{
	uint64_t at = 0;

	for (size_t i = 0; i < file->n_tensors; i++) {
		const struct safetensors_tensor *t = &file->tensors[i];

		if (t->begin > at)
			return fail(error, EINVAL, file->path, t->name,
				"a gap of %" PRIu64 " bytes lies before it", t->begin - at);
		if (t->begin < at)
			return fail(error, EINVAL, file->path, t->name,
				"its data overlaps that of tensor '%.100s'",
				file->tensors[i - 1].name);
		at = t->end;
	}
	if (at != file->data_size)
		return fail(error, EINVAL, file->path, NULL,
			"%" PRIu64 " bytes after the last tensor belong to none",
			file->data_size - at);
	return 0;
}

static int load_tensors(struct safetensors *file, struct safetensors_error *error)
{
	const char *name;
	json_t *entry;
	int rc;

	file->tensors = calloc(json_object_size(file->header) + 1, sizeof(file->tensors[0]));
	if (!file->tensors)
		return fail(error, ENOMEM, file->path, NULL, "no memory");
	json_object_foreach(file->header, name, entry)
	{
		struct safetensors_tensor *t = &file->tensors[file->n_tensors];

		if (strcmp(name, metadata_name) == 0)
			continue;
		t->name = name;
		t->index = file->n_tensors;
		file->n_tensors++; /* before it is complete, so that close frees its shape */
		rc = load_tensor(file, t, entry, error);
		if (rc)
			return rc;
	}
	qsort(file->tensors, file->n_tensors, sizeof(file->tensors[0]), compare_tensors);
	return check_cover(file, error);
}

int safetensors_open(
	const char *path, struct safetensors **ret_file, struct safetensors_error *error)
{
	struct safetensors *file = calloc(1, sizeof(*file));
	size_t size = 0;
	int rc;

	if (!file || !(file->path = strdup(path))) {
		free(file);
		return fail(error, ENOMEM, path, NULL, "no memory");
	}
	rc = open_file(file, &size, error);
	if (!rc)
		rc = load_header(file, size, error);
	if (!rc)
		rc = load_metadata(file, error);
	if (!rc)
		rc = load_tensors(file, error);
	if (rc) {
		safetensors_close(file);
		return rc;
	}
	*ret_file = file;
	return 0;
}

void safetensors_close(struct safetensors *file)
{
	if (!file)
		return;
	for (size_t i = 0; i < file->n_tensors; i++)
		free(file->tensors[i].shape);
	free(file->tensors);
	json_decref(file->header);
	if (file->fd >= 0)
		close(file->fd);
	free(file->path);
	free(file);
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name)
{
	for (size_t i = 0; i < file->n_tensors; i++)
		if (strcmp(file->tensors[i].name, name) == 0)
			return &file->tensors[i];
	return NULL;
}

const char *safetensors_metadata(const struct safetensors *file, const char *key)
{
	return json_string_value(json_object_get(file->metadata, key));
}

void safetensors_describe(const struct safetensors_tensor *tensor, char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "%s [", tensor->dtype);

	for (size_t i = 0; i < tensor->n_dims && used < size; i++)
		used += (size_t)snprintf(
			text + used, size - used, "%s%" PRIu64, i ? ", " : "", tensor->shape[i]);
	if (used < size)
		snprintf(text + used, size - used, "]");
}

/* Takes ownership of `value`, also on failure. */
static int put(json_t *object, const char *key, json_t *value)
{
	return value && json_object_set_new_nocheck(object, key, value) == 0 ? 0 : -ENOMEM;
}

static json_t *tensor_entry(const struct safetensors_tensor *t)
{
	json_t *entry = json_object(), *shape = json_array();
	int rc = entry && shape ? 0 : -ENOMEM;

	for (size_t i = 0; i < t->n_dims && !rc; i++)
		rc = json_array_append_new(shape, json_integer((json_int_t)t->shape[i]));
	if (!rc)
		rc = put(entry, "dtype", json_string(t->dtype));
	if (!rc)
		rc = put(entry, "shape", json_incref(shape));
	if (!rc)
		rc = put(entry, "data_offsets",
			json_pack("[I, I]", (json_int_t)t->begin, (json_int_t)t->end));
	json_decref(shape);
	if (rc) {
		json_decref(entry);
		return NULL;
	}
	return entry;
}

/* Creates the header's text, which the caller frees. jansson keeps the order of the keys. */
static char *header_text(const struct safetensors *like)
{
	json_t *header = json_object();
	char *text = NULL;
	int rc = header ? 0 : -ENOMEM;

	if (!rc && like->metadata)
		rc = put(header, metadata_name, json_incref(like->metadata));
	for (size_t i = 0; i < like->n_tensors && !rc; i++)
		rc = put(header, like->tensors[i].name, tensor_entry(&like->tensors[i]));
	if (!rc)
		text = json_dumps(header, JSON_COMPACT);
	json_decref(header);
	return text;
}

int safetensors_prepare(struct outfile *file, const char *path, const struct safetensors *like,
	const void *data, struct safetensors_error *error)
{
	static const char spaces[ALIGNMENT] = "        ";
	char *text = header_text(like);
	uint8_t length[LENGTH_SIZE];
	size_t text_size, padding;
	int rc;

	if (!text)
		return fail(error, ENOMEM, path, NULL, "no memory");
	text_size = strlen(text);
	padding = -text_size % ALIGNMENT;
	for (int i = 0; i < LENGTH_SIZE; i++)
		length[i] = (uint8_t)((text_size + padding) >> 8 * i);
	rc = outfile_prepare(file, path,
		(const struct outfile_part[]){
			{ length, sizeof(length) },
			{ text, text_size },
			{ spaces, padding },
			{ data, like->data_size },
		},
		4);
	free(text);
	return rc ? fail(error, -rc, path, NULL, "cannot write it: %s", strerror(-rc)) : 0;
}

int safetensors_write(const char *path, const struct safetensors *like, const void *data,
	struct safetensors_error *error)
{
	struct outfile file;
	int rc = safetensors_prepare(&file, path, like, data, error);

	if (rc)
		return rc;
	rc = outfile_commit(&file);
	return rc ? fail(error, -rc, path, NULL, "cannot write it: %s", strerror(-rc)) : 0;
}
