/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Liveness of other daemons and their hosts. A host that closes or refuses a session is alive: its
 * daemon is restarting, its queue pairs continue, and it is dialled again.
 *
 * A network outage that is shorter than the keepalive time ends nothing. TCP alone would not
 * survive it: after 1.5 s without an answer its next retransmission is 1.6 s away. So a peer whose
 * session is stuck is dialled again, and the new session replaces the old one. A host that has not
 * answered for 1.5 times the keepalive time is gone, with all its connections. The factor allows
 * for the ping interval before the outage and for setting up the new session.
 *
 * Data may use another network. Objects that still receive data outlive the other daemon: a
 * connection as long as it receives, ranks as long as they work without daemons (groups/rejoin.c).
 *
 * Timers of a peer: ping_ns, the next ping; gone_ns(), when the host is declared gone; retry_ns,
 * the next dial; idle_ns and IDLE_MS, removal; old_until_ns, end of a second session.
 */
#include "daemon/core/peers/peers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- sessions of a peer */

void peer_set_state(struct peer *peer)
{
	peer->state = peer->session ? PEER_CONNECTED : peer->dial ? PEER_DIALLING : PEER_LOST;
}

bool peer_is_idle(const struct peer *peer)
{
	return list_empty(&peer->conns) && list_empty(&peer->members);
}

/* `address`: numeric; NULL: look up the host's name. */
static void dial(struct core *core, struct peer *peer, const char *address, uint64_t now_ns)
{
	peer->dial = CORE_DIALLED | ++core->next_session;
	peer->dialled_ns = now_ns;
	peer->refusal = 0;
	peer_set_state(peer);
	core->ops.dial(core->ops.ctx, peer->dial, peer->host, address, peer->port, peer->uid);
}

void peer_dial(struct core *core, struct peer *peer, uint64_t now_ns)
{
	if (!peer->session && !peer->dial && peer->port)
		dial(core, peer, NULL, now_ns);
}

void peer_close_session(struct core *core, uint64_t id, uint64_t now_ns)
{
	struct session *session = session_find(core, id);

	if (!session)
		return;
	session->peer = NULL;
	session_close(core, session, now_ns);
}

void peer_forget_session(struct peer *peer, uint64_t session)
{
	if (peer->session == session)
		peer->session = 0;
	if (peer->old_session == session)
		peer->old_session = 0;
	peer_set_state(peer);
}

void peer_free(struct core *core, struct peer *peer, uint64_t now_ns)
{
	const uint64_t sessions[] = { peer->session, peer->old_session };

	HASH_DEL(core->peers, peer);
	for (struct peer *other = core->peers; other; other = other->hh.next) {
		if (other->same_as == peer)
			other->same_as = NULL;
	}
	for (unsigned i = 0; i < 2; i++) {
		if (sessions[i])
			peer_close_session(core, sessions[i], now_ns);
	}
	free(peer);
}

void peers_destroy(struct core *core)
{
	struct peer *peer, *next;

	HASH_ITER(hh, core->peers, peer, next)
	{
		HASH_DEL(core->peers, peer);
		free(peer);
	}
}

/* ---- loss */

/* A host that refuses is alive. It must be dialled more often than keepalive_ms allows silence. */
static void set_backoff(struct peer *peer, uint64_t now_ns)
{
	uint32_t max_ms = peer->keepalive_ms / 3;

	if (peer->backoff_ms > max_ms)
		peer->backoff_ms = max_ms;
	peer->retry_ns = now_ns + peer->backoff_ms * PEER_MS;
	peer->backoff_ms *= 2;
	if (peer->backoff_ms > REDIAL_MAX_MS)
		peer->backoff_ms = REDIAL_MAX_MS;
}

void peer_lost(struct core *core, struct peer *peer, const char *why, uint64_t now_ns)
{
	peer->session = 0;
	peer->lost_ns = now_ns;
	peer->pinged_ns = 0;
	copy_text(peer->last_error, sizeof(peer->last_error), why);
	peer_set_state(peer);
	core_say(core, peer_is_idle(peer) ? CORE_LOG_INFO : CORE_LOG_WARNING,
		"the connection with %s is gone: %s", peer->name, why);
	set_backoff(peer, now_ns);
}

uint64_t peer_since_ns(const struct peer *peer, uint64_t now_ns)
{
	return now_ns - peer->keepalive_ms * PEER_MS;
}

/* Declares a host gone, with everything on it. If only its daemon is gone, objects that still
 * receive data stay. */
