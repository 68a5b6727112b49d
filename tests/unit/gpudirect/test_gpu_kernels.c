/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels of the build: their GPUs, their limits, and that they are embedded unchanged. No GPU
 * is needed. Without kernels the test is skipped; with CI=true only where there is no nvcc, or the
 * build disabled it (-Dcuda=disabled). */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpudirect/kernels/image.h"

#include "tests/fixtures/program.h"

enum { LOG_MAX = 65536, SKIPPED = 77 };

/* A file of the build's; its length. */
static size_t read_built(const char *name, char *text, size_t room)
{
	const char *root = getenv("FRL_BUILD_ROOT");
	char path[512];
	size_t n;
	FILE *file;

	ck_assert_msg(root, "FRL_BUILD_ROOT is not set");
	snprintf(path, sizeof(path), "%s/gpudirect/%s", root, name);
	file = fopen(path, "rb");
	ck_assert_msg(file, "cannot read %s", path);
	n = fread(text, 1, room, file);
	ck_assert_msg(n < room, "%s is too long", path);
	fclose(file);
	return n;
}

/* The compute capabilities that nvcc had code for when it compiled the image, with a 0 behind them:
 * those of Blackwell came with CUDA 12.8. */
static const uint16_t *wanted_codes(void)
{
	static const uint16_t all[] = { 75, 80, 90, 100, 120, 0 }, before[] = { 75, 80, 90, 0 };

	return image_data.toolkit < 12080 ? before : all;
}

/* The images; before CUDA 12.1 the second one is empty. */
static const struct {
	const struct image_data *data;
	const char *log, *file;
	const char *kernel;
} images[] = {
	{ &image_data, "kernels.log", "kernels.fatbin", "ferrule_work" },
	{ &image_many, "kernels_many.log", "kernels_many.fatbin", "ferrule_work_many" },
};

static bool is_empty(int i)
{
	if (images[i].data->bytes)
		return false;
	ck_assert_int_eq(i, 1);
	ck_assert_int_lt(image_data.toolkit, 12010);
	return true;
}

START_LOOP_TEST(image_codes, ROWS(images))
{
	const struct image_data *data = images[_i].data;
	const uint16_t *wanted = wanted_codes();
	unsigned n = 0;

	if (is_empty(_i))
		return;
	do
		ck_assert_uint_eq(data->codes[n], wanted[n]);
	while (wanted[n++]);
	ck_assert_uint_eq(data->ptx, wanted[0]);
	ck_assert_int_eq(data->toolkit, image_data.toolkit);
}
END_TEST

/* The assembler's report on each target. */
START_LOOP_TEST(resources, ROWS(images))
{
	static const char clean[] =
		"0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
	static char log[LOG_MAX];
	const uint16_t *codes = wanted_codes();
	char wanted[128];
	int registers, n_wanted = 0, n = 0;

	if (is_empty(_i))
		return;
	log[read_built(images[_i].log, log, LOG_MAX)] = '\0';
	for (; codes[n_wanted]; n_wanted++) {
		snprintf(wanted, sizeof(wanted), "Compiling entry function '%s' for 'sm_%u'",
			images[_i].kernel, codes[n_wanted]);
		ck_assert_msg(strstr(log, wanted), "no '%s' in:\n%s", wanted, log);
	}
	for (const char *at = log; (at = strstr(at, "stack frame")); at++, n++) {
		const char *line = at;

		while (line > log && line[-1] != '\n')
			line--;
		ck_assert_msg(strncmp(line + strspn(line, " "), clean, strlen(clean)) == 0,
			"it has a stack:\n%s", log);
	}
	ck_assert_int_eq(n, n_wanted);
	/* Up to 64 leave room for four blocks on a multiprocessor. */
	for (const char *at = log; (at = strstr(at, "Used ")); at++) {
		ck_assert_int_eq(sscanf(at, "Used %d registers", &registers), 1);
		ck_assert_int_le(registers, 64);
	}
}
END_TEST

START_LOOP_TEST(embedded, ROWS(images))
{
	static const unsigned char magic[] = { 0x50, 0xed, 0x55, 0xba };
	const struct image_data *data = images[_i].data;
	size_t room = data->size + 1;
	char *file = malloc(room);

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(read_built(images[_i].file, file, room), data->size);
	if (!is_empty(_i)) {
		ck_assert_mem_eq(data->bytes, file, data->size);
		ck_assert_mem_eq(data->bytes, magic, sizeof(magic));
	}
	ck_assert_int_ge(image_data.toolkit, 11080);
	free(file);
}
END_TEST

/* Which entry of the image this is: the one of codes[], or the last one of all, the PTX. */
static unsigned entry_of(const uint16_t *codes, uint16_t kind, uint32_t compute)
{
	enum { PTX = 1, CODE = 2 };
	unsigned i = 0;

	while (codes[i] && (kind != CODE || codes[i] != compute))
		i++;
	ck_assert_msg(codes[i] || (kind == PTX && compute == codes[0]),
		"kind %u for compute capability %u", kind, compute);
	return i;
}

/* The contents of an image: code for each target, and PTX that all others can compile, the Tegra
 * ones among them, on which the code of others does not run. */
