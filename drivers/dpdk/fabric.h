/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The local fabric: links made on demand between processes of one machine.
 *
 * A link (link.c) has two parts. The *meeting* (meet.c) is a Unix socket of our own under the name
 * that both ends know: the client shows the secret and says what it can, the server answers with
 * what to carry frames with, and then the socket stays open, so that either end sees at once when
 * the other is gone. The *carrier* is rings of our own (ring_link.c) where both ends have them, or
 * a memif (memif.c). Over the socket the ends also agree on memory that one reads where the other
 * has it (in_place.c).
 *
 * When the peer is gone, bursts get what it had sent (FABRIC_DRAIN) before the link is DOWN. Rings
 * stay as they are for that. Of a memif what is left has to be saved before it is removed, and it
 * has to be there until then: an end that closes such a link says LEAVING and keeps its memif until
 * the peer has hung up, but not for long.
 *
 * All of it is driven by the gate (gate.c) in EAL's interrupt thread, never by a port's owner, who
 * only adds links, marks them as closing and sees their state.
 */
#ifndef FERRULE_DRIVERS_DPDK_FABRIC_H
#define FERRULE_DRIVERS_DPDK_FABRIC_H

#include <sys/queue.h>
#include <sys/un.h>

#include "drivers/dpdk/internal.h"

struct fabric_link;
struct fabric_pass;
struct ring_link;

enum fabric_stage {
	FABRIC_MEET,  /* server: waits for the hello of any who connect; client: tries to connect */
	FABRIC_ASK,   /* client: waits for the answer */
	FABRIC_SHAKE, /* the carrier exists and shakes hands */
	FABRIC_UP,
	FABRIC_DRAIN, /* the peer is gone, bursts get what it had sent */
	FABRIC_DOWN,  /* for good */
};

struct meet_hello {
	uint32_t magic;
	uint32_t max_frame;
	uint32_t in_place; /* 1: payload may be read where the sender has it */
	uint32_t ring;     /* 1: rings of our own can be had */
	uint64_t wake;     /* whom to wake when it sleeps; 0: nobody */
	uint64_t proof;    /* where to prove whom to wake: see wake.h; 0: nowhere */
	char secret[24];
};

struct meet_answer {
	uint32_t magic;
	uint32_t max_frame;
	uint32_t in_place;
	uint32_t ring; /* 1: these, their memory goes with the answer; else a memif: */
	uint64_t wake; /* these as in the hello */
	uint64_t proof;
	uint32_t memif_id;
	uint32_t unused;
	char memif_secret[24];
	char memif_socket[64];
};

/* relay.c: between a client and the server's own memif. */
struct relay {
	int listen_fd; /* until the client has come */
	int client_fd;
	int memif_fd;
	bool heard; /* the memif's hello has come: it can stand our leaving */
};

/*
 * What frames go by. In the interrupt thread with the gate's mutex held; what is said to have the
 * guard has that as well.
 */
struct carrier {
	const char *name;
	/* The server's part: fills in its fields of the answer; *ret_passed, if it is not left -1,
	 * goes with that and is closed then. -EAGAIN: not now, both ends start over; any other
	 * error is the end of the link. */
	int (*offer)(struct fabric_link *link, struct meet_answer *answer, int *ret_passed);
	/* The client's. `passed`, or -1, is the caller's. -EAGAIN: as above. */
	int (*take_up)(struct fabric_link *link, const struct meet_answer *answer, int passed);
	/* Goes on with shaking hands, and of a memif after that. Negative when the peer is gone. */
	int (*step)(struct fabric_link *link, struct fabric_pass *pass);
	bool (*is_up)(const struct fabric_link *link);
	/* From now on bursts see it. Guard held. */
	void (*show)(struct fabric_link *link, struct burst_link *seen);
	/* The peer is gone: what it has sent is for bursts, and no more than a ring of frames,
	 * should it write on. Guard held. */
	void (*drain)(struct fabric_link *link, struct burst_link *seen);
	/* Removes it; no burst sees it. Also when there is none. False: not yet, call again in a
	 * later turn of the interrupt thread. */
	bool (*stop)(struct fabric_link *link, struct fabric_pass *pass);
	/* Bursts can go on with it when the peer is gone. */
	bool outlives_peer;
};

extern const struct carrier memif_carrier, ring_carrier;

