/* SPDX-License-Identifier: BSD-3-Clause */
/* Loading a net plugin, and set-up calls in the form of each version. See plugin.h. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/nccl/caller/cuda.h"
#include "tests/nccl/caller/plugin.h"
#include "tests/nccl/caller/row.h"
#include "tests/nccl/caller/unpack.h"

const char *const plugin_call_name[N_CALLS] = {
	[CALL_LISTEN] = "listen",
	[CALL_CONNECT] = "connect",
	[CALL_ACCEPT] = "accept",
	[CALL_ISEND] = "isend",
	[CALL_IRECV] = "irecv",
	[CALL_TEST] = "test",
	[CALL_FLUSH] = "iflush",
	[CALL_CLOSE] = "close",
};

int plugin_traffic_class = -1;

/* Before version 11 NCCL initialises a plugin once in a process, however many communicators there
 * are. */
static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static const void *initialised;

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void note(struct plugin *p, enum plugin_call call, uint64_t start_ns)
{
	uint64_t took = now_ns() - start_ns;
	uint64_t old = p->slowest_ns[call];

	while (took > old && !atomic_compare_exchange_weak(&p->slowest_ns[call], &old, took))
		;
}

enum plugin_call plugin_slowest(const struct plugin *p, uint64_t *ret_ns)
{
	enum plugin_call slowest = 0;

	for (enum plugin_call i = 0; i < N_CALLS; i++)
		if (p->slowest_ns[i] > p->slowest_ns[slowest])
			slowest = i;
	*ret_ns = p->slowest_ns[slowest];
	return slowest;
}

/* The entries with the same name and arguments in all tables. */
#define TAKE_COMMON(p, t)                                                                    \
	do {                                                                                 \
		(p)->name = (t)->name;                                                       \
		(p)->devices = (t)->devices;                                                 \
		(p)->reg_mr_dmabuf = (t)->reg_mr_dmabuf;                                     \
		(p)->dereg_mr = (t)->dereg_mr;                                               \
		(p)->iflush = (t)->iflush;                                                   \
		(p)->test = (t)->test;                                                       \
		(p)->close_send = (t)->close_send;                                           \
		(p)->close_recv = (t)->close_recv;                                           \
		(p)->close_listen = (t)->close_listen;                                       \
		has_all = (t)->init && (t)->get_properties && (t)->listen && (t)->connect && \
			(t)->accept && (t)->reg_mr && (t)->isend && (t)->irecv;              \
	} while (0)

#define TAKE_SINCE_V7(p, t)                                \
	do {                                               \
		TAKE_COMMON(p, t);                         \
		(p)->irecv_consumed = (t)->irecv_consumed; \
		(p)->get_device_mr = (t)->get_device_mr;   \
	} while (0)

static const char *take_table(struct plugin *p)
{
	bool has_all = false;

	switch (p->version) {
	case 6: TAKE_COMMON(p, p->v6); break;
	case 7: TAKE_SINCE_V7(p, p->v7); break;
	case 8: TAKE_SINCE_V7(p, p->v8); break;
	case 9: TAKE_SINCE_V7(p, p->v9); break;
	case 10: TAKE_SINCE_V7(p, p->v10); break;
	case 11: TAKE_SINCE_V7(p, p->v11); break;
	default: TAKE_SINCE_V7(p, p->v12); break;
	}
	if (!has_all || !p->devices || !p->dereg_mr || !p->test || !p->close_send ||
		!p->close_recv || !p->close_listen)
		return "the table lacks a function that NCCL calls";
	if (!p->name || !p->name[0])
		return "the table has no name";
	return NULL;
}

