/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A registration is valid for all connections of its device, so whoever deregisters it need not be
 * whose requests still use it: these are looked for among those of all connections.
 */
#include "nccl/memory.h"

#include <stdlib.h>

#include "nccl/comm.h"
#include "nccl/log.h"

static struct {
	pthread_mutex_t lock;
	struct comm *first;
} started = { .lock = PTHREAD_MUTEX_INITIALIZER };

void registration_comm_starts(struct comm *comm)
{
	pthread_mutex_lock(&started.lock);
	comm->next_started = started.first;
	started.first = comm;
	pthread_mutex_unlock(&started.lock);
}

void registration_comm_ends(struct comm *comm)
{
	struct comm **link = &started.first;

	pthread_mutex_lock(&started.lock);
	while (*link && *link != comm)
		link = &(*link)->next_started;
	if (*link)
		*link = comm->next_started;
	pthread_mutex_unlock(&started.lock);
}

static void let_go(struct registration *registration)
{
	if (atomic_fetch_sub_explicit(&registration->holders, 1, memory_order_acq_rel) == 1)
		free(registration);
}

void registration_use(registration_user *user, struct registration *registration)
{
	if (registration)
		atomic_fetch_add_explicit(&registration->holders, 1, memory_order_relaxed);
	atomic_store_explicit(user, registration, memory_order_release);
}

void registration_unuse(registration_user *user)
{
	struct registration *registration = atomic_load_explicit(user, memory_order_relaxed);

	atomic_store_explicit(user, NULL, memory_order_release);
	if (registration)
		let_go(registration);
}

static bool uses(struct comm *comm, const struct registration *registration)
{
	int n;
	struct request *requests = net_comm_requests(comm, &n);

	for (int i = 0; i < n; i++)
		for (int k = 0; k < NET_MAX_RECEIVES; k++)
			if (atomic_load_explicit(&requests[i].users[k], memory_order_acquire) ==
				registration)
				return true;
	return false;
}

/* Its requests, if there are any, keep the struct. */
static void give_back(struct registration *registration)
{
	for (int i = 0; i < registration->device->n_rails; i++)
		if (registration->mrs[i])
			frl_mr_cache_put(
				net_port_at(registration->device, i)->cache, registration->mrs[i]);
	let_go(registration);
}

int net_register(struct comm *comm, void *data, size_t size, int type,
	struct registration **ret_registration)
{
	struct registration *registration;
	int err = 0;

	if (type != NCCL_PTR_HOST) {
		net_log_warning(
			"memory of type %d cannot be registered: only that of the host", type);
		return NCCL_INVALID_USAGE;
	}
	registration = calloc(1, sizeof(*registration));
	if (!registration) {
		net_log_warning("there is no memory for a registration");
		return NCCL_SYSTEM_ERROR;
	}
	registration->device = comm->device;
	atomic_init(&registration->holders, 1);
	for (int i = 0; i < comm->device->n_rails && size && !err; i++) {
		err = frl_mr_cache_get(net_port_at(comm->device, i)->cache, data, size,
			FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE, &registration->mrs[i]);
		if (err)
			break;
		registration->lkeys[i] = frl_mr_lkey(registration->mrs[i]);
		registration->rkeys[i] = frl_mr_rkey(registration->mrs[i]);
	}
	if (err) {
		net_log_warning(
			"cannot register %zu bytes at %p: %s", size, data, frl_last_error());
		give_back(registration);
		return net_result_of(err);
	}
	*ret_registration = registration;
	return NCCL_SUCCESS;
}

int net_deregister(struct registration *registration)
{
	if (!registration)
		return NCCL_SUCCESS;
	/* The bytes will be somebody else's in a moment. */
	if (atomic_load_explicit(&registration->holders, memory_order_acquire) > 1) {
		pthread_mutex_lock(&started.lock);
		for (struct comm *comm = started.first; comm; comm = comm->next_started)
			if (uses(comm, registration))
				net_comm_stop(comm);
		pthread_mutex_unlock(&started.lock);
	}
	give_back(registration);
	return NCCL_SUCCESS;
}
