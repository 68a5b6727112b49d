/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs every kept input of each fuzzer once, so that old finds stay found without a fuzzer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/program.h"

enum {
	INPUT_MAX_LEN = 65536,
	MIN_INPUTS = 20,
};

/* LLVMFuzzerTestOneInput() of the targets: tests/unit/meson.build gives each a name of its own. */
int fuzz_core(const uint8_t *data, size_t size);
int fuzz_decode(const uint8_t *data, size_t size);
int fuzz_frame(const uint8_t *data, size_t size);
int fuzz_input(const uint8_t *data, size_t size);
int fuzz_neighbor(const uint8_t *data, size_t size);

static const struct {
	const char *folder;
	int (*run)(const uint8_t *data, size_t size);
} targets[] = {
	{ "core", fuzz_core },
	{ "decode", fuzz_decode },
	{ "frame", fuzz_frame },
	{ "input", fuzz_input },
	{ "neighbor", fuzz_neighbor },
};

/* In a block of exactly its size, so that the address sanitizer sees its end. */
static void replay(const char *path, int (*run)(const uint8_t *data, size_t size))
{
	static uint8_t buffer[INPUT_MAX_LEN];
	FILE *stream = fopen(path, "rb");
	uint8_t *input;
	size_t len;

	ck_assert_msg(stream != NULL, "%s", path);
	len = fread(buffer, 1, sizeof(buffer), stream);
	ck_assert_msg(!ferror(stream) && len < sizeof(buffer), "%s", path);
	fclose(stream);
	input = malloc(len ? len : 1);
	ck_assert_ptr_nonnull(input);
	memcpy(input, buffer, len);
	ck_assert_int_eq(run(input, len), 0);
	free(input);
}

START_LOOP_TEST(kept_inputs, ROWS(targets))
{
	const char *corpus = getenv("FRL_CORPUS");
	char folder[4096];
	char path[8192];
	struct dirent *entry;
	DIR *stream;
	int inputs = 0;

	snprintf(folder, sizeof(folder), "%s/%s", corpus ? corpus : "tests/fuzz/corpus",
		targets[_i].folder);
	stream = opendir(folder);
	ck_assert_msg(stream != NULL, "no folder %s: set FRL_CORPUS", folder);
	while ((entry = readdir(stream))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		replay(path, targets[_i].run);
		inputs++;
	}
	closedir(stream);
	ck_assert_int_ge(inputs, MIN_INPUTS);
}
END_TEST

TEST_FILE(fuzz_corpus)