const char *plugin_load(struct plugin *p, const char *path, int version)
{
	static char text[512];
	char symbol[32];

	memset(p, 0, sizeof(*p));
	p->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!p->library) {
		snprintf(text, sizeof(text), "cannot load: %s", dlerror());
		return text;
	}
	for (int v = NCCL_NEWEST_VERSION; v >= NCCL_OLDEST_VERSION && !p->table; v--) {
		if (version && v != version)
			continue;
		snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", v);
		p->table = dlsym(p->library, symbol);
		p->version = v;
	}
	if (!p->table) {
		plugin_close(p);
		return "there is no such ncclNetPlugin_v symbol";
	}
	return take_table(p);
}

void plugin_close(struct plugin *p)
{
	pthread_mutex_lock(&init_lock);
	initialised = NULL;
	pthread_mutex_unlock(&init_lock);
	if (p->library)
		dlclose(p->library);
	p->library = NULL;
	p->table = NULL;
}

bool plugin_stays(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);

	if (library)
		dlclose(library);
	return library;
}

/* NCCL serialises these calls, whatever the number of its communicators' threads. */
static pthread_mutex_t calm = PTHREAD_MUTEX_INITIALIZER;

static int init_once(struct plugin *p, nccl_logger log, nccl_profiler profiler)
{
	int result = NCCL_SUCCESS;

	pthread_mutex_lock(&init_lock);
	if (initialised != p->table) {
		switch (p->version) {
		case 6: result = p->v6->init(log); break;
		case 7: result = p->v7->init(log); break;
		case 8: result = p->v8->init(log); break;
		case 9: result = p->v9->init(log); break;
		default: result = p->v10->init(log, profiler); break;
		}
		if (result == NCCL_SUCCESS)
			initialised = p->table;
	}
	pthread_mutex_unlock(&init_lock);
	return result;
}

bool plugin_has_no_tuner, plugin_splits, plugin_is_on_one_host;

/* Maps a parent's number to that of the communicator that is split off. */
#define SPLIT_OFF ((uint64_t)1 << 32)

/* For one more communicator. A plugin without tuner is allowed. */
static int begin_tuner(struct plugin *p, uint64_t comm_id, nccl_logger log)
{
	/* NCCL 2.20 takes table v8, too, and has no tuner that can exclude. */
	if (plugin_has_no_tuner || p->version < 9)
		return NCCL_SUCCESS;
	for (unsigned int i = 0; i < PLUGIN_MAX_TUNERS; i++) {
		if (p->tuners[i].context)
			continue;
		if (!tuner_load(&p->tuners[i], p->library, tuner_version_for(p->version)))
			return NCCL_SUCCESS;
		return tuner_init(&p->tuners[i], comm_id, plugin_is_on_one_host ? 1 : 2, log);
	}
	return NCCL_SUCCESS;
}

static int end_tuner(struct plugin *p)
{
	for (unsigned int i = PLUGIN_MAX_TUNERS; i > 0; i--)
		if (p->tuners[i - 1].context)
			return tuner_end(&p->tuners[i - 1]);
	return NCCL_SUCCESS;
}

int plugin_init(struct plugin *p, void **context, nccl_logger log, nccl_profiler profiler)
{
	static uint64_t comm_id = 0x0123456789abcdef; /* under `calm` */
	struct nccl_comm_config config = { .traffic_class = plugin_traffic_class };
	/* The communicator's GPU is current by then: ncclCommInitRankFunc() calls cudaSetDevice(),
	 * then commAlloc(), which calls ncclNetInit() (init.cc, 2.13.4:1036 and 311, 2.28.9:1527
	 * and 421). */
	bool has_gpu = slots_are_on_gpu && cuda_set_current();
	int result;

	*context = NULL;
	pthread_mutex_lock(&calm);
	if (p->version <= 10)
		result = init_once(p, log, profiler);
	else if (p->version == 11)
		result = p->v11->init(context, ++comm_id, &config, log, profiler);
	else
		result = p->v12->init(context, ++comm_id, &config, log, profiler);
	if (result == NCCL_SUCCESS)
		result = begin_tuner(p, comm_id, log);
	if (result == NCCL_SUCCESS && plugin_splits)
		result = end_tuner(p);
	if (result == NCCL_SUCCESS && plugin_splits)
		result = begin_tuner(p, comm_id + SPLIT_OFF, log);
	pthread_mutex_unlock(&calm);
	if (has_gpu)
		cuda_unset_current();
	return result;
}

