/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls a net plugin as NCCL's proxy does, row by row, without NCCL and without a GPU. Loads the
 * plugin by path; each row runs in processes of its own, under a deadline. `--list` lists rows.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/nccl/caller/runner.h"

static const struct row *const tables[] = { setup_rows, data_rows, group_rows, flag_rows,
	thread_rows, fault_rows, life_rows, end_rows, tuner_rows, unpack_rows, share_rows };

/* The limit of a call. Sanitizers make the start of a device slow, which is in the first call. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SLOW_MS 30000
#else
#define SLOW_MS 2000
#endif

struct totals {
	unsigned int passed;
	unsigned int failed;
	unsigned int skipped;
};

struct options {
	struct setup setup;
	char path[PATH_MAX];
	unsigned int versions; /* a bit each; bit 0: the newest that there is */
	bool has_threads;      /* sides in threads as well */
	bool has_processes;
	bool only_threads; /* rows that are worth it under ThreadSanitizer */
	bool is_slow;
	unsigned int seconds;
	char **names;
	int n_names;
};

static void usage(FILE *to)
{
	fputs("nccl-harness [options] PLUGIN.so [ROW]...\n"
	      "  --abi LIST      versions of the table, 6 to 12, or all (default: the newest)\n"
	      "  --sides WHAT    threads, processes, or both (default): where a pair's sides are\n"
	      "  --device A,B    devices of sender and receiver (0,0)\n"
	      "  --fuse N        pairs use the first N devices as one\n"
	      "  --side I        only that side (0 sends, 1 receives); the other is elsewhere\n"
	      "  --meet H:PORT   where the receiver's side listens for the other, with --side\n"
	      "  --netns A,B     network namespaces of sender and receiver\n"
	      "  --mem WHERE     host (default), or cuda: buffers on GPU 0, in rows that can\n"
	      "  --set I:N=V     environment of side I (0 sends, 1 receives)\n"
	      "  --seconds S     deadline of each row, instead of its own\n"
	      "  --dead S        within which a dead peer has to be noticed (20)\n"
	      "  --slow-ms MS    a call that takes longer has blocked (2000)\n"
	      "  --slow          slow rows as well\n"
	      "  --threads-only  rows for ThreadSanitizer\n"
	      "  --expect N=V    what the plugin is known to say, see expected() in row.h\n"
	      "  --no-tuner      NCCL loads no tuner of the plugin's, or later than it connects\n"
	      "  --one-host      all ranks are on one host, and use the network all the same\n"
	      "  --split         a communicator that was split off, by its parent's context\n"
	      "  --traffic-class N  of NCCL's configuration\n"
	      "  --verbose       what the plugin logs\n"
	      "  --list          rows, and what they are\n"
	      "Exit status: 0 all passed, 1 one failed, 77 all were skipped, 2 usage.\n",
		to);
}

