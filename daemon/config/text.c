/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks the text of ferruled.conf for what libconfig accepts silently: numbers that it cuts to 32
 * bits, and files that it includes.
 */
#include "daemon/config/read.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct scanner {
	struct config_reader *reader;
	const char *at;
	unsigned line;
};

static void skip(struct scanner *scanner, size_t count)
{
	while (count-- && *scanner->at) {
		if (*scanner->at++ == '\n')
			scanner->line++;
	}
}

/* Skips to behind the next `end`, or to the end of the text. */
static void skip_behind(struct scanner *scanner, const char *end)
{
	const char *found = strstr(scanner->at, end);

	skip(scanner, found ? (size_t)(found - scanner->at) + strlen(end) : strlen(scanner->at));
}

static void skip_string(struct scanner *scanner)
{
	skip(scanner, 1);
	while (*scanner->at && *scanner->at != '"')
		skip(scanner, *scanner->at == '\\' ? 2 : 1);
	skip(scanner, 1);
}

static bool check_number(struct scanner *scanner)
{
	const char *start = scanner->at;
	bool hex = start[0] == '0' && (start[1] == 'x' || start[1] == 'X');
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(start, &end, hex ? 16 : 10);
	skip(scanner, (size_t)(end - start));
	if (!hex && *end && strchr(".eE", *end)) {
		skip(scanner, strspn(end, "0123456789.eE+-"));
		return true;
	}
	if (*end == 'L')
		skip(scanner, strspn(end, "L"));
	if (errno || value > (*end == 'L' ? INT64_MAX : INT32_MAX))
		return refuse_line(scanner->reader, scanner->line,
			"the number %.*s is too large; must be at most %d, or end in L",
			(int)(end - start < 40 ? end - start : 40), start, INT32_MAX);
	return true;
}

static bool check_token(struct scanner *scanner)
{
	const char *at = scanner->at;

	if (at[0] == '#' || (at[0] == '/' && at[1] == '/'))
		skip(scanner, strcspn(at, "\n"));
	else if (at[0] == '/' && at[1] == '*')
		skip_behind(scanner, "*/");
	else if (at[0] == '"')
		skip_string(scanner);
	else if (isdigit((unsigned char)at[0]))
		return check_number(scanner);
	else if (isalpha((unsigned char)at[0]))
		while (isalnum((unsigned char)*scanner->at) ||
			(*scanner->at && strchr("-_*", *scanner->at)))
			skip(scanner, 1);
	else if (strncmp(at, "@include", 8) == 0)
		return refuse_line(scanner->reader, scanner->line,
			"other files are not read; all settings must be in this one");
	else
		skip(scanner, 1);
	return true;
}

bool check_text(struct config_reader *reader, const char *text)
{
	struct scanner scanner = { .reader = reader, .at = text, .line = 1 };

	while (*scanner.at) {
		if (!check_token(&scanner))
			return false;
	}
	return true;
}
