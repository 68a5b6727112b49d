/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connection management: internal declarations of its files.
 *
 * 	cm.c       the public calls about connections
 * 	listen.c   listeners and their requests
 * 	conn.c     the states of a connection, from setup to end, and deadlines
 * 	message.c  messages to and from the daemon; loss and return of the daemon
 *
 * One mutex, cm.mutex, protects everything. Take it before a device's guard, never after. The
 * control client's thread and the application's threads use it; a holder sleeps only on a
 * condition. A connection exists until the application closes it. A request in a listener's queue
 * exists until it is fetched or ends.
 */
#ifndef FERRULE_API_CM_CM_H
#define FERRULE_API_CM_CM_H

#include <pthread.h>

#include <ferrule/cm.h>

#include "lib/api/connect/connecting.h"
#include "lib/base/reminder.h"
#include "lib/base/table.h"
#include "lib/control/client.h"
#include "lib/control/frame.h"

enum { CM_REASON = 256 };

enum conn_state {
	CONN_REQUESTED,  /* passive: the application has not answered yet */
	CONN_REQUESTING, /* active: no answer yet */
	CONN_CONNECTING, /* the queue pair is connecting; passive: or ConnReady is missing */
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
	UT_hash_handle hh;       /* cm.conns, until the connection ends */
	struct list node;        /* cm.setups or cm.waiting: it has a deadline */
	struct list of_listener; /* the listener's `queue` or `fetched`: while CONN_REQUESTED */
	struct frl_listener *listener; /* while CONN_REQUESTED; NULL if the listener was closed */
	bool fetched;                  /* the application owns it */
	bool any_user;                 /* active: a service of another user is allowed */
	bool is_user;                  /* counted by cm_acquire() */
	enum conn_state state;
	struct frl_device *device; /* the device counts it among its objects */
	struct frl_qp *qp;         /* NULL: none yet, or destroyed */
	struct connecting connecting;
	struct frl_qp_attr terms; /* requested by this end; later negotiated by both */
	Ctl__ConnParams params;   /* requested by the peer; contains no pointers */
	bool sent;                /* active: the request was sent; passive: the reply */
	bool peer_ready;          /* passive: ConnReady has arrived */
	bool was_established;
	uint64_t deadline_ns;
	struct reminder reminder; /* for log lines about a long wait */
	int timeout_ms;

	uint32_t port; /* the process's number of its port */
	uint32_t qpn;  /* of this end */
	char host[FRL_HOST_MAX + 1];
	char service[FRL_SERVICE_MAX + 1];
	struct frl_endpoint mine, theirs;
	uint8_t private_data[FRL_PRIVATE_DATA_MAX]; /* of this end */
	size_t private_size;
	uint8_t peer_data[FRL_PRIVATE_DATA_MAX]; /* of the peer */
	size_t peer_size;
	struct frl_conn_peer peer;
	char peer_address[FRL_HOST_MAX + 9]; /* of the peer's daemon, as dialled from here */
	uint64_t peer_instance;              /* of the peer's daemon */

	int error; /* in CONN_ENDED: an errno, positive */
	char reason[CM_REASON];
	bool is_unreported; /* frl_conn_test() has not reported it yet */
	struct event_fd event_fd;
	pthread_cond_t changed;
};

struct frl_listener {
	struct list node; /* cm.listeners */
	struct frl_device *device;
	uint32_t number; /* this process's number of it, from 1 */
	uint64_t seq;    /* of the last Listen */
	uint32_t port;
	uint32_t backlog;
	bool any_user;
	bool listening;     /* a daemon has confirmed it */
	bool is_unreported; /* frl_listener_test() has not reported `listening` yet */
	char service[FRL_SERVICE_MAX + 1];
	struct list queue;   /* struct frl_conn.of_listener: not fetched yet */
	struct list fetched; /* fetched, not answered yet */
	uint32_t waiting;    /* number of connections in both lists */
	int error;           /* an errno, positive: there is no daemon, or the daemon refused */
	char reason[CM_REASON];
	struct event_fd event_fd;
	pthread_cond_t changed;
};

struct cm {
	/*
	 * Protects registration with the control client. The first lock to take; the client's
	 * thread never takes it.
	 */
	pthread_mutex_t life;
	unsigned users; /* listeners and connections of the application */

