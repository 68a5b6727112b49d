/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Identity of other daemons: by the name that is given for one, and by its Hello.
 */
#include "daemon/core/peers/peers.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- names */

struct place {
	char host[CORE_HOST]; /* lower case, without brackets */
	uint16_t port;
	bool has_port;
};

static bool parse_port(const char *text, struct place *ret)
{
	char *end;
	unsigned long port = strtoul(text, &end, 10);

	if (!isdigit((unsigned char)text[0]) || *end || port == 0 || port > UINT16_MAX)
		return false;
	ret->port = (uint16_t)port;
	ret->has_port = true;
	return true;
}

/* Parses "host", "host:port", "[v6]", "[v6]:port" or "v6". */
static bool parse_place(const char *text, struct place *ret)
{
	const char *host = text, *colon = strrchr(text, ':'), *end = text + strlen(text);
	bool is_v6 = colon && strchr(text, ':') != colon;

	memset(ret, 0, sizeof(*ret));
	ret->port = CONTROL_PORT;
	if (text[0] == '[') {
		host = text + 1;
		end = strchr(text, ']');
		if (!end || (end[1] && (end[1] != ':' || !parse_port(end + 2, ret))))
			return false;
	} else if (colon && !is_v6) {
		end = colon;
		if (!parse_port(colon + 1, ret))
			return false;
	}
	if (end == host || (size_t)(end - host) >= sizeof(ret->host))
		return false;
	for (size_t i = 0; host + i < end; i++) {
		unsigned char c = (unsigned char)host[i];

		if (!isalnum(c) && !strchr("._-:%", c))
			return false;
		ret->host[i] = (char)tolower(c);
	}
	return true;
}

static bool is_this_host(const struct core *core, const struct place *place)
{
	const struct config *config = core->config;
	bool is_own_port = !place->has_port ||
		(config->listen_address && place->port == config->listen_port);

	if (!is_own_port)
		return false;
	return !strcmp(place->host, "localhost") || !strcmp(place->host, "127.0.0.1") ||
		!strcmp(place->host, "::1") || !strcasecmp(place->host, config->host);
}

