/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures traffic as NCCL's rings make it, of host memory, through two plugins in turns. There are
 * eight channels, each with slices of 1 MiB, four in flight, all driven by one progress thread a
 * side, or with --sets by one thread for each of several communicators. Two processes a run. Prints
 * bandwidth and its cost: processor seconds a GB of the two processes together, and of the whole
 * machine (for sockets the kernel also works outside of processes). A progress thread never sleeps,
 * as in NCCL: most of the processes' cost is its time. With --latency small messages instead, one
 * at a time (latency.h).
 */
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/nccl/latency.h"
#include "tests/nccl/caller/runner.h"

enum { MAX_ROUNDS = 64, MAX_IN_FLIGHT = NCCL_MAX_REQUESTS, MAX_SETS = 16 };

struct options {
	struct setup setup;
	const char *paths[2];
	unsigned int rounds;
	unsigned int channels;
	unsigned int sets; /* of channels: a communicator each, with a progress thread */
	unsigned int in_flight;
	size_t slice;
	size_t mib; /* of each direction and run */
	bool is_both_ways;
	bool has_latency;
	const char *json;
};

/* The results of a run, in memory shared with its processes. */
struct outcome_of_run {
	double seconds[2];
	double cpu[2];
	double machine;
};

struct sample {
	double gb_per_s;
	double cpu_per_gb;
	double machine_per_gb;
};

/* A channel of one direction. */
struct channel {
	struct slots slots;
	void *requests[MAX_IN_FLIGHT];
	unsigned int posted;
	unsigned int done;
};

/* The channels of a communicator. */
struct set {
	struct side sides[2]; /* a direction each */
	struct channel channels[2][MAX_COMMS];
	unsigned int n_channels;
	unsigned int total; /* slices through each channel */
};

static struct options o = { .rounds = 5,
	.channels = 8,
	.sets = 1,
	.in_flight = 4,
	.slice = 1 << 20,
	.mib = 2048,
	.setup = { .slow_ms = 60000, .dead_s = 20, .traffic_class = -1, .has_processes = true } };
static struct outcome_of_run *shared;

static double cpu_seconds(void)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
		(double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

/* All processors, since the start: everything but idle, iowait and stolen time. */
static double machine_seconds(void)
{
	unsigned long long user, nice, system, idle, iowait, irq, softirq;
	FILE *file = fopen("/proc/stat", "re");
	double seconds = 0;

	if (!file)
		return 0;
	if (fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle,
		    &iowait, &irq, &softirq) == 7)
		seconds = (double)(user + nice + system + irq + softirq) /
			(double)sysconf(_SC_CLK_TCK);
	fclose(file);
	return seconds;
}

/* One step of a channel: posts, or tests the oldest request. Returns whether there was progress. */
static bool step(struct side *side, unsigned int index, struct channel *channel, unsigned int total)
{
	unsigned int slot = channel->posted % o.in_flight;
	void *comm = side->comms[index];
	void *data = slot_at(&channel->slots, slot);
	bool is_idle = true;
	size_t size = o.slice;
	int tag = 1, done = 0;

	if (channel->posted < total && channel->posted - channel->done < o.in_flight) {
		void **request = &channel->requests[slot];

		*request = NULL;
		if (side->index == 0)
			MUST(plugin_isend(side->net, comm, data, size, tag, channel->slots.mr, NULL,
				request));
		else
			MUST(plugin_irecv(side->net, comm, 1, &data, &size, &tag,
				&channel->slots.mr, NULL, request));
		channel->posted += *request ? 1 : 0;
		is_idle = !*request;
	}
	if (channel->done < channel->posted) {
		MUST(plugin_test(
			side->net, channel->requests[channel->done % o.in_flight], &done, NULL));
		channel->done += done ? 1 : 0;
	}
	return !is_idle || done;
}

static unsigned int directions(void)
{
	return o.is_both_ways ? 2 : 1;
}

/* `total` slices through each channel of each direction. */
static void *move(void *argument)
{
	struct set *set = argument;
	bool is_finished = false;

	for (unsigned int i = 0; i < directions(); i++)
		for (unsigned int j = 0; j < set->n_channels; j++)
			set->channels[i][j].posted = set->channels[i][j].done = 0;
	while (!is_finished) {
		bool is_idle = true;

		is_finished = true;
		for (unsigned int i = 0; i < directions(); i++) {
			for (unsigned int j = 0; j < set->n_channels; j++) {
				if (step(&set->sides[i], j, &set->channels[i][j], set->total))
					is_idle = false;
				if (set->channels[i][j].done < set->total)
					is_finished = false;
			}
		}
		if (is_idle)
			sched_yield();
	}
	return NULL;
}

