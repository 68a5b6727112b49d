/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The local fabric: links made on demand between processes of one machine.
 *
 * A link (link.c) has two parts. The *meeting* (meet.c) is a Unix socket of our own under the name
 * that both ends know: the client shows the secret, the server answers with the memory of the rings
 * (ring_memory.c), the client maps it and says so (MAPPED), and then the socket stays open, so that
 * either end sees at once when the other is gone. Over the socket the ends also agree on memory
 * that one reads where the other has it (in_place.c). Rings outlive the peer: bursts get what it
 * had sent (FABRIC_DRAIN) before the link is DOWN.
 *
 * All of it is driven by the link thread (link_thread.c), never by a port's owner, who only adds
 * links, marks them as closing and sees their state.
 */
#ifndef FERRULE_DRIVERS_LOCAL_LINK_H
#define FERRULE_DRIVERS_LOCAL_LINK_H

#include <sys/queue.h>
#include <sys/un.h>

#include "drivers/local/internal.h"

enum fabric_stage {
	FABRIC_MEET,  /* server: waits for the hello of any who connect; client: tries to connect */
	FABRIC_ASK,   /* client: waits for the answer */
	FABRIC_SHAKE, /* the rings exist; the client says MAPPED, the server waits for it */
	FABRIC_UP,
	FABRIC_DRAIN, /* the peer is gone, bursts get what it had sent */
	FABRIC_DOWN,  /* for good */
};

struct meet_hello {
	uint32_t magic;
	uint32_t max_frame;
	uint32_t in_place; /* 1: payload may be read where the sender has it */
	uint32_t is_small; /* 1: small rings will do, as this end has many links */
	uint64_t wake;     /* whom to wake when it sleeps; 0: nobody */
	uint64_t proof;    /* where to prove whom to wake: see wake.h; 0: nowhere */
	char secret[24];
};

/* The descriptor of the rings' memory goes with it. */
struct meet_answer {
	uint32_t magic;
	uint32_t max_frame;
	uint32_t in_place;
	uint32_t unused;
	uint64_t wake; /* these as in the hello */
	uint64_t proof;
};

enum { FABRIC_STRANGERS = 16 };

struct fabric_stranger {
	int fd;
	uint64_t deadline_ns; /* for its hello */
};

/* Under the link thread's mutex, but for the first three, which never change. */
struct fabric_link {
	struct local_port *port;
	uint16_t number;
	struct port_link_request request;

	TAILQ_ENTRY(fabric_link) next;
	enum fabric_stage stage;
	bool closing;      /* the owner has let go of it: `number` may be another link's now */
	bool lost;         /* the meeting is broken: the peer is gone */
	bool to_drain;     /* the peer is gone, and bursts do not know yet */
	bool is_ready;     /* something has come, or was published */
	bool is_unwatched; /* nobody tells when something comes: there was no memory for that */
	bool said_trying;  /* the log has that it starts over for want of descriptors */
	bool said_wrong;   /* and that somebody does not know the secret */
	int error;         /* why this end cannot have the link: no memory */
	int meet_fd;       /* server, until up: listens; else -1 */
	int peer_fd;       /* to the peer, or -1 */
	/* Server: connections that have not shown the secret; the oldest one is the first. */
	struct fabric_stranger strangers[FABRIC_STRANGERS];
	uint32_t n_strangers;
	struct in_place *in_place; /* NULL: payload is always copied */
	struct ring_link *ring;    /* NULL: none */
	bool mapped;               /* client: has said MAPPED; server: has heard it */
	int proof_fd;              /* until the peer has proved what to wake it by; or -1 */
	uint64_t told_wake;        /* what it is to prove */
	uint32_t peer_wake;        /* 0: it cannot be woken, nor wake */
	uint32_t max_frame;        /* the smaller one of both ends */
	uint64_t retry_ns;         /* not before */
	unsigned n_retries;        /* client: since a server was there */
	uint64_t deadline_ns;      /* of the stage; UINT64_MAX: none */
	uint64_t wake_ns;          /* the link thread's: when to advance it without an event */
};

/* The result of a step of one link. */
struct fabric_pass {
	uint64_t now_ns;
	uint64_t wake_ns; /* when the link wants the next step, if nothing comes before */
	bool publish;     /* the port's table is to follow: as soon as can be */
};

/* meet.c: nonblocking, abstract addresses; -EAGAIN: not yet. No descriptor can come over the
 * sockets that a listener accepts, where the kernel knows how to forbid that, until
 * rights_allow(). */
int meet_listen(const char *name);
int meet_accept(int listener);
int meet_connect(const char *name);
int meet_send(int fd, const void *message, size_t len);
int meet_receive(int fd, void *message, size_t len);
bool meet_is_closed(int fd);
/* Also when a child that this process has forked has the socket too. A socket with descriptors in
 * it is closed elsewhere. */
void meet_hang_up(int *fd);
/* With a descriptor to go with the message, or -1. -EPIPE: the peer is gone. */
int meet_send_fd(int fd, const void *message, size_t len, int passed);
/* *ret_passed, or -1, is the caller's, to close by meet_close_passed(). */
int meet_receive_fd(int fd, void *message, size_t len, int *ret_passed);

/* `mapped`: it is memory that this process has mapped. Other files may take long to close. */
void meet_close_passed(int fd, bool mapped);

/* link.c: the mutex held, guards not. */
int fabric_listen(struct fabric_link *link);
/* A step: after an event on one of its sockets, when pass->wake_ns of the last step has come, and
 * after a publish. */
void fabric_advance(struct fabric_link *link, struct fabric_pass *pass);
/* Takes a link apart that is `closing` or DOWN. False: not yet, after the next publish. */
bool fabric_take_apart(struct fabric_link *link, struct fabric_pass *pass);
/* Takes the link's true state over into the port's table; of one whose peer is gone leaves to
 * bursts what it has sent. True: a step of the link is to follow. The guard and the mutex held. */
bool fabric_publish(struct fabric_link *link);
/* The peer has proved by now what it is to be woken by, or will not. */
void fabric_take_proof(struct fabric_link *link);

/* link_thread.c: the ops of the fabric. */
int link_open(struct port *port, const struct port_link_request *request);
void link_close(struct port *port, uint16_t link);
enum port_link_state link_state(struct port *port, uint16_t link);
uint32_t link_frame(struct port *port, uint16_t link);
void link_close_all(struct local_port *port);
/* Has the link thread look at what bursts have written into the tables. Guard held; from bursts
 * too. */
void link_thread_ask(struct local_port *port);
/* Has the link thread advance the link when something comes to the socket. */
void link_thread_watch(struct fabric_link *link, int fd);
/* Before the socket is closed: a child that was forked may have it, too. */
void link_thread_unwatch(int fd);

#endif
