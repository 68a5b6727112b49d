/* SPDX-License-Identifier: BSD-3-Clause */
/* The libibverbs in memory: devices, faults and the wire as a test sets them, and the objects. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "tests/fakes/verbs/fake_verbs_internal.h"

enum { MAX_FUNCTIONS = 128, MAX_FAULTS = 64 };

struct fake_world fake_world = { .lock = PTHREAD_MUTEX_INITIALIZER,
	.wake = PTHREAD_COND_INITIALIZER,
	.acknowledged = PTHREAD_COND_INITIALIZER,
	.divisor = 1 };

/* Calls so far and planned faults. The world's lock guards them. */
static struct {
	struct {
		const char *name;
		unsigned calls;
	} functions[MAX_FUNCTIONS];
	unsigned n_functions;
	struct {
		char function[48];
		int n, err;
	} faults[MAX_FAULTS];
	unsigned n_faults;
	int nth, nth_err, nth_made, nth_made_err;
	unsigned counted;
	const char *failed;
	const char *paused;
	unsigned n_paused;
} calls;

static pthread_cond_t pause_changed = PTHREAD_COND_INITIALIZER;

static const char *const kind_names[FAKE_VERBS_KINDS] = {
	[FAKE_VERBS_LIST] = "device list",
	[FAKE_VERBS_CONTEXT] = "context",
	[FAKE_VERBS_PD] = "PD",
	[FAKE_VERBS_MR] = "MR",
	[FAKE_VERBS_MW] = "MW",
	[FAKE_VERBS_CHANNEL] = "completion channel",
	[FAKE_VERBS_CQ] = "CQ",
	[FAKE_VERBS_SRQ] = "SRQ",
	[FAKE_VERBS_QP] = "QP",
	[FAKE_VERBS_AH] = "AH",
	[FAKE_VERBS_MCAST] = "multicast attachment",
	[FAKE_VERBS_FLOW] = "flow rule",
};

static void lock(void)
{
	struct fake_object *head = &fake_world.objects;

	pthread_mutex_lock(&fake_world.lock);
	if (!head->next)
		head->next = head->prev = head;
}

void fake_leave(void)
{
	pthread_mutex_unlock(&fake_world.lock);
}

uint64_t fake_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* --- Faults */

static void count_call(const char *function, enum fake_call call)
{
	unsigned i = 0;

	calls.counted += call != FAKE_CALL_LOOPS;
	while (i < calls.n_functions && strcmp(calls.functions[i].name, function) != 0)
		i++;
	if (i == MAX_FUNCTIONS)
		return;
	if (i == calls.n_functions)
		calls.functions[calls.n_functions++].name = function;
	calls.functions[i].calls++;
}

static int fault(const char *function, enum fake_call call)
{
	int err = 0;

	count_call(function, call);
	for (unsigned i = 0; i < calls.n_faults; i++) {
		if (strcmp(calls.faults[i].function, function) != 0 || --calls.faults[i].n > 0)
			continue;
		err = calls.faults[i].err;
		calls.faults[i--] = calls.faults[--calls.n_faults];
	}
	if (call != FAKE_CALL_LOOPS && calls.nth > 0 && --calls.nth == 0)
		err = calls.nth_err;
	if (call == FAKE_CALL_MAKES && calls.nth_made > 0 && --calls.nth_made == 0)
		err = calls.nth_made_err;
	if (err != 0)
		calls.failed = function;
	return err;
}

/* Called with the lock held; releases it meanwhile. */
void fake_stand_still(const char *function)
{
	if (!calls.paused || strcmp(calls.paused, function) != 0)
		return;
	calls.n_paused++;
	pthread_cond_broadcast(&pause_changed);
	while (calls.paused && strcmp(calls.paused, function) == 0)
		pthread_cond_wait(&pause_changed, &fake_world.lock);
	calls.n_paused--;
}

void fake_verbs_pause(const char *function)
{
	lock();
	calls.paused = function;
	pthread_cond_broadcast(&pause_changed);
	fake_leave();
}

void fake_verbs_wait_paused(void)
{
	lock();
	while (calls.n_paused == 0)
		pthread_cond_wait(&pause_changed, &fake_world.lock);
	fake_leave();
}

int fake_enter_anyway(const char *function, enum fake_call call)
{
	int err;

	lock();
	fake_stand_still(function);
	err = fault(function, call);
	if (err != 0)
		fake_leave();
	return err;
}

void fake_enter_always(const char *function)
{
	lock();
	count_call(function, FAKE_CALL_LOOPS);
}