static void list(void)
{
	for (unsigned int i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (const struct row *row = tables[i]; row->name; row++)
			printf("%-17s %s%s\n", row->name, row->what,
				row->flags & ROW_SLOW              ? " (slow)"
					: row->flags & ROW_BY_NAME ? " (by name)"
								   : "");
}

static void show_log(int fd)
{
	char text[8000];
	off_t size = lseek(fd, 0, SEEK_END);
	off_t from = size > (off_t)sizeof(text) ? size - (off_t)sizeof(text) : 0;
	ssize_t n = pread(fd, text, sizeof(text), from);

	if (n > 0) {
		printf("--- log of the plugin\n%.*s---\n", (int)n, text);
		fflush(stdout);
	}
}

static void run(struct options *o, const struct row *row, int version, bool has_processes,
	struct totals *totals)
{
	static const char *const words[] = { "ok", "FAILED", "skipped" };
	const char *sides = has_processes ? "processes" : "threads";
	uint64_t start_ns = now_ns();
	enum outcome outcome;

	o->setup.version = version;
	o->setup.has_processes = has_processes;
	if (ftruncate(o->setup.log_fd, 0))
		perror("ftruncate");
	outcome = run_row(&o->setup, row, o->seconds);
	if (outcome == PASSED)
		totals->passed++;
	else if (outcome == FAILED)
		totals->failed++;
	else
		totals->skipped++;
	printf("%-7s v%-2d %-9s %-17s %6.2f s%s%s\n", words[outcome],
		version ? version : report->version, row->solo ? "solo" : sides, row->name,
		(double)(now_ns() - start_ns) / 1e9, report->text[0] ? "  " : "", report->text);
	fflush(stdout);
	if (outcome == FAILED || o->setup.is_verbose)
		show_log(o->setup.log_fd);
}

static bool is_wanted(const struct options *o, const struct row *row)
{
	if (slots_are_on_gpu && !(row->flags & ROW_GPU))
		return false;
	for (int i = 0; i < o->n_names; i++)
		if (strcmp(o->names[i], row->name) == 0)
			return true;
	if (o->n_names || row->flags & ROW_BY_NAME)
		return false;
	if (o->only_threads)
		return row->flags & ROW_THREADS;
	return o->is_slow || !(row->flags & ROW_SLOW);
}

static void run_version(struct options *o, int version, struct totals *totals)
{
	for (unsigned int i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		for (const struct row *row = tables[i]; row->name; row++) {
			if (!is_wanted(o, row) || (o->setup.meet && row->solo))
				continue;
			if (row->solo ||
				(o->has_threads && !o->setup.meet && !(row->flags & ROW_PROCESSES)))
				run(o, row, version, false, totals);
			if (!row->solo && o->has_processes)
				run(o, row, version, true, totals);
		}
	}
}

static bool read_versions(struct options *o, const char *text)
{
	if (strcmp(text, "all") == 0)
		text = "12,11,10,9,8,7,6";
	while (*text) {
		char *end;
		long version = strtol(text, &end, 10);

		if (end == text || version < NCCL_OLDEST_VERSION || version > NCCL_NEWEST_VERSION)
			return false;
		o->versions |= 1u << version;
		text = *end == ',' ? end + 1 : end;
		if (*end && *end != ',')
			return false;
	}
	return o->versions;
}

static bool read_pair(char *text, const char *ret[2])
{
	char *comma = strchr(text, ',');

	if (!comma)
		return false;
	*comma = '\0';
	ret[0] = text;
	ret[1] = comma + 1;
	return true;
}

static bool read_setting(struct setup *setup, const char *text)
{
	unsigned int side = text[0] == '1';

	if ((text[0] != '0' && text[0] != '1') || text[1] != ':' || !strchr(text, '=') ||
		setup->n_settings[side] == MAX_SIDE_SETTINGS)
		return false;
	setup->settings[side][setup->n_settings[side]++] = text + 2;
	return true;
}

static bool read_expected(struct setup *setup, const char *text)
{
	if (!strchr(text, '=') || setup->n_expected == MAX_EXPECTED)
		return false;
	setup->expected[setup->n_expected++] = text;
	return true;
}

static bool read_sides(struct options *o, const char *text)
{
	o->has_threads = strcmp(text, "processes") != 0;
	o->has_processes = strcmp(text, "threads") != 0;
	return !o->has_threads || !o->has_processes || strcmp(text, "both") == 0;
}

static bool read_option(struct options *o, int option, char *argument)
{
	const char *pair[2];

	switch (option) {
	case 'a': return read_versions(o, argument);
	case 's': return read_sides(o, argument);
	case 'd':
		if (!read_pair(argument, pair))
			return false;
		o->setup.device[0] = atoi(pair[0]);
		o->setup.device[1] = atoi(pair[1]);
		return true;
	case 'f': o->setup.n_fused = atoi(argument); return o->setup.n_fused > 1;
	case 'i':
		o->setup.own_side = argument[0] == '1';
		return argument[0] == '0' || argument[0] == '1';
	case 'm': o->setup.meet = argument; return true;
	case 'M':
		slots_are_on_gpu = strcmp(argument, "cuda") == 0;
		return slots_are_on_gpu || strcmp(argument, "host") == 0;
	case 'n': return read_pair(argument, o->setup.netns);
	case 'e': return read_setting(&o->setup, argument);
	case 't': o->seconds = (unsigned int)atoi(argument); return true;
	case 'D': o->setup.dead_s = (unsigned int)atoi(argument); return true;
	case 'b': o->setup.slow_ms = (unsigned int)atoi(argument); return true;
	case 'x': return read_expected(&o->setup, argument);
	case 'c': o->setup.traffic_class = atoi(argument); return true;
	case 'N': plugin_has_no_tuner = true; return true;
	case 'P': plugin_splits = true; return true;
	case 'O': plugin_is_on_one_host = true; return true;
	case 'S': o->is_slow = true; return true;
	case 'T': o->only_threads = true; return true;
	case 'v': o->setup.is_verbose = true; return true;
	case 'l': list(); exit(0);
	case 'h': usage(stdout); exit(0);
	default: return false;
	}
}

static bool read_options(struct options *o, int argc, char **argv)
{
	static const struct option known[] = { { "abi", 1, 0, 'a' }, { "sides", 1, 0, 's' },
		{ "device", 1, 0, 'd' }, { "fuse", 1, 0, 'f' }, { "side", 1, 0, 'i' },
		{ "meet", 1, 0, 'm' }, { "netns", 1, 0, 'n' }, { "set", 1, 0, 'e' },
		{ "seconds", 1, 0, 't' }, { "dead", 1, 0, 'D' }, { "slow-ms", 1, 0, 'b' },
		{ "mem", 1, 0, 'M' }, { "expect", 1, 0, 'x' }, { "traffic-class", 1, 0, 'c' },
		{ "no-tuner", 0, 0, 'N' }, { "slow", 0, 0, 'S' }, { "split", 0, 0, 'P' },
		{ "one-host", 0, 0, 'O' }, { "threads-only", 0, 0, 'T' }, { "verbose", 0, 0, 'v' },
		{ "list", 0, 0, 'l' }, { "help", 0, 0, 'h' }, { 0 } };
	int option;

	while ((option = getopt_long(argc, argv, "h", known, NULL)) != -1)
		if (!read_option(o, option, optarg))
			return false;
	if (optind >= argc)
		return false;
	/* Needs a whole path: dlopen searches for plain names in other places. */
	o->setup.path = realpath(argv[optind], o->path) ? o->path : argv[optind];
	o->names = argv + optind + 1;
	o->n_names = argc - optind - 1;
	for (int i = 0; i < o->n_names; i++) {
		bool is_known = false;

		for (unsigned int t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
			for (const struct row *row = tables[t]; row->name; row++)
				is_known = is_known || strcmp(row->name, o->names[i]) == 0;
		if (!is_known) {
			fprintf(stderr, "there is no row %s; see --list\n", o->names[i]);
			return false;
		}
	}
	return true;
}

int main(int argc, char **argv)
{
	struct options o = { .has_threads = true,
		.has_processes = true,
		.setup = { .slow_ms = SLOW_MS, .dead_s = 20, .traffic_class = -1 } };
	struct totals totals = { 0 };

	if (!read_options(&o, argc, argv)) {
		usage(stderr);
		return 2;
	}
	if (access(o.setup.path, R_OK)) {
		printf("skipped: %s: %s\n", o.setup.path, strerror(errno));
		return 77;
	}
	if (o.setup.meet && !meet_prepare(&o.setup)) {
		fprintf(stderr, "cannot listen at %s: %s\n", o.setup.meet, strerror(errno));
		return 2;
	}
	runner_init();
	o.setup.log_fd = memfd_create("nccl-harness-log", MFD_CLOEXEC);
	/* All processes append, also after the file has been truncated. */
	fcntl(o.setup.log_fd, F_SETFL, O_APPEND);
	if (!o.versions)
		o.versions = 1;
	for (int version = NCCL_NEWEST_VERSION; version >= 0; version--)
		if (o.versions & 1u << version)
			run_version(&o, version, &totals);
	printf("%u passed, %u failed, %u skipped\n", totals.passed, totals.failed, totals.skipped);
	close(o.setup.log_fd);
	if (totals.failed)
		return 1;
	return totals.passed ? 0 : 77;
}
