/* SPDX-License-Identifier: BSD-3-Clause */
/* ferrule-pingpong: latency and bandwidth of SEND and RDMA WRITE between two processes. */
#include "tools/pingpong/pingpong.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/pingpong/compat.h"
#include "tools/common/launch.h"

#define DEFAULT_SERVICE "pingpong"

static const char help[] =
	"Measures latency and bandwidth of SEND and RDMA WRITE between two processes.\n"
	"\n"
	"  ferrule-pingpong --local [options]             both ends on this machine\n"
	"  ferrule-pingpong --listen NAME [options]       server: offers the service, waits for a\n"
	"                                                 client without limit, serves it, exits\n"
	"  ferrule-pingpong --server [options]            the same with the name " DEFAULT_SERVICE
	"\n"
	"  ferrule-pingpong --connect HOST[:NAME] [...]   client: chooses tests, prints results\n"
	"  ferrule-pingpong --compat ibv ...              peer of ibv_rc_pingpong and the like\n"
	"                                                 (see --compat ibv --help)\n"
	"\n"
	"The ends connect through the control daemon (ferruled) of the server's HOST. If that\n"
	"daemon does not use the default port, write HOST:PORT:NAME. \"localhost\" and an empty\n"
	"HOST are this host. HOST is not the address of the data (--ip).\n"
	"\n"
	"Tests (for --local and --connect):\n"
	"  --op OP             send, write or all (default: all)\n"
	"  --test TEST         latency, bandwidth or all (default: all)\n"
	"  --sizes LIST        message sizes: 8,4K,1M (K, M, G are powers of 1024)\n"
	"  --min SIZE          first size, without --sizes (default: 8)\n"
	"  --max SIZE          last size (default: 4M)\n"
	"  --factor N          factor between sizes (default: 4)\n"
	"  --iters N           messages per size (default: depends on the size, is printed)\n"
	"  --places N          use N places for messages, in turn; ib_write_bw and ucx_perftest\n"
	"                      use 1 (default: one place per message in flight)\n"
	"  --verify            give each message its own pattern, and check every byte\n"
	"\n"
	"Latency is half of a round trip. A WRITE carries immediate data, which completes a\n"
	"receive. Bandwidth has up to 64 messages in flight; the measurement ends when the server\n"
	"has reported all of them. GB is 10^9 bytes.\n"
	"\n"
	"  --wait S            fail if the peer does not answer for S seconds: the service does\n"
	"                      not exist, or a connection is not accepted (default: 10)\n"
	"\n"
	"Memory of this end (with --local: of both):\n" MEM_HELP
	"  --malloc            use memory of malloc() instead of frl_mem_alloc()\n"
	"\n" DEVICE_HELP "\n"
	"  -h, --help          print this text\n"
	"  --version           print the version\n"
	"\n"
	"Exit status: 0 success, 1 a failure or wrong data, 2 invalid usage.\n";

enum mode { MODE_NONE, MODE_LOCAL, MODE_SERVER, MODE_CLIENT };

struct options {
	enum mode mode;
	const char *service;
	char host[FRL_HOST_MAX + 1]; /* host of the server */
	const char *sizes;
	uint64_t min, max, factor;
	uint64_t wait_s;
	const char *plan_option; /* an option of the client only, as given */
	struct plan plan;
	struct mem_option mem;
	bool use_malloc;
	struct device_options device;
};

enum {
	OPT_LOCAL = OPT_OWN,
	OPT_SERVER,
	OPT_LISTEN,
	OPT_CONNECT,
	OPT_VERSION,
	OPT_MEM,
	OPT_MALLOC,
	OPT_WAIT,
	OPT_PLAN, /* options of the plan from here on */
	OPT_OP = OPT_PLAN,
	OPT_TEST,
	OPT_SIZES,
	OPT_MIN,
	OPT_MAX,
	OPT_FACTOR,
	OPT_ITERS,
	OPT_PLACES,
	OPT_VERIFY,
};