int plugin_finalize(struct plugin *p, void *context)
{
	int (*finalize)(void *) = NULL;
	int result = NCCL_SUCCESS;

	if (p->version >= 11)
		finalize = p->version == 11 ? p->v11->finalize : p->v12->finalize;
	pthread_mutex_lock(&calm);
	result = end_tuner(p);
	if (finalize && result == NCCL_SUCCESS)
		result = finalize(context);
	pthread_mutex_unlock(&calm);
	return result;
}

/* The fields that all versions share. */
#define COPY_PROPERTIES(to, from)                     \
	do {                                          \
		(to)->name = (from).name;             \
		(to)->pci_path = (from).pci_path;     \
		(to)->guid = (from).guid;             \
		(to)->pointers = (from).pointers;     \
		(to)->speed_mbps = (from).speed_mbps; \
		(to)->port = (from).port;             \
		(to)->latency_us = (from).latency_us; \
		(to)->max_comms = (from).max_comms;   \
		(to)->max_recvs = (from).max_recvs;   \
	} while (0)
#define COPY_DEVICE(to, from)                                 \
	do {                                                  \
		(to)->device_type = (from).device_type;       \
		(to)->device_version = (from).device_version; \
	} while (0)
#define COPY_VIRTUAL(to, from)                                                      \
	do {                                                                        \
		(to)->registration_is_global = (from).registration_is_global;       \
		(to)->force_flush = (from).force_flush;                             \
		(to)->virtual_device.n_devices = (from).virtual_device.n_devices;   \
		memcpy((to)->virtual_device.devices, (from).virtual_device.devices, \
			sizeof((from).virtual_device.devices));                     \
		(to)->max_p2p_bytes = (from).max_p2p_bytes;                         \
		(to)->max_coll_bytes = (from).max_coll_bytes;                       \
	} while (0)

/* A version's own struct, and memory behind it that the plugin must not touch. */
#define GUARDED(type)               \
	struct {                    \
		struct type is;     \
		uint8_t guard[128]; \
	}

static bool is_rubbish(const uint8_t *guard, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (guard[i] != 0x5a)
			return false;
	return true;
}

/* Filled with garbage first, to find fields that a plugin omits, and writes behind the struct. */
#define ASK(p, table, dev, to)                                                         \
	(memset(&(to), 0x5a, sizeof(to)), (p)->table->get_properties((dev), &(to).is)) \
		? NCCL_INTERNAL_ERROR                                                  \
		: is_rubbish((to).guard, sizeof((to).guard)) ? NCCL_SUCCESS            \
							     : NCCL_INVALID_USAGE

static int old_properties(struct plugin *p, int dev, struct nccl_properties_v12 *to)
{
	GUARDED(nccl_properties_v6) v6;
	GUARDED(nccl_properties_v7) v7;
	GUARDED(nccl_properties_v8) v8;
	int result;

	if (p->version == 6) {
		result = ASK(p, v6, dev, v6);
		COPY_PROPERTIES(to, v6.is);
	} else if (p->version == 7) {
		result = ASK(p, v7, dev, v7);
		COPY_PROPERTIES(to, v7.is);
		COPY_DEVICE(to, v7.is);
	} else {
		result = ASK(p, v8, dev, v8);
		COPY_PROPERTIES(to, v8.is);
		COPY_DEVICE(to, v8.is);
		to->registration_is_global = v8.is.registration_is_global;
	}
	return result;
}

