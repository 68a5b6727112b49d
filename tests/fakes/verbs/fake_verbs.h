/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A libibverbs in memory. A test that is built with fake_verbs*.c has RDMA devices where the kernel
 * has none: these files define the functions of libibverbs, so the library itself is never reached.
 * All devices of the process are on one wire.
 *
 * It is like rdma-core 44 above; below it follows the InfiniBand specification and, where that
 * leaves room, the stricter of Linux rxe and mlx5:
 *  - QP numbers, keys and handles are those of one device; two devices give out the same ones.
 *  - lkey and rkey of a region differ.
 *  - A place in the send queue is free again when a completion of it, or of one behind it, has been
 *    polled; queues have exactly the size that was asked for.
 *  - RC: the PSNs of both ends must agree (else nobody answers), so must the path MTUs for a
 *    message of several packets, and `max_rd_atomic` must not be above the responder's
 *    `max_dest_rd_atomic` (where a device may go wrong, this one says REM_INV_REQ_ERR at once).
 *  - RC and UC: a request must come from the address that the responder was connected to.
 *  - UC and UD QPs go to SQE after an error of their send queue, RC QPs to ERR.

 *  - ibv_modify_qp() and ibv_create_ah() look for the neighbor: an address that no port on the wire
 *    has is ETIMEDOUT (at once), unless it is link-local.
 *  - Objects that others use are not destroyed (EBUSY), and destroying an object whose events were
 *    not acknowledged, which waits for ever, ends the process with a message after 5 s.
 *
 * It does not imitate time: a message is handled as a whole when it is posted, so most completions
 * are there when ibv_post_send() returns; fake_verbs_hold() is there against tests that rely on
 * it. A thread handles waits (RNR, a peer that does not answer). The first ibv_open_device() starts
 * it and fake_verbs_reset() ends it. Datagrams to a group are lost, and a queue in
 * SQD is never said to be drained.
 *
 * Everything may be called from any thread. Tests call fake_verbs_reset() first and last.
 */
#ifndef FERRULE_TESTS_FAKES_VERBS_FAKE_VERBS_H
#define FERRULE_TESTS_FAKES_VERBS_FAKE_VERBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

enum {
	FAKE_VERBS_PORTS = 2,
	FAKE_VERBS_GIDS = 8,
	FAKE_VERBS_PKEYS = 4,
	FAKE_VERBS_DEVICES = 8,
	FAKE_VERBS_VENDOR = 0x02c9, /* of mlx5 */
};

/* One entry of a GID table; `type` -1: none here. */
struct fake_verbs_gid {
	union ibv_gid gid;
	int type;              /* enum ibv_gid_type */
	uint32_t ndev_ifindex; /* 0: no network interface */
};

struct fake_verbs_port {
	enum ibv_port_state state;
	enum ibv_mtu max_mtu, active_mtu;
	uint8_t link_layer;                 /* IBV_LINK_LAYER_ETHERNET or _INFINIBAND */
	uint8_t active_width, active_speed; /* as ibv_query_port() tells them; 0 is right as well */
	uint16_t lid;                       /* InfiniBand */
	uint32_t max_msg_sz;
	struct fake_verbs_gid gids[FAKE_VERBS_GIDS];
	uint16_t pkeys[FAKE_VERBS_PKEYS]; /* host order; 0: none */
};

/* Properties of a device; fake_verbs_device_init() first. */
struct fake_verbs_device {
	char name[IBV_SYSFS_NAME_MAX];
	const char *sysfs; /* its folder there, such as "/sys/class/infiniband/NAME"; NULL: that */
	enum ibv_node_type node_type;
	enum ibv_transport_type transport_type;
	bool has_verbs_context;   /* off: an old provider, without any of the three below */
	bool has_cq_ex;           /* ibv_create_cq_ex() */
	bool has_qp_ex;           /* ibv_create_qp_ex() with ibv_wr_*() */
	bool has_query_device_ex; /* off: ibv_query_device_ex() asks ibv_query_device() */
	bool has_gid_table;       /* off: an old kernel: EOPNOTSUPP for ibv_query_gid_table/_ex() */
	bool has_iova2;           /* off: an old kernel: optional access flags are taken off */
	bool has_dmabuf;          /* ibv_reg_dmabuf_mr(); any file that mmap() takes will do */
	bool has_peermem;         /* ibv_reg_mr() of memory of tests/fakes/cuda; else EFAULT */
	bool has_mw;              /* memory windows of type 2 */
	bool has_raw;             /* QPs for raw packets */
	bool may_raw;             /* CAP_NET_RAW; off: EPERM for these */
	bool has_flows;           /* rules which frames they get; off: EOPNOTSUPP */
	bool keeps_completions;   /* of a QP that is destroyed or reset, as rxe does */
	bool flushes_late;        /* a QP that is moved to ERR: not before it is destroyed */
	bool is_silent;           /* what asks for too much is refused without an errno */
	bool needs_inline_flag;   /* sends ibv_wr_*() inline where wr_flags say so, as bnxt_re */
	bool lacks_wr_inv;        /* takes IBV_QP_EX_WITH_*_INV, and leaves the functions NULL */
	uint32_t max_inline;      /* bytes; more is EINVAL */
	uint64_t
		wc_flags; /* IBV_WC_EX_WITH_*: what ibv_create_cq_ex() takes; also _CVLAN, then 0 */
	uint64_t send_ops;       /* IBV_QP_EX_WITH_*: what ibv_create_qp_ex() takes */
	uint64_t memlock;        /* bytes that can be registered at a time; more is ENOMEM */
	struct ibv_odp_caps odp; /* registration takes IBV_ACCESS_ON_DEMAND if general_caps do */
	struct ibv_device_attr attr; /* fw_ver, limits, atomic_cap, phys_port_cnt ... */
	uint8_t wc_sl;   /* of a datagram's completion: no service level, with mlx5 and bnxt_re */
	uint16_t wc_tci; /* of its VLAN tag, as ibv_wc_read_cvlan() has it */
	/* phys_port_cnt of them; [0] is port 1. Ports beyond the last entry are like the last
	 * one. */
	struct fake_verbs_port ports[FAKE_VERBS_PORTS];
};

