/* SPDX-License-Identifier: BSD-3-Clause */
/* ferrule-bench: measures collectives of all kinds, and checks their results. */
#include "tools/bench/bench.h"

#include <errno.h>
#include <stdlib.h>

#include "tools/common/launch.h"
#include "tools/common/random.h"

/* Everything that must be equal on all ranks, in the order of `term_names`. */
enum { TERMS = 19 };

static const char *const term_names[TERMS] = { "--op", "--dtype", "--redop", "--wire", "--algo",
	"--root", "--in-place", "--min", "--max", "--factor", "--count", "--iters", "--warmup",
	"--repeat", "--inflight", "--check", "--data", "--seed", "--sample" };

static void fill_terms(const struct bench_options *o, uint64_t terms[TERMS])
{
	const uint64_t all[TERMS] = { o->ops, o->dtypes, o->redops, o->wires, o->algos,
		(uint64_t)o->root, (uint64_t)(o->places[0] + 2 * o->places[1]), o->min, o->max,
		o->factor, train_digest(o->n_counts, o->counts, o->n_counts * sizeof(o->counts[0])),
		o->auto_iters ? UINT64_MAX : o->iters, o->warmup, o->repeat, o->in_flight, o->check,
		o->random, o->seed, o->sample };

	for (int i = 0; i < TERMS; i++)
		terms[i] = all[i];
}

/* Checks that all ranks have the same options. Ranks that were started separately may differ. */
static int agree_on_terms(const struct bench_options *o, struct session *session)
{
	struct frl_bootstrap *bootstrap = &session->bootstrap;
	uint64_t mine[TERMS], all[MAX_RANKS][TERMS];
	int rc;

	fill_terms(o, mine);
	rc = bootstrap->allgather(bootstrap->ctx, mine, sizeof(mine), all);
	if (rc) {
		say_failure(rc, "cannot compare the options with the other ranks");
		return rc;
	}
	for (int r = 1; r < o->job.ranks; r++) {
		for (int i = 0; i < TERMS; i++) {
			if (all[r][i] == all[0][i])
				continue;
			say("rank %d and rank 0 differ in %s", r, term_names[i]);
			return -EINVAL;
		}
	}
	return 0;
}

/*
 * Returns the result of the run. All ranks know the number of wrong elements and return the same.
 */
static int conclude(const struct bench *b)
{
	const struct bench_options *o = b->options;
	int rc = b->wrong || b->different ? -EIO : b->measured ? 0 : -ENOTSUP;

	if (b->session->rank == 0 && !b->measured)
		bench_say_nothing(b);
	if (b->session->rank == 0) {
		int saved = bench_save(b);

		if (!saved && o->plot)
			saved = bench_compare(o, b);
		if (bench_prints_table(o)) {
			bench_print_rails(b);
			bench_print_verdict(b);
		}
		rc = rc ? rc : saved;
	}
	return rc;
}

int bench_rank(const struct bench_options *options, int rank, const char *job)
{
	struct session session = { .options = &options->job, .rank = rank };
	struct bench b = { .options = options, .session = &session };
	int rc = session_join(&session, job), verdict = 0;

	if (!rc)
		rc = agree_on_terms(options, &session);
	if (!rc)
		rc = bench_sweep(&b);
	if (!rc)
		verdict = conclude(&b);
	session_close(&session, rc); /* before the buffers are freed */
	bench_check_release(&b);
	free(b.rows);
	return rc ? rc : verdict;
}

static int local_rank(int rank, const char *job, void *ret_report, void *arg)
{
	return bench_rank(arg, rank, job) ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int run_local(struct bench_options *options)
{
	char nothing[1];
	const struct launch launch = {
		.ranks = options->job.ranks,
		.rank_main = local_rank,
		.arg = options,
		.reports = nothing, /* size 0: rank 0 prints all results */
	};

	return launch_ranks(&launch);
}

static int run_joined(const struct bench_options *options)
{
	const struct job_options *job = &options->job;

	say_rank(job->rank);
	if (job->rank == 0 && job->is_launched)
		say("%d ranks, launched by %s", job->ranks, job->launch.launcher);
	return bench_rank(options, job->rank, job->job) ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	struct bench_options options;
	int status, rc = bench_parse_options(argc, argv, &options);

	if (rc)
		return rc < 0 ? finish_output(EXIT_SUCCESS) : rc;
	if (options.job.rank <= 0 && (bench_save_check(&options) || bench_compare_check(&options)))
		return EXIT_FAILURE;
	if (bench_only_draws(&options))
		return bench_compare(&options, NULL) ? EXIT_FAILURE : EXIT_SUCCESS;
	if (bench_memory_check(&options))
		return EXIT_FAILURE;
	status = finish_output(options.job.rank < 0 ? run_local(&options) : run_joined(&options));
	frl_launch_close(&options.job.launch);
	return status;
}
