/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A net plugin as NCCL uses it: loaded by path, its newest table (or a chosen version) converted to
 * one form. Features that an older version lacks are added as NCCL's own adapters add them: an old
 * table's init runs once in a process, sizes are capped, the hint of an optional completion is
 * removed.
 *
 * Every call is timed, as none may block; `plugin_slowest` returns the slowest. Threads: NCCL's
 * rules apply (calls on one comm's requests from one thread). The timing is safe from all threads.
 */
#ifndef TESTS_NCCL_PLUGIN_H
#define TESTS_NCCL_PLUGIN_H

#include <stdbool.h>

#include "tests/nccl/caller/tuner.h"

enum { PLUGIN_MAX_TUNERS = 32 };

enum plugin_call {
	CALL_LISTEN,
	CALL_CONNECT,
	CALL_ACCEPT,
	CALL_ISEND,
	CALL_IRECV,
	CALL_TEST,
	CALL_FLUSH,
	CALL_CLOSE,
	N_CALLS,
};

extern const char *const plugin_call_name[N_CALLS];

struct plugin {
	void *library;
	const char *name;
	int version;
	union {
		const void *table;
		const struct nccl_net_v6 *v6;
		const struct nccl_net_v7 *v7;
		const struct nccl_net_v8 *v8;
		const struct nccl_net_v9 *v9;
		const struct nccl_net_v10 *v10;
		const struct nccl_net_v11 *v11;
		const struct nccl_net_v12 *v12;
	};
	/* The part with the same form in all versions. */
	int (*devices)(int *n);
	int (*reg_mr_dmabuf)(
		void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mr);
	int (*dereg_mr)(void *comm, void *mr);
	int (*iflush)(void *comm, int n, void **data, int *sizes, void **mrs, void **request);
	int (*test)(void *request, int *done, int *sizes);
	int (*close_send)(void *comm);
	int (*close_recv)(void *comm);
	int (*close_listen)(void *comm);
	int (*irecv_consumed)(void *comm, int n, void *request);      /* NULL before version 7 */
	int (*get_device_mr)(void *comm, void *mr, void **device_mr); /* as well */
	struct tuner tuners[PLUGIN_MAX_TUNERS];                       /* of communicators */
	bool unpacks; /* NCCL's kernels are to unpack receives: accept offers a handle */
	_Atomic uint64_t slowest_ns[N_CALLS];
};

/* The traffic class in the configuration for init and connect; -1: none. */
extern int plugin_traffic_class;

/*
 * NCCL loads the tuner of the plugin's file after each init, before it connects (2.22 on, where
 * connections are made when they are first used), unless this is set.
 */
extern bool plugin_has_no_tuner;
/* ncclCommSplit(), then the parent is destroyed: the child has a tuner of its own and continues
 * with the parent's network context (ncclNetInitFromParent() of src/plugin/net.cc, v2.30.3). */
extern bool plugin_splits;
/* All ranks are on one host and must use the network (NCCL_P2P_DISABLE, NCCL_SHM_DISABLE). */
extern bool plugin_is_on_one_host;

/* Nanoseconds of the monotonic clock. */
uint64_t now_ns(void);

/*
 * Opens PATH as NCCL does and takes the table of VERSION, or the newest (0). Returns NULL, or the
 * reason of a failure. plugin_close drops the library; the struct can then be used again.
 */
const char *plugin_load(struct plugin *p, const char *path, int version);
void plugin_close(struct plugin *p);
/* Whether the library is still loaded. */
bool plugin_stays(const char *path);

/* Each returns an nccl_result. `context` is NULL up to version 10. */
int plugin_init(struct plugin *p, void **context, nccl_logger log, nccl_profiler profiler);
int plugin_finalize(struct plugin *p, void *context);
int plugin_properties(struct plugin *p, int dev, struct nccl_properties_v12 *properties);
int plugin_listen(struct plugin *p, void *context, int dev, void *handle, void **comm);
int plugin_connect(struct plugin *p, void *context, int dev, void *handle, void **comm);
int plugin_accept(struct plugin *p, void *listen_comm, void **comm);
int plugin_reg(struct plugin *p, void *comm, void *data, size_t size, int type, void **mr);
int plugin_isend(struct plugin *p, void *comm, void *data, size_t size, int tag, void *mr,
	void *parent, void **request);
int plugin_irecv(struct plugin *p, void *comm, int n, void **data, size_t *sizes, int *tags,
	void **mrs, void **parents, void **request);
int plugin_flush(
	struct plugin *p, void *comm, int n, void **data, int *sizes, void **mrs, void **request);
int plugin_test(struct plugin *p, void *request, int *done, int *sizes);
/* Reports that the GPU has the data of a completed receive, as NCCL does if the plugin has an
 * entry. */
int plugin_consumed(struct plugin *p, void *comm, int n, void *request);
int plugin_close_send(struct plugin *p, void *comm);
int plugin_close_recv(struct plugin *p, void *comm);
int plugin_close_listen(struct plugin *p, void *comm);
/* Returns NCCL_INVALID_USAGE if the version or the plugin has no such entry. */
int plugin_make_virtual(struct plugin *p, int *dev, const int *devices, int n);
int plugin_set_attributes(struct plugin *p, void *context, struct nccl_net_attributes *attributes);
bool plugin_has_virtual(const struct plugin *p);
bool plugin_has_attributes(const struct plugin *p);

/* Returns the slowest call and its time. */
enum plugin_call plugin_slowest(const struct plugin *p, uint64_t *ret_ns);

#endif
