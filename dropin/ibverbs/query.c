/* SPDX-License-Identifier: BSD-3-Clause */
/* Attributes of devices and ports, GIDs and P_Keys. Only what works is advertised. */
#include <errno.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "dropin/ibverbs/dropin.h"
#include "dropin/ibverbs/newer.h"
#include "lib/base/settings.h"

enum {
	VENDOR_ID = 0x02f1e1, /* locally administered: of no vendor */
	PHYS_LINK_UP = 5,
	SPEED_EDR = 32, /* 25 Gb/s a lane */
	WIDTH_4X = 2,
	LOCAL_MBPS = 100000, /* what programs are told of links in memory */
	PKEY = 0xffff,
};

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* ---- devices */

static void fill_limits(const struct frl_device_attr *from, struct ibv_device_attr *attr)
{
	attr->max_qp = (int)from->max_qp;
	attr->max_qp_wr = (int)from->max_qp_wr;
	attr->max_sge = (int)from->max_sge;
	attr->max_sge_rd = (int)from->max_sge;
	attr->max_cq = 65536;
	attr->max_cqe = (int)from->max_cqe;
	attr->max_mr = (int)from->max_mr;
	attr->max_pd = 65536;
	attr->max_mw = (int)from->max_mw;
	attr->max_ah = INT_MAX;
	attr->max_srq = 65536;
	attr->max_srq_wr = (int)from->max_srq_wr;
	attr->max_srq_sge = (int)from->max_srq_sge;
	attr->max_qp_rd_atom = (int)from->max_rd_atomic;
	attr->max_qp_init_rd_atom = (int)from->max_rd_atomic;
	attr->max_res_rd_atom = (int)least((size_t)from->max_rd_atomic * from->max_qp, INT_MAX);
	attr->max_mcast_grp = (int)from->max_mcast_groups;
	attr->max_mcast_qp_attach = (int)from->max_mcast_attach;
	attr->max_total_mcast_qp_attach = (int)from->max_mcast_attach;
}

int query_device(struct ibv_context *ibv, struct ibv_device_attr *attr)
{
	const struct dropin_device *device = dropin_context(ibv)->device;

	*attr = (struct ibv_device_attr){
		.node_guid = htobe64(device->guid),
		.sys_image_guid = htobe64(device->guid),
		.max_mr_size = device->attr.max_mr_size,
		.page_size_cap = ~UINT64_C(0xfff),
		.vendor_id = VENDOR_ID,
		/* Some programs choose their defaults by the part. */
		.vendor_part_id = (uint32_t)settings_get()->verbs_part_id,
		.hw_ver = 1,
		.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
			IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_N_NOTIFY_CQ |
			IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS,
		/* They are atomic for processors, too (GLOB), but UCX knows only what NICs have. */
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_pkeys = (uint16_t)device->attr.n_pkeys,
		.phys_port_cnt = 1,
	};
	snprintf(attr->fw_ver, sizeof(attr->fw_ver), "%s", FERRULE_VERSION);
	fill_limits(&device->attr, attr);
	return 0;
}

int ibv_query_device(struct ibv_context *ibv, struct ibv_device_attr *attr)
{
	return query_device(ibv, attr);
}

int query_device_ex(struct ibv_context *ibv, const struct ibv_query_device_ex_input *input,
	struct ibv_device_attr_ex *attr, size_t size)
{
	struct ibv_device_attr_ex all = { .phys_port_cnt_ex = 1 };

	if (input && input->comp_mask)
		return dropin_refuse(EINVAL, "ibv_query_device_ex: unknown bits in comp_mask");
	if (size < sizeof(all.orig_attr))
		return dropin_refuse(EINVAL, "ibv_query_device_ex: the attributes have no room");
	query_device(ibv, &all.orig_attr);
	all.device_cap_flags_ex = all.orig_attr.device_cap_flags;
	/* Programs of other versions know fewer members, or more. */
	memset(attr, 0, size);
	memcpy(attr, &all, least(size, sizeof(all)));
	return 0;
}

/* ---- ports */

static enum ibv_mtu mtu_of(uint32_t bytes)
{
	enum ibv_mtu mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && UINT32_C(256) << mtu <= bytes)
		mtu++;
	return mtu;
}

/* Width and speed whose product is the speed of the link, or the next lower one. */
static void fill_speed(uint64_t mbps, struct ibv_port_attr *attr)
{
	static const struct {
		uint32_t mbps;
		uint8_t width, speed;
	} steps[] = {
		{ 400000, WIDTH_4X, 128 },
		{ 200000, WIDTH_4X, 64 },
		{ 100000, WIDTH_4X, SPEED_EDR },
		{ 50000, 1, 64 },
		{ 40000, WIDTH_4X, 8 },
		{ 25000, 1, SPEED_EDR },
		{ 10000, WIDTH_4X, 1 },
		{ 0, 1, 1 },
	};
	unsigned i = 0;

	while (mbps < steps[i].mbps)
		i++;
	attr->active_width = steps[i].width;
	attr->active_speed = steps[i].speed;
}

static uint64_t speed_of(const struct dropin_device *device)
{
	return device->attr.local_fabric ? LOCAL_MBPS : device->attr.speed_mbps;
}

static int check_port(const struct ibv_context *ibv, unsigned port)
{
	if (port == PORT_NUM)
		return 0;
	return dropin_refuse(EINVAL, "a device has one port, number 1");
}

