/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes of two users that open and close ports, die and lose their sessions at random, while
 * their daemon crashes and is started again. No two of them ever have the same device, address, MAC
 * or number of a queue pair. A lease in quarantine belongs to nobody, a process that returns has
 * its lease, and in the end all is free.
 *
 * FRL_SEED=N repeats one run; a failure names its seed.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/random.h"
#include "tests/unit/daemon/core/fixtures/ports_fixture.h"
#include "tests/fixtures/program.h"

enum { PROCESSES = 6, NUMBERS = 2, STEPS = 300, SEEDS = 20, SEQ = 1000000 };

enum port_state { CLOSED, ASKED, OPEN };

struct port_model {
	enum port_state state;
	uint64_t seq; /* of the latest OpenPort */
	Ctl__Envelope *opened;
	bool claims; /* ... that names what it has had */
};

struct run {
	struct town town;
	struct random_state random;
	unsigned long long seed;
	struct process *process[PROCESSES];
	struct port_model port[PROCESSES][NUMBERS + 1];
	uint32_t next_pid;
	uint64_t next_seq;
	unsigned granted, refused;
	/* An address that nobody may get before that time. */
	struct {
		char ip[LEASE_TEXT];
		uint64_t until_ns;
	} rests[ADDRESSES];
	unsigned n_rests;
};

static uint32_t pick(struct run *run, uint32_t n)
{
	return (uint32_t)random_below(&run->random, n);
}

static const Ctl__Lease *lease_of(const struct port_model *port)
{
	return port->state == OPEN ? port->opened->port_opened->lease : NULL;
}

/* ---- what holds all the time */

static void check_apart(const struct run *run, const Ctl__Lease *a, const Ctl__Lease *b)
{
	ck_assert_msg(
		strcmp(a->devargs, b->devargs) != 0, "seed %llu: %s twice", run->seed, a->devargs);
	ck_assert_msg(strcmp(a->ip, b->ip) != 0, "seed %llu: %s twice", run->seed, a->ip);
	ck_assert_msg(
		memcmp(a->mac.data, b->mac.data, 6) != 0, "seed %llu: a MAC twice", run->seed);
	ck_assert_msg(a->qpn_first >= b->qpn_first + b->qpn_count ||
			b->qpn_first >= a->qpn_first + a->qpn_count,
		"seed %llu: numbers of queue pairs twice", run->seed);
}

static void check_all(const struct run *run)
{
	const Ctl__Lease *all[PROCESSES * NUMBERS];
	unsigned count = 0;

	for (int i = 0; i < PROCESSES; i++) {
		for (int number = 1; number <= NUMBERS; number++) {
			const Ctl__Lease *lease = lease_of(&run->port[i][number]);

			for (unsigned k = 0; lease && k < count; k++)
				check_apart(run, lease, all[k]);
			if (lease)
				all[count++] = lease;
		}
	}
}

static void check_rested(const struct run *run, const struct process *process, const char *ip)
{
	for (unsigned i = 0; i < run->n_rests; i++) {
		ck_assert_msg(strcmp(run->rests[i].ip, ip) != 0 ||
				world_now(run->town.world) >= run->rests[i].until_ns,
			"seed %llu: %s has not rested, and %u has it", run->seed, ip, process->pid);
	}
}

static void ends(struct run *run, int index, int number)
{
	struct port_model *port = &run->port[index][number];
	unsigned i = run->n_rests;

	if (port->state == OPEN) {
		if (i == ADDRESSES) {
			memmove(run->rests, run->rests + 1,
				sizeof(run->rests[0]) * (ADDRESSES - 1));
			i--;
		} else {
			run->n_rests++;
		}
		snprintf(run->rests[i].ip, sizeof(run->rests[i].ip), "%s", lease_of(port)->ip);
		run->rests[i].until_ns = world_now(run->town.world) +
			run->town.config->hold_ms * WORLD_MS;
	}
	if (port->opened)
		drop(port->opened);
	*port = (struct port_model){ CLOSED, 0, NULL, false };
}

/* ---- what is said and heard */

