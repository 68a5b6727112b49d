/* SPDX-License-Identifier: BSD-3-Clause */
/* ferrule-train: data-parallel training of a small network. Command line and start. */
#include "tools/train/train.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/launch.h"

#define DEFAULT_DATA "examples/data/digits.csv"

enum {
	MAX_WIDTH = 4096,
	NO_RANK = MAX_RANKS, /* larger than --rank accepts */
};

static const char default_data[] = DEFAULT_DATA;
static const char hint[] = "; --data says where the images are";

static const char help[] =
	"Trains a small network on images of handwritten digits. N ranks share the work of each\n"
	"batch. Gradients are summed over the ranks while others are still computed.\n"
	"\n"
	"  ferrule-train [-n N] [options]\n"
	"  ferrule-train -n N --rank R --job NAME[@HOST] ...           (one rank of N)\n"
	"  mpirun -n N ferrule-train [options]                         (or srun, torchrun)\n"
	"\n"
	"-n alone starts N processes on this machine. Without -n the rank comes from a launcher\n"
	"(mpirun, srun, torchrun), or from FRL_JOB, FRL_RANK and FRL_RANKS. Without these there\n"
	"is one rank.\n"
	"\n"
	"  -n, --ranks N       number of ranks (1 to 64)\n"
	"  --data FILE         CSV, one image per line: 64 pixels of 0 to 16, then the digit; the\n"
	"                      first of every five lines is for testing\n"
	"                      (default: " DEFAULT_DATA ")\n"
	"  --epochs N          passes over the images (default: 20)\n"
	"  --batch N           images of all ranks per step (default: 64)\n"
	"  --lr X              learning rate (default: 0.05); the momentum is 0.9\n"
	"  --hidden A,B,...    widths of the hidden layers, 1 to 8 of them (default: 128,64)\n"
	"  --seed S            seed of the initial parameters and the images' order (default: 1)\n"
	"  --bucket BYTES      size of one allreduce (default: 16K); K, M, G are powers of 1024\n"
	"  --overlap on|off    reduce during the backward pass, or after it (default: on)\n"
	"  --json              print only one JSON object\n"
	"  --quiet             do not print a line per epoch\n"
	"\n"
	"With the same seed, losses and accuracy are those of a single process except for\n"
	"rounding. All ranks have bitwise the same parameters.\n"
	"\n"
	"Several machines or network namespaces, one process each:\n"
	"  --rank R            be rank R of N\n"
	"  --job NAME[@HOST]   the job's name, the same for all ranks; the daemon (ferruled) of\n"
	"                      HOST keeps the job (default: that of this machine)\n"
	"\n" RAIL_HELP "\n"
	"  -h, --help          print this text\n"
	"  --version           print the version\n"
	"\n"
	"Exit status: 0 success, 1 a failure or ranks that differ, 2 invalid usage.\n";

enum {
	OPT_DATA = OPT_OWN,
	OPT_EPOCHS,
	OPT_BATCH,
	OPT_RATE,
	OPT_HIDDEN,
	OPT_SEED,
	OPT_BUCKET,
	OPT_OVERLAP,
	OPT_JSON,
	OPT_QUIET,
	OPT_RANK,
	OPT_JOB,
	OPT_VERSION,
};

static const struct option long_options[] = {
	{ "ranks", required_argument, NULL, 'n' },
	{ "data", required_argument, NULL, OPT_DATA },
	{ "epochs", required_argument, NULL, OPT_EPOCHS },
	{ "batch", required_argument, NULL, OPT_BATCH },
	{ "lr", required_argument, NULL, OPT_RATE },
	{ "hidden", required_argument, NULL, OPT_HIDDEN },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "bucket", required_argument, NULL, OPT_BUCKET },
	{ "overlap", required_argument, NULL, OPT_OVERLAP },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "quiet", no_argument, NULL, OPT_QUIET },
	{ "rank", required_argument, NULL, OPT_RANK },
	{ "job", required_argument, NULL, OPT_JOB },
	RAIL_LONG_OPTIONS,
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

