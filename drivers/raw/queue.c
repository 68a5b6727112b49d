/* SPDX-License-Identifier: BSD-3-Clause */
/* Host memory, completion queues and the queue pair of a port. */
#include "drivers/raw/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sys/mman.h>

#include "lib/base/error.h"
#include "lib/base/round.h"

int raw_fail(const struct raw_port *port, int err, const char *what)
{
	return verbs_fail(err, "%s: %s", port->name, what);
}

void raw_destroyed(struct raw_port *port, int rc, const char *what)
{
	char text[REASON_SIZE];

	if (!rc || port->is_broken || port->has_left)
		return;
	port->has_left = true;
	snprintf(text, sizeof(text), "%s: %s", port->name, what);
	verbs_warn(verbs_errno(rc), text);
}

/* Computes the slot sizes. A frame that does not fit puts the NIC's queue into an error state.
 * Slots therefore have room for the longest frame that the interface accepts, even if Ferrule's own
 * frames are shorter. */
static void size_slots(struct raw_port *port)
{
	uint32_t longest = port->netdev.mtu + ETH_HEADER + VLAN_TAG;

	if (longest < port->base.caps.max_frame + VLAN_TAG)
		longest = port->base.caps.max_frame + VLAN_TAG;
	port->n_slots = port->wanted.slots ? port->wanted.slots
		: port->wanted.gpu >= 0    ? RAW_FAR_SLOTS
					   : RAW_SLOTS;
	port->n_slots += port->base.caps.max_kept;
	port->near_room = port->wanted.gpu >= 0 ? PORT_SPLIT : longest;
	port->far.room = (uint32_t)round_up(longest - PORT_SPLIT, 64);
	port->slot_size = (uint32_t)round_up(RAW_OFFSET + port->near_room, 64);
	port->spare_size = (uint32_t)round_up(RAW_OFFSET + longest, 64);
	port->tx_size = (uint32_t)round_up(
		PORT_HEADER_ROOM + PORT_TRAILER_ROOM + port->base.caps.max_frame + VLAN_TAG, 64);
}

static int make_memory(struct raw_port *port)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t rx_len = (size_t)port->n_slots * port->slot_size +
		(size_t)port->base.caps.max_kept * port->spare_size;

	port->rx_len = (rx_len + page - 1) / page * page;
	port->memory_len = port->rx_len + (size_t)RAW_TX_SLOTS * port->tx_size;
	/* Shared also with a forked child: otherwise the first write after fork() would move the
	 * process to other pages than the NIC's. */
	port->memory = mmap(
		NULL, port->memory_len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (port->memory == MAP_FAILED) {
		port->memory = NULL;
		return frl_fail(-ENOMEM, "%s: no memory for %zu bytes of packets", port->name,
			port->memory_len);
	}
	errno = 0;
	port->mr = (ibv_reg_mr)(port->pd, port->memory, port->memory_len, IBV_ACCESS_LOCAL_WRITE);
	if (!port->mr)
		return raw_fail(port, verbs_null_errno(),
			"cannot register the memory for packets (slots=N makes it smaller)");
	port->spares = calloc(port->base.caps.max_kept + 1, sizeof(*port->spares));
	if (!port->spares)
		return frl_fail(-ENOMEM, "%s: no memory for a list of buffers", port->name);
	while (port->n_spares < port->base.caps.max_kept) {
		port->spares[port->n_spares] = port->n_slots + port->n_spares;
		port->n_spares++;
	}
	return 0;
}

static int make_cqs(struct raw_port *port)
{
	errno = 0;
	port->rx_cq = ibv_create_cq(port->context, (int)port->n_slots, NULL, NULL, 0);
	if (port->rx_cq)
		port->tx_cq = ibv_create_cq(port->context, RAW_TX_SLOTS, NULL, NULL, 0);
	return port->tx_cq ? 0
			   : raw_fail(port, verbs_null_errno(), "cannot create a completion queue");
}

static int no_qp(const struct raw_port *port, int err)
{
	if (err == EPERM || err == EACCES)
		return frl_fail(-EPERM,
			"%s: raw packets need the capability CAP_NET_RAW: run as root, or `setcap "
			"cap_net_raw+ep` the program",
			port->name);
	if (err == EOPNOTSUPP || err == ENOSYS || err == EINVAL)
		return frl_fail(-ENOTSUP,
			"%s: its driver cannot create a raw-packet queue pair (%u slots, %u "
			"pieces): %s; use mlx5, mlx4, DPDK, or the kernel's interface "
			"(net_af_packet0,iface=%s)",
			port->name, port->n_slots, port->max_sge, frl_strerror(err),
			port->netdev.name);
	return raw_fail(port, err, "cannot create a queue pair for raw packets");
}

