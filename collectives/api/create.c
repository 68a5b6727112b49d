/* SPDX-License-Identifier: BSD-3-Clause */
/* Creating and destroying communicators. */
#include "collectives/api/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/api/driver.h"
#include "collectives/api/measure.h"
#include "collectives/gpu/compute.h"
#include "collectives/net/channel.h"
#include "collectives/net/staging.h"
#include "collectives/shm/shm.h"
#include "lib/base/error.h"

/* ---- hooks */

static void stop(struct frl_comm *comm)
{
	computes_drop(comm);
	channels_destroy_queue_pairs(comm);
	if (comm->shm)
		shm_give_up(comm->shm);
	driver_wake_all(comm);
}

static bool has_left(const struct frl_comm *comm, int rank)
{
	return comm->bootstrap->has_left(comm->bootstrap->ctx, comm_member(comm, rank));
}

static int find_left(const struct frl_comm *comm)
{
	for (const struct peer *peer = comm->first_peer; peer; peer = peer->next) {
		if (peer_is_awaited(peer) && has_left(comm, peer->rank))
			return peer->rank;
	}
	for (int rank = 0; rank < comm->ranks && comm->shm; rank++) {
		if (shm_waits_for(comm->shm, rank) && has_left(comm, rank))
			return rank;
	}
	return -1;
}

static const struct comm_hooks hooks = {
	.take_mail = comm_take_mail,
	.stop = stop,
	.find_left = find_left,
	.leave_rail = channels_leave_rail,
	.give_idle = staging_give_idle,
	.open_run = run_open,
};

/* ---- creating */

void frl_comm_config_init(struct frl_comm_config *config)
{
	struct collective_config defaults;

	collective_config_init(&defaults);
	*config = (struct frl_comm_config){ .timeout_ms = defaults.timeout_ms,
		.progress = FRL_PROGRESS_INLINE };
}

static int check_bootstrap(const struct frl_bootstrap *bootstrap)
{
	if (bootstrap->ranks < 1 || bootstrap->ranks > PLAN_RANKS_MAX || bootstrap->rank < 0 ||
		bootstrap->rank >= bootstrap->ranks)
		return frl_fail(-EINVAL, "the bootstrap says rank %d of %d", bootstrap->rank,
			bootstrap->ranks);
	if (!bootstrap->allgather || !bootstrap->check || !bootstrap->abort)
		return frl_fail(-EINVAL, "the bootstrap lacks allgather, check or abort");
	if (bootstrap->ranks > 1 && (!bootstrap->post || !bootstrap->set_receiver))
		return frl_fail(-EINVAL, "the bootstrap lacks post or set_receiver");
	return 0;
}

static int check_config(const struct frl_comm_config *config)
{
	if (config->n_devices < 1 || config->n_devices > RAILS_MAX || !config->devices)
		return frl_fail(-EINVAL, "a communicator needs 1 to %d devices, not %d", RAILS_MAX,
			config->devices ? config->n_devices : 0);
	for (int i = 0; i < config->n_devices; i++) {
		if (!config->devices[i])
			return frl_fail(-EINVAL, "device %d is NULL", i);
	}
	if (config->timeout_ms < 0)
		return frl_fail(-EINVAL, "timeout_ms is negative");
	if (config->progress > FRL_PROGRESS_THREAD)
		return frl_fail(-EINVAL, "progress is %u: use a value of enum frl_progress",
			(unsigned)config->progress);
	return 0;
}

int comm_new(const struct frl_comm_config *config, int rank, int ranks, struct frl_comm **ret_comm)
{
	struct frl_comm *comm = calloc(1, sizeof(*comm));
	int err;

	if (!comm)
		return frl_fail(-ENOMEM, "no memory for a communicator");
	notices_init(comm);
	comm->hooks = &hooks;
	comm->pid = getpid();
	comm->rank = rank;
	comm->ranks = ranks;
	comm->ready_end = &comm->ready;
	collective_config_init(&comm->config);
	comm->config.timeout_ms = config->timeout_ms;
	if (config->algos)
		comm->config.algos = config->algos;
	comm->peers = calloc((size_t)ranks, sizeof(*comm->peers));
	err = comm->peers ? rails_open(comm, config)
			  : frl_fail(-ENOMEM, "no memory for %d ranks", ranks);
	staging_init(comm);
	if (!err)
		err = tuner_init(&comm->tuner, comm->config.algos, comm->config.segment_bytes);
	if (err) {
		comm_free(comm);
		return err;
	}
	*ret_comm = comm;
	return 0;
}

/* Creation failed with the thread's last error: reports the error, and the rank that caused it,
 * to the other ranks. Returns the error. */
static int give_up(struct frl_bootstrap *bootstrap, int err)
{
	int gone = -1;

	err = frl_fail(
		err, "rank %d cannot create a communicator: %s", bootstrap->rank, frl_last_error());
	if (err == -ETIMEDOUT || err == -EHOSTUNREACH) {
		char text[ERROR_TEXT];

		snprintf(text, sizeof(text), "%s", frl_last_error());
		if (bootstrap->check(bootstrap->ctx, &gone) != 0 && gone >= 0)
			err = frl_fail(-ECONNRESET, "rank %d is gone; %s", gone, text);
		else
			err = frl_fail(err, "%s", text);
	}
	bootstrap->abort(bootstrap->ctx, frl_last_error());
	return err;
}

static int gather_all(void *ctx, const void *mine, size_t bytes, void *ret_all)
{
	struct frl_bootstrap *bootstrap = ctx;

	return bootstrap->allgather(bootstrap->ctx, mine, bytes, ret_all);
}

