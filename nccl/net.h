/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plugin's core, shared by all versions of NCCL's interface. tables_*.c adapt it to each
 * version. Functions return an enum nccl_result; on failure NCCL's log has the reason.
 *
 *	settings.c        FERRULE_* environment variables
 *	log.c             NCCL's logger
 *	ports.c           finds ports, without opening them
 *	devices.c         NCCL's devices: one port, or several fused ports; opened at first use
 *	gpu.c             which ports accept GPU memory
 *	gpu_resources.c   resources that software ports keep for a GPU until they are closed
 *	unpack.c          receives that stay in packets, which NCCL's kernels unpack
 *	unpack_rule.c     whether NCCL's settings allow this
 *	protocols.c       parses NCCL_PROTO
 *	tuner.c           excluded protocols and costs of NCCL's collectives
 *	tuner_tables.c    the tuner's tables for NCCL
 *	bounce.c          packet buffers, mapped for those kernels
 *	memory.c          registrations
 *	opening.c         the slow part of setup, in a thread
 *	daemon_address.c  the address of this host's control daemon, queried in a thread
 *	setup.c           setup messages, and the configuration of queue pairs
 *	connect.c         setup at the sender
 *	accept.c          setup at the receiver
 *	comm.c            connections: completions, requests, closing
 *	failure.c         connection failures and their reasons
 *	send.c            isend: matching with announcements, RDMA writes
 *	receive.c         irecv: announcements, arrived pieces
 *	profile.c         events for NCCL's profiler
 *	cleanup.c         deferred cleanup, in a thread
 *	thread.c          threads
 *	net.c             start, end, and the entry points
 *
 * Threads. NCCL calls net_init() to net_make_vdevice() from any thread. One thread sets up and
 * closes a connection and registers its memory; another thread makes and tests the connection's
 * requests. Registration is safe to run at the same time. Connections are independent of each
 * other.
 */
#ifndef FERRULE_NCCL_NET_H
#define FERRULE_NCCL_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nccl/api/abi.h"

enum {
	NET_MAX_RAILS = NCCL_V12_DEVICES, /* the most ports of a device */
	NET_MAX_RECEIVES = 8,             /* the most buffers of a grouped receive */
};

struct net_context; /* of one NCCL communicator, since v11 */
struct net_device;
struct listener;
struct comm;
struct registration;
struct request;

/* Properties that all versions share. The strings live as long as the process. */
struct net_properties {
	char *name;
	char *pci_path; /* NULL: none */
	uint64_t guid;
	int port;
	int speed_mbps;
	int max_comms;
	int pointers;     /* NCCL_PTR_* */
	bool needs_flush; /* received data in GPU memory needs a flush, on any of the GPUs */
	bool unpacks;     /* NCCL's kernels may unpack receives, if NCCL's version can */
	int n_rails;
	int rails[NET_MAX_RAILS]; /* device indices; a device not fused: its own */
};

struct net_config {
	int traffic_class; /* NCCL_TRAFFIC_CLASS_UNDEFINED: the device's default */
	uint64_t comm_id;  /* for net_init(): the ID of the communicator */
};

/* The memory of a message, which `registration` covers. */
struct net_buffer {
	void *data;
	size_t size;
	int tag;
	struct registration *registration;
	void *parent;     /* for the profiler's events, or NULL */
	bool is_optional; /* NCCL polls flags in the data, so it does not need the completion */
};

/*
 * Finds the devices, unless an earlier call succeeded. `profiler` may be NULL. If `config` is NULL,
 * defaults apply. *ret_context is for net_listen() and net_connect(); ret_context may be NULL.
 */
int net_init(const struct net_config *config, nccl_log_fn log, nccl_profiler_fn profiler,
	struct net_context **ret_context);
/* Frees a context and aborts its pending connection setups. The last call waits until all
 * connections are closed, then closes the ports that no connection uses. */
int net_finalize(struct net_context *context);

/*
 * Warns of a bug in NCCL 2.28.3 to 2.29.7: NCCL forgets NCCL_NET_PLUGIN with the last communicator,
 * and loads libnccl-net.so for the next one. Warns if that is not the file that contains `table`.
 */
void net_warn_of_name(const struct nccl_net_v11 *table);

int net_devices(int *ret_n);
int net_properties(int dev, struct net_properties *ret_properties);
/* Fuses `n` devices into a new one. None of them may be a fused device. */
int net_make_vdevice(int *ret_dev, const int *devices, int n);

/* `config` overrides the context's configuration. `context` may be NULL. */
int net_listen(struct net_context *context, int dev, void *handle, struct listener **ret_listener);
/* Never blocks. If *ret_comm is NULL, call again with the same handle, which keeps the state. The
 * setup waits for a late accept() while the caller keeps calling and the peer's process exists. */
int net_connect(struct net_context *context, const struct net_config *config, int dev, void *handle,
	struct comm **ret_comm);
/* Never blocks. If *ret_comm is NULL, call again. */
int net_accept(struct listener *listener, struct comm **ret_comm);
/* For an accepted connection: requests that NCCL's kernels unpack its receives. Returns NULL if
 * they cannot. Otherwise returns a handle that is valid as long as the connection. */
struct nccl_device_handle_v7 *net_unpack_offer(struct comm *comm);
int net_close_listen(struct listener *listener);
/* Does not block. Aborts pending requests; they must not be tested any more. */
int net_close(struct comm *comm);

/* `type`: NCCL_PTR_HOST; or, if the device supports them, NCCL_PTR_CUDA, and NCCL_PTR_DMABUF with a
 * descriptor. Safe to call while requests are pending. */
int net_register(struct comm *comm, void *data, size_t size, int type,
	struct registration **ret_registration);
/* Makes received data in this memory visible to running kernels. Takes some microseconds; does
 * nothing if no flush is needed. NULL is allowed. */
int net_flush(const struct registration *registration);
/* Fails all connections whose pending requests still use the memory (NCCL has abandoned such
 * requests), even if another connection registered it. */
int net_deregister(struct registration *registration);

/* If *ret_request is NULL, there is no room now: call again. */
int net_send(struct comm *comm, const struct net_buffer *buffer, struct request **ret_request);
/*
 * Receives one message into each of the `n` buffers, matched by tag. The request completes when all
 * messages have arrived.
 */
int net_receive(
	struct comm *comm, int n, const struct net_buffer *buffers, struct request **ret_request);
/* Drives the connection. If *ret_done is set, the request has completed and is freed, and `sizes`
 * (may be NULL) has the bytes of each message. A receive that NCCL's kernels unpack lives until
 * net_consumed(). */
int net_test(struct request *request, int *ret_done, int *sizes);
/* Reports that NCCL's kernel has read a whole receive. Ignores receives that are not unpacked, even
 * if the request is already freed. */
int net_consumed(struct comm *comm, const void *request);

#endif