static int make_qp(struct raw_port *port)
{
	struct ibv_qp_init_attr attr = { 0 };

	port->max_sge = RAW_MAX_SGE;
	if (port->attr.max_sge < RAW_MAX_SGE)
		port->max_sge = port->attr.max_sge < 1 ? 1 : (uint32_t)port->attr.max_sge;
	attr.qp_type = IBV_QPT_RAW_PACKET;
	attr.send_cq = port->tx_cq;
	attr.recv_cq = port->rx_cq;
	attr.cap.max_send_wr = RAW_TX_SLOTS;
	attr.cap.max_recv_wr = port->n_slots;
	attr.cap.max_send_sge = port->max_sge;
	attr.cap.max_recv_sge = port->far.mr ? 2 : 1;
	errno = 0;
	port->qp = ibv_create_qp(port->pd, &attr);
	return port->qp ? 0 : no_qp(port, verbs_null_errno());
}

static int move_qp(struct raw_port *port)
{
	static const enum ibv_qp_state states[] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };

	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		struct ibv_qp_attr attr = { .qp_state = states[i], .port_num = port->wanted.num };
		int mask = IBV_QP_STATE | (states[i] == IBV_QPS_INIT ? IBV_QP_PORT : 0);
		int rc = ibv_modify_qp(port->qp, &attr, mask);

		if (rc)
			return raw_fail(port, verbs_errno(rc), "cannot start the queue pair");
	}
	return 0;
}

static int post_all(struct raw_port *port)
{
	uint32_t slots[RAW_REPOST], at = 0;

	while (at < port->n_slots) {
		uint32_t n = 0;
		int err;

		while (n < RAW_REPOST && at < port->n_slots)
			slots[n++] = at++;
		err = raw_post_slots(port, slots, n);
		if (err)
			return raw_fail(port, err, "cannot post receives");
	}
	return 0;
}

/* Some of the slots are for frames that are kept, independent of the port's text. */
static int too_many_slots(const struct raw_port *port)
{
	int rest = port->attr.max_qp_wr - (int)port->base.caps.max_kept;

	if (rest < RAW_MIN_SLOTS)
		return frl_fail(-EINVAL,
			"%s has queues of %d slots at most: %u held_frames leave less than %d",
			port->name, port->attr.max_qp_wr, port->base.caps.max_kept, RAW_MIN_SLOTS);
	return frl_fail(-EINVAL, "%s has queues of %d slots at most, not %u: slots=%d", port->name,
		port->attr.max_qp_wr, port->n_slots, rest);
}

int raw_queue_open(struct raw_port *port)
{
	int rc;

	size_slots(port);
	if (port->n_slots > (uint32_t)port->attr.max_qp_wr)
		return too_many_slots(port);
	errno = 0;
	port->pd = ibv_alloc_pd(port->context);
	if (!port->pd)
		return raw_fail(port, verbs_null_errno(), "no protection domain");
	rc = make_memory(port);
	if (!rc && port->wanted.gpu >= 0)
		rc = raw_far_open(port);
	if (!rc)
		rc = make_cqs(port);
	if (!rc)
		rc = make_qp(port);
	if (!rc)
		rc = move_qp(port);
	return rc ? rc : post_all(port);
}

void raw_queue_close(struct raw_port *port)
{
	if (port->qp)
		raw_destroyed(port, ibv_destroy_qp(port->qp), "cannot destroy the queue pair");
	if (port->tx_cq)
		raw_destroyed(port, ibv_destroy_cq(port->tx_cq), "cannot destroy a queue");
	if (port->rx_cq)
		raw_destroyed(port, ibv_destroy_cq(port->rx_cq), "cannot destroy a queue");
	raw_far_close(port);
	raw_mem_forget(port);
	if (port->mr)
		raw_destroyed(port, ibv_dereg_mr(port->mr), "cannot deregister packet memory");
	if (port->pd)
		raw_destroyed(port, ibv_dealloc_pd(port->pd), "cannot free a protection domain");
	if (port->memory)
		munmap(port->memory, port->memory_len);
	free(port->spares);
}
