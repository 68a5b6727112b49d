/* SPDX-License-Identifier: BSD-3-Clause */
/* The libibverbs in memory: lists of devices, contexts, and queries. */
#include <errno.h>
#include <stdlib.h>

#include "tests/fakes/verbs/fake_verbs_internal.h"

/* The header has it as a macro around an internal function. */
#undef ibv_query_port

struct fake_context *fake_context_of(struct ibv_context *context)
{
	return FAKE_OF(struct fake_context, verbs.context, context);
}

struct fake_verbs_port *fake_port_of(struct fake_device *device, unsigned number)
{
	if (number < 1 || number > device->is.attr.phys_port_cnt)
		return NULL;
	return &device->is.ports[number < FAKE_VERBS_PORTS ? number - 1 : FAKE_VERBS_PORTS - 1];
}

struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct fake_list *list = fake_make(__func__, FAKE_VERBS_LIST, sizeof(*list), NULL, NULL);

	if (num_devices)
		*num_devices = list ? (int)fake_world.n_devices : 0;
	if (!list)
		return NULL;
	for (unsigned i = 0; i < fake_world.n_devices; i++)
		list->devices[i] = &fake_world.devices[i]->ibv;
	fake_leave();
	errno = 0;
	return list->devices;
}

void ibv_free_device_list(struct ibv_device **devices)
{
	struct fake_list *list = FAKE_OF(struct fake_list, devices, devices);

	fake_enter_always(__func__);
	fake_destroyed(&list->object);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	return FAKE_OF(struct fake_device, ibv, device)->is.attr.node_guid;
}

int ibv_get_device_index(struct ibv_device *device)
{
	unsigned i = 0;

	while (&fake_world.devices[i]->ibv != device)
		i++;
	return (int)i;
}

/* --- Contexts */

static void tell(const struct fake_device *device, struct ibv_device_attr *attr)
{
	*attr = device->is.attr;
	if (!device->is.has_mw)
		attr->max_mw = 0;
}

static int query_device(struct fake_device *device, struct ibv_device_attr *attr)
{
	int err = fake_enter("ibv_query_device", FAKE_CALL_MAKES, device);

	if (err != 0)
		return err;
	tell(device, attr);
	fake_leave();
	return 0;
}

static int query_device_ex(struct ibv_context *context,
	const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr, size_t size)
{
	struct fake_device *device = fake_context_of(context)->object.device;
	struct ibv_device_attr_ex is = { .odp_caps = device->is.odp };
	int err = fake_enter("ibv_query_device_ex", FAKE_CALL_MAKES, device);

	if (err != 0)
		return err;
	tell(device, &is.orig_attr);
	is.phys_port_cnt_ex = device->is.attr.phys_port_cnt;
	memcpy(attr, &is, size < sizeof(is) ? size : sizeof(is));
	fake_leave();
	return 0;
}

static int n_gids(const struct fake_verbs_port *port)
{
	int n = FAKE_VERBS_GIDS;

	while (n > 1 && port->gids[n - 1].type < 0)
		n--;
	return n;
}

static int query_port(
	struct ibv_context *context, uint8_t number, struct ibv_port_attr *attr, size_t size)
{
	struct fake_device *device = fake_context_of(context)->object.device;
	struct fake_verbs_port *port = fake_port_of(device, number);
	struct ibv_port_attr is = { 0 };
	int err = fake_enter("ibv_query_port", FAKE_CALL_MAKES, device);

