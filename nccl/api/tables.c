/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions that several versions of the tables share. */
#include "nccl/api/tables.h"

#include <stdatomic.h>

#include "nccl/gpu_resources.h"
#include "nccl/log.h"
#include "nccl/settings.h"

int table_init_v6(nccl_log_fn log)
{
	return net_init(NULL, log, NULL, NULL);
}

int table_listen_v6(int dev, void *handle, void **listen_comm)
{
	return net_listen(NULL, dev, handle, (struct listener **)listen_comm);
}

int table_connect_v7(int dev, void *handle, void **send_comm, void **offload)
{
	if (offload)
		*offload = NULL;
	return net_connect(NULL, NULL, dev, handle, (struct comm **)send_comm);
}

/* Keep NCCL's offer until the connection is accepted: NCCL would otherwise create a new one at each
 * call. */
int table_accept_v7(void *listen_comm, void **recv_comm, struct nccl_device_handle_v7 **offload)
{
	struct comm *comm = NULL;
	int rc = net_accept(listen_comm, &comm);

	*recv_comm = comm;
	if (comm && offload && *offload)
		*offload = net_unpack_offer(comm);
	return rc;
}

int table_reg_mr_v8(void *comm, void *data, size_t size, int type, void **mhandle)
{
	return net_register(comm, data, size, type, (struct registration **)mhandle);
}

/*
 * The descriptor refers to the memory at `data`. The library exports its own descriptor, so that it
 * knows the GPU (for flushes) and can cache the registration.
 */
int table_reg_mr_dmabuf(
	void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle)
{
	return net_register(comm, data, size, NCCL_PTR_DMABUF, (struct registration **)mhandle);
}

int table_dereg_mr(void *comm, void *mhandle)
{
	return net_deregister(mhandle);
}

int table_isend_v10(
	void *comm, void *data, size_t size, int tag, void *mhandle, void *parent, void **request)
{
	const struct net_buffer buffer = {
		.data = data,
		.size = size,
		.tag = tag,
		.registration = mhandle,
		.parent = parent,
	};

	return net_send(comm, &buffer, (struct request **)request);
}

int table_bad_count(int n)
{
	net_log_warning("a receive of %d messages: 1 to %d are supported", n, NET_MAX_RECEIVES);
	return NCCL_INVALID_ARGUMENT;
}

int table_irecv_v10(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
	void **parents, void **request)
{
	struct net_buffer buffers[NET_MAX_RECEIVES];

	if (n < 1 || n > NET_MAX_RECEIVES)
		return table_bad_count(n);
	for (int i = 0; i < n; i++)
		buffers[i] = (struct net_buffer){
			.data = data[i],
			.size = sizes[i],
			.tag = tags[i],
			.registration = mhandles ? mhandles[i] : NULL,
			.parent = parents ? parents[i] : NULL,
			.is_optional = *request == NCCL_OPTIONAL_END,
		};
	/* Complete the receive when its data has arrived, even if NCCL needs no completion. */
	return net_receive(comm, n, buffers, (struct request **)request);
}

/* Received data in host memory is visible at completion. So is data in GPU memory if the GPU orders
 * writes, or if kernels moved the data. The flush itself is synchronous, so there is no request to
 * test. */
int table_iflush(void *comm, int n, void **data, int *sizes, void **mhandles, void **request)
{
	*request = NULL;
	for (int i = 0; i < n; i++) {
		int rc = sizes[i] && mhandles ? net_flush(mhandles[i]) : NCCL_SUCCESS;

		if (rc)
			return rc;
	}
	return NCCL_SUCCESS;
}

int table_test(void *request, int *done, int *sizes)
{
	return net_test(request, done, sizes);
}

/* NCCL's unpacking kernels do not use the registration. */
int table_get_device_mr(void *comm, void *mhandle, void **device_mhandle)
{
	*device_mhandle = NULL;
	return NCCL_SUCCESS;
}

int table_irecv_consumed(void *comm, int n, void *request)
{
	return net_consumed(comm, request);
}

int table_close(void *comm)
{
	return comm ? net_close(comm) : NCCL_SUCCESS;
}

int table_close_listen(void *listen_comm)
{
	return listen_comm ? net_close_listen(listen_comm) : NCCL_SUCCESS;
}

static void warn_of_unpack(const char *version)
{
	static atomic_flag has_warned = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&has_warned))
		net_log_warning(
			"UNPACK is off, though FERRULE_UNPACK=1: this NCCL uses %s", version);
}

/* Since v9 a receive states whether its protocol is LL or LL128. This is needed if only a tuner
 * excludes these protocols. */
static bool can_unpack(const struct net_properties *net, int version)
{
	bool needs_tuner = net_settings()->unpack_rule == NET_UNPACK_WITH_TUNER;

	if (!net->unpacks || (version >= 7 && !needs_tuner) || version >= 9)
		return net->unpacks;
	warn_of_unpack(version < 7 ? "table v6; NCCL 2.19 is the first that unpacks"
				   : "table v7 or v8, which unpacks only without a tuner: set "
				     "NCCL_PROTO=Simple");
	return false;
}

int table_get_properties(int version, int dev, struct nccl_properties_v9 *properties)
{
	struct net_properties net;
	int rc = net_properties(dev, &net);

	if (rc)
		return rc;
	net.unpacks = can_unpack(&net, version);
	/* Before v11 NCCL calls init once in a process. Each communicator reads properties while
	 * its GPU is current (ncclTopoPopulateNics() in topo.cc, NCCL 2.13 to 2.27). */
	net_gpu_resources_add_current(false);
	*properties = (struct nccl_properties_v9){
		.name = net.name,
		.pci_path = net.pci_path,
		.guid = net.guid,
		.ptr_support = net.unpacks ? NCCL_PTR_HOST | NCCL_PTR_CUDA : net.pointers,
		/* A registration for unpacked receives belongs to one connection. */
		.reg_is_global = !net.unpacks,
		.force_flush = net.needs_flush,
		.speed = net.speed_mbps,
		.port = net.port,
		/* Not set: NCCL adds this value to its own constants (before 2.18 it replaces
		 * them). The tuner adds any extra latency. */
		.latency = 0,
		.max_comms = net.max_comms,
		.max_recvs = net.unpacks ? 1 : NET_MAX_RECEIVES,
		.net_device_type = net.unpacks ? NCCL_DEVICE_UNPACK : NCCL_DEVICE_HOST,
		.net_device_version = net.unpacks ? NCCL_DEVICE_UNPACK_VERSION
						  : NCCL_DEVICE_INVALID_VERSION,
		.vdevice = { .n = net.n_rails < NCCL_V9_DEVICES ? net.n_rails : NCCL_V9_DEVICES },
		.max_p2p_bytes = TABLE_MAX_BYTES,
		.max_coll_bytes = TABLE_MAX_BYTES,
	};
	for (int i = 0; i < properties->vdevice.n; i++)
		properties->vdevice.devices[i] = net.rails[i];
	return NCCL_SUCCESS;
}

int table_get_properties_v9(int dev, struct nccl_properties_v9 *properties)
{
	return table_get_properties(9, dev, properties);
}

int table_make_vdevice_v9(int *dev, struct nccl_vdevice_v9 *vdevice)
{
	if (vdevice->n > NCCL_V9_DEVICES) {
		net_log_warning("cannot fuse %d devices: the most is %d before table v12",
			vdevice->n, NCCL_V9_DEVICES);
		return NCCL_INVALID_USAGE;
	}
	return net_make_vdevice(dev, vdevice->devices, vdevice->n);
}
