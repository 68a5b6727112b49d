/* SPDX-License-Identifier: BSD-3-Clause */
#include <check.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/net/addr.h"
#include "lib/base/net/ip.h"

#include "tests/fixtures/program.h"

struct line {
	enum frl_log_level level;
	char text[1024];
	int count;
};

static void keep_line(enum frl_log_level level, const char *text, void *arg)
{
	struct line *line = arg;

	line->level = level;
	line->count++;
	snprintf(line->text, sizeof(line->text), "%s", text);
}

START_TEST(fail_keeps_text)
{
	ck_assert_int_eq(frl_fail(-EINVAL, "count is %d", 7), -EINVAL);
	ck_assert_str_eq(frl_last_error(), "count is 7");
	ck_assert_int_eq(frl_fail(ENOMEM, "positive"), -ENOMEM);
	ck_assert_str_eq(frl_last_error(), "positive");
}
END_TEST

START_TEST(fail_may_quote_last_error)
{
	frl_fail(-EINVAL, "inner");
	frl_fail(-EINVAL, "outer: %s", frl_last_error());
	ck_assert_str_eq(frl_last_error(), "outer: inner");
}
END_TEST

START_TEST(long_text_is_cut)
{
	char text[2000];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	frl_fail(-EINVAL, "%s", text);
	ck_assert_uint_lt(strlen(frl_last_error()), 600);
	ck_assert_uint_gt(strlen(frl_last_error()), 400);
}
END_TEST

/* Texts of others are quoted in messages, which are shown on terminals. */
START_TEST(text_is_clean)
{
	struct line line = { .count = 0 };

	frl_fail(-EINVAL, "'%s' is no host", "h\033[2J\n\xc3\xa4\xff");
	ck_assert_str_eq(frl_last_error(), "'h?[2J?\xc3\xa4?' is no host");
	frl_set_log(keep_line, FRL_LOG_INFO, &line);
	frl_log(FRL_LOG_INFO, "from %s", "\033c");
	frl_set_log(NULL, FRL_LOG_INFO, NULL);
	ck_assert_str_eq(line.text, "from ?c");
}
END_TEST

static void *look_and_fail(void *arg)
{
	bool *was_empty = arg;

	*was_empty = frl_last_error()[0] == '\0';
	frl_fail(-EIO, "other thread");
	return NULL;
}

START_TEST(each_thread_has_its_own)
{
	bool was_empty = false;
	pthread_t thread;

	frl_fail(-EINVAL, "this thread");
	ck_assert_int_eq(pthread_create(&thread, NULL, look_and_fail, &was_empty), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert(was_empty);
	ck_assert_str_eq(frl_last_error(), "this thread");
}
END_TEST

static const char *text_of_thread;

static void *fail_repeatedly(void *arg)
{
	frl_fail(-EIO, "first");
	text_of_thread = frl_last_error();
	frl_fail(-EIO, "%s", frl_strerror(-123456));
	ck_assert_ptr_eq(frl_last_error(), text_of_thread);
	return NULL;
}

/* The thread's buffers are its own pages: after its end they are not mapped. */
START_TEST(texts_end_with_their_thread)
{
	uintptr_t page = ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
	unsigned char is_resident;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, fail_repeatedly, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(mincore((void *)((uintptr_t)text_of_thread & page), 1, &is_resident), -1);
	ck_assert_int_eq(errno, ENOMEM);
}
END_TEST

static const char *text_of_an_address(void)
{
	const struct frl_ip ip = ip_from_v4((const uint8_t[]){ 10, 0, 0, 1 });

	return format_ip(&ip);
}

static const char *text_of_a_number(void)
{
	return frl_strerror(-123456);
}

static const char *(*const without_memory[])(
	void) = { frl_last_error, text_of_an_address, text_of_a_number };

static void *fail_without_memory(void *arg)
{
	const struct rlimit none = { 0, RLIM_INFINITY };
	int rc;

	/* Check's assertions call malloc(). */
	setrlimit(RLIMIT_AS, &none);
	rc = frl_fail(-EIO, "text");
	for (size_t i = 0; i < ROWS(without_memory); i++)
		if (!strstr(without_memory[i](), "no memory"))
			*(size_t *)arg = i + 1;
	frl_fail(-EIO, "text");
	setrlimit(RLIMIT_AS, &(const struct rlimit){ RLIM_INFINITY, RLIM_INFINITY });
	ck_assert_int_eq(rc, -EIO);
	ck_assert_str_eq(frl_last_error(), "no memory for the text of the error");
	frl_fail(-EIO, "later");
	ck_assert_str_eq(frl_last_error(), "later");
	return NULL;
}

START_TEST(failures_without_memory)
{
	size_t wrong = 0;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, fail_without_memory, &wrong), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_eq(wrong, 0);
}
END_TEST

START_TEST(saved_text_is_restored)
{
	char before[ERROR_TEXT_MAX];

	error_restore((const char[ERROR_TEXT_MAX]){ "" });
	error_save(before);
	ck_assert_str_eq(before, "");
	frl_fail(-EIO, "attempt");
	error_restore(before);
	ck_assert_str_eq(frl_last_error(), "");
	frl_fail(-EIO, "kept");
	error_save(before);
	frl_fail(-EIO, "attempt");
	error_restore(before);
	ck_assert_str_eq(frl_last_error(), "kept");
}
END_TEST

START_TEST(strerror_of_both_signs)
{
	ck_assert_str_eq(frl_strerror(-ENOMEM), strerror(ENOMEM));
	ck_assert_str_eq(frl_strerror(ENOMEM), strerror(ENOMEM));
	ck_assert_ptr_nonnull(frl_strerror(0));
	ck_assert_ptr_nonnull(frl_strerror(-123456));
	ck_assert_ptr_nonnull(frl_strerror(INT_MIN));
	ck_assert_ptr_nonnull(frl_strerror(INT_MAX));
}
END_TEST

static const struct {
	enum frl_log_level wanted, level;
	int count;
} log_rows[] = {
	{ FRL_LOG_ERROR, FRL_LOG_ERROR, 1 },
	{ FRL_LOG_ERROR, FRL_LOG_WARNING, 0 },
	{ FRL_LOG_WARNING, FRL_LOG_ERROR, 1 },
	{ FRL_LOG_INFO, FRL_LOG_INFO, 1 },
	{ FRL_LOG_INFO, FRL_LOG_DEBUG, 0 },
	{ FRL_LOG_DEBUG, FRL_LOG_DEBUG, 1 },
};

START_LOOP_TEST(log_levels, ROWS(log_rows))
{
	struct line line = { 0 };

	frl_set_log(keep_line, log_rows[_i].wanted, &line);
	frl_log(log_rows[_i].level, "%s %d", "line", 1);
	frl_set_log(NULL, FRL_LOG_DEBUG, NULL);
	frl_log(FRL_LOG_ERROR, "to nobody");
	ck_assert_int_eq(line.count, log_rows[_i].count);
	if (line.count) {
		ck_assert_str_eq(line.text, "line 1");
		ck_assert_int_eq(line.level, log_rows[_i].level);
	}
}
END_TEST

TEST_FILE(error)
