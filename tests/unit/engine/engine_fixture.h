/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An engine over a fake port, with queue pairs in RTS towards a peer that the test plays, towards
 * another host, or towards the host itself.
 */
#ifndef FERRULE_TESTS_UNIT_ENGINE_ENGINE_FIXTURE_H
#define FERRULE_TESTS_UNIT_ENGINE_ENGINE_FIXTURE_H

#include <check.h>

#include "lib/engine/engine.h"
#include "tests/fakes/fake_port.h"

enum {
	HOST_QPS = 12,
	HOST_QUEUE = 128, /* requests of a queue */
	HOST_CQ = 256,
	HOST_MEMORY = 65536,
	HOST_MTU = 256,       /* of connections */
	HOST_PORT_MTU = 4096, /* of datagrams */
	HOST_RQ_PSN = 1000,   /* what the peer sends first */
	HOST_SQ_PSN = 2000,
	HOST_PEER_QPN = 0x500, /* and the next ones for the next queue pairs */
	HOST_FILL = 0x5a,      /* of the memory */
	HOST_QKEY = 0x11111,
	HOST_VLAN = 10, /* that of tagged frames in tests/vectors/frame.h */
};

/* GIDs, all of MAC mac_b; those of the second host end in 1 and have mac_a, as the peer does. */
enum {
	HOST_GID_LINK_LOCAL,
	HOST_GID_V4,      /* 10.9.0.2/24 */
	HOST_GID_V6,      /* fd09::2/64 */
	HOST_GID_VLAN_V4, /* the same ones on HOST_VLAN */
	HOST_GID_VLAN_V6,
	HOST_GIDS,
};

struct host_qp {
	struct engine_qp qp;
	void *storage;
};

struct host {
	struct fake_port port;
	struct engine engine;
	struct cq cqs[HOST_QPS]; /* number i is queue pair i's, unless a test says otherwise */
	struct frl_wc wcs[HOST_QPS][HOST_CQ];
	struct host_qp qps[HOST_QPS];
	_Alignas(64) uint8_t memory[HOST_MEMORY];
	struct region region;
	int pd;
	uint64_t now_ns;
};

struct host_config {
	bool on_demand;
	bool in_place;
	bool second; /* the other end of the network */
};

struct host *host_new(const struct host_config *config);
void host_free(struct host *host);

/* Zero means the default that stands behind it. */
struct host_qp_config {
	enum frl_qp_type type; /* RC */
	uint16_t link;
	uint32_t capabilities;
	struct cq *send_cq, *recv_cq; /* its own */
	bool unlimited_retry;
	uint8_t sgid_index;  /* HOST_GID_V4 */
	struct frl_ip dgid;  /* the peer's of that family */
	const uint8_t *dmac; /* the peer's */
	uint8_t sl;
	bool resolve;      /* dmac is not given */
	uint32_t dest_qpn; /* HOST_PEER_QPN and the queue pair's number here */
	uint32_t psn;      /* both ways: HOST_RQ_PSN and HOST_SQ_PSN */
	uint32_t path_mtu; /* HOST_MTU */
};

/* Adds queue pair `i` in RTS, or in RESET and then takes it to RTS. `config` may be NULL. */
struct engine_qp *host_add(struct host *host, unsigned i, const struct host_qp_config *config);
struct engine_qp *host_create(struct host *host, unsigned i, const struct host_qp_config *config);
void host_connect(struct host *host, unsigned i, const struct host_qp_config *config);
/* The attributes that host_connect() gives it, and the mask for the step to `state`. */
struct frl_qp_attr host_attr(unsigned i, const struct host_qp_config *config);
uint32_t host_mask(enum frl_qp_type type, enum frl_qp_state state);
/* engine_modify_qp(); the reason of a failure is in `why`, which may be NULL. */
int host_modify(struct host *host, unsigned i, const struct frl_qp_attr *attr, uint32_t mask,
	const char **why);

/* Queue pairs `i` and `k`, connected with each other: over loopback if the hosts are the same. Only
 * the part of `config` about both of them counts. */
void host_pair(struct host *a, unsigned i, struct host *b, unsigned k,
	const struct host_qp_config *config);

/* engine_add_qp() of one to which nothing is posted: all of these share their storage. */
int host_add_small(struct host *host, struct engine_qp *qp, enum frl_qp_type type);

void host_attach(struct host *host, unsigned i, const struct frl_ip *group);
/* engine_detach() */
int host_detach(struct host *host, unsigned i, const struct frl_ip *group);

void host_poll(struct host *host);
/* Carries all frames since the last call to the other host. Returns how many. */
uint32_t host_carry(struct host *from, struct host *to);
/* Polls both once, a microsecond later, and carries their frames. Returns how much was done. */
uint32_t host_step(struct host *a, struct host *b);
/* Polls both until nothing moves. */
void host_settle(struct host *a, struct host *b);

/* Receives `length` bytes at `offset` of the memory. */
void host_post_recv(
	struct host *host, unsigned i, uint64_t wr_id, uint32_t offset, uint32_t length);
/* Sends as much, signaled, with further `flags`. */
void host_post_send(struct host *host, unsigned i, uint64_t wr_id, uint32_t length, uint32_t flags);
/* Any request with `length` bytes at `offset` of the memory; `ah` for datagrams. */
void host_post(struct host *host, unsigned i, struct frl_send_wr wr, uint32_t offset,
	uint32_t length, const struct engine_ah *ah);
/* The peer acknowledges everything up to that PSN (counted from HOST_SQ_PSN), in a frame. */
void host_acknowledge(struct host *host, unsigned i, uint32_t psn, bool has_icrc);

/* The packet that was sent as number `k`, decoded (not trimmed: the ICRC counts); and its whole
 * frame, where `frame` is not NULL. Valid until the next call. */
const struct wire_packet *host_sent(const struct host *host, uint32_t k, const uint8_t **frame);

/* The next completion; then none, with -1. */
void host_expect_wc(struct cq *cq, uint64_t wr_id, enum frl_wc_status status);
void host_expect_no_wc(struct cq *cq);

#endif
