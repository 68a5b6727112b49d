/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens, describes and closes a hardware device. */
#include "drivers/verbs/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/net/ip.h"

enum { ACK_TIMEOUT = 18 }; /* 1.07 s */

/* Frees everything except the context. */
static void free_device(struct verbs_device *device)
{
	free(device->slots);
	device_fini(&device->base);
	free(device);
}

static void close_device(struct frl_device *base)
{
	struct verbs_device *device = verbs_device(base);
	int rc;

	verbs_stop_events(device);
	rc = ibv_close_device(device->context);
	if (rc)
		verbs_warn(verbs_errno(rc), "cannot close an RDMA device");
	free_device(device);
}

static void query(struct frl_device *device, struct frl_device_attr *attr)
{
	attr->port_state = verbs_device(device)->port_state;
}

static const struct device_ops verbs_ops = {
	.kind = "verbs",
	.is_hardware = true,
	.pd_size = sizeof(struct verbs_pd),
	.mr_size = sizeof(struct verbs_mr),
	.mw_size = sizeof(struct verbs_mw),
	.ah_size = sizeof(struct verbs_ah),
	.channel_size = sizeof(struct verbs_channel),
	.cq_size = sizeof(struct verbs_cq),
	.srq_size = sizeof(struct verbs_srq),
	.qp_size = sizeof(struct verbs_qp),

	.close = close_device,
	.query = query,
	.stats = verbs_stats,
	.find_qp = verbs_find_qp,
	.describe_qps = verbs_describe_qps,

	.pd_create = verbs_pd_create,
	.pd_destroy = verbs_pd_destroy,
	.mr_reg = verbs_mr_reg,
	.mr_reg_dmabuf = verbs_mr_reg_dmabuf,
	.mr_rereg = verbs_mr_rereg,
	.mr_dereg = verbs_mr_dereg,
	.mw_alloc = verbs_mw_alloc,
	.mw_dealloc = verbs_mw_dealloc,
	.mw_rkey = verbs_mw_rkey,
	.ah_create = verbs_ah_create,
	.ah_destroy = verbs_ah_destroy,

	.channel_create = verbs_channel_create,
	.channel_destroy = verbs_channel_destroy,
	.channel_take = verbs_channel_take,
	.cq_create = verbs_cq_create,
	.cq_destroy = verbs_cq_destroy,
	.cq_resize = verbs_cq_resize,
	.req_notify = verbs_req_notify,
	.poll_cq = verbs_poll_cq,

	.srq_create = verbs_srq_create,
	.srq_destroy = verbs_srq_destroy,
	.srq_set_limit = verbs_srq_set_limit,
	.srq_limit = verbs_srq_limit,
	.srq_post = verbs_srq_post,

	.qp_create = verbs_qp_create,
	.qp_destroy = verbs_qp_destroy,
	.qp_modify = verbs_qp_modify,
	.qp_unanswered = verbs_qp_unanswered,
	.qp_state = verbs_qp_state,
	.qp_query = verbs_qp_query,
	.qp_fail = verbs_qp_fail,
	.qp_describe_error = verbs_qp_describe_error,
	.attach_mcast = verbs_attach_mcast,
	.detach_mcast = verbs_detach_mcast,
	.post_send = verbs_post_send,
	.post_send_all = verbs_post_send_all,
	.post_recv = verbs_post_recv,
};

/* Returns the device's limit, which may exceed INT_MAX, capped at Ferrule's own. */
static uint32_t limit(int device, uint32_t most)
{
	if (device < 0)
		return 0;
	return (uint32_t)device < most ? (uint32_t)device : most;
}

static void describe_limits(struct verbs_device *device, const struct verbs_port *port)
{
	const struct ibv_device_attr *own = &port->attr;
	struct frl_device_attr *attr = &device->base.attr;
	uint32_t max_msg = port->port.max_msg_sz;

	attr->max_qp = limit(own->max_qp, UINT32_MAX);
	attr->max_qp_wr = limit(own->max_qp_wr, MOST_WR);
	attr->max_sge = limit(own->max_sge, FRL_MAX_SGE);
	/* The device reports its limit only at the creation of a queue pair, which may then
	 * fail. */
	attr->max_inline = FRL_MAX_INLINE;
	attr->max_cqe = limit(own->max_cqe, MOST_CQE);
	attr->max_mr = limit(own->max_mr, UINT32_MAX);
	attr->max_mw = limit(own->max_mw, UINT32_MAX);
	attr->max_mr_size = own->max_mr_size;
	attr->max_msg_size = max_msg && max_msg < 0x80000000u ? max_msg : 0x80000000u;
	attr->max_srq_wr = limit(own->max_srq_wr, MOST_WR);
	attr->max_srq_sge = limit(own->max_srq_sge, FRL_MAX_SGE);
	device->max_rd_atomic = limit(own->max_qp_init_rd_atom, FRL_MAX_RD_ATOMIC);
	device->max_dest_rd_atomic = limit(own->max_qp_rd_atom, FRL_MAX_RD_ATOMIC);
	attr->max_rd_atomic = device->max_rd_atomic < device->max_dest_rd_atomic
		? device->max_rd_atomic
		: device->max_dest_rd_atomic;
	attr->max_mcast_groups = limit(own->max_mcast_grp, UINT32_MAX);
	attr->max_mcast_attach = limit(own->max_total_mcast_qp_attach, UINT32_MAX);
	attr->has_atomics = own->atomic_cap != IBV_ATOMIC_NONE;
	attr->pins_memory = true;
	attr->n_gids = device->base.gids.n;
	/* A RoCE port has one P_Key, 0xffff, at index 0. */
	attr->n_pkeys = 1;
}

