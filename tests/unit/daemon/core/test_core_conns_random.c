/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes on three hosts that connect, accept, reject, close and die at random, while daemons are
 * restarted, hosts cut off and sessions reset. The expected messages of each end are followed all
 * the time: the other one's name is right, an end is reported once, and only for a connection that
 * has not ended. In the end both ends of each connection agree on its state; and when the last
 * process has gone the daemons have no state left.
 *
 * FRL_SEED=N repeats one run; a failure names its seed.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/random.h"
#include "tests/unit/daemon/core/fixtures/conns_fixture.h"
#include "tests/fixtures/program.h"

enum {
	HOSTS = 3,
	PER_HOST = 3,
	PROCESSES = HOSTS * PER_HOST,
	CONNS = 400,
	STEPS = 250,
	SEEDS = 30
};
enum { KEEPALIVE_MS = 900, RELEARN_MS = 700 };

enum end_state { NOTHING, REQUESTED, REPLIED, ESTABLISHED, ENDED };

/* A process' model of its end. */
struct end_model {
	enum end_state state;
	int process;    /* -1: nobody's yet */
	unsigned heard; /* ends */
};

struct conn_model {
	struct end_model end[2]; /* [1]: the passive one */
};

struct run {
	struct world *world;
	struct random_state random;
	uint64_t seed;
	struct config *config[HOSTS];
	struct process *process[PROCESSES];
	uint32_t next_pid;
	bool daemon_dead[HOSTS];
	bool cut[HOSTS][HOSTS];
	struct conn_model conn[CONNS + 1];
	uint32_t conns;
};

static const char *const names[HOSTS] = { "a", "b", "c" };

static uint32_t pick(struct run *run, uint32_t n)
{
	return (uint32_t)random_below(&run->random, n);
}

static void service_of(int process, char *text, size_t size)
{
	snprintf(text, size, "s%d", process);
}

static void start_process(struct run *run, int index)
{
	char service[16];

	service_of(index, service, sizeof(service));
	run->process[index] = conns_process(run->world, index / PER_HOST, UID, run->next_pid++);
	offer(run->process[index], service, 1, false);
}

static void end_ends(struct run *run, int process, bool also_established)
{
	for (uint32_t i = 1; i <= run->conns; i++) {
		for (int side = 0; side < 2; side++) {
			struct end_model *end = &run->conn[i].end[side];

			if (end->process == process && end->state != NOTHING &&
				(also_established || end->state != ESTABLISHED))
				end->state = ENDED;
		}
	}
}

/* ---- what is heard */

static void check_other(struct run *run, const Ctl__Who *who, const struct end_model *other)
{
	const struct process *process = run->process[other->process];

	ck_assert_msg(who->pid == process->pid && !strcmp(who->host, names[process->host]) &&
			who->uid == UID && !strcmp(who->program, "test"),
		"seed %llu: it is said to be %u on %s, and is %u on %s",
		(unsigned long long)run->seed, who->pid, who->host, process->pid,
		names[process->host]);
}

static void on_request(struct run *run, int me, uint32_t number, const Ctl__ConnRequest *request)
{
	struct conn_model *conn = &run->conn[number];
	uint32_t dice = pick(run, 10);

	/* It is sent again if an answer was lost with a daemon or a session. */
	ck_assert_msg(conn->end[1].state == NOTHING || conn->end[1].state == ENDED,
		"seed %llu: request %u is heard twice", (unsigned long long)run->seed, number);
	if (conn->end[0].state != ENDED)
		check_other(run, request->who, &conn->end[0]);
	conn->end[1] = (struct end_model){ REQUESTED, me, 0 };
	if (dice == 0)
		return;
	if (dice == 1) {
		end(run->process[me], number, false, ECONNREFUSED, "no");
		conn->end[1].state = ENDED;
		return;
	}
	reply(run->process[me], number, qpn_of(number) + 100000);
	conn->end[1].state = REPLIED;
}

static void on_reply(struct run *run, int me, uint32_t number, const Ctl__ConnReply *message)
{
	struct conn_model *conn = &run->conn[number];

	if (conn->end[0].state == ENDED)
		return;
	ck_assert_int_eq(conn->end[0].process, me);
	ck_assert_int_eq(conn->end[0].state, REQUESTED);
	if (conn->end[1].state != ENDED)
		check_other(run, message->who, &conn->end[1]);
	ready(run->process[me], number);
	conn->end[0].state = ESTABLISHED;
}

static void on_ready(struct run *run, int me, uint32_t number)
{
	struct end_model *end = &run->conn[number].end[1];

	if (end->state == ENDED)
		return;
	ck_assert_int_eq(end->process, me);
	ck_assert_int_eq(end->state, REPLIED);
	end->state = ESTABLISHED;
}

static void on_end(struct run *run, int me, uint32_t number, const Ctl__ConnEnd *message)
{
	struct end_model *end = &run->conn[number].end[message->to_passive];

	ck_assert_int_eq(end->process, me);
	ck_assert_msg(end->heard++ == 0, "seed %llu: the end of %u is heard twice",
		(unsigned long long)run->seed, number);
	/* Both may end it at the same time. */
	if (end->state == ENDED)
		return;
	ck_assert_msg(end->state != NOTHING, "seed %llu: an end of what has not begun",
		(unsigned long long)run->seed);
	ck_assert_uint_ne(message->error, 0);
	ck_assert_str_ne(message->reason, "");
	end->state = ENDED;
}

