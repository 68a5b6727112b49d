/* SPDX-License-Identifier: BSD-3-Clause */
/* Versions 6, 7 and 8: message sizes are int. */
#include "nccl/log.h"
#include "nccl/api/tables.h"

static int get_properties_v8(int dev, struct nccl_properties_v8 *properties)
{
	struct nccl_properties_v9 v9;
	int rc = table_get_properties(8, dev, &v9);

	if (rc)
		return rc;
	*properties = (struct nccl_properties_v8){
		.name = v9.name,
		.pci_path = v9.pci_path,
		.guid = v9.guid,
		.ptr_support = v9.ptr_support,
		.reg_is_global = v9.reg_is_global,
		.speed = v9.speed,
		.port = v9.port,
		.latency = v9.latency,
		.max_comms = v9.max_comms,
		.max_recvs = v9.max_recvs,
		.net_device_type = v9.net_device_type,
		.net_device_version = v9.net_device_version,
	};
	return NCCL_SUCCESS;
}

static int get_properties_v7(int dev, struct nccl_properties_v7 *properties)
{
	struct nccl_properties_v9 v9;
	int rc = table_get_properties(7, dev, &v9);

	if (rc)
		return rc;
	*properties = (struct nccl_properties_v7){
		.name = v9.name,
		.pci_path = v9.pci_path,
		.guid = v9.guid,
		.ptr_support = v9.ptr_support,
		.speed = v9.speed,
		.port = v9.port,
		.latency = v9.latency,
		.max_comms = v9.max_comms,
		.max_recvs = v9.max_recvs,
		.net_device_type = v9.net_device_type,
		.net_device_version = v9.net_device_version,
	};
	return NCCL_SUCCESS;
}

/* v6 has no device offload. */
static int get_properties_v6(int dev, struct nccl_properties_v6 *properties)
{
	struct nccl_properties_v9 v9;
	int rc = table_get_properties(6, dev, &v9);

	if (rc)
		return rc;
	*properties = (struct nccl_properties_v6){
		.name = v9.name,
		.pci_path = v9.pci_path,
		.guid = v9.guid,
		.ptr_support = v9.ptr_support,
		.speed = v9.speed,
		.port = v9.port,
		.latency = v9.latency,
		.max_comms = v9.max_comms,
		.max_recvs = v9.max_recvs,
	};
	return NCCL_SUCCESS;
}

static int connect_v6(int dev, void *handle, void **send_comm)
{
	return table_connect_v7(dev, handle, send_comm, NULL);
}

static int accept_v6(void *listen_comm, void **recv_comm)
{
	return table_accept_v7(listen_comm, recv_comm, NULL);
}

static int bad_size(int size)
{
	net_log_warning("%d is not a valid size", size);
	return NCCL_INVALID_ARGUMENT;
}

static int reg_mr_v6(void *comm, void *data, int size, int type, void **mhandle)
{
	return size < 0 ? bad_size(size) : table_reg_mr_v8(comm, data, (size_t)size, type, mhandle);
}

static int isend_v6(void *comm, void *data, int size, int tag, void *mhandle, void **request)
{
	return size < 0 ? bad_size(size)
			: table_isend_v10(comm, data, (size_t)size, tag, mhandle, NULL, request);
}

static int irecv_v6(
	void *comm, int n, void **data, int *sizes, int *tags, void **mhandles, void **request)
{
	size_t long_sizes[NET_MAX_RECEIVES];

	if (n < 1 || n > NET_MAX_RECEIVES)
		return table_bad_count(n);
	for (int i = 0; i < n; i++) {
		if (sizes[i] < 0)
			return bad_size(sizes[i]);
		long_sizes[i] = (size_t)sizes[i];
	}
	/* Before v9, *request carries no hint. */
	*request = NULL;
	return table_irecv_v10(comm, n, data, long_sizes, tags, mhandles, NULL, request);
}

const struct nccl_net_v6 ncclNetPlugin_v6 = {
	.name = TABLE_NAME,
	.init = table_init_v6,
	.devices = net_devices,
	.get_properties = get_properties_v6,
	.listen = table_listen_v6,
	.connect = connect_v6,
	.accept = accept_v6,
	.reg_mr = reg_mr_v6,
	.reg_mr_dmabuf = table_reg_mr_dmabuf,
	.dereg_mr = table_dereg_mr,
	.isend = isend_v6,
	.irecv = irecv_v6,
	.iflush = table_iflush,
	.test = table_test,
	.close_send = table_close,
	.close_recv = table_close,
	.close_listen = table_close_listen,
};

const struct nccl_net_v7 ncclNetPlugin_v7 = {
	.name = TABLE_NAME,
	.init = table_init_v6,
	.devices = net_devices,
	.get_properties = get_properties_v7,
	.listen = table_listen_v6,
	.connect = table_connect_v7,
	.accept = table_accept_v7,
	.reg_mr = reg_mr_v6,
	.reg_mr_dmabuf = table_reg_mr_dmabuf,
	.dereg_mr = table_dereg_mr,
	.isend = isend_v6,
	.irecv = irecv_v6,
	.iflush = table_iflush,
	.test = table_test,
	.close_send = table_close,
	.close_recv = table_close,
	.close_listen = table_close_listen,
	.get_device_mr = table_get_device_mr,
	.irecv_consumed = table_irecv_consumed,
};

const struct nccl_net_v8 ncclNetPlugin_v8 = {
	.name = TABLE_NAME,
	.init = table_init_v6,
	.devices = net_devices,
	.get_properties = get_properties_v8,
	.listen = table_listen_v6,
	.connect = table_connect_v7,
	.accept = table_accept_v7,
	.reg_mr = table_reg_mr_v8,
	.reg_mr_dmabuf = table_reg_mr_dmabuf,
	.dereg_mr = table_dereg_mr,
	.isend = isend_v6,
	.irecv = irecv_v6,
	.iflush = table_iflush,
	.test = table_test,
	.close_send = table_close,
	.close_recv = table_close,
	.close_listen = table_close_listen,
	.get_device_mr = table_get_device_mr,
	.irecv_consumed = table_irecv_consumed,
};