static int new_properties(struct plugin *p, int dev, struct nccl_properties_v12 *to)
{
	GUARDED(nccl_properties_v9) v9;
	GUARDED(nccl_properties_v11) v11;
	GUARDED(nccl_properties_v12) v12;
	int result;

	if (p->version == 12) {
		result = ASK(p, v12, dev, v12);
		*to = v12.is;
		return result;
	}
	if (p->version == 11) {
		result = ASK(p, v11, dev, v11);
		COPY_PROPERTIES(to, v11.is);
		COPY_DEVICE(to, v11.is);
		COPY_VIRTUAL(to, v11.is);
		to->max_multi_request_size = v11.is.max_multi_request_size;
		return result;
	}
	if (p->version == 9)
		result = ASK(p, v9, dev, v9);
	else
		result = ASK(p, v10, dev, v9);
	COPY_PROPERTIES(to, v9.is);
	COPY_DEVICE(to, v9.is);
	COPY_VIRTUAL(to, v9.is);
	return result;
}

int plugin_properties(struct plugin *p, int dev, struct nccl_properties_v12 *to)
{
	int result;

	memset(to, 0, sizeof(*to));
	to->virtual_device.n_devices = 1;
	to->virtual_device.devices[0] = dev;
	to->max_p2p_bytes = NCCL_MAX_NET_BYTES_OLD;
	to->max_coll_bytes = NCCL_MAX_NET_BYTES_OLD / 2;
	to->rail = -1;
	to->plane = -1;
	pthread_mutex_lock(&calm);
	result = p->version <= 8 ? old_properties(p, dev, to) : new_properties(p, dev, to);
	pthread_mutex_unlock(&calm);
	return result;
}

int plugin_listen(struct plugin *p, void *context, int dev, void *handle, void **comm)
{
	uint64_t start = now_ns();
	int result;

	switch (p->version) {
	case 6: result = p->v6->listen(dev, handle, comm); break;
	case 7: result = p->v7->listen(dev, handle, comm); break;
	case 8: result = p->v8->listen(dev, handle, comm); break;
	case 9: result = p->v9->listen(dev, handle, comm); break;
	case 10: result = p->v10->listen(dev, handle, comm); break;
	case 11: result = p->v11->listen(context, dev, handle, comm); break;
	default: result = p->v12->listen(context, dev, handle, comm); break;
	}
	note(p, CALL_LISTEN, start);
	return result;
}

/* A host plugin sets no device handle, whatever NCCL passes. */
static int without_device(int result, const struct nccl_device_handle *device)
{
	return result == NCCL_SUCCESS && device ? NCCL_INVALID_USAGE : result;
}

int plugin_connect(struct plugin *p, void *context, int dev, void *handle, void **comm)
{
	struct nccl_comm_config config = { .traffic_class = plugin_traffic_class };
	struct nccl_device_handle *device = NULL;
	uint64_t start = now_ns();
	int result;

	*comm = NULL;
	switch (p->version) {
	case 6: result = p->v6->connect(dev, handle, comm); break;
	case 7: result = p->v7->connect(dev, handle, comm, &device); break;
	case 8: result = p->v8->connect(dev, handle, comm, &device); break;
	case 9: result = p->v9->connect(dev, handle, comm, &device); break;
	case 10: result = p->v10->connect(dev, &config, handle, comm, &device); break;
	case 11: result = p->v11->connect(context, dev, handle, comm, &device); break;
	default: result = p->v12->connect(context, dev, handle, comm, &device); break;
	}
	note(p, CALL_CONNECT, start);
	return without_device(result, device);
}

/* Offers NCCL's own object as often as the plugin takes it; it is never freed or replaced. */
static struct nccl_device_handle *offer(const struct plugin *p)
{
	static struct nccl_device_handle offered = { .device_type = NCCL_DEVICE_UNPACK,
		.device_version = NCCL_DEVICE_UNPACK_VERSION };

	return p->unpacks ? &offered : NULL;
}

