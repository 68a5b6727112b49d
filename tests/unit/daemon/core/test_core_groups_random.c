/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks of jobs on three hosts that join, give pieces, leave, give up and die at random, while
 * daemons are restarted, sessions reset and the network stalls. No rank that keeps to the rules is
 * removed. A rank that is in a job in the end has all pieces of the others in it, and knows all
 * that are not. When the last process has gone the daemons have no state left. If no rank ends and
 * no daemon is away for long, none is missed.
 *
 * FRL_SEED=N repeats one run, FRL_SEEDS=N makes more of them; a failure names its seed.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/random.h"
#include "tests/unit/daemon/core/fixtures/groups_model.h"
#include "tests/fixtures/program.h"

enum { HOSTS = 3, JOBS = 30, RANKS = 4, STEPS = 800, SEEDS = 20, CALM_S = 60 };

struct rank_model {
	struct model model;
	uint64_t asked_ns, in_ns, over_ns;
};

struct job_model {
	char name[16];
	int keeper;
	uint64_t killed_ns; /* when its keeper was last */
	struct rank_model rank[RANKS];
};

struct run {
	struct world *world;
	struct random_state random;
	unsigned long long seed;
	bool daemon_dead[HOSTS];
	uint32_t next_pid;
	int n_jobs;
	struct job_model job[JOBS];
};

static const char *const names[HOSTS] = { "a", "b", "c" };

static uint32_t pick(struct run *run, uint32_t n)
{
	return (uint32_t)random_below(&run->random, n);
}

static struct rank_model *any_rank(struct run *run, struct job_model **ret_job)
{
	/* Old jobs have less to do. */
	uint32_t recent = run->n_jobs < 3 ? (uint32_t)run->n_jobs : 3;

	*ret_job = &run->job[(uint32_t)run->n_jobs - 1 - pick(run, recent)];
	return &(*ret_job)->rank[pick(run, RANKS)];
}

/* ---- what is heard */

static void die(struct run *run, struct rank_model *me)
{
	if (me->model.state != MODEL_NONE && !me->over_ns)
		me->over_ns = world_now(run->world);
	model_die(&me->model);
}

static void hear(struct run *run, struct rank_model *me)
{
	struct model *model = &me->model;

	model_hear(model);
	if (model_is_in(model) && !me->in_ns)
		me->in_ns = world_now(run->world);
	ck_assert_msg(!strstr(model->why, "thrown") && !strstr(model->why, "out of turn"),
		"seed %llu: %s: %s", run->seed, model->job, model->why);
	/* As callers of the library do. */
	if (model->state == MODEL_FAILED)
		die(run, me);
	for (int i = 0; i < RANKS; i++)
		if (model->dead_ns[i] && model->state == MODEL_JOINED && !model->gave_up)
			model_leave(model, true);
}

static void hear_all(struct run *run)
{
	for (int j = 0; j < run->n_jobs; j++)
		for (int i = 0; i < RANKS; i++)
			hear(run, &run->job[j].rank[i]);
}

/* ---- what happens */

static void do_job(struct run *run)
{
	struct job_model *job = &run->job[run->n_jobs];

	if (run->n_jobs == JOBS)
		return;
	snprintf(job->name, sizeof(job->name), "job%d", run->n_jobs++);
	job->keeper = (int)pick(run, HOSTS);
}

static void do_join(struct run *run)
{
	struct job_model *job;
	struct rank_model *me = any_rank(run, &job);
	int host = (int)pick(run, HOSTS);
	char place[32];

	if (me->model.state != MODEL_NONE || run->daemon_dead[host])
		return;
	switch (pick(run, 3)) {
	case 0: snprintf(place, sizeof(place), "%s", names[job->keeper]); break;
	case 1: snprintf(place, sizeof(place), "10.0.0.%d", job->keeper + 1); break;
	default:
		snprintf(place, sizeof(place), "%s:7476", names[job->keeper]);
		if (host == job->keeper)
			place[0] = '\0';
	}
	model_join(&me->model, run->world, host, run->next_pid++, job->name, place,
		(uint32_t)(me - job->rank), RANKS);
	me->asked_ns = world_now(run->world);
}

static void do_give(struct run *run)
{
	struct job_model *job;
	uint32_t spared = (uint32_t)(any_rank(run, &job) - job->rank);

	for (uint32_t i = 0; i < RANKS; i++) {
		if (i != spared)
			model_give(&job->rank[i].model);
	}
}

static void do_leave(struct run *run, bool aborts)
{
	struct job_model *job;
	struct rank_model *me = any_rank(run, &job);

	if (me->model.state != MODEL_JOINED || me->model.gave_up)
		return;
	model_leave(&me->model, aborts);
	if (!aborts)
		me->over_ns = world_now(run->world);
}

