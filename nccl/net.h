/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plugin itself, once for all versions of NCCL's interface: tables_*.c put it into the form of
 * each. Functions return an enum nccl_result; what went wrong is in NCCL's log by then.
 *
 *	settings.c   FERRULE_* of the environment
 *	log.c        NCCL's logger
 *	ports.c      which ports there are, without touching them
 *	devices.c    devices of NCCL: a port, or several that are fused; opened when first used
 *	gpu.c        which of them take memory of GPUs
 *	hold.c       what software ports keep for a GPU until they are closed
 *	unpack.c     receives that stay in packets, which NCCL's kernels unpack
 *	unpack_rule.c  whether NCCL's settings allow that; protocols.c what NCCL_PROTO says
 *	tuner.c      what NCCL's collectives must not use, and costs; tuner_tables.c for NCCL
 *	bounce.c     what those kernels see of packet buffers
 *	memory.c     registrations
 *	opening.c    what is slow when a port is first used, in a thread
 *	place.c      where this host's services are found, which is asked for in a thread
 *	setup.c      what both ends tell each other, and the making of a connection's queue pairs
 *	connect.c    the sender's end of setting up; accept.c the receiver's
 *	comm.c       connections: completions, requests, failures, the end
 *	send.c       isend: matching with what the receiver has announced, and the writes
 *	receive.c    irecv: announcing, and what has arrived
 *	reaper.c     what is to be ended later, in a thread; thread.c: threads
 *	net.c        all of this, joined
 *
 * Threads. NCCL calls net_init() to net_make_vdevice() from any thread; a connection is set up,
 * closed and its memory registered by one thread, and its requests are made and tested by another:
 * registration is safe beside them. Different connections know nothing of each other.
 */
#ifndef FERRULE_NCCL_NET_H
#define FERRULE_NCCL_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nccl/abi.h"

enum {
	NET_MAX_RAILS = NCCL_V12_DEVICES, /* ports that a device is made of */
	NET_MAX_RECEIVES = 8,             /* of a grouped receive */
};

struct net_context; /* of one communicator of NCCL's, from v11 on */
struct net_device;
struct listener;
struct comm;
struct registration;
struct request;

/* What the versions have in common; strings live as long as the process. */
struct net_properties {
	char *name;
	char *pci_path; /* NULL: it has none */
	uint64_t guid;
	int port;
	int speed_mbps;
	int max_comms;
	int pointers;     /* NCCL_PTR_* */
	bool needs_flush; /* what has come to memory of a GPU is to be flushed on any GPU */
	bool unpacks;     /* NCCL's kernels may unpack what comes, if its version can */
	int n_rails;
	int rails[NET_MAX_RAILS]; /* devices; of one that is not fused: itself */
};

struct net_config {
	int traffic_class; /* NCCL_TRAFFIC_CLASS_UNDEFINED: the device's default */
	uint64_t comm_id;  /* for net_init(): the communicator */
};

/* A message's memory; `registration` covers it. */
struct net_buffer {
	void *data;
	size_t size;
	int tag;
	struct registration *registration;
	void *parent;     /* of the profiler's events, or NULL */
	bool is_optional; /* NCCL looks at flags in the data, and need not be told of the end */
};

/*
 * Looks for devices; the first call that succeeds does. `profiler` NULL: none. With `config` NULL:
 * defaults; *ret_context (may be NULL) is what net_listen() and net_connect() want to have.
 */
int net_init(const struct net_config *config, nccl_log_fn log, nccl_profiler_fn profiler,
	struct net_context **ret_context);
/* Connections that are being set up for the context are given up. The last one waits for what is
 * still being closed; then the ports are closed, if no connection uses them. */
int net_finalize(struct net_context *context);

/*
 * NCCL 2.28.3 to 2.29.7 forgets NCCL_NET_PLUGIN with the last communicator and opens the next one's
 * network as libnccl-net.so. Warns where that is another file than the one with `table`.
 */
void net_warn_of_name(const struct nccl_net_v11 *table);

int net_devices(int *ret_n);
int net_properties(int dev, struct net_properties *ret_properties);
/* Fuses `n` devices, none of them fused, to a further one. */
int net_make_vdevice(int *ret_dev, const int *devices, int n);

/* `config` overrides the context's, which may be NULL. */
int net_listen(struct net_context *context, int dev, void *handle, struct listener **ret_listener);
/* Never blocks: *ret_comm NULL means to call again with the same handle, which keeps the state. As
 * long as that is done, and the peer's process is there, a late accept() is waited for. */
int net_connect(struct net_context *context, const struct net_config *config, int dev, void *handle,
	struct comm **ret_comm);
/* As well: *ret_comm NULL means to call again. */
int net_accept(struct listener *listener, struct comm **ret_comm);
/* For a connection that was accepted: NCCL's kernels are to unpack what comes. NULL: they cannot;
 * else what NCCL looks at as long as the connection is there. */
struct nccl_device_handle_v7 *net_unpack_offer(struct comm *comm);
int net_close_listen(struct listener *listener);
/* Does not block; requests that are under way are given up, and none of them may be tested. */
int net_close(struct comm *comm);

/* `type`: NCCL_PTR_HOST; NCCL_PTR_CUDA, or with a descriptor NCCL_PTR_DMABUF, if the device takes
 * that. Safe beside requests. */
int net_register(struct comm *comm, void *data, size_t size, int type,
	struct registration **ret_registration);
/* What has come to this memory before is seen by kernels that run already, when this returns: some
 * microseconds, and nothing at all where no flush is needed. NULL is fine. */
int net_flush(const struct registration *registration);
/* Connections whose requests still use it (NCCL has given them up) fail, whoever has registered. */
int net_deregister(struct registration *registration);

/* *ret_request NULL: not now, call again. */
int net_send(struct comm *comm, const struct net_buffer *buffer, struct request **ret_request);
/*
 * Receives one message for each of the `n` buffers, by tags: the request is done when all have
 * come.
 */
int net_receive(
	struct comm *comm, int n, const struct net_buffer *buffers, struct request **ret_request);
/* Drives the connection. *ret_done: the request is over and freed, and `sizes` (may be NULL) has
 * the bytes of each message. One that NCCL's kernels unpack stays until net_consumed(). */
int net_test(struct request *request, int *ret_done, int *sizes);
/* NCCL's kernel has all that came with a receive. Of any other there is nothing to do, be it a
 * request any more or not. */
int net_consumed(struct comm *comm, const void *request);

#endif