static const struct option long_options[] = {
	{ "local", no_argument, NULL, OPT_LOCAL },
	{ "server", no_argument, NULL, OPT_SERVER },
	{ "listen", required_argument, NULL, OPT_LISTEN },
	{ "connect", required_argument, NULL, OPT_CONNECT },
	{ "op", required_argument, NULL, OPT_OP },
	{ "test", required_argument, NULL, OPT_TEST },
	{ "sizes", required_argument, NULL, OPT_SIZES },
	{ "min", required_argument, NULL, OPT_MIN },
	{ "max", required_argument, NULL, OPT_MAX },
	{ "factor", required_argument, NULL, OPT_FACTOR },
	{ "iters", required_argument, NULL, OPT_ITERS },
	{ "places", required_argument, NULL, OPT_PLACES },
	{ "verify", no_argument, NULL, OPT_VERIFY },
	{ "malloc", no_argument, NULL, OPT_MALLOC },
	{ "mem", required_argument, NULL, OPT_MEM },
	{ "wait", required_argument, NULL, OPT_WAIT },
	DEVICE_LONG_OPTIONS,
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

static const char *const op_names[] = { [PP_SEND] = "send", [PP_WRITE] = "write" };
static const char *const test_names[] = { [PP_LATENCY] = "latency", [PP_BANDWIDTH] = "bandwidth" };

/* Parses one of two names, or "all", into bits. */
static int choice(const char *option, const char *value, const char *const names[2], uint32_t *bits)
{
	for (int i = 0; i < 2; i++) {
		if (strcmp(value, names[i]) == 0) {
			*bits = 1u << i;
			return 0;
		}
	}
	*bits = 3;
	if (strcmp(value, "all") == 0)
		return 0;
	return usage_error("%s '%s': use %s, %s or all", option, value, names[0], names[1]);
}

static int size_option(const char *option, const char *value, uint64_t *ret_size)
{
	if (parse_size(value, ret_size) && *ret_size >= 1 && *ret_size <= MAX_SIZE)
		return 0;
	return usage_error("%s '%s': not a size from 1 to 1G", option, value);
}

static int number_option(
	const char *option, const char *value, uint64_t min, uint64_t max, uint64_t *ret_number)
{
	if (parse_number(value, min, max, ret_number))
		return 0;
	return usage_error("%s '%s': not a whole number from %ju to %ju", option, value,
		(uintmax_t)min, (uintmax_t)max);
}

static int plan_option(int code, const char *value, struct options *o)
{
	switch (code) {
	case OPT_OP: return choice("--op", value, op_names, &o->plan.ops);
	case OPT_TEST: return choice("--test", value, test_names, &o->plan.tests);
	case OPT_SIZES: o->sizes = value; return 0;
	case OPT_MIN: return size_option("--min", value, &o->min);
	case OPT_MAX: return size_option("--max", value, &o->max);
	case OPT_FACTOR: return number_option("--factor", value, 2, 1024, &o->factor);
	case OPT_ITERS: return number_option("--iters", value, 1, 100000000, &o->plan.iters);
	case OPT_PLACES: return number_option("--places", value, 1, MAX_SLOTS, &o->plan.places);
	case OPT_VERIFY: o->plan.verify = 1; return 0;
	}
	return device_option(code, value, &o->device);
}

static int mode_option(enum mode mode, struct options *o)
{
	if (o->mode != MODE_NONE && o->mode != mode)
		return usage_error("--local, --listen (--server) and --connect exclude each other");
	o->mode = mode;
	return 0;
}

/* Parses "HOST:SERVICE"; both have defaults. The host may be an IPv6 address in brackets. */
static int connect_option(const char *value, struct options *o)
{
	const char *colon = strrchr(value, ':'), *bracket = strrchr(value, ']');
	size_t host;

	if (colon && bracket && colon < bracket)
		colon = NULL;
	host = colon ? (size_t)(colon - value) : strlen(value);
	if (host >= sizeof(o->host))
		return usage_error("--connect: the name of the host is too long");
	memcpy(o->host, value, host);
	device_peer(&o->device, o->host);
	if (colon)
		o->service = colon + 1;
	return mode_option(MODE_CLIENT, o);
}

static int take_option(int code, const char *value, const char *name, struct options *o)
{
	switch (code) {
	case OPT_LOCAL: return mode_option(MODE_LOCAL, o);
	case OPT_SERVER: return mode_option(MODE_SERVER, o);
	case OPT_LISTEN: o->service = value; return mode_option(MODE_SERVER, o);
	case OPT_CONNECT: return connect_option(value, o);
	case OPT_MEM: return mem_option(value, &o->mem);
	case OPT_MALLOC: o->use_malloc = true; return 0;
	case OPT_WAIT: return number_option("--wait", value, 1, MAX_WAIT_S, &o->wait_s);
	case '?': return EXIT_USAGE; /* getopt has printed the error */
	}
	if (code >= OPT_PLAN)
		o->plan_option = name;
	return plan_option(code, value, o);
}

static int list_sizes(struct options *o)
{
	struct plan *plan = &o->plan;
	char item[32];

	for (const char *at = o->sizes; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		int rc;

		if (plan->n_sizes == MAX_SIZES)
			return usage_error("--sizes: more than %d", MAX_SIZES);
		snprintf(item, sizeof(item), "%.*s", (int)strcspn(at, ","), at);
		rc = size_option("--sizes", item, &plan->sizes[plan->n_sizes++]);
		if (rc)
			return rc;
	}
	if (o->sizes)
		return 0;
	if (o->min > o->max)
		return usage_error("--min is more than --max");
	for (uint64_t size = o->min; size <= o->max; size *= o->factor)
		plan->sizes[plan->n_sizes++] = size;
	return 0;
}

static int check_options(const struct options *o)
{
	if (o->mode == MODE_NONE)
		return usage_error("one of --local, --listen and --connect is needed");
	if (o->mode == MODE_SERVER && o->plan_option)
		return usage_error("--%s: the client chooses the tests, give the option there",
			o->plan_option);
	if (o->plan.places && o->plan.verify)
		return usage_error("--verify needs a place for each message: it cannot be used "
				   "with --places");
	if (o->use_malloc && o->mem.is_gpu)
		return usage_error("--malloc and --mem cuda exclude each other");
	if (o->mode == MODE_LOCAL && o->device.n_ports > 0)
		return usage_error("--local uses the local fabric: a --port needs --listen on one "
				   "end and --connect on the other");
	return device_options_check(&o->device, 1);
}

/* Parses the command line. Returns 0, EXIT_USAGE, or -1 if there is nothing else to do. */
static int parse_options(int argc, char **argv, struct options *o)
{
	int code, index = 0, rc = 0;

	*o = (struct options){
		.service = DEFAULT_SERVICE,
		.min = 8,
		.max = 4 << 20,
		.factor = 4,
		.wait_s = 10,
		.plan = { .ops = 3, .tests = 3 },
	};
	argv[0] = program_invocation_short_name; /* getopt prints it in messages */
	while (!rc && (code = getopt_long(argc, argv, "h", long_options, &index)) != -1) {
		if (code == 'h' || code == OPT_VERSION) {
			fputs(code == 'h' ? help : "ferrule-pingpong " FERRULE_VERSION "\n",
				stdout);
			return -1;
		}
		rc = take_option(code, optarg, long_options[index].name, o);
	}
	if (!rc && optind < argc)
		rc = usage_error("'%s' is not an option", argv[optind]);
	if (!rc)
		rc = check_options(o);
	return rc ? rc : list_sizes(o);
}

/* Returns ", memory of GPU 0 (mapped)"; "" for host memory. */
static const char *way_of(const struct link *link, char *text, size_t size)
{
	struct frl_mr_attr attr;

	frl_mr_query(link->mr, &attr);
	text[0] = '\0';
	if (attr.gpu >= 0)
		snprintf(text, size, ", memory of GPU %d (%s)", attr.gpu,
			frl_mr_tier_name(attr.tier));
	return text;
}

static void print_heading(
	const struct link *link, const struct plan *plan, enum pp_op op, enum pp_test test)
{
	char way[64];

	printf("\n%s %s, %s, path MTU %" PRIu32 "%s%s\n", op == PP_SEND ? "SEND" : "RDMA WRITE",
		test == PP_LATENCY ? "latency (half round trip)" : "bandwidth",
		link->attr.local_fabric ? "local fabric" : link->attr.port, link->attr.path_mtu,
		plan->verify ? ", every byte checked" : "", way_of(link, way, sizeof(way)));
	if (test == PP_LATENCY)
		printf("  %10s %9s %10s %10s %10s %10s\n", "bytes", "messages", "min us", "p50 us",
			"p99 us", "p99.9 us");
	else
		printf("  %10s %9s %10s %12s\n", "bytes", "messages", "GB/s", "messages/s");
}

/* Prints a quantile, if there are enough samples: with fewer it would be the largest one. */
static void print_quantile(double us, uint64_t samples, uint64_t needed)
{
	if (samples < needed)
		printf(" %10s", "-");
	else
		printf(" %10.2f", us);
}

static void print_latency(size_t size, const struct latency *l)
{
	printf("  %10zu %9" PRIu64 " %10.2f %10.2f", size, l->iters, l->min, l->p50);
	print_quantile(l->p99, l->iters, 100);
	print_quantile(l->p999, l->iters, 1000);
	printf("\n");
}

static int measure_size(
	struct link *link, const struct plan *plan, enum pp_op op, enum pp_test test, size_t size)
{
	struct bandwidth b;
	struct latency l;
	int rc;

	if (test == PP_LATENCY) {
		rc = measure_latency(link, plan, op, size, &l);
		if (!rc && link->rank == CLIENT)
			print_latency(size, &l);
	} else {
		rc = measure_bandwidth(link, plan, op, size, &b);
		if (!rc && link->rank == CLIENT)
			printf("  %10zu %9" PRIu64 " %10.3f %12.0f\n", size, b.iters,
				(double)size * (double)b.iters / b.seconds / 1e9,
				(double)b.iters / b.seconds);
	}
	fflush(stdout);
	return rc;
}

static int measure_all(struct link *link, const struct plan *plan)
{
	int rc = 0;

	for (int op = 0; op < PP_OPS; op++) {
		for (int test = 0; test < PP_TESTS; test++) {
			if (rc || !(plan->ops >> op & 1) || !(plan->tests >> test & 1))
				continue;
			if (link->rank == CLIENT)
				print_heading(link, plan, (enum pp_op)op, (enum pp_test)test);
			for (uint32_t i = 0; i < plan->n_sizes && !rc; i++)
				rc = measure_size(link, plan, (enum pp_op)op, (enum pp_test)test,
					plan->sizes[i]);
		}
	}
	return rc;
}

static size_t largest(const struct plan *plan)
{
	uint64_t size = 0;

	for (uint32_t i = 0; i < plan->n_sizes; i++)
		size = plan->sizes[i] > size ? plan->sizes[i] : size;
	return (size_t)size;
}

static int run_end(int rank, const char *service, bool announce, const struct options *o)
{
	struct link link = {
		.rank = rank,
		.host = o->host,
		.service = service,
		.wait_ms = (int)o->wait_s * 1000,
		.mem = o->mem,
		.use_malloc = o->use_malloc,
	};
	struct plan plan = o->plan;
	int rc = link_join(&link, &o->device, announce);

	if (!rc)
		rc = link_share_plan(&link, &plan);
	link.places = plan.places;
	if (!rc)
		rc = link_connect(&link, largest(&plan));
	if (!rc)
		rc = measure_all(&link, &plan);
	if (!rc)
		rc = link_sync(&link);
	if (!rc)
		side_farewell(&link);
	link_close(&link);
	return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int local_end(int rank, const char *job, void *ret_report, void *arg)
{
	(void)ret_report;
	return run_end(rank, job, false, arg);
}

static int run_server(const struct options *o)
{
	int rc = run_end(SERVER, o->service, true, o);

	if (!rc)
		printf("served it, done\n");
	return rc;
}

/* Returns whether --compat is given: a mode with options of its own. */
static bool wants_compat(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--compat") == 0 || strncmp(argv[i], "--compat=", 9) == 0)
			return true;
	return false;
}

int main(int argc, char **argv)
{
	struct launch launch = { .ranks = PEERS, .rank_main = local_end };
	struct options options;
	int rc;

	if (wants_compat(argc, argv))
		return compat_main(argc, argv);
	rc = parse_options(argc, argv, &options);
	if (rc)
		return rc < 0 ? finish_output(EXIT_SUCCESS) : rc;
	rc = EXIT_USAGE;
	switch (options.mode) {
	case MODE_NONE: break;
	case MODE_SERVER: rc = run_server(&options); break;
	case MODE_CLIENT: rc = run_end(CLIENT, options.service, false, &options); break;
	case MODE_LOCAL:
		launch.arg = &options;
		rc = launch_ranks(&launch);
		break;
	}
	return finish_output(rc);
}
