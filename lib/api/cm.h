/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connection management inside: what its files share.
 *
 *	cm.c          the public calls about connections
 *	cm_listen.c   listeners and their requests
 *	cm_conn.c     the life of a connection: made in steps, established, ended; deadlines
 *	cm_message.c  what is said to the daemon and what it says; its coming and going
 *
 * One mutex protects all of it, cm.mutex: taken before a device's guard, never after. The thread of
 * the control client and the application's threads meet there; nobody sleeps while holding it, but
 * on a condition. A connection lives until the application closes it, or, while it waits in a
 * listener's queue, until it ends.
 */
#ifndef FERRULE_API_CM_H
#define FERRULE_API_CM_H

#include <pthread.h>

#include <ferrule/cm.h>

#include "lib/api/connecting.h"
#include "lib/base/reminder.h"
#include "lib/base/table.h"
#include "lib/control/client.h"
#include "lib/control/frame.h"

enum { CM_REASON = 256 };

enum conn_state {
	CONN_ASKED,  /* passive: the application has not answered */
	CONN_ASKING, /* active: no answer yet */
	CONN_MAKING, /* the queue pair gets ready; passive: or ConnReady is missing */
	CONN_ESTABLISHED,
	CONN_ENDED,
};

/* Both ends may be in this process. */
struct conn_key {
	uint8_t uuid[UUID_SIZE];
	uint8_t passive; /* 0 or 1 */
};

struct frl_conn {
	struct conn_key key;
	UT_hash_handle hh;             /* cm.conns, until it ends */
	struct list node;              /* cm.making or cm.waiting: there is a deadline */
	struct list of_listener;       /* its queue, or those that were fetched: while CONN_ASKED */
	struct frl_listener *listener; /* while CONN_ASKED, unless that was closed */
	bool fetched;                  /* the application has it */
	bool any_user;                 /* active: the service may be another user's */
	bool is_user;                  /* counted by cm_acquire() */
	enum conn_state state;
	struct frl_device *device; /* counts it among its objects */
	struct frl_qp *qp;         /* NULL: none yet, or it was destroyed */
	struct connecting connecting;
	struct frl_qp_attr terms; /* what this end wants, and then what both agreed on */
	Ctl__ConnParams params;   /* what the peer wants; no pointers in it */
	bool sent;                /* active: the request; passive: the reply */
	bool peer_ready;          /* passive: ConnReady has come */
	bool was_established;
	uint64_t deadline_ns;
	struct reminder reminder; /* what it waits for is said */
	int timeout_ms;

	uint32_t port; /* the process's number for it */
	uint32_t qpn;  /* of this end */
	char host[FRL_HOST_MAX + 1];
	char service[FRL_SERVICE_MAX + 1];
	struct frl_endpoint mine, theirs;
	uint8_t private_data[FRL_PRIVATE_DATA_MAX]; /* to be sent */
	size_t private_size;
	uint8_t peer_data[FRL_PRIVATE_DATA_MAX]; /* that came */
	size_t peer_size;
	struct frl_conn_peer peer;
	char peer_address[FRL_HOST_MAX + 9]; /* of its daemon, as that is dialled from here */
	uint64_t peer_instance;              /* of its daemon */

	int error; /* of CONN_ENDED: an errno, positive */
	char reason[CM_REASON];
	bool news; /* not told by frl_conn_test() yet */
	struct event_fd event_fd;
	pthread_cond_t changed;
};

struct frl_listener {
	struct list node; /* cm.listeners */
	struct frl_device *device;
	uint32_t number; /* the process's, from 1 */
	uint64_t seq;    /* of the last Listen */
	uint32_t port;
	uint32_t backlog;
	bool any_user;
	bool listening; /* a daemon has confirmed it */
	bool news;      /* that it has; frl_listener_test() has not said so */
	char service[FRL_SERVICE_MAX + 1];
	struct list queue;   /* struct frl_conn.of_listener: to be fetched */
	struct list fetched; /* to be answered */
	uint32_t waiting;    /* in both */
	int error;           /* an errno, positive: there is no daemon, or it refused it */
	char reason[CM_REASON];
	struct event_fd event_fd;
	pthread_cond_t changed;
};

struct cm {
	/* Registering with the control client: taken first of all, never by its thread. */
	pthread_mutex_t life;
	unsigned users; /* listeners and connections of the application's */

