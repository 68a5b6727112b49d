/* SPDX-License-Identifier: BSD-3-Clause */
/* What is behind the public handles. Everything below a device is protected by its guard. */
#ifndef FERRULE_API_OBJECTS_H
#define FERRULE_API_OBJECTS_H

#include <stddef.h>

#include <pthread.h>
#include <stdatomic.h>

#include <ferrule/connect.h>
#include <ferrule/device.h>
#include <ferrule/memory.h>

#include "lib/base/guard.h"
#include "lib/engine/engine.h"

enum { NONCE_SIZE = 16 };

/* A link of the local fabric to one other device. */
struct fabric_link {
	uint8_t peer_nonce[NONCE_SIZE];
	uint16_t link;
};

struct frl_device {
	struct guard guard;
	struct engine engine;
	struct port *port;
	struct frl_device_attr attr;
	uint32_t capabilities; /* enum frl_capability that it offers */
	unsigned objects;      /* protection domains and completion queues */

	/* Local fabric: the socket that holds the address, and what is known of others. */
	int claim_fd;
	uint8_t nonce[NONCE_SIZE];
	struct fabric_link links[PORT_MAX_LINKS];
	unsigned n_links;

	/* Progress thread. */
	bool has_thread;
	pthread_t thread;
	atomic_bool stop;
	atomic_uint polls; /* rounds that the application drove */
};

struct frl_pd {
	struct frl_device *device;
	unsigned objects; /* queue pairs and memory regions */
};

struct frl_mr {
	struct frl_pd *pd;
	struct region region;
};

struct frl_cq {
	struct frl_device *device;
	struct cq core;
	unsigned qps; /* uses of it by queue pairs */
};

struct frl_qp {
	struct engine_qp engine;
	struct frl_pd *pd;
	struct frl_cq *send_cq;
	struct frl_cq *recv_cq;
	void *context;
	struct send_wqe *send_wqes;
	struct recv_wqe *recv_wqes;
	bool has_endpoint; /* frl_qp_endpoint() chose the PSN below */
	uint32_t local_psn;
};

/* Drives the engine one round, with the guard held. Returns how many packets moved. */
uint32_t device_poll(struct frl_device *device);

/* Makes sure that a link to the peer exists, on the local fabric. Returns its number. With the
 * guard held. */
int fabric_link_open(struct frl_device *device, const struct frl_ip *peer_ip,
	const uint8_t peer_mac[6], const uint8_t peer_nonce[NONCE_SIZE]);

/* A connection over the link could not be made: closes it if there is no other. Guard held. */
void fabric_link_release(struct frl_device *device, uint16_t link);

/* Claims an address of 169.254.0.0/16 for a device: a socket whose name the kernel keeps unique and
 * gives back when the process ends. Returns the socket. -EADDRINUSE, or another errno. */
int fabric_claim_address(struct frl_ip *ret_ip, uint8_t ret_mac[6]);

/* "10.1.1.1/24", "fd00::1/64"; without a prefix length it is that of one address. -EINVAL. */
int parse_ip(const char *text, struct frl_ip *ret_ip, uint8_t *ret_prefix_len);
/* For messages; the text is the calling thread's, until its next call. */
const char *format_ip(const struct frl_ip *ip);

#endif