static void do_die(struct run *run)
{
	struct job_model *job;
	struct rank_model *me = any_rank(run, &job);

	if (me->model.state == MODEL_JOINING || model_is_in(&me->model))
		die(run, me);
}

static void start_daemon(struct run *run, int host)
{
	if (!run->daemon_dead[host])
		return;
	world_start_daemon(run->world, host, pick(run, 2));
	run->daemon_dead[host] = false;
	for (int j = 0; j < run->n_jobs; j++) {
		for (int i = 0; i < RANKS; i++) {
			struct model *model = &run->job[j].rank[i].model;

			if (model->rank.process && model->rank.process->host == host)
				model_come_back(model);
		}
	}
}

static void kill_daemon(struct run *run, int host)
{
	world_kill_daemon(run->world, host);
	run->daemon_dead[host] = true;
	for (int j = 0; j < run->n_jobs; j++)
		if (run->job[j].keeper == host)
			run->job[j].killed_ns = world_now(run->world);
}

static void do_restart(struct run *run)
{
	int host = (int)pick(run, HOSTS);

	if (run->daemon_dead[host])
		start_daemon(run, host);
	else
		kill_daemon(run, host);
	world_run(run->world, WORLD_MS);
}

static void do_stall(struct run *run)
{
	int a = (int)pick(run, HOSTS), b = (a + 1) % HOSTS;

	world_stall(run->world, a, b, true);
	for (uint32_t i = pick(run, 60); i > 0; i--) {
		do_join(run);
		do_give(run);
		world_run(run->world, 100 * WORLD_MS);
		hear_all(run);
	}
	world_stall(run->world, a, b, false);
}

static void step(struct run *run)
{
	uint32_t dice = pick(run, 200);

	if (dice < 5)
		do_job(run);
	else if (dice < 40)
		do_join(run);
	else if (dice < 180)
		do_give(run);
	else if (dice < 184)
		do_leave(run, false);
	else if (dice < 186)
		do_leave(run, true);
	else if (dice < 189)
		do_die(run);
	else if (dice < 192)
		do_restart(run);
	else if (dice < 193)
		do_stall(run);
	else if (dice < 195)
		world_reset_sessions(run->world, (int)pick(run, 2), 2);
	else
		world_run(run->world, pick(run, 1000) * WORLD_MS);
	world_run(run->world, pick(run, 400) * (WORLD_REMOTE_NS / 100));
	hear_all(run);
}

/* ---- in the end */

static void calm_down(struct run *run)
{
	world_run(run->world, WORLD_MS);
	for (int i = 0; i < HOSTS; i++)
		start_daemon(run, i);
	for (int i = 0; i < 5 * CALM_S; i++) {
		world_run(run->world, 200 * WORLD_MS);
		hear_all(run);
	}
}

static void check_knows(const struct run *run, const struct job_model *job,
	const struct rank_model *me, const struct rank_model *other)
{
	const struct model *model = &me->model;
	uint32_t number = (uint32_t)(other - job->rank);
	/* A rank that has gone before all had met is unknown where the group is made again. */
	bool is_known = model->met ||
		(model->state == MODEL_JOINED && other->asked_ns > job->killed_ns);

	if (other->model.state == MODEL_JOINED && model->state == MODEL_JOINED)
		/* A restarted daemon accepts ranks again that it had given up. */
		ck_assert_msg(model_has_all(model, &other->model) && !model->left[number] &&
				model->dead_ns[number] <= job->killed_ns,
			"seed %llu: %s: rank %u in round %u lacks something of rank %u: %u given%s",
			run->seed, job->name, model->rank.number, model->round, number,
			other->model.given, model->dead_ns[number] ? ", dead" : "");
	else if (other->over_ns > me->in_ns && other->in_ns && is_known)
		ck_assert_msg(model_misses(model, number) || model->aborted[number],
			"seed %llu: %s: rank %u does not know that rank %u has gone", run->seed,
			job->name, model->rank.number, number);
}

static void check_end(const struct run *run)
{
	for (int j = 0; j < run->n_jobs; j++) {
		const struct job_model *job = &run->job[j];

		for (int i = 0; i < RANKS; i++) {
			const struct rank_model *me = &job->rank[i];

			ck_assert_msg(me->model.state != MODEL_JOINING &&
					me->model.state != MODEL_AWAY &&
					!(me->model.state == MODEL_BACK && me->model.met),
				"seed %llu: %s: rank %d waits in state %d", run->seed, job->name, i,
				(int)me->model.state);
			if (!model_is_in(&me->model))
				continue;
			for (int k = 0; k < RANKS; k++) {
				if (k != i)
					check_knows(run, job, me, &job->rank[k]);
			}
		}
	}
}