static void move_all(struct set *sets, unsigned int total)
{
	pthread_t threads[MAX_SETS];

	for (unsigned int k = 0; k < o.sets; k++)
		sets[k].total = total;
	for (unsigned int k = 1; k < o.sets; k++)
		REQUIRE(!pthread_create(&threads[k], NULL, move, &sets[k]), "no thread");
	move(&sets[0]);
	for (unsigned int k = 1; k < o.sets; k++)
		pthread_join(threads[k], NULL);
}

static void meet(struct side *side)
{
	say(side, 'm');
	hear(side, 'm');
}

static void measure(struct side *side, struct set *sets)
{
	unsigned int total = (unsigned int)((o.mib << 20) / o.slice / o.channels);
	double cpu, machine;
	uint64_t start_ns;

	move_all(sets, total / 8 + 1);
	meet(side);
	machine = machine_seconds();
	cpu = cpu_seconds();
	start_ns = now_ns();
	move_all(sets, total);
	shared->seconds[side->index] = (double)(now_ns() - start_ns) / 1e9;
	shared->cpu[side->index] = cpu_seconds() - cpu;
	meet(side);
	if (side->index == 0)
		shared->machine = machine_seconds() - machine;
}

/* Each set uses the next one of the devices. */
static void open_set(struct side *side, struct plugin *net, struct set *set, unsigned int number)
{
	struct side own = *side;
	int n = 0;

	side_open(&own, net);
	MUST(net->devices(&n));
	own.dev = (int)number % n;
	set->n_channels = o.channels / o.sets;
	for (unsigned int i = 0; i < directions(); i++) {
		memcpy(&set->sides[i], &own, sizeof(own));
		set->sides[i].index = side->index ^ i;
		side_connect(&set->sides[i], set->n_channels);
		for (unsigned int j = 0; j < set->n_channels; j++) {
			struct slots *slots = &set->channels[i][j].slots;

			slots_create(slots, o.in_flight, o.slice);
			slots_register(slots, &own, set->sides[i].comms[j]);
			for (unsigned int k = 0; k < o.in_flight && set->sides[i].index == 0; k++)
				pattern_fill(slot_at(slots, k), o.slice, j * 100 + k);
		}
	}
}

static void close_set(struct set *set)
{
	for (unsigned int i = 0; i < directions(); i++) {
		struct side *side = &set->sides[i];

		for (unsigned int j = 0; j < set->n_channels; j++) {
			struct slots *slots = &set->channels[i][j].slots;

			for (unsigned int k = 0; k < o.in_flight; k++)
				REQUIRE(pattern_find(slot_at(slots, k), o.slice, j * 100 + k) < 0,
					"wrong bytes");
			slots_deregister(slots, side, side->comms[j]);
			slots_destroy(slots);
		}
		side_disconnect(side);
	}
	side_close(&set->sides[0]);
}

static void run_side(struct side *side)
{
	static struct set sets[MAX_SETS];
	struct plugin net = { 0 };

	for (unsigned int k = 0; k < o.sets; k++)
		open_set(side, &net, &sets[k], k);
	side->net = &net;
	measure(side, sets);
	for (unsigned int k = 0; k < o.sets; k++)
		close_set(&sets[k]);
	plugin_close(&net);
}

/* The end of the plugin's log. */
static void show_log(void)
{
	char text[4000];
	off_t size = lseek(o.setup.log_fd, 0, SEEK_END);
	off_t from = size > (off_t)sizeof(text) ? size - (off_t)sizeof(text) : 0;
	ssize_t n = pread(o.setup.log_fd, text, sizeof(text), from);

	if (n > 0)
		fprintf(stderr, "%.*s", (int)n, text);
}

static bool run_both(unsigned int which, void (*body)(struct side *side))
{
	o.setup.path = o.paths[which];
	if (run_pair(&o.setup, body, 300) == PASSED)
		return true;
	fprintf(stderr, "%s: %s\n", o.paths[which], report->text);
	show_log();
	return false;
}