static void hear(struct run *run, int me)
{
	Ctl__Envelope *envelope;

	while ((envelope = process_take_any(run->process[me])) != NULL) {
		uint32_t number = uuid_number(envelope);

		ck_assert_uint_le(number, run->conns);
		switch (envelope->body_case) {
		case CTL__ENVELOPE__BODY_CONN_REQUEST:
			on_request(run, me, number, envelope->conn_request);
			break;
		case CTL__ENVELOPE__BODY_CONN_REPLY:
			on_reply(run, me, number, envelope->conn_reply);
			break;
		case CTL__ENVELOPE__BODY_CONN_READY: on_ready(run, me, number); break;
		case CTL__ENVELOPE__BODY_CONN_END:
			on_end(run, me, number, envelope->conn_end);
			break;
		default:
			ck_abort_msg("seed %llu: body %d", (unsigned long long)run->seed,
				(int)envelope->body_case);
		}
		ctl__envelope__free_unpacked(envelope, NULL);
	}
}

static void hear_all(struct run *run)
{
	for (int i = 0; i < PROCESSES; i++)
		hear(run, i);
}

/* ---- what happens */

static void do_connect(struct run *run)
{
	int from = (int)pick(run, PROCESSES), to = (int)pick(run, PROCESSES);
	int host = to / PER_HOST;
	char service[16], place[32];

	if (run->conns == CONNS || run->process[from]->ended)
		return;
	service_of(to, service, sizeof(service));
	switch (pick(run, 3)) {
	case 0: snprintf(place, sizeof(place), "%s", names[host]); break;
	case 1: snprintf(place, sizeof(place), "10.0.0.%d", host + 1); break;
	default:
		snprintf(place, sizeof(place), "%s:7476", names[host]);
		if (host == from / PER_HOST)
			place[0] = '\0';
	}
	run->conns++;
	run->conn[run->conns].end[0] = (struct end_model){ REQUESTED, from, 0 };
	run->conn[run->conns].end[1].process = -1;
	request(run->process[from], run->conns, place, service);
}

static void do_close(struct run *run)
{
	uint32_t number = run->conns ? 1 + pick(run, run->conns) : 0;
	bool passive = pick(run, 2);
	struct end_model *model = &run->conn[number].end[passive];

	if (number == 0 || model->state == NOTHING || model->state == ENDED)
		return;
	end(run->process[model->process], number, !passive, ECONNRESET, "");
	model->state = ENDED;
}

static void do_kill_process(struct run *run)
{
	int index = (int)pick(run, PROCESSES);

	if (run->daemon_dead[index / PER_HOST])
		return;
	hear(run, index);
	if (!run->process[index]->ended)
		process_die(run->process[index]);
	end_ends(run, index, true);
	world_run(run->world, WORLD_MS);
	start_process(run, index);
}

/* A process whose daemon was started again reports its state, or has gone meanwhile. */
static void come_back(struct run *run, int index)
{
	char service[16];

	hear(run, index);
	if (pick(run, 10) == 0) {
		end_ends(run, index, true);
		start_process(run, index);
		return;
	}
	end_ends(run, index, false);
	process_come_back(run->process[index]);
	process_open_port(run->process[index], PORT);
	service_of(index, service, sizeof(service));
	for (uint32_t i = 1; i <= run->conns; i++) {
		for (int side = 0; side < 2; side++) {
			const struct end_model *other = &run->conn[i].end[!side];
			const struct end_model *end = &run->conn[i].end[side];
			int host = other->process / PER_HOST;

			if (end->process != index || end->state != ESTABLISHED)
				continue;
			resume(run->process[index], i, side, qpn_of(i) + (side ? 100000 : 0),
				host == index / PER_HOST ? "" : names[host], true);
		}
	}
	offer(run->process[index], service, 1, false);
}

static void start_daemon(struct run *run, int host)
{
	if (!run->daemon_dead[host])
		return;
	world_start_daemon(run->world, host, pick(run, 2));
	run->daemon_dead[host] = false;
	for (int i = 0; i < PER_HOST; i++)
		come_back(run, host * PER_HOST + i);
}

static void do_restart(struct run *run)
{
	int host = (int)pick(run, HOSTS);

	if (run->daemon_dead[host]) {
		start_daemon(run, host);
		return;
	}
	world_kill_daemon(run->world, host);
	run->daemon_dead[host] = true;
	world_run(run->world, WORLD_MS);
	for (int i = 0; i < PER_HOST; i++)
		hear(run, host * PER_HOST + i);
}

/* Long enough for both to notice: messages under way are lost for good. */
static void do_cut(struct run *run)
{
	int a = (int)pick(run, HOSTS), b = (a + 1) % HOSTS;

	world_partition(run->world, a, b, true);
	for (int i = 0; i < 30; i++) {
		world_run(run->world, KEEPALIVE_MS / 10 * WORLD_MS);
		hear_all(run);
	}
	world_partition(run->world, a, b, false);
}

