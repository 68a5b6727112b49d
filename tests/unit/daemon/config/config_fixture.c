/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/daemon/config/config_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <check.h>

char config_path[] = "/tmp/test_config_XXXXXX";
char config_error[512];

void config_setup(void)
{
	int fd;

	strcpy(config_path + strlen(config_path) - 6, "XXXXXX");
	fd = mkstemp(config_path);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

void config_teardown(void)
{
	unlink(config_path);
}

struct config *config_from_bytes(const char *text, size_t length)
{
	FILE *file = fopen(config_path, "w");

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(text, 1, length, file), length);
	fclose(file);
	config_error[0] = '\0';
	return config_load(config_path, config_error, sizeof(config_error));
}

static struct config *load(const char *text)
{
	return config_from_bytes(text, strlen(text));
}

struct config *config_right(const char *text)
{
	struct config *config = load(text);

	ck_assert_msg(config, "%s: %s", text, config_error);
	return config;
}

void config_wrong(const char *text, const char *place, const char *words)
{
	struct config *config = load(text);
	char start[600];

	snprintf(start, sizeof(start), "%s:%s", config_path, place);
	ck_assert_msg(!config, "%s: taken", text);
	ck_assert_msg(strncmp(config_error, start, strlen(start)) == 0,
		"%s: \"%s\" does not start with %s", text, config_error, start);
	ck_assert_msg(
		strstr(config_error, words), "%s: \"%s\" lacks \"%s\"", text, config_error, words);
}
