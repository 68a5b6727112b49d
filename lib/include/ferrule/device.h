/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device: one port with an address of its own that speaks RoCEv2. A software device is the port
 * and an engine that does the protocol; a hardware device is a port of an RDMA NIC (or of Linux'
 * rxe), reached by libibverbs, and does it by itself. Both have the same functions and meanings;
 * frl_device_attr says how they differ.
 *
 * A process that forks goes on using its devices; the child must not use, or close, any of them. It
 * may open devices of its own; ports of DPDK only if its parent has opened none.
 * What is registered with hardware stays the parent's: kernels from 5.12 on give the child a copy,
 * with older ones libibverbs hides the registered pages from it (ibv_fork_init(3)).
 *
 * Who drives the engine is the application's choice: whoever polls (FRL_PROGRESS_INLINE), or also a
 * thread of the library (FRL_PROGRESS_THREAD), so that a passive side answers while its application
 * does something else. Any thread may call any function here.
 */
#ifndef FERRULE_DEVICE_H
#define FERRULE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/error.h>
#include <ferrule/queue.h>

#ifdef __cplusplus
extern "C" {
#endif

enum frl_progress {
	FRL_PROGRESS_AUTO, /* inline on the local fabric, a thread on Ethernet */
	FRL_PROGRESS_INLINE,
	FRL_PROGRESS_THREAD,
};

enum frl_icrc_mode {
	/* On, except between two ends whose link is memory, or whose ports both receive into memory
	 * of a GPU, where it would have to be fetched to be verified (raw:NAME,gpu=N); the checksum
	 * of Ethernet's frames, from each station to the next, stays */
	FRL_ICRC_AUTO,
	FRL_ICRC_ALWAYS, /* on every packet, memory or not */
};

enum { FRL_MAX_HELD_FRAMES = 65536 };

struct frl_device_config {
	/* Name of a fabric of the control daemon (man ferruled.conf), which leases a port on it:
	 * then `port`, `ip` and `gateway` are NULL. NULL or "local": no lease; the next fields say
	 * what it is. */
	const char *fabric;
	/* NULL: the local fabric (every process of this machine, no NIC, no root). An Ethernet
	 * interface of the kernel (docs/packet.md): "packet:eth0". A DPDK port: devargs
	 * ("net_af_packet0,iface=veth0") or a PCI address. A NIC's queue for raw packets
	 * (docs/raw.md): "raw:mlx5_0", "raw:mlx5_0/2,gpu=0,slots=4096". Hardware: "verbs:mlx5_0",
	 * port 2 of a device "verbs:mlx5_0/2", the first that is usable "verbs";
	 * frl_device_list() has the names. */
	const char *port;
	/*
	 * Packets, raw packets and DPDK, required: the port's own addresses, none that the kernel
	 * uses:
	 * "10.1.1.1/24", "fd00::1/64", on VLAN 7 "10.1.7.1/24@7", several as
	 * "10.1.1.1/24,fd00::1/64". They are GIDs 1, 2, ...; the first is the device's main
	 * address.
	 * Hardware: which of the addresses that the kernel has given the interface is the main one,
	 * "10.1.1.1"; NULL: that from which the kernel reaches `peer`, or the first one, IPv4
	 * before IPv6. The others are GIDs, too.
	 * NULL without `port`.
	 */
	const char *ip;
	const char *gateway; /* DPDK: next hop to other subnets, one a family at most, or NULL */
	/* Hardware: an IP address or the name of a host. "verbs" is then the device whose network
	 * interface the kernel reaches it through. NULL: none in particular. */
	const char *peer;
	/* Bytes, a power of two, 256 to 16384; also of the longest datagram. 0, and with a port
	 * more than 4096, which networks do not have: the largest that it carries. But 0 is 4096 on
	 * the local fabric if there are held_frames, each of which has room for any packet. */
	uint32_t path_mtu;
	enum frl_progress progress;
	enum frl_icrc_mode icrc;
	/* Software devices: packet buffers for frl_fragments_create(), besides those that the
	 * device needs itself; 0: none. Some 5 KiB each (with a path MTU of 16384: 17); with a DPDK
	 * port of DPDK's memory, which the first DPDK port makes larger by that unless FRL_EAL_ARGS
	 * has -m; of ports of raw packets twice the interface's MTU. Hardware has none. */
	uint32_t held_frames;
};

/* Fills in the defaults (local fabric, everything automatic) as changed by FRL_* settings. */
FRL_API void frl_device_config_init(struct frl_device_config *config);

/*
 * Opens a device. -EINVAL (a setting), -ENODEV, -EPERM, -ENOMEM, -EMSGSIZE (path MTU larger than
 * the port carries), -EADDRINUSE, -EEXIST (the port is open in this process), -ENOTSUP (DPDK in a
 * child whose parent has opened a DPDK port); of a lease also -ENOENT (no such fabric), -EACCES
 * (not for this user), -EBUSY (all ports leased, or draining), -EDQUOT, -ENOTCONN (no daemon),
 * -ETIMEDOUT; frl_last_error() says what to do.
 */
FRL_API int frl_device_open(const struct frl_device_config *config, struct frl_device **ret_device);

/* -EBUSY while objects of the device exist. NULL is fine. */
FRL_API int frl_device_close(struct frl_device *device);

enum frl_port_state {
	FRL_PORT_DOWN = 1,
	FRL_PORT_ACTIVE = 4,
};

/* A port of hardware. What is not known is 0 or "". */
struct frl_device_info {
	char name[64];       /* for frl_device_config.port: "verbs:mlx5_0" */
	char kind[16];       /* "verbs" */
	char interface[16];  /* the network interface whose addresses it has: "eth0" */
	char pci[16];        /* "0000:3b:00.0"; rxe has none */
	struct frl_ip ip;    /* its main address, unless frl_device_config says otherwise */
	uint32_t path_mtu;   /* bytes, the largest that the port carries now */
	uint64_t speed_mbps; /* of the link */
	enum frl_port_state port_state;
	bool usable;
	bool takes_dmabuf; /* as in struct frl_device_attr; of what is not usable it is not known */
	char reason[256];  /* why it is not usable, and what to do about it; "" if it is */
};

/*
 * All ports of all devices that libibverbs or the kernel knows, usable or not; the array is the
 * caller's: frl_device_list_free(). Where there is none, one entry that is not usable, "verbs",
 * says why. -ENOMEM.
 */
FRL_API int frl_device_list(struct frl_device_info **ret_infos, size_t *ret_n);

/* NULL is fine. */
FRL_API void frl_device_list_free(struct frl_device_info *infos);

struct frl_device_attr {
	char port[64];    /* "ring": the local fabric; devargs, or "verbs:mlx5_0" */
	char fabric[64];  /* that it was leased on, or "" */
	struct frl_ip ip; /* this device's main address: GID 1 */
	uint8_t mac[6];
	uint32_t path_mtu;   /* bytes, the largest a queue pair can use; also of datagrams */
	uint64_t speed_mbps; /* of the link when the device was opened; 0: not known, or none */
	bool lossless;       /* links of this device lose nothing */
	bool local_fabric;
	bool progresses;         /* without calls: by a progress thread, or in hardware */
	bool reduces_on_receive; /* takes receives with FRL_ACTION_REDUCE; hardware does not */
	/* CMP_AND_SWP and FETCH_AND_ADD. Those of hardware are atomic among requests of that device
	 * alone, as a rule: not against the processor's own, nor against another device's. */
	bool has_atomics;
	bool pins_memory;     /* registering takes long: see frl_mr_cache_create() */
	bool takes_dmabuf;    /* frl_reg_dmabuf_mr(): the device, its driver and the kernel can */
	uint32_t held_frames; /* packet buffers for frl_fragments_create(), taken or not */
	enum frl_port_state port_state;
	/* What it can hold; more is refused with an error. */
	uint32_t max_qp, max_qp_wr, max_sge, max_inline;
	uint32_t max_cqe;
	uint32_t max_mr, max_mw; /* software: so many of both together */
	uint64_t max_mr_size;
	uint32_t max_msg_size; /* 2^31; hardware may take less */
	uint32_t max_srq_wr, max_srq_sge;
	uint32_t max_rd_atomic; /* outstanding READs and atomics of a queue pair, each way */
	uint32_t max_mcast_groups, max_mcast_attach; /* groups; queue pairs in all of them */
	uint32_t n_gids, n_pkeys;
};

FRL_API void frl_device_query(struct frl_device *device, struct frl_device_attr *ret_attr);

/* Drives the engine once without looking at a completion queue. Returns packets handled. */
FRL_API int frl_progress(struct frl_device *device);

/*
 * Waiting politely in a loop of one's own: call frl_backoff_idle() when a round found nothing to
 * do and frl_backoff_reset() when it did. Idling spins for a while, then yields the processor, then
 * sleeps up to 100 us at a time, because there may be more processes than processors.
 */
struct frl_backoff {
	uint32_t rounds;
	uint32_t sleep_us;
};

FRL_API void frl_backoff_reset(struct frl_backoff *backoff);
FRL_API void frl_backoff_idle(struct frl_backoff *backoff);

#ifdef __cplusplus
}
#endif
#endif
