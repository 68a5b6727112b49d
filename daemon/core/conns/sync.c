/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recovery of connections. A restarted daemon learns them from its processes (ConnResume). Two
 * daemons whose session broke send each other again the requests and replies that may be lost, and
 * a list of all connections that they have (Sync). An end that is missing in the list has ended.
 */
#include "daemon/core/conns/conns.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)

enum {
	SYNC_PART = 8192,   /* connections in a message, which must fit into a frame */
	SYNC_DELAY_MS = 20, /* a process resumes all its connections within this time */
};

/* ---- ConnResume */

static void resume_refuse(struct core *core, const struct session *session,
	const Ctl__ConnResume *message, const struct ending *refusal)
{
	Ctl__Envelope envelope;
	Ctl__ConnEnd end;

	conn_fill_end(&envelope, &end, &message->uuid, message->passive, refusal);
	session_send(core, session, &envelope);
}

static bool check_resume(struct core *core, const struct session *session,
	const Ctl__ConnResume *message, struct ending *ret_refusal)
{
	const struct port *port = port_find(session, message->port);

	if (conns_find(core, message->uuid.data, message->passive))
		ending_set(ret_refusal, EEXIST, "a connection with this identifier exists already");
	else if (!port)
		ending_set(
			ret_refusal, EINVAL, "the process has no port %u open here", message->port);
	else if (conn_of_qp(session, port, message->qpn))
		ending_set(
			ret_refusal, EINVAL, "queue pair %u has another connection", message->qpn);
	else
		return conns_user_may(core, session->uid, ret_refusal);
	return false;
}

/* Returns the only connected peer of this name; NULL for none or several. */
static struct peer *peer_of_name(const struct core *core, const char *name)
{
	struct peer *found = NULL;

	for (struct peer *peer = core->peers; peer; peer = peer->hh.next) {
		if (peer->state != PEER_CONNECTED || strcmp(peer->name, name))
			continue;
		if (found)
			return NULL;
		found = peer;
	}
	return found;
}

/* Returns the peer with the other end, by the address that the process received at connection
 * time. Returns NULL with *ret_self set for this host, or with an error. */
static struct peer *peer_of_resumed(struct core *core, const Ctl__ConnResume *message,
	bool *ret_self, struct ending *ret_refusal, uint64_t now_ns)
{
	const Ctl__Who *who = message->who;
	uint64_t instance = who && who->instance ? who->instance : message->peer_instance;
	struct peer *peer = instance ? peer_of_instance(core, instance) : NULL;
	const char *host = message->peer_host;
	const char *why = "";
	int error = 0;

	if (peer)
		return peer;
	if (who && who->address[0])
		host = who->address;
	else if (!host[0] && who)
		host = who->host;
	peer = peer_of_name(core, host);
	if (peer)
		return peer;
	peer = peer_get(core, host, ret_self, &error, &why, now_ns);
	if (!peer && !*ret_self)
		ending_set(ret_refusal, error, "host %s: %s", host, why);
	return peer;
}

/* The active end was ready before the passive end was notified. */
static void catch_up(struct core *core, struct conn *passive, uint64_t now_ns)
{
	Ctl__ConnReady ready = CTL__CONN_READY__INIT;

	if (passive->state != CONN_REPLIED)
		return;
	conn_established(core, passive, now_ns);
	ready.uuid.data = passive->key.uuid;
	ready.uuid.len = UUID_SIZE;
	conn_send(core, passive, &ENVELOPE(0, CONN_READY, conn_ready, &ready));
}

/* Notifies the passive end if both ends are on this host and the active one is established. */
static void catch_up_here(struct core *core, struct conn *conn, uint64_t now_ns)
{
	struct conn *twin = conn_twin(core, conn);
	const struct conn *active = conn->key.passive ? twin : conn;

	if (twin && active->state == CONN_ESTABLISHED)
		catch_up(core, conn->key.passive ? conn : twin, now_ns);
}

/* The other end is on this host: it has the same time to come back. */
static void await_other_end(struct core *core, uint64_t now_ns)
{
	uint64_t at_ns = now_ns + core->config->relearn_ms * MS;

	core->resumed_until_ns = at_ns > relearned_ns(core) ? at_ns : relearned_ns(core);
}

