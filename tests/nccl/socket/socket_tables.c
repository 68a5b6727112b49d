/* SPDX-License-Identifier: BSD-3-Clause */
/* The socket plugin's tables, versions 6 to 12; only these names are exported. See socket_net.h. */
#include <string.h>

#include "tests/nccl/socket/socket_defects.h"
#include "tests/nccl/socket/socket_net.h"

#define EXPORTED __attribute__((visibility("default")))
#define NAME     "TestSocket"

static int init_v6(nccl_logger log)
{
	return socket_init(log, NULL);
}

static int init_v11(void **context, uint64_t comm_id, struct nccl_comm_config *config,
	nccl_logger log, nccl_profiler profiler)
{
	*context = NULL;
	return socket_init(log, profiler);
}

static int finalize(void *context)
{
	return NCCL_SUCCESS;
}

static int set_attributes(void *context, struct nccl_net_attributes *attributes)
{
	return NCCL_SUCCESS;
}

#define COPY(to, from)                                \
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

static int properties_v6(int dev, struct nccl_properties_v6 *to)
{
	struct nccl_properties_v12 from;
	int result = socket_properties(dev, &from);

	memset(to, 0, sizeof(*to));
	COPY(to, from);
	return result;
}

static int properties_v7(int dev, struct nccl_properties_v7 *to)
{
	struct nccl_properties_v12 from;
	int result = socket_properties(dev, &from);

	memset(to, 0, sizeof(*to));
	COPY(to, from);
	return result;
}

static int properties_v8(int dev, struct nccl_properties_v8 *to)
{
	struct nccl_properties_v12 from;
	int result = socket_properties(dev, &from);

	memset(to, 0, sizeof(*to));
	COPY(to, from);
	to->registration_is_global = from.registration_is_global;
	if (has_defect(DEFECT_SWAPPED)) {
		to->speed_mbps = from.port;
		to->port = from.speed_mbps;
	}
	return result;
}

static int properties_v9(int dev, struct nccl_properties_v9 *to)
{
	struct nccl_properties_v12 from;
	int result = socket_properties(dev, &from);

	memset(to, 0, sizeof(*to));
	COPY(to, from);
	to->registration_is_global = from.registration_is_global;
	to->virtual_device.n_devices = from.virtual_device.n_devices;
	to->virtual_device.devices[0] = from.virtual_device.devices[0];
	to->max_p2p_bytes = from.max_p2p_bytes;
	to->max_coll_bytes = from.max_coll_bytes;
	return result;
}

static int properties_v11(int dev, struct nccl_properties_v11 *to)
{
	struct nccl_properties_v9 from;
	int result = properties_v9(dev, &from);

	memset(to, 0, sizeof(*to));
	memcpy(to, &from, sizeof(from));
	to->max_multi_request_size = 1;
	return result;
}

static int connect_v6(int dev, void *handle, void **comm)
{
	return socket_connect(dev, handle, comm, NULL);
}

static int connect_v10(int dev, struct nccl_comm_config *config, void *handle, void **comm,
	struct nccl_device_handle **device)
{
	return socket_connect(dev, handle, comm, device);
}

static int accept_v6(void *listen_comm, void **comm)
{
	return socket_accept(listen_comm, comm, NULL);
}

static int listen_v11(void *context, int dev, void *handle, void **comm)
{
	return socket_listen(dev, handle, comm);
}

static int connect_v11(
	void *context, int dev, void *handle, void **comm, struct nccl_device_handle **device)
{
	return socket_connect(dev, handle, comm, device);
}

static int reg_v6(void *comm, void *data, int size, int type, void **mr)
{
	return socket_reg(comm, data, (size_t)size, type, mr);
}

static int isend_v6(void *comm, void *data, int size, int tag, void *mr, void **request)
{
	if (has_defect(DEFECT_CUT_SIZE))
		size &= (1 << 30) - 1;
	return socket_isend(comm, data, (size_t)size, tag, mr, NULL, request);
}

static int isend_v9(void *comm, void *data, size_t size, int tag, void *mr, void **request)
{
	return socket_isend(comm, data, size, tag, mr, NULL, request);
}

