/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The messages that both ends of a connection exchange at setup. All numbers are little-endian.
 *
 * The handle, which NCCL passes from listen() to connect(), identifies the listener: its control
 * daemon, and its service names, one for each rail. The sender connects one queue pair for each
 * path. The connection request's private data is a hello, and the reply's private data is a
 * welcome.
 */
#ifndef FERRULE_NCCL_SETUP_H
#define FERRULE_NCCL_SETUP_H

#include <stdbool.h>

#include "nccl/comm.h"

enum {
	SETUP_MAGIC = 0x4e4c5246, /* "FRLN" */
	SETUP_VERSION = 1,
	/* The size of an announcement's header, and of each part without the rails' keys. */
	ANNOUNCEMENT_HEAD = 8,
	ANNOUNCEMENT_PART = 20,
};

struct net_handle {
	uint32_t magic;
	uint8_t version, n_rails, n_qps, reserved;
	uint64_t name; /* the listener's random name */
	char daemon_address[FRL_PLACE_SIZE];
	/* Used only by the sender, which owns the handle: the state of connect(). */
	uint64_t state, connection;
};

static_assert(sizeof(struct net_handle) <= NCCL_HANDLE_SIZE, "NCCL carries so much");

struct net_hello {
	uint32_t magic;
	uint8_t version, n_paths, path, n_rails;
	uint64_t connection; /* random, identifies the connection */
};

struct net_welcome {
	uint32_t magic;
	uint8_t version, reserved[3];
};

/* Returns the service name of a listener's rail. */
void net_service_name(uint64_t listener, int rail, char name[FRL_SERVICE_MAX + 1]);

/* Returns how to connect queue pairs on a port. `timeout_ms` limits the setup; `access_flags` are
 * the peer's access rights. */
void net_connect_config(const struct net_port *port, int traffic_class, int timeout_ms,
	uint32_t access_flags, struct frl_connect_config *ret_config);

/* Returns 0, or -EINVAL if the class does not fit into the packet's eight bits; the log has the
 * reason. */
int net_check_class(int traffic_class);

/* connect.c: same as net_connect(), but returns a negative errno on failure. The log has the
 * reason. */
int net_connect_step(struct net_context *context, struct net_device *device, int dev,
	int traffic_class, nccl_profiler_fn profiler, void *handle, struct comm **ret_comm);
/* Aborts the pending setups of a context that ends; NULL: of all contexts. */
void net_connects_end(const struct net_context *context);
/* accept.c: same as net_listen(), but returns a negative errno on failure. `comm_id`: the
 * communicator's ID, or NULL. */
int net_listener_open(struct net_device *device, int dev, int traffic_class,
	const uint64_t *comm_id, void *handle, struct listener **ret_listener);

uint64_t net_random(void);
uint64_t net_now_ns(void);

#endif
