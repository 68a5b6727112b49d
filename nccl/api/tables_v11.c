/* SPDX-License-Identifier: BSD-3-Clause */
/* Versions 11 and 12: one context for each communicator. */
#include "nccl/api/tables.h"

static int init_v11(void **ctx, uint64_t comm_id, struct nccl_config_v10 *config, nccl_log_fn log,
	nccl_profiler_fn profiler)
{
	const struct net_config net = {
		.traffic_class = config ? config->traffic_class : NCCL_TRAFFIC_CLASS_UNDEFINED,
		.comm_id = comm_id,
	};

	return net_init(&net, log, profiler, (struct net_context **)ctx);
}

static int get_properties_v12(int dev, struct nccl_properties_v12 *properties)
{
	struct net_properties net;
	struct nccl_properties_v9 v9;
	int rc = net_properties(dev, &net);

	if (!rc)
		rc = table_get_properties_v9(dev, &v9);
	if (rc)
		return rc;
	*properties = (struct nccl_properties_v12){
		.name = v9.name,
		.pci_path = v9.pci_path,
		.guid = v9.guid,
		.ptr_support = v9.ptr_support,
		.reg_is_global = v9.reg_is_global,
		.force_flush = v9.force_flush,
		.speed = v9.speed,
		.port = v9.port,
		.latency = v9.latency,
		.max_comms = v9.max_comms,
		.max_recvs = v9.max_recvs,
		.net_device_type = v9.net_device_type,
		.net_device_version = v9.net_device_version,
		.vdevice = { .n = net.n_rails },
		.max_p2p_bytes = v9.max_p2p_bytes,
		.max_coll_bytes = v9.max_coll_bytes,
		.max_multi_request = TABLE_MAX_REQUEST,
		/* 0 would be the first rail. */
		.rail_id = NCCL_ID_UNDEFINED,
		.plane_id = NCCL_ID_UNDEFINED,
	};
	for (int i = 0; i < net.n_rails; i++)
		properties->vdevice.devices[i] = net.rails[i];
	return NCCL_SUCCESS;
}

static int get_properties_v11(int dev, struct nccl_properties_v11 *properties)
{
	struct nccl_properties_v9 v9;
	int rc = table_get_properties_v9(dev, &v9);

	if (rc)
		return rc;
	*properties = (struct nccl_properties_v11){
		.name = v9.name,
		.pci_path = v9.pci_path,
		.guid = v9.guid,
		.ptr_support = v9.ptr_support,
		.reg_is_global = v9.reg_is_global,
		.force_flush = v9.force_flush,
		.speed = v9.speed,
		.port = v9.port,
		.latency = v9.latency,
		.max_comms = v9.max_comms,
		.max_recvs = v9.max_recvs,
		.net_device_type = v9.net_device_type,
		.net_device_version = v9.net_device_version,
		.vdevice = v9.vdevice,
		.max_p2p_bytes = v9.max_p2p_bytes,
		.max_coll_bytes = v9.max_coll_bytes,
		.max_multi_request = TABLE_MAX_REQUEST,
	};
	return NCCL_SUCCESS;
}

static int listen_v11(void *ctx, int dev, void *handle, void **listen_comm)
{
	return net_listen(ctx, dev, handle, (struct listener **)listen_comm);
}

static int connect_v11(void *ctx, int dev, void *handle, void **send_comm, void **offload)
{
	if (offload)
		*offload = NULL;
	return net_connect(ctx, NULL, dev, handle, (struct comm **)send_comm);
}

static int make_vdevice_v12(int *dev, struct nccl_vdevice_v12 *vdevice)
{
	return net_make_vdevice(dev, vdevice->devices, vdevice->n);
}

static int finalize(void *ctx)
{
	return net_finalize(ctx);
}

/* For 2.28 and 2.29. */
static int finalize_v11(void *ctx)
{
	int rc = net_finalize(ctx);

	net_warn_of_name(&ncclNetPlugin_v11);
	return rc;
}

/* NCCL's hints about the network's use are ignored. */
static int set_net_attr(void *ctx, struct nccl_attr_v11 *attr)
{
	return NCCL_SUCCESS;
}

const struct nccl_net_v11 ncclNetPlugin_v11 = {
	.name = TABLE_NAME,
	.init = init_v11,
	.devices = net_devices,
	.get_properties = get_properties_v11,
	.listen = listen_v11,
	.connect = connect_v11,
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
	.finalize = finalize_v11,
	.set_net_attr = set_net_attr,
};

const struct nccl_net_v12 ncclNetPlugin_v12 = {
	.name = TABLE_NAME,
	.init = init_v11,
	.devices = net_devices,
	.get_properties = get_properties_v12,
	.listen = listen_v11,
	.connect = connect_v11,
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
	.make_vdevice = make_vdevice_v12,
	.finalize = finalize,
	.set_net_attr = set_net_attr,
};