static void check_empty(struct run *run)
{
	for (int j = 0; j < run->n_jobs; j++) {
		for (int i = 0; i < RANKS; i++)
			die(run, &run->job[j].rank[i]);
	}
	world_run(run->world, 120 * WORLD_S);
	for (int host = 0; host < HOSTS; host++) {
		const struct core *core = world_core(run->world, host);

		ck_assert_uint_eq(HASH_COUNT(core->groups), 0);
		ck_assert_uint_eq(HASH_COUNT(core->members), 0);
		ck_assert_uint_eq(HASH_COUNT(core->peers), 0);
		ck_assert_uint_eq(HASH_COUNT(core->sessions), 0);
		ck_assert_uint_eq(HASH_COUNT(core->users), 0);
	}
}

static struct run *run_new(int number)
{
	const char *wanted = getenv("FRL_SEED");
	struct run *run = calloc(1, sizeof(*run));

	ck_assert_ptr_nonnull(run);
	run->seed = wanted ? strtoull(wanted, NULL, 0) : (unsigned long long)number + 1;
	run->world = world_create(run->seed);
	run->next_pid = 100;
	random_seed(&run->random, run->seed);
	for (int i = 0; i < HOSTS; i++)
		world_add_host(run->world, names[i], NULL);
	do_job(run);
	return run;
}

static void run_free(struct run *run)
{
	check_empty(run);
	world_destroy(run->world);
	free(run);
}

static int n_seeds(void)
{
	const char *more = getenv("FRL_SEEDS");

	return getenv("FRL_SEED") ? 1 : more ? atoi(more) : SEEDS;
}

START_LOOP_TEST(anything_happens, n_seeds())
{
	struct run *run = run_new(_i);
	for (int i = 0; i < STEPS; i++)
		step(run);
	calm_down(run);
	check_end(run);
	run_free(run);
}
END_TEST

/* ---- nothing that a job would not survive */

static void disturb(struct run *run, uint64_t up_ns[HOSTS])
{
	uint32_t dice = pick(run, 1000);
	int host = (int)pick(run, HOSTS);

	if (dice < 4 && !run->daemon_dead[host]) {
		kill_daemon(run, host);
		up_ns[host] = world_now(run->world) + (1 + pick(run, 3000)) * WORLD_MS;
	} else if (dice < 8) {
		world_reset_sessions(run->world, host, (host + 1) % HOSTS);
	} else if (dice < 9) {
		world_stall(run->world, host, (host + 1) % HOSTS, true);
		world_run(run->world, pick(run, 1000) * WORLD_MS);
		hear_all(run);
		world_stall(run->world, host, (host + 1) % HOSTS, false);
	} else if (dice < 15) {
		world_run(run->world, pick(run, 3000) * WORLD_MS);
	}
	for (int i = 0; i < HOSTS; i++)
		if (run->daemon_dead[i] && world_now(run->world) >= up_ns[i])
			start_daemon(run, i);
}

static void all_give(struct run *run, bool at_random)
{
	for (uint32_t i = 0; i < RANKS; i++)
		if (!at_random || pick(run, 3) == 0)
			model_give(&run->job[0].rank[i].model);
}

START_LOOP_TEST(nobody_is_missed, n_seeds())
{
	struct run *run = run_new(_i);
	uint64_t up_ns[HOSTS] = { 0 };

	for (uint32_t i = 0; i < RANKS; i++) {
		/* Sometimes the daemons do not run at the same time for long. */
		run->job[0].rank[i].model.lost_s = 60;
		model_join(&run->job[0].rank[i].model, run->world, (int)pick(run, HOSTS),
			run->next_pid++, "job0", names[run->job[0].keeper], i, RANKS);
		world_run(run->world, WORLD_S);
	}
	hear_all(run);
	for (int i = 0; i < 4 * STEPS; i++) {
		disturb(run, up_ns);
		all_give(run, true);
		world_run(run->world, pick(run, 300) * (WORLD_REMOTE_NS / 100));
		hear_all(run);
	}
	calm_down(run);
	for (int i = 0; i < 50; i++) {
		all_give(run, false);
		world_run(run->world, WORLD_MS);
		hear_all(run);
	}
	for (uint32_t i = 0; i < RANKS; i++) {
		const struct model *model = &run->job[0].rank[i].model;

		ck_assert_msg(model->state == MODEL_JOINED && !model->why[0],
			"seed %llu: rank %u is in state %d: %s", run->seed, i, (int)model->state,
			model->why);
		ck_assert_uint_ge(model->round, 50);
		ck_assert_uint_eq(model->round, run->job[0].rank[0].model.round);
	}
	run_free(run);
}
END_TEST

TEST_FILE(core_groups_random)
