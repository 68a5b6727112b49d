/* SPDX-License-Identifier: BSD-3-Clause */
/* The processes of verbs_peer.c: what its roles share. */
#ifndef FERRULE_TESTS_SYSTEM_DROPIN_VERBS_PEER_H
#define FERRULE_TESTS_SYSTEM_DROPIN_VERBS_PEER_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	MAX_RANKS = 64,
	MESSAGES = 50,
	SIZE = 3000, /* bytes of a message: several packets of the smallest MTU */
};

struct address {
	union ibv_gid gid;
	uint32_t qpn[MAX_RANKS]; /* for each rank */
};

/* In memory that all processes share. */
struct shared {
	struct address ranks[MAX_RANKS];
	atomic_uint arrived; /* at barriers, in all */
	atomic_uint sent;
	union ibv_gid group;
};

extern struct shared *shared;

struct peer {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qps[MAX_RANKS];
	uint8_t *memory; /* for each rank: what is sent to it, and what it sends */
	int rank, n;
};

/* Prints the text and ends the process with status 1. */
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Waits until `n` processes have called it. `round`: counted from 1. */
void barrier(int n, unsigned round);

/* Opens the device, with memory and a queue pair for each of `n` ranks, and publishes them. */
void open_peer(struct peer *peer, int rank, int n);
void close_peer(struct peer *peer);
struct ibv_wc wait_completion(const struct peer *peer);
/* SIZE bytes of the peer's memory. */
uint8_t *outgoing(const struct peer *peer, int to);
uint8_t *incoming(const struct peer *peer, int from);

/* Starts a process. expect_success() waits until it has ended, with status 0. */
pid_t start(void (*role)(int rank, int n), int rank, int n);
void expect_success(pid_t pid);

/* verbs_group.c */
void multicast(int n);

#endif