static void fill_resumed(struct core *core, struct session *session, struct conn *conn,
	const Ctl__ConnResume *message, uint64_t now_ns)
{
	conn_give_session(conn, session);
	conn_give_qp(conn, port_find(session, message->port), message->qpn);
	conn->since_ns = now_ns;
	conn->peer_qpn = message->peer_qpn;
	copy_text(conn->service, sizeof(conn->service), message->service);
	if (message->who) {
		copy_text(conn->other.host, sizeof(conn->other.host), message->who->host);
		copy_text(conn->other.program, sizeof(conn->other.program), message->who->program);
		conn->other.pid = message->who->pid;
		conn->other.uid = message->who->uid;
	}
	conn->state = message->established ? CONN_ESTABLISHED : CONN_REPLIED;
	if (!message->established)
		conn_set_deadline(core, conn, 0, now_ns);
}

void conns_resume(
	struct core *core, struct session *session, const Ctl__ConnResume *message, uint64_t now_ns)
{
	struct ending refusal;
	struct conn *conn = NULL;
	bool is_self = false;
	struct peer *peer;

	conn = conns_find(core, message->uuid.data, message->passive);
	if (conn && conn->session == session)
		return;
	if (!check_resume(core, session, message, &refusal)) {
		resume_refuse(core, session, message, &refusal);
		return;
	}
	peer = peer_of_resumed(core, message, &is_self, &refusal, now_ns);
	if (peer || is_self)
		conn = conn_create(core, &message->uuid, message->passive);
	if (!conn) {
		if (peer || is_self)
			ending_set(&refusal, ENOMEM, "ferruled has no memory left");
		resume_refuse(core, session, message, &refusal);
		return;
	}
	fill_resumed(core, session, conn, message, now_ns);
	conn_give_peer(conn, peer);
	if (peer) {
		conns_owe_sync(core, peer, now_ns);
		return;
	}
	await_other_end(core, now_ns);
	catch_up_here(core, conn, now_ns);
}

/* Ends the connections within this host whose other end is missing. */
static void end_unresumed(struct core *core)
{
	struct conn *conn, *next;
	struct ending ending;

	ending_set(&ending, ECONNRESET,
		"the process at the other end did not come back after ferruled was started again");
	HASH_ITER(hh, core->conns, conn, next)
	{
		if (!conn->peer && !conn_twin(core, conn)) {
			core->counters.ends_died++;
			conn_notify(core, conn, &ending);
		}
	}
	core->resumed_until_ns = 0;
}

uint64_t conns_catch_up(struct core *core, uint64_t now_ns)
{
	bool is_owed = false;
	struct peer *peer, *next;

	/* Nothing else is due before: relearned_ns() and resumed_until_ns are not earlier. */
	if (core->deferred && is_relearning(core, now_ns))
		return core->relearn_until_ns;
	if (core->deferred)
		conns_refuse_deferred(core);
	if (core->resumed_until_ns && now_ns >= core->resumed_until_ns)
		end_unresumed(core);
	HASH_ITER(hh, core->peers, peer, next)
	{
		is_owed = is_owed || peer->owes_sync;
		if (peer->owes_sync && peer->state == PEER_CONNECTED && has_relearned(core, now_ns))
			conns_send_sync(core, peer);
	}
	if (is_owed && !has_relearned(core, now_ns))
		return relearned_ns(core); /* no later than resumed_until_ns */
	return core->resumed_until_ns ? core->resumed_until_ns : CORE_NEVER;
}

/* ---- Sync */

static void send_part(
	struct core *core, const struct peer *peer, Ctl__Sync__Conn **rows, size_t count, bool more)
{
	Ctl__Sync sync = CTL__SYNC__INIT;

	sync.conns = rows;
	sync.n_conns = count;
	sync.more = more;
	peer_send(core, peer, &ENVELOPE(0, SYNC, sync, &sync));
}

void conns_send_sync(struct core *core, struct peer *peer)
{
	Ctl__Sync__Conn *rows = calloc(SYNC_PART, sizeof(*rows));
	Ctl__Sync__Conn **list = calloc(SYNC_PART, sizeof(Ctl__Sync__Conn *));
	size_t count = 0;

	/* Without memory the Sync remains due. */
	peer->owes_sync = !rows || !list;
	for (struct list *node = peer->conns.next; node != &peer->conns && !peer->owes_sync;
		node = node->next) {
		struct conn *conn = container_of(node, struct conn, of_peer);

		if (count == SYNC_PART) {
			send_part(core, peer, list, count, true);
			count = 0;
		}
		list[count] = &rows[count];
		ctl__sync__conn__init(&rows[count]);
		rows[count].uuid.data = conn->key.uuid;
		rows[count].uuid.len = UUID_SIZE;
		rows[count].passive = conn->key.passive;
		rows[count].state = (uint32_t)conn->state;
		count++;
	}
	if (!peer->owes_sync)
		send_part(core, peer, list, count, false);
	free(list);
	free(rows);
}

