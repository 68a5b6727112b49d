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

const char *root_path(const struct doctor *doctor, const char *format, ...)
{
	static char path[DOCTOR_PATH];
	int length = snprintf(path, sizeof(path), "%s", doctor->root), more;
	va_list args;

	if (length < 0 || length >= DOCTOR_PATH)
		return "";
	va_start(args, format);
	more = vsnprintf(path + length, sizeof(path) - (size_t)length, format, args);
	va_end(args);
	return more >= 0 && more < DOCTOR_PATH - length ? path : "";
}

bool file_text(const char *path, char *text, size_t size)
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

bool file_number(const char *path, long long *ret)
{
	char text[64], *end;

	if (!file_text(path, text, sizeof(text)) || !text[0])
		return false;
	*ret = strtoll(text, &end, 10);
	return *end == '\0';
}

bool file_link(const char *path, char *text, size_t size)
{
	char target[DOCTOR_PATH];
	const char *last;
	ssize_t length = readlink(path, target, sizeof(target) - 1);

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
