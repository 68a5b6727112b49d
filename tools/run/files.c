/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of the same installation, which may have been moved, or of the same build. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/run/run.h"

#define MALLOC_LIBRARY "libferrule-malloc.so"
#define VERBS_LIBRARY  "rdma/libibverbs.so.1"

static bool try_file(char path[PATH_MAX], const char *folder, const char *up, const char *name)
{
	int n = snprintf(path, PATH_MAX, "%s%s/%s", folder, up, name);

	return n > 0 && n < PATH_MAX && access(path, R_OK) == 0;
}

/* Finds a file of Ferrule's folder of libraries; in a build it is in the folder `build`. */
static int find_file(char path[PATH_MAX], const char *name, const char *build)
{
	char folder[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", folder, sizeof(folder) - 1);
	char *slash;

	if (len > 0) {
		folder[len] = '\0';
		slash = strrchr(folder, '/');
		if (slash)
			*slash = '\0';
		if (try_file(path, folder, "/" RUN_LIBRARY_UP, name) ||
			try_file(path, folder, build, name))
			return 0;
	}
	if (try_file(path, RUN_LIBRARY_INSTALLED, "", name))
		return 0;
	fprintf(stderr,
		"ferrule-run: there is no %s in " RUN_LIBRARY_INSTALLED
		": install Ferrule completely\n",
		name);
	return EXIT_USAGE;
}

static int cannot_name(const char *variable, const char *path, const char *characters)
{
	fprintf(stderr, "ferrule-run: %s cannot name %s: move Ferrule to a folder without %s\n",
		variable, path, characters);
	return EXIT_USAGE;
}

/* Sets a variable to `first`, a colon and `others`, or to the one that is not empty. */
static int set_path(const char *variable, const char *first, const char *others)
{
	char *value;
	int err;

	if (asprintf(&value, "%s%s%s", first, *others ? ":" : "", others) < 0) {
		fprintf(stderr, "ferrule-run: no memory\n");
		return EXIT_USAGE;
	}
	err = setenv(variable, value, 1);
	free(value);
	if (!err)
		return 0;
	fprintf(stderr, "ferrule-run: setting %s: %s\n", variable, strerror(errno));
	return EXIT_USAGE;
}

int preload_malloc(void)
{
	const char *others = getenv("LD_PRELOAD");
	char path[PATH_MAX];
	int rc = find_file(path, MALLOC_LIBRARY, "/..");

	if (rc)
		return rc;
	/* The loader separates names there. */
	if (strpbrk(path, ": "))
		return cannot_name("LD_PRELOAD", path, "blanks and colons");
	return set_path("LD_PRELOAD", path, others ? others : "");
}

/* Removes a folder from a list of folders, in place. */
static void remove_folder(char *list, const char *folder)
{
	const size_t length = strlen(folder);
	char *item = list, *end = list;

	for (;;) {
		size_t n = strcspn(item, ":;");
		bool is_last = !item[n];

		if (n != length || strncmp(item, folder, n) != 0) {
			memmove(end, item, n + 1);
			end += n + 1;
		}
		if (is_last)
			break;
		item += n + 1;
	}
	/* The last separator: an empty name behind it would be the current folder. */
	end[end > list ? -1 : 0] = '\0';
}

int use_verbs_library(void)
{
	const char *others = getenv("LD_LIBRARY_PATH");
	char path[PATH_MAX], folder[PATH_MAX], *list;
	int rc = find_file(path, VERBS_LIBRARY, "/../dropin");

	if (rc)
		return rc;
	*strrchr(path, '/') = '\0';
	/* One name, wherever ferrule-run was started from. */
	if (!realpath(path, folder))
		return refused("reading", path);
	/* The loader separates names there, and replaces $LIB and others. */
	if (strpbrk(folder, ":;$"))
		return cannot_name("LD_LIBRARY_PATH", folder, "colons, semicolons and '$'");
	list = strdup(others ? others : "");
	if (!list) {
		fprintf(stderr, "ferrule-run: no memory\n");
		return EXIT_USAGE;
	}
	remove_folder(list, folder);
	rc = set_path("LD_LIBRARY_PATH", folder, list);
	free(list);
	return rc;
}
