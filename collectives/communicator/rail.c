/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails: the devices of a communicator, their registrations and failures.
 *
 * If registering pins memory, which is slow, callers' buffers stay registered in a cache after an
 * operation, for the next operation with the same buffer.
 */
#include "collectives/communicator/communicator.h"

#include <errno.h>
#include <stdio.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"

/* ---- opening and closing */

static int open_rail(struct rail *rail)
{
	int err = frl_pd_create(rail->device, &rail->pd);

	if (!err && rail->attr.pins_memory)
		err = frl_mr_cache_create(rail->pd, NULL, &rail->cache);
	return err;
}

static bool is_device_failure(int err)
{
	return err == -EIO || err == -ENODEV;
}

/* A device may have failed before, if the communicator is split from another one. */
int rails_open(struct frl_comm *comm, const struct frl_comm_config *config)
{
	int lost = 0;

	for (int i = 0; i < config->n_devices; i++) {
		struct rail *rail = &comm->rails[comm->n_rails++];
		int err;

		rail->device = config->devices[i];
		frl_device_query(rail->device, &rail->attr);
		err = open_rail(rail);
		rail->is_lost = rail->is_down = is_device_failure(err);
		lost += rail->is_lost;
		if (err && (!rail->is_lost || lost == config->n_devices))
			return err;
		if (rail->is_lost)
			frl_log(FRL_LOG_WARNING,
				"communicator, rank %d: rail %d (%s) has failed: %s: going on "
				"without it",
				comm->rank, i, rail->attr.port, frl_last_error());
	}
	return 0;
}

void rails_close(struct frl_comm *comm)
{
	char why[ERROR_TEXT_MAX];

	/* The earlier error says why a resource could not be freed, which now keeps its
	 * protection domain. */
	error_save(why);
	for (unsigned i = 0; i < comm->n_rails; i++) {
		int err = frl_mr_cache_destroy(comm->rails[i].cache);

		if (!err)
			err = frl_pd_destroy(comm->rails[i].pd);
		if (err)
			frl_log(FRL_LOG_WARNING,
				"communicator, rank %d: resources were not freed: %s", comm->rank,
				*why ? why : frl_last_error());
	}
}

/* ---- registrations */

static int reg(const struct rail *rail, enum plan_buffer buffer, void *addr, size_t bytes,
	struct frl_mr **ret_mr)
{
	uint32_t access = buffer == PLAN_SEND ? 0 : FRL_ACCESS_LOCAL_WRITE;

	if (rail->cache && buffer != PLAN_SCRATCH)
		return frl_mr_cache_get(rail->cache, addr, bytes, access, ret_mr);
	return frl_reg_mr(rail->pd, addr, bytes, access, ret_mr);
}

int rail_register(struct frl_comm *comm, unsigned number, enum plan_buffer buffer, void *addr,
	size_t bytes, struct frl_mr **ret_mr)
{
	struct rail *rail = &comm->rails[number];
	char why[ERROR_TEXT];
	int err;

	if (rail->is_lost)
		return 0;
	err = rail_check(comm, number, reg(rail, buffer, addr, bytes, ret_mr));
	if (!err || comm->error)
		return err;
	snprintf(why, sizeof(why), "%s", frl_last_error());
	return frl_fail(err, "rank %d cannot use %zu bytes at %p over rail %u (%s): %s", comm->rank,
		bytes, addr, number, rail->attr.port, why);
}

int rail_deregister(
	struct frl_comm *comm, unsigned number, enum plan_buffer buffer, struct frl_mr *mr)
{
	struct rail *rail = &comm->rails[number];

	if (!rail->cache || buffer == PLAN_SCRATCH)
		return frl_dereg_mr(mr);
	frl_mr_cache_put(rail->cache, mr);
	return 0;
}

int rail_end_registration(const struct frl_comm *comm, unsigned number, struct frl_mr *mr)
{
	uint64_t until_ns;
	struct frl_backoff backoff;
	int err = frl_dereg_mr(mr);

	if (err != -EBUSY)
		return err;
	until_ns = clock_now_ns() + (uint64_t)BUSY_MS * NS_PER_MS;
	frl_backoff_reset(&backoff);
	while (err == -EBUSY && clock_now_ns() < until_ns) {
		if (frl_progress(comm->rails[number].device) <= 0)
			frl_backoff_idle(&backoff);
		err = frl_dereg_mr(mr);
	}
	return err;
}

/* ---- failures */

static bool has_other(const struct frl_comm *comm, unsigned number)
{
	for (unsigned i = 0; i < comm->n_rails; i++) {
		if (i != number && !comm->rails[i].is_lost)
			return true;
	}
	return false;
}

/*
 * Moves all channels away from a device that failed. Completions in its queue are polled before its
 * channels resume (poll_one()). Completions that the device did not write are lost, so the data is
 * received again. That is safe only if nothing is reduced on receive (staging), and if the sender
 * has not seen the acknowledgement; an overrun completion queue has lost acknowledged messages.
 */
static int lose(struct frl_comm *comm, unsigned number, int err)
{
	struct rail *rail = &comm->rails[number];
	char why[ERROR_TEXT / 2];

	snprintf(why, sizeof(why), "%s", frl_last_error());
	if (err == -EOVERFLOW || !comm->staging.is_needed || !has_other(comm, number))
		return comm_fail(comm, err, "rail %u (%s) of rank %d has failed: %s%s", number,
			rail->attr.port, comm->rank, why,
			comm->n_rails > 1 && !has_other(comm, number)
				? "; there is no other rail left to go on over"
				: "");
	rail->is_lost = rail->is_down = true;
	frl_log(FRL_LOG_WARNING,
		"communicator, rank %d: rail %u (%s) has failed: %s: going on without it",
		comm->rank, number, rail->attr.port, why);
	return comm->hooks->leave_rail(comm, number);
}

int rail_check(struct frl_comm *comm, unsigned number, int err)
{
	if (!is_device_failure(err) && err != -EOVERFLOW)
		return err;
	if (comm->error)
		return comm_error(comm);
	return comm->rails[number].is_lost ? 0 : lose(comm, number, err);
}

/* A completed request may be the caller's last call, so posted work must be handed over. */
void comm_flush(struct frl_comm *comm)
{
	for (unsigned i = 0; i < comm->n_rails; i++) {
		if (comm->rails[i].has_posted)
			frl_progress(comm->rails[i].device);
		comm->rails[i].has_posted = false;
	}
}
