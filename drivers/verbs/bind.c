/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The functions of libibverbs that Ferrule calls. They open libibverbs.so.1 before the first
 * device is listed, so that machines without RDMA NICs do not need it. Inline functions of
 * <infiniband/verbs.h> call these as well. Tests define the same functions instead. Any thread.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>

#include "drivers/verbs/internal.h"

#undef ibv_query_port
#undef ibv_reg_mr

#define LIBRARY "libibverbs.so.1"

/* clang-format off */
#define FUNCTIONS(ROW) \
	ROW(int, _ibv_query_gid_ex, \
		(struct ibv_context *context, uint32_t port, uint32_t index, \
			struct ibv_gid_entry *entry, uint32_t flags, size_t size), \
		(context, port, index, entry, flags, size)) \
	ROW(ssize_t, _ibv_query_gid_table, \
		(struct ibv_context *context, struct ibv_gid_entry *entries, size_t n, \
			uint32_t flags, size_t size), \
		(context, entries, n, flags, size)) \
	ROW(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context *context), (context)) \
	ROW(int, ibv_attach_mcast, \
		(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid), (qp, gid, lid)) \
	ROW(int, ibv_close_device, (struct ibv_context *context), (context)) \
	ROW(struct ibv_ah *, ibv_create_ah, \
		(struct ibv_pd *pd, struct ibv_ah_attr *attr), (pd, attr)) \
	ROW(struct ibv_comp_channel *, ibv_create_comp_channel, \
		(struct ibv_context *context), (context)) \
	ROW(struct ibv_cq *, ibv_create_cq, \
		(struct ibv_context *context, int cqe, void *cq_context, \
			struct ibv_comp_channel *channel, int comp_vector), \
		(context, cqe, cq_context, channel, comp_vector)) \
	ROW(struct ibv_qp *, ibv_create_qp, \
		(struct ibv_pd *pd, struct ibv_qp_init_attr *attr), (pd, attr)) \
	ROW(struct ibv_srq *, ibv_create_srq, \
		(struct ibv_pd *pd, struct ibv_srq_init_attr *attr), (pd, attr)) \
	ROW(int, ibv_dealloc_pd, (struct ibv_pd *pd), (pd)) \
	ROW(int, ibv_dereg_mr, (struct ibv_mr *mr), (mr)) \
	ROW(int, ibv_destroy_ah, (struct ibv_ah *ah), (ah)) \
	ROW(int, ibv_destroy_comp_channel, (struct ibv_comp_channel *channel), (channel)) \
	ROW(int, ibv_destroy_cq, (struct ibv_cq *cq), (cq)) \
	ROW(int, ibv_destroy_qp, (struct ibv_qp *qp), (qp)) \
	ROW(int, ibv_destroy_srq, (struct ibv_srq *srq), (srq)) \
	ROW(int, ibv_detach_mcast, \
		(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid), (qp, gid, lid)) \
	ROW(int, ibv_fork_init, (void), ()) \
	ROW(int, ibv_get_async_event, \
		(struct ibv_context *context, struct ibv_async_event *event), (context, event)) \
	ROW(int, ibv_get_cq_event, \
		(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context), \
		(channel, cq, cq_context)) \
	ROW(const char *, ibv_get_device_name, (struct ibv_device *device), (device)) \
	ROW(int, ibv_modify_qp, \
		(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask), (qp, attr, mask)) \
	ROW(int, ibv_modify_srq, \
		(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask), (srq, attr, mask)) \
	ROW(struct ibv_context *, ibv_open_device, (struct ibv_device *device), (device)) \
	ROW(struct ibv_qp_ex *, ibv_qp_to_qp_ex, (struct ibv_qp *qp), (qp)) \
	ROW(int, ibv_query_device, \
		(struct ibv_context *context, struct ibv_device_attr *attr), (context, attr)) \
	ROW(int, ibv_query_port, \
		(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr), \
		(context, port, attr)) \
	ROW(int, ibv_query_qp, \
		(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, \
			struct ibv_qp_init_attr *init), \
		(qp, attr, mask, init)) \
	ROW(int, ibv_query_srq, (struct ibv_srq *srq, struct ibv_srq_attr *attr), (srq, attr)) \
	ROW(struct ibv_mr *, ibv_reg_dmabuf_mr, \
		(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova, int fd, \
			int access), \
		(pd, offset, len, iova, fd, access)) \
	ROW(struct ibv_mr *, ibv_reg_mr, \
		(struct ibv_pd *pd, void *addr, size_t len, int access), (pd, addr, len, access)) \
	ROW(struct ibv_mr *, ibv_reg_mr_iova2, \
		(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, unsigned int access), \
		(pd, addr, len, iova, access)) \
	ROW(int, ibv_rereg_mr, \
		(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t len, \
			int access), \
		(mr, flags, pd, addr, len, access)) \
	ROW(int, ibv_resize_cq, (struct ibv_cq *cq, int cqe), (cq, cqe)) \
	ROW(const char *, ibv_wc_status_str, (enum ibv_wc_status status), (status))
/* clang-format on */

#define MEMBER(result, name, parameters, arguments) __typeof__(name) *name;

/* Written once, before the first device is listed. */
static struct {
	int err; /* errno; 0: all functions below are set */
	FUNCTIONS(MEMBER)
	__typeof__(ibv_ack_async_event) *ack_async_event;
	__typeof__(ibv_ack_cq_events) *ack_cq_events;
	__typeof__(ibv_free_device_list) *free_device_list;
	__typeof__(ibv_get_device_list) *get_device_list;
	__typeof__(ibv_is_fork_initialized) *is_fork_initialized;
} real;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool find(void *library, const char *name, void *ret_function, size_t size)
{
	void *function = dlsym(library, name);

	if (!function)
		snprintf(verbs_load_reason, sizeof(verbs_load_reason), "it has no %s()", name);
	memcpy(ret_function, &function, size);
	return function;
}

#define FIND(function, name) find(library, name, &real.function, sizeof(real.function))

#define AND_FIND(result, name, parameters, arguments) &&FIND(name, #name)

static void load(void)
{
	/* It is never closed: its providers have state. */
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		snprintf(verbs_load_reason, sizeof(verbs_load_reason), "%s", dlerror());
		real.err = ELIBACC;
	} else if (!(FIND(ack_async_event, "ibv_ack_async_event") &&
			   FIND(ack_cq_events, "ibv_ack_cq_events") &&
			   FIND(free_device_list, "ibv_free_device_list") &&
			   FIND(get_device_list, "ibv_get_device_list") &&
			   FIND(is_fork_initialized, "ibv_is_fork_initialized")
				   FUNCTIONS(AND_FIND))) {
		real.err = ELIBBAD;
	}
}

/* errno ELIBACC: there is no libibverbs. ELIBBAD: it is too old. */
struct ibv_device **ibv_get_device_list(int *num_devices)
{
	pthread_once(&once, load);
	if (!real.err)
		return real.get_device_list(num_devices);
	errno = real.err;
	return NULL;
}

/* Without libibverbs, no memory is registered. */
enum ibv_fork_status ibv_is_fork_initialized(void)
{
	pthread_once(&once, load);
	return real.err ? IBV_FORK_UNNEEDED : real.is_fork_initialized();
}

/* All others need a device of the list, or fork protection that is not initialized. */
#define FORWARD(result, name, parameters, arguments) \
	result name parameters                       \
	{                                            \
		return real.name arguments;          \
	}

FUNCTIONS(FORWARD)

void ibv_free_device_list(struct ibv_device **list)
{
	real.free_device_list(list);
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	real.ack_async_event(event);
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	real.ack_cq_events(cq, n);
}
