/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/collectives/comm_fixture.h"

#include <check.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "lib/api/objects.h"
#include "lib/base/error.h"
#include "lib/base/settings.h"
#include "tests/sim/coll/coll_world.h"
#include "tests/fixtures/patience.h"

enum { HAS_TSAN = JOB_SHARE == 8 };

bool complain(struct rank *rank, const char *format, ...)
{
	va_list args;

	if (rank->failure[0])
		return false;
	va_start(args, format);
	vsnprintf(rank->failure, sizeof(rank->failure), format, args);
	va_end(args);
	return false;
}

void *job_shared_memory(size_t bytes)
{
	void *memory = frl_mem_alloc(bytes);

	if (!memory)
		abort();
	return memory;
}

void *job_private_memory(size_t bytes)
{
	void *memory = malloc(bytes);

	if (!memory)
		abort();
	return memory;
}

void job_sleep_ms(int ms)
{
	const struct timespec pause = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&pause, NULL);
}

/* ---- the bootstrap */

static int gather(void *ctx, const void *mine, size_t size, void *all)
{
	struct rank *rank = ctx;
	struct job *job = rank->job;
	unsigned round;
	int err = 0;

	pthread_mutex_lock(&job->mutex);
	while (job->leaving > 0) /* others are still in the one before */
		pthread_cond_wait(&job->changed, &job->mutex);
	round = job->round;
	if (job->arrived == 0)
		job->gathered = calloc((size_t)job->ranks, size);
	memcpy(job->gathered + (size_t)rank->number * size, mine, size);
	if (++job->arrived == (unsigned)job->ranks) {
		job->leaving = job->arrived;
		job->arrived = 0;
		job->round++;
		pthread_cond_broadcast(&job->changed);
	}
	while (job->round == round && job->gone < 0)
		pthread_cond_wait(&job->changed, &job->mutex);
	if (job->round == round) {
		err = frl_fail(-ECONNRESET, "rank %d is gone", job->gone);
	} else {
		memcpy(all, job->gathered, (size_t)job->ranks * size);
		if (--job->leaving == 0) {
			free(job->gathered);
			job->gathered = NULL;
			pthread_cond_broadcast(&job->changed);
		}
	}
	pthread_mutex_unlock(&job->mutex);
	return err;
}

static bool has_mail(const struct job *job, int rank)
{
	for (const struct job_mail *mail = job->mails; mail; mail = mail->next) {
		if (mail->to == rank)
			return true;
	}
	return job->calls == rank;
}

/* Earlier posts are delivered first, however late the mail thread runs: failures are posted before
 * anything else shows them. */
static int check(void *ctx, int *ret_rank)
{
	struct rank *rank = ctx;
	struct job *job = rank->job;
	int err = 0;

	pthread_mutex_lock(&job->mutex);
	while (has_mail(job, rank->number))
		pthread_cond_wait(&job->changed, &job->mutex);
	if (job->gone >= 0) {
		*ret_rank = job->gone;
		err = frl_fail(-ECONNRESET, "rank %d is gone: %s", job->gone, job->why);
	}
	pthread_mutex_unlock(&job->mutex);
	return err;
}

static void give_up(void *ctx, const char *why)
{
	struct rank *rank = ctx;
	struct job *job = rank->job;

	pthread_mutex_lock(&job->mutex);
	if (job->gone < 0) {
		job->gone = rank->number;
		snprintf(job->why, sizeof(job->why), "%s", why ? why : "");
		pthread_cond_broadcast(&job->changed);
	}
	pthread_mutex_unlock(&job->mutex);
}

static bool has_left(void *ctx, int rank)
{
	struct job *job = ((struct rank *)ctx)->job;
	bool left;

	pthread_mutex_lock(&job->mutex);
	left = job->rank[rank].left;
	pthread_mutex_unlock(&job->mutex);
	return left;
}

static int post(void *ctx, int to, const void *data, size_t size)
{
	struct rank *rank = ctx;
	struct job *job = rank->job;
	struct job_mail *mail = malloc(sizeof(*mail) + size);

	*mail = (struct job_mail){ .from = rank->number, .to = to, .size = size };
	memcpy(mail->data, data, size);
	pthread_mutex_lock(&job->mutex);
	if (job->losses && job->posted++ % job->losses == 0) {
		free(mail);
	} else {
		*job->mails_end = mail;
		job->mails_end = &mail->next;
		pthread_cond_broadcast(&job->changed);
	}
	pthread_mutex_unlock(&job->mutex);
	return 0;
}

