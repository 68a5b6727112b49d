/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens and examines a port of an RDMA device, and explains why it cannot be used. */
#include "drivers/verbs/internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/base/error.h"

/* The kernel's link has this form: "../../../0000:3b:00.0". */
void verbs_read_pci(const char *path, char ret_pci[16])
{
	char file[IBV_SYSFS_PATH_MAX + 16], link[IBV_SYSFS_PATH_MAX];
	const char *name;
	ssize_t len;

	snprintf(file, sizeof(file), "%s/device", path);
	len = readlink(file, link, sizeof(link) - 1);
	if (len < 0)
		return;
	link[len] = '\0';
	name = strrchr(link, '/');
	name = name ? name + 1 : link;
	if (strlen(name) == strlen("0000:00:00.0") && name[4] == ':' && name[10] == '.')
		snprintf(ret_pci, 16, "%.15s", name);
}

static uint64_t speed_of(const struct ibv_port_attr *port)
{
	static const struct {
		uint8_t code;
		uint32_t lane_mbps;
	} speeds[] = { { 1, 2500 }, { 2, 5000 }, { 4, 10000 }, { 8, 10000 }, { 16, 14000 },
		{ 32, 25000 }, { 64, 50000 }, { 128, 100000 } };
	static const struct {
		uint8_t code;
		uint8_t lanes;
	} widths[] = { { 1, 1 }, { 2, 4 }, { 4, 8 }, { 8, 12 }, { 16, 2 } };
	uint64_t lane = 0, lanes = 0;

	for (size_t i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++)
		if (port->active_speed == speeds[i].code)
			lane = speeds[i].lane_mbps;
	for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
		if (port->active_width == widths[i].code)
			lanes = widths[i].lanes;
	return lane * lanes;
}

static int cannot_open(const char *name, int err)
{
	switch (err) {
	case ENOENT:
	case ENXIO:
		return frl_fail(-ENODEV,
			"%s: there is no /dev/infiniband/uverbs* for it: modprobe ib_uverbs; a "
			"container needs --device=/dev/infiniband",
			name);
	case EPERM:
	case EACCES:
		return frl_fail(-EPERM,
			"%s: no permission to open its /dev/infiniband/uverbs*: join its group "
			"(often rdma), or set mode 0666 by udev; a container needs "
			"--device=/dev/infiniband",
			name);
	case ENOSYS:
	case EPROTO:
	case EOPNOTSUPP:
		return frl_fail(-ENODEV,
			"%s: libibverbs and the kernel's driver have incompatible ABIs: update "
			"rdma-core, or the kernel",
			name);
	default: return verbs_fail(err, "%s: cannot open it", name);
	}
}

/* If libibverbs may not open the file, it retries for seconds and then returns another errno.
 * Returns 0, EACCES or EPERM: for other errors libibverbs reports the better reason. */
