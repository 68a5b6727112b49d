/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The knowledge and the decisions of ferruled, without I/O but for reading pages, which never waits
 * (lib/control/page.h): messages and time come in; messages, closed sessions, dialled hosts and one
 * deadline come out. No socket, clock, thread, log file or getenv; it allocates, for it is in no
 * data path. The I/O around it is daemon/loop.c; tests join several cores by queues, in virtual
 * time.
 *
 * A session is one stream: of a process or an operator over the Unix socket, or of another daemon.
 * The core names what it wants done through struct core_ops, also from within its own functions:
 * the ops must not call back into the core.
 *
 * One thread.
 */
#ifndef FERRULE_DAEMON_CORE_CORE_H
#define FERRULE_DAEMON_CORE_CORE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "daemon/config.h"
#include "lib/control/control.pb-c.h"
#include "lib/control/page.h"

struct core;

#define CORE_NEVER UINT64_MAX

enum core_log { CORE_LOG_ERROR, CORE_LOG_WARNING, CORE_LOG_INFO, CORE_LOG_DEBUG };

/* The packet socket of a lease. */
struct core_socket {
	const char *port; /* "packet:eth0" */
	const struct frl_ip *addresses;
	uint32_t n_addresses;
	uint16_t vlan;      /* 0: untagged */
	const uint8_t *mac; /* that no other lease has; NULL: the interface's */
};

struct core_ops {
	/* Sends a message; it is packed before this returns. What cannot be sent closes the session
	 * later on. */
	void (*send)(void *ctx, uint64_t session, const Ctl__Envelope *envelope);
	/* Ends a session, once what was sent to it has left (for a second at most).
	 * core_closed() is not called for it. */
	void (*close)(void *ctx, uint64_t session);
	/* Makes a connection to another daemon, for this user. Answered by core_opened() with this
	 * `session`, or by core_closed() with the reason; the number is the core's, with
	 * CORE_DIALLED set. `address`: numeric, is used instead of looking `host` up; or
	 * NULL. */
	void (*dial)(void *ctx, uint64_t session, const char *host, const char *address,
		uint16_t port, uid_t uid);
	/* A line for the log, never with private data, endpoints' nonces or keys. */
	void (*log)(void *ctx, enum core_log level, const char *line);
	/* 64 random bits that nobody can guess. */
	uint64_t (*random)(void *ctx);
	/* Bytes that were sent to a session and have not left yet. */
	size_t (*queued)(void *ctx, uint64_t session);
	/* Returns true if TCP retransmits over and over what was sent to another daemon. Its next
	 * try may be as far away as its first one is ago. */
	bool (*is_stuck)(void *ctx, uint64_t session);
	/* Opens a packet socket, whose descriptor goes with the next message to the session, and
	 * names it in *ret_id. A negative errno with a sentence in `why`: with -EPERM processes
	 * open their sockets themselves, with others the lease is of no use. */
	int (*open_socket)(void *ctx, uint64_t session, const struct core_socket *wanted,
		uint64_t *ret_id, char *why, size_t size);
	/* Does any process still have such a socket? */
	bool (*has_socket)(void *ctx, uint64_t id);
	/* Keeps a text for core_restore() of the next daemon, instead of the last one; "": none. */
	void (*keep)(void *ctx, const char *text);
	void *ctx;
};

#define CORE_DIALLED (UINT64_C(1) << 63) /* session numbers of dial(); others are the caller's */

enum core_session_kind {
	CORE_LOCAL, /* over the Unix socket */
	CORE_PEER,  /* another daemon's, which dialled this one */
	CORE_PEER_DIALLED,
};

struct core_session_info {
	enum core_session_kind kind;
	uid_t uid; /* CORE_LOCAL: of the socket's other end, as the next ones */
	gid_t gids[64];
	size_t n_gids;
	pid_t pid;
	const char *program; /* as the system tells it, or NULL */
	const char *address; /* peers: numeric, without the port */
	bool tls;
	/* With TLS: does the peer's certificate stand for this name? (Wrong: it is refused.) */
	bool (*certified)(void *ctx, uint64_t session, const char *name);
};

enum core_end {
	CORE_END_CLOSED,      /* by the other side: FIN or RST */
	CORE_END_REFUSED,     /* dial: nobody listens there; its host is alive */
	CORE_END_UNREACHABLE, /* dial: no answer, no route, no such name */
	CORE_END_BAD,         /* what it sent was no message, or too long, or took too long */
	CORE_END_TLS,         /* the handshake failed; the text says why */
};

/* `config` stays the caller's and is not looked at after core_configure() with another one.
 * `crashed`: the daemon before this one did not end in good order: processes come back. */
struct core *core_create(
	const struct config *config, const struct core_ops *ops, bool crashed, uint64_t now_ns);
void core_destroy(struct core *core);

/* The configuration has changed. What is leased stays leased. */
void core_configure(struct core *core, const struct config *config, uint64_t now_ns);

/* Takes the text that the previous daemon kept: leases whose sockets may still be open. */
void core_restore(struct core *core, const char *text, uint64_t now_ns);
/* Keeps such a text for the next daemon. Call it before core_destroy(). */
void core_keep(struct core *core);

/* A session is there. False: it is one too many, with a Failure sent that says so; close it. */
bool core_opened(
	struct core *core, uint64_t session, const struct core_session_info *info, uint64_t now_ns);

/* A message of it, checked by frame_unpack(). */
void core_message(
	struct core *core, uint64_t session, const Ctl__Envelope *envelope, uint64_t now_ns);

/* A process's message may be passed on to other daemons. Before one that is long is handed to
 * core_message(): asks about each of their sessions; false, and that is the end, when one of them
 * has no room. */
bool core_has_room(const struct core *core, uint64_t session, const Ctl__Envelope *envelope,
	bool (*has_room)(void *ctx, uint64_t peer), void *ctx);

/* The page that came with a DescribePort, called before core_message() with that. The core takes
 * it over, reads it when it is asked, and gives it back by its close(). */
void core_page(struct core *core, uint64_t session, const struct page_view *page);

/* A session has ended, or could not be dialled. */
void core_closed(
	struct core *core, uint64_t session, enum core_end end, const char *why, uint64_t now_ns);

/* What the time has brought; core_deadline() says when it is due next: a time or CORE_NEVER. */
void core_tick(struct core *core, uint64_t now_ns);
uint64_t core_deadline(const struct core *core);

/* Does a process have a lease, or may one have it that has still time to come back? */
bool core_has_leases(const struct core *core, uint64_t now_ns);

/* The time since when no process and no operator is there; 0: somebody is. */
uint64_t core_idle_since(const struct core *core);

/* Things about the daemon that the core does not know itself, for reports. Copied. */
struct core_facts {
	const char *socket, *listen, *metrics;
	bool is_private; /* of one user, who steers everything */
	bool has_system; /* the machine has a daemon of the system, which may not run */
	pid_t pid;
	uid_t uid; /* of the daemon: whose it is if private; may use fabrics that name nobody */
};
void core_set_facts(struct core *core, const struct core_facts *facts);

/* All metrics as Prometheus text (format 0.0.4), of what the processes have published last. */
void core_write_metrics(struct core *core, FILE *out, uint64_t now_ns);

/* Has processes bring their pages up to date where those are older than a second: to be called a
 * few milliseconds before core_write_metrics(). */
void core_refresh(struct core *core, uint64_t now_ns);

/* Sessions that have not said Hello for config.hello_ms are closed by core_tick(); messages that
 * take too long to arrive are the I/O's to notice. */

#endif
