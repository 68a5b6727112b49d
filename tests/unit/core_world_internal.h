/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations that the files of the harness share. */
#ifndef FERRULE_TESTS_CORE_WORLD_INTERNAL_H
#define FERRULE_TESTS_CORE_WORLD_INTERNAL_H

#include "lib/base/random.h"
#include "tests/unit/core_world.h"

enum { TEXT = 256, WORLD_SOCKETS = 64 };

/* A session: of a process, or between two hosts. Side 1 of a local one is the process. */
struct pipe {
	struct pipe *next;
	int host[2];
	uint64_t session[2];
	bool open[2]; /* this side takes messages; of a core: it has been told of the session */
	bool core_closed[2];
	struct process *process;
	uint64_t lost_ns;  /* when what has not arrived yet was first sent; 0: all has */
	uint64_t again_ns; /* when that is sent again: nothing arrives before */
};

enum event_type { EVENT_MESSAGE, EVENT_OPENED, EVENT_CLOSED };

struct event {
	struct event *next;
	enum event_type type;
	uint64_t at_ns;
	struct pipe *pipe;
	int side; /* that it happens to */
	enum core_end end;
	uint8_t *frame;
	size_t size;
};

struct process_mail {
	struct process_mail *next;
	Ctl__Envelope *envelope;
};

struct world_host {
	struct world *world;
	struct config *config;
	bool own_config;
	char name[TEXT];
	struct core *core; /* NULL: the daemon is dead */
	bool refuses;
	bool no_route;
	const char *certificate;
	unsigned warnings;
	char kept[TEXT * 8]; /* for the next daemon */
	char last_warning[TEXT * 2];
};

struct world {
	uint64_t now_ns;
	uint64_t next_session;
	uint64_t next_seq;
	struct random_state random;
	struct world_host hosts[WORLD_HOSTS_MAX];
	int n_hosts;
	bool cut[WORLD_HOSTS_MAX][WORLD_HOSTS_MAX];
	bool stalled[WORLD_HOSTS_MAX][WORLD_HOSTS_MAX];
	struct pipe *pipes;
	struct process *processes;
	bool socket_open[WORLD_SOCKETS]; /* number 1 is the first one */
	unsigned n_sockets;
	int socket_error;
	struct world_page *pages;
	struct event *events;
	struct event *late, **last_late; /* what stalled on its way, in its order */
};

struct event *world_schedule(
	struct world *world, enum event_type type, struct pipe *pipe, int side, uint64_t after_ns);
struct pipe *world_pipe(struct world *world, int host, uint64_t session, int *ret_side);
struct pipe *world_new_pipe(struct world *world);
void world_transmit(
	struct world *world, struct pipe *pipe, int to_side, const Ctl__Envelope *envelope);
void world_close_session(struct world_host *host, uint64_t session);
void world_free_pages(struct world *world);
void process_receive(struct process *process, Ctl__Envelope *envelope);

#endif