static void set_receiver(
	void *ctx, void (*receive)(void *arg, int rank, const void *data, size_t size), void *arg)
{
	struct rank *rank = ctx;
	struct job *job = rank->job;

	pthread_mutex_lock(&job->mutex);
	rank->receive = receive;
	rank->receive_arg = arg;
	while (job->calls == rank->number)
		pthread_cond_wait(&job->changed, &job->mutex);
	pthread_cond_broadcast(&job->changed);
	pthread_mutex_unlock(&job->mutex);
}

static void hand_out(struct job *job, struct job_mail *mail)
{
	struct rank *to = &job->rank[mail->to];
	void (*receive)(void *, int, const void *, size_t) = to->receive;
	void *arg = to->receive_arg;

	if (!receive) {
		pthread_cond_broadcast(&job->changed);
		return;
	}
	job->calls = mail->to;
	pthread_mutex_unlock(&job->mutex);
	receive(arg, mail->from, mail->data, mail->size);
	pthread_mutex_lock(&job->mutex);
	job->calls = -1;
	pthread_cond_broadcast(&job->changed);
}

static void *deliver(void *arg)
{
	struct job *job = arg;

	pthread_mutex_lock(&job->mutex);
	while (!job->ends) {
		struct job_mail *mail = job->mails;

		if (!mail) {
			pthread_cond_wait(&job->changed, &job->mutex);
			continue;
		}
		job->mails = mail->next;
		if (!job->mails)
			job->mails_end = &job->mails;
		hand_out(job, mail);
		free(mail);
	}
	pthread_mutex_unlock(&job->mutex);
	return NULL;
}

/* ---- ranks */

static int rails_of(const struct job *job)
{
	return job->rails ? job->rails : 1;
}

static int open_devices(struct rank *rank)
{
	struct frl_device_config config;
	int err = 0;

	frl_device_config_init(&config);
	if (rank->job->progress)
		config.progress = rank->job->progress;
	if (rank->job->short_mtu >> rank->number & 1)
		config.path_mtu = 1024;
	for (int i = 0; i < rails_of(rank->job) && !err; i++) {
		if (rank->job->port)
			config.port = rank->job->port(rank->number, i);
		err = frl_device_open(&config, &rank->devices[i]);
		/* As on a wire in memory: no rank lingers when all is done. */
		if (!err && rank->job->port)
			rank->devices[i]->attr.lossless = true;
		if (!err && (rank->job->poor >> rank->number & 1) &&
			!(rank->job->rich_rails >> i & 1))
			rank->devices[i]->attr.reduces_on_receive = false;
	}
	if (err)
		complain(rank, "device: %s", frl_last_error());
	return err;
}

/* Runs a rank that has a bootstrap and devices. */
static void rank_run(struct rank *rank)
{
	struct frl_comm_config config;

	frl_comm_config_init(&config);
	config.devices = rank->devices;
	config.n_devices = rails_of(rank->job);
	config.timeout_ms = rank->job->timeout_ms;
	config.algos = rank->job->algos;
	config.progress = rank->job->comm_progress;
	rank->created = frl_comm_create_with(&rank->bootstrap, &config, &rank->comm);
	if (rank->created == 0)
		rank->job->main(rank);
	else if (rank->job->may_fail)
		snprintf(rank->created_text, sizeof(rank->created_text), "%s", frl_last_error());
	else
		complain(rank, "communicator: %s", frl_last_error());
	frl_comm_destroy(rank->comm);
}

static void *rank_main(void *arg)
{
	struct rank *rank = arg;

	rank->bootstrap = (struct frl_bootstrap){
		.rank = rank->number,
		.ranks = rank->ranks,
		.ctx = rank,
		.allgather = gather,
		.check = check,
		.abort = give_up,
		.has_left = has_left,
		.post = post,
		.set_receiver = set_receiver,
	};
	if (open_devices(rank) < 0) {
		give_up(rank, "no device");
		return NULL;
	}
	rank_run(rank);
	pthread_mutex_lock(&rank->job->mutex);
	rank->left = true;
	pthread_cond_broadcast(&rank->job->changed);
	pthread_mutex_unlock(&rank->job->mutex);
	for (int i = 0; i < rails_of(rank->job); i++) {
		if (frl_device_close(rank->devices[i]) < 0)
			complain(rank, "close: %s", frl_last_error());
	}
	return NULL;
}

void job_meet(struct job *job)
{
	if (job->is_simulated)
		coll_meet();
	else
		pthread_barrier_wait(&job->meeting);
}

static void job_end(struct job *job)
{
	pthread_mutex_lock(&job->mutex);
	job->ends = true;
	pthread_cond_broadcast(&job->changed);
	pthread_mutex_unlock(&job->mutex);
	pthread_join(job->postman, NULL);
	while (job->mails) {
		struct job_mail *mail = job->mails;

		job->mails = mail->next;
		free(mail);
	}
	free(job->gathered);
	pthread_barrier_destroy(&job->meeting);
	pthread_cond_destroy(&job->changed);
	pthread_mutex_destroy(&job->mutex);
}