static void ask(struct run *run, int index, int number, Ctl__Lease *lease)
{
	Ctl__OpenPort open = CTL__OPEN_PORT__INIT;
	Ctl__Envelope envelope;

	open.port = (uint32_t)number;
	open.fabric = (char *)"eth";
	open.lease = lease;
	envelope = envelope_of(CTL__ENVELOPE__BODY_OPEN_PORT, &open);
	envelope.seq = run->port[index][number].seq = run->next_seq++;
	process_send(run->process[index], &envelope);
}

static void on_opened(struct run *run, int index, Ctl__Envelope *envelope)
{
	uint32_t number = envelope->port_opened->port;
	struct port_model *port = &run->port[index][number];
	const Ctl__Lease *lease = envelope->port_opened->lease;

	ck_assert_uint_le(number, NUMBERS);
	if (port->seq != envelope->seq) { /* closed meanwhile */
		drop(envelope);
		return;
	}
	run->granted++;
	if (port->claims) {
		const Ctl__Lease *had = port->opened->port_opened->lease;

		ck_assert_str_eq(lease->ip, had->ip);
		ck_assert_str_eq(lease->devargs, had->devargs);
		ck_assert_uint_eq(lease->qpn_first, had->qpn_first);
		ck_assert_mem_eq(lease->mac.data, had->mac.data, 6);
		drop(port->opened);
	} else {
		check_rested(run, run->process[index], lease->ip);
	}
	*port = (struct port_model){ OPEN, envelope->seq, envelope, false };
}

static void on_failure(struct run *run, int index, Ctl__Envelope *envelope)
{
	for (int number = 1; number <= NUMBERS; number++) {
		struct port_model *port = &run->port[index][number];

		if (port->seq != envelope->seq || port->state == CLOSED)
			continue;
		ck_assert_msg(!port->claims, "seed %llu: its lease is lost: %s", run->seed,
			envelope->failure->text);
		run->refused++;
		port->state = CLOSED;
	}
	drop(envelope);
}

static void hear(struct run *run, int index)
{
	Ctl__Envelope *envelope;

	while ((envelope = process_take_any(run->process[index])) != NULL) {
		if (envelope->body_case == CTL__ENVELOPE__BODY_PORT_OPENED)
			on_opened(run, index, envelope);
		else if (envelope->body_case == CTL__ENVELOPE__BODY_FAILURE)
			on_failure(run, index, envelope);
		else
			ck_abort_msg("seed %llu: body %d", run->seed, (int)envelope->body_case);
	}
}

static void hear_all(struct run *run)
{
	for (int i = 0; i < PROCESSES; i++)
		hear(run, i);
	check_all(run);
}

/* ---- what happens */

static void start_process(struct run *run, int index)
{
	run->process[index] = world_process(
		run->town.world, 0, index % 2 ? OTHER_UID : UID, run->next_pid++);
}

static void do_open(struct run *run)
{
	int index = (int)pick(run, PROCESSES), number = 1 + (int)pick(run, NUMBERS);

	if (run->port[index][number].state != CLOSED)
		return;
	run->port[index][number].state = ASKED;
	ask(run, index, number, NULL);
}

static void do_close(struct run *run)
{
	int index = (int)pick(run, PROCESSES), number = 1 + (int)pick(run, NUMBERS);

	close_port(run->process[index], (uint32_t)number);
	hear(run, index);
	ends(run, index, number);
}

static void do_die(struct run *run)
{
	int index = (int)pick(run, PROCESSES);

	process_die(run->process[index]);
	world_settle(run->town.world);
	hear(run, index);
	for (int number = 1; number <= NUMBERS; number++)
		ends(run, index, number);
	start_process(run, index);
}

static void come_back(struct run *run, int index)
{
	hear(run, index);
	process_come_back(run->process[index]);
	for (int number = 1; number <= NUMBERS; number++) {
		struct port_model *port = &run->port[index][number];

		port->claims = port->state == OPEN;
		if (port->state == OPEN)
			ask(run, index, number, port->opened->port_opened->lease);
		else
			port->state = CLOSED;
	}
}

