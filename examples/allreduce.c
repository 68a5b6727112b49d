/* SPDX-License-Identifier: BSD-3-Clause */
/* ferrule-allreduce: sums gradient files over ranks, or measures how fast that goes. */
#include "examples/allreduce.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/launch.h"
#include "examples/outfile.h"

static const char help[] =
	"Sums the tensors of safetensors files over N ranks by a ring allreduce.\n"
	"\n"
	"  ferrule-allreduce -n N --input 'g/rank%r.safetensors' [options]\n"
	"  ferrule-allreduce -n N --bench [options]\n"
	"  ferrule-allreduce -n N --rank R --job NAME[@HOST] ...           (one rank of N)\n"
	"\n"
	"Without --rank, N processes are started on this machine. In file names, %r is the rank.\n"
	"\n"
	"  -n, --ranks N       how many ranks (1 to 64)\n"
	"  --dtype f32         element type (there is no other yet)\n"
	"  --op sum            operation (there is no other yet)\n"
	"\n"
	"Files:\n"
	"  --input PATTERN     what rank r sums: F32 tensors, of the same names and shapes\n"
	"  --output PATTERN    where rank r writes the sums; files appear only when all ranks "
	"have\n"
	"                      succeeded and have written theirs, under temporary names\n"
	"  --bucket-mb MIB     bytes of one allreduce: small tensors share one (default: 25)\n"
	"  --check FILE        compare with the F64 sums in FILE; reads the inputs of all ranks\n"
	"\n"
	"Benchmark (columns as in nccl-tests; time is the mean over ranks of the mean iteration):\n"
	"  --bench             sweep sizes, check every result\n"
	"  --min SIZE          first size (default: 8), a multiple of 4; K, M, G are powers of "
	"1024\n"
	"  --max SIZE          last size (default: 64M)\n"
	"  --factor N          from one size to the next (default: 2)\n"
	"  --iters N|auto      timed iterations of each size (default: auto, about 0.2 s)\n"
	"  --warmup N          iterations before those (default: 5)\n"
	"  --json FILE         also write the numbers there\n"
	"  --malloc            buffers from malloc() instead of frl_mem_alloc()\n"
	"\n"
	"Several machines or network namespaces, one process each:\n"
	"  --rank R            be rank R of N\n"
	"  --job NAME[@HOST]   where ranks meet: the same name for all of them, kept by the "
	"daemon\n"
	"                      (ferruled) of HOST; without HOST by this machine's\n"
	"\n" DEVICE_HELP "\n"
	"  -h, --help          this text\n"
	"  --version           the version\n"
	"\n"
	"Exit status: 0 all is well, 1 a failure or a wrong result, 2 bad usage.\n";

enum {
	OPT_INPUT = OPT_OWN,
	OPT_OUTPUT,
	OPT_BUCKET,
	OPT_CHECK,
	OPT_DTYPE,
	OPT_OP,
	OPT_BENCH,
	OPT_MIN,
	OPT_MAX,
	OPT_FACTOR,
	OPT_ITERS,
	OPT_WARMUP,
	OPT_JSON,
	OPT_MALLOC,
	OPT_RANK,
	OPT_JOB,
	OPT_VERSION,
};