/* By default: the same algorithms every time. */
static void settings_for_tests(void)
{
	setenv("FRL_TUNER_CACHE", "", 0);
	setenv("FRL_TUNER_COSTS", "default", 0);
}

/* Prints all complaints: one rank's may follow from another one's. */
static void check_ranks(const struct job *job)
{
	char failures[JOB_RANKS * (64 + JOB_TEXT)] = "";
	size_t length = 0;

	for (int i = 0; i < job->ranks; i++) {
		if (job->rank[i].failure[0])
			length += (size_t)snprintf(failures + length, sizeof(failures) - length,
				"%srank %d of %d: %s", length ? "; " : "", i, job->ranks,
				job->rank[i].failure);
	}
	ck_assert_msg(length == 0, "%s", failures);
}

void job_run(struct job *job)
{
	settings_for_tests();
	pthread_mutex_init(&job->mutex, NULL);
	pthread_cond_init(&job->changed, NULL);
	pthread_barrier_init(&job->meeting, NULL, (unsigned)job->ranks);
	job->mails = NULL;
	job->mails_end = &job->mails;
	job->calls = job->gone = -1;
	job->ends = false;
	job->round = job->arrived = job->leaving = job->posted = 0;
	job->gathered = NULL;
	pthread_create(&job->postman, NULL, deliver, job);
	for (int i = 0; i < job->ranks; i++) {
		job->rank[i] = (struct rank){ .job = job, .number = i, .ranks = job->ranks };
		pthread_create(&job->rank[i].thread, NULL, rank_main, &job->rank[i]);
	}
	for (int i = 0; i < job->ranks; i++)
		pthread_join(job->rank[i].thread, NULL);
	job_end(job);
	check_ranks(job);
}

/* ---- ranks as coroutines */

static void simulated_rank(
	struct frl_bootstrap *bootstrap, struct frl_device *const devices[], void *arg)
{
	struct job *job = arg;
	struct rank *rank = &job->rank[bootstrap->rank];

	rank->bootstrap = *bootstrap;
	for (int i = 0; i < rails_of(job); i++) {
		rank->devices[i] = devices[i];
		if (job->rich_rails >> i & 1)
			devices[i]->attr.reduces_on_receive = true;
	}
	rank_run(rank);
}

void job_simulate(struct job *job)
{
	static const struct link_config link = {
		.delay_ns = 1000, .queue_frames = 100000, .rate_bps = UINT64_C(10000000000)
	};
	const struct coll_config config = {
		.seed = 1,
		.ranks = job->ranks,
		.rails = rails_of(job),
		.ranks_per_host = JOB_RANKS,
		.mtu = 4096,
		.poor = job->poor,
		.measures = true, /* unless the settings have all costs */
		.is_busy = job->is_busy,
		.progresses = job->progress == FRL_PROGRESS_THREAD,
		.mail_ns = 100000,
		.mail_losses = job->losses,
		.to = link,
		.from = link,
		.may_fail = true,
		.tells_leaving = true,
		.deadline_ns = HANG_S * UINT64_C(1000000000),
		.run = simulated_rank,
		.arg = job,
	};
	struct coll_world world;

	settings_for_tests();
	if (HAS_TSAN || settings_get()->shm) {
		job_run(job);
		return;
	}
	job->is_simulated = true;
	for (int i = 0; i < job->ranks; i++)
		job->rank[i] = (struct rank){ .job = job, .number = i, .ranks = job->ranks };
	coll_world_run(&world, &config);
	coll_world_free(&world);
	check_ranks(job);
}

/* ---- inputs */

int32_t job_input(int rank, size_t i)
{
	return (int32_t)((i * 31 + (size_t)rank * 7919) % 1000) - 500;
}

int32_t job_sum(int ranks, size_t i)
{
	int32_t sum = 0;

	for (int r = 0; r < ranks; r++)
		sum += job_input(r, i);
	return sum;
}

/* The count from rank `from` to rank `to`, and its offset at both. */
static size_t v_count(int from, int to, size_t count)
{
	return (size_t)((from * 3 + to * 5) % 4) * count / 2;
}

void job_make_vectors(struct job_vectors *v, const struct rank *rank, size_t count)
{
	*v = (struct job_vectors){ 0 };
	for (int r = 0; r < rank->ranks; r++) {
		v->send_counts[r] = v_count(rank->number, r, count);
		v->recv_counts[r] = v_count(r, rank->number, count);
		v->send_displs[r] = v->sent + 1; /* there may be gaps */
		v->recv_displs[r] = v->received + 2;
		v->sent = v->send_displs[r] + v->send_counts[r];
		v->received = v->recv_displs[r] + v->recv_counts[r];
	}
}