START_LOOP_TEST(targets, ROWS(images))
{
	enum { HEADER = 16 };
	const uint16_t *codes = wanted_codes();
	const uint8_t *image = images[_i].data->bytes;
	unsigned found = 0, n = 0;

	if (is_empty(_i))
		return;
	for (size_t at = HEADER; at + 32 <= images[_i].data->size;) {
		uint16_t kind;
		uint32_t compute, header;
		uint64_t length;

		memcpy(&kind, image + at, sizeof(kind));
		memcpy(&header, image + at + 4, sizeof(header));
		memcpy(&length, image + at + 8, sizeof(length));
		memcpy(&compute, image + at + 28, sizeof(compute));
		found |= 1U << entry_of(codes, kind, compute);
		ck_assert_uint_gt(header, 0);
		at += header + length;
	}
	while (codes[n])
		n++;
	ck_assert_uint_eq(found, (2U << n) - 1);
}
END_TEST

/* `behind`: the driver is of a CUDA that is older by this than nvcc. */
static const struct {
	int major, minor, behind;
	const char *word; /* NULL: it works */
} gpus[] = {
	{ 7, 5, 0, NULL },
	{ 7, 5, -1000, NULL },
	{ 8, 0, 0, NULL },
	{ 8, 9, 0, NULL },
	{ 9, 0, 0, NULL },
	{ 9, 0, -1000, NULL },
	{ 12, 0, 0, NULL },
	{ 8, 6, -10, NULL },
	{ 8, 7, 0, NULL },
	{ 11, 0, 0, NULL },
	{ 13, 0, 0, NULL },
	{ 7, 2, 0, "compute capability 7.2" },
	{ 7, 0, 0, "kernels are for 7.5 and later" },
	{ 0, 0, 0, "compute capability 0.0" },
	{ 7, 5, 1000, "install a newer driver" },
	{ 9, 0, 1000, "install a newer driver" },
	{ 8, 7, 10, "install a newer driver" },
	{ 8, 8, 10, "install a newer driver" },
	{ 8, 7, 1000, "install a newer driver" },
	{ 12, 0, 1000, "install a newer driver" },
	{ 13, 0, 10, "install a newer driver" },
};

START_LOOP_TEST(which_gpus, ROWS(gpus))
{
	const char *why = image_why_not(
		gpus[_i].major, gpus[_i].minor, image_data.toolkit - gpus[_i].behind);

	if (!gpus[_i].word)
		ck_assert_msg(!why, "refused: %s", why);
	else
		ck_assert_msg(why && strstr(why, gpus[_i].word), "no '%s' in '%s'", gpus[_i].word,
			why ? why : "");
}
END_TEST

/* The outputs of some compiler versions. */
static const struct image_data cuda_12_4 = { .toolkit = 12040, .codes = { 75, 80, 90 }, .ptx = 75 };
static const struct image_data cuda_13_2 = {
	.toolkit = 13020, .codes = { 75, 80, 90, 100, 120 }, .ptx = 75
};
static const struct image_data without_75 = {
	.toolkit = 14010, .codes = { 80, 90, 100, 120 }, .ptx = 80
};

/* Where the driver compiles nothing any of the same major version will do. */
static const struct {
	const struct image_data *image;
	int major, minor, oldest;
} drivers[] = {
	{ &cuda_12_4, 6, 1, 0 },
	{ &cuda_12_4, 7, 0, 0 },
	{ &cuda_12_4, 7, 2, 0 },
	{ &cuda_12_4, 7, 5, 12000 }, /* T4 */
	{ &cuda_12_4, 8, 0, 12000 },
	{ &cuda_12_4, 8, 6, 12000 },
	{ &cuda_12_4, 8, 7, 12040 }, /* Orin */
	{ &cuda_12_4, 8, 9, 12000 },
	{ &cuda_12_4, 9, 0, 12000 },
	{ &cuda_12_4, 10, 0, 12040 },
	{ &cuda_12_4, 12, 0, 12040 },
	{ &cuda_13_2, 7, 2, 0 },
	{ &cuda_13_2, 7, 5, 13000 },
	{ &cuda_13_2, 8, 7, 13020 },
	{ &cuda_13_2, 8, 8, 13020 },
	{ &cuda_13_2, 9, 0, 13000 },
	{ &cuda_13_2, 10, 0, 13000 },
	{ &cuda_13_2, 10, 1, 13020 }, /* Thor, */
	{ &cuda_13_2, 10, 3, 13000 },
	{ &cuda_13_2, 11, 0, 13020 }, /* Thor */
	{ &cuda_13_2, 12, 0, 13000 },
	{ &cuda_13_2, 12, 1, 13000 },
	{ &cuda_13_2, 13, 0, 13020 },
	{ &without_75, 7, 5, 0 },
	{ &without_75, 8, 6, 14000 },
};

START_LOOP_TEST(which_drivers, ROWS(drivers))
{
	ck_assert_int_eq(
		image_oldest_driver(drivers[_i].image, drivers[_i].major, drivers[_i].minor),
		drivers[_i].oldest);
}
END_TEST

static bool is_set_to(const char *name, const char *value)
{
	const char *is = getenv(name);

	return is && strcmp(is, value) == 0;
}

/* FRL_KERNELS comes from tests/meson.build. */
static bool may_be_missing(void)
{
	return !is_set_to("CI", "true") ||
		(access("/usr/local/cuda/bin/nvcc", X_OK) &&
			system("command -v nvcc >/dev/null 2>&1"));
}

TEST_MAIN(gpu_kernels)
{
	/* The other tests of this program have a stub then. */
	if (is_set_to("FRL_KERNELS", "disabled")) {
		puts("SKIP: built without kernels (-Dcuda=disabled)");
		return SKIPPED;
	}
	if (!image_is_built()) {
		printf("%s: %s\n", may_be_missing() ? "SKIP" : "FAILED, for there is nvcc here",
			image_why_not(9, 0, 13000));
		return may_be_missing() ? SKIPPED : EXIT_FAILURE;
	}
	return run_suite(all_tests(NULL, NULL));
}