static bool run(unsigned int which, struct sample *ret)
{
	double gb = (double)(o.mib << 20) / 1e9 * (o.is_both_ways ? 2 : 1);
	double seconds;

	memset(shared, 0, sizeof(*shared));
	if (!run_both(which, run_side))
		return false;
	seconds = shared->seconds[0] > shared->seconds[1] ? shared->seconds[0] : shared->seconds[1];
	ret->gb_per_s = gb / seconds;
	ret->cpu_per_gb = (shared->cpu[0] + shared->cpu[1]) / gb;
	ret->machine_per_gb = shared->machine / gb;
	return true;
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double median(const struct sample *samples, size_t offset)
{
	double values[MAX_ROUNDS];

	for (unsigned int i = 0; i < o.rounds; i++)
		memcpy(&values[i], (const char *)&samples[i] + offset, sizeof(values[i]));
	qsort(values, o.rounds, sizeof(values[0]), compare);
	return o.rounds % 2 ? values[o.rounds / 2]
			    : (values[o.rounds / 2 - 1] + values[o.rounds / 2]) / 2;
}

static struct sample medians(const struct sample *samples)
{
	return (struct sample){ .gb_per_s = median(samples, offsetof(struct sample, gb_per_s)),
		.cpu_per_gb = median(samples, offsetof(struct sample, cpu_per_gb)),
		.machine_per_gb = median(samples, offsetof(struct sample, machine_per_gb)) };
}

static bool write_json(struct sample samples[2][MAX_ROUNDS], char names[2][64])
{
	FILE *file = fopen(o.json, "we");

	if (!file) {
		perror(o.json);
		return false;
	}
	fprintf(file,
		"{\"channels\": %u, \"slice\": %zu, \"in_flight\": %u, \"mib\": %zu, "
		"\"both_ways\": %s, \"plugins\": [",
		o.channels, o.slice, o.in_flight, o.mib, o.is_both_ways ? "true" : "false");
	for (unsigned int i = 0; i < 2; i++) {
		fprintf(file, "%s\n{\"name\": \"%s\", \"runs\": [", i ? "," : "", names[i]);
		for (unsigned int j = 0; j < o.rounds; j++)
			fprintf(file,
				"%s\n{\"gb_per_s\": %.4f, \"cpu_s_per_gb\": %.4f, "
				"\"machine_s_per_gb\": %.4f}",
				j ? "," : "", samples[i][j].gb_per_s, samples[i][j].cpu_per_gb,
				samples[i][j].machine_per_gb);
		fprintf(file, "]}");
	}
	fprintf(file, "]}\n");
	return fclose(file) == 0;
}

static void print_medians(struct sample samples[2][MAX_ROUNDS], char names[2][64])
{
	struct sample of[2] = { medians(samples[0]), medians(samples[1]) };

	printf("| plugin | GB/s | CPU s/GB | machine CPU s/GB |\n|---|---|---|---|\n");
	for (unsigned int i = 0; i < 2; i++)
		printf("| %s | %.2f | %.3f | %.3f |\n", names[i], of[i].gb_per_s, of[i].cpu_per_gb,
			of[i].machine_per_gb);
	printf("| ratio | %.2f | %.2f | %.2f |\n", of[0].gb_per_s / of[1].gb_per_s,
		of[0].cpu_per_gb / of[1].cpu_per_gb, of[0].machine_per_gb / of[1].machine_per_gb);
}

static void usage(FILE *to)
{
	fputs("nccl-bench [options] PLUGIN-A.so PLUGIN-B.so\n"
	      "  --rounds N      runs of each, in turns (5)\n"
	      "  --channels N    connections of a direction (8)\n"
	      "  --sets N        communicators that share the connections, each with a thread (1)\n"
	      "  --slice BYTES   of a message (1048576)\n"
	      "  --in-flight N   messages at once on a channel (4)\n"
	      "  --mib N         MiB of a run, and direction (2048)\n"
	      "  --both          both directions at once, as a ring of two ranks has them\n"
	      "  --latency       of small messages, one at a time, instead\n"
	      "  --netns A,B     network namespaces of sender and receiver\n"
	      "  --set I:N=V     environment of side I (0 sends, 1 receives)\n"
	      "  --json FILE     every single run\n",
		to);
}

static bool read_option(int option, char *argument)
{
	char *comma = argument ? strchr(argument, ',') : NULL;
	unsigned int side;

	switch (option) {
	case 'r': o.rounds = (unsigned int)atoi(argument); break;
	case 'c': o.channels = (unsigned int)atoi(argument); break;
	case 'S': o.sets = (unsigned int)atoi(argument); break;
	case 'f': o.in_flight = (unsigned int)atoi(argument); break;
	case 's': o.slice = (size_t)atol(argument); break;
	case 'm': o.mib = (size_t)atol(argument); break;
	case 'b': o.is_both_ways = true; break;
	case 'l': o.has_latency = true; break;
	case 'j': o.json = argument; break;
	case 'h': usage(stdout); exit(0);
	case 'n':
		if (!comma)
			return false;
		*comma = '\0';
		o.setup.netns[0] = argument;
		o.setup.netns[1] = comma + 1;
		break;
	case 'e':
		side = argument[0] == '1';
		if ((argument[0] != '0' && !side) || argument[1] != ':' ||
			o.setup.n_settings[side] == MAX_SIDE_SETTINGS)
			return false;
		o.setup.settings[side][o.setup.n_settings[side]++] = argument + 2;
		break;
	default: return false;
	}
	return true;
}

static bool read_options(int argc, char **argv)
{
	static const struct option known[] = { { "rounds", 1, 0, 'r' }, { "channels", 1, 0, 'c' },
		{ "sets", 1, 0, 'S' }, { "in-flight", 1, 0, 'f' }, { "slice", 1, 0, 's' },
		{ "mib", 1, 0, 'm' }, { "both", 0, 0, 'b' }, { "latency", 0, 0, 'l' },
		{ "json", 1, 0, 'j' }, { "netns", 1, 0, 'n' }, { "set", 1, 0, 'e' },
		{ "help", 0, 0, 'h' }, { 0 } };
	int option;

	while ((option = getopt_long(argc, argv, "h", known, NULL)) != -1)
		if (!read_option(option, optarg))
			return false;
	if (optind + 2 != argc || o.rounds < 1 || o.rounds > MAX_ROUNDS || o.channels < 1 ||
		o.channels > MAX_COMMS || o.in_flight < 1 || o.in_flight > MAX_IN_FLIGHT ||
		o.sets < 1 || o.sets > MAX_SETS || o.channels % o.sets || o.slice < 8 ||
		(o.mib << 20) / o.slice / o.channels < o.in_flight)
		return false;
	for (unsigned int i = 0; i < 2; i++) {
		o.paths[i] = realpath(argv[optind + (int)i], NULL);
		if (!o.paths[i]) {
			perror(argv[optind + (int)i]);
			exit(77);
		}
	}
	return true;
}

static bool measure_latency(void)
{
	static struct latency runs[2][MAX_ROUNDS];
	const struct latency *const of[2] = { runs[0], runs[1] };
	char names[2][64];

	latency_init();
	for (unsigned int round = 0; round < o.rounds; round++) {
		for (unsigned int i = 0; i < 2; i++) {
			if (!run_both(i, latency_side))
				return false;
			memcpy(names[i], report->plugin, sizeof(names[i]));
			latency_take(&runs[i][round]);
		}
	}
	latency_print(of, o.rounds, names);
	return true;
}

static bool measure_bandwidth(void)
{
	static struct sample samples[2][MAX_ROUNDS];
	char names[2][64];

	shared = mmap(
		NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (unsigned int round = 0; round < o.rounds; round++) {
		for (unsigned int i = 0; i < 2; i++) {
			if (!run(i, &samples[i][round]))
				return false;
			memcpy(names[i], report->plugin, sizeof(names[i]));
			printf("%u %-12s %6.2f GB/s, CPU %.3f s/GB, machine %.3f s/GB\n", round + 1,
				names[i], samples[i][round].gb_per_s, samples[i][round].cpu_per_gb,
				samples[i][round].machine_per_gb);
			fflush(stdout);
		}
	}
	print_medians(samples, names);
	return !o.json || write_json(samples, names);
}

int main(int argc, char **argv)
{
	bool is_measured;

	if (!read_options(argc, argv)) {
		usage(stderr);
		return 2;
	}
	runner_init();
	o.setup.log_fd = memfd_create("nccl-bench-log", MFD_CLOEXEC);
	is_measured = o.has_latency ? measure_latency() : measure_bandwidth();
	free((void *)(uintptr_t)o.paths[0]);
	free((void *)(uintptr_t)o.paths[1]);
	return is_measured ? 0 : 1;
}