void conns_owe_sync(struct core *core, struct peer *peer, uint64_t now_ns)
{
	peer->owes_sync = true;
	conns_due(core, now_ns + SYNC_DELAY_MS * MS);
}

/* Handles a connection that the peer has. */
static void take_row(
	struct core *core, struct peer *peer, const Ctl__Sync__Conn *row, uint64_t now_ns)
{
	struct conn *conn = conns_find(core, row->uuid.data, !row->passive);
	struct ending ending;
	Ctl__Envelope envelope;
	Ctl__ConnEnd end;

	/* The connection was resumed by a name that was not known to belong to this peer. */
	if (conn && conn->peer && conn->peer != peer && !conn->peer->instance)
		conn_give_peer(conn, peer);
	if (conn && conn->peer == peer) {
		conn->synced = peer->sync_round;
		if (conn->key.passive && row->state == CONN_ESTABLISHED)
			catch_up(core, conn, now_ns);
	} else if (!conn && row->state != CONN_REQUESTED && has_relearned(core, now_ns)) {
		ending_set(&ending, ECONNRESET,
			"the other end on %s has ended while its daemon was out of reach",
			core->config->host);
		conn_fill_end(&envelope, &end, &row->uuid, row->passive, &ending);
		peer_send(core, peer, &envelope);
	}
}

static void end_unnamed(struct core *core, struct peer *peer)
{
	struct ending ending;

	ending_set(&ending, ECONNRESET,
		"the other end on %s has ended while its daemon was out of reach",
		peer->name[0] ? peer->name : peer->host);
	LIST_EACH(struct conn, conn, &peer->conns, of_peer) {
		if (conn->synced == peer->sync_round)
			continue;
		/* The request is under way; the peer may not have received it yet. */
		if (!conn->key.passive && conn->state == CONN_REQUESTED)
			continue;
		core->counters.ends_died++;
		conn_notify(core, conn, &ending);
	}
}

void conns_sync(struct core *core, struct peer *peer, const Ctl__Sync *sync, uint64_t now_ns)
{
	for (size_t i = 0; i < sync->n_conns; i++) {
		if (sync->conns[i]->uuid.len == UUID_SIZE)
			take_row(core, peer, sync->conns[i], now_ns);
	}
	if (sync->more)
		return;
	end_unnamed(core, peer);
	peer->sync_round++;
}

/* ---- peers */

static void send_held(struct core *core, struct peer *peer)
{
	LIST_EACH(struct conn, conn, &peer->conns, of_peer) {
		if (conn->held && !conn->deferred)
			peer_send(core, peer, conn->held);
	}
}

void conns_peer_up(struct core *core, struct peer *peer, uint64_t now_ns)
{
	peer->sync_round++;
	send_held(core, peer);
	if (has_relearned(core, now_ns))
		conns_send_sync(core, peer);
	else
		conns_owe_sync(core, peer, now_ns);
}

void conns_peer_same(struct core *core, struct peer *peer, struct peer *same_as, uint64_t now_ns)
{
	while (!list_empty(&peer->conns)) {
		struct conn *conn = container_of(peer->conns.next, struct conn, of_peer);

		conn_give_peer(conn, same_as);
		if (conn->held && !conn->deferred)
			peer_send(core, same_as, conn->held);
	}
	conns_owe_sync(core, same_as, now_ns);
}

/* Ends a passive end whose request came from another daemon that had this address before: the
 * active end is not on this host. If that daemon connects again, it sends the request again. */
static void end_moved(struct core *core, struct conn *conn, const struct peer *peer)
{
	struct ending ending;

	ending_set(&ending, ECONNRESET,
		"the daemon of the requesting process is out of reach: its address %s leads to "
		"this host now",
		peer->key);
	core->counters.ends_died++;
	conn_notify(core, conn, &ending);
}

void conns_peer_self(struct core *core, struct peer *peer, uint64_t now_ns)
{
	while (!list_empty(&peer->conns)) {
		struct conn *conn = container_of(peer->conns.next, struct conn, of_peer);
		Ctl__Envelope *held = conn->held;
		struct ending refusal;

		conn_give_peer(conn, NULL);
		conn->held = NULL;
		if (!held) {
			await_other_end(core, now_ns);
			catch_up_here(core, conn, now_ns);
		} else if (conn->key.passive) {
			end_moved(core, conn, peer);
		} else if (!conn_offer(core, NULL, held->conn_request, now_ns, &refusal)) {
			core->counters.connects_refused++;
			conn_notify(core, conn, &refusal);
		}
		if (held)
			ctl__envelope__free_unpacked(held, NULL);
	}
}