	pthread_mutex_t mutex; /* of all that follows */
	struct control_handler handler;
	bool up;      /* the daemon has been told everything, or is being told */
	int hopeless; /* an errno, positive: there will be no daemon */
	char why[CM_REASON];
	struct frl_conn *conns; /* by key */
	struct list making;     /* to be stepped */
	struct list waiting;    /* for somebody else */
	uint64_t
		next_deadline_ns; /* no deadline of `waiting`, and nothing to be said, is earlier */
	uint64_t said_ns;         /* when it was last said what a connection waits for */
	struct list listeners;
	uint32_t next_listener;
};

extern struct cm cm;

/* cm.c */

/* A condition to sleep on with cm_sleep(), and until when; negative: for ever. */
void cm_init_condition(pthread_cond_t *condition);
uint64_t cm_limit(int timeout_ms);
/* With the mutex held, which others get meanwhile. False: it is too late. */
bool cm_sleep(pthread_cond_t *condition, uint64_t limit_ns);

/* cm_message.c */

/* One more user: registers with the control client if it is the first. -ENOTCONN, -ENOMEM, ... */
int cm_acquire(void);
void cm_release(void);

/* Text from elsewhere, cut to fit, without control characters. */
void cm_copy_text(char *to, size_t size, const char *from);

/* The errno, positive, that came in a message: from the peer's process, which may say anything but
 * to go on waiting. */
int cm_error(uint32_t error);

/* What follows: with the mutex held. */

/* -ENOTCONN, -ENOMEM. */
int cm_post(const Ctl__Envelope *envelope);
int cm_send_request(struct frl_conn *conn);
int cm_send_reply(const struct frl_conn *conn);
int cm_send_ready(const struct frl_conn *conn);
/* To the other end than the one that has this key; `error` is positive. */
void cm_send_end(
	const struct conn_key *from, int error, const char *reason, const void *data, size_t size);
/* Asks the daemon for a listener of the table; the answer comes with its `seq`. */
void cm_send_listen(struct frl_listener *listener);

/* cm_listen.c */

/* Empty is fine, too. */
bool service_is_sane(const char *service);
void cm_fill_listen(struct frl_listener *listener, Ctl__Listen *listen);

/* With the mutex held. */

void listener_request(const Ctl__ConnRequest *request);
/* The daemon's answer to a Listen; false: it is none's number. */
bool listener_confirmed(uint64_t seq, const Ctl__Listening *listening);
bool listener_refused(uint64_t seq, const Ctl__Failure *failure);
/* Those that no daemon has confirmed: there will be none. */
void listeners_give_up(int error, const char *why);
/* The connection waits there no more. */
void listener_forget(struct frl_conn *conn);

/* cm_conn.c */

/* NULL: no memory. The device counts it. */
struct frl_conn *conn_new(struct frl_device *device);
void conn_free(struct frl_conn *conn);

/* With the mutex held. conn_end() and what calls it free a connection that nobody has fetched. */

struct frl_conn *conn_find(const ProtobufCBinaryData *uuid, bool passive);
/* -ENOMEM. */
int conn_add(struct frl_conn *conn);
/* Its deadline counts from now on. */
void conn_wait(struct frl_conn *conn, int timeout_ms);
/* The peer's endpoint and wishes. -EPROTO. */
int conn_hear(
	struct frl_conn *conn, const ProtobufCBinaryData *endpoint, const Ctl__ConnParams *params);
/* Who it is, and what it sent along. */
void conn_meet(struct frl_conn *conn, const Ctl__Who *who, const ProtobufCBinaryData *data);
/* Has an endpoint and a queue pair: to be made, as far as that goes at once. */
void conn_make(struct frl_conn *conn);
void conn_step(struct frl_conn *conn);
/* The passive end hears that the other one is ready. */
void conn_ready(struct frl_conn *conn);
/* `error` is positive. */
void conn_end(struct frl_conn *conn, int error, const char *reason);
/* And tells the other end. */
void conn_fail(struct frl_conn *conn, int error, const char *reason);
/* As it is this end's wish; the other one is told this. */
void conn_leave(struct frl_conn *conn, int error, const char *reason);
void conn_news(struct frl_conn *conn);
/* Steps what is being made and ends what took too long; returns when to come again. */
uint64_t cm_conns_tick(uint64_t now_ns);

#endif
