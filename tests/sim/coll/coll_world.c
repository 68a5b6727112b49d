/* SPDX-License-Identifier: BSD-3-Clause */
/* Coroutines and virtual time. */
#include "tests/sim/coll/coll_world.h"

#include "collectives/api/measure.h"
#include "collectives/communicator/location.h"
#include "lib/device/soft.h"
#include "tests/sim/common/fail.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

#if defined(__SANITIZE_ADDRESS__)
#define COLL_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COLL_ASAN 1
#endif
#endif
#ifdef COLL_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

enum {
	START_NS = 1000000000, /* a time of zero means none to some */
	SOON_NS = 1000,
};

struct coll_world *coll_world;

static void coroutine_init(struct coll_rank *rank);

/* ---- in the place of the system */

int __real_clock_gettime(clockid_t id, struct timespec *ret_now);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret_now);
ssize_t __real_getrandom(void *bytes, size_t size, unsigned flags);
ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags);
int __real_nanosleep(const struct timespec *time, struct timespec *ret_left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *ret_left);
void __real_location_host(uint8_t ret_id[HOST_ID_SIZE]);
void __wrap_location_host(uint8_t ret_id[HOST_ID_SIZE]);
uint32_t __real_location_processors(uint32_t *ret_first);
uint32_t __wrap_location_processors(uint32_t *ret_first);
uint64_t __real_location_waited_ns(void);
uint64_t __wrap_location_waited_ns(void);
int __real_comm_thread_start(void (*run)(void *arg), void *arg);
int __wrap_comm_thread_start(void (*run)(void *arg), void *arg);
int __real_comm_measure(struct frl_comm *comm);
int __wrap_comm_measure(struct frl_comm *comm);
void __real_frl_backoff_idle(struct frl_backoff *backoff);
void __wrap_frl_backoff_idle(struct frl_backoff *backoff);
int __real_frl_poll_cq(struct frl_cq *cq, int max, struct frl_wc wc[]);
int __wrap_frl_poll_cq(struct frl_cq *cq, int max, struct frl_wc wc[]);

int __wrap_clock_gettime(clockid_t id, struct timespec *ret_now)
{
	uint64_t now_ns;

	if (!coll_world)
		return __real_clock_gettime(id, ret_now);
	now_ns = coll_world->clock.now_ns;
	*ret_now = (struct timespec){ .tv_sec = (time_t)(now_ns / 1000000000),
		.tv_nsec = (long)(now_ns % 1000000000) };
	return 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *ret_left)
{
	if (!coll_world || !coll_world->current)
		return __real_nanosleep(time, ret_left);
	coll_compute((uint64_t)time->tv_sec * 1000000000 + (uint64_t)time->tv_nsec +
		coll_world->config.oversleep_ns);
	return 0;
}

ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags)
{
	uint8_t *at = bytes;

	if (!coll_world)
		return __real_getrandom(bytes, size, flags);
	for (size_t i = 0; i < size; i++)
		at[i] = (uint8_t)random_u64(&coll_world->random);
	return (ssize_t)size;
}

void __wrap_location_host(uint8_t ret_id[HOST_ID_SIZE])
{
	uint32_t host;

	if (!coll_world) {
		__real_location_host(ret_id);
		return;
	}
	host = (uint32_t)(coll_world->current->number / coll_world->config.ranks_per_host);
	memset(ret_id, 0, HOST_ID_SIZE);
	memcpy(ret_id, &host, sizeof(host));
}

/* Processors take no time: each rank has one. */
uint32_t __wrap_location_processors(uint32_t *ret_first)
{
	if (!coll_world)
		return __real_location_processors(ret_first);
	*ret_first = (uint32_t)coll_world->current->number;
	return 1;
}

uint64_t __wrap_location_waited_ns(void)
{
	if (!coll_world)
		return __real_location_waited_ns();
	return coll_world->config.is_busy ? coll_now() / 2 : 0;
}