	if (err != 0)
		return err;
	if (!port) {
		fake_leave();
		return EINVAL;
	}
	is.state = port->state;
	is.max_mtu = port->max_mtu;
	is.active_mtu = port->active_mtu;
	is.gid_tbl_len = n_gids(port);
	is.port_cap_flags = port->link_layer == IBV_LINK_LAYER_ETHERNET ? IBV_PORT_IP_BASED_GIDS
									: 0;
	is.max_msg_sz = port->max_msg_sz;
	is.pkey_tbl_len = FAKE_VERBS_PKEYS;
	is.lid = port->lid;
	is.active_width = port->active_width;
	is.active_speed = port->active_speed;
	is.phys_state = port->state == IBV_PORT_ACTIVE ? 5 : 3;
	is.link_layer = port->link_layer;
	memcpy(attr, &is, size < sizeof(is) ? size : sizeof(is));
	fake_leave();
	return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t number, struct _compat_ibv_port_attr *attr)
{
	return query_port(context, number, (struct ibv_port_attr *)attr,
		offsetof(struct ibv_port_attr, port_cap_flags2));
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	return query_device(fake_context_of(context)->object.device, attr);
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct fake_pd *of = FAKE_OF(struct fake_pd, ibv, pd);
	struct fake_device *device = of->object.device;
	struct fake_mw *mw = fake_make(
		"ibv_alloc_mw", FAKE_VERBS_MW, sizeof(*mw), device, of->object.context);

	if (!mw)
		return NULL;
	if (!device->is.has_mw || type != IBV_MW_TYPE_2)
		return fake_unmake(&mw->object, device->is.has_mw ? EINVAL : EOPNOTSUPP);
	of->object.n_users++;
	mw->ibv.context = pd->context;
	mw->ibv.pd = pd;
	mw->ibv.type = type;
	mw->ibv.handle = ++device->next_handle;
	mw->ibv.rkey = UINT32_C(0xc0000000) | device->next_key++ << 8;
	fake_leave();
	return &mw->ibv;
}

static int dealloc_mw(struct ibv_mw *ibv)
{
	struct fake_mw *mw = FAKE_OF(struct fake_mw, ibv, ibv);
	int err = fake_destroy("ibv_dealloc_mw", &mw->object);

	if (err != 0)
		return err;
	if (mw->mr)
		mw->mr->object.n_users--;
	FAKE_OF(struct fake_pd, ibv, ibv->pd)->object.n_users--;
	return fake_destroyed(&mw->object);
}

static void set_ops(struct fake_context *context)
{
	struct verbs_context *verbs = &context->verbs;
	const struct fake_verbs_device *is = &context->object.device->is;

	verbs->context.ops.alloc_mw = alloc_mw;
	verbs->context.ops.dealloc_mw = dealloc_mw;
	verbs->context.ops.poll_cq = fake_poll_cq;
	verbs->context.ops.req_notify_cq = fake_req_notify_cq;
	verbs->context.ops.post_srq_recv = fake_post_srq_recv;
	verbs->context.ops.post_send = fake_post_send;
	verbs->context.ops.post_recv = fake_post_recv;
	verbs->sz = sizeof(*verbs);
	if (!is->has_verbs_context)
		return;
	verbs->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	verbs->query_port = query_port;
	verbs->query_device_ex = is->has_query_device_ex ? query_device_ex : NULL;
	verbs->create_cq_ex = is->has_cq_ex ? fake_create_cq_ex : NULL;
	verbs->create_qp_ex = is->has_qp_ex ? fake_create_qp_ex : NULL;
	verbs->ibv_create_flow = fake_create_flow;
	verbs->ibv_destroy_flow = fake_destroy_flow;
}

struct ibv_context *ibv_open_device(struct ibv_device *ibv)
{
	struct fake_device *device = FAKE_OF(struct fake_device, ibv, ibv);
	struct fake_context *context = fake_make(
		__func__, FAKE_VERBS_CONTEXT, sizeof(*context), device, NULL);

	if (!context)
		return NULL;
	if (!fake_events_init(&context->events) || !fake_wire_start())
		return fake_unmake(&context->object, EMFILE);
	context->verbs.context.device = ibv;
	context->verbs.context.cmd_fd = -1;
	context->verbs.context.async_fd = context->events.fd;
	context->verbs.context.num_comp_vectors = 1;
	pthread_mutex_init(&context->verbs.context.mutex, NULL);
	set_ops(context);
	fake_leave();
	return &context->verbs.context;
}

void fake_context_free(struct fake_context *context)
{
	fake_events_fini(&context->events);
	pthread_mutex_destroy(&context->verbs.context.mutex);
}

/* The kernel removes objects that were not destroyed. Here they count as leaks from now on. */
int ibv_close_device(struct ibv_context *ibv)
{
	struct fake_context *context = fake_context_of(ibv);
	struct fake_object *at = &fake_world.objects;
	int err = fake_enter_anyway(__func__, FAKE_CALL_DESTROYS);
	bool has_orphans = false;

	if (err != 0)
		return err;
	while ((at = at->next) != &fake_world.objects) {
		if (at->context != context)
			continue;
		at->is_orphan = true;
		has_orphans = true;
	}
	if (!has_orphans)
		return fake_destroyed(&context->object);
	fake_events_fini(&context->events);
	context->object.is_gone = true;
	fake_world.live[FAKE_VERBS_CONTEXT]--;
	fake_leave();
	return 0;
}

