/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening and closing devices. All contexts of a device share its struct frl_device. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "dropin/ibverbs/dropin.h"
#include "lib/base/error.h"
#include "lib/base/settings.h"

enum { IBTA_MTU = 4096 };

/* Serialises opening and closing. */
static pthread_mutex_t devices_mutex = PTHREAD_MUTEX_INITIALIZER;

/* ---- log and errors */

static void print_line(enum frl_log_level level, const char *line, void *arg)
{
	const struct iovec parts[] = {
		{ (void *)(uintptr_t) "ferrule verbs: ", strlen("ferrule verbs: ") },
		{ (void *)(uintptr_t)line, strlen(line) },
		{ (void *)(uintptr_t) "\n", 1 },
	};
	int error = errno;

	/* One call: lines of several processes do not mix. */
	(void)!writev(STDERR_FILENO, parts, 3);
	errno = error;
}

/* Reasons of failed calls are lines of the level "info": programs call to find out what works. */
__attribute__((constructor)) static void start_log(void)
{
	const char *level = settings_foreign("FERRULE_LOG");

	if (level && strcmp(level, "debug") == 0)
		frl_set_log(print_line, FRL_LOG_DEBUG, NULL);
	else if (level && strcmp(level, "info") == 0)
		frl_set_log(print_line, FRL_LOG_INFO, NULL);
	else
		frl_set_log(print_line, FRL_LOG_WARNING, NULL);
}

int dropin_errno(int rc)
{
	frl_log(FRL_LOG_INFO, "%s", frl_last_error());
	errno = rc < 0 ? -rc : rc;
	return errno;
}

int dropin_refuse(int err, const char *reason)
{
	return dropin_errno(frl_fail(-err, "%s", reason));
}

/* ---- fork */

static unsigned process;

unsigned process_now(void)
{
	return process;
}

static void before_fork(void)
{
	pthread_mutex_lock(&devices_mutex);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&devices_mutex);
}

/* The child cannot use the devices of its parent, and opens its own. */
static void after_fork_in_child(void)
{
	unsigned n;
	struct dropin_device *devices = devices_get(&n);

	process++;
	for (unsigned i = 0; i < n; i++) {
		devices[i].frl = NULL;
		pthread_mutex_init(&devices[i].contexts_mutex, NULL);
		/* The child may close contexts that it has inherited. */
		LIST_EACH(struct dropin_context, context, &devices[i].contexts, node)
			list_init(&context->node);
		list_init(&devices[i].contexts);
	}
	pthread_mutex_unlock(&devices_mutex);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* ---- devices */

static int open_frl(struct dropin_device *device)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct frl_device_config config;
	int rc;

	pthread_once(&once, watch_forks);
	frl_device_config_init(&config);
	config.fabric = device->fabric;
	config.port = device->port;
	config.ip = device->ip;
	config.progress = FRL_PROGRESS_THREAD;
	/* Verbs know none above 4096. A network port has what its interface carries. */
	if (strcmp(device->fabric ? device->fabric : "", "local") == 0 &&
		(!config.path_mtu || config.path_mtu > IBTA_MTU))
		config.path_mtu = IBTA_MTU;
	rc = frl_device_open(&config, &device->frl);
	if (rc)
		return rc;
	frl_device_query(device->frl, &device->attr);
	device_set_interface(device, device->attr.port);
	rc = frl_device_on_event(device->frl, async_event, device);
	if (rc) {
		frl_device_close(device->frl);
		device->frl = NULL;
	}
	return rc;
}

/* A device with objects that the program has not destroyed stays open, for the next context. The
 * wait for the device's threads is a cancellation point, and locks are held. */
static void close_frl(struct dropin_device *device)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	if (frl_device_close(device->frl) == 0)
		device->frl = NULL;
	else
		frl_log(FRL_LOG_INFO, "%s stays open: %s", device->ibv.name, frl_last_error());
	pthread_setcancelstate(state, NULL);
}

/* ---- contexts */

