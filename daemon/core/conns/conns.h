/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface between the files for connections.
 *
 *	conns.c   one end: creation, end, timeout, loss with its process, port or peer
 *	listen.c  listeners, and requests that arrive for them or wait for them
 *	route.c   connection messages of processes and of other daemons
 *	sync.c    recovery after the loss of a daemon, or of a session between daemons
 *
 * A connection within this host has both ends here: two struct conn with the same uuid, each the
 * twin of the other. A connection with another host has one end here.
 */
#ifndef FERRULE_DAEMON_CORE_CONNS_CONNS_H
#define FERRULE_DAEMON_CORE_CONNS_CONNS_H

#include "daemon/core/internal.h"

/* Why an end has ended, or why a request is refused. */
struct ending {
	int error; /* errno, positive */
	char reason[CORE_REASON + CORE_HOST];
	ProtobufCBinaryData private_data; /* borrowed */
};

void ending_set(struct ending *ending, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Returns whether the user may have another connection; if not, `ret_refusal` has the limit. */
bool conns_user_may(const struct core *core, uint32_t uid, struct ending *ret_refusal);

/* Creates an end; `uuid` and `passive` must be unused. Returns NULL without memory. */
struct conn *conn_create(struct core *core, const ProtobufCBinaryData *uuid, bool passive);
void conn_give_session(struct conn *conn, struct session *session);
void conn_give_qp(struct conn *conn, struct port *port, uint32_t qpn);
void conn_give_peer(struct conn *conn, struct peer *peer); /* NULL: this host */
/* Holds a deep copy of the message; NULL releases it. */
void conn_hold(struct conn *conn, const Ctl__Envelope *envelope);
void conn_set_deadline(struct core *core, struct conn *conn, uint32_t timeout_ms, uint64_t now_ns);
/* Makes conns_tick() run at this time. */
void conns_due(struct core *core, uint64_t at_ns);
/* The listener no longer waits for an answer. */
void conn_answered(struct core *core, struct conn *conn);
/* Removes an end without notifying anybody. */
void conn_forget(struct core *core, struct conn *conn);

/* Returns the other end if it is on this host, else NULL. */
struct conn *conn_twin(const struct core *core, const struct conn *conn);
/* Sends to the process of this end, if it has one. */
void conn_send(struct core *core, const struct conn *conn, Ctl__Envelope *envelope);
/* Notifies the process of this end that it has ended, and removes the end. */
void conn_notify(struct core *core, struct conn *conn, const struct ending *ending);
/* Notifies the other end, and removes it if it is on this host. This end stays. */
void conn_notify_other(struct core *core, const struct conn *conn, const struct ending *ending);
/* Ends both. */
void conn_end_both(struct core *core, struct conn *conn, const struct ending *ending);
/* Reports a refusal to the active end of a request, which came from `peer`, or from this host if
 * NULL. */
void conn_refuse(struct core *core, const struct peer *peer, const ProtobufCBinaryData *uuid,
	const struct ending *ending);
void conn_established(struct core *core, struct conn *conn, uint64_t now_ns);

void conn_fill_end(Ctl__Envelope *envelope, Ctl__ConnEnd *end, const ProtobufCBinaryData *uuid,
	bool to_passive, const struct ending *ending);
/* Fills the description of a process as the other end gets it. `peer` is NULL for a process of this
 * host. */
void who_fill(
	const struct core *core, const struct who *who, const struct peer *peer, Ctl__Who *ret);
/* Reads another daemon's description of its process. The host name is that of the daemon. */
void who_read(const struct peer *peer, const Ctl__Who *from, struct who *ret);
uint32_t endpoint_qpn(const ProtobufCBinaryData *endpoint);
/* Returns true while processes may come back after a crash of the daemon. This is not the opposite
 * of has_relearned(), which is false for a while after every start. */
bool is_relearning(const struct core *core, uint64_t now_ns);
/* Returns true once the processes of the previous daemon have had time to come back, however that
 * daemon ended. Then an unknown end does not exist. */
bool has_relearned(const struct core *core, uint64_t now_ns);
uint64_t relearned_ns(const struct core *core);

/* Handles a request for this host, from `peer` or from an active end on this host. `who` has been
 * verified. Returns false with the reason if the request is refused. */
bool conn_offer(struct core *core, struct peer *peer, const Ctl__ConnRequest *request,
	uint64_t now_ns, struct ending *ret_refusal);
/* Refuses the requests whose service did not come back. */
void conns_refuse_deferred(struct core *core);
void conns_resume(struct core *core, struct session *session, const Ctl__ConnResume *message,
	uint64_t now_ns);
/* Does what waited until this daemon had relearned. Returns when it is to be called again. */
uint64_t conns_catch_up(struct core *core, uint64_t now_ns);

#endif
