/* SPDX-License-Identifier: BSD-3-Clause */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/settings.h"

#include "tests/fixtures/program.h"
#include "tests/fixtures/run_copy.h"

/* The environment of a row: up to two variables. */
static const char *environment[4];

static const char *lookup(const char *name)
{
	for (int i = 0; i < 4; i += 2)
		if (environment[i] && strcmp(environment[i], name) == 0)
			return environment[i + 1];
	return NULL;
}

static void set_environment(const char *name, const char *value)
{
	memset(environment, 0, sizeof(environment));
	environment[0] = name;
	environment[1] = value;
}

static const struct {
	const char *text;
	uint64_t window;
	bool good;
} number_rows[] = {
	{ "1", 1, true }, /* the smallest */
	{ "4096", 4096, true },
	{ "17", 17, true },
	{ "0017", 17, true },
	{ "0", 256, false },
	{ "4097", 256, false },
	{ "", 256, false },
	{ " 17", 256, false },
	{ "17 ", 256, false },
	{ "+17", 256, false },
	{ "-17", 256, false },
	{ "0x17", 256, false },
	{ "17k", 256, false },
	{ "1.5", 256, false },
	{ "seventeen", 256, false },
	{ "18446744073709551615", 256, false },
	{ "18446744073709551617", 256, false }, /* 2^64 + 1 */
	{ "99999999999999999999999999", 256, false },
};

START_LOOP_TEST(number, ROWS(number_rows))
{
	struct settings settings;
	char error[200] = "untouched";
	int result;

	set_environment("FRL_WINDOW", number_rows[_i].text);
	result = settings_read(&settings, lookup, error, sizeof(error));
	ck_assert_uint_eq(settings.window, number_rows[_i].window);
	ck_assert_int_eq(result, number_rows[_i].good ? 0 : -EINVAL);
	if (number_rows[_i].good) {
		ck_assert_str_eq(error, "untouched");
	} else {
		ck_assert_ptr_nonnull(strstr(error, "FRL_WINDOW"));
		ck_assert_ptr_nonnull(strstr(error, "from 1 to 4096"));
	}
	settings_free(&settings);
}
END_TEST

static const struct {
	const char *name, *text;
	bool good;
} word_rows[] = {
	{ "FRL_PROGRESS", "auto", true },
	{ "FRL_PROGRESS", "inline", true },
	{ "FRL_PROGRESS", "thread", true },
	{ "FRL_PROGRESS", "", false },
	{ "FRL_PROGRESS", "threads", false },
	{ "FRL_PROGRESS", "thr", false },
	{ "FRL_PROGRESS", "read", false },
	{ "FRL_PROGRESS", "auto|inline", false },
	{ "FRL_PROGRESS", "|", false },
	{ "FRL_PROGRESS", "AUTO", false },
	{ "FRL_ICRC", "always", true },
	{ "FRL_ICRC", "never", false },
};

START_LOOP_TEST(word, ROWS(word_rows))
{
	struct settings settings;
	char error[200];
	const char *value;
	int result;

	set_environment(word_rows[_i].name, word_rows[_i].text);
	result = settings_read(&settings, lookup, error, sizeof(error));
	value = strcmp(word_rows[_i].name, "FRL_ICRC") == 0 ? settings.icrc : settings.progress;
	ck_assert_int_eq(result, word_rows[_i].good ? 0 : -EINVAL);
	ck_assert_str_eq(value, word_rows[_i].good ? word_rows[_i].text : "auto");
	if (!word_rows[_i].good)
		ck_assert_ptr_nonnull(strstr(error, word_rows[_i].name));
	settings_free(&settings);
}
END_TEST

START_TEST(any_word)
{
	struct settings settings;
	char text[] = "--vdev=net_null0 -l 1";
	char error[200];

	set_environment("FRL_EAL_ARGS", text);
	ck_assert_int_eq(settings_read(&settings, lookup, error, sizeof(error)), 0);
	text[0] = 'x';
	ck_assert_str_eq(settings.eal_args, "--vdev=net_null0 -l 1");
	settings_free(&settings);
}
END_TEST

