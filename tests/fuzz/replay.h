/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs every kept input of a fuzzer once, so that old finds stay found without a fuzzer. For a test
 * program that is linked with the fuzzer's entry point and does nothing else.
 */
#ifndef FERRULE_TESTS_FUZZ_REPLAY_H
#define FERRULE_TESTS_FUZZ_REPLAY_H

#include <check.h>
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *corpus_name; /* which folder of the corpus */

enum {
	INPUT_MAX_LEN = 65536,
	MIN_INPUTS = 20,
};

static inline const char *corpus_dir(void)
{
	const char *dir = getenv("FRL_CORPUS");

	return dir ? dir : "tests/fuzz/corpus";
}

/* In a block of exactly its size, so that the address sanitizer sees its end. */
static inline void replay(const char *path)
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
	ck_assert_int_eq(LLVMFuzzerTestOneInput(input, len), 0);
	free(input);
}

START_TEST(kept_inputs)
{
	char folder[4096];
	char path[8192];
	struct dirent *entry;
	DIR *stream;
	int inputs = 0;

	snprintf(folder, sizeof(folder), "%s/%s", corpus_dir(), corpus_name);
	stream = opendir(folder);
	ck_assert_msg(stream != NULL, "no folder %s: set FRL_CORPUS", folder);
	while ((entry = readdir(stream))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		replay(path);
		inputs++;
	}
	closedir(stream);
	ck_assert_int_ge(inputs, MIN_INPUTS);
}
END_TEST

/* For main(): the inputs in the folder `name` of the corpus. */
static inline int replay_corpus(const char *name)
{
	Suite *suite = suite_create(name);
	TCase *tcase = tcase_create(name);
	SRunner *runner = srunner_create(suite);
	int failed;

	corpus_name = name;
	suite_add_tcase(suite, tcase);
	tcase_add_test(tcase, kept_inputs);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