static int irecv_v6(
	void *comm, int n, void **data, int *sizes, int *tags, void **mrs, void **request)
{
	size_t wide[NCCL_MAX_RECVS];

	if (n < 1 || n > NCCL_MAX_RECVS)
		return NCCL_INVALID_ARGUMENT;
	for (int i = 0; i < n; i++) {
		wide[i] = (size_t)sizes[i];
		if (has_defect(DEFECT_FIRST_TAG))
			tags[i] = tags[0];
	}
	return socket_irecv(comm, n, data, wide, tags, mrs, NULL, request);
}

static int irecv_v9(
	void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs, void **request)
{
	return socket_irecv(comm, n, data, sizes, tags, mrs, NULL, request);
}

/* The same in all versions. */
#define COMMON                                                                       \
	.name = NAME, .devices = socket_devices, .reg_mr_dmabuf = socket_reg_dmabuf, \
	.dereg_mr = socket_dereg, .iflush = socket_iflush, .test = socket_test,      \
	.close_send = socket_close, .close_recv = socket_close, .close_listen = socket_close

extern const struct nccl_net_v6 ncclNetPlugin_v6;
extern const struct nccl_net_v7 ncclNetPlugin_v7;
extern const struct nccl_net_v8 ncclNetPlugin_v8;
extern const struct nccl_net_v9 ncclNetPlugin_v9;
extern const struct nccl_net_v10 ncclNetPlugin_v10;
extern const struct nccl_net_v11 ncclNetPlugin_v11;
extern const struct nccl_net_v12 ncclNetPlugin_v12;

EXPORTED const struct nccl_net_v6 ncclNetPlugin_v6 = {
	COMMON,
	.init = init_v6,
	.get_properties = properties_v6,
	.listen = socket_listen,
	.connect = connect_v6,
	.accept = accept_v6,
	.reg_mr = reg_v6,
	.isend = isend_v6,
	.irecv = irecv_v6,
};

EXPORTED const struct nccl_net_v7 ncclNetPlugin_v7 = {
	COMMON,
	.init = init_v6,
	.get_properties = properties_v7,
	.listen = socket_listen,
	.connect = socket_connect,
	.accept = socket_accept,
	.reg_mr = reg_v6,
	.isend = isend_v6,
	.irecv = irecv_v6,
};

EXPORTED const struct nccl_net_v8 ncclNetPlugin_v8 = {
	COMMON,
	.init = init_v6,
	.get_properties = properties_v8,
	.listen = socket_listen,
	.connect = socket_connect,
	.accept = socket_accept,
	.reg_mr = socket_reg,
	.isend = isend_v6,
	.irecv = irecv_v6,
};

EXPORTED const struct nccl_net_v9 ncclNetPlugin_v9 = {
	COMMON,
	.init = init_v6,
	.get_properties = properties_v9,
	.listen = socket_listen,
	.connect = socket_connect,
	.accept = socket_accept,
	.reg_mr = socket_reg,
	.isend = isend_v9,
	.irecv = irecv_v9,
};

EXPORTED const struct nccl_net_v10 ncclNetPlugin_v10 = {
	COMMON,
	.init = socket_init,
	.get_properties = properties_v9,
	.listen = socket_listen,
	.connect = connect_v10,
	.accept = socket_accept,
	.reg_mr = socket_reg,
	.isend = socket_isend,
	.irecv = socket_irecv,
};

EXPORTED const struct nccl_net_v11 ncclNetPlugin_v11 = {
	COMMON,
	.init = init_v11,
	.get_properties = properties_v11,
	.listen = listen_v11,
	.connect = connect_v11,
	.accept = socket_accept,
	.reg_mr = socket_reg,
	.isend = socket_isend,
	.irecv = socket_irecv,
	.finalize = finalize,
	.set_attributes = set_attributes,
};

EXPORTED const struct nccl_net_v12 ncclNetPlugin_v12 = {
	COMMON,
	.init = init_v11,
	.get_properties = socket_properties,
	.listen = listen_v11,
	.connect = connect_v11,
	.accept = socket_accept,
	.reg_mr = socket_reg,
	.isend = socket_isend,
	.irecv = socket_irecv,
	.finalize = finalize,
	.set_attributes = set_attributes,
};
