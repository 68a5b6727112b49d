/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What both ends of a connection tell each other. All numbers are little-endian.
 *
 * The handle, which NCCL carries from listen() to connect(), says where the listener is: at which
 * control daemon, and under which service names, one for each rail. The sender connects a queue
 * pair for each path; along with each request goes a hello, and along with the answer a welcome.
 */
#ifndef FERRULE_NCCL_SETUP_H
#define FERRULE_NCCL_SETUP_H

#include <stdbool.h>

#include "nccl/comm.h"

enum {
	SETUP_MAGIC = 0x4e4c5246, /* "FRLN" */
	SETUP_VERSION = 1,
	/* An announcement: how it begins, and each part of it but the keys of the rails. */
	ANNOUNCEMENT_HEAD = 8,
	ANNOUNCEMENT_PART = 20,
};

struct net_handle {
	uint32_t magic;
	uint8_t version, n_rails, n_qps, reserved;
	uint64_t name; /* of the listener, random */
	char place[FRL_PLACE_SIZE];
	/* The sender's, who has the handle to himself: what connect() is doing. */
	uint64_t state, connection;
};

static_assert(sizeof(struct net_handle) <= NCCL_HANDLE_SIZE, "NCCL carries so much");

struct net_hello {
	uint32_t magic;
	uint8_t version, n_paths, path, n_rails;
	uint64_t connection; /* random: to tell connections from each other */
};

struct net_welcome {
	uint32_t magic;
	uint8_t version, reserved[3];
};

/* The service of a listener's rail. */
void net_service_name(uint64_t listener, int rail, char name[FRL_SERVICE_MAX + 1]);

/* How queue pairs on a port are connected; `timeout_ms` is for the setting up, and the peer may do
 * what `access_flags` say. */
void net_connect_config(const struct net_port *port, int traffic_class, int timeout_ms,
	uint32_t access_flags, struct frl_connect_config *ret_config);

/* 0, or -EINVAL and the reason in the log: a packet has eight bits for it. */
int net_check_class(int traffic_class);

/* connect.c: as net_connect(); a negative errno, whose reason is in the log. */
int net_connect_step(struct net_context *context, struct net_device *device, int dev,
	int traffic_class, nccl_profiler_fn profiler, void *handle, struct comm **ret_comm);
/* Gives up those of the context, which ends; NULL: all that there are. */
void net_connects_end(const struct net_context *context);
/* accept.c: as net_listen(), likewise. `comm_id`: the communicator's, or NULL. */
int net_listener_open(struct net_device *device, int dev, int traffic_class,
	const uint64_t *comm_id, void *handle, struct listener **ret_listener);

uint64_t net_random(void);
uint64_t net_now_ns(void);

#endif
