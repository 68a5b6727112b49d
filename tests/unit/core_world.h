/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hosts with a daemon's core each, processes and the network between them, in virtual time: what
 * tests of daemon/core run in. Messages go through frame_pack() and frame_unpack() on their way.
 * Everything that is not the core's is decided by the test; nothing happens but in world_run() and
 * world_settle().
 */
#ifndef FERRULE_TESTS_CORE_WORLD_H
#define FERRULE_TESTS_CORE_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/config.h"
#include "daemon/core/core.h"
#include "lib/control/frame.h"

#define WORLD_MS UINT64_C(1000000)
#define WORLD_S  (1000 * WORLD_MS)

enum {
	WORLD_HOSTS_MAX = 8,
	WORLD_LOCAL_NS = 10000,   /* a message of a process takes so long */
	WORLD_REMOTE_NS = 100000, /* one between hosts */
};

struct world;

/* A process, or an operator: the other end of a local session. */
struct process {
	struct world *world;
	int host;
	uint64_t session;
	uint32_t pid;
	uint32_t uid;
	bool is_daemon; /* world_rogue() */
	bool is_deaf;   /* set by the test: it reads nothing of what is sent to it */
	bool ended;     /* the core has closed the session, or its daemon is dead */
	bool hangs;     /* what is sent to it stays in the daemon, which it counts here: */
	size_t unread;
	struct process_mail *first, *last;
	struct process *next;
};

struct world *world_create(uint64_t seed);
/* Destroys the cores too: ASan then sees what they leaked. */
void world_destroy(struct world *world);

/* The configuration of a host that is called `name` and listens. */
struct config *world_config(const char *name);
/* A host with a daemon. `config` is the caller's and lives as long as the world; NULL:
 * world_config(). Other hosts dial it by `name` or by
 * 10.0.0.N, with N the index + 1. Returns its index. */
int world_add_host(struct world *world, const char *name, struct config *config);
struct core *world_core(struct world *world, int host);
uint64_t world_now(const struct world *world);

/* A process of a user that has said Hello, and got the daemon's. Root (uid 0) is an operator. */
struct process *world_process(struct world *world, int host, uint32_t uid, uint32_t pid);
struct process *world_operator(struct world *world, int host, uint32_t uid);
/* One that has said nothing yet; NULL: the core refused the session. */
struct process *world_stranger(struct world *world, int host, uint32_t uid, uint32_t pid);
/* Something at another host that has dialled this one and says what the test likes: a daemon, if it
 * says Hello as one. Its address is 10.9.9.9. */
struct process *world_rogue(struct world *world, int host);
/* After the daemon was started again: a session anew, Hello.resumes. The same struct. */
void process_come_back(struct process *process);
/* It dies: its session ends. */
void process_die(struct process *process);

void process_send(struct process *process, Ctl__Envelope *envelope);
/* An envelope with a message, whose type is that of `body`. */
Ctl__Envelope envelope_of(Ctl__Envelope__BodyCase body, void *message);
/* process_send() and process_call() of a message. */
void process_say(struct process *process, Ctl__Envelope__BodyCase body, void *message);
Ctl__Envelope *process_ask(struct process *process, Ctl__Envelope__BodyCase body, void *message);
/* A page, published now. The world's. */
struct page *world_page(struct world *world, uint32_t slots);
struct page_view world_view(struct world *world, const struct page *page);
/* Hands a page of the world over, as if its descriptor came with the next message. */
void process_page(struct process *process, const struct page *page);
/* The oldest message with such a body, or NULL; the others stay. To be freed by
 * ctl__envelope__free_unpacked(). */
Ctl__Envelope *process_take(struct process *process, Ctl__Envelope__BodyCase body);
/* Any message. */
Ctl__Envelope *process_take_any(struct process *process);
unsigned process_mail(const struct process *process);

/* Sends it with a new seq, settles, and takes the answer with that seq: NULL when there is none. */
Ctl__Envelope *process_call(struct process *process, Ctl__Envelope *envelope);

/* Opens port `number` on the local fabric and describes it, with an address made of host and
 * pid. */
void process_open_port(struct process *process, uint32_t number);
/* The bytes of an endpoint that such a port owns. */
void process_endpoint(const struct process *process, uint32_t number, uint32_t qpn,
	uint8_t endpoint[ENDPOINT_BYTES]);

/* Lets time pass. */
void world_run(struct world *world, uint64_t ns);
/* Runs until no message is under way, for at most 10 s: timers that come due then do not count. */
void world_settle(struct world *world);

/* Nothing passes between the hosts (sessions stay open), and dialling takes 2 s to fail. */
void world_partition(struct world *world, int a, int b, bool cut);
/* Packets between the hosts are lost, but not for so long that the system gives their TCP up: what
 * is sent meanwhile arrives when this is over, in its order. Dialling takes that long as well. */
void world_stall(struct world *world, int a, int b, bool stalled);
/* Ends a stall as TCP does: what was sent to a session arrives with the next retransmission (200 ms
 * after the first try, then 400, 800 ms and so on), and all that follows behind it. A dial is tried
 * every 250 ms. */
void world_retransmit(struct world *world, int a, int b);
/* The host has no route to others: dialling fails at once. */
void world_no_route(struct world *world, int host, bool none);
/* The host lives but nobody listens there: dialling is refused. */
void world_refuse(struct world *world, int host, bool refuse);
/* The daemon dies: all its sessions end. Its processes live. */
void world_kill_daemon(struct world *world, int host);
void world_start_daemon(struct world *world, int host, bool crashed);
/* Ends the TCP sessions between two hosts. */
void world_reset_sessions(struct world *world, int a, int b);
/* Sessions between hosts are TLS, and the peer's certificate is for this name; NULL: no TLS. */
void world_certificate(struct world *world, int host, const char *name);

/* Packet sockets that were opened for leases, so far. They stay until the test closes all. */
unsigned world_sockets(const struct world *world);
void world_close_sockets(struct world *world);
/* A negative errno, with which they are not opened from now on; 0: they are. */
void world_fail_sockets(struct world *world, int error);
/* What the host's daemon has kept for the next one. */
const char *world_kept(const struct world *world, int host);

/* Lines that the host's core has logged at warning or worse: how many, and the last one. */
unsigned world_warnings(const struct world *world, int host);
const char *world_last_warning(const struct world *world, int host);

#endif