	pthread_mutex_t mutex; /* protects all following fields */
	struct control_handler handler;
	bool up;         /* the daemon has received, or is receiving, the full state */
	int unreachable; /* an errno, positive: no daemon can be reached */
	char why[CM_REASON];
	struct frl_conn *conns;    /* by key */
	struct list setups;        /* connections to step */
	struct list waiting;       /* connections that wait for a message */
	uint64_t next_deadline_ns; /* lower limit of all deadlines in `waiting` and of the next log
				   * line */
	uint64_t logged_ns;        /* time of the last log line about a wait */
	struct list listeners;
	uint32_t next_listener;
};

extern struct cm cm;

/* cm.c */

/* Returns the limit for cm_sleep(); negative: no limit. */
uint64_t cm_limit(int timeout_ms);
/* Sleeps with the mutex held, which is released meanwhile. Returns false after the limit. */
bool cm_sleep(pthread_cond_t *condition, uint64_t limit_ns);

/* message.c */

/* Adds a user; the first one registers with the control client. Returns -ENOTCONN, -ENOMEM, ... */
int cm_acquire(void);
void cm_release(void);

/* Copies text of another process: cuts it to `size` and replaces control characters. */
void cm_copy_text(char *to, size_t size, const char *from);

/*
 * Returns a valid positive errno for one in a message. The peer's process may send any value, but
 * must not make this end continue to wait.
 */
int cm_error(uint32_t error);

/* All following functions: with the mutex held. */

/* -ENOTCONN, -ENOMEM. */
int cm_post(const Ctl__Envelope *envelope);
int cm_send_request(struct frl_conn *conn);
int cm_send_reply(const struct frl_conn *conn);
int cm_send_ready(const struct frl_conn *conn);
/* Sends the end of a connection to the other end than that of this key; `error` is positive. */
void cm_send_end(
	const struct conn_key *from, int error, const char *reason, const void *data, size_t size);
/* Posts a Listen for a listener in the table; the answer has its `seq`. */
void cm_send_listen(struct frl_listener *listener);

/* listen.c */

/* Returns whether the name is valid. An empty name is. */
bool service_is_valid(const char *service);
void cm_fill_listen(struct frl_listener *listener, Ctl__Listen *listen);

/* With the mutex held: */

void listener_request(const Ctl__ConnRequest *request);
/* Handles the daemon's answer to a Listen. Returns false if no listener has that number. */
bool listener_confirmed(uint64_t seq, const Ctl__Listening *listening);
bool listener_refused(uint64_t seq, const Ctl__Failure *failure);
/* Fails all listeners without confirmation, because no daemon can be reached. */
void listeners_fail(int error, const char *why);
/* Removes a connection from its listener. */
void listener_remove(struct frl_conn *conn);

/* conn.c */

/* Creates a connection, which the device counts. Returns NULL without memory. */
struct frl_conn *conn_new(struct frl_device *device);
void conn_free(struct frl_conn *conn);

/* With the mutex held. conn_end() and its callers free a connection that was not fetched. */

struct frl_conn *conn_find(const ProtobufCBinaryData *uuid, bool passive);
/* -ENOMEM. */
int conn_add(struct frl_conn *conn);
/* Starts the deadline. */
void conn_wait(struct frl_conn *conn, int timeout_ms);
/* Takes the peer's endpoint and parameters. Returns -EPROTO if they are invalid. */
int conn_take_endpoint(
	struct frl_conn *conn, const ProtobufCBinaryData *endpoint, const Ctl__ConnParams *params);
/* Takes the peer's identity and private data. */
void conn_take_peer(struct frl_conn *conn, const Ctl__Who *who, const ProtobufCBinaryData *data);
/*
 * Starts to connect the queue pair, as far as possible without waiting. The connection has an
 * endpoint and a queue pair.
 */
void conn_connect(struct frl_conn *conn);
void conn_step(struct frl_conn *conn);
/* Handles ConnReady at the passive end. */
void conn_handle_ready(struct frl_conn *conn);
/* `error` is positive. */
void conn_end(struct frl_conn *conn, int error, const char *reason);
/* As conn_end(), and notifies the other end. */
void conn_fail(struct frl_conn *conn, int error, const char *reason);
/* Ends the connection as this end requested, and sends the other end the reason. */
void conn_close(struct frl_conn *conn, int error, const char *reason);
void conn_notify(struct frl_conn *conn);
/* Steps all setups and ends those that are overdue. Returns the time of the next call. */
uint64_t cm_conns_tick(uint64_t now_ns);

#endif