static int try_file(const struct ibv_device *device)
{
	char path[sizeof(device->dev_name) + 32];
	int fd;

	snprintf(path, sizeof(path), "/dev/infiniband/%s", device->dev_name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno == EACCES || errno == EPERM ? errno : 0;
	close(fd);
	return 0;
}

/* Returns 0 or an errno. */
static int open_context(struct ibv_device *device, struct ibv_context **ret_context)
{
	int err = try_file(device);

	if (err)
		return err;
	errno = 0;
	*ret_context = ibv_open_device(device);
	return *ret_context ? 0 : verbs_null_errno();
}

int verbs_open_context(
	struct ibv_device *device, const char *name, struct ibv_context **ret_context)
{
	int err = open_context(device, ret_context);

	return err ? cannot_open(name, err) : 0;
}

/* Describes a port that answers queries. */
static void describe(struct verbs_port *port)
{
	struct frl_device_info *info = &port->info;

	info->path_mtu = bytes_of_mtu(port->port.active_mtu);
	info->speed_mbps = speed_of(&port->port);
	info->port_state = port->port.state == IBV_PORT_ACTIVE ? FRL_PORT_ACTIVE : FRL_PORT_DOWN;
}

static int check_kind(const struct verbs_port *port)
{
	const char *name = port->info.name;
	enum ibv_transport_type transport = port->context->device->transport_type;

	if (transport == IBV_TRANSPORT_IWARP)
		return frl_fail(-ENODEV,
			"%s uses iWARP, not RoCE v2: on cards with both (Intel E810), devlink dev "
			"param set pci/%s name enable_iwarp value false cmode runtime, then "
			"enable_roce true",
			name, *port->info.pci ? port->info.pci : "ADDRESS");
	if (transport != IBV_TRANSPORT_IB)
		return frl_fail(
			-ENODEV, "%s does not support RoCE v2, but a protocol of its own", name);
	if (port->port.link_layer == IBV_LINK_LAYER_INFINIBAND)
		return frl_fail(-ENODEV,
			"%s is an InfiniBand port; RoCE needs Ethernet: if the card can do both, "
			"mlxconfig -d DEVICE set LINK_TYPE_P%d=2",
			name, port->num);
	if (port->port.link_layer != IBV_LINK_LAYER_ETHERNET)
		return frl_fail(-ENODEV, "%s is no Ethernet port: RoCE needs one", name);
	if (!bytes_of_mtu(port->port.active_mtu))
		return frl_fail(-ENODEV, "%s reports an invalid path MTU (code %d)", name,
			(int)port->port.active_mtu);
	return 0;
}

static int check_link(const struct verbs_port *port)
{
	const char *interface = port->info.interface;

	if (port->port.state == IBV_PORT_ACTIVE)
		return 0;
	return frl_fail(-ENETDOWN,
		"%s is not active: check cable and switch, and set its interface up (ip link set "
		"%s up)",
		port->info.name, *interface ? interface : "INTERFACE");
}

static int query(struct verbs_port *port)
{
	struct ibv_device_attr_ex attr = { 0 };
	int rc = ibv_query_device_ex(port->context, NULL, &attr);

	if (rc)
		return verbs_fail(
			verbs_errno(rc), "%s: cannot query its capabilities", port->info.name);
	port->attr = attr.orig_attr;
	port->n_ports = attr.orig_attr.phys_port_cnt;
	if (port->num > port->n_ports)
		return frl_fail(-ENODEV, "%s: no port %d: the device has %d", port->info.name,
			port->num, port->n_ports);
	if (port->n_ports > 1)
		snprintf(port->info.name, sizeof(port->info.name), "verbs:%.*s/%d",
			DEVICE_NAME - 16, port->device, port->num);
	rc = ibv_query_port(port->context, port->num, &port->port);
	if (rc)
		return verbs_fail(verbs_errno(rc), "%s: cannot query its state", port->info.name);
	describe(port);
	return check_kind(port);
}

/* The kernel checks the driver's support before the descriptor, which is invalid here. */
static bool takes_dmabuf(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mr;
	int err;

	if (!pd)
		return false;
	errno = 0;
	mr = ibv_reg_dmabuf_mr(pd, 0, 0, 0, -1, 0);
	err = errno;
	if (mr)
		ibv_dereg_mr(mr);
	ibv_dealloc_pd(pd);
	return mr || err == EBADF;
}

static int look_at(struct verbs_port *port)
{
	int rc = query(port);

	if (rc)
		return rc;
	rc = verbs_read_gids(port);
	if (rc)
		return rc;
	verbs_choose_gid(port, NULL, NULL);
	port->info.ip = port->gids[port->main].gid.ip;
	netif_name(port->gids[port->main].ifindex, port->info.interface);
	rc = check_link(port);
	if (!rc)
		port->info.takes_dmabuf = takes_dmabuf(port->context);
	return rc;
}

static void begin(struct verbs_port *port, uint8_t num)
{
	struct frl_device_info *info = &port->info;

	port->num = num;
	*info = (struct frl_device_info){ .kind = "verbs", .port_state = FRL_PORT_DOWN };
	snprintf(info->name, sizeof(info->name), "verbs:%.*s", DEVICE_NAME - 16, port->device);
	verbs_read_pci(port->path, info->pci);
}

/* Records the result of the examination. */
static int end(struct verbs_port *port, int rc)
{
	port->info.usable = rc == 0;
	if (rc)
		snprintf(port->info.reason, sizeof(port->info.reason), "%s", frl_last_error());
	return rc;
}

static void forget_gids(struct verbs_port *port)
{
	free(port->gids);
	port->gids = NULL;
	port->n_gids = 0;
}

int verbs_port_open(struct ibv_device *device, uint8_t num, struct verbs_port *ret_port)
{
	struct verbs_port *port = ret_port;
	int rc;

	*port = (struct verbs_port){ .n_ports = 1 };
	snprintf(port->device, sizeof(port->device), "%s", ibv_get_device_name(device));
	snprintf(port->path, sizeof(port->path), "%s", device->ibdev_path);
	begin(port, num);
	rc = verbs_open_context(device, port->info.name, &port->context);
	return end(port, rc ? rc : look_at(port));
}

int verbs_port_turn(struct verbs_port *port, uint8_t num)
{
	forget_gids(port);
	begin(port, num);
	return end(port, look_at(port));
}

void verbs_port_close(struct verbs_port *port)
{
	forget_gids(port);
	if (port->context) {
		int rc = ibv_close_device(port->context);

		if (rc)
			verbs_warn(verbs_errno(rc), "cannot close an RDMA device");
	}
	port->context = NULL;
}