/* Live objects, for leak checks. */
enum fake_verbs_kind {
	FAKE_VERBS_LIST, /* ibv_get_device_list() */
	FAKE_VERBS_CONTEXT,
	FAKE_VERBS_PD,
	FAKE_VERBS_MR,
	FAKE_VERBS_MW,
	FAKE_VERBS_CHANNEL,
	FAKE_VERBS_CQ,
	FAKE_VERBS_SRQ,
	FAKE_VERBS_QP,
	FAKE_VERBS_AH,
	FAKE_VERBS_MCAST, /* attachments */
	FAKE_VERBS_FLOW,
	FAKE_VERBS_KINDS,
};

/* Removes all devices, objects, faults and counters. Nothing of them may be in use any more. */
void fake_verbs_reset(void);

/* A RoCE device of one active port (MTU 4096), that can do everything but ODP; its GIDs are, as
 * with Linux: 0 the link-local address as RoCE v1 and 1 as v2, 2 `ipv4` ("10.0.0.1") as RoCE v1
 * and 3 as v2. `ipv4` NULL: only the first two. The link-local address comes from the name. */
void fake_verbs_device_init(struct fake_verbs_device *device, const char *name, const char *ipv4);
/* Makes it an InfiniBand port: a LID, one GID of the type IB, nothing else. */
void fake_verbs_port_infiniband(struct fake_verbs_port *port, uint16_t lid);
/* Sets an entry from the text of an IPv4 or IPv6 address. */
void fake_verbs_gid_set(struct fake_verbs_gid *entry, const char *address, int type);

/* Plugs the device in: the next ibv_get_device_list() lists it behind earlier ones. */
void fake_verbs_add(const struct fake_verbs_device *device);

/* The n-th call from now of one function (1: the next), named as in the manual ("ibv_create_cq_ex",
 * "ibv_wr_complete"), fails with `err` and does nothing else. Calls of other functions do not
 * count. Several failures can be planned; n = 0 removes those of this function. For ibv_rereg_mr()
 * `err` may also be one of its return values, IBV_REREG_MR_ERR_*. With that of DO_FORK_OLD it
 * changes the region all the same. */
void fake_verbs_fail(const char *function, int n, int err);
/* The n-th call from now of any function that can fail; 0 takes it back. Functions that are called
 * in loops do not count, as their number is random: ibv_poll_cq, ibv_start_poll, ibv_next_poll,
 * ibv_get_cq_event, ibv_get_async_event, ibv_req_notify_cq. Functions that cannot fail
 * (ibv_free_device_list and the like) do not count either. Functions that destroy count; the object
 * then stays. */
void fake_verbs_fail_nth(int n, int err);
/* The same without the functions that destroy: "ibv_d*", "ibv_close_device". */
void fake_verbs_fail_nth_made(int n, int err);
/* Returns the function that failed last because of these, or NULL. */
const char *fake_verbs_failed(void);
/* Returns the calls of this function since the reset, failed ones included; NULL: of all functions
 * that fake_verbs_fail_nth() counts. */
unsigned fake_verbs_calls(const char *function);

/* Blocks calls of this function before they do anything, until another one, or NULL, is named.
 * "ibv_query_qp, done" and "ibv_modify_qp, done" block after the work. "ibv_poll_cq, empty" and
 * "ibv_start_poll, empty" block when no completion was found. */
void fake_verbs_pause(const char *function);
/* Waits until a call is blocked. */
void fake_verbs_wait_paused(void);

