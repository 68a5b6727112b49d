/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/bench/bench.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum { DEFAULT_MAX = 64 << 20 };

static const char help[] =
	"Measures collectives, and checks every element of their results.\n"
	"\n"
	"  ferrule-bench -n N --op allreduce [options]\n"
	"  ferrule-bench -n 4 --op all --max 64K                   (a quick test of everything)\n"
	"  ferrule-bench -n N --rank R --job NAME[@HOST] ...       (one rank of N)\n"
	"  mpirun -n N ferrule-bench [options]                     (or srun, torchrun)\n"
	"\n"
	"-n alone starts N processes on this machine. Without -n the rank comes from a launcher\n"
	"(mpirun, srun, torchrun), or from FRL_JOB, FRL_RANK and FRL_RANKS.\n"
	"\n"
	"  -n, --ranks N       number of ranks (1 to 64)\n"
	"\n"
	"Cases (a LIST has commas, or is the word all):\n"
	"  --op LIST           allreduce (default), reduce_scatter, allgather, broadcast, reduce,\n"
	"                      alltoall, alltoallv, gather, scatter, barrier, sendrecv\n"
	"  --dtype LIST        float32 (default), float16, bfloat16, float64, float8_e4m3,\n"
	"                      float8_e5m2, int8, uint8, int32, uint32, int64, uint64\n"
	"  --redop LIST        sum (default), prod, max, min, avg, premul_sum\n"
	"  --wire LIST         encoding of float32 in packets: same (default), f16, bf16, int8\n"
	"  --algo LIST         auto, ring, halving-doubling, tree, direct, pairwise, bruck,\n"
	"                      hierarchical (default: FRL_ALGO, or auto). Algorithms that do not\n"
	"                      support an operation are skipped; one rank has only auto\n"
	"  --root R|all        root of broadcast, reduce, gather and scatter (default: 0)\n"
	"  --in-place HOW      on, off or both (default)\n"
	"  --min SIZE          first size (default: 8); K, M, G are powers of 1024\n"
	"  --max SIZE          last size (default: 64M, or --min if that is more)\n"
	"  --factor N          factor between sizes (default: 2)\n"
	"  --count LIST        counts of elements, instead of sizes\n"
	"\n"
	"The size is that of the longer buffer: for reduce_scatter, allgather, alltoall, gather\n"
	"and scatter the one with elements of all ranks. Sizes are rounded to whole elements.\n"
	"\n"
	"Measurement:\n"
	"  --iters N|auto      timed iterations per size (default: auto, about 0.2 s); 0: only\n"
	"                      check\n"
	"  --warmup N          iterations before those (default: 5; without --iters as many as\n"
	"                      take 10 ms)\n"
	"  --repeat N          run all cases N times (default: 1)\n"
	"  --inflight K        requests in flight, up to 64 (default: 1)\n"
	"  --check on|off      check results (default: on)\n"
	"  --data exact|random exact (default): exact results in any order, and every bit is\n"
	"                      checked; random: checked within an error bound\n"
	"  --seed N            seed of the data (default: 1)\n"
	"  --sample K          run one of K cases, chosen by the seed (default: 1, all)\n"
	"  --offset BYTES      offset of buffers from the start of a page, 0 (default) to 255\n"
	"  --malloc            use buffers of malloc() instead of frl_mem_alloc()\n" MEM_HELP "\n"
	"Output (columns as in nccl-tests; time is the mean over ranks of the mean iteration):\n"
	"  --json FILE|-       also write JSON; -: to standard output, instead of the table\n"
	"  --csv FILE|-        the same as comma-separated values\n"
	"  --plot FILE.png     draw bus bandwidth and time by size with gnuplot\n"
	"  --compare FILE      with --plot: also draw the results in FILE, which --json has\n"
	"                      written (up to 4 times). Without -n nothing is measured\n"
	"  --explain           print the expected time of each algorithm, and the chosen one\n"
	"  -q, --quiet         print only rows with wrong elements, and the last line\n"
	"\n" JOB_HELP "\n"
	"  -h, --help          print this text\n"
	"  --version           print the version\n"
	"\n"
	"Exit status: 0 success, 1 a failure, a wrong result, or nothing to measure, 2 invalid\n"
	"usage.\n";

enum {
	OPT_OP = OPT_BEYOND_JOB,
	OPT_DTYPE,
	OPT_REDOP,
	OPT_WIRE,
	OPT_ALGO,
	OPT_ROOT,
	OPT_IN_PLACE,
	OPT_MIN,
	OPT_MAX,
	OPT_FACTOR,
	OPT_COUNT,
	OPT_ITERS,
	OPT_WARMUP,
	OPT_REPEAT,
	OPT_IN_FLIGHT,
	OPT_CHECK,
	OPT_DATA,
	OPT_SEED,
	OPT_SAMPLE,
	OPT_OFFSET,
	OPT_MALLOC,
	OPT_MEM,
	OPT_JSON,
	OPT_CSV,
	OPT_PLOT,
	OPT_COMPARE,
	OPT_EXPLAIN,
	OPT_VERSION,
};