/* Options with whole numbers, and their destinations. */
static const struct {
	int code;
	const char *name;
	uint64_t min, max;
	size_t offset;
} number_options[] = {
	{ 'n', "-n", 1, MAX_RANKS, offsetof(struct train_options, ranks) },
	{ OPT_RANK, "--rank", 0, MAX_RANKS - 1, offsetof(struct train_options, rank) },
	{ OPT_EPOCHS, "--epochs", 1, 1000000, offsetof(struct train_options, epochs) },
	{ OPT_BATCH, "--batch", 1, 1000000, offsetof(struct train_options, batch) },
	{ OPT_SEED, "--seed", 0, INT64_MAX, offsetof(struct train_options, seed) },
};

/* Takes an option with a whole number. Returns -1 if `code` is not one of them. */
static int take_number(int code, const char *value, struct train_options *o)
{
	for (size_t i = 0; i < sizeof(number_options) / sizeof(number_options[0]); i++) {
		uint64_t min = number_options[i].min, max = number_options[i].max;

		if (number_options[i].code != code)
			continue;
		if (parse_number(value, min, max, (void *)((char *)o + number_options[i].offset)))
			return 0;
		return usage_error("%s '%s': not a whole number from %ju to %ju",
			number_options[i].name, value, (uintmax_t)min, (uintmax_t)max);
	}
	return -1;
}

/* strtod() also accepts blanks, hexadecimal numbers, "inf" and "nan". */
static int take_rate(const char *value, struct train_options *o)
{
	char *end;

	if (value[0] && strspn(value, "0123456789.e-") == strlen(value)) {
		o->rate = strtod(value, &end);
		if (!*end && (float)o->rate > 0 && o->rate <= 100)
			return 0;
	}
	return usage_error("--lr '%s': not a number above 0 and up to 100", value);
}

static int take_hidden(const char *value, struct train_options *o)
{
	const char *at = value;
	size_t n = 0;

	for (bool more = true; more; n++) {
		size_t length = strcspn(at, ",");
		uint64_t width = 0;
		char item[16];

		snprintf(item, sizeof(item), "%.*s", (int)(length < 15 ? length : 15), at);
		if (n == NET_MAX_LAYERS - 1)
			return usage_error(
				"--hidden '%s': more than %d layers", value, NET_MAX_LAYERS - 1);
		if (!parse_number(item, 1, MAX_WIDTH, &width))
			return usage_error("--hidden '%s': '%s' is not a whole number from 1 to %d",
				value, item, MAX_WIDTH);
		o->shape.widths[n + 1] = (size_t)width;
		more = at[length] == ',';
		at += length + 1;
	}
	o->shape.widths[n + 1] = DIGITS;
	o->shape.n_layers = n + 1;
	return 0;
}

static int take_bucket(const char *value, struct train_options *o)
{
	if (!parse_size(value, &o->bucket_bytes) || o->bucket_bytes < sizeof(float) ||
		o->bucket_bytes > (uint64_t)1 << 30)
		return usage_error("--bucket '%s': not a size from 4 to 1G", value);
	if (o->bucket_bytes % sizeof(float))
		return usage_error("--bucket '%s': gradients have 4 bytes, so it must be a "
				   "multiple of 4",
			value);
	return 0;
}

static int take_overlap(const char *value, struct train_options *o)
{
	o->overlap = strcmp(value, "on") == 0;
	if (o->overlap || strcmp(value, "off") == 0)
		return 0;
	return usage_error("--overlap '%s': there is on and off", value);
}

static int take_option(int code, const char *value, struct train_options *o)
{
	int rc = take_number(code, value, o);

	if (rc >= 0)
		return rc;
	switch (code) {
	case OPT_DATA:
		o->data = value;
		return *value ? 0 : usage_error("--data: the file name is empty");
	case OPT_RATE: return take_rate(value, o);
	case OPT_HIDDEN: return take_hidden(value, o);
	case OPT_BUCKET: return take_bucket(value, o);
	case OPT_OVERLAP: return take_overlap(value, o);
	case OPT_JSON: o->json = true; return 0;
	case OPT_QUIET: o->quiet = true; return 0;
	case OPT_JOB: o->job = value; return 0;
	case '?': return EXIT_USAGE; /* getopt has printed the error */
	}
	return device_option(code, value, &o->device);
}

