/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-train: reads images and labels from a CSV file. Each line is an image: 64 pixels of 0 to
 * 16, row by row, and its digit. The file is not trusted; errors name line and column. For one
 * thread.
 */
#ifndef FERRULE_TOOLS_TRAIN_DATA_H
#define FERRULE_TOOLS_TRAIN_DATA_H

#include <stddef.h>
#include <stdint.h>

enum {
	IMAGE_PIXELS = 64,
	PIXEL_MAX = 16,
	DIGITS = 10,
};

struct image_set {
	size_t count, room;
	float *images; /* IMAGE_PIXELS of 0 to 1 each */
	uint8_t *labels;
};

struct dataset {
	struct image_set train, test;
	uint64_t digest; /* of all images and labels */
};

struct dataset_error {
	char text[600]; /* file, line and reason, without a newline */
};

/*
 * Parses a line of `length` bytes, without its end. Returns 0, or -EINVAL with a reason of at most
 * `size` bytes; the outputs are then undefined.
 */
int dataset_parse_row(const char *line, size_t length, float ret_image[static IMAGE_PIXELS],
	uint8_t *ret_label, char *reason, size_t size);

/*
 * Reads a file of at least five images. The first of every five is a test image, the others are for
 * training. Returns 0, or a negative errno with `error` set. The caller frees the data with
 * dataset_free().
 */
int dataset_read(const char *path, struct dataset *ret_data, struct dataset_error *error);
void dataset_free(struct dataset *data);

#endif
