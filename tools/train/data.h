/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-train: reads images and labels from a CSV file. One image a line: 64 pixels of 0 to 16,
 * row by row, and the digit that it shows. A file is input: what is wrong with it is said by line
 * and column. One thread.
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
	uint64_t digest; /* of all of it */
};

struct dataset_error {
	char text[600]; /* one line: file, line, what is wrong */
};

/*
 * Reads a line of `length` bytes, without its end. 0, or -EINVAL with a reason of at most `size`
 * bytes; what has been read by then is of no use.
 */
int dataset_parse_row(const char *line, size_t length, float ret_image[static IMAGE_PIXELS],
	uint8_t *ret_label, char *reason, size_t size);

/*
 * Reads a file of at least five images. The first of every five is for testing, the others are to
 * learn from. 0, or a negative errno with `error` set. The caller ends it with dataset_free().
 */
int dataset_read(const char *path, struct dataset *ret_data, struct dataset_error *error);
void dataset_free(struct dataset *data);

#endif