static void describe(struct verbs_device *device, const struct verbs_port *port, uint32_t path_mtu)
{
	struct frl_device_attr *attr = &device->base.attr;

	attr->ip = port->gids[port->main].gid.ip;
	attr->speed_mbps = port->info.speed_mbps;
	attr->path_mtu = path_mtu ? path_mtu : device->active_mtu;
	snprintf(attr->port, sizeof(attr->port), "%s", port->info.name);
	attr->progresses = true;
	attr->takes_dmabuf = port->info.takes_dmabuf;
	describe_limits(device, port);
}

/* Registered memory must keep its pages when a process forks. Kernels from 5.12 on guarantee that.
 * For older ones libibverbs does, if requested before the first registration. */
void verbs_protect_from_fork(void)
{
	int rc;

	if (ibv_is_fork_initialized() != IBV_FORK_DISABLED)
		return;
	rc = ibv_fork_init();
	if (rc)
		verbs_warn(verbs_errno(rc),
			"registered memory is not safe in processes that fork on this kernel: use "
			"Linux 5.12 or later");
}

static int check_mtu(const struct verbs_port *port, uint32_t path_mtu)
{
	if (path_mtu <= port->info.path_mtu)
		return 0;
	return frl_fail(-EMSGSIZE,
		"%s supports a path MTU of %u, not %u: raise its MTU to %u (ip link set %s mtu "
		"%u), or use a smaller one",
		port->info.name, port->info.path_mtu, path_mtu, path_mtu + 100,
		*port->info.interface ? port->info.interface : "INTERFACE", path_mtu + 100);
}

/* Identified by its vendor ID, which belongs to no vendor, or by the file that names its network
 * interface. */
static bool looks_like_rxe(const struct verbs_port *port)
{
	char file[IBV_SYSFS_PATH_MAX + 16];

	snprintf(file, sizeof(file), "%s/parent", port->path);
	return port->attr.vendor_id == 0xffffff || (*port->path && access(file, F_OK) == 0);
}

/* Identified by the vendor's number, since names can be changed: mlx5 and hns. Other providers also
 * have these calls, but some are defective. In rdma-core 56, bnxt_re writes only the header of the
 * last request of a batch, and rejects all requests after one that did not fit. */
static bool has_good_wr(const struct verbs_port *port)
{
	enum { MELLANOX = 0x02c9, HUAWEI = 0x19e5 };

	return port->attr.vendor_id == MELLANOX || port->attr.vendor_id == HUAWEI;
}

/* Moves the port's context to the device. */
static struct verbs_device *make_device(const struct verbs_port *port, uint32_t path_mtu)
{
	struct verbs_device *device = calloc(1, sizeof(*device));

	if (!device)
		return NULL;
	list_init(&device->events);
	list_init(&device->cqs);
	for (unsigned i = 0; i < QP_BUCKETS; i++)
		list_init(&device->qps[i]);
	device_init(&device->base, &verbs_ops, &device->events);
	event_source_init(&device->source, EVENT_OF_PORT, device);
	device->stop_fd = -1;
	device->context = port->context;
	device->port = port->num;
	device->is_rxe = looks_like_rxe(port);
	device->has_good_wr = !device->is_rxe && has_good_wr(port);
	/* The network of a NIC loses few packets, but its link may take seconds to recover. */
	if (!device->is_rxe)
		device->base.ack_timeout = ACK_TIMEOUT;
	device->active_mtu = port->info.path_mtu;
	device->n_ports = port->n_ports;
	device->port_state = port->info.port_state;
	snprintf(device->name, sizeof(device->name), "%s", port->info.name);
	snprintf(device->path, sizeof(device->path), "%s", port->path);
	verbs_take_gids(device, port);
	describe(device, port, path_mtu);
	return device;
}

int verbs_device_open(const struct verbs_open *wanted, struct frl_device **ret_device)
{
	struct verbs_device *device = NULL;
	struct verbs_port port;
	char interface[16];
	int rc;

	verbs_protect_from_fork();
	rc = verbs_port_find(wanted, &port);
	if (rc)
		return rc;
	rc = check_mtu(&port, wanted->path_mtu);
	if (!rc) {
		device = make_device(&port, wanted->path_mtu);
		rc = device ? verbs_start_events(device)
			    : frl_fail(-ENOMEM, "no memory for a device");
	}
	if (rc) {
		if (device)
			free_device(device);
		verbs_port_close(&port);
		return rc;
	}
	verbs_read_stats(device, &device->first);
	netif_name(port.gids[port.main].ifindex, interface);
	frl_log(FRL_LOG_INFO, "%s: main address %s (GID %u, interface %s): %s", device->name,
		format_ip(&device->base.attr.ip), port.gids[port.main].index,
		*interface ? interface : "unknown", port.why);
	port.context = NULL; /* it is the device's now */
	verbs_port_close(&port);
	*ret_device = &device->base;
	return 0;
}
