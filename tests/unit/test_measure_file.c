/* SPDX-License-Identifier: BSD-3-Clause */
/* Costs as steps and as text, and the file that keeps them: nothing in it is believed blindly. */
#include "collectives/measure.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/error.h"

enum { NOW = 2000000000, DAY = 24 * 3600, PATH = 300 };

static const char key[] = "0.1.0 memif fabric - mtu 4096 lossless 1 rails 1 on here";
static char base[] = "/tmp/ferrule-measure-XXXXXX", folder[PATH / 2], file[PATH];
static struct tuner_costs costs;

/* ---- steps and text */

START_TEST(test_steps)
{
	double last = 0;

	for (int step = TUNER_STEP_LEAST; step <= TUNER_STEP_MOST; step++) {
		double ns = tuner_step_ns((uint8_t)step);

		ck_assert(ns > last);
		ck_assert_int_eq(tuner_step(ns), step);
		ck_assert_int_eq(tuner_step(ns * 1.18), step);
		ck_assert_int_eq(tuner_step(ns * 0.85), step);
		last = ns;
	}
	ck_assert(tuner_step_ns(TUNER_STEP_ONE) == 1);
	ck_assert(tuner_step_ns(0) == 0);
	ck_assert_int_eq(tuner_step(0), 0);
	ck_assert_int_eq(tuner_step(-1), 0);
	ck_assert_int_eq(tuner_step(NAN), 0);
	ck_assert_int_eq(tuner_step(INFINITY), TUNER_STEP_MOST);
	ck_assert_int_eq(tuner_step(1e-300), TUNER_STEP_LEAST);
}
END_TEST

START_TEST(test_text)
{
	char text[TUNER_TEXT];
	struct tuner_costs again;

	tuner_write_costs(&costs, text);
	ck_assert_int_eq(tuner_read_costs(text, &again), 0);
	ck_assert_mem_eq(&again, &costs, sizeof(costs));
	ck_assert(tuner_costs_are_plausible(&again));
	ck_assert_int_eq(tuner_read_costs("default", &again), 0);
	tuner_write_costs(&again, text);
	ck_assert_str_eq(text, "");
	/* The longest. */
	memset(&again, TUNER_STEP_MOST, sizeof(again));
	tuner_write_costs(&again, text);
	ck_assert_uint_lt(strlen(text), TUNER_TEXT - 1);
	again.step[TUNER_BYTE] = TUNER_STEP_MOST + 1;
	ck_assert(!tuner_costs_are_plausible(&again));
	again.step[TUNER_BYTE] = TUNER_STEP_LEAST - 1;
	ck_assert(!tuner_costs_are_plausible(&again));
}
END_TEST

static const char *const bad_words[] = { "latency", "latency=", "latency=x", "latency=0",
	"latency=-1", "latency=nan", "latency=inf", "latency=1x", "speed=1", "=1", ",",
	"latency=1,,byte=1", "default,latency=1",
	"latency=1111111111111111111111111111111111111111111111111111111111111111111" };

START_TEST(test_bad_text)
{
	ck_assert_int_eq(tuner_read_costs(bad_words[_i], &costs), -EINVAL);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "FRL_TUNER_COSTS"));
}
END_TEST

/* ---- the file */

