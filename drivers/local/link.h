/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The local fabric: links made on demand between processes of one machine.
 *
 * A link (link.c) has a *handshake* (handshake.c) on a Unix socket, whose name both ends know. The
 * client sends the secret, the server answers with the memory of the rings (ring_memory.c), and the
 * client maps it and reports so (MAPPED). The socket stays open, so that each end detects at once
 * when the other is gone. On the socket the ends also negotiate memory that one reads in place
 * (in_place.c). Rings outlive the peer: bursts receive the frames that it had sent (FABRIC_DRAIN)
 * before the link is DOWN.
 *
 * The link thread (link_thread.c) drives all of this. A port's owner only adds links, marks them as
 * closing and reads their state (ops.c).
 */
#ifndef FERRULE_DRIVERS_LOCAL_LINK_H
#define FERRULE_DRIVERS_LOCAL_LINK_H

#include <sys/queue.h>
#include <sys/un.h>

#include "drivers/local/internal.h"

enum fabric_stage {
	FABRIC_CONNECTING, /* server: waits for the hello of clients; client: tries to connect */
	FABRIC_AWAITING_ANSWER, /* client: waits for the answer */
	FABRIC_CONFIRMING, /* the rings exist; the client sends MAPPED, the server waits for it */
	FABRIC_UP,
	FABRIC_DRAIN, /* the peer is gone, bursts receive its last frames */
	FABRIC_DOWN,  /* permanently down */
};

enum { LINK_MAGIC = 0x46524c61 /* "FRLa" */ };

struct handshake_hello {
	uint32_t magic;
	uint32_t max_frame;
	uint32_t in_place; /* 1: payload may be read from the sender's memory */
	uint32_t ordinal;  /* of the link at this end, from 1; the larger of both sizes the rings */
	uint64_t wake;     /* wake-up name of this end; 0: none */
	uint64_t proof;    /* where the peer proves its wake-up name: see wake.h; 0: nowhere */
	char secret[24];
	uint32_t features; /* of struct local_port_config */
	uint32_t unused;
};

/* Sent together with the descriptor of the rings' memory. */
struct handshake_answer {
	uint32_t magic;
	uint32_t max_frame;
	uint32_t in_place;
	uint32_t features;
	uint64_t wake; /* as in the hello */
	uint64_t proof;
};

/* Whether a link, or the introductions of a port, must be advanced. Protected by the link thread's
 * mutex. */
struct fabric_watch {
	bool is_ready;     /* an event has come, or a publish has happened */
	bool is_unwatched; /* events of a socket are not reported: no memory. Each step retries */
};

enum { FABRIC_PENDING_CLIENTS = 16 };

struct fabric_pending_client {
	int fd;
	uint64_t deadline_ns; /* time limit for its first message */
};

/* The connections to a listening socket that have not sent a valid first message. */
struct fabric_clients {
	int listen_fd;  /* or -1 */
	bool same_user; /* processes of other users are refused */
	struct fabric_pending_client pending[FABRIC_PENDING_CLIENTS]; /* oldest first */
	uint32_t n_pending;
};

/* Protected by the link thread's mutex, except the first three members, which never change. */
struct fabric_link {
	struct local_port *port;
	uint16_t number;
	struct port_link_request request;

	TAILQ_ENTRY(fabric_link) next;
	enum fabric_stage stage;
	bool closing;      /* the owner has released it: `number` may be another link's now */
	bool lost;         /* the handshake socket is broken: the peer is gone */
	bool to_drain;     /* the peer is gone, and bursts are not notified yet */
	bool logged_retry; /* a restart for lack of descriptors has been logged */
	bool logged_wrong_secret; /* a wrong secret has been logged */
	int error; /* why this end cannot have the link: no memory, or no peer in time */
	struct fabric_watch watch;
	struct fabric_clients clients; /* server, until up */
	int peer_fd;                   /* socket to the peer, or -1 */
	struct in_place *in_place;     /* NULL: payload is always copied */
	struct ring_link *ring;        /* NULL: none */
	bool mapped;                   /* client: has sent MAPPED; server: has received it */
	int proof_fd;                  /* open until the peer has proved its wake-up name; or -1 */
	uint64_t claimed_wake;         /* name that the peer must prove */
	uint32_t peer_wake;            /* 0: neither end wakes the other */
	uint32_t max_frame;            /* the smaller value of both ends */
	uint32_t features;             /* those of both ends */
	uint64_t retry_ns;             /* earliest time of the next attempt */
	unsigned n_retries;            /* client: attempts since a server was there */
	uint64_t deadline_ns;          /* time limit of the stage; UINT64_MAX: none */
	uint64_t give_up_ns;           /* when the link must be up; 0: no limit */
	uint64_t wake_ns; /* used by the link thread: when to advance the link without an event */
};