/*
 * Gets the ranks from a launcher if no option gives them. Without a launcher this process is the
 * only rank.
 */
static int find_launch(struct train_options *o)
{
	int rc = frl_launch_detect(&o->launch);

	if (rc == -ENOENT) {
		o->ranks = 1;
		return 0;
	}
	if (rc) {
		say_failure(rc, "cannot find out which rank this is");
		return EXIT_USAGE;
	}
	o->is_launched = true;
	o->ranks = (uint64_t)o->launch.ranks;
	o->rank = (uint64_t)o->launch.rank;
	if (o->ranks > MAX_RANKS)
		return usage_error("%d ranks: there can be %d", o->launch.ranks, MAX_RANKS);
	return 0;
}

static int check_options(const struct train_options *o)
{
	bool local = !o->job && !o->is_launched;

	if (o->job && o->rank >= o->ranks)
		return usage_error("--rank %d: ranks are 0 to %d", (int)o->rank, (int)o->ranks - 1);
	if (local && o->ranks > 1 && device_is_shared(&o->device))
		return usage_error("local ranks cannot share a --port: put %%r into its name, or "
				   "start each with --rank and --job");
	return device_options_check(&o->device, MAX_RAILS);
}

/* Parses the command line. Returns 0, EXIT_USAGE, or -1 if there is nothing else to do. */
static int parse_options(int argc, char **argv, struct train_options *o)
{
	int code, rc = 0;

	*o = (struct train_options){
		.rank = NO_RANK,
		.data = default_data,
		.shape = { .n_layers = 3, .widths = { IMAGE_PIXELS, 128, 64, DIGITS } },
		.epochs = 20,
		.batch = 64,
		.seed = 1,
		.bucket_bytes = 16 << 10,
		.rate = 0.05,
		.overlap = true,
	};
	argv[0] = program_invocation_short_name; /* getopt prints it in messages */
	while (!rc && (code = getopt_long(argc, argv, "n:h", long_options, NULL)) != -1) {
		if (code == 'h' || code == OPT_VERSION) {
			fputs(code == 'h' ? help : "ferrule-train " FERRULE_VERSION "\n", stdout);
			return -1;
		}
		rc = take_option(code, optarg, o);
	}
	if (!rc && optind < argc)
		rc = usage_error("'%s': there are no arguments but options", argv[optind]);
	if (!rc && (o->rank != NO_RANK) != (o->job != NULL))
		rc = usage_error("--rank and --job go together");
	if (!rc && o->job && !o->ranks)
		rc = usage_error("-n is missing: how many ranks?");
	if (!rc && !o->ranks)
		rc = find_launch(o);
	return rc ? rc : check_options(o);
}

static int local_rank(int rank, const char *job, void *ret_report, void *arg)
{
	return train_rank(arg, rank, job) ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int run_local(struct training *training)
{
	const struct launch launch = {
		.ranks = (int)training->options->ranks,
		.rank_main = local_rank,
		.arg = training,
		.reports = training->reports, /* size 0: rank 0 prints all results */
	};

	return launch_ranks(&launch);
}

static int run_joined(struct training *training)
{
	int rank = (int)training->options->rank;

	say_rank(rank);
	return train_rank(training, rank, training->options->job) ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int run(const struct train_options *options)
{
	struct dataset data;
	struct dataset_error error;
	struct training training = { .options = options, .data = &data };
	bool local = !options->job && !options->is_launched;
	int status;

	/* Local ranks inherit the images. Errors of the file are printed once. */
	if (dataset_read(options->data, &data, &error)) {
		say("%s%s", error.text, options->data == default_data ? hint : "");
		return EXIT_FAILURE;
	}
	status = local ? run_local(&training) : run_joined(&training);
	dataset_free(&data);
	return status;
}

int main(int argc, char **argv)
{
	struct train_options options;
	int rc = parse_options(argc, argv, &options);

	if (rc <= 0)
		rc = finish_output(rc < 0 ? EXIT_SUCCESS : run(&options));
	frl_launch_close(&options.launch);
	return rc;
}
