/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/train/data.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/random.h"

enum {
	COLUMNS = IMAGE_PIXELS + 1,
	MAX_LINE = 1024,
	MAX_IMAGES = 1000000, /* limits the memory for a file without an end */
	TEST_EVERY = 5,
};

struct reader {
	const char *path;
	FILE *file;
	struct dataset *data;
	struct dataset_error *error;
	size_t images;
};

/* Parses a whole number of at most three digits. Returns -1 for anything else. */
static int parse_value(const char *text, size_t length)
{
	int value = 0;

	if (length == 0 || length > 3)
		return -1;
	for (size_t i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -1;
		value = value * 10 + (text[i] - '0');
	}
	return value;
}

int dataset_parse_row(const char *line, size_t length, float ret_image[static IMAGE_PIXELS],
	uint8_t *ret_label, char *reason, size_t size)
{
	const char *at = line, *end = line + length;
	int column = 0;

	while (column < COLUMNS) {
		const char *comma = memchr(at, ',', (size_t)(end - at));
		size_t n = (size_t)((comma ? comma : end) - at);
		int value = parse_value(at, n), most = column < IMAGE_PIXELS ? PIXEL_MAX : 9;

		if (value < 0 || value > most) {
			snprintf(reason, size,
				"column %d: '%.*s' is not a %s, a whole number from 0 to %d",
				column + 1, (int)(n < 20 ? n : 20), at,
				column < IMAGE_PIXELS ? "pixel" : "label", most);
			return -EINVAL;
		}
		if (column < IMAGE_PIXELS)
			ret_image[column] = (float)value / PIXEL_MAX;
		else
			*ret_label = (uint8_t)value;
		column++;
		if (!comma)
			break;
		if (column == COLUMNS) {
			snprintf(reason, size, "there are more than %d columns: %d pixels, a label",
				COLUMNS, IMAGE_PIXELS);
			return -EINVAL;
		}
		at = comma + 1;
	}
	if (column == COLUMNS)
		return 0;
	snprintf(reason, size, "there are %d columns instead of %d: %d pixels, a label", column,
		COLUMNS, IMAGE_PIXELS);
	return -EINVAL;
}

static int fail(struct dataset_error *error, int rc, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int fail(struct dataset_error *error, int rc, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	return rc;
}

/* Makes room for one more image. */
static bool make_room(struct image_set *set)
{
	size_t room = set->room ? 2 * set->room : 512;
	float *images;
	uint8_t *labels;

	if (set->count < set->room)
		return true;
	images = realloc(set->images, room * IMAGE_PIXELS * sizeof(*images));
	if (images)
		set->images = images;
	labels = realloc(set->labels, room);
	if (labels)
		set->labels = labels;
	if (!images || !labels)
		return false;
	set->room = room;
	return true;
}

/*
 * Selects test images from all parts of the file, because neighbouring lines may be of one writer.
 */
static int take_line(struct reader *r, const char *line, size_t length)
{
	struct image_set *set = r->images % TEST_EVERY ? &r->data->train : &r->data->test;
	char reason[200];
	int rc;

	if (r->images == MAX_IMAGES)
		return fail(r->error, -EFBIG, "%s: more than %d images", r->path, MAX_IMAGES);
	if (!make_room(set))
		return fail(r->error, -ENOMEM, "%s: no memory for its images", r->path);
	rc = dataset_parse_row(line, length, set->images + set->count * IMAGE_PIXELS,
		&set->labels[set->count], reason, sizeof(reason));
	if (rc)
		return fail(r->error, rc, "%s: line %zu: %s", r->path, r->images + 1, reason);
	set->count++;
	r->images++;
	return 0;
}

/* Reads byte by byte: a line may contain zero bytes, and the last line may lack its end. */
static int read_lines(struct reader *r)
{
	char line[MAX_LINE];
	size_t length = 0;
	int c, rc = 0;

	while (!rc && (c = getc(r->file)) != EOF) {
		if (c == '\n') {
			if (length > 0 && line[length - 1] == '\r')
				length--;
			rc = take_line(r, line, length);
			length = 0;
		} else if (length == sizeof(line)) {
			return fail(r->error, -EINVAL, "%s: line %zu: longer than %d bytes",
				r->path, r->images + 1, MAX_LINE);
		} else {
			line[length++] = (char)c;
		}
	}
	if (!rc && ferror(r->file))
		return fail(r->error, -errno, "%s: %s", r->path, strerror(errno));
	if (!rc && length > 0)
		rc = take_line(r, line, length);
	return rc;
}

static uint64_t digest_set(uint64_t digest, const struct image_set *set)
{
	digest = train_digest(digest, set->images, set->count * IMAGE_PIXELS * sizeof(float));
	return train_digest(digest, set->labels, set->count);
}

static int finish(struct reader *r)
{
	struct dataset *data = r->data;

	if (r->images < TEST_EVERY)
		return fail(r->error, -EINVAL, "%s: %zu images; there must be %d at least", r->path,
			r->images, TEST_EVERY);
	data->digest = digest_set(digest_set(r->images, &data->train), &data->test);
	return 0;
}

int dataset_read(const char *path, struct dataset *ret_data, struct dataset_error *error)
{
	struct dataset data = { 0 };
	struct reader reader = { .path = path, .data = &data, .error = error };
	int rc;

	reader.file = fopen(path, "re");
	if (!reader.file)
		return fail(error, -errno, "%s: %s", path, strerror(errno));
	rc = read_lines(&reader);
	if (!rc)
		rc = finish(&reader);
	fclose(reader.file);
	if (rc)
		dataset_free(&data);
	else
		*ret_data = data;
	return rc;
}

void dataset_free(struct dataset *data)
{
	free(data->train.images);
	free(data->train.labels);
	free(data->test.images);
	free(data->test.labels);
	*data = (struct dataset){ 0 };
}