static const struct option long_options[] = {
	{ "ranks", required_argument, NULL, 'n' },
	{ "input", required_argument, NULL, OPT_INPUT },
	{ "output", required_argument, NULL, OPT_OUTPUT },
	{ "bucket-mb", required_argument, NULL, OPT_BUCKET },
	{ "check", required_argument, NULL, OPT_CHECK },
	{ "dtype", required_argument, NULL, OPT_DTYPE },
	{ "op", required_argument, NULL, OPT_OP },
	{ "bench", no_argument, NULL, OPT_BENCH },
	{ "min", required_argument, NULL, OPT_MIN },
	{ "max", required_argument, NULL, OPT_MAX },
	{ "factor", required_argument, NULL, OPT_FACTOR },
	{ "iters", required_argument, NULL, OPT_ITERS },
	{ "warmup", required_argument, NULL, OPT_WARMUP },
	{ "json", required_argument, NULL, OPT_JSON },
	{ "malloc", no_argument, NULL, OPT_MALLOC },
	{ "rank", required_argument, NULL, OPT_RANK },
	{ "job", required_argument, NULL, OPT_JOB },
	DEVICE_LONG_OPTIONS,
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

static int number_option(
	const char *name, const char *value, uint64_t min, uint64_t max, uint64_t *ret_number)
{
	if (parse_number(value, min, max, ret_number))
		return 0;
	return usage_error("%s '%s': not a whole number from %ju to %ju", name, value,
		(uintmax_t)min, (uintmax_t)max);
}

static int size_option(const char *name, const char *value, uint64_t *ret_bytes)
{
	if (parse_size(value, ret_bytes) && *ret_bytes >= 4 && *ret_bytes <= (uint64_t)1 << 40)
		return 0;
	return usage_error("%s '%s': not a size from 4 to 1024G", name, value);
}

/* Elements are float32. */
static int vector_option(const char *name, const char *value, uint64_t *ret_bytes)
{
	int rc = size_option(name, value, ret_bytes);

	if (!rc && *ret_bytes % sizeof(float))
		return usage_error("%s '%s': elements have 4 bytes, so it must be a multiple of 4",
			name, value);
	return rc;
}

static int path_option(const char *name, const char *value, const char **ret_path)
{
	*ret_path = value;
	return *value ? 0 : usage_error("%s: the file name is empty", name);
}

static int only_option(const char *name, const char *value, const char *only)
{
	return strcmp(value, only) == 0 ? 0
					: usage_error("%s '%s': there is: %s", name, value, only);
}

static int bench_option(int code, const char *value, struct options *o)
{
	switch (code) {
	case OPT_BENCH: o->bench = true; return 0;
	case OPT_MIN: return vector_option("--min", value, &o->min);
	case OPT_MAX: return vector_option("--max", value, &o->max);
	case OPT_FACTOR: return number_option("--factor", value, 2, 1024, &o->factor);
	case OPT_WARMUP: return number_option("--warmup", value, 0, 1000000, &o->warmup);
	case OPT_JSON: return path_option("--json", value, &o->json);
	case OPT_MALLOC: o->use_malloc = true; return 0;
	case OPT_ITERS:
		if (strcmp(value, "auto") != 0)
			return number_option("--iters", value, 1, 10000000, &o->iters);
		o->iters = 0;
		return 0;
	}
	return device_option(code, value, &o->device);
}

static int take_option(int code, const char *value, struct options *o)
{
	uint64_t number = 0;
	int rc;

	switch (code) {
	case 'n':
		rc = number_option("-n", value, 1, MAX_RANKS, &number);
		o->ranks = (int)number;
		return rc;
	case OPT_RANK:
		rc = number_option("--rank", value, 0, MAX_RANKS - 1, &number);
		o->rank = (int)number;
		return rc;
	case OPT_BUCKET:
		rc = number_option("--bucket-mb", value, 1, 1 << 20, &number);
		o->bucket_bytes = (size_t)number << 20;
		return rc;
	case OPT_JOB: o->job = value; return 0;
	case OPT_INPUT: return path_option("--input", value, &o->input);
	case OPT_OUTPUT: return path_option("--output", value, &o->output);
	case OPT_CHECK: return path_option("--check", value, &o->check);
	case OPT_DTYPE: return only_option("--dtype", value, "f32");
	case OPT_OP: return only_option("--op", value, "sum");
	case '?': return EXIT_USAGE; /* getopt has said it */
	}
	return bench_option(code, value, o);
}

static int check_options(const struct options *o)
{
	if (!o->ranks)
		return usage_error("-n is missing: how many ranks?");
	if (o->bench == (o->input != NULL))
		return usage_error(
			"either --input or --bench is needed%s", o->bench ? ", not both" : "");
	if (o->bench && (o->output || o->check))
		return usage_error("--output and --check go with --input");
	if (o->json && !o->bench)
		return usage_error("--json goes with --bench");
	if (o->use_malloc && !o->bench)
		return usage_error("--malloc goes with --bench");
	if (o->min > o->max)
		return usage_error("--min is more than --max");
	if ((o->rank >= 0) != (o->job != NULL))
		return usage_error("--rank and --job go together");
	if (o->rank >= o->ranks)
		return usage_error("--rank %d: ranks are 0 to %d", o->rank, o->ranks - 1);
	if (o->rank < 0 && o->ranks > 1 && o->device.port)
		return usage_error("local ranks cannot share a --port: start each with --rank and "
				   "--job");
	if (o->output && o->ranks > 1 && o->rank < 0 && !strstr(o->output, "%r"))
		return usage_error("--output needs a %%r, or the ranks overwrite each other");
	return device_options_check(&o->device);
}

/* 0, EXIT_USAGE, or -1 when there is nothing left to do. */
static int parse_options(int argc, char **argv, struct options *o)
{
	int code, rc = 0;

	*o = (struct options){
		.rank = -1,
		.bucket_bytes = 25 << 20,
		.min = 8,
		.max = 64 << 20,
		.factor = 2,
		.warmup = 5,
	};
	while (!rc && (code = getopt_long(argc, argv, "n:h", long_options, NULL)) != -1) {
		if (code == 'h' || code == OPT_VERSION) {
			fputs(code == 'h' ? help : "ferrule-allreduce " FERRULE_VERSION "\n",
				stdout);
			return -1;
		}
		rc = take_option(code, optarg, o);
	}
	if (!rc && optind < argc)
		rc = usage_error("'%s': there are no arguments but options", argv[optind]);
	return rc ? rc : check_options(o);
}

static int run_rank(struct session *session, const char *job, struct report reports[])
{
	int rc = session_join(session, job);

	if (!rc && session->options->bench)
		rc = run_bench(session);
	else if (!rc)
		rc = reduce_files(session, reports);
	session_close(session, rc);
	return rc;
}

static int local_rank(int rank, const char *job, void *ret_report, void *arg)
{
	struct session session = { .options = arg, .rank = rank };
	struct report reports[MAX_RANKS] = { 0 };

	if (run_rank(&session, job, reports))
		return EXIT_FAILURE;
	memcpy(ret_report, &reports[rank], sizeof(reports[rank]));
	return EXIT_SUCCESS;
}

/* Before the sweep, whose numbers would be lost. */
static int check_json(const char *path)
{
	int rc = make_folders(path);

	if (!rc)
		rc = outfile_check(path);
	if (rc)
		say("cannot write %s: %s", path, strerror(-rc));
	return rc;
}

/* What is wrong with the files themselves is better said once, before there are processes. */
static int check_inputs(const struct options *o)
{
	struct safetensors_error error;
	struct safetensors *file = NULL;
	int rc;

	for (int r = 0; r < o->ranks; r++) {
		char *path = path_of_rank(o->input, r);

		rc = path ? input_open(path, &file) : -ENOMEM;
		free(path);
		if (rc)
			return rc;
		safetensors_close(file);
	}
	if (!o->check)
		return 0;
	rc = safetensors_open(o->check, &file, &error);
	if (rc)
		say("%s", error.text);
	else
		safetensors_close(file);
	return rc;
}

static int run_local(struct options *o)
{
	struct report reports[MAX_RANKS] = { 0 };
	struct launch launch = {
		.ranks = o->ranks,
		.rank_main = local_rank,
		.arg = o,
		.report_size = sizeof(reports[0]),
		.reports = reports,
	};
	int status;

	if (!o->bench && check_inputs(o))
		return EXIT_FAILURE;
	status = launch_ranks(&launch);
	if (status || o->bench)
		return status;
	print_table(o, reports);
	return all_well(o, reports) ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int run_joined(struct options *o)
{
	struct session session = { .options = o, .rank = o->rank };
	struct report reports[MAX_RANKS] = { 0 };

	say_rank(o->rank);
	if (run_rank(&session, o->job, reports))
		return EXIT_FAILURE;
	if (o->bench)
		return EXIT_SUCCESS;
	if (o->rank == 0)
		print_table(o, reports);
	else
		say("%s", all_well(o, reports) ? "OK" : "FAILED (rank 0 prints the table)");
	return all_well(o, reports) ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	struct options options;
	int rc = parse_options(argc, argv, &options);

	static_assert(sizeof(struct report) <= PIPE_BUF, "a report is written in one piece");
	if (rc)
		return rc < 0 ? finish_output(EXIT_SUCCESS) : rc;
	if (options.json && options.rank <= 0 && check_json(options.json))
		return EXIT_FAILURE;
	return finish_output(options.rank < 0 ? run_local(&options) : run_joined(&options));
}