int fake_enter(const char *function, enum fake_call call, const struct fake_device *device)
{
	int err = fake_enter_anyway(function, call);

	if (err != 0 || !device || !device->is_dead)
		return err;
	fake_leave();
	return EIO;
}

void fake_verbs_fail(const char *function, int n, int err)
{
	lock();
	if (n > 0 && calls.n_faults < MAX_FAULTS) {
		snprintf(calls.faults[calls.n_faults].function, sizeof(calls.faults[0].function),
			"%s", function);
		calls.faults[calls.n_faults].n = n;
		calls.faults[calls.n_faults++].err = err;
	}
	for (unsigned i = 0; n <= 0 && i < calls.n_faults; i++)
		if (strcmp(calls.faults[i].function, function) == 0)
			calls.faults[i--] = calls.faults[--calls.n_faults];
	fake_leave();
}

void fake_verbs_fail_nth(int n, int err)
{
	lock();
	calls.nth = n;
	calls.nth_err = err;
	fake_leave();
}

void fake_verbs_fail_nth_made(int n, int err)
{
	lock();
	calls.nth_made = n;
	calls.nth_made_err = err;
	fake_leave();
}

const char *fake_verbs_failed(void)
{
	const char *failed;

	lock();
	failed = calls.failed;
	fake_leave();
	return failed;
}

unsigned fake_verbs_calls(const char *function)
{
	unsigned n = 0;

	lock();
	if (!function)
		n = calls.counted;
	for (unsigned i = 0; function && i < calls.n_functions; i++)
		if (strcmp(calls.functions[i].name, function) == 0)
			n = calls.functions[i].calls;
	fake_leave();
	return n;
}

/* --- Objects */

void *fake_make(const char *function, enum fake_verbs_kind kind, size_t size,
	struct fake_device *device, struct fake_context *context)
{
	struct fake_object *object, *head = &fake_world.objects;
	int err = fake_enter(function, FAKE_CALL_MAKES, device);

	if (err != 0) {
		errno = err;
		return NULL;
	}
	object = calloc(1, size);
	if (!object) {
		fake_leave();
		errno = ENOMEM;
		return NULL;
	}
	object->kind = kind;
	object->device = device;
	object->context = context;
	object->next = head;
	object->prev = head->prev;
	head->prev->next = object;
	head->prev = object;
	fake_world.live[kind]++;
	return object;
}

static void unlink_object(struct fake_object *object)
{
	object->next->prev = object->prev;
	object->prev->next = object->next;
	if (!object->is_gone)
		fake_world.live[object->kind]--;
	fake_free_parts(object);
	free(object);
}

void *fake_unmake(struct fake_object *object, int err)
{
	unlink_object(object);
	fake_leave();
	errno = err;
	return NULL;
}

int fake_give_up(struct fake_object *object)
{
	object->is_gone = true;
	fake_world.live[object->kind]--;
	fake_leave();
	return EIO;
}

int fake_destroy(const char *function, struct fake_object *object)
{
	int err = fake_enter_anyway(function, FAKE_CALL_DESTROYS);

	if (err != 0)
		return err;
	if (object->is_gone || object->is_orphan) {
		fprintf(stderr, "fake_verbs: %s(): the %s is no more\n", function,
			kind_names[object->kind]);
		abort();
	}
	if (object->device && object->device->is_dead)
		return fake_give_up(object);
	if (object->n_users > 0) {
		fake_leave();
		return EBUSY;
	}
	return 0;
}

int fake_destroyed(struct fake_object *object)
{
	uint64_t end_ns = fake_now_ns() + FAKE_ACK_MS * UINT64_C(1000000);
	struct timespec end = { (time_t)(end_ns / 1000000000), (long)(end_ns % 1000000000) };

	while (object->n_pending > 0) {
		if (pthread_cond_clockwait(&fake_world.acknowledged, &fake_world.lock,
			    CLOCK_MONOTONIC, &end) != ETIMEDOUT)
			continue;
		fprintf(stderr,
			"fake_verbs: a %s is destroyed with %u events that nobody acknowledged: "
			"libibverbs waits for ever\n",
			kind_names[object->kind], object->n_pending);
		abort();
	}
	unlink_object(object);
	fake_leave();
	return 0;
}

struct fake_object *fake_next(enum fake_verbs_kind kind, struct fake_object *at)
{
	struct fake_object *head = &fake_world.objects;

	for (at = at ? at->next : head->next; at != head; at = at->next)
		if (at->kind == kind && !at->is_gone && !at->is_orphan)
			return at;
	return NULL;
}