static void setup(void)
{
	memset(&costs, 0, sizeof(costs));
	for (int i = 0; i < TUNER_COSTS; i++)
		costs.step[i] = (uint8_t)(TUNER_STEP_ONE + 3 * i - 7);
	strcpy(base, "/tmp/ferrule-measure-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
	snprintf(folder, sizeof(folder), "%s/cache/ferrule", base);
}

static void remove_all(const char *path)
{
	DIR *dir = opendir(path);

	for (struct dirent *entry; dir && (entry = readdir(dir));) {
		char inner[PATH * 2];

		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
		if (unlink(inner) != 0)
			remove_all(inner);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}

static void teardown(void)
{
	remove_all(base);
}

static int read_it(int64_t now_s)
{
	struct tuner_costs read;
	int64_t made_s = -1;
	int err = measure_file_read(folder, key, now_s, &read, &made_s);

	if (err)
		return err;
	ck_assert_mem_eq(&read, &costs, sizeof(costs));
	ck_assert_int_eq(made_s, NOW);
	return 0;
}

/* Returns how many files there are; `file` is the last one. */
static int count_files(void)
{
	DIR *dir = opendir(folder);
	int n = 0;

	ck_assert_ptr_nonnull(dir);
	for (struct dirent *entry; (entry = readdir(dir));) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		snprintf(file, sizeof(file), "%s/%.100s", folder, entry->d_name);
		n++;
	}
	closedir(dir);
	return n;
}

static void write_it(void)
{
	ck_assert_int_eq(measure_file_write(folder, key, &costs, NOW), 0);
	ck_assert_int_eq(count_files(), 1);
	ck_assert_int_eq(read_it(NOW), 0);
}

START_TEST(test_kept)
{
	struct stat info;

	ck_assert_int_eq(read_it(NOW), -ENOENT);
	write_it();
	ck_assert_int_eq(stat(file, &info), 0);
	ck_assert_int_eq(info.st_mode & 0777, 0600);
	ck_assert_int_eq(stat(folder, &info), 0);
	ck_assert_int_eq(info.st_mode & 0777, 0700);
	/* A week, and no longer; nothing from the future. */
	ck_assert_int_eq(read_it(NOW + 7 * DAY), 0);
	ck_assert_int_eq(read_it(NOW + 7 * DAY + 1), -ENOENT);
	ck_assert_int_eq(read_it(NOW - 1), -ENOENT);
	/* Replaced in one go. */
	costs.step[0]++;
	write_it();
}
END_TEST

START_TEST(test_other_key)
{
	struct tuner_costs read;
	int64_t made_s;

	write_it();
	ck_assert_int_eq(measure_file_read(folder, "another", NOW, &read, &made_s), -ENOENT);
	ck_assert_int_eq(measure_file_write(folder, "another", &costs, NOW), 0);
	ck_assert_int_eq(count_files(), 2);
	ck_assert_int_eq(read_it(NOW), 0);
}
END_TEST

static void overwrite(const char *text, size_t size)
{
	int fd = open(file, O_WRONLY | O_TRUNC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, size), (ssize_t)size);
	close(fd);
}

START_TEST(test_damaged)
{
	char text[4096], changed[4096];
	ssize_t size;
	int fd;

	write_it();
	fd = open(file, O_RDONLY);
	size = read(fd, text, sizeof(text));
	close(fd);
	ck_assert_int_gt(size, 0);
	for (ssize_t i = 0; i < size; i++) {
		overwrite(text, (size_t)i);
		ck_assert_int_eq(read_it(NOW), -ENOENT);
	}
	/* Any byte another one: the rest of the numbers may be valid, but is what it says. */
	for (ssize_t i = 0; i < size; i++) {
		struct tuner_costs read;
		int64_t made_s;

		memcpy(changed, text, (size_t)size);
		changed[i] = '\0';
		overwrite(changed, (size_t)size);
		ck_assert_int_eq(measure_file_read(folder, key, NOW, &read, &made_s), -ENOENT);
	}
	/* Nothing of a line whose end is no number. */
	for (int i = 0; i < 2; i++) {
		struct tuner_costs read = { .step = { 1, 2, 3 } }, before = read;
		int64_t made_s;

		memcpy(changed, text, (size_t)size);
		changed[size - 2] = i ? '=' : 'x';
		overwrite(changed, (size_t)size);
		ck_assert_int_eq(measure_file_read(folder, key, NOW, &read, &made_s), -ENOENT);
		ck_assert_mem_eq(&read, &before, sizeof(read));
	}
	memset(text + size, 'x', sizeof(text) - (size_t)size);
	overwrite(text, sizeof(text));
	ck_assert_int_eq(read_it(NOW), -ENOENT);
	/* And then it is replaced. */
	write_it();
}
END_TEST

