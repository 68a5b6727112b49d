/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state and the decisions of ferruled, without I/O. Messages and time come in; messages, closed
 * sessions, hosts to dial and one deadline come out. The core has no socket, clock, thread, log
 * file or getenv. It reads the pages of processes, which never blocks (lib/control/page.h), and it
 * allocates, since it is not on a data path. The I/O around it is daemon/server/loop.c. Tests
 * connect several cores by queues, in virtual time.
 *
 * A session is one stream: of a process or an operator over the Unix socket, or of another daemon.
 * The core requests actions through struct core_ops, also from within its own functions. The ops
 * must not call back into the core.
 *
 * One thread.
 */
#ifndef FERRULE_DAEMON_CORE_CORE_H
#define FERRULE_DAEMON_CORE_CORE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "daemon/config/config.h"
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
	const uint8_t *mac; /* the lease's own; NULL: the interface's */
};

struct core_ops {
	/* Sends a message. It is packed before this returns. A session that cannot be sent to is
	 * closed later on. */
	void (*send)(void *ctx, uint64_t session, const Ctl__Envelope *envelope);
	/* Ends a session once its queued messages are sent, after a second at the latest.
	 * core_closed() is not called for it. */
	void (*close)(void *ctx, uint64_t session);
	/* Connects to another daemon, for this user. The result is a call of core_opened() with
	 * this `session`, or of core_closed() with the reason. The core chooses the number, with
	 * CORE_DIALLED set. A numeric `address` replaces the look-up of `host`; NULL: look it
	 * up. */
	void (*dial)(void *ctx, uint64_t session, const char *host, const char *address,
		uint16_t port, uid_t uid);
	/* Writes a line to the log. It never contains private data, keys, or nonces of
	 * endpoints. */
	void (*log)(void *ctx, enum core_log level, const char *line);
	/* Returns 64 unpredictable random bits. */
	uint64_t (*random)(void *ctx);
	/* Returns how many bytes are queued for a session. */
	size_t (*queued)(void *ctx, uint64_t session);
	/* Returns true if TCP keeps retransmitting to another daemon. The interval until its next
	 * try may be as long as the time since the first one. */
	bool (*is_stuck)(void *ctx, uint64_t session);
	/* Opens a packet socket and returns its identifier in *ret_id. The descriptor is passed
	 * with the next message to the session. Fails with a negative errno and a sentence in
	 * `why`. After -EPERM processes open their sockets themselves; after other errors the lease
	 * is useless. */
	int (*open_socket)(void *ctx, uint64_t session, const struct core_socket *wanted,
		uint64_t *ret_id, char *why, size_t size);
	/* Returns true while any process has this socket open. */
	bool (*has_socket)(void *ctx, uint64_t id);
	/* Keeps a text for core_restore() of the next daemon. It replaces the previous one; ""
	 * removes it. */
	void (*save)(void *ctx, const char *text);
	void *ctx;
};

#define CORE_DIALLED (UINT64_C(1) << 63) /* in session numbers of dial() only */

enum core_session_kind {
	CORE_LOCAL, /* over the Unix socket */
	CORE_PEER,  /* another daemon that dialled this one */
	CORE_PEER_DIALLED,
};

struct core_session_info {
	enum core_session_kind kind;
	uid_t uid; /* CORE_LOCAL: of the peer process, like the next fields */
	gid_t gids[64];
	size_t n_gids;
	pid_t pid;
	const char *program; /* according to the system, or NULL */
	const char *address; /* of a peer: numeric, without the port */
	bool tls;
	/* With TLS: is the peer's certificate valid for this name? If not, the peer is refused. */
	bool (*certified)(void *ctx, uint64_t session, const char *name);
};

enum core_end {
	CORE_END_CLOSED,      /* by the other side: FIN or RST */
	CORE_END_REFUSED,     /* dial: no listener there; the host is alive */
	CORE_END_UNREACHABLE, /* dial: no answer, no route, or unknown name */
	CORE_END_BAD,         /* an invalid message, or one that was too long or too slow */
	CORE_END_TLS,         /* the handshake failed; the text has the reason */
};

/* Creates a core. `config` remains the caller's; it must live until core_configure() replaces it.
 * `crashed`: the previous daemon did not shut down cleanly, so its processes will come back. */
struct core *core_create(
	const struct config *config, const struct core_ops *ops, bool crashed, uint64_t now_ns);
void core_destroy(struct core *core);

/* Replaces the configuration. Existing leases are kept. */
void core_configure(struct core *core, const struct config *config, uint64_t now_ns);

/* Restores the text that the previous daemon kept: leases whose sockets may still be open. */
void core_restore(struct core *core, const char *text, uint64_t now_ns);
/* Keeps such a text for the next daemon. Call it before core_destroy(). */
void core_save(struct core *core);

/* Adds a session. Returns false, after a Failure with the reason, if it is refused: close it
 * then. */
bool core_opened(
	struct core *core, uint64_t session, const struct core_session_info *info, uint64_t now_ns);

/* Handles a message of the session. frame_unpack() has checked it. */
void core_message(
	struct core *core, uint64_t session, const Ctl__Envelope *envelope, uint64_t now_ns);

/* Call before core_message() with a long message of a process: it may be passed on to other
 * daemons. Calls `has_room` for each of their sessions, and returns false as soon as one has no
 * room. */
bool core_has_room(const struct core *core, uint64_t session, const Ctl__Envelope *envelope,
	bool (*has_room)(void *ctx, uint64_t peer), void *ctx);

/* Passes the page that came with a DescribePort. Call it before core_message() with that message.
 * The core owns the page, reads it when needed, and releases it by its close(). */
void core_page(struct core *core, uint64_t session, const struct page_view *page);

/* A session has ended, or a dial has failed. */
void core_closed(
	struct core *core, uint64_t session, enum core_end end, const char *why, uint64_t now_ns);

/* Does what is due. core_deadline() returns when it is due next: a time, or CORE_NEVER. */
void core_tick(struct core *core, uint64_t now_ns);
uint64_t core_deadline(const struct core *core);

/* Returns true if a process has a lease, or may come back and have one. */
bool core_has_leases(const struct core *core, uint64_t now_ns);

/* Returns since when there has been no process and no operator; 0 while there is one. */
uint64_t core_idle_since(const struct core *core);

/* Facts about the daemon for reports, which the core cannot know. Copied. */
struct core_facts {
	const char *socket, *listen, *metrics;
	bool is_private; /* of one user, who may administer it */
	bool has_system; /* this machine has a system daemon, which may not be running */
	pid_t pid;
	uid_t uid; /* the daemon's user: owner of a private daemon; may use fabrics without users */
};
void core_set_facts(struct core *core, const struct core_facts *facts);

/* Writes all metrics as Prometheus text (format 0.0.4), from what the processes published last. */
void core_write_metrics(struct core *core, FILE *out, uint64_t now_ns);

/* Requests new pages from processes whose pages are older than a second. Call it a few milliseconds
 * before core_write_metrics(). */
void core_refresh(struct core *core, uint64_t now_ns);

/* core_tick() closes sessions without a Hello after config.hello_ms. The I/O around the core
 * enforces the time limit of a message. */

#endif
