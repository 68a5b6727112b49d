/* SPDX-License-Identifier: BSD-3-Clause */
/* ferrule-allreduce: reduces gradient files over ranks, by default as sums. */
#include "tools/allreduce/allreduce.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/launch.h"

static const char help[] =
	"Reduces the tensors of safetensors files over N ranks by allreduce.\n"
	"\n"
	"  ferrule-allreduce -n N --input 'g/rank%r.safetensors' [options]\n"
	"  ferrule-allreduce -n N --rank R --job NAME[@HOST] ...           (one rank of N)\n"
	"  mpirun -n N ferrule-allreduce --input ...                       (or srun, torchrun)\n"
	"\n"
	"-n alone starts N processes on this machine. Without -n the rank comes from a launcher\n"
	"(mpirun, srun, torchrun), or from FRL_JOB, FRL_RANK and FRL_RANKS.\n"
	"In file names, %r is replaced by the rank.\n"
	"\n"
	"  -n, --ranks N       number of ranks (1 to 64)\n"
	"  --op OP             sum (default), prod, max, min or avg\n"
	"\n"
	"Files:\n"
	"  --input PATTERN     input of rank r: tensors of one type, with the same names and\n"
	"                      shapes on all ranks. Types: F16, BF16, F32, F64, F8_E4M3, F8_E5M2,\n"
	"                      I8, U8, I32, U32, I64 and U64\n"
	"  --output PATTERN    output of rank r; the files appear only if all ranks succeed\n"
	"  --bucket-mb MIB     size of one allreduce; small tensors share one (default: 25)\n"
	"  --check FILE        compare with the F64 sums in FILE. Reads the inputs of all ranks;\n"
	"                      for sums of floats of at most 32 bits\n"
	"\n" JOB_HELP "\n"
	"  -h, --help          print this text\n"
	"  --version           print the version\n"
	"\n"
	"Exit status: 0 success, 1 a failure or a wrong result, 2 invalid usage.\n";

enum {
	OPT_INPUT = OPT_BEYOND_JOB,
	OPT_OUTPUT,
	OPT_BUCKET,
	OPT_CHECK,
	OPT_OP,
	OPT_VERSION,
};