START_TEST(test_of_others)
{
	char elsewhere[PATH];

	write_it();
	ck_assert_int_eq(chmod(file, 0620), 0);
	ck_assert_int_eq(read_it(NOW), -ENOENT);
	ck_assert_int_eq(chmod(file, 0602), 0);
	ck_assert_int_eq(read_it(NOW), -ENOENT);
	ck_assert_int_eq(chmod(file, 0600), 0);
	ck_assert_int_eq(chmod(folder, 0770), 0);
	ck_assert_int_eq(read_it(NOW), -ENOENT);
	ck_assert_int_eq(measure_file_write(folder, key, &costs, NOW), -EPERM);
	ck_assert_int_eq(chmod(folder, 0700), 0);
	if (geteuid() == 0) {
		ck_assert_int_eq(chown(file, 65534, 65534), 0);
		ck_assert_int_eq(read_it(NOW), -ENOENT);
		ck_assert_int_eq(chown(file, 0, 0), 0);
		ck_assert_int_eq(chown(folder, 65534, 65534), 0);
		ck_assert_int_eq(read_it(NOW), -ENOENT);
		ck_assert_int_eq(measure_file_write(folder, key, &costs, NOW), -EPERM);
		ck_assert_int_eq(chown(folder, 0, 0), 0);
	}
	/* Links are not followed, and not written through. */
	snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", base);
	ck_assert_int_eq(rename(file, elsewhere), 0);
	ck_assert_int_eq(symlink(elsewhere, file), 0);
	ck_assert_int_eq(read_it(NOW), -ENOENT);
	ck_assert_int_eq(truncate(elsewhere, 0), 0);
	write_it();
	{
		struct stat info;

		ck_assert_int_eq(stat(elsewhere, &info), 0);
		ck_assert_int_eq(info.st_size, 0);
	}
	ck_assert_int_eq(unlink(elsewhere), 0);
	ck_assert_int_eq(rename(folder, elsewhere), 0);
	ck_assert_int_eq(symlink(elsewhere, folder), 0);
	ck_assert_int_eq(read_it(NOW), -ENOENT);
	ck_assert_int_lt(measure_file_write(folder, key, &costs, NOW), 0);
}
END_TEST

START_TEST(test_no_place)
{
	int fd;

	/* No file in the place of the folder, no folder in that of the file, no pipe. */
	write_it();
	ck_assert_int_eq(unlink(file), 0);
	ck_assert_int_eq(mkfifo(file, 0600), 0);
	ck_assert_int_eq(read_it(NOW), -ENOENT);
	ck_assert_int_eq(unlink(file), 0);
	ck_assert_int_eq(mkdir(file, 0700), 0);
	ck_assert_int_eq(read_it(NOW), -ENOENT);
	ck_assert_int_lt(measure_file_write(folder, key, &costs, NOW), 0);
	ck_assert_int_eq(count_files(), 1);
	ck_assert_int_eq(rmdir(file), 0);
	ck_assert_int_eq(rmdir(folder), 0);
	fd = open(folder, O_WRONLY | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(read_it(NOW), -ENOENT);
	ck_assert_int_lt(measure_file_write(folder, key, &costs, NOW), 0);
	ck_assert_int_lt(measure_file_write("relative-and-not-there/x/y", key, &costs, NOW), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("measure_file");
	TCase *text = tcase_create("text"), *kept = tcase_create("file");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_checked_fixture(text, setup, teardown);
	tcase_add_test(text, test_steps);
	tcase_add_test(text, test_text);
	tcase_add_loop_test(text, test_bad_text, 0, sizeof(bad_words) / sizeof(bad_words[0]));
	suite_add_tcase(suite, text);
	tcase_add_checked_fixture(kept, setup, teardown);
	tcase_add_test(kept, test_kept);
	tcase_add_test(kept, test_other_key);
	tcase_add_test(kept, test_damaged);
	tcase_add_test(kept, test_of_others);
	tcase_add_test(kept, test_no_place);
	suite_add_tcase(suite, kept);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