static const struct option long_options[] = {
	{ "op", required_argument, NULL, OPT_OP },
	{ "dtype", required_argument, NULL, OPT_DTYPE },
	{ "redop", required_argument, NULL, OPT_REDOP },
	{ "wire", required_argument, NULL, OPT_WIRE },
	{ "algo", required_argument, NULL, OPT_ALGO },
	{ "root", required_argument, NULL, OPT_ROOT },
	{ "in-place", required_argument, NULL, OPT_IN_PLACE },
	{ "min", required_argument, NULL, OPT_MIN },
	{ "max", required_argument, NULL, OPT_MAX },
	{ "factor", required_argument, NULL, OPT_FACTOR },
	{ "count", required_argument, NULL, OPT_COUNT },
	{ "iters", required_argument, NULL, OPT_ITERS },
	{ "warmup", required_argument, NULL, OPT_WARMUP },
	{ "repeat", required_argument, NULL, OPT_REPEAT },
	{ "inflight", required_argument, NULL, OPT_IN_FLIGHT },
	{ "check", required_argument, NULL, OPT_CHECK },
	{ "data", required_argument, NULL, OPT_DATA },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "sample", required_argument, NULL, OPT_SAMPLE },
	{ "offset", required_argument, NULL, OPT_OFFSET },
	{ "malloc", no_argument, NULL, OPT_MALLOC },
	{ "mem", required_argument, NULL, OPT_MEM },
	{ "json", required_argument, NULL, OPT_JSON },
	{ "csv", required_argument, NULL, OPT_CSV },
	{ "plot", required_argument, NULL, OPT_PLOT },
	{ "compare", required_argument, NULL, OPT_COMPARE },
	{ "explain", no_argument, NULL, OPT_EXPLAIN },
	{ "quiet", no_argument, NULL, 'q' },
	JOB_LONG_OPTIONS,
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

/* ---- lists of names, as sets */

static const char *op_name(int value)
{
	return bench_op_name(value);
}

static const char *dtype_name(int value)
{
	return frl_dtype_name((enum frl_dtype)value);
}

static const char *redop_name(int value)
{
	return frl_op_name((enum frl_op)value);
}

static const char *wire_name(int value)
{
	return frl_wire_name((enum frl_wire)value);
}

static const char *algo_name(int value)
{
	return frl_algo_name((enum frl_algo)value);
}

/* Compares names without regard to case, and of "-" and "_". */
static bool is_name(const char *word, const char *name)
{
	for (; *word && *name; word++, name++) {
		int a = tolower((unsigned char)*word), b = tolower((unsigned char)*name);

		if ((a == '-' ? '_' : a) != (b == '-' ? '_' : b))
			return false;
	}
	return !*word && !*name;
}

static int parse_dtype(const char *word)
{
	enum frl_dtype dtype;

	return frl_dtype_parse(word, &dtype) ? -1 : (int)dtype;
}

static int parse_redop(const char *word)
{
	enum frl_op op;

	return frl_op_parse(word, &op) ? -1 : (int)op;
}

static int parse_wire(const char *word)
{
	enum frl_wire wire;

	return frl_wire_parse(word, &wire) ? -1 : (int)wire;
}

struct names {
	const char *option;
	int n;
	const char *(*name)(int value);
	int (*parse)(const char *word); /* returns -1 if unknown; NULL: only listed names */
};

static const struct names op_names = { "--op", BENCH_OPS, op_name, NULL };
static const struct names dtype_names = { "--dtype", FRL_DTYPES, dtype_name, parse_dtype };
static const struct names redop_names = { "--redop", FRL_OPS, redop_name, parse_redop };
static const struct names wire_names = { "--wire", FRL_WIRES, wire_name, parse_wire };
static const struct names algo_names = { "--algo", FRL_ALGOS, algo_name, NULL };

static int find_name(const struct names *names, const char *word)
{
	if (names->parse)
		return names->parse(word);
	for (int i = 0; i < names->n; i++)
		if (is_name(word, names->name(i)))
			return i;
	return -1;
}

static int refuse_name(const struct names *names, const char *word)
{
	char known[300] = "";
	size_t used = 0;

	for (int i = 0; i < names->n && used < sizeof(known); i++)
		used += (size_t)snprintf(
			known + used, sizeof(known) - used, "%s, ", names->name(i));
	return usage_error("%s '%s': use %sor all", names->option, word, known);
}