int query_port(struct ibv_context *ibv, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	struct dropin_context *context = dropin_context(ibv);
	struct frl_device_attr now;
	struct ibv_port_attr all;
	int err = check_port(ibv, port);

	if (err)
		return err;
	frl_device_query(context->frl, &now);
	all = (struct ibv_port_attr){
		.state = (enum ibv_port_state)now.port_state,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = mtu_of(now.path_mtu),
		.gid_tbl_len = (int)now.n_gids,
		.port_cap_flags = IBV_PORT_IP_BASED_GIDS,
		.max_msg_sz = now.max_msg_size,
		.pkey_tbl_len = (uint16_t)now.n_pkeys,
		.max_vl_num = 1,
		.phys_state = PHYS_LINK_UP,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.flags = IBV_QPF_GRH_REQUIRED,
	};
	if (now.port_state != FRL_PORT_ACTIVE)
		all.phys_state = 3; /* disabled */
	fill_speed(speed_of(context->device), &all);
	memset(attr, 0, size);
	memcpy(attr, &all, least(size, sizeof(all)));
	return 0;
}

/* The symbol of programs that do not go by the context: they know no member behind `flags`. */
#undef ibv_query_port
int ibv_query_port(struct ibv_context *ibv, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return query_port(ibv, port, (struct ibv_port_attr *)attr,
		offsetof(struct ibv_port_attr, port_cap_flags2));
}

/* Unit: 100 Mb/s. */
int ibv_query_port_speed(struct ibv_context *ibv, uint32_t port, uint64_t *ret_speed)
{
	int err = check_port(ibv, port);

	if (!err)
		*ret_speed = speed_of(dropin_context(ibv)->device) / 100;
	return err;
}

/* ---- P_Keys and GIDs */

int ibv_query_pkey(struct ibv_context *ibv, uint8_t port, int index, __be16 *ret_pkey)
{
	if (check_port(ibv, port))
		return -1;
	if (index != 0) {
		dropin_refuse(EINVAL, "a port has one P_Key, index 0");
		return -1;
	}
	*ret_pkey = htobe16(PKEY);
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *ibv, uint8_t port, __be16 pkey)
{
	if (check_port(ibv, port))
		return -1;
	if (be16toh(pkey) == PKEY)
		return 0;
	dropin_refuse(EINVAL, "the port's only P_Key is 0xffff");
	return -1;
}

/* Returns an errno. */
static int get_gid(struct ibv_context *ibv, unsigned port, uint32_t index, union ibv_gid *ret_gid)
{
	struct frl_gid gid;
	int err = check_port(ibv, port);
	int rc = err ? 0 : frl_query_gid(dropin_context(ibv)->frl, index, &gid);

	if (err)
		return err;
	if (rc)
		return dropin_errno(rc == -ENOENT ? -ENODATA : rc);
	memcpy(ret_gid->raw, gid.ip.bytes, sizeof(ret_gid->raw));
	return 0;
}

int ibv_query_gid(struct ibv_context *ibv, uint8_t port, int index, union ibv_gid *ret_gid)
{
	if (index < 0) {
		dropin_refuse(EINVAL, "the index of a GID is negative");
		return -1;
	}
	return get_gid(ibv, port, (uint32_t)index, ret_gid) ? -1 : 0;
}

int _ibv_query_gid_ex(struct ibv_context *ibv, uint32_t port, uint32_t index,
	struct ibv_gid_entry *ret_entry, uint32_t flags, size_t size)
{
	struct ibv_gid_entry entry = {
		.gid_index = index,
		.port_num = port,
		.gid_type = IBV_GID_TYPE_ROCE_V2,
	};
	int err;

	if (flags || size < sizeof(entry))
		return dropin_refuse(EINVAL, "ibv_query_gid_ex: unknown flags, or no room");
	err = get_gid(ibv, port, index, &entry.gid);
	if (err)
		return err;
	entry.ndev_ifindex = if_nametoindex(dropin_context(ibv)->device->interface);
	memset(ret_entry, 0, size);
	memcpy(ret_entry, &entry, sizeof(entry));
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *ibv, struct ibv_gid_entry *entries, size_t room,
	uint32_t flags, size_t size)
{
	uint32_t n = dropin_context(ibv)->device->attr.n_gids;

	if (flags || size < sizeof(*entries))
		return -dropin_refuse(EINVAL, "ibv_query_gid_table: unknown flags, or no room");
	if (room < n)
		return -dropin_refuse(EINVAL, "ibv_query_gid_table: the port has more GIDs");
	for (uint32_t i = 0; i < n; i++) {
		struct ibv_gid_entry *entry = (void *)((char *)entries + i * size);
		int err = _ibv_query_gid_ex(ibv, PORT_NUM, i, entry, 0, size);

		if (err)
			return -err;
	}
	return (ssize_t)n;
}

/* Private to rdma-core, but ibv_devinfo and Python bindings use it. */
IN_PRIVATE_NODES(ibv_query_gid_type, ibv_query_gid_type);
int ibv_query_gid_type(
	struct ibv_context *ibv, uint8_t port, unsigned index, enum ibv_gid_type_sysfs *ret_type)
{
	union ibv_gid gid;

	if (get_gid(ibv, port, index, &gid))
		return -1;
	*ret_type = IBV_GID_TYPE_SYSFS_ROCE_V2;
	return 0;
}