/* Takes more packets than most scripts have. */
int __wrap_comm_measure(struct frl_comm *comm)
{
	return !coll_world || coll_world->config.measures ? __real_comm_measure(comm) : 0;
}

void __wrap_frl_backoff_idle(struct frl_backoff *backoff)
{
	if (coll_world && coll_world->current)
		coll_idle(coll_world->current);
	else
		__real_frl_backoff_idle(backoff);
}

/* Hardware does not report how much of a message has arrived over a connection that broke. */
int __wrap_frl_poll_cq(struct frl_cq *cq, int max, struct frl_wc wc[])
{
	int n = __real_frl_poll_cq(cq, max, wc);

	for (int i = 0; coll_world && i < n && !cq->device->attr.reduces_on_receive; i++) {
		if (wc[i].status == FRL_WC_SUCCESS || wc[i].byte_len == 0)
			continue;
		coll_world->poor_partials++;
		if (!coll_world->config.poor_tell)
			wc[i].byte_len = 0;
	}
	return n;
}

int __wrap_comm_thread_start(void (*run)(void *arg), void *arg)
{
	struct coll_rank *owner, *thread;

	if (!coll_world)
		return __real_comm_thread_start(run, arg);
	owner = coll_world->reading ? coll_world->reading : coll_world->current;
	thread = sim_alloc(1, sizeof(*thread));
	*thread = (struct coll_rank){ .world = coll_world,
		.number = owner->number,
		.timer_ns = CLOCK_NEVER,
		.owner = owner,
		.next_thread = coll_world->threads,
		.thread = run,
		.thread_arg = arg };
	coll_world->threads = thread;
	coroutine_init(thread);
	return 0;
}

uint64_t coll_now(void)
{
	return coll_world->clock.now_ns;
}

/* ---- coroutines */

static void to_rank(struct coll_rank *rank)
{
	struct coll_world *world = rank->world;
#ifdef COLL_ASAN
	void *fake_stack;
#endif

	world->current = rank;
#ifdef COLL_ASAN
	__sanitizer_start_switch_fiber(&fake_stack, rank->stack, COLL_STACK);
#endif
	swapcontext(&world->main, &rank->context);
#ifdef COLL_ASAN
	__sanitizer_finish_switch_fiber(fake_stack, NULL, NULL);
#endif
	world->current = NULL;
}

static void to_main(struct coll_rank *rank)
{
#ifdef COLL_ASAN
	__sanitizer_start_switch_fiber(rank->is_done ? NULL : &rank->fake_stack,
		rank->world->main_stack, rank->world->main_stack_size);
#endif
	swapcontext(&rank->context, &rank->world->main);
#ifdef COLL_ASAN
	__sanitizer_finish_switch_fiber(rank->fake_stack, NULL, NULL);
#endif
}

static bool is_poor(const struct coll_rank *rank)
{
	return rank->world->config.poor >> rank->number & 1;
}

static void open_devices(struct coll_rank *rank)
{
	for (int rail = 0; rail < rank->world->config.rails; rail++) {
		struct frl_device_config config;
		char port[32], ip[32];
		int address = rank->number + 1;

		frl_device_config_init(&config);
		snprintf(port, sizeof(port), "%d:%d", rank->number, rail);
		snprintf(ip, sizeof(ip), "10.%d.%d.%d/16", rail, address >> 8, address & 255);
		config.port = port;
		config.ip = ip;
		config.path_mtu = rank->world->config.mtu;
		config.progress = FRL_PROGRESS_INLINE;
		SIM_CHECK(frl_device_open(&config, &rank->devices[rail]) == 0, "rank %d: %s",
			rank->number, frl_last_error());
		rank->devices[rail]->attr.reduces_on_receive = !is_poor(rank);
		rank->devices[rail]->attr.progresses = rank->world->config.progresses;
	}
}