static const struct option long_options[] = {
	{ "input", required_argument, NULL, OPT_INPUT },
	{ "output", required_argument, NULL, OPT_OUTPUT },
	{ "bucket-mb", required_argument, NULL, OPT_BUCKET },
	{ "check", required_argument, NULL, OPT_CHECK },
	{ "op", required_argument, NULL, OPT_OP },
	JOB_LONG_OPTIONS,
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

/* Parses --op. Refuses premul_sum, which needs scalars that files do not have. */
static int take_op(const char *value, enum frl_op *ret_op)
{
	if (frl_op_parse(value, ret_op) == 0 && *ret_op != FRL_PREMUL_SUM)
		return 0;
	return usage_error("--op '%s': use sum, prod, max, min or avg", value);
}

static int take_option(int code, const char *value, struct options *o)
{
	uint64_t number = 0;
	int rc;

	switch (code) {
	case OPT_BUCKET:
		rc = option_number("--bucket-mb", value, 1, 1 << 20, &number);
		o->bucket_bytes = (size_t)number << 20;
		return rc;
	case OPT_INPUT: return option_path("--input", value, &o->input);
	case OPT_OUTPUT: return option_path("--output", value, &o->output);
	case OPT_CHECK: return option_path("--check", value, &o->check);
	case OPT_OP: return take_op(value, &o->op);
	case '?': return EXIT_USAGE; /* getopt has printed the error */
	}
	return job_option(code, value, &o->job);
}

static int check_options(const struct options *o)
{
	if (!o->input)
		return usage_error("--input is missing");
	if (o->check && o->op != FRL_SUM)
		return usage_error(
			"--check compares sums, not what --op %s gives", frl_op_name(o->op));
	if (o->output && o->job.ranks > 1 && o->job.rank < 0 && !strstr(o->output, "%r"))
		return usage_error("--output needs a %%r, or the ranks overwrite each other");
	return 0;
}

/* Parses the command line. Returns 0, EXIT_USAGE, or -1 if there is nothing else to do. */
static int parse_options(int argc, char **argv, struct options *o)
{
	int code, rc = 0;

	*o = (struct options){
		.job = { .rank = -1 },
		.bucket_bytes = 25 << 20,
		.op = FRL_SUM,
	};
	argv[0] = program_invocation_short_name; /* getopt prints it in messages */
	while (!rc && (code = getopt_long(argc, argv, "n:h", long_options, NULL)) != -1) {
		if (code == 'h' || code == OPT_VERSION) {
			fputs(code == 'h' ? help : "ferrule-allreduce " FERRULE_VERSION "\n",
				stdout);
			return -1;
		}
		rc = take_option(code, optarg, o);
	}
	if (!rc && optind < argc)
		rc = usage_error("'%s' is not an option", argv[optind]);
	if (!rc)
		rc = job_options_finish(&o->job);
	if (!rc)
		rc = check_options(o);
	if (rc)
		frl_launch_close(&o->job.launch);
	return rc;
}

static int run_rank(const struct options *options, struct session *session, const char *job,
	struct report reports[])
{
	int rc = session_join(session, job);

	if (!rc)
		rc = reduce_files(options, session, reports);
	session_close(session, rc);
	return rc;
}

static int local_rank(int rank, const char *job, void *ret_report, void *arg)
{
	const struct options *o = arg;
	struct session session = { .options = &o->job, .rank = rank };
	struct report reports[MAX_RANKS] = { 0 };

	if (run_rank(o, &session, job, reports))
		return EXIT_FAILURE;
	memcpy(ret_report, &reports[rank], sizeof(reports[rank]));
	return EXIT_SUCCESS;
}

/* Checks the files before the ranks are started, so that an error is printed once. */
static int check_inputs(const struct options *o)
{
	struct safetensors_error error;
	struct safetensors *file = NULL;
	int rc;

	for (int r = 0; r < o->job.ranks; r++) {
		char *path = path_of_rank(o->input, r);

		rc = path ? input_open(path, &file) : -ENOMEM;
		if (!rc && o->check && !can_verify(path, input_dtype(file)))
			rc = -ENOTSUP;
		free(path);
		safetensors_close(file);
		file = NULL;
		if (rc)
			return rc;
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
		.ranks = o->job.ranks,
		.rank_main = local_rank,
		.arg = o,
		.report_size = sizeof(reports[0]),
		.reports = reports,
	};
	int status;

	if (check_inputs(o))
		return EXIT_FAILURE;
	status = launch_ranks(&launch);
	if (status)
		return status;
	print_table(o, reports);
	return all_well(o, reports) ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int run_joined(struct options *o)
{
	struct session session = { .options = &o->job, .rank = o->job.rank };
	struct report reports[MAX_RANKS] = { 0 };

	say_rank(o->job.rank);
	if (o->job.is_launched && o->job.rank == 0)
		say("%d ranks, launched by %s", o->job.ranks, o->job.launch.launcher);
	if (run_rank(o, &session, o->job.job, reports))
		return EXIT_FAILURE;
	if (o->job.rank == 0)
		print_table(o, reports);
	else
		say("%s", all_well(o, reports) ? "OK" : "FAILED (rank 0 prints the table)");
	return all_well(o, reports) ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	struct options options;
	int status, rc = parse_options(argc, argv, &options);

	static_assert(sizeof(struct report) <= PIPE_BUF, "a report is written in one piece");
	if (rc)
		return rc < 0 ? finish_output(EXIT_SUCCESS) : rc;
	status = finish_output(options.job.rank < 0 ? run_local(&options) : run_joined(&options));
	frl_launch_close(&options.job.launch);
	return status;
}