static void host_gone(struct core *core, struct peer *peer, uint64_t now_ns)
{
	const char *name = peer->name[0] ? peer->name : peer->host;
	bool was_there = peer->up_ns != 0, was_idle = peer_is_idle(peer), stays;
	char why[CORE_HOST + CORE_REASON];
	uint64_t session = peer->session;
	double seconds = (double)(now_ns - peer->last_rx_ns) / 1e9;

	peer->declared_gone_ns = now_ns;
	snprintf(why, sizeof(why),
		was_there ? "host %s is gone: no answer for %.1f s"
			  : "host %s cannot be reached: no answer for %.1f s",
		name, seconds);
	/* Before the session is closed: nobody may wait for these ranks to come back over another
	 * one. */
	groups_peer_gone(core, peer, true, why, now_ns);
	conns_peer_gone(core, peer, true, was_there ? EHOSTDOWN : EHOSTUNREACH, why, now_ns);
	stays = !peer_is_idle(peer);
	core->counters.peers_lost += was_there && !stays;
	if (stays)
		snprintf(why, sizeof(why), "no answer for %.1f s, but data flows", seconds);
	else if (!was_idle)
		core_say(core, CORE_LOG_WARNING, "%s", why);
	if (session) {
		peer_lost(core, peer, why, now_ns);
		peer_close_session(core, session, now_ns);
	}
}

/* Refuses everything that waits for the peer to be reached. */
static void refuse_waiting(
	struct core *core, struct peer *peer, int error, const char *why, uint64_t now_ns)
{
	copy_text(peer->last_error, sizeof(peer->last_error), why);
	conns_peer_gone(core, peer, false, error, why, now_ns);
	groups_peer_gone(core, peer, false, why, now_ns);
}

static void dial_failed(
	struct core *core, struct peer *peer, enum core_end end, const char *why, uint64_t now_ns)
{
	uint64_t lost_for_ns = now_ns - peer->lost_ns;
	uint64_t patience_ns = peer->up_ns ? RESTART_MS * PEER_MS : 0;
	char text[1024];
	int error = 0;

	peer->dial = 0;
	peer_set_state(peer);
	if (end != CORE_END_UNREACHABLE)
		peer->last_rx_ns = now_ns;
	/* The dial was made beside a stuck session, or the peer has dialled meanwhile. */
	if (peer->session) {
		peer->retry_ns = now_ns + REDIAL_MIN_MS * PEER_MS;
		return;
	}
	set_backoff(peer, now_ns);
	switch (end) {
	case CORE_END_REFUSED:
		error = ECONNREFUSED;
		snprintf(text, sizeof(text),
			"no ferruled listens at %s port %u: start it, or check listen_address",
			peer->host, peer->port);
		break;
	case CORE_END_UNREACHABLE:
		error = EHOSTUNREACH;
		if (peer->up_ns)
			patience_ns = peer->keepalive_ms * PEER_MS;
		snprintf(text, sizeof(text), "host %s cannot be reached: %s", peer->host, why);
		break;
	case CORE_END_TLS:
		error = EACCES;
		snprintf(text, sizeof(text), "TLS with the daemon of %s failed: %s", peer->host,
			why);
		break;
	case CORE_END_BAD:
		error = EPROTO;
		snprintf(text, sizeof(text), "the server at %s port %u is not a ferruled: %s",
			peer->host, peer->port, why);
		break;
	case CORE_END_CLOSED:
		error = peer->refusal ? peer->refusal : ECONNREFUSED;
		patience_ns = RESTART_MS * PEER_MS;
		snprintf(text, sizeof(text), "the daemon of %s has closed the connection%s%s",
			peer->host, peer->refusal ? ": " : "",
			peer->refusal ? peer->last_error : "");
		break;
	}
	if (lost_for_ns >= patience_ns || peer->refusal)
		refuse_waiting(core, peer, error, text, now_ns);
	else
		copy_text(peer->last_error, sizeof(peer->last_error), text);
}

static struct peer *peer_of_session(struct core *core, uint64_t id)
{
	for (struct peer *peer = core->peers; peer; peer = peer->hh.next) {
		if (peer->dial == id || peer->session == id || peer->old_session == id)
			return peer;
	}
	return NULL;
}

void peers_dial_failed(
	struct core *core, uint64_t session, enum core_end end, const char *why, uint64_t now_ns)
{
	struct peer *peer = peer_of_session(core, session);