/* No device that cannot reduce is asked to. */
static void check_device(struct coll_rank *rank, struct frl_device *device)
{
	struct frl_stats stats;

	frl_device_stats(device, &stats);
	if (is_poor(rank))
		SIM_CHECK(stats.bytes_reduced == 0, "rank %d: its device reduced", rank->number);
	else
		rank->world->bytes_reduced += stats.bytes_reduced;
}

static void rank_main(void)
{
	struct coll_world *world = coll_world;
	struct coll_rank *rank = world->current;

#ifdef COLL_ASAN
	__sanitizer_finish_switch_fiber(NULL, &world->main_stack, &world->main_stack_size);
#endif
	if (rank->thread) {
		rank->thread(rank->thread_arg);
		rank->is_done = true;
		to_main(rank);
	}
	open_devices(rank);
	world->config.run(&rank->bootstrap, rank->devices, world->config.arg);
	for (int rail = 0; rail < world->config.rails; rail++) {
		check_device(rank, rank->devices[rail]);
		SIM_CHECK(frl_device_close(rank->devices[rail]) == 0, "rank %d: %s", rank->number,
			frl_last_error());
		rank->devices[rail] = NULL;
	}
	rank->is_done = true;
	world->done++;
	to_main(rank);
}

static void coroutine_init(struct coll_rank *rank)
{
	rank->stack = mmap(NULL, COLL_STACK, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	SIM_CHECK(rank->stack != MAP_FAILED, "no memory for a stack");
	getcontext(&rank->context);
	rank->context.uc_stack.ss_sp = rank->stack;
	rank->context.uc_stack.ss_size = COLL_STACK;
	makecontext(&rank->context, rank_main, 0);
	rank->is_waiting = true;
	coll_wake(rank);
}

/* ---- waiting */

void coll_wake(struct coll_rank *rank)
{
	struct coll_world *world = rank->world;

	if (!rank->is_waiting)
		return;
	rank->is_waiting = false;
	rank->next_ready = NULL;
	*world->ready_end = rank;
	world->ready_end = &rank->next_ready;
}

static void on_timer(void *owner, void *arg)
{
	struct coll_rank *rank = owner;

	(void)arg;
	if (rank->timer_ns > rank->world->clock.now_ns)
		return;
	rank->timer_ns = CLOCK_NEVER;
	coll_wake(rank);
}

/* Or until it is woken. */
static void wait_until(struct coll_rank *rank, uint64_t until_ns)
{
	if (until_ns < rank->timer_ns) {
		rank->timer_ns = until_ns;
		clock_at(&rank->world->clock, until_ns, on_timer, rank, NULL);
	}
	rank->is_waiting = true;
	to_main(rank);
}

void coll_compute(uint64_t ns)
{
	struct coll_rank *rank = coll_world->current;
	uint64_t until_ns = coll_now() + ns;

	while (coll_now() < until_ns)
		wait_until(rank, until_ns);
}

void coll_idle(struct coll_rank *rank)
{
	struct coll_world *world = rank->world;
	uint64_t now_ns = world->clock.now_ns, until_ns = now_ns + COLL_IDLE_NS;

	if (rank->owner) {
		wait_until(rank, until_ns);
		return;
	}
	/* Once: a rank that idles again waits for something other than its received frames. */
	if (coll_ports_have_rx(rank)) {
		if (rank->idled_ns == now_ns)
			wait_until(rank, now_ns + SOON_NS);
		rank->idled_ns = now_ns;
		return;
	}
	for (int rail = 0; rail < world->config.rails; rail++) {
		uint64_t next_ns = engine_next_deadline(&soft_device(rank->devices[rail])->engine);

		if (next_ns < until_ns)
			until_ns = next_ns > now_ns + SOON_NS ? next_ns : now_ns + SOON_NS;
	}
	wait_until(rank, until_ns);
}

void coll_attend(struct coll_rank *rank)
{
	int moved = 0;

	for (int rail = 0; rail < rank->world->config.rails; rail++)
		moved += frl_progress(rank->devices[rail]);
	if (moved == 0)
		coll_idle(rank);
}

void coll_stay_outside(uint64_t ns)
{
	uint64_t until_ns = coll_now() + ns;

	while (coll_now() < until_ns)
		coll_attend(coll_world->current);
}

void coll_meet(void)
{
	struct coll_world *world = coll_world;
	struct coll_rank *rank = world->current;
	uint64_t round = world->meeting.rounds;

	if (++world->meeting.arrived == world->config.ranks) {
		world->meeting.arrived = 0;
		world->meeting.rounds++;
		for (int i = 0; i < world->config.ranks; i++)
			coll_wake(&world->ranks[i]);
	}
	while (world->meeting.rounds == round)
		coll_attend(rank);
}

/* ---- the world */

static void cut(void *owner, void *arg)
{
	struct coll_world *world = owner;
	const struct coll_cut *cut = arg;
	struct coll_port *port = &world->ranks[cut->rank].ports[cut->rail];

	world->cuts += world->done == 0;
	port->to.cut = port->from.cut = !cut->heals;
	port->is_down = cut->is_told && !cut->heals;
}

static void rank_init(struct coll_world *world, int number)
{
	struct coll_rank *rank = &world->ranks[number];

	*rank = (struct coll_rank){ .world = world, .number = number, .timer_ns = CLOCK_NEVER };
	coll_ports_init(rank);
	coll_bootstrap_init(rank);
	coroutine_init(rank);
}

static void run_ready(struct coll_world *world)
{
	while (world->ready) {
		struct coll_rank *rank = world->ready;

		world->ready = rank->next_ready;
		if (!world->ready)
			world->ready_end = &world->ready;
		to_rank(rank);
	}
}

void coll_world_run(struct coll_world *world, const struct coll_config *config)
{
	*world = (struct coll_world){ .config = *config };
	world->ready_end = &world->ready;
	world->gone = -1;
	clock_init(&world->clock);
	world->clock.now_ns = START_NS;
	trace_init(&world->trace, config->is_traced, &world->clock.now_ns);
	random_seed(&world->random, config->seed);
	sim_position.seed = config->seed;
	sim_position.now_ns = &world->clock.now_ns;
	world->ranks = sim_alloc((size_t)config->ranks, sizeof(*world->ranks));
	coll_world = world;
	for (int i = 0; i < config->ranks; i++)
		rank_init(world, i);
	for (int i = 0; i < COLL_CUTS; i++) {
		if (config->cuts[i].ns)
			clock_at(&world->clock, START_NS + config->cuts[i].ns, cut, world,
				&world->config.cuts[i]);
	}
	run_ready(world);
	while (world->done < config->ranks) {
		clock_step(&world->clock);
		SIM_CHECK(world->clock.now_ns < START_NS + config->deadline_ns,
			"only %d of %d ranks have come to their end", world->done, config->ranks);
		run_ready(world);
	}
	/* Frames on their way arrive at ports that are closed. */
	while (world->clock.count)
		clock_step(&world->clock);
	for (int i = 0; i < config->ranks; i++) {
		coll_ports_fini(&world->ranks[i]);
		coll_bootstrap_fini(&world->ranks[i]);
	}
	for (struct coll_rank *thread = world->threads; thread; thread = thread->next_thread)
		SIM_CHECK(thread->is_done, "rank %d has left a thread behind", thread->number);
	SIM_CHECK(world->live_frames == 0, "%" PRIu64 " frames are left", world->live_frames);
	coll_world = NULL;
}

void coll_world_free(struct coll_world *world)
{
	for (int i = 0; i < world->config.ranks; i++)
		munmap(world->ranks[i].stack, COLL_STACK);
	while (world->threads) {
		struct coll_rank *thread = world->threads;

		world->threads = thread->next_thread;
		munmap(thread->stack, COLL_STACK);
		free(thread);
	}
	free(world->ranks);
	free(world->gather.pieces[0]);
	free(world->gather.pieces[1]);
	clock_fini(&world->clock);
	sim_position.now_ns = NULL;
}
