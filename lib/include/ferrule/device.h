/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device: one port with its own address that speaks RoCEv2. A software device is a port and an
 * engine that runs the protocol. A hardware device is a port of an RDMA NIC (or of Linux' rxe),
 * used through libibverbs; the NIC runs the protocol. Both have the same functions and meanings.
 * frl_device_attr lists the differences.
 *
 * After fork() the parent continues to use its devices. The child must not use or close any of
 * them. It may open its own devices, but DPDK ports only if its parent has opened none. Memory that
 * is registered with hardware stays the parent's: kernels from 5.12 on give the child a copy; with
 * older kernels libibverbs hides the registered pages from the child (ibv_fork_init(3)).
 *
 * The application chooses who drives the engine: the polling thread (FRL_PROGRESS_INLINE), or also
 * a thread of the library (FRL_PROGRESS_THREAD), so that a passive side answers while its
 * application does other work.
 *
 * Threads: any thread may call any function here.
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
	FRL_PROGRESS_AUTO, /* the polling thread on the local fabric, a library thread on Ethernet
			    */
	FRL_PROGRESS_INLINE,
	FRL_PROGRESS_THREAD,
};

enum frl_icrc_mode {
	/*
	 * Packets have an ICRC, except on a link that is memory, and between two ports that both
	 * receive into GPU memory (raw:NAME,gpu=N), where the check would have to fetch the
	 * payload. Ethernet's frame checksum remains on each hop.
	 */
	FRL_ICRC_AUTO,
	FRL_ICRC_ALWAYS, /* all packets have an ICRC */
};

enum { FRL_MAX_HELD_FRAMES = 65536 };

struct frl_device_config {
	/*
	 * A fabric of the control daemon (man ferruled.conf), which leases a port on it; `port`,
	 * `ip` and `gateway` must then be NULL. NULL or "local": no lease; the next fields select
	 * the port.
	 */
	const char *fabric;
	/*
	 * The port:
	 * - NULL: the local fabric (all processes of this machine, no NIC, no root).
	 * - "packet:eth0": an Ethernet interface of the kernel (the guide's page
	 *   "Ethernet interfaces of the kernel").
	 * - "net_af_packet0,iface=veth0" (devargs), or a PCI address: a DPDK port.
	 * - "raw:mlx5_0", "raw:mlx5_0/2,gpu=0,slots=4096": a NIC's queue for raw packets
	 *   (the guide's page "Ports of raw packets").
	 * - "verbs:mlx5_0", "verbs:mlx5_0/2" (port 2): hardware. "verbs": the first usable device.
	 *   frl_device_list() returns the names.
	 */
	const char *port;
	/*
	 * Packets, raw packets and DPDK, required: the port's own addresses, which the kernel must
	 * not use: "10.1.1.1/24", "fd00::1/64", on VLAN 7 "10.1.7.1/24@7", several as
	 * "10.1.1.1/24,fd00::1/64". They are GIDs 1, 2, ...; the first is the device's main
	 * address.
	 *
	 * Hardware: selects the main address, "10.1.1.1", among the addresses that the kernel has
	 * given the interface. NULL: the address from which the kernel reaches `peer`, or the first
	 * one, IPv4 before IPv6. The other addresses are GIDs too.
	 *
	 * Must be NULL without `port`.
	 */
	const char *ip;
	const char *gateway; /* DPDK: next hop to other subnets, at most one per family; or NULL */
	/*
	 * Hardware: an IP address or a host name. "verbs" is then the device on the kernel's route
	 * to that host. NULL: no preference.
	 */
	const char *peer;
	/*
	 * Bytes, a power of two, 256 to 16384; also the limit of a datagram. 0: the largest MTU
	 * that the port carries. With a port, values above 4096 also mean the largest, because
	 * networks carry no more. On the local fabric 0 is 4096 if there are held_frames, because
	 * each of them has room for the largest packet.
	 */
	uint32_t path_mtu;
	enum frl_progress progress;
	enum frl_icrc_mode icrc;
	/*
	 * Software devices: number of packet buffers for frl_fragments_create(), in addition to the
	 * device's own; 0: none. Hardware has none. A buffer takes about 5 KiB (17 KiB with a path
	 * MTU of 16384), and with raw packets twice the interface's MTU. With a DPDK port it is
	 * DPDK memory, which the first DPDK port enlarges for it, unless FRL_EAL_ARGS has -m.
	 */
	uint32_t held_frames;
};

/* Fills in the defaults (local fabric, everything automatic), then applies the FRL_* settings. */
FRL_API void frl_device_config_init(struct frl_device_config *config);