/* The result of one step of a link. */
struct fabric_pass {
	uint64_t now_ns;
	uint64_t wake_ns; /* when to advance the link next if no event comes before */
	bool publish;     /* publish to the port's table as soon as possible */
};

/* handshake.c: nonblocking sockets with abstract addresses. -EAGAIN: try again later. Accepted
 * sockets cannot receive descriptors before rights_allow(), if the kernel supports such a limit. */
int handshake_listen(const char *name);
int handshake_accept(int listener);
/* Returns 0 if the process at the other end has the same effective user as this one. -EACCES: it
 * has not; -EOVERFLOW: the kernel does not say, see user_of_peer(). */
int handshake_check_user(int fd);
/* `allow_rights`: the other end may send descriptors. */
int handshake_connect(const char *name, bool allow_rights);
int handshake_send(int fd, const void *message, size_t len);
int handshake_receive(int fd, void *message, size_t len);
bool handshake_is_closed(int fd);
/* Also ends the connection if a forked child has the socket, too. A socket with queued descriptors
 * is closed by the closer. */
void handshake_close(int *fd);
/* Sends a message with a descriptor, or -1 for none. Returns -EPIPE if the peer is gone. */
int handshake_send_fd(int fd, const void *message, size_t len, int passed);
/* *ret_passed, if not -1, belongs to the caller, who closes it by handshake_close_passed(). */
int handshake_receive_fd(int fd, void *message, size_t len, int *ret_passed);

/* `mapped`: this process has mapped the file as memory. Other files may take long to close. */
void handshake_close_passed(int fd, bool mapped);

/* clients.c: every process of the machine can connect to a listening socket. Mutex held. */

/* Accepts connections. Returns when to call this again if there may be more, but none can be
 * accepted now (no descriptors), or 0. */
uint64_t fabric_clients_accept(
	struct fabric_clients *clients, struct fabric_watch *watch, struct fabric_pass *pass);
/* Reads first messages of `len` bytes. Returns the socket of a client whose message is_valid(),
 * which is the caller's then, or -1. Drops clients with other messages, and those out of time. */
int fabric_clients_read(struct fabric_clients *clients, void *message, size_t len,
	bool (*is_valid)(void *arg, const void *message), void *arg, struct fabric_pass *pass);
void fabric_clients_drop(struct fabric_clients *clients);
/* Watches all sockets, including the listening one. */
void fabric_clients_watch(const struct fabric_clients *clients, struct fabric_watch *watch);
/* Closes a forked child's copies of the sockets. */
void fabric_clients_close_copies(struct fabric_clients *clients);

/* link.c: mutex held, guards not held. */
int fabric_listen(struct fabric_link *link);
/* Does one step: after an event on one of the link's sockets, at pass->wake_ns of the last step,
 * and after a publish. */
void fabric_advance(struct fabric_link *link, struct fabric_pass *pass);
/* Frees a link that is `closing` or DOWN. Returns false if the next publish must come first. */
bool fabric_try_free(struct fabric_link *link, struct fabric_pass *pass);
/* Copies the link's state into the port's table. If the peer is gone, leaves the frames that it has
 * sent to bursts. Returns true if a step of the link must follow. Guard and mutex held. */
bool fabric_publish(struct fabric_link *link);
/* Call when the peer's proof of its wake-up name has arrived, or will not arrive. */
void fabric_check_proof(struct fabric_link *link);

/* ops.c: the ops of the fabric. */
int link_open(struct port *port, const struct port_link_request *request);
void link_close(struct port *port, uint16_t link);
void link_keep(struct port *port, uint16_t link);
enum port_link_state link_state(struct port *port, uint16_t link);
uint32_t link_frame(struct port *port, uint16_t link);
uint32_t link_features(struct port *port, uint16_t link);
void link_close_all(struct local_port *port);

/* link_thread.c: the mutex, for all threads but the link thread. */
void link_thread_lock(void);
void link_thread_unlock(void);
/* Waits until the link thread has freed a link or introductions, or has released a guard. */
void link_thread_wait(void);
/* Starts the thread, unless it runs. Negative errno with frl_last_error(). */
int link_thread_start(void);
/* Makes the thread do a round. */
void link_thread_kick(void);
/* Call before the port gets a link or introductions: the thread then drives it. */
void link_thread_list(struct local_port *port);
/* Makes the link thread check the tables that bursts have written to. Guard held; also called from
 * bursts. */
void link_thread_notify(struct local_port *port);
/* Makes the link thread advance the owner of `watch` when the socket has an event, or at intervals
 * if that fails. Has no effect on a watched socket. Only the link thread may free the owner. */
void link_thread_watch(struct fabric_watch *watch, int fd);
/* Call before the socket is closed: a forked child may have it, too. */
void link_thread_unwatch(int fd);

#endif