	if (peer && peer->dial == session)
		dial_failed(core, peer, end, why, now_ns);
}

void peers_session_lost(struct core *core, struct session *session, enum core_end end,
	const char *why, uint64_t now_ns)
{
	struct peer *peer = peer_of_session(core, session->id);

	session->peer = NULL;
	if (!peer)
		return;
	if (peer->dial == session->id) {
		dial_failed(core, peer, end, why, now_ns);
	} else if (peer->old_session == session->id) {
		peer->old_session = 0;
		/* A join without an answer was lost with it: it goes over the other session. */
		groups_send_joins(core, peer, now_ns);
	} else if (peer->old_session) {
		/* The preferred one of two sessions has ended. Treat the peer as lost, and close
		 * the other one. */
		struct session *other = session_find(core, peer->old_session);

		peer_lost(core, peer, why, now_ns);
		if (other)
			peer_close_session(core, peer->old_session, now_ns);
		peer->old_session = 0;
	} else {
		if (end != CORE_END_UNREACHABLE)
			peer->last_rx_ns = now_ns;
		peer_lost(core, peer, why, now_ns);
	}
}

/* ---- messages */

static void on_pong(struct peer *peer, uint64_t now_ns)
{
	if (!peer->pinged_ns)
		return;
	peer->rtt_ns = now_ns - peer->pinged_ns;
	peer->pinged_ns = 0;
}

/* A Failure before a Hello: the reason why the peer refuses. */
static void on_failure(
	struct core *core, const struct session *session, const Ctl__Failure *failure)
{
	struct peer *peer = peer_of_session(core, session->id);

	core_say(core, CORE_LOG_WARNING, "the daemon at %s says: %s", session->address,
		failure->text);
	if (!peer)
		return;
	copy_text(peer->last_error, sizeof(peer->last_error), failure->text);
	if (peer->dial == session->id)
		peer->refusal = (int)failure->error;
}

void peers_message(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns)
{
	struct peer *peer = session->peer;
	Ctl__Pong pong = CTL__PONG__INIT;

	if (peer)
		peer->last_rx_ns = now_ns;
	switch (envelope->body_case) {
	case CTL__ENVELOPE__BODY_PING:
		session_send(core, session, &ENVELOPE(envelope->seq, PONG, pong, &pong));
		break;
	case CTL__ENVELOPE__BODY_PONG:
		if (peer)
			on_pong(peer, now_ns);
		break;
	case CTL__ENVELOPE__BODY_SYNC:
		/* A Sync on the old session may be older than messages on the new one. */
		if (peer && peer->session == session->id)
			conns_sync(core, peer, envelope->sync, now_ns);
		break;
	case CTL__ENVELOPE__BODY_VIEW_REQUEST:
	case CTL__ENVELOPE__BODY_VIEW: query_answer(core, session, envelope, now_ns); break;
	case CTL__ENVELOPE__BODY_FAILURE:
		if (peer)
			query_answer(core, session, envelope, now_ns);
		else
			on_failure(core, session, envelope->failure);
		break;
	default: break;
	}
}

/* ---- time */

static uint64_t ping_interval_ns(const struct peer *peer)
{
	return peer->keepalive_ms * PEER_MS / 8;
}

/* Returns when the host is declared gone unless it sends something. */
static uint64_t gone_ns(const struct peer *peer)
{
	uint64_t since_ns = peer->last_rx_ns > peer->declared_gone_ns ? peer->last_rx_ns
								      : peer->declared_gone_ns;
	uint64_t keepalive_ns = peer->keepalive_ms * PEER_MS;

	return since_ns + (peer->up_ns ? keepalive_ns + keepalive_ns / 2 : keepalive_ns);
}

/* Returns true if an answer is overdue and the peer has objects that may still receive data. */
static bool is_silent(const struct peer *peer, uint64_t now_ns)
{
	return peer->up_ns && !peer_is_idle(peer) &&
		now_ns - peer->last_rx_ns > 2 * ping_interval_ns(peer);
}

static void ping(struct core *core, struct peer *peer, uint64_t now_ns)
{
	Ctl__Ping message = CTL__PING__INIT;

	peer_send(core, peer, &ENVELOPE(0, PING, ping, &message));
	peer->pinged_ns = now_ns;
}

/* Cancels a dial beside a session that works again. It is too late once the peer has got the
 * Hello. */
static void end_needless_dial(struct core *core, struct peer *peer)
{
	if (!peer->dial || session_find(core, peer->dial))
		return;
	core->ops.close(core->ops.ctx, peer->dial);
	peer->dial = 0;
}