/* Returns how many objects of this kind there are; FAKE_VERBS_KINDS: of all kinds. Objects that
 * were left when their device was closed count until the reset. */
unsigned fake_verbs_live(enum fake_verbs_kind kind);
/* Returns "2 QPs, 1 CQ", or "" for none. The next call overwrites the text. */
const char *fake_verbs_leaks(void);

/* Raises an asynchronous event without an object, for everyone who has the device open. After
 * IBV_EVENT_DEVICE_FATAL the device is dead: messages are lost, calls give EIO, and objects can
 * only be destroyed. Destroying gives EIO as well, but the object no longer counts as alive.
 * IBV_EVENT_PORT_ERR and _ACTIVE set the state of the port, too; messages of a port that is down
 * are lost. `port` is 1 or 2; it does not matter for DEVICE_FATAL. */
void fake_verbs_raise(const char *device, enum ibv_event_type type, uint8_t port);
/* Unplugs the device: it is dead as after IBV_EVENT_DEVICE_FATAL, without an event. Its async_fd
 * has hung up. */
void fake_verbs_pull_out(const char *device);
/* Raises an event of one QP: IBV_EVENT_QP_FATAL (the QP goes to ERR), IBV_EVENT_PATH_MIG ... */
void fake_verbs_raise_qp(const char *device, uint32_t qp_num, enum ibv_event_type type);
/* Makes the completion queues that the device has now full for ever. The next completion of each
 * raises IBV_EVENT_CQ_ERR, and all of them are lost. */
void fake_verbs_overrun(const char *device);
/* Replaces an entry of the GID table and raises IBV_EVENT_GID_CHANGE. */
void fake_verbs_change_gid(
	const char *device, uint8_t port, int index, const struct fake_verbs_gid *entry);

/* Changes the MTU of the port's interface. Raise IBV_EVENT_PORT_ACTIVE for it, as mlx5 does. */
void fake_verbs_change_mtu(const char *device, uint8_t port, enum ibv_mtu mtu);

/* Sets whether messages between these devices are lost (both ways; a device and itself as well). */
void fake_verbs_cut(const char *a, const char *b, bool is_cut);
/* The same for all messages from and to one QP. */
void fake_verbs_cut_qp(const char *device, uint32_t qp_num, bool is_cut);
/* Holds all messages where they are, without timeouts, until hold(false). */
void fake_verbs_hold(bool is_held);
/* Lets this many held messages go, oldest QP first. Returns how many went. */
unsigned fake_verbs_step(unsigned messages);
/* Divides the waits of the wire (ACK timeout, RNR timer) by this; 1 after a reset. */
void fake_verbs_hurry(unsigned divisor);

/*
 * Raw packets: the ports of all devices are on one switch, which sends each frame to all ports
 * except the sender's. At a port a frame goes to every matching rule without a trap, then to one
 * with a trap. Without a trap the kernel gets it, too. The layers are Ethernet (not the tag), IPv4,
 * IPv6 (not flow label, class and hop limit) and UDP. While the port has an address of RoCE v2, the
 * NIC takes UDP port 4791 itself, and the frame is lost.
 */
/* Delivers a frame to this port; the NIC found its checksums right or did not check them. Returns
 * whether it goes on to the kernel. */
bool fake_verbs_frame(
	const char *device, uint8_t port, const void *frame, size_t length, bool is_checked);
/* Calls this for each sent frame first, with the lock of all held; false: the frame is lost. NULL
 * ends it. */
void fake_verbs_tap(
	bool (*look)(void *arg, const char *device, const uint8_t *frame, size_t length),
	void *arg);

/* A QP's attributes as its owner set them, for tests without a pointer to it. Returns false if
 * there is none. */
bool fake_verbs_qp_attr(const char *device, uint32_t qp_num, struct ibv_qp_attr *attr);
/* Returns its flags at registration, by the key; 0: no such region. */
unsigned fake_verbs_mr_access(const char *device, uint32_t lkey);
/* Returns the device's view of this address of a region; NULL: not in it. */
uint8_t *fake_verbs_memory(const char *device, uint32_t lkey, uint64_t addr);
/* Counters of the data path since the reset. */
struct fake_verbs_stats {
	uint64_t posts;       /* calls of ibv_post_send() and ibv_wr_complete() */
	uint64_t posted;      /* work requests in them */
	uint64_t wr_api;      /* of these, by ibv_wr_*() */
	uint64_t inlined;     /* of these, inline */
	uint64_t signaled;    /* of these, signaled */
	uint64_t recv_posts;  /* calls of ibv_post_recv() and ibv_post_srq_recv() */
	uint64_t recv_posted; /* work requests in them */
	uint64_t polled;      /* completions taken */
	uint64_t polled_ex;   /* of these, by ibv_start_poll() and ibv_next_poll() */
	uint64_t lost;        /* messages */
};
void fake_verbs_stats(struct fake_verbs_stats *stats);

#endif