/* Sessions, and messages under way, may or may not outlive it: it is about as long as the keepalive
 * time. */
static void do_stall(struct run *run)
{
	int a = (int)pick(run, HOSTS), b = (a + 1) % HOSTS;

	world_stall(run->world, a, b, true);
	for (uint32_t i = pick(run, 40); i > 0; i--) {
		world_run(run->world, KEEPALIVE_MS / 20 * WORLD_MS);
		hear_all(run);
		if (pick(run, 8) == 0)
			do_connect(run);
		if (pick(run, 8) == 0)
			do_close(run);
		if (pick(run, 40) == 0)
			do_restart(run);
	}
	world_stall(run->world, a, b, false);
}

static void step(struct run *run)
{
	uint32_t dice = pick(run, 100);

	if (dice < 60)
		do_connect(run);
	else if (dice < 80)
		do_close(run);
	else if (dice < 86)
		do_kill_process(run);
	else if (dice < 91)
		do_restart(run);
	else if (dice < 92)
		do_cut(run);
	else if (dice < 94)
		do_stall(run);
	else if (dice < 96)
		world_reset_sessions(run->world, (int)pick(run, 2), 2);
	else
		world_run(run->world, pick(run, 1000) * WORLD_MS);
	world_run(run->world, pick(run, 400) * (WORLD_REMOTE_NS / 100));
	hear_all(run);
}

/* ---- a run */

static struct config *new_config(const char *name)
{
	struct config *config = world_config(name);

	config->keepalive_ms = KEEPALIVE_MS;
	config->relearn_ms = RELEARN_MS;
	return config;
}

static void check_agreement(const struct run *run)
{
	for (uint32_t i = 1; i <= run->conns; i++) {
		enum end_state active = run->conn[i].end[0].state;
		enum end_state passive = run->conn[i].end[1].state;
		bool is_there = active == ESTABLISHED;

		ck_assert_msg(is_there
				? passive == ESTABLISHED
				: active == ENDED && (passive == ENDED || passive == NOTHING),
			"seed %llu: connection %u: active end %d, passive end %d",
			(unsigned long long)run->seed, i, (int)active, (int)passive);
	}
}

static void calm_down(struct run *run)
{
	for (int i = 0; i < HOSTS; i++)
		start_daemon(run, i);
	for (int i = 0; i < 100; i++) {
		world_run(run->world, 200 * WORLD_MS);
		hear_all(run);
	}
}

static void check_counts(const struct run *run)
{
	for (int host = 0; host < HOSTS; host++) {
		unsigned alive = 0;

		for (uint32_t i = 1; i <= run->conns; i++) {
			for (int side = 0; side < 2; side++)
				alive += run->conn[i].end[side].state == ESTABLISHED &&
					run->conn[i].end[side].process / PER_HOST == host;
		}
		ck_assert_msg(conns_of(run->world, host) == alive,
			"seed %llu: host %s has %u ends, its processes %u",
			(unsigned long long)run->seed, names[host], conns_of(run->world, host),
			alive);
	}
}

static void check_empty(struct run *run)
{
	for (int i = 0; i < PROCESSES; i++)
		process_die(run->process[i]);
	world_run(run->world, 120 * WORLD_S);
	for (int host = 0; host < HOSTS; host++) {
		const struct core *core = world_core(run->world, host);

		ck_assert_uint_eq(HASH_COUNT(core->conns), 0);
		ck_assert_uint_eq(HASH_COUNT(core->listeners), 0);
		ck_assert_uint_eq(HASH_COUNT(core->peers), 0);
		ck_assert_uint_eq(HASH_COUNT(core->sessions), 0);
		ck_assert_uint_eq(HASH_COUNT(core->users), 0);
		ck_assert_uint_eq(core->deferred, 0);
	}
}

static void run_seed(uint64_t seed)
{
	struct run *run = calloc(1, sizeof(*run));

	ck_assert_ptr_nonnull(run);
	run->seed = seed;
	run->world = world_create(seed);
	run->next_pid = 100;
	random_seed(&run->random, seed);
	for (int i = 0; i < HOSTS; i++) {
		run->config[i] = new_config(names[i]);
		world_add_host(run->world, names[i], run->config[i]);
	}
	for (int i = 0; i < PROCESSES; i++)
		start_process(run, i);
	for (int i = 0; i < STEPS; i++)
		step(run);
	calm_down(run);
	check_agreement(run);
	check_counts(run);
	check_empty(run);
	world_destroy(run->world);
	for (int i = 0; i < HOSTS; i++)
		config_free(run->config[i]);
	free(run);
}

START_LOOP_TEST(anything_happens, getenv("FRL_SEED") ? 1 : SEEDS)
{
	const char *wanted = getenv("FRL_SEED");

	run_seed(wanted ? strtoull(wanted, NULL, 0) : (uint64_t)_i + 1);
}
END_TEST

TEST_FILE(core_conns_random)
