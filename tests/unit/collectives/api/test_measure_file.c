/* SPDX-License-Identifier: BSD-3-Clause */
/* Costs as steps and as text, and the file that keeps them: every value of it is checked. */
#include "collectives/api/measure.h"

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

#include "collectives/communicator/communicator.h"
#include "lib/base/error.h"
#include "tests/fixtures/limited_child.h"
#include "tests/fixtures/program.h"

enum { NOW = 2000000000, HOUR = 3600, DAY = 24 * HOUR, PATH = 300 };

static const char key[] = "0.1.0 ring fabric - mtu 4096 lossless 1 rails 1 on here";
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

START_LOOP_TEST(test_bad_text, ROWS(bad_words))
{
	ck_assert_int_eq(tuner_read_costs(bad_words[_i], &costs), -EINVAL);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "FRL_TUNER_COSTS"));
}
END_TEST

/* ---- what they are of */

static struct frl_comm comm;

static void set_port(unsigned rail, const char *port)
{
	snprintf(comm.rails[rail].attr.port, sizeof(comm.rails[rail].attr.port), "%s", port);
	comm.n_rails = rail + 1;
}

static const struct {
	const char *ports[2], *kinds;
} kinds[] = {
	{ { "ring" }, "ring" },
	{ { "ring", "ring" }, "ring" },
	{ { "net_tap0,iface=x" }, "net_tap" },
	{ { "0000:3b:00.0", "0000:3b:00.1" }, "pci" },
	{ { "verbs:mlx5_0", "verbs:mlx5_12/2" }, "verbs:mlx5" },
	{ { "verbs:rxe0" }, "verbs:rxe" },
	{ { "verbs:rocep59s0f1" }, "verbs:rocep59s0f" },
	{ { "verbs:mlx5_0", "ring" }, "verbs:mlx5+ring" },
	{ { "verbs:0" }, "verbs:" },
};

START_LOOP_TEST(test_kinds, ROWS(kinds))
{
	char text[MEASURE_KINDS];

	for (unsigned i = 0; i < 2 && kinds[_i].ports[i]; i++)
		set_port(i, kinds[_i].ports[i]);
	measure_kinds(&comm, text);
	ck_assert_str_eq(text, kinds[_i].kinds);
}
END_TEST

/* Costs of a software device are not those of a NIC, nor those of one NIC another one's. */
START_TEST(test_keys)
{
	char keys[4][MEASURE_KEY];

	set_port(0, "ring");
	measure_key(&comm, keys[0]);
	comm.staging.is_needed = true;
	measure_key(&comm, keys[1]);
	set_port(0, "verbs:mlx5_0");
	measure_key(&comm, keys[2]);
	set_port(0, "verbs:rxe0");
	measure_key(&comm, keys[3]);
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < i; j++)
			ck_assert_str_ne(keys[i], keys[j]);
	/* The unit of a device does not matter. */
	set_port(0, "verbs:rxe1");
	measure_key(&comm, keys[0]);
	ck_assert_str_eq(keys[0], keys[3]);
	/* The longest possible one. */
	for (unsigned i = 0; i < RAILS_MAX; i++) {
		memset(comm.rails[i].attr.port, 'a' + (int)i, sizeof(comm.rails[i].attr.port) - 1);
		comm.n_rails = i + 1;
	}
	memset(comm.rails[0].attr.fabric, 'f', sizeof(comm.rails[0].attr.fabric) - 1);
	measure_key(&comm, keys[0]);
	ck_assert_ptr_nonnull(strstr(keys[0], " on "));
	ck_assert_uint_lt(strlen(keys[0]), MEASURE_KEY - 64);
	memset(&comm, 0, sizeof(comm));
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
	struct measure_kept read;
	int err = measure_file_read(folder, key, now_s, &read);

	if (err)
		return err;
	ck_assert_mem_eq(&read.costs, &costs, sizeof(costs));
	ck_assert_int_eq(read.made_s, NOW);
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

static int write_costs(const char *to, const char *for_key)
{
	const struct measure_kept kept = { .costs = costs, .made_s = NOW, .checked_s = NOW };

	return measure_file_write(to, for_key, &kept);
}

static void write_it(void)
{
	ck_assert_int_eq(write_costs(folder, key), 0);
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
	/* Valid for a week, and no longer; not from the future. */
	ck_assert_int_eq(read_it(NOW + 7 * DAY), 0);
	ck_assert_int_eq(read_it(NOW + 7 * DAY + 1), -ENOENT);
	ck_assert_int_eq(read_it(NOW - 1), -ENOENT);
	/* Replaced atomically. */
	costs.step[0]++;
	write_it();
}
END_TEST

static bool is_refused(void)
{
	return write_costs(folder, key) == -EFBIG;
}

/* Then there is no cache; the program continues. */
START_TEST(test_limit_of_file_sizes)
{
	check_in_limited_child(16, is_refused);
	ck_assert_int_eq(count_files(), 0);
}
END_TEST