/* Only its session ends, as when the daemon ends it. Nobody asks for a device meanwhile: devices
 * have no quarantine, as they cannot be opened twice. */
static void do_lose_session(struct run *run)
{
	int index = (int)pick(run, PROCESSES);

	world_settle(run->town.world);
	hear_all(run);
	process_die(run->process[index]);
	world_settle(run->town.world);
	come_back(run, index);
	world_settle(run->town.world);
}

/* A process that dies while there is no daemon does not return; anybody may get its addresses. */
static void do_crash(struct run *run)
{
	world_kill_daemon(run->town.world, 0);
	world_run(run->town.world, pick(run, 500) * WORLD_MS);
	hear_all(run);
	world_start_daemon(run->town.world, 0, true);
	for (int i = 0; i < PROCESSES; i++) {
		if (pick(run, 5)) {
			come_back(run, i);
			if (pick(run, 3) == 0)
				do_open(run);
			world_run(run->town.world, pick(run, 100) * WORLD_MS);
			continue;
		}
		for (int number = 1; number <= NUMBERS; number++)
			ends(run, i, number);
		start_process(run, i);
	}
	run->n_rests = 0;
}

/* Leases that another user has, or had lately, cannot be claimed. */
static void do_steal(struct run *run)
{
	int index = (int)pick(run, PROCESSES), number = 1 + (int)pick(run, NUMBERS);
	int thief = (int)pick(run, PROCESSES), own = 1 + (int)pick(run, NUMBERS);
	const Ctl__Lease *lease = lease_of(&run->port[index][number]);

	if (!lease || run->port[thief][own].state != CLOSED)
		return;
	run->port[thief][own].state = ASKED;
	ask(run, thief, own, (Ctl__Lease *)(uintptr_t)lease);
	world_settle(run->town.world);
	hear(run, thief);
	ck_assert_int_eq((int)run->port[thief][own].state, CLOSED);
}

static void step(struct run *run)
{
	uint32_t dice = pick(run, 100);

	if (dice < 50)
		do_open(run);
	else if (dice < 70)
		do_close(run);
	else if (dice < 78)
		do_die(run);
	else if (dice < 83)
		do_lose_session(run);
	else if (dice < 88)
		do_steal(run);
	else if (dice < 91)
		do_crash(run);
	else
		world_run(run->town.world, pick(run, 1500) * WORLD_MS);
	world_run(run->town.world, pick(run, 30) * WORLD_MS);
	hear_all(run);
}

static void check_empty(struct run *run)
{
	struct core *core = world_core(run->town.world, 0);

	for (int i = 0; i < PROCESSES; i++) {
		process_die(run->process[i]);
		for (int number = 1; number <= NUMBERS; number++)
			ends(run, i, number);
	}
	world_run(run->town.world, 10 * WORLD_S);
	ck_assert(list_empty(&core->leases));
	ck_assert(list_empty(&core->open_waits));
	ck_assert_uint_eq(HASH_COUNT(core->sessions), 0);
	ck_assert_uint_eq(HASH_COUNT(core->users), 0);
}

START_LOOP_TEST(anything_happens, getenv("FRL_SEED") ? 1 : SEEDS)
{
	const char *wanted = getenv("FRL_SEED");
	struct run *run = calloc(1, sizeof(*run));

	ck_assert_ptr_nonnull(run);
	run->seed = wanted ? strtoull(wanted, NULL, 0) : (unsigned long long)_i + 1;
	random_seed(&run->random, run->seed);
	run->town = town_new();
	run->town.config->fabrics[0].any_user = true;
	process_die(run->town.process);
	run->next_pid = 100;
	run->next_seq = SEQ;
	for (int i = 0; i < PROCESSES; i++)
		start_process(run, i);
	for (int i = 0; i < STEPS; i++)
		step(run);
	ck_assert_uint_gt(run->granted, 10);
	ck_assert_uint_gt(run->refused, 0);
	check_empty(run);
	town_free(&run->town);
	free(run);
}
END_TEST

TEST_FILE(core_leases_random)
