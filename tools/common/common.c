/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/common/common.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/common/printable.h"

static int my_rank = -1;

void say_rank(int rank)
{
	my_rank = rank;
}

/*
 * Removes control characters, which may come from a file or a peer, before they reach the terminal.
 */
static void print_line(char *line, size_t size, size_t used)
{
	if (used > size - 2)
		used = size - 2;
	make_printable(line, used);
	line[used++] = '\n';
	fflush(stdout);
	if (write(STDERR_FILENO, line, used) < 0)
		return; /* there is no other place to report this */
}

static size_t append(char *line, size_t size, size_t used, const char *format, va_list args)
{
	int n;

	if (used >= size)
		return used;
	n = vsnprintf(line + used, size - used, format, args);
	return n < 0 ? used : used + (size_t)n;
}

static size_t appendf(char *line, size_t size, size_t used, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static size_t appendf(char *line, size_t size, size_t used, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	used = append(line, size, used, format, args);
	va_end(args);
	return used;
}

static size_t start_line(char *line, size_t size)
{
	size_t used = appendf(line, size, 0, "%s: ", program_invocation_short_name);

	return my_rank < 0 ? used : appendf(line, size, used, "rank %d: ", my_rank);
}

void say(const char *format, ...)
{
	char line[1200];
	size_t used = start_line(line, sizeof(line));
	va_list args;

	va_start(args, format);
	used = append(line, sizeof(line), used, format, args);
	va_end(args);
	print_line(line, sizeof(line), used);
}

void say_failure(int rc, const char *format, ...)
{
	const char *reason = frl_last_error();
	char line[1200];
	size_t used = start_line(line, sizeof(line));
	va_list args;

	va_start(args, format);
	used = append(line, sizeof(line), used, format, args);
	va_end(args);
	used = appendf(line, sizeof(line), used, ": %s", *reason ? reason : frl_strerror(rc));
	print_line(line, sizeof(line), used);
}

int usage_error(const char *format, ...)
{
	char line[600];
	size_t used = start_line(line, sizeof(line));
	va_list args;

	va_start(args, format);
	used = append(line, sizeof(line), used, format, args);
	va_end(args);
	used = appendf(line, sizeof(line), used, " (see --help)");
	print_line(line, sizeof(line), used);
	return EXIT_USAGE;
}

int finish_output(int status)
{
	/* An earlier failed write has no errno left. */
	if (fflush(stdout))
		say("cannot write to standard output: %s", strerror(errno));
	else if (ferror(stdout))
		say("cannot write to standard output");
	else
		return status;
	return status ? status : EXIT_FAILURE;
}

bool parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
	unsigned long long value;
	char *end;

	if (!isdigit((unsigned char)*text)) /* strtoull() accepts a sign */
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || *end || value < min || value > max)
		return false;
	*ret_value = value;
	return true;
}

bool parse_size(const char *text, uint64_t *ret_bytes)
{
	static const char units[] = "KMG";
	unsigned long long value;
	const char *unit;
	unsigned shift = 0;
	char *end;

	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno)
		return false;
	unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
	if (unit) {
		shift = 10 * (unsigned)(unit - units + 1);
		end++;
		if (strcmp(end, "iB") == 0)
			end += 2;
	}
	if (strcmp(end, "B") == 0)
		end++;
	if (*end || value > UINT64_MAX >> shift)
		return false;
	*ret_bytes = value << shift;
	return true;
}

char *format_bytes(uint64_t bytes, char text[static 16])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double value = (double)bytes;
	size_t unit = 0;

	while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		value /= 1024;
		unit++;
	}
	snprintf(text, 16, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return text;
}

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

double quantile(const double sorted[], size_t n, double q)
{
	double position = q * (double)n;
	size_t index = (size_t)position;

	if ((double)index < position)
		index++; /* round up: rank 1 is the first */
	return sorted[index == 0 ? 0 : index > n ? n - 1 : index - 1];
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void sort_doubles(double values[], size_t n)
{
	qsort(values, n, sizeof(values[0]), compare_doubles);
}

char *path_of_rank(const char *pattern, int rank)
{
	char *path = NULL;
	size_t size;
	FILE *out = open_memstream(&path, &size);

	if (!out)
		return NULL;
	for (const char *at = pattern; *at; at++) {
		if (at[0] == '%' && at[1] == 'r') {
			fprintf(out, "%d", rank);
			at++;
		} else {
			fputc(*at, out);
		}
	}
	if (fclose(out)) {
		free(path);
		return NULL;
	}
	return path;
}

int make_folders(const char *path)
{
	char *copy = strdup(path), *slash;
	int rc = 0;

	if (!copy)
		return -ENOMEM;
	slash = *copy ? strchr(copy + 1, '/') : NULL;
	for (; slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(copy, 0777) && errno != EEXIST) {
			rc = -errno;
			break;
		}
		*slash = '/';
	}
	free(copy);
	return rc;
}