static void make_key(const char *host, uint16_t port, char *key, size_t size)
{
	snprintf(key, size, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
}

static struct peer *peer_of_key(const struct core *core, const char *key)
{
	struct peer *peer;

	HASH_FIND_STR(core->peers, key, peer);
	return peer;
}

struct peer *peer_of_instance(const struct core *core, uint64_t instance)
{
	for (struct peer *peer = core->peers; peer; peer = peer->hh.next) {
		if (peer->instance == instance && !peer->same_as && !peer->is_self)
			return peer;
	}
	return NULL;
}

static struct peer *peer_of_dial(const struct core *core, uint64_t session)
{
	for (struct peer *peer = core->peers; peer; peer = peer->hh.next) {
		if (peer->dial == session)
			return peer;
	}
	return NULL;
}

/* ---- creation */

/* Removes the peer that has been idle longest if the table is full. Returns false if none is
 * idle. */
static bool make_room(struct core *core, uint64_t now_ns)
{
	struct peer *idle = NULL;

	if (HASH_COUNT(core->peers) < core->config->max_peers)
		return true;
	for (struct peer *peer = core->peers; peer; peer = peer->hh.next) {
		if (peer_is_idle(peer) && !peer->dial && (!idle || peer->idle_ns < idle->idle_ns))
			idle = peer;
	}
	if (!idle)
		return false;
	peer_free(core, idle, now_ns);
	return true;
}

static struct peer *peer_new(
	struct core *core, const char *key, const char *host, uint16_t port, uint64_t now_ns)
{
	struct peer *peer = calloc(1, sizeof(*peer));

	if (!peer)
		return NULL;
	copy_text(peer->key, sizeof(peer->key), key);
	copy_text(peer->host, sizeof(peer->host), host);
	peer->port = port;
	peer->state = PEER_LOST;
	list_init(&peer->conns);
	list_init(&peer->members);
	peer->keepalive_ms = core->config->keepalive_ms;
	peer->backoff_ms = REDIAL_MIN_MS;
	peer->last_rx_ns = now_ns;
	peer->lost_ns = now_ns;
	peer->retry_ns = now_ns;
	peer->sync_round = 1;
	HASH_ADD_STR(core->peers, key, peer);
	if (hash_added(&peer->hh))
		return peer;
	free(peer);
	return NULL;
}

/* Unknown names cost nothing to invent: limits each user's share of the table. */
static bool has_share(const struct core *core)
{
	uint32_t max = core->config->max_peers, n = 0;

	if (!core->sender || core->sender->uid == 0)
		return true;
	for (const struct peer *peer = core->peers; peer; peer = peer->hh.next)
		n += peer->is_wanted && peer->uid == core->sender->uid &&
			(peer->dial || !peer_is_idle(peer));
	return n < max - max / SHARE_LEFT;
}

/* Returns the reason why a private daemon without settings cannot dial: it has no TLS. NULL: it
 * can. */
static const char *private_reaches_none(const struct core *core)
{
	const struct config *config = core->config;

	if (!core->facts.is_private || config->tls_certificate || config->insecure)
		return NULL;
	return core->facts.has_system ? "this user's private daemon reaches no other host, and the "
					"system's ferruled does not run: systemctl start ferruled"
				      : "this user's private daemon reaches no other host: set up "
					"the system's ferruled (man ferruled)";
}

struct peer *peer_get(struct core *core, const char *host, bool *ret_self, int *ret_error,
	const char **ret_why, uint64_t now_ns)
{
	struct place place;
	struct peer *peer;
	char key[sizeof(peer->key)];

	*ret_self = false;
	if (!host[0]) {
		*ret_self = true;
		return NULL;
	}
	*ret_error = EINVAL;
	*ret_why = "a host must be a name or an address, optionally with \":PORT\"; IPv6 addresses "
		   "need brackets then";
	if (!parse_place(host, &place))
		return NULL;
	make_key(place.host, place.port, key, sizeof(key));
	peer = peer_of_key(core, key);
	if (peer && peer->same_as)
		peer = peer->same_as;
	*ret_self = is_this_host(core, &place) || (peer && peer->is_self);
	if (*ret_self)
		return NULL;
	*ret_error = EHOSTUNREACH;
	*ret_why = private_reaches_none(core);
	if (*ret_why)
		return NULL;
	if (!peer) {
		*ret_error = EDQUOT;
		*ret_why = "this host's ferruled has reached its limit of peers (max_peers)";
		if (!make_room(core, now_ns))
			return NULL;
		*ret_why = "this user has reached the limit of peers of one user (max_peers)";
		if (!has_share(core))
			return NULL;
		*ret_error = ENOMEM;
		*ret_why = "ferruled has no memory left";
		peer = peer_new(core, key, place.host, place.port, now_ns);
		if (!peer)
			return NULL;
		peer->is_wanted = core->sender != NULL;
		peer->uid = core->sender ? core->sender->uid : 0;
	}
	/* An idle peer was not monitored: its silence starts now. */
	if (!peer->session && peer_is_idle(peer))
		peer->last_rx_ns = now_ns;
	/* Dial now, but limit the rate of dials. */
	if (!peer->dialled_ns || now_ns - peer->dialled_ns >= REDIAL_MIN_MS * PEER_MS)
		peer_dial(core, peer, now_ns);
	return peer;
}

bool peer_send(struct core *core, const struct peer *peer, Ctl__Envelope *envelope)
{
	struct session *session = peer->session ? session_find(core, peer->session) : NULL;

	if (!session || session->lost)
		return false;
	session_send(core, session, envelope);
	return true;
}

void send_hello(struct core *core, const struct session *session)
{
	const struct config *config = core->config;
	Ctl__Hello hello = CTL__HELLO__INIT;

	hello.role = CTL__ROLE__ROLE_DAEMON;
	hello.name = config->host;
	hello.instance = core->instance;
	hello.pid = (uint32_t)core->facts.pid;
	hello.port = config->listen_address ? config->listen_port : 0;
	hello.release = (char *)(uintptr_t)FERRULE_RELEASE;
	hello.keepalive_ms = config->keepalive_ms;
	session_send(core, session, &ENVELOPE(0, HELLO, hello, &hello));
}

/* ---- Hello */

static bool is_numeric(const char *host)
{
	return strchr(host, ':') || !host[strspn(host, "0123456789.")];
}

/* Returns true if the certificate is valid for the name in the Hello and for the name that was
 * dialled. Certificates usually contain no addresses. */
static bool is_certified(
	struct core *core, struct session *session, const struct peer *dialled, const char *name)
{
	const char *wanted = name;

	if (!session->tls || !session->certified)
		return true;
	if (session->certified(core->ops.ctx, session->id, name)) {
		if (!dialled || is_numeric(dialled->host))
			return true;
		wanted = dialled->host;
		if (session->certified(core->ops.ctx, session->id, wanted))
			return true;
	}
	core_say(core, CORE_LOG_WARNING,
		"refused the daemon at %s, which calls itself %s: its certificate is not for "
		"\"%s\"",
		session->address, name, wanted);
	return false;
}

/* The peer turned out to be this daemon. */
static void take_self(struct core *core, struct session *session, uint64_t now_ns)
{
	struct peer *peer = peer_of_dial(core, session->id);

	if (peer) {
		core_say(core, CORE_LOG_DEBUG, "%s is this host", peer->key);
		peer->dial = 0;
		peer->is_self = true;
		peer_set_state(peer);
		conns_peer_self(core, peer, now_ns);
		groups_peer_up(core, peer, now_ns);
	}
	peer_close_session(core, session->id, now_ns);
}

/* The dialled peer turned out to be an alias of a known one. */
static struct peer *merge_alias(
	struct core *core, struct peer *peer, struct peer *known, uint64_t now_ns)
{
	peer->dial = 0;
	peer->same_as = known;
	peer_set_state(peer);
	/* A name that leads there is better than an address that the peer connected from. */
	if (!known->dialled_ns || !known->port) {
		copy_text(known->host, sizeof(known->host), peer->host);
		known->port = peer->port;
	}
	for (struct peer *other = core->peers; other; other = other->hh.next) {
		if (other->same_as == peer)
			other->same_as = known;
	}
	conns_peer_same(core, peer, known, now_ns);
	while (!list_empty(&peer->members)) {
		struct member *member = container_of(peer->members.next, struct member, of_peer);

		list_remove(&member->of_peer);
		list_add_tail(&known->members, &member->of_peer);
		member->peer = known;
	}
	if (known->session)
		groups_peer_up(core, known, now_ns);
	return known;
}

/* Returns a peer that was restarted: it has a new instance at the same host and port. */
static struct peer *peer_of_place(
	const struct core *core, const struct session *session, const Ctl__Hello *hello)
{
	char key[sizeof(((struct peer *)0)->key)];
	struct peer *peer;

	if (!hello->port || hello->port > UINT16_MAX)
		return NULL;
	for (peer = core->peers; peer; peer = peer->hh.next) {
		if (peer->port == hello->port && !strcmp(peer->name, hello->name) &&
			!strcmp(peer->address, session->address) && !peer->same_as)
			return peer;
	}
	make_key(session->address, (uint16_t)hello->port, key, sizeof(key));
	peer = peer_of_key(core, key);
	return peer && !peer->is_self && !peer->same_as ? peer : NULL;
}

static struct peer *peer_that_came(
	struct core *core, const struct session *session, const Ctl__Hello *hello, uint64_t now_ns)
{
	uint16_t port = hello->port <= UINT16_MAX ? (uint16_t)hello->port : 0;
	char key[sizeof(((struct peer *)0)->key)];

	if (port)
		make_key(session->address, port, key, sizeof(key));
	else
		snprintf(key, sizeof(key), "%s#%016llx", session->address,
			(unsigned long long)hello->instance);
	/* The key belongs to a peer that has moved away. */
	if (peer_of_key(core, key))
		snprintf(key, sizeof(key), "%s:%u#%016llx", session->address, port,
			(unsigned long long)hello->instance);
	if (peer_of_key(core, key) || !make_room(core, now_ns))
		return NULL;
	return peer_new(core, key, session->address, port, now_ns);
}

/* Returns the peer that has sent this Hello; NULL if the session was closed. */
static struct peer *peer_of_hello(
	struct core *core, struct session *session, const Ctl__Hello *hello, uint64_t now_ns)
{
	struct peer *known = peer_of_instance(core, hello->instance);
	struct peer *dialled = session->kind == CORE_PEER_DIALLED ? peer_of_dial(core, session->id)
								  : NULL;

	if (session->tls && known && strcmp(known->name, hello->name)) {
		session_reject(core, session, EACCES, "%s uses the instance number of %s",
			hello->name, known->name);
		return NULL;
	}
	if (dialled && dialled->session && known) {
		dialled->dial = 0;
		return known;
	}
	if (dialled && known && known != dialled)
		return merge_alias(core, dialled, known, now_ns);
	if (dialled) {
		dialled->dial = 0;
		return dialled;
	}
	if (!known)
		known = peer_of_place(core, session, hello);
	if (!known)
		known = peer_that_came(core, session, hello, now_ns);
	if (!known)
		session_reject(core, session, EDQUOT,
			"%s has reached its limit of peers (max_peers)", core->config->host);
	return known;
}

/* ---- collisions of sessions */

static void use_session(struct peer *peer, const struct session *session, uint64_t now_ns)
{
	peer->session = session->id;
	peer->is_dialled = session->kind == CORE_PEER_DIALLED;
	peer->up_ns = now_ns;
	peer->pinged_ns = 0;
	peer->ping_ns = now_ns;
	copy_text(peer->address, sizeof(peer->address), session->address);
	if (peer->is_dialled)
		copy_text(peer->dialled_at, sizeof(peer->dialled_at), session->address);
	peer_set_state(peer);
}

static void linger(struct core *core, struct peer *peer, uint64_t session, uint64_t now_ns)
{
	if (peer->old_session) {
		uint64_t older = peer->old_session;

		peer->old_session = 0;
		peer_close_session(core, older, now_ns);
	}
	peer->old_session = session;
	peer->old_until_ns = now_ns + LINGER_MS * PEER_MS;
}

/* There is a session with this peer already, and both may be alive: both daemons have dialled, or
 * one has dialled twice by different names. */
static void collide(struct core *core, struct peer *peer, struct session *session, uint64_t now_ns)
{
	bool ours_stays = core->instance < peer->instance;
	bool is_ours = session->kind == CORE_PEER_DIALLED;

	session->peer = peer;
	if (is_ours != peer->is_dialled && is_ours != ours_stays) {
		linger(core, peer, session->id, now_ns);
	} else {
		linger(core, peer, peer->session, now_ns);
		use_session(peer, session, now_ns);
		conns_peer_up(core, peer, now_ns);
	}
	/* A third session has closed the oldest one, with the joins that were on their way. */
	groups_send_joins(core, peer, now_ns);
}

static void note_hello(
	struct core *core, struct peer *peer, const Ctl__Hello *hello, uint64_t now_ns)
{
	uint32_t keepalive_ms = core->config->keepalive_ms;

	if (hello->keepalive_ms && hello->keepalive_ms < keepalive_ms)
		keepalive_ms = hello->keepalive_ms;
	peer->keepalive_ms = keepalive_ms > KEEPALIVE_MIN_MS ? keepalive_ms : KEEPALIVE_MIN_MS;
	peer->instance = hello->instance;
	copy_text(peer->name, sizeof(peer->name), hello->name[0] ? hello->name : peer->host);
	copy_text(peer->release, sizeof(peer->release), hello->release);
	peer->last_rx_ns = now_ns;
	peer->refusal = 0;
	peer->backoff_ms = REDIAL_MIN_MS;
	if (!peer->port && hello->port <= UINT16_MAX)
		peer->port = (uint16_t)hello->port;
}

static void take_session(struct core *core, struct peer *peer, struct session *session,
	const Ctl__Hello *hello, uint64_t now_ns)
{
	bool is_new = peer->instance && peer->instance != hello->instance;

	note_hello(core, peer, hello, now_ns);
	if (peer->session && !is_new && now_ns - peer->up_ns < COLLISION_MS * PEER_MS &&
		!core->ops.is_stuck(core->ops.ctx, peer->session)) {
		collide(core, peer, session, now_ns);
		return;
	}
	if (peer->session) {
		uint64_t old = peer->session;

		peer_lost(core, peer,
			is_new ? "its daemon was started again" : "it has connected again", now_ns);
		peer_close_session(core, old, now_ns);
	}
	session->peer = peer;
	use_session(peer, session, now_ns);
	peer->last_error[0] = '\0';
	core_say(core, CORE_LOG_INFO, "connected with %s (%s, ferruled %s)", peer->name,
		session->address, peer->release);
	conns_peer_up(core, peer, now_ns);
	groups_peer_up(core, peer, now_ns);
}

void peers_hello(
	struct core *core, struct session *session, const Ctl__Hello *hello, uint64_t now_ns)
{
	const struct peer *dialled = session->kind == CORE_PEER_DIALLED
		? peer_of_dial(core, session->id)
		: NULL;
	struct peer *peer;

	if (hello->instance == core->instance) {
		/* The Hello tells the other end of the session that it has dialled itself. */
		if (session->kind == CORE_PEER)
			send_hello(core, session);
		take_self(core, session, now_ns);
		return;
	}
	if (!is_certified(core, session, dialled, hello->name)) {
		peers_dial_failed(core, session->id, CORE_END_TLS,
			"the certificate is for another host", now_ns);
		session_reject(core, session, EACCES,
			"the certificate is not for the host that it is used for");
		return;
	}
	peer = peer_of_hello(core, session, hello, now_ns);
	if (!peer)
		return;
	/* Only after the peer is accepted: a peer that gets a Failure first knows that retries are
	 * useless. */
	if (session->kind == CORE_PEER)
		send_hello(core, session);
	take_session(core, peer, session, hello, now_ns);
}