/* Without a connection the handle stays NCCL's. With one it is the plugin's, or NULL. */
static int with_device(
	int result, const struct plugin *p, void *comm, const struct nccl_device_handle *device)
{
	if (!p->unpacks || result != NCCL_SUCCESS)
		return without_device(result, p->unpacks ? NULL : device);
	if (!comm)
		return device == offer(p) ? NCCL_SUCCESS : NCCL_INVALID_USAGE;
	if (device == offer(p) || (device && device->device_type))
		return NCCL_INVALID_USAGE;
	if (device)
		unpack_accepted(comm, device);
	return NCCL_SUCCESS;
}

int plugin_accept(struct plugin *p, void *listen_comm, void **comm)
{
	struct nccl_device_handle *device = offer(p);
	uint64_t start = now_ns();
	int result;

	*comm = NULL;
	switch (p->version) {
	case 6: result = p->v6->accept(listen_comm, comm); break;
	case 7: result = p->v7->accept(listen_comm, comm, &device); break;
	case 8: result = p->v8->accept(listen_comm, comm, &device); break;
	case 9: result = p->v9->accept(listen_comm, comm, &device); break;
	case 10: result = p->v10->accept(listen_comm, comm, &device); break;
	case 11: result = p->v11->accept(listen_comm, comm, &device); break;
	default: result = p->v12->accept(listen_comm, comm, &device); break;
	}
	note(p, CALL_ACCEPT, start);
	return with_device(result, p, *comm, device);
}

int plugin_reg(struct plugin *p, void *comm, void *data, size_t size, int type, void **mr)
{
	*mr = NULL;
	switch (p->version) {
	case 6: return p->v6->reg_mr(comm, data, (int)size, type, mr);
	case 7: return p->v7->reg_mr(comm, data, (int)size, type, mr);
	case 8: return p->v8->reg_mr(comm, data, size, type, mr);
	case 9: return p->v9->reg_mr(comm, data, size, type, mr);
	case 10: return p->v10->reg_mr(comm, data, size, type, mr);
	case 11: return p->v11->reg_mr(comm, data, size, type, mr);
	default: return p->v12->reg_mr(comm, data, size, type, mr);
	}
}

int plugin_isend(struct plugin *p, void *comm, void *data, size_t size, int tag, void *mr,
	void *parent, void **request)
{
	uint64_t start = now_ns();
	int bytes = (int)size;
	int result;

	*request = NULL;
	switch (p->version) {
	case 6: result = p->v6->isend(comm, data, bytes, tag, mr, request); break;
	case 7: result = p->v7->isend(comm, data, bytes, tag, mr, request); break;
	case 8: result = p->v8->isend(comm, data, bytes, tag, mr, request); break;
	case 9: result = p->v9->isend(comm, data, size, tag, mr, request); break;
	case 10: result = p->v10->isend(comm, data, size, tag, mr, parent, request); break;
	case 11: result = p->v11->isend(comm, data, size, tag, mr, parent, request); break;
	default: result = p->v12->isend(comm, data, size, tag, mr, parent, request); break;
	}
	note(p, CALL_ISEND, start);
	return result;
}

static int old_irecv(struct plugin *p, void *comm, int n, void **data, size_t *sizes, int *tags,
	void **mrs, void **request)
{
	int bytes[NCCL_MAX_RECVS];

	for (int i = 0; i < n; i++)
		bytes[i] = (int)sizes[i];
	*request = NULL;
	switch (p->version) {
	case 6: return p->v6->irecv(comm, n, data, bytes, tags, mrs, request);
	case 7: return p->v7->irecv(comm, n, data, bytes, tags, mrs, request);
	default: return p->v8->irecv(comm, n, data, bytes, tags, mrs, request);
	}
}