/* Returns when a peer with a session is due next. */
static uint64_t tick_session(struct core *core, struct peer *peer, uint64_t now_ns)
{
	uint64_t interval_ns = ping_interval_ns(peer);

	if (!peer->pinged_ns) {
		end_needless_dial(core, peer);
		if (now_ns >= peer->ping_ns) {
			ping(core, peer, now_ns);
			peer->ping_ns = now_ns + interval_ns;
		}
		return peer->ping_ns;
	}
	if (!peer->dial && peer->port && now_ns >= peer->retry_ns &&
		core->ops.is_stuck(core->ops.ctx, peer->session)) {
		if (peer->dialled_ns < peer->last_rx_ns)
			core_say(core, CORE_LOG_INFO,
				"%s does not answer, TCP retransmits: reconnecting", peer->name);
		dial(core, peer, peer->dialled_at[0] ? peer->dialled_at : NULL, now_ns);
	}
	if (now_ns >= peer->ping_ns)
		peer->ping_ns = now_ns + interval_ns;
	return peer->ping_ns;
}

static bool old_session_is_used(const struct peer *peer)
{
	LIST_EACH(const struct member, member, &peer->members, of_peer) {
		if (member->peer_session == peer->old_session)
			return true;
	}
	return false;
}

static void end_lingering(struct core *core, struct peer *peer, uint64_t now_ns)
{
	uint64_t old = peer->old_session;

	if (now_ns < peer->old_until_ns)
		return;
	if (old_session_is_used(peer)) {
		peer->old_until_ns = now_ns + LINGER_MS * PEER_MS;
		return;
	}
	peer->old_session = 0;
	peer_close_session(core, old, now_ns);
}

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns < b_ns ? a_ns : b_ns;
}

/* Returns false if the idle peer was freed. */
static bool tick_idle(struct core *core, struct peer *peer, uint64_t now_ns, uint64_t *due_ns)
{
	uint64_t keep_ms = 0;

	if (!peer_is_idle(peer)) {
		peer->idle_ns = 0;
		return true;
	}
	if (!peer->idle_ns)
		peer->idle_ns = now_ns;
	if (peer->dial)
		return true;
	/* Names, including those of this host, are kept for a while. A lost peer without
	 * connections is kept until its ranks have joined again. */
	if (peer->session || peer->same_as || peer->is_self)
		keep_ms = IDLE_MS;
	else if (peer->up_ns)
		keep_ms = RESTART_MS;
	if (now_ns - peer->idle_ns >= keep_ms * PEER_MS) {
		peer_free(core, peer, now_ns);
		return false;
	}
	*due_ns = earlier(*due_ns, peer->idle_ns + keep_ms * PEER_MS);
	return true;
}

static uint64_t tick(struct core *core, struct peer *peer, uint64_t now_ns)
{
	uint64_t due_ns = CORE_NEVER;

	if (!peer->same_as && !peer->is_self && now_ns >= gone_ns(peer) &&
		(peer->session || !peer_is_idle(peer)))
		host_gone(core, peer, now_ns);
	if (!tick_idle(core, peer, now_ns, &due_ns))
		return CORE_NEVER;
	if (peer->same_as || peer->is_self)
		return due_ns;
	if (peer->session)
		due_ns = earlier(due_ns, tick_session(core, peer, now_ns));
	if (!peer->session && !peer->dial && peer->port && now_ns >= peer->retry_ns)
		peer_dial(core, peer, now_ns);
	if (!peer->session && !peer->dial && peer->port)
		due_ns = earlier(due_ns, peer->retry_ns);
	if (peer->session || !peer_is_idle(peer))
		due_ns = earlier(due_ns, gone_ns(peer));
	if (is_silent(peer, now_ns)) {
		traffic_refresh(core, peer, ping_interval_ns(peer), now_ns);
		due_ns = earlier(due_ns, now_ns + ping_interval_ns(peer));
	}
	if (peer->old_session)
		end_lingering(core, peer, now_ns);
	return peer->old_session ? earlier(due_ns, peer->old_until_ns) : due_ns;
}

uint64_t peers_tick(struct core *core, uint64_t now_ns)
{
	uint64_t due_ns = CORE_NEVER;
	struct peer *peer, *next;

	HASH_ITER(hh, core->peers, peer, next)
	{
		due_ns = earlier(due_ns, tick(core, peer, now_ns));
	}
	return due_ns;
}
