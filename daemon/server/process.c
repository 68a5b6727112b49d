/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/server/process.h"

#include <dirent.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <unistd.h>

static void metric(FILE *out, const char *name, const char *type, const char *help, double value)
{
	fprintf(out, "# HELP process_%s %s\n# TYPE process_%s %s\nprocess_%s %.17g\n", name, help,
		name, type, name, value);
}

static double seconds(const struct timeval *time)
{
	return (double)time->tv_sec + (double)time->tv_usec / 1e6;
}

/* Returns false if it is unknown. */
static bool resident_pages(long *ret)
{
	FILE *file = fopen("/proc/self/statm", "re");
	bool done = file && fscanf(file, "%*d %ld", ret) == 1;

	if (file)
		fclose(file);
	return done;
}

/* Returns false if it is unknown. */
static bool open_files(unsigned *ret)
{
	DIR *folder = opendir("/proc/self/fd");
	const struct dirent *entry;

	if (!folder)
		return false;
	for (*ret = 0; (entry = readdir(folder));)
		*ret += entry->d_name[0] != '.';
	closedir(folder);
	--*ret; /* without the one for this directory */
	return true;
}

void process_write_metrics(FILE *out)
{
	struct rusage used;
	struct rlimit limit;
	unsigned files;
	long pages;

	if (getrusage(RUSAGE_SELF, &used) == 0)
		metric(out, "cpu_seconds_total", "counter", "User and system CPU time.",
			seconds(&used.ru_utime) + seconds(&used.ru_stime));
	if (resident_pages(&pages))
		metric(out, "resident_memory_bytes", "gauge", "Resident memory.",
			(double)pages * (double)sysconf(_SC_PAGESIZE));
	if (open_files(&files))
		metric(out, "open_fds", "gauge", "Open descriptors.", files);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		metric(out, "max_fds", "gauge", "Limit of open descriptors.",
			(double)limit.rlim_cur);
}