/* --- Tables */

int ibv_query_gid(struct ibv_context *context, uint8_t number, int index, union ibv_gid *gid)
{
	struct fake_device *device = fake_context_of(context)->object.device;
	struct fake_verbs_port *port = fake_port_of(device, number);
	int err = fake_enter(__func__, FAKE_CALL_MAKES, device);

	if (err == 0) {
		if (!port || index < 0 || index >= n_gids(port))
			err = EINVAL;
		else if (port->gids[index].type < 0)
			memset(gid, 0, sizeof(*gid));
		else
			*gid = port->gids[index].gid;
		fake_leave();
	}
	errno = err != 0 ? err : errno;
	return err != 0 ? -1 : 0;
}

static void tell_entry(struct ibv_gid_entry *entry, const struct fake_verbs_port *port,
	uint32_t number, uint32_t index)
{
	entry->gid = port->gids[index].gid;
	entry->gid_index = index;
	entry->port_num = number;
	entry->gid_type = (uint32_t)port->gids[index].type;
	entry->ndev_ifindex = port->gids[index].ndev_ifindex;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t number, uint32_t index,
	struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	struct fake_device *device = fake_context_of(context)->object.device;
	struct fake_verbs_port *port = fake_port_of(device, number);
	int err = fake_enter("ibv_query_gid_ex", FAKE_CALL_MAKES, device);

	if (err != 0)
		return err;
	if (!device->is.has_gid_table)
		err = EOPNOTSUPP;
	else if (!port || index >= FAKE_VERBS_GIDS || flags != 0 || entry_size != sizeof(*entry))
		err = EINVAL;
	else if (port->gids[index].type < 0)
		err = ENODATA;
	else
		tell_entry(entry, port, number, index);
	fake_leave();
	return err;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
	size_t max_entries, uint32_t flags, size_t entry_size)
{
	struct fake_device *device = fake_context_of(context)->object.device;
	int err = fake_enter("ibv_query_gid_table", FAKE_CALL_MAKES, device);
	size_t n = 0;

	if (err != 0)
		return -err;
	if (!device->is.has_gid_table)
		err = EOPNOTSUPP;
	else if (flags != 0 || entry_size != sizeof(*entries))
		err = EINVAL;
	for (uint32_t number = 1; err == 0 && number <= device->is.attr.phys_port_cnt; number++) {
		struct fake_verbs_port *port = fake_port_of(device, number);

		for (uint32_t i = 0; err == 0 && i < FAKE_VERBS_GIDS; i++) {
			if (port->gids[i].type < 0)
				continue;
			if (n == max_entries)
				err = EINVAL;
			else
				tell_entry(&entries[n++], port, number, i);
		}
	}
	fake_leave();
	return err != 0 ? -err : (ssize_t)n;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t number, int index, __be16 *pkey)
{
	struct fake_device *device = fake_context_of(context)->object.device;
	struct fake_verbs_port *port = fake_port_of(device, number);
	int err = fake_enter(__func__, FAKE_CALL_MAKES, device);

	if (err == 0) {
		if (!port || index < 0 || index >= FAKE_VERBS_PKEYS)
			err = EINVAL;
		else
			*pkey = htobe16(port->pkeys[index]);
		fake_leave();
	}
	errno = err != 0 ? err : errno;
	return err != 0 ? -1 : 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t number, __be16 pkey)
{
	__be16 is;

	for (int i = 0; i < FAKE_VERBS_PKEYS; i++) {
		if (ibv_query_pkey(context, number, i, &is) != 0)
			return -1;
		if (is == pkey)
			return i;
	}
	errno = EINVAL;
	return -1;
}

int ibv_fork_init(void)
{
	int err = fake_enter_anyway(__func__, FAKE_CALL_MAKES);

	if (err != 0)
		return err;
	fake_world.is_fork_safe = true;
	fake_leave();
	return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	bool is_safe;

	fake_enter_always(__func__);
	is_safe = fake_world.is_fork_safe;
	fake_leave();
	return is_safe ? IBV_FORK_ENABLED : IBV_FORK_DISABLED;
}
