/* SPDX-License-Identifier: BSD-3-Clause */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ctl/doctor.h"

static bool make_path(
	const struct doctor *doctor, char path[DOCTOR_PATH], const char *format, va_list args)
{
	int length = snprintf(path, DOCTOR_PATH, "%s", doctor->root), more;

	if (length < 0 || length >= DOCTOR_PATH)
		return false;
	more = vsnprintf(path + length, DOCTOR_PATH - (size_t)length, format, args);
	return more >= 0 && more < DOCTOR_PATH - length;
}

static bool read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t got = 0;

	if (fd < 0)
		return false;
	while (length + 1 < size && (got = read(fd, text + length, size - 1 - length)) > 0)
		length += (size_t)got;
	close(fd);
	while (length && isspace((unsigned char)text[length - 1]))
		length--;
	text[length] = '\0';
	return got >= 0;
}

bool root_text(const struct doctor *doctor, char *text, size_t size, const char *format, ...)
{
	char path[DOCTOR_PATH];
	va_list args;
	bool fits;

	va_start(args, format);
	fits = make_path(doctor, path, format, args);
	va_end(args);
	return fits && read_text(path, text, size);
}

bool root_number(const struct doctor *doctor, long long *ret, const char *format, ...)
{
	char path[DOCTOR_PATH], text[64], *end;
	va_list args;
	bool fits;

	va_start(args, format);
	fits = make_path(doctor, path, format, args);
	va_end(args);
	if (!fits || !read_text(path, text, sizeof(text)) || !text[0])
		return false;
	*ret = strtoll(text, &end, 10);
	return *end == '\0';
}

bool root_exists(const struct doctor *doctor, const char *format, ...)
{
	char path[DOCTOR_PATH];
	va_list args;
	bool fits;

	va_start(args, format);
	fits = make_path(doctor, path, format, args);
	va_end(args);
	return fits && access(path, F_OK) == 0;
}

bool root_access(const struct doctor *doctor, int mode, const char *format, ...)
{
	char path[DOCTOR_PATH];
	va_list args;
	bool fits;

	va_start(args, format);
	fits = make_path(doctor, path, format, args);
	va_end(args);
	return fits && faccessat(AT_FDCWD, path, mode, AT_EACCESS) == 0;
}

bool root_link(const struct doctor *doctor, char *text, size_t size, const char *format, ...)
{
	char path[DOCTOR_PATH], target[DOCTOR_PATH];
	const char *last;
	va_list args;
	ssize_t length;
	bool fits;

	va_start(args, format);
	fits = make_path(doctor, path, format, args);
	va_end(args);
	length = fits ? readlink(path, target, sizeof(target) - 1) : -1;
	if (length < 0)
		return false;
	target[length] = '\0';
	last = strrchr(target, '/');
	snprintf(text, size, "%s", last ? last + 1 : target);
	return true;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(a, b);
}

size_t root_list(const struct doctor *doctor, const char *folder, const char *prefix,
	char names[][DOCTOR_NAME], size_t max)
{
	char path[DOCTOR_PATH];
	const struct dirent *entry;
	size_t count = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s%s", doctor->root, folder);
	dir = opendir(path);
	if (!dir)
		return 0;
	while (count < max && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.' || strncmp(entry->d_name, prefix, strlen(prefix)) ||
			strlen(entry->d_name) >= DOCTOR_NAME)
			continue;
		strcpy(names[count++], entry->d_name);
	}
	closedir(dir);
	qsort(names, count, DOCTOR_NAME, compare_names);
	return count;
}