static void fill_functions(struct verbs_context *verbs)
{
	struct ibv_context_ops *ops = &verbs->context.ops;

	ops->poll_cq = poll_cq;
	ops->req_notify_cq = req_notify_cq;
	ops->post_send = post_send;
	ops->post_recv = post_recv;
	ops->post_srq_recv = post_srq_recv;
	ops->alloc_mw = alloc_mw;
	ops->dealloc_mw = dealloc_mw;
	ops->bind_mw = bind_mw;
	verbs->query_port = query_port;
	verbs->query_device_ex = query_device_ex;
	verbs->create_cq_ex = create_cq_ex;
	verbs->create_qp_ex = create_qp_ex;
	verbs->create_srq_ex = create_srq_ex;
	verbs->alloc_parent_domain = alloc_parent_domain;
	verbs->alloc_td = alloc_td;
	verbs->dealloc_td = dealloc_td;
}

static void fill_context(struct dropin_context *context, struct dropin_device *device)
{
	struct verbs_context *verbs = &context->verbs;

	context->device = device;
	context->frl = device->frl;
	pthread_mutex_init(&context->mutex, NULL);
	list_init(&context->events);
	source_init(&context->port_events, SOURCE_PORT, NULL);
	verbs->sz = sizeof(*verbs);
	verbs->context.device = &device->ibv;
	verbs->context.num_comp_vectors = 1;
	verbs->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&verbs->context.mutex, NULL);
	fill_functions(verbs);
}

static void free_context(struct dropin_context *context)
{
	struct ibv_context *ibv = &context->verbs.context;

	if (ibv->async_fd >= 0)
		close(ibv->async_fd);
	if (ibv->cmd_fd >= 0)
		close(ibv->cmd_fd);
	pthread_mutex_destroy(&context->mutex);
	pthread_mutex_destroy(&ibv->mutex);
	free(context);
}

/* The kernel's device is no file here, but programs look at its descriptor (fstat, fcntl). */
static int open_descriptors(struct ibv_context *ibv)
{
	ibv->cmd_fd = memfd_create("ferrule-verbs", MFD_CLOEXEC);
	ibv->async_fd = events_open();
	return ibv->cmd_fd < 0 || ibv->async_fd < 0 ? -errno : 0;
}

static struct dropin_context *make_context(struct dropin_device *device)
{
	struct dropin_context *context = calloc(1, sizeof(*context));
	int rc;

	if (!context)
		return NULL;
	fill_context(context, device);
	rc = open_descriptors(&context->verbs.context);
	if (!rc) {
		pthread_mutex_lock(&device->contexts_mutex);
		list_add_tail(&device->contexts, &context->node);
		pthread_mutex_unlock(&device->contexts_mutex);
		return context;
	}
	frl_fail(rc, "cannot open %s: no descriptor: %s; raise the limit (ulimit -n)",
		device->ibv.name, frl_strerror(rc));
	free_context(context);
	errno = -rc;
	return NULL;
}

struct ibv_context *ibv_open_device(struct ibv_device *ibv)
{
	struct dropin_device *device = dropin_device(ibv);
	struct dropin_context *context = NULL;
	int rc = 0, error;

	pthread_mutex_lock(&devices_mutex);
	if (!device->frl)
		rc = open_frl(device);
	if (rc) {
		dropin_errno(rc);
		frl_log(FRL_LOG_WARNING, "cannot open %s: %s", ibv->name, frl_last_error());
	} else {
		context = make_context(device);
		error = errno;
		if (!context && list_empty(&device->contexts))
			close_frl(device);
		errno = error;
	}
	error = errno;
	pthread_mutex_unlock(&devices_mutex);
	errno = error;
	return context ? &context->verbs.context : NULL;
}

int ibv_close_device(struct ibv_context *ibv)
{
	struct dropin_context *context = dropin_context(ibv);
	struct dropin_device *device = context->device;

	pthread_mutex_lock(&devices_mutex);
	pthread_mutex_lock(&device->contexts_mutex);
	list_remove(&context->node);
	pthread_mutex_unlock(&device->contexts_mutex);
	if (list_empty(&device->contexts) && device->frl)
		close_frl(device);
	pthread_mutex_unlock(&devices_mutex);
	free_context(context);
	return 0;
}
