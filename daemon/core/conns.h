/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files about connections share.
 *
 *	conns.c         one end: made, ended, timed out, lost with its process, port or peer
 *	conns_listen.c  listeners; requests that come to them, or wait for them
 *	conns_route.c   what processes and other daemons say about connections
 *	conns_sync.c    after a daemon or a session between daemons was away
 *
 * Of a connection within this host both ends are here, as two struct conn with one uuid, each the
 * other one's twin. Of one to a peer's host there is one end here.
 */
#ifndef FERRULE_DAEMON_CORE_CONNS_H
#define FERRULE_DAEMON_CORE_CONNS_H

#include "daemon/core/internal.h"

/* Why an end has ended, or does not begin. */
struct ending {
	int error; /* errno, positive */
	char reason[CORE_REASON + CORE_HOST];
	ProtobufCBinaryData private_data; /* not its own */
};

void ending_set(struct ending *ending, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* NULL: no memory. The name must be free. */
struct conn *conn_create(struct core *core, const ProtobufCBinaryData *uuid, bool passive);
void conn_give_session(struct conn *conn, struct session *session);
void conn_give_qp(struct conn *conn, struct port *port, uint32_t qpn);
void conn_give_peer(struct conn *conn, struct peer *peer); /* NULL: this host */
/* A deep copy; NULL: nothing. */
void conn_hold(struct conn *conn, const Ctl__Envelope *envelope);
void conn_set_deadline(struct core *core, struct conn *conn, uint32_t timeout_ms, uint64_t now_ns);
/* conns_tick() has something to do then. */
void conns_due(struct core *core, uint64_t at_ns);
/* The listener waits no more for an answer. */
void conn_answered(struct core *core, struct conn *conn);
/* Forgets it without a word. */
void conn_forget(struct core *core, struct conn *conn);

/* The other end, where it is on this host as well; or NULL. */
struct conn *conn_twin(const struct core *core, const struct conn *conn);
/* Sends to the process of this end, if there is one. */
void conn_send(struct core *core, const struct conn *conn, Ctl__Envelope *envelope);
/* This end's process hears of the end; the connection is forgotten. */
void conn_tell(struct core *core, struct conn *conn, const struct ending *ending);
/* The other end hears of it, which is forgotten if it is of this host; this end stays. */
void conn_tell_other(struct core *core, const struct conn *conn, const struct ending *ending);
/* Both. */
void conn_end_both(struct core *core, struct conn *conn, const struct ending *ending);
/* The active end of a request, which came from `peer` or this host, hears that it is refused. */
void conn_refuse(struct core *core, const struct peer *peer, const ProtobufCBinaryData *uuid,
	const struct ending *ending);
void conn_established(struct core *core, struct conn *conn, uint64_t now_ns);

void conn_fill_end(Ctl__Envelope *envelope, Ctl__ConnEnd *end, const ProtobufCBinaryData *uuid,
	bool to_passive, const struct ending *ending);
/* As the process at the other end is told; of one of ours, with `peer` NULL. */
void who_fill(
	const struct core *core, const struct who *who, const struct peer *peer, Ctl__Who *ret);
/* What another daemon says about its process; the host is the daemon's. */
void who_read(const struct peer *peer, const Ctl__Who *from, struct who *ret);
uint32_t endpoint_qpn(const ProtobufCBinaryData *endpoint);
/* After a crash: processes come back. */
bool is_relearning(const struct core *core, uint64_t now_ns);
/* Processes of the daemon before this one, however it ended, have had the time to come back: what
 * is not known is not there. */
bool has_relearned(const struct core *core, uint64_t now_ns);
uint64_t relearned_ns(const struct core *core);

/* A request with a trusted `who` that comes to this host: from `peer`, or from its active end here.
 * False: refused. */
bool conn_offer(struct core *core, struct peer *peer, const Ctl__ConnRequest *request,
	uint64_t now_ns, struct ending *ret_refusal);
/* No service came back for these. */
void conns_refuse_parked(struct core *core);
void conns_resume(struct core *core, struct session *session, const Ctl__ConnResume *message,
	uint64_t now_ns);
/* Does what could not be done while this daemon relearned. Returns when there is more. */
uint64_t conns_catch_up(struct core *core, uint64_t now_ns);

#endif
