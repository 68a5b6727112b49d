/* SPDX-License-Identifier: BSD-3-Clause */
/* Versions 9 and 10: fused devices, and the profiler. */
#include "nccl/api/tables.h"

static int isend_v9(void *comm, void *data, size_t size, int tag, void *mhandle, void **request)
{
	return table_isend_v10(comm, data, size, tag, mhandle, NULL, request);
}

static int irecv_v9(
	void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **request)
{
	return table_irecv_v10(comm, n, data, sizes, tags, mhandles, NULL, request);
}

static int init_v10(nccl_log_fn log, nccl_profiler_fn profiler)
{
	return net_init(NULL, log, profiler, NULL);
}

static int connect_v10(
	int dev, struct nccl_config_v10 *config, void *handle, void **send_comm, void **offload)
{
	const struct net_config net = {
		.traffic_class = config ? config->traffic_class : NCCL_TRAFFIC_CLASS_UNDEFINED,
	};

	if (offload)
		*offload = NULL;
	return net_connect(NULL, &net, dev, handle, (struct comm **)send_comm);
}

const struct nccl_net_v9 ncclNetPlugin_v9 = {
	.name = TABLE_NAME,
	.init = table_init_v6,
	.devices = net_devices,
	.get_properties = table_get_properties_v9,
	.listen = table_listen_v6,
	.connect = table_connect_v7,
	.accept = table_accept_v7,
	.reg_mr = table_reg_mr_v8,
	.reg_mr_dmabuf = table_reg_mr_dmabuf,
	.dereg_mr = table_dereg_mr,
	.isend = isend_v9,
	.irecv = irecv_v9,
	.iflush = table_iflush,
	.test = table_test,
	.close_send = table_close,
	.close_recv = table_close,
	.close_listen = table_close_listen,
	.get_device_mr = table_get_device_mr,
	.irecv_consumed = table_irecv_consumed,
	.make_vdevice = table_make_vdevice_v9,
};

const struct nccl_net_v10 ncclNetPlugin_v10 = {
	.name = TABLE_NAME,
	.init = init_v10,
	.devices = net_devices,
	.get_properties = table_get_properties_v9,
	.listen = table_listen_v6,
	.connect = connect_v10,
	.accept = table_accept_v7,
	.reg_mr = table_reg_mr_v8,
	.reg_mr_dmabuf = table_reg_mr_dmabuf,
	.dereg_mr = table_dereg_mr,
	.isend = table_isend_v10,
	.irecv = table_irecv_v10,
	.iflush = table_iflush,
	.test = table_test,
	.close_send = table_close,
	.close_recv = table_close,
	.close_listen = table_close_listen,
	.get_device_mr = table_get_device_mr,
	.irecv_consumed = table_irecv_consumed,
	.make_vdevice = table_make_vdevice_v9,
};