void fake_free_parts(struct fake_object *object)
{
	struct fake_mr *mr;
	struct fake_qp *qp;

	switch (object->kind) {
	case FAKE_VERBS_CONTEXT: fake_context_free((struct fake_context *)object); break;
	case FAKE_VERBS_MR:
		mr = (struct fake_mr *)object;
		if (mr->map)
			munmap(mr->map, mr->map_length);
		break;
	case FAKE_VERBS_CHANNEL: fake_events_fini(&((struct fake_channel *)object)->events); break;
	case FAKE_VERBS_CQ:
		free(((struct fake_cq *)object)->ring);
		pthread_mutex_destroy(&((struct fake_cq *)object)->polling);
		break;
	case FAKE_VERBS_SRQ: fake_recv_ring_fini(&((struct fake_srq *)object)->ring); break;
	case FAKE_VERBS_QP:
		qp = (struct fake_qp *)object;
		fake_recv_ring_fini(&qp->recvs);
		free(qp->sends);
		free(qp->send_sges);
		free(qp->send_bytes);
		pthread_mutex_destroy(&qp->building);
		break;
	case FAKE_VERBS_LIST:
	case FAKE_VERBS_PD:
	case FAKE_VERBS_MW:
	case FAKE_VERBS_AH:
	case FAKE_VERBS_MCAST:
	case FAKE_VERBS_FLOW:
	case FAKE_VERBS_KINDS: break;
	}
}

unsigned fake_verbs_live(enum fake_verbs_kind kind)
{
	unsigned n = 0;

	lock();
	for (int i = 0; i < FAKE_VERBS_KINDS; i++)
		if (kind == FAKE_VERBS_KINDS || (int)kind == i)
			n += fake_world.live[i];
	fake_leave();
	return n;
}

const char *fake_verbs_leaks(void)
{
	static char text[256];
	size_t used = 0;

	lock();
	text[0] = '\0';
	for (int i = 0; i < FAKE_VERBS_KINDS; i++)
		if (fake_world.live[i] > 0 && used < sizeof(text))
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%u %s%s",
				used > 0 ? ", " : "", fake_world.live[i], kind_names[i],
				fake_world.live[i] > 1 ? "s" : "");
	fake_leave();
	return text;
}

/* --- Devices */

void fake_verbs_reset(void)
{
	struct fake_object *head = &fake_world.objects;

	fake_wire_stop();
	lock();
	while (head->next != head)
		unlink_object(head->next);
	for (unsigned i = 0; i < fake_world.n_devices; i++)
		free(fake_world.devices[i]);
	fake_world.n_devices = 0;
	memset(fake_world.cut, 0, sizeof(fake_world.cut));
	fake_world.is_held = false;
	fake_world.allowed = 0;
	fake_world.divisor = 1;
	fake_world.is_fork_safe = false;
	fake_raw_reset();
	memset(&fake_world.stats, 0, sizeof(fake_world.stats));
	memset(&calls, 0, sizeof(calls));
	fake_leave();
}

void fake_verbs_gid_set(struct fake_verbs_gid *entry, const char *address, int type)
{
	*entry = (struct fake_verbs_gid){ .type = type };
	if (inet_pton(AF_INET, address, entry->gid.raw + 12) == 1)
		entry->gid.raw[10] = entry->gid.raw[11] = 0xff;
	else if (inet_pton(AF_INET6, address, entry->gid.raw) != 1) {
		fprintf(stderr, "fake_verbs: %s is no address\n", address);
		abort();
	}
}

void fake_verbs_port_infiniband(struct fake_verbs_port *port, uint16_t lid)
{
	union ibv_gid gid = port->gids[0].gid;

	port->link_layer = IBV_LINK_LAYER_INFINIBAND;
	port->lid = lid;
	for (int i = 0; i < FAKE_VERBS_GIDS; i++)
		port->gids[i].type = -1;
	port->gids[0].type = IBV_GID_TYPE_IB;
	port->gids[0].gid = gid;
}

static void init_port(struct fake_verbs_port *port, const char *local, const char *ipv4)
{
	*port = (struct fake_verbs_port){
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.active_width = 2,
		.active_speed = 32,
		.max_msg_sz = UINT32_C(1) << 30,
		.pkeys = { 0xffff },
	};
	for (int i = 0; i < FAKE_VERBS_GIDS; i++)
		port->gids[i].type = -1;
	fake_verbs_gid_set(&port->gids[0], local, IBV_GID_TYPE_ROCE_V1);
	fake_verbs_gid_set(&port->gids[1], local, IBV_GID_TYPE_ROCE_V2);
	if (!ipv4)
		return;
	fake_verbs_gid_set(&port->gids[2], ipv4, IBV_GID_TYPE_ROCE_V1);
	fake_verbs_gid_set(&port->gids[3], ipv4, IBV_GID_TYPE_ROCE_V2);
}

