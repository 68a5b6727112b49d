/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The queue of notices, which frl_comm_next_done() reports: about detached requests, and those of
 * frl_comm_post_done(). Memory for a notice is reserved when its request is detached.
 */
#ifndef FERRULE_COLLECTIVES_API_NOTICES_H
#define FERRULE_COLLECTIVES_API_NOTICES_H

#include <stdbool.h>
#include <stdint.h>

struct frl_comm;

struct notice {
	struct notice *next;
	uint64_t id;
	int err; /* 0, or the error of the communicator */
};

void notices_init(struct frl_comm *comm);
/* Closes the descriptor. */
void notices_close(struct frl_comm *comm);
/* Also frees notices that were not taken. */
void notices_free(struct frl_comm *comm);

/* Any thread. notices_take() returns NULL if there is none; the caller frees the notice. */
bool notices_are_waiting(const struct frl_comm *comm);
void notices_push(struct frl_comm *comm, struct notice *notice);
struct notice *notices_take(struct frl_comm *comm);

#endif
