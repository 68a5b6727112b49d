/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/process.h"

#include <dirent.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Of proc(5), /proc/self/stat. */
struct process_stat {
	unsigned long user_ticks, system_ticks, virtual_bytes;
	unsigned long long start_ticks;
	long resident_pages;
};

static void metric(FILE *out, const char *name, const char *type, const char *help, double value)
{
	fprintf(out, "# HELP process_%s %s\n# TYPE process_%s %s\nprocess_%s %.17g\n", name, help,
		name, type, name, value);
}

static int read_stat(struct process_stat *ret)
{
	FILE *file = fopen("/proc/self/stat", "re");
	char line[1024];
	const char *behind_name;
	size_t length;

	if (!file)
		return -1;
	length = fread(line, 1, sizeof(line) - 1, file);
	fclose(file);
	line[length] = '\0';
	/* The name is in parentheses and may have some itself. */
	behind_name = strrchr(line, ')');
	if (!behind_name)
		return -1;
	return sscanf(behind_name,
		       ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %*d "
		       "%*d %llu %lu %ld",
		       &ret->user_ticks, &ret->system_ticks, &ret->start_ticks, &ret->virtual_bytes,
		       &ret->resident_pages) == 5
		? 0
		: -1;
}

/* Seconds since 1970 when the system was started. */
static double boot_time_s(void)
{
	struct timespec now, up;

	clock_gettime(CLOCK_REALTIME, &now);
	clock_gettime(CLOCK_BOOTTIME, &up);
	return (double)(now.tv_sec - up.tv_sec) + (double)(now.tv_nsec - up.tv_nsec) / 1e9;
}

/* Computed once: a value that changed a little each time would look like a restart. */
static double start_time_s(double ticks)
{
	static double start_s;

	if (start_s == 0)
		start_s = boot_time_s() + ticks / (double)sysconf(_SC_CLK_TCK);
	return start_s;
}

static void write_stat(FILE *out)
{
	double ticks_a_second = (double)sysconf(_SC_CLK_TCK);
	struct process_stat stat;

	if (read_stat(&stat) < 0)
		return;
	metric(out, "cpu_seconds_total", "counter", "User and system CPU time.",
		(double)(stat.user_ticks + stat.system_ticks) / ticks_a_second);
	metric(out, "start_time_seconds", "gauge", "Start of the process, since 1970.",
		start_time_s((double)stat.start_ticks));
	metric(out, "virtual_memory_bytes", "gauge", "Size of the address space in use.",
		(double)stat.virtual_bytes);
	metric(out, "resident_memory_bytes", "gauge", "Memory that is in use.",
		(double)stat.resident_pages * (double)sysconf(_SC_PAGESIZE));
}

static void write_descriptors(FILE *out)
{
	DIR *folder = opendir("/proc/self/fd");
	const struct dirent *entry;
	struct rlimit limit;
	unsigned count = 0;

	if (folder) {
		while ((entry = readdir(folder)))
			count += entry->d_name[0] != '.';
		closedir(folder);
		/* The folder's own is among them. */
		metric(out, "open_fds", "gauge", "Open descriptors.", count - 1);
	}
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		metric(out, "max_fds", "gauge", "Most descriptors that may be open.",
			(double)limit.rlim_cur);
}

void process_write_metrics(FILE *out)
{
	write_stat(out);
	write_descriptors(out);
}