/* Takes the next word of a list with commas. Returns false at the end. */
static bool next_word(const char **at, char word[static 64])
{
	size_t length;

	if (!*at)
		return false;
	length = strcspn(*at, ",");
	snprintf(word, 64, "%.*s", (int)(length < 64 ? length : 63), *at);
	*at = (*at)[length] ? *at + length + 1 : NULL;
	return true;
}

static int take_names(const struct names *names, const char *list, uint32_t *ret_set)
{
	char word[64];
	uint32_t set = 0;

	while (next_word(&list, word)) {
		int value = find_name(names, word);

		if (is_name(word, "all"))
			set |= ((uint32_t)1 << names->n) - 1;
		else if (value < 0)
			return refuse_name(names, word);
		else
			set |= (uint32_t)1 << value;
	}
	*ret_set = set;
	return 0;
}

/* ---- the other options */

static int take_counts(const char *list, struct bench_options *o)
{
	char word[64];
	uint64_t count;

	o->n_counts = 0;
	while (next_word(&list, word)) {
		if (!parse_size(word, &count) || count > (uint64_t)1 << 37)
			return usage_error("--count '%s': not a number of elements", word);
		if (o->n_counts == BENCH_COUNTS)
			return usage_error("--count: more than %d counts", BENCH_COUNTS);
		o->counts[o->n_counts++] = (size_t)count;
	}
	return 0;
}

static int take_size(const char *name, const char *value, uint64_t *ret_bytes)
{
	if (parse_size(value, ret_bytes) && *ret_bytes >= 1 && *ret_bytes <= (uint64_t)1 << 40)
		return 0;
	return usage_error("%s '%s': not a size from 1 to 1024G", name, value);
}

/* Parses an option that is one of two words. */
static int take_word(
	const char *name, const char *value, const char *yes, const char *no, bool *ret_yes)
{
	*ret_yes = strcmp(value, yes) == 0;
	if (*ret_yes || strcmp(value, no) == 0)
		return 0;
	return usage_error("%s '%s': use %s or %s", name, value, yes, no);
}

static int take_in_place(const char *value, struct bench_options *o)
{
	o->places[0] = o->places[1] = true;
	if (strcmp(value, "both") == 0)
		return 0;
	if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0)
		return usage_error("--in-place '%s': use on, off or both", value);
	o->places[strcmp(value, "on") == 0 ? 0 : 1] = false;
	return 0;
}

static int take_root(const char *value, struct bench_options *o)
{
	uint64_t root = 0;
	int rc;

	o->root = BENCH_ALL_ROOTS;
	if (strcmp(value, "all") == 0)
		return 0;
	rc = option_number("--root", value, 0, MAX_RANKS - 1, &root);
	o->root = (int)root;
	return rc;
}

static int take_iters(const char *value, struct bench_options *o)
{
	o->iters = 0;
	o->auto_iters = strcmp(value, "auto") == 0;
	return o->auto_iters ? 0 : option_number("--iters", value, 0, 10000000, &o->iters);
}

static int take_compared(const char *value, struct bench_options *o)
{
	if (o->n_compared == BENCH_COMPARED)
		return usage_error("--compare: at most %d files", BENCH_COMPARED);
	return option_path("--compare", value, &o->compared[o->n_compared++]);
}

static int take_what(int code, const char *value, struct bench_options *o)
{
	switch (code) {
	case OPT_OP: return take_names(&op_names, value, &o->ops);
	case OPT_DTYPE: return take_names(&dtype_names, value, &o->dtypes);
	case OPT_REDOP: return take_names(&redop_names, value, &o->redops);
	case OPT_WIRE: return take_names(&wire_names, value, &o->wires);
	case OPT_ALGO: o->sets_algo = true; return take_names(&algo_names, value, &o->algos);
	case OPT_ROOT: return take_root(value, o);
	case OPT_IN_PLACE: return take_in_place(value, o);
	case OPT_MIN: return take_size("--min", value, &o->min);
	case OPT_MAX: return take_size("--max", value, &o->max);
	case OPT_FACTOR: return option_number("--factor", value, 2, 1024, &o->factor);
	case OPT_COUNT: return take_counts(value, o);
	}
	return job_option(code, value, &o->job);
}