/* `*request` on entry: NULL, or NCCL_OPTIONAL_RECV_COMPLETION. */
int plugin_irecv(struct plugin *p, void *comm, int n, void **data, size_t *sizes, int *tags,
	void **mrs, void **parents, void **request)
{
	uint64_t start = now_ns();
	int result;

	switch (p->version) {
	case 6:
	case 7:
	case 8: result = old_irecv(p, comm, n, data, sizes, tags, mrs, request); break;
	case 9: result = p->v9->irecv(comm, n, data, sizes, tags, mrs, request); break;
	case 10: result = p->v10->irecv(comm, n, data, sizes, tags, mrs, parents, request); break;
	case 11: result = p->v11->irecv(comm, n, data, sizes, tags, mrs, parents, request); break;
	default: result = p->v12->irecv(comm, n, data, sizes, tags, mrs, parents, request); break;
	}
	note(p, CALL_IRECV, start);
	return result;
}

int plugin_flush(
	struct plugin *p, void *comm, int n, void **data, int *sizes, void **mrs, void **request)
{
	uint64_t start = now_ns();
	int result;

	*request = NULL;
	if (!p->iflush)
		return NCCL_INVALID_USAGE;
	result = p->iflush(comm, n, data, sizes, mrs, request);
	note(p, CALL_FLUSH, start);
	return result;
}

int plugin_test(struct plugin *p, void *request, int *done, int *sizes)
{
	uint64_t start = now_ns();
	int result;

	*done = 0;
	result = p->test(request, done, sizes);
	note(p, CALL_TEST, start);
	return result;
}

static int timed_close(struct plugin *p, int (*close)(void *), void *comm)
{
	uint64_t start = now_ns();
	int result = close(comm);

	note(p, CALL_CLOSE, start);
	return result;
}

int plugin_consumed(struct plugin *p, void *comm, int n, void *request)
{
	return p->irecv_consumed ? p->irecv_consumed(comm, n, request) : NCCL_SUCCESS;
}

int plugin_close_send(struct plugin *p, void *comm)
{
	return timed_close(p, p->close_send, comm);
}

int plugin_close_recv(struct plugin *p, void *comm)
{
	if (p->unpacks)
		unpack_closed(comm);
	return timed_close(p, p->close_recv, comm);
}

int plugin_close_listen(struct plugin *p, void *comm)
{
	return timed_close(p, p->close_listen, comm);
}

bool plugin_has_virtual(const struct plugin *p)
{
	switch (p->version) {
	case 9: return p->v9->make_virtual;
	case 10: return p->v10->make_virtual;
	case 11: return p->v11->make_virtual;
	case 12: return p->v12->make_virtual;
	default: return false;
	}
}

int plugin_make_virtual(struct plugin *p, int *dev, const int *devices, int n)
{
	struct nccl_virtual_v9 v9 = { .n_devices = n };
	struct nccl_virtual_v12 v12 = { .n_devices = n };

	if (!plugin_has_virtual(p))
		return NCCL_INVALID_USAGE;
	for (int i = 0; i < n && i < NCCL_DEVS_PER_NIC_V11; i++)
		v9.devices[i] = devices[i];
	for (int i = 0; i < n && i < NCCL_DEVS_PER_NIC_V12; i++)
		v12.devices[i] = devices[i];
	switch (p->version) {
	case 9: return p->v9->make_virtual(dev, &v9);
	case 10: return p->v10->make_virtual(dev, &v9);
	case 11: return p->v11->make_virtual(dev, &v9);
	default: return p->v12->make_virtual(dev, &v12);
	}
}

bool plugin_has_attributes(const struct plugin *p)
{
	if (p->version < 11)
		return false;
	return p->version == 11 ? p->v11->set_attributes : p->v12->set_attributes;
}

int plugin_set_attributes(struct plugin *p, void *context, struct nccl_net_attributes *attributes)
{
	if (!plugin_has_attributes(p))
		return NCCL_INVALID_USAGE;
	return p->version == 11 ? p->v11->set_attributes(context, attributes)
				: p->v12->set_attributes(context, attributes);
}
