/* SPDX-License-Identifier: BSD-3-Clause */
/* ferrule-run: runs an unchanged program with parts of Ferrule. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tools/run/run.h"

enum { OPT_VERSION = 1000, OPT_SHARE_MALLOC, OPT_VERBS, OPT_UVERBS, OPT_SYSFS };

/* Room for all blocks of libferrule-malloc.so, which have descriptors from 1024 on. */
enum { FILES = 20480 };

static const char help[] =
	"Runs a program, unchanged, with parts of Ferrule.\n"
	"\n"
	"  ferrule-run [OPTIONS] [--] PROGRAM [ARGUMENT]...\n"
	"\n"
	"The process becomes the program: signals and the exit status are the program's own.\n"
	"The program's children get the same. Below mpirun: mpirun -n 2 ferrule-run PROGRAM.\n"
	"\n"
	"Options:\n"
	"  --verbs         Ferrule's libibverbs.so.1: programs for RDMA NICs run without one.\n"
	"                  Devices: FRL_VERBS_DEVICES. The default if no option is given.\n"
	"  --uverbs        --verbs, and files /dev/infiniband/uverbs_frlN, which UCX wants\n"
	"  --sysfs         --verbs, and attributes /sys/class/infiniband/frlN, which UCX and NCCL\n"
	"                  read\n"
	"  --share-malloc  place large allocations of malloc() and its family in memory that\n"
	"                  other processes of this machine can read, as frl_mem_alloc() does:\n"
	"                  collectives and connections on one machine then copy less.\n"
	"                  Settings: FRL_SHARE_MALLOC_KB (256), FRL_SHARE_MALLOC_KEEP_MB (64);\n"
	"                  FERRULE_LOG=info shows what is not shared, and why\n"
	"  -h, --help      print this text\n"
	"  --version       print the version\n"
	"\n"
	"--uverbs and --sysfs make a mount namespace, and for users without CAP_SYS_ADMIN a user\n"
	"namespace: put ferrule-run in front of mpirun, not of each rank. Setuid programs have no\n"
	"rights in a user namespace. --verbs and --share-malloc do not affect statically linked\n"
	"and setuid programs.\n"
	"\n"
	"Exit status: the program's; 2 invalid usage, a file of Ferrule is missing or the kernel\n"
	"refuses a namespace, 126 the program cannot be run, 127 there is no such program.\n";

struct parts {
	bool share_malloc, verbs, uverbs, sysfs;
};

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
	int rc = preload_malloc();

	if (!rc)
		allow_files();
	return rc;
}

static int set_up(const struct parts *parts)
{
	int rc = 0;

	if (parts->share_malloc)
		rc = share_malloc();
	if (parts->verbs && !rc)
		rc = use_verbs_library();
	if ((parts->uverbs || parts->sysfs) && !rc)
		rc = show_devices(parts->uverbs, parts->sysfs);
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
		{ "verbs", no_argument, NULL, OPT_VERBS },
		{ "uverbs", no_argument, NULL, OPT_UVERBS },
		{ "sysfs", no_argument, NULL, OPT_SYSFS },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, OPT_VERSION },
		{ NULL, 0, NULL, 0 },
	};
	struct parts parts = { 0 };
	int option, rc;

	/* "+": options behind the program's name are the program's. */
	while ((option = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
		switch (option) {
		case OPT_SHARE_MALLOC: parts.share_malloc = true; break;
		case OPT_VERBS: parts.verbs = true; break;
		case OPT_UVERBS: parts.uverbs = parts.verbs = true; break;
		case OPT_SYSFS: parts.sysfs = parts.verbs = true; break;
		case 'h': fputs(help, stdout); return finish_output();
		case OPT_VERSION: puts("ferrule-run " FERRULE_VERSION); return finish_output();
		default: return usage_error("bad option");
		}
	}
	if (optind == argc)
		return usage_error("no program given");
	parts.verbs = parts.verbs || !parts.share_malloc;
	rc = set_up(&parts);
	return rc ? rc : run(argv + optind);
}