static int take_option(int code, const char *value, struct bench_options *o)
{
	switch (code) {
	case OPT_ITERS: return take_iters(value, o);
	case OPT_WARMUP: return option_number("--warmup", value, 0, 1000000, &o->warmup);
	case OPT_REPEAT: return option_number("--repeat", value, 1, 1000000, &o->repeat);
	case OPT_IN_FLIGHT:
		return option_number("--inflight", value, 1, BENCH_IN_FLIGHT, &o->in_flight);
	case OPT_CHECK: return take_word("--check", value, "on", "off", &o->check);
	case OPT_DATA: return take_word("--data", value, "random", "exact", &o->random);
	case OPT_SEED: return option_number("--seed", value, 0, UINT32_MAX, &o->seed);
	case OPT_SAMPLE: return option_number("--sample", value, 1, 1000000, &o->sample);
	case OPT_OFFSET: return option_number("--offset", value, 0, 255, &o->offset);
	case OPT_MALLOC: o->use_malloc = true; return 0;
	case OPT_MEM: return mem_option(value, &o->mem);
	case OPT_JSON: return option_path("--json", value, &o->json);
	case OPT_CSV: return option_path("--csv", value, &o->csv);
	case OPT_PLOT: return option_path("--plot", value, &o->plot);
	case OPT_COMPARE: return take_compared(value, o);
	case OPT_EXPLAIN: o->explain = true; return 0;
	case 'q': o->quiet = true; return 0;
	case '?': return EXIT_USAGE; /* getopt has printed the error */
	}
	return take_what(code, value, o);
}

/* Returns whether at least one operation supports the requested combination. */
static bool has_case(const struct bench_options *o)
{
	for (int op = 0; op < BENCH_OPS; op++)
		for (int dtype = 0; dtype < FRL_DTYPES; dtype++)
			for (int redop = 0; redop <= FRL_OPS; redop++)
				for (int wire = 0; wire < FRL_WIRES; wire++)
					if (o->ops >> op & o->dtypes >> dtype & o->wires >> wire &
							1 &&
						(redop == FRL_OPS || o->redops >> redop & 1) &&
						bench_combines(op, (enum frl_dtype)dtype,
							(enum frl_op)redop, (enum frl_wire)wire))
						return true;
	return false;
}

static int check_options(struct bench_options *o)
{
	if (!o->max)
		o->max = o->min > DEFAULT_MAX ? o->min : DEFAULT_MAX;
	if (o->min > o->max)
		return usage_error("--min is more than --max");
	if (o->root >= o->job.ranks)
		return usage_error("--root %d: ranks are 0 to %d", o->root, o->job.ranks - 1);
	if (o->use_malloc && o->mem.is_gpu)
		return usage_error("--malloc and --mem cuda exclude each other");
	if (o->json && o->csv && strcmp(o->json, "-") == 0 && strcmp(o->csv, "-") == 0)
		return usage_error("--json and --csv cannot both use standard output");
	if (o->plot && !o->iters && !o->auto_iters)
		return usage_error("--plot needs times, which --iters 0 does not measure");
	if (!o->check && !o->iters && !o->auto_iters)
		return usage_error("--check off and --iters 0 leave nothing to do");
	if (!has_case(o))
		return usage_error("--wire is for float32");
	return 0;
}

bool bench_prints_table(const struct bench_options *o)
{
	return !(o->json && strcmp(o->json, "-") == 0) && !(o->csv && strcmp(o->csv, "-") == 0);
}

bool bench_only_draws(const struct bench_options *o)
{
	return o->n_compared > 0 && o->job.ranks == 0;
}

int bench_parse_options(int argc, char **argv, struct bench_options *o)
{
	int code, rc = 0;

	*o = (struct bench_options){
		.job = { .rank = -1 },
		.ops = 1 << FRL_ALLREDUCE,
		.dtypes = 1 << FRL_FLOAT32,
		.redops = 1 << FRL_SUM,
		.wires = 1 << FRL_WIRE_SAME,
		.algos = 1 << FRL_ALGO_AUTO,
		.places = { true, true },
		.min = 8,
		.factor = 2,
		.auto_iters = true,
		.warmup = 5,
		.repeat = 1,
		.in_flight = 1,
		.seed = 1,
		.sample = 1,
		.check = true,
	};
	argv[0] = program_invocation_short_name; /* getopt prints it in messages */
	while (!rc && (code = getopt_long(argc, argv, "n:hq", long_options, NULL)) != -1) {
		if (code == 'h' || code == OPT_VERSION) {
			fputs(code == 'h' ? help : "ferrule-bench " FERRULE_VERSION "\n", stdout);
			return -1;
		}
		rc = take_option(code, optarg, o);
	}
	if (!rc && optind < argc)
		rc = usage_error("'%s' is not an option", argv[optind]);
	if (!rc && o->n_compared > 0 && !o->plot)
		rc = usage_error("--compare needs --plot, the picture to draw");
	o->job.may_be_none = o->n_compared > 0;
	if (!rc)
		rc = job_options_finish(&o->job);
	if (!rc && !bench_only_draws(o))
		rc = check_options(o);
	if (rc)
		frl_launch_close(&o->job.launch);
	return rc;
}