int frl_comm_create_with(struct frl_bootstrap *bootstrap, const struct frl_comm_config *config,
	struct frl_comm **ret_comm)
{
	struct shm_gather gather = { .all = gather_all, .ctx = bootstrap };
	struct frl_comm *comm;
	int err;

	if (ret_comm)
		*ret_comm = NULL;
	if (!bootstrap || !config || !ret_comm)
		return frl_fail(-EINVAL, "the bootstrap, the configuration or ret_comm is NULL");
	err = check_bootstrap(bootstrap);
	if (err)
		return err;
	err = check_config(config);
	if (!err)
		err = comm_new(config, bootstrap->rank, bootstrap->ranks, &comm);
	/* The other ranks must not wait for this rank. */
	if (err)
		return give_up(bootstrap, err);
	comm->bootstrap = bootstrap;
	err = mailbox_create(bootstrap, &comm->mailbox);
	/* Before the others rely on this rank. */
	if (!err && config->progress == FRL_PROGRESS_THREAD)
		err = driver_create(comm);
	if (!err)
		err = comm_agree(comm);
	if (!err)
		err = shm_create(comm, &gather);
	if (!err)
		err = siblings_create(comm);
	if (err) {
		err = give_up(bootstrap, err);
		comm_free(comm);
		return err;
	}
	mailbox_add(comm->mailbox, &comm->inbox);
	err = comm_measure(comm);
	if (err) {
		err = give_up(bootstrap, err);
		frl_comm_destroy(comm);
		return err;
	}
	*ret_comm = comm;
	return 0;
}

int frl_comm_create(
	struct frl_device *device, struct frl_bootstrap *bootstrap, struct frl_comm **ret_comm)
{
	struct frl_comm_config config;

	frl_comm_config_init(&config);
	config.devices = &device;
	config.n_devices = 1;
	return frl_comm_create_with(bootstrap, &config, ret_comm);
}

/* ---- destroying */

void comm_free(struct frl_comm *comm)
{
	char why[ERROR_TEXT_MAX];

	/* Keep the error text of the first failure for the caller; cleaning up may produce
	 * others. */
	error_save(why);
	error_restore((const char[ERROR_TEXT_MAX]){ "" });
	driver_free(comm);
	if (comm->mailbox)
		mailbox_remove(comm->mailbox, &comm->inbox);
	channels_destroy_queue_pairs(comm);
	requests_free(comm);
	notices_free(comm);
	shm_destroy(comm->shm);
	schedule_cache_fini(&comm->schedules);
	peers_free(comm);
	staging_fini(comm);
	computes_free(comm);
	for (unsigned i = 0; i < comm->n_pollers; i++)
		frl_cq_destroy(comm->pollers[i].cq);
	rails_close(comm);
	free(comm->hang.reports);
	free(comm->pollers);
	free(comm->peers);
	free(comm->members);
	free(comm->rank_order);
	topology_fini(&comm->topology);
	mailbox_put(comm->mailbox);
	free(comm);
	error_restore(why);
}

void frl_comm_destroy(struct frl_comm *comm)
{
	/* A forked child has neither the driver's thread nor the links of its parent's devices. */
	if (!comm || comm->pid != getpid())
		return;
	driver_stop(comm);
	comm_enter(comm);
	/* Siblings do not help any more, and nobody else may be in a call. */
	notices_close(comm);
	if (comm->driver)
		driver_leave(comm);
	driver_free(comm);
	if (!comm->error && inbox_is_waiting(&comm->inbox))
		comm_take_mail(comm);
	if (comm->active.first && !comm->error)
		comm_fail(comm, -ECANCELED,
			"rank %d destroyed its communicator with requests in flight", comm->rank);
	requests_settle(comm);
	siblings_leave(comm);
}

/* ---- mail */

void frl_comm_abort(struct frl_comm *comm, const char *reason)
{
	char text[ERROR_TEXT];

	if (!comm)
		return;
	snprintf(text, sizeof(text), "rank %d aborted: %.*s", comm->rank, REASON_MAX - 64,
		reason ? reason : "for no reason that was given");
	/* Send the failure here: the communicator's thread may be busy elsewhere for long. */
	if (!mailbox_abort(comm->mailbox, &comm->inbox, text))
		return;
	driver_wake_all(comm);
	comm_send_failure(comm, -ECANCELED, text);
	/* Abort the job before the caller may end the process, which would look like a crash. */
	comm_give_up_job(comm, text);
}

static int take_mail(struct frl_comm *comm, const struct mail *mail)
{
	int rank = comm_rank_of_member(comm, mail->member);

	if (rank < 0 || rank == comm->rank)
		return 0;
	switch (mail->type) {
	case MAIL_CONNECT: return channel_take_mail(comm, rank, mail->bytes, mail->size);
	case MAIL_FAILED: return comm_take_failure(comm, rank, mail->bytes, mail->size);
	case MAIL_REPORT: comm_take_report(comm, rank, mail->bytes, mail->size); return 0;
	case MAIL_MEASURED: comm->measured_by = rank; return 0;
	case MAIL_QUESTION: break;
	}
	return 0;
}

int comm_take_mail(struct frl_comm *comm)
{
	struct mail *mail = mailbox_take(comm->mailbox, &comm->inbox);
	char reason[REASON_MAX];
	int err = 0;

	if (mailbox_is_aborted(comm->mailbox, &comm->inbox, reason))
		err = comm_fail_aborted(comm, reason);
	while (mail) {
		struct mail *next = mail->next;

		if (!err)
			err = take_mail(comm, mail);
		free(mail);
		mail = next;
	}
	return err;
}

int frl_comm_rank(const struct frl_comm *comm)
{
	return comm->rank;
}

int frl_comm_size(const struct frl_comm *comm)
{
	return comm->ranks;
}
