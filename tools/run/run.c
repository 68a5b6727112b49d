/* SPDX-License-Identifier: BSD-3-Clause */
/* ferrule-run: runs an unchanged program with parts of Ferrule. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Statuses of env(1) and of shells. */
enum { EXIT_USAGE = 2, EXIT_NO_RUN = 126, EXIT_NO_PROGRAM = 127 };

enum { OPT_VERSION = 1000, OPT_SHARE_MALLOC };

/* Room for all blocks of libferrule-malloc.so, which have descriptors from 1024 on. */
enum { FILES = 20480 };

#define MALLOC_LIBRARY "libferrule-malloc.so"

static const char help[] =
	"Runs a program, unchanged, with parts of Ferrule.\n"
	"\n"
	"  ferrule-run OPTIONS [--] PROGRAM [ARGUMENT]...\n"
	"\n"
	"The process becomes the program: signals and the exit status are the program's own.\n"
	"Below mpirun: mpirun -n 2 ferrule-run --share-malloc PROGRAM.\n"
	"\n"
	"Options:\n"
	"  --share-malloc  place large allocations of malloc() and its family in memory that\n"
	"                  other processes of this machine can read, as frl_mem_alloc() does:\n"
	"                  collectives and connections on one machine then copy less. Applies to\n"
	"                  the program's children, too. Settings: FRL_SHARE_MALLOC_KB (256),\n"
	"                  FRL_SHARE_MALLOC_KEEP_MB (64); FERRULE_LOG=info shows what is not\n"
	"                  shared, and why. No effect on statically linked and setuid programs.\n"
	"  -h, --help      print this text\n"
	"  --version       print the version\n"
	"\n"
	"Exit status: the program's; 2 invalid usage or a file of Ferrule is missing, 126 the\n"
	"program cannot be run, 127 there is no such program.\n";

static int usage_error(const char *message)
{
	fprintf(stderr, "ferrule-run: %s; try --help\n", message);
	return EXIT_USAGE;
}

static int finish_output(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return EXIT_SUCCESS;
	fprintf(stderr, "ferrule-run: standard output: %s\n", strerror(errno));
	return EXIT_FAILURE;
}

/* ---- files of Ferrule */

static bool try_file(char path[PATH_MAX], const char *folder, const char *up, const char *name)
{
	int n = snprintf(path, PATH_MAX, "%s%s/%s", folder, up, name);

	return n > 0 && n < PATH_MAX && access(path, R_OK) == 0;
}

/* Finds a library of the same installation, which may have been moved, or of the same build. */
static bool find_library(char path[PATH_MAX], const char *name)
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
			try_file(path, folder, "/..", name))
			return true;
	}
	return try_file(path, RUN_LIBRARY_INSTALLED, "", name);
}

/* Puts a library in front of LD_PRELOAD. */
static int preload(const char *name)
{
	const char *others = getenv("LD_PRELOAD");
	char path[PATH_MAX], *value;
	int err;

	if (!find_library(path, name)) {
		fprintf(stderr,
			"ferrule-run: there is no %s in " RUN_LIBRARY_INSTALLED
			": install Ferrule completely\n",
			name);
		return EXIT_USAGE;
	}
	/* The loader separates names there. */
	if (strpbrk(path, ": ")) {
		fprintf(stderr,
			"ferrule-run: LD_PRELOAD cannot name %s: move Ferrule to a folder without "
			"blanks and colons\n",
			path);
		return EXIT_USAGE;
	}
	if (asprintf(&value, "%s%s%s", path, others && *others ? ":" : "", others ? others : "") <
		0) {
		fprintf(stderr, "ferrule-run: no memory\n");
		return EXIT_USAGE;
	}
	err = setenv("LD_PRELOAD", value, 1);
	free(value);
	if (!err)
		return 0;
	fprintf(stderr, "ferrule-run: setting LD_PRELOAD: %s\n", strerror(errno));
	return EXIT_USAGE;
}

/* ---- options */

/* Allocations have descriptors. Without this limit fewer of them are shareable. */
static void allow_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= FILES)
		return;
	limit.rlim_cur = limit.rlim_max < FILES ? limit.rlim_max : FILES;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static int share_malloc(void)
{
	int rc = preload(MALLOC_LIBRARY);

	if (!rc)
		allow_files();
	return rc;
}

static int run(char **argv)
{
	int err;

	execvp(argv[0], argv);
	err = errno;
	fprintf(stderr, "ferrule-run: %s: %s%s\n", argv[0], strerror(err),
		err == ENOENT ? ": is it in PATH, and is its interpreter installed?" : "");
	return err == ENOENT ? EXIT_NO_PROGRAM : EXIT_NO_RUN;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "share-malloc", no_argument, NULL, OPT_SHARE_MALLOC },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, OPT_VERSION },
		{ NULL, 0, NULL, 0 },
	};
	bool shares_malloc = false;
	int option, rc;

	/* "+": options behind the program's name are the program's. */
	while ((option = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
		switch (option) {
		case OPT_SHARE_MALLOC: shares_malloc = true; break;
		case 'h': fputs(help, stdout); return finish_output();
		case OPT_VERSION: puts("ferrule-run " FERRULE_VERSION); return finish_output();
		default: return usage_error("bad option");
		}
	}
	if (optind == argc)
		return usage_error("no program given");
	if (!shares_malloc)
		return usage_error("no option says what the program gets: give --share-malloc");
	rc = share_malloc();
	return rc ? rc : run(argv + optind);
}