START_TEST(word_too_long)
{
	static char text[8192];
	struct settings settings;
	char error[200];

	memset(text, 'a', sizeof(text) - 1);
	set_environment("FRL_EAL_ARGS", text);
	ck_assert_int_eq(settings_read(&settings, lookup, error, sizeof(error)), -EINVAL);
	ck_assert_str_eq(settings.eal_args, "");
	settings_free(&settings);
}
END_TEST

START_TEST(defaults)
{
	struct settings settings;

	set_environment(NULL, NULL);
	ck_assert_int_eq(settings_read(&settings, lookup, NULL, 0), 0);
#define CHECK_NUMBER(member, name, value, min, max, help) \
	ck_assert_uint_eq(settings.member, value);        \
	ck_assert_uint_ge(settings.member, min);          \
	ck_assert_uint_le(settings.member, max);
	SETTINGS_NUMBERS(CHECK_NUMBER)
#undef CHECK_NUMBER
#define CHECK_WORD(member, name, value, choices, help) ck_assert_str_eq(settings.member, value);
	SETTINGS_WORDS(CHECK_WORD)
#undef CHECK_WORD
	settings_free(&settings);
}
END_TEST

/* The first of two errors is reported, and good values beside them count. */
START_TEST(first_error)
{
	struct settings settings;
	char error[200];

	set_environment("FRL_PROGRESS", "later");
	environment[2] = "FRL_WINDOW";
	environment[3] = "none";
	ck_assert_int_eq(settings_read(&settings, lookup, error, sizeof(error)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "FRL_WINDOW is \"none\""));
	ck_assert_ptr_null(strstr(error, "later"));
	settings_free(&settings);

	set_environment("FRL_PROGRESS", "thread");
	environment[2] = "FRL_WINDOW";
	environment[3] = "none";
	ck_assert_int_eq(settings_read(&settings, lookup, error, sizeof(error)), -EINVAL);
	ck_assert_str_eq(settings.progress, "thread");
	settings_free(&settings);
}
END_TEST

START_TEST(error_fits)
{
	static char text[8192];
	struct settings settings;
	char error[32];

	memset(text, 'a', sizeof(text) - 1);
	set_environment("FRL_WINDOW", text);
	memset(error, 0x7f, sizeof(error));
	ck_assert_int_eq(settings_read(&settings, lookup, error, sizeof(error)), -EINVAL);
	ck_assert_uint_eq(strlen(error), sizeof(error) - 1);
	settings_free(&settings);
}
END_TEST

static const struct {
	const char *name, *nearest; /* NULL: it is a setting, or like none */
} nearest_rows[] = {
	{ "FRL_FARBIC", "FRL_FABRIC" },
	{ "FRL_WINDWO", "FRL_WINDOW" },
	{ "FRL_PATHMTU", "FRL_PATH_MTU" },
	{ "FRL_RNAK", "FRL_RANK" },
	{ "FRL_JOBHOST", "FRL_JOB_HOST" },
	{ "FRL_COLL_TIMEOUT", "FRL_COLL_TIMEOUT_S" },
	{ "FRL_MTU", "FRL_PATH_MTU" },
	{ "FRL_COSTS", "FRL_TUNER_COSTS" },
	{ "FERRULE_FABRIC", "FRL_FABRIC" },
	{ "FERRULE_DEVICE", "FERRULE_DEVICES" },
	{ "FRL_QPS", "FERRULE_QPS" },
	{ "FRL_window", NULL },
	{ "FRL_RANK", NULL },
	{ "FRL_RANKS", NULL },
	{ "FERRULE_GPU", NULL },
	{ "FRL_", NULL },
	{ "FRL_X", NULL },
	{ "FRL_DATA", NULL },
	{ "FRL_CORPUS", NULL },
	{ "FRL_VECTORS", NULL },
	{ "FERRULE_HOME", NULL },
	{ "FARBIC", NULL },
	{ "XFRL_FARBIC", NULL },
	{ "FRL_A_NAME_WHICH_IS_LONGER_THAN_ANY_SETTING_AND_HAS_A_WINDOW", NULL },
};