/*
 * Opens a device. `config` is copied. Close it with frl_device_close(). On failure frl_last_error()
 * says what to do. Returns -EINVAL (a setting), -ENODEV, -EPERM, -ENOMEM, -EMSGSIZE (path MTU
 * larger than the port carries), -EADDRINUSE, -EEXIST (the port is open in this process) or
 * -ENOTSUP (DPDK in a child whose parent has opened a DPDK port). A lease also returns -ENOENT (no
 * such fabric), -EACCES (not for this user), -EBUSY (all ports leased, or draining), -EDQUOT,
 * -ENOTCONN (no daemon) or -ETIMEDOUT.
 */
FRL_API int frl_device_open(const struct frl_device_config *config, struct frl_device **ret_device);

/* Closes a device. NULL is fine. Returns -EBUSY while objects of the device exist. */
FRL_API int frl_device_close(struct frl_device *device);

enum frl_port_state {
	FRL_PORT_DOWN = 1,
	FRL_PORT_ACTIVE = 4,
};

/* A hardware port. Unknown values are 0 or "". */
struct frl_device_info {
	char name[64];       /* for frl_device_config.port: "verbs:mlx5_0" */
	char kind[16];       /* "verbs" */
	char interface[16];  /* the network interface with its addresses: "eth0" */
	char pci[16];        /* "0000:3b:00.0"; empty for rxe */
	struct frl_ip ip;    /* its main address, unless frl_device_config selects another */
	uint32_t path_mtu;   /* bytes, the port's present maximum */
	uint64_t speed_mbps; /* speed of the link */
	enum frl_port_state port_state;
	bool usable;
	bool takes_dmabuf; /* as in struct frl_device_attr; unknown for an unusable port */
	char reason[256];  /* why it is unusable, and what to do; "" if usable */
};

/*
 * Lists all ports of all devices that libibverbs or the kernel knows, usable or not. The caller
 * owns the array and frees it with frl_device_list_free(). If there is no port, the list has one
 * unusable entry, "verbs", whose reason says why. Returns -ENOMEM on failure.
 */
FRL_API int frl_device_list(struct frl_device_info **ret_infos, size_t *ret_n);

/* Frees a list. NULL is fine. */
FRL_API void frl_device_list_free(struct frl_device_info *infos);

struct frl_device_attr {
	char port[64];    /* "ring": the local fabric; devargs, or "verbs:mlx5_0" */
	char fabric[64];  /* the fabric of its lease, or "" */
	struct frl_ip ip; /* this device's main address: GID 1 */
	uint8_t mac[6];
	uint32_t path_mtu;   /* bytes, the largest a queue pair can use; also of datagrams */
	uint64_t speed_mbps; /* of the link when the device was opened; 0: unknown, or no link */
	bool lossless;       /* the device's links lose no packets */
	bool local_fabric;
	bool progresses;         /* without calls of the application: by a progress thread, or in
				  * hardware */
	bool reduces_on_receive; /* supports FRL_ACTION_REDUCE; hardware does not */
	/*
	 * CMP_AND_SWP and FETCH_AND_ADD. Hardware atomics are usually atomic only among requests of
	 * that device, not with the processor or with other devices.
	 */
	bool has_atomics;
	bool pins_memory;     /* registration is slow: see frl_mr_cache_create() */
	bool takes_dmabuf;    /* frl_reg_dmabuf_mr() works with the device, its driver and the
			       * kernel */
	uint32_t held_frames; /* packet buffers for frl_fragments_create(), free or taken */
	enum frl_port_state port_state;
	/* Limits of the device; requests beyond them return an error. */
	uint32_t max_qp, max_qp_wr, max_sge, max_inline;
	uint32_t max_cqe;
	uint32_t max_mr, max_mw; /* software: the sum of both */
	uint64_t max_mr_size;
	uint32_t max_msg_size; /* 2^31; hardware may take less */
	uint32_t max_srq_wr, max_srq_sge;
	uint32_t max_rd_atomic; /* outstanding READs and atomics of a queue pair, in each direction
				 */
	uint32_t max_mcast_groups, max_mcast_attach; /* groups; queue pairs in all of them */
	uint32_t n_gids, n_pkeys;
};

/* Copies the attributes of a device. */
FRL_API void frl_device_query(struct frl_device *device, struct frl_device_attr *ret_attr);

/*
 * Drives the engine once without reading a completion queue. Returns the number of packets handled.
 */
FRL_API int frl_progress(struct frl_device *device);

/*
 * Backoff for polling loops. Call frl_backoff_idle() after a round without work, and
 * frl_backoff_reset() after a round with work. Idling spins for a while, then yields the processor,
 * then sleeps up to 100 us at a time, because there may be more processes than processors.
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
