/* SPDX-License-Identifier: BSD-3-Clause */
/* The libibverbs in memory: changes to devices and to the wire while they are in use. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fakes/verbs/fake_verbs_internal.h"

struct fake_device *fake_find_device(const char *name)
{
	for (unsigned i = 0; i < fake_world.n_devices; i++)
		if (strcmp(fake_world.devices[i]->is.name, name) == 0)
			return fake_world.devices[i];
	fprintf(stderr, "fake_verbs: there is no device %s\n", name);
	abort();
}

struct fake_qp *fake_find_qp(const struct fake_device *device, uint32_t qp_num)
{
	struct fake_object *at = NULL;

	while ((at = fake_next(FAKE_VERBS_QP, at)) != NULL)
		if (at->device == device && ((struct fake_qp *)at)->ibv.qp_num == qp_num)
			return (struct fake_qp *)at;
	return NULL;
}

static void die(struct fake_device *device)
{
	struct fake_object *at = NULL;

	device->is_dead = true;
	while ((at = fake_next(FAKE_VERBS_QP, at)) != NULL)
		if (at->device == device)
			((struct fake_qp *)at)->blocked = FAKE_RUNS;
}

void fake_verbs_raise(const char *name, enum ibv_event_type type, uint8_t port)
{
	struct fake_device *device;
	struct fake_verbs_port *is;

	fake_enter_always(__func__);
	device = fake_find_device(name);
	is = fake_port_of(device, port);
	if (type == IBV_EVENT_DEVICE_FATAL)
		die(device);
	else if (is && type == IBV_EVENT_PORT_ERR)
		is->state = IBV_PORT_DOWN;
	else if (is && type == IBV_EVENT_PORT_ACTIVE)
		is->state = IBV_PORT_ACTIVE;
	fake_event_raise_port(device, type, port);
	fake_wire_run();
	fake_leave();
}

void fake_verbs_pull_out(const char *name)
{
	struct fake_object *at = NULL;
	struct fake_device *device;

	fake_enter_always(__func__);
	device = fake_find_device(name);
	die(device);
	while ((at = fake_next(FAKE_VERBS_CONTEXT, at)) != NULL)
		if (at->device == device)
			fake_events_hang_up(&((struct fake_context *)at)->events);
	fake_wire_run();
	fake_leave();
}

void fake_verbs_overrun(const char *name)
{
	struct fake_object *at = NULL;
	struct fake_device *device;

	fake_enter_always(__func__);
	device = fake_find_device(name);
	while ((at = fake_next(FAKE_VERBS_CQ, at)) != NULL)
		if (at->device == device)
			((struct fake_cq *)at)->is_dead = true;
	fake_leave();
}

void fake_verbs_raise_qp(const char *name, uint32_t qp_num, enum ibv_event_type type)
{
	struct fake_qp *qp;

	fake_enter_always(__func__);
	qp = fake_find_qp(fake_find_device(name), qp_num);
	if (qp) {
		fake_event_raise(&qp->object, type);
		if (type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR ||
			type == IBV_EVENT_QP_ACCESS_ERR)
			fake_qp_fail(qp, IBV_QPS_ERR);
		fake_wire_run();
	}
	fake_leave();
}

void fake_verbs_change_gid(
	const char *name, uint8_t port, int index, const struct fake_verbs_gid *entry)
{
	struct fake_device *device;

	fake_enter_always(__func__);
	device = fake_find_device(name);
	fake_port_of(device, port)->gids[index] = *entry;
	fake_event_raise_port(device, IBV_EVENT_GID_CHANGE, port);
	fake_wire_run();
	fake_leave();
}

void fake_verbs_change_mtu(const char *name, uint8_t port, enum ibv_mtu mtu)
{
	fake_enter_always(__func__);
	fake_port_of(fake_find_device(name), port)->active_mtu = mtu;
	fake_leave();
}

static unsigned number_of(const char *name)
{
	struct fake_device *device = fake_find_device(name);
	unsigned i = 0;

	while (fake_world.devices[i] != device)
		i++;
	return i;
}

void fake_verbs_cut(const char *a, const char *b, bool is_cut)
{
	unsigned i, j;

	fake_enter_always(__func__);
	i = number_of(a);
	j = number_of(b);
	fake_world.cut[i][j] = fake_world.cut[j][i] = is_cut;
	fake_wire_run();
	fake_leave();
}

void fake_verbs_cut_qp(const char *device, uint32_t qp_num, bool is_cut)
{
	struct fake_qp *qp;

	fake_enter_always(__func__);
	qp = fake_find_qp(fake_find_device(device), qp_num);
	if (qp)
		qp->is_cut = is_cut;
	fake_wire_run();
	fake_leave();
}

/* Requests that wait for a peer wait from now. */
static void start_waits_again(void)
{
	struct fake_object *at = NULL;

	while ((at = fake_next(FAKE_VERBS_QP, at)) != NULL)
		((struct fake_qp *)at)->blocked = FAKE_RUNS;
}

void fake_verbs_hold(bool is_held)
{
	fake_enter_always(__func__);
	fake_world.is_held = is_held;
	fake_world.allowed = 0;
	start_waits_again();
	fake_wire_run();
	fake_leave();
}

unsigned fake_verbs_step(unsigned messages)
{
	unsigned left;

	fake_enter_always(__func__);
	fake_world.allowed = messages;
	fake_wire_run();
	left = fake_world.allowed;
	fake_world.allowed = 0;
	start_waits_again();
	fake_leave();
	return messages - left;
}

void fake_verbs_hurry(unsigned divisor)
{
	fake_enter_always(__func__);
	fake_world.divisor = divisor > 0 ? divisor : 1;
	fake_leave();
}

bool fake_verbs_qp_attr(const char *device, uint32_t qp_num, struct ibv_qp_attr *attr)
{
	struct fake_qp *qp;

	fake_enter_always(__func__);
	qp = fake_find_qp(fake_find_device(device), qp_num);
	if (qp) {
		*attr = qp->attr;
		attr->qp_state = attr->cur_qp_state = qp->ibv.state;
	}
	fake_leave();
	return qp;
}

unsigned fake_verbs_mr_access(const char *name, uint32_t lkey)
{
	struct fake_object *at = NULL;
	struct fake_device *device;
	unsigned access = 0;

	fake_enter_always(__func__);
	device = fake_find_device(name);
	while ((at = fake_next(FAKE_VERBS_MR, at)) != NULL)
		if (at->device == device && ((struct fake_mr *)at)->ibv.lkey == lkey)
			access = ((struct fake_mr *)at)->access;
	fake_leave();
	return access;
}

void fake_verbs_stats(struct fake_verbs_stats *stats)
{
	fake_enter_always(__func__);
	*stats = fake_world.stats;
	fake_leave();
}