START_LOOP_TEST(nearest, ROWS(nearest_rows))
{
	const char *name = nearest_rows[_i].name;
	const char *found = settings_nearest(name, strlen(name));

	ck_assert_pstr_eq(found, nearest_rows[_i].nearest);
}
END_TEST

START_TEST(misspelt)
{
	char good[] = "FRL_WINDOW=1", one[] = "FRL_FARBIC=roce", other[] = "FRL_RNAK=1=2";
	char home[] = "HOME=/FRL_RNAK", bare[] = "FRL_RNAK";
	char *none[] = { good, home, NULL }, *two[] = { one, good, other, NULL };
	char *odd[] = { bare, NULL };
	char text[200], small[20];

	ck_assert(!settings_misspelt(none, text, sizeof(text)));
	ck_assert(!settings_misspelt(NULL, text, sizeof(text)));
	ck_assert(settings_misspelt(two, text, sizeof(text)));
	ck_assert_str_eq(text,
		"not a setting, so ignored: FRL_FARBIC (nearest: FRL_FABRIC), FRL_RNAK (nearest: "
		"FRL_RANK)");
	ck_assert(settings_misspelt(odd, text, sizeof(text)));
	ck_assert(settings_misspelt(two, small, sizeof(small)));
	ck_assert_uint_eq(strlen(small), sizeof(small) - 1);
}
END_TEST

/* The environment that the process was started with, kept from the first call on. */
START_TEST(from_environment)
{
	const struct settings *settings;

	unsetenv("FRL_PROGRESS");
	setenv("FRL_WINDOW", "77", 1);
	setenv("FRL_SEGMENT_KB", "3", 1);
	setenv("FRL_SEGMENT", "128", 1);
	settings = settings_get();
	setenv("FRL_WINDOW", "78", 1);
	ck_assert_ptr_eq(settings_get(), settings);
	ck_assert_uint_eq(settings->window, 77);
	ck_assert_uint_eq(settings->segment_kb, 128);
	ck_assert_str_eq(settings->progress, "auto");
	ck_assert_ptr_nonnull(strstr(settings_error(), "FRL_SEGMENT_KB"));
	ck_assert_ptr_nonnull(
		strstr(settings_misspelling(), "FRL_SEGMENT (nearest: FRL_SEGMENT_KB)"));
}
END_TEST

enum { READS_HARMLESS = 1, READS_ALL = 2, NAMES_IGNORED = 4, FINDS_OWN_DAEMON = 8 };

static int what_is_read(void)
{
	const struct settings *settings = settings_get();
	const char *ignored = settings_ignored();

	return (settings->window == 77 && strcmp(settings->fabric, "roce") == 0 ? READS_HARMLESS
										: 0) |
		(strcmp(settings->eal_args, "-m 1") == 0 && *settings->control == '/' ? READS_ALL
										      : 0) |
		(ignored && strcmp(ignored, "FRL_EAL_ARGS, FRL_CONTROL, FRL_TUNER_CACHE") == 0
				? NAMES_IGNORED
				: 0) |
		(settings_runtime_dir() ? FINDS_OWN_DAEMON : 0);
}

/* A program with another user's rights ignores harmful settings of the environment. */
START_TEST(more_rights)
{
	int read;

	setenv("FRL_WINDOW", "77", 1);
	setenv("FRL_FABRIC", "roce", 1);
	setenv("FRL_EAL_ARGS", "-m 1", 1);
	setenv("FRL_CONTROL", "/tmp/mine", 1);
	setenv("XDG_RUNTIME_DIR", "/tmp", 1);
	ck_assert_int_eq(
		run_copy("settings", false), READS_HARMLESS | READS_ALL | FINDS_OWN_DAEMON);
	read = run_copy("settings", true);
	ck_assert(read == -1 || read == (READS_HARMLESS | NAMES_IGNORED));
}
END_TEST

TEST_MAIN(settings)
{
	/* Memory of Check is never freed, and with more rights the leak checker cannot run. */
	if (argc > 1)
		_exit(what_is_read());
	return run_suite(all_tests(NULL, NULL));
}