static void init_attr(struct ibv_device_attr *attr, uint32_t guid)
{
	*attr = (struct ibv_device_attr){
		.fw_ver = "1.0",
		.vendor_id = FAKE_VERBS_VENDOR,
		.node_guid = htobe64(UINT64_C(0x5254000000000000) | guid),
		.sys_image_guid = htobe64(UINT64_C(0x5254000000000000) | guid),
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 0xfffff000,
		.max_qp = 1024,
		.max_qp_wr = 16384,
		.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_MEM_WINDOW |
			IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2B,
		.max_sge = FAKE_MAX_SGE,
		.max_sge_rd = FAKE_MAX_SGE,
		.max_cq = 1024,
		.max_cqe = 32767,
		.max_mr = 65536,
		.max_pd = 1024,
		.max_qp_rd_atom = 16,
		.max_res_rd_atom = 16 * 1024,
		.max_qp_init_rd_atom = 16,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_mw = 65536,
		.max_mcast_grp = 128,
		.max_mcast_qp_attach = 56,
		.max_total_mcast_qp_attach = 1024,
		.max_ah = 4096,
		.max_srq = 256,
		.max_srq_wr = 16384,
		.max_srq_sge = FAKE_MAX_SGE - 1,
		.max_pkeys = FAKE_VERBS_PKEYS,
		.local_ca_ack_delay = 15,
		.phys_port_cnt = 1,
	};
}

void fake_verbs_device_init(struct fake_verbs_device *device, const char *name, const char *ipv4)
{
	uint32_t hash = 2166136261u;
	char local[64];

	for (const char *at = name; *at; at++)
		hash = (hash ^ (uint8_t)*at) * 16777619u;
	*device = (struct fake_verbs_device){
		.node_type = IBV_NODE_CA,
		.transport_type = IBV_TRANSPORT_IB,
		.has_verbs_context = true,
		.has_cq_ex = true,
		.has_qp_ex = true,
		.has_query_device_ex = true,
		.has_gid_table = true,
		.has_iova2 = true,
		.has_dmabuf = true,
		.has_mw = true,
		.has_raw = true,
		.may_raw = true,
		.has_flows = true,
		.max_inline = 512,
		.wc_flags = IBV_WC_STANDARD_FLAGS,
		.send_ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
			IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
			IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
			IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV |
			IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV,
		.memlock = UINT64_MAX,
	};
	snprintf(device->name, sizeof(device->name), "%s", name);
	init_attr(&device->attr, hash);
	for (int i = 0; i < FAKE_VERBS_PORTS; i++) {
		/* EUI-64 of a MAC address. */
		snprintf(local, sizeof(local), "fe80::5054:%02xff:fe%02x:%04x",
			((hash >> 24) + (unsigned)i) & 0xff, hash >> 16 & 0xff, hash & 0xffff);
		init_port(&device->ports[i], local, i == 0 ? ipv4 : NULL);
	}
}

void fake_verbs_add(const struct fake_verbs_device *device)
{
	struct fake_device *made = calloc(1, sizeof(*made));

	lock();
	if (!made || fake_world.n_devices == FAKE_VERBS_DEVICES ||
		device->attr.max_sge > FAKE_MAX_SGE) {
		fprintf(stderr, "fake_verbs: a device too many, or one too large\n");
		abort();
	}
	made->is = *device;
	made->next_qpn = 17;
	made->next_key = 1;
	made->ibv.node_type = device->node_type;
	made->ibv.transport_type = device->transport_type;
	snprintf(made->ibv.name, sizeof(made->ibv.name), "%s", device->name);
	snprintf(made->ibv.dev_name, sizeof(made->ibv.dev_name), "uverbs-fake%u",
		fake_world.n_devices);
	snprintf(made->ibv.dev_path, sizeof(made->ibv.dev_path),
		"/sys/class/infiniband_verbs/%.20s", made->ibv.dev_name);
	snprintf(made->ibv.ibdev_path, sizeof(made->ibv.ibdev_path), "%.*s%.63s",
		IBV_SYSFS_PATH_MAX - 64, device->sysfs ? device->sysfs : "/sys/class/infiniband/",
		device->sysfs ? "" : device->name);
	fake_world.devices[fake_world.n_devices++] = made;
	fake_leave();
}
