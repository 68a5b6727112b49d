/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A registration is valid for all connections of its device. The connection that deregisters it may
 * differ from the connections whose requests still use it, so all connections are searched.
 */
#include "nccl/data/memory.h"

#include <errno.h>
#include <stdlib.h>

#include "nccl/comm.h"
#include "nccl/gpu_resources.h"
#include "nccl/log.h"
#include "nccl/connect/setup.h"
#include "nccl/data/unpack.h"

#define BUSY_NS UINT64_C(5000000000)

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

/* A software device registers GPU memory cheaply, and pending use of a cached registration could
 * not be awaited. */
static bool is_cached(const struct net_port *port, int type)
{
	return type == NCCL_PTR_HOST || port->info.is_hardware;
}

static void registration_put(struct registration *registration)
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
		registration_put(registration);
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

int net_dereg_within(struct net_port *port, struct frl_mr *mr, uint64_t ns)
{
	uint64_t until_ns = net_now_ns() + ns;
	struct frl_backoff backoff;
	int err = frl_dereg_mr(mr);

	frl_backoff_reset(&backoff);
	while (err == -EBUSY && net_now_ns() < until_ns) {
		if (frl_progress(port->device) <= 0)
			frl_backoff_idle(&backoff);
		err = frl_dereg_mr(mr);
	}
	return err;
}

/* Kernels may still move data of earlier requests, but the memory may be reused as soon as this
 * returns. So wait for the kernels, which takes microseconds unless the GPU is busy. */
static int deregister_now(struct net_port *port, struct frl_mr *mr)
{
	int err = net_dereg_within(port, mr, BUSY_NS);

	if (err)
		net_log_warning("cannot deregister GPU memory, which must not be freed: %s",
			frl_last_error());
	return err;
}

/* Pending requests keep the struct alive. */
static int registration_free(struct registration *registration)
{
	int err = 0, rc;

	for (int i = 0; i < registration->device->n_rails; i++) {
		struct net_port *port = net_port_at(registration->device, i);

		if (!registration->mrs[i])
			continue;
		if (is_cached(port, registration->type)) {
			frl_mr_cache_put(port->cache, registration->mrs[i]);
			continue;
		}
		rc = deregister_now(port, registration->mrs[i]);
		err = err ? err : rc;
	}
	if (registration->unpack)
		net_unpack_release(registration->unpack);
	registration_put(registration);
	return err;
}

/* Explains a failed registration: the device reports support for GPU memory to NCCL,
 * but UNPACK serves neither sends nor receives for which no packet buffers are left. */
static void explain_unpack(const struct comm *comm)
{
	net_log_warning("cannot register GPU memory for %s %s: FERRULE_UNPACK=1 covers only "
			"receives that NCCL's kernels unpack; set %sFERRULE_GPU=1",
		comm->is_sender ? "sending over" : "receiving from", comm->device->name,
		comm->is_sender ? "NCCL_NET_GDR_READ=0, or " : "what the previous line says, or");
}

static bool takes(const struct comm *comm, int type)
{
	const struct net_device *device = comm->device;
	bool is_gpu = type == NCCL_PTR_CUDA || type == NCCL_PTR_DMABUF;

	if (type == NCCL_PTR_HOST || (is_gpu && net_device_pointers(device) & type))
		return true;
	if (type == NCCL_PTR_CUDA && net_device_unpacks(device))
		explain_unpack(comm);
	else if (is_gpu)
		net_log_warning("cannot register GPU memory of type %d with %s: its ptrSupport is "
				"%d (see FERRULE_GPU)",
			type, device->name, NCCL_PTR_HOST | net_device_pointers(device));
	else
		net_log_warning("cannot register memory of type %d: it must be host memory (%d) or "
				"GPU memory (%d)",
			type, NCCL_PTR_HOST, NCCL_PTR_CUDA);
	return false;
}

static int register_with(struct net_port *port, const struct registration *registration, int rail,
	void *data, size_t size, struct frl_mr **ret_mr)
{
	const uint32_t access = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE;

	int err;

	if (registration->unpack)
		return net_unpack_register(registration->unpack, rail, data, size, ret_mr);
	if (is_cached(port, registration->type))
		return frl_mr_cache_get(port->cache, data, size, access, ret_mr);
	err = frl_reg_mr(port->pd, data, size, access, ret_mr);
	if (!err)
		net_gpu_resources_add(port, data, size);
	return err;
}

int net_register(struct comm *comm, void *data, size_t size, int type,
	struct registration **ret_registration)
{
	struct unpack *unpack = type == NCCL_PTR_CUDA && size ? net_unpack_for(comm, data, size)
							      : NULL;
	struct registration *registration;
	struct frl_mr_attr attr;
	int err = 0;

	if (!unpack && !takes(comm, type))
		return NCCL_INVALID_USAGE;
	registration = calloc(1, sizeof(*registration));
	if (!registration) {
		net_log_warning("no memory for a registration");
		return NCCL_SYSTEM_ERROR;
	}
	registration->device = comm->device;
	registration->type = type;
	registration->unpack = unpack;
	atomic_init(&registration->holders, 1);
	if (unpack)
		net_unpack_hold(unpack);
	for (int i = 0; i < comm->device->n_rails && size && !err; i++) {
		err = register_with(net_port_at(comm->device, i), registration, i, data, size,
			&registration->mrs[i]);
		if (err)
			break;
		registration->lkeys[i] = frl_mr_lkey(registration->mrs[i]);
		registration->rkeys[i] = frl_mr_rkey(registration->mrs[i]);
		if (type == NCCL_PTR_HOST || unpack)
			continue;
		frl_mr_query(registration->mrs[i], &attr);
		if (attr.needs_flush)
			registration->flushed = registration->mrs[i];
	}
	if (err) {
		net_log_warning(
			"cannot register %zu bytes at %p: %s", size, data, frl_last_error());
		registration_free(registration);
		return net_result_of(err);
	}
	*ret_registration = registration;
	return NCCL_SUCCESS;
}

int net_flush(const struct registration *registration)
{
	int err = 0;

	if (registration && registration->flushed)
		err = frl_mr_flush(registration->flushed);
	if (err)
		net_log_warning(
			"cannot flush data received in a GPU's memory: %s", frl_last_error());
	return net_result_of(err);
}

int net_deregister(struct registration *registration)
{
	if (!registration)
		return NCCL_SUCCESS;
	/* The memory may be reused soon. */
	if (atomic_load_explicit(&registration->holders, memory_order_acquire) > 1) {
		pthread_mutex_lock(&started.lock);
		for (struct comm *comm = started.first; comm; comm = comm->next_started)
			if (uses(comm, registration))
				net_comm_stop(comm);
		pthread_mutex_unlock(&started.lock);
	}
	if (registration->unpack)
		net_unpack_revoke(registration->unpack, registration);
	return registration_free(registration) ? NCCL_SYSTEM_ERROR : NCCL_SUCCESS;
}
