/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels that were built: for which GPUs, within what they may use, embedded as they were
 * written. No GPU is needed. Without kernels the test is skipped; with CI=true only where there is
 * no nvcc, or the build was told to do without (-Dcuda=disabled). */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpudirect/image.h"

#include "tests/unit/program.h"

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

/* What the assembler says about each target. */
START_TEST(resources)
{
	static const char *const targets[] = { "sm_80", "sm_90" };
	static const char clean[] =
		"0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
	static char log[LOG_MAX];
	static const char *const kernels[] = { "ferrule_work", "ferrule_ring" };
	char wanted[128];
	int registers, n = 0;

	log[read_built("kernels.log", log, LOG_MAX)] = '\0';
	for (int i = 0; i < 4; i++) {
		snprintf(wanted, sizeof(wanted), "Compiling entry function '%s' for '%s'",
			kernels[i / 2], targets[i % 2]);
		ck_assert_msg(strstr(log, wanted), "no '%s' in:\n%s", wanted, log);
	}
	for (const char *at = log; (at = strstr(at, "stack frame")); at++, n++) {
		const char *line = at;

		while (line > log && line[-1] != '\n')
			line--;
		ck_assert_msg(strncmp(line + strspn(line, " "), clean, strlen(clean)) == 0,
			"it has a stack:\n%s", log);
	}
	ck_assert_int_eq(n, 4);
	/* Up to 64 leave room for four blocks on a multiprocessor. */
	for (const char *at = log; (at = strstr(at, "Used ")); at++) {
		ck_assert_int_eq(sscanf(at, "Used %d registers", &registers), 1);
		ck_assert_int_le(registers, 64);
	}
}
END_TEST

START_TEST(embedded)
{
	static const unsigned char magic[] = { 0x50, 0xed, 0x55, 0xba };
	size_t room = image_data.size + 1;
	char *file = malloc(room);

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(read_built("kernels.fatbin", file, room), image_data.size);
	ck_assert_mem_eq(image_data.bytes, file, image_data.size);
	ck_assert_mem_eq(image_data.bytes, magic, sizeof(magic));
	ck_assert_int_ge(image_data.toolkit, 11080);
	free(file);
}
END_TEST

/* What is in the image: code for GPUs of a desktop's kind, and PTX that all others can compile, the
 * Tegra ones among them, on which the code of others does not run. */
START_TEST(targets)
{
	enum { HEADER = 16, PTX = 1, CODE = 2 };
	static const struct {
		uint16_t kind;
		uint32_t compute;
	} wanted[] = { { CODE, 80 }, { CODE, 90 }, { PTX, 80 } };
	const uint8_t *image = image_data.bytes;
	unsigned found = 0;

	for (size_t at = HEADER; at + 32 <= image_data.size;) {
		uint16_t kind;
		uint32_t compute, header;
		uint64_t length;
		unsigned i = 0;

		memcpy(&kind, image + at, sizeof(kind));
		memcpy(&header, image + at + 4, sizeof(header));
		memcpy(&length, image + at + 8, sizeof(length));
		memcpy(&compute, image + at + 28, sizeof(compute));
		while (i < 3 && (wanted[i].kind != kind || wanted[i].compute != compute))
			i++;
		ck_assert_msg(i < 3, "kind %u for compute capability %u", kind, compute);
		found |= 1U << i;
		ck_assert_uint_gt(header, 0);
		at += header + length;
	}
	ck_assert_uint_eq(found, 7);
}
END_TEST

/* `behind`: the driver is of a CUDA that is older by this than nvcc. */
static const struct {
	int major, minor, behind;
	const char *word; /* NULL: it works */
} gpus[] = {
	{ 8, 0, 0, NULL },
	{ 8, 9, 0, NULL },
	{ 9, 0, 0, NULL },
	{ 9, 0, -1000, NULL },
	{ 12, 0, 0, NULL },
	{ 8, 6, -10, NULL },
	{ 8, 7, 0, NULL },
	{ 11, 0, 0, NULL },
	{ 7, 5, 0, "compute capability 7.5" },
	{ 0, 0, 0, "compute capability 0.0" },
	{ 9, 0, 1000, "install a newer driver" },
	{ 8, 7, 10, "install a newer driver" },
	{ 8, 8, 10, "install a newer driver" },
	{ 8, 7, 1000, "install a newer driver" },
	{ 12, 0, 1000, "install a newer driver" },
	{ 12, 0, 10, "install a newer driver" },
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

static const struct {
	int major, minor, toolkit, oldest;
} drivers[] = {
	{ 8, 0, 12040, 12000 },
	{ 8, 6, 12040, 12000 },
	{ 8, 7, 12040, 12040 }, /* Orin */
	{ 8, 8, 13010, 13010 },
	{ 8, 9, 12040, 12000 },
	{ 9, 0, 13020, 13000 },
	{ 10, 0, 13020, 13020 },
	{ 11, 0, 13000, 13000 }, /* Thor */
	{ 12, 1, 13010, 13010 },
};

START_LOOP_TEST(which_drivers, ROWS(drivers))
{
	ck_assert_int_eq(
		image_oldest_driver(drivers[_i].major, drivers[_i].minor, drivers[_i].toolkit),
		drivers[_i].oldest);
}
END_TEST

static bool is_set_to(const char *name, const char *value)
{
	const char *is = getenv(name);

	return is && strcmp(is, value) == 0;
}

/* FRL_KERNELS is what tests/meson.build says of the build. */
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