enum { FABRIC_STRANGERS = 16 };

struct fabric_stranger {
	int fd;
	uint64_t deadline_ns; /* for its hello */
};

/* Under the gate's mutex, but for the first three, which never change. */
struct fabric_link {
	struct dpdk_port *port;
	uint16_t number;
	struct port_link_request request;

	TAILQ_ENTRY(fabric_link) next;
	enum fabric_stage stage;
	bool closing;      /* the owner has let go of it: `number` may be another link's now */
	bool lost;         /* the meeting or the carrier is broken: the peer is gone */
	bool said_leaving; /* closing: the peer knows */
	bool peer_leaves;  /* it has said so: what it has sent is in the ring */
	bool to_drain;     /* the peer is gone or leaves */
	bool said_trying;  /* the log has that it starts over for want of a carrier */
	bool said_wrong;   /* and that somebody does not know the secret */
	int error;         /* why this end cannot have the link: no memory */
	int meet_fd;       /* server, until up: listens; else -1 */
	int peer_fd;       /* to the peer, or -1 */
	/* Server: connections that have not shown the secret; the oldest one is the first. */
	struct fabric_stranger strangers[FABRIC_STRANGERS];
	uint32_t n_strangers;
	struct in_place *in_place;     /* NULL: payload is always copied */
	const struct carrier *carrier; /* NULL: not agreed on yet */
	/* Of rings: */
	struct ring_link *ring; /* NULL: none */
	bool mapped;            /* client: has said MAPPED; server: has heard it */
	int proof_fd;           /* until the peer has proved what to wake it by; or -1 */
	uint64_t told_wake;     /* what it is to prove */
	uint32_t peer_wake;     /* 0: it cannot be woken, nor wake */
	/* Of a memif: */
	struct relay relay; /* server */
	uint16_t ethdev;    /* NO_ETHDEV: none */
	uint32_t vdev_number;
	uint32_t shakes;      /* passes since its deadline was set */
	uint32_t max_frame;   /* the smaller one of both ends */
	uint64_t retry_ns;    /* not before; nor is a socket looked at */
	uint64_t deadline_ns; /* of the stage; UINT64_MAX: none */
};

/* What one pass over the links has come to. */
struct fabric_pass {
	uint64_t now_ns;
	uint64_t wake_ns; /* the earliest time at which a link wants the next pass */
	bool stopped;     /* a memif was closed in this turn of the interrupt thread */
	bool shaking;     /* memifs wait for their control messages */
	bool publish;     /* tables are to change: the next turn should come now */
	bool drain;       /* links are to_drain */
};

/* meet.c: nonblocking, abstract addresses; -EAGAIN: not yet. */
/* `take_fds`: descriptors may come over the sockets that it accepts; without it none can, where the
 * kernel knows how to forbid that, until rights_allow(). */
int meet_listen(const char *name, bool take_fds);
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

int relay_listen(struct relay *relay, const char *name);
/* Negative when the link cannot come up any more. */
int relay_step(struct relay *relay, const char *memif_socket);
/* False: not yet, call again in a later turn of the interrupt thread. */
bool relay_close(struct relay *relay);

/* link.c: gate's mutex held, guards not. */
int fabric_listen(struct fabric_link *link);
void fabric_advance(struct fabric_link *link, struct fabric_pass *pass);
/* Takes a link that is `closing` apart. False: not yet. */
bool fabric_take_apart(struct fabric_link *link, struct fabric_pass *pass);
/* The peer is gone: leaves to bursts what it has sent. The guard and the mutex held. */
void fabric_drain(struct fabric_link *link, struct fabric_pass *pass);
/* The peer has proved by now what it is to be woken by, or will not. */
void fabric_take_proof(struct fabric_link *link);
/* Takes the link's true state over into the port's table. The guard and the mutex held. */
void fabric_publish(struct fabric_link *link);

/* gate.c: the ops of the fabric. */
int gate_link_open(struct port *port, const struct port_link_request *request);
void gate_link_close(struct port *port, uint16_t link);
enum port_link_state gate_link_state(struct port *port, uint16_t link);
uint32_t gate_link_frame(struct port *port, uint16_t link);
void gate_close_port(struct dpdk_port *port);
/* Has the gate look at what bursts have written into the tables. Guard held; from bursts too. */
void gate_ask(void);

#endif