START_TEST(test_other_key)
{
	struct measure_kept read;

	write_it();
	ck_assert_int_eq(measure_file_read(folder, "another", NOW, &read), -ENOENT);
	ck_assert_int_eq(write_costs(folder, "another"), 0);
	ck_assert_int_eq(count_files(), 2);
	ck_assert_int_eq(read_it(NOW), 0);
}
END_TEST

/* Checked sometimes: the day of the measurement stays the same. */
START_TEST(test_checked)
{
	struct measure_kept kept = { .costs = costs, .made_s = NOW, .checked_s = NOW }, read;

	for (int day = 0; day < 7; day++) {
		kept.checked_s = NOW + day * DAY;
		ck_assert_int_eq(measure_file_write(folder, key, &kept), 0);
		ck_assert_int_eq(measure_file_read(folder, key, kept.checked_s, &read), 0);
		ck_assert_int_eq(read.made_s, NOW);
		ck_assert_int_eq(read.checked_s, kept.checked_s);
		ck_assert(!measure_is_due(&read, kept.checked_s + HOUR));
		ck_assert(measure_is_due(&read, kept.checked_s + HOUR + 1));
	}
	ck_assert_int_eq(read_it(NOW + 7 * DAY + 1), -ENOENT);
	/* Not before they were measured, and not in the future. */
	kept.checked_s = NOW - 1;
	ck_assert_int_eq(measure_file_write(folder, key, &kept), 0);
	ck_assert_int_eq(read_it(NOW), -ENOENT);
	kept.checked_s = NOW + 1;
	ck_assert_int_eq(measure_file_write(folder, key, &kept), 0);
	ck_assert_int_eq(read_it(NOW), -ENOENT);
}
END_TEST

static void make_file(const char *name, int64_t made_s)
{
	const struct timespec times[2] = { { .tv_sec = made_s }, { .tv_sec = made_s } };
	char path[PATH];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(futimens(fd, times), 0);
	close(fd);
}

/* Files of writers that were killed; others may be at work, and other files are not ours. */
START_TEST(test_left)
{
	write_it();
	make_file(".costs-0123456789abcdef-0123456789abcdef", NOW - HOUR - 1);
	make_file(".costs-x", NOW - 8 * DAY);
	ck_assert_int_eq(count_files(), 3);
	write_it();
	make_file(".costs-0123456789abcdef-0123456789abcdef", NOW - HOUR);
	make_file(".costs", NOW - 8 * DAY);
	make_file("costs-x", NOW - 8 * DAY);
	ck_assert_int_eq(write_costs(folder, key), 0);
	ck_assert_int_eq(count_files(), 4);
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
	/* Any byte changed: the other numbers may be valid, but must be the stored ones. */
	for (ssize_t i = 0; i < size; i++) {
		struct measure_kept read;

		memcpy(changed, text, (size_t)size);
		changed[i] = '\0';
		overwrite(changed, (size_t)size);
		ck_assert_int_eq(measure_file_read(folder, key, NOW, &read), -ENOENT);
	}
	/* Nothing of a line whose end is no number. */
	for (int i = 0; i < 2; i++) {
		struct measure_kept read = { .costs = { .step = { 1, 2, 3 } } }, before = read;

		memcpy(changed, text, (size_t)size);
		changed[size - 2] = i ? '=' : 'x';
		overwrite(changed, (size_t)size);
		ck_assert_int_eq(measure_file_read(folder, key, NOW, &read), -ENOENT);
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
	ck_assert_int_eq(write_costs(folder, key), -EPERM);
	ck_assert_int_eq(chmod(folder, 0700), 0);
	if (geteuid() == 0) {
		ck_assert_int_eq(chown(file, 65534, 65534), 0);
		ck_assert_int_eq(read_it(NOW), -ENOENT);
		ck_assert_int_eq(chown(file, 0, 0), 0);
		ck_assert_int_eq(chown(folder, 65534, 65534), 0);
		ck_assert_int_eq(read_it(NOW), -ENOENT);
		ck_assert_int_eq(write_costs(folder, key), -EPERM);
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
	ck_assert_int_lt(write_costs(folder, key), 0);
}
END_TEST

START_TEST(test_no_place)
{
	int fd;

	/* No file in place of the folder, no folder in place of the file, no pipe. */
	write_it();
	ck_assert_int_eq(unlink(file), 0);
	ck_assert_int_eq(mkfifo(file, 0600), 0);
	ck_assert_int_eq(read_it(NOW), -ENOENT);
	ck_assert_int_eq(unlink(file), 0);
	ck_assert_int_eq(mkdir(file, 0700), 0);
	ck_assert_int_eq(read_it(NOW), -ENOENT);
	ck_assert_int_lt(write_costs(folder, key), 0);
	ck_assert_int_eq(count_files(), 1);
	ck_assert_int_eq(rmdir(file), 0);
	ck_assert_int_eq(rmdir(folder), 0);
	fd = open(folder, O_WRONLY | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(read_it(NOW), -ENOENT);
	ck_assert_int_lt(write_costs(folder, key), 0);
	ck_assert_int_lt(write_costs("relative-and-not-there/x/y", key), 0);
}
END_TEST

TEST_MAIN(measure_file)
{
	return run_suite(all_tests(setup, teardown));
}
