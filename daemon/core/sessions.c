/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sessions: opening, Hello, refusal, and removal with all their objects. The memory of a removed
 * session stays until the core's function returns, since the caller may still read it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/internal.h"

enum {
	ROOM_FOR_ROOT = 16,         /* extra local sessions for root, for diagnosis */
	ROOM_FOR_UNIDENTIFIED = 16, /* sessions without a Hello from one other address */
	SAY_AGAIN_MS = 1000,        /* refused sessions are logged once in this time */
	ROOM_FOR_PEERS = 64,        /* sessions of daemons beyond max_peers, opening or closing */
};

struct session *session_find(struct core *core, uint64_t id)
{
	struct session *session;

	HASH_FIND(hh, core->sessions, &id, sizeof(id), session);
	return session;
}

/* ---- sending */

static void send_to(struct core *core, uint64_t id, Ctl__Envelope *envelope)
{
	core->ops.send(core->ops.ctx, id, envelope);
}

void session_send(struct core *core, const struct session *session, Ctl__Envelope *envelope)
{
	if (!session->lost)
		send_to(core, session->id, envelope);
}

static void send_failure(
	struct core *core, uint64_t id, uint64_t seq, int error, uint32_t retry_ms, char *text)
{
	Ctl__Failure failure = CTL__FAILURE__INIT;

	frame_clean_text(text); /* it may end within a character */
	failure.retry_ms = retry_ms;
	failure.error = (uint32_t)error;
	failure.text = text;
	send_to(core, id, &ENVELOPE(seq, FAILURE, failure, &failure));
}

void session_fail(struct core *core, const struct session *session, uint64_t seq, int error,
	const char *format, ...)
{
	char text[1000];
	va_list args;

	if (!seq || session->lost)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	send_failure(core, session->id, seq, error, 0, text);
}

void session_fail_for(struct core *core, const struct session *session, uint64_t seq, int error,
	uint32_t retry_ms, const char *text)
{
	char copy[1000];

	if (!seq || session->lost)
		return;
	copy_text(copy, sizeof(copy), text);
	send_failure(core, session->id, seq, error, retry_ms, copy);
}

void session_done(struct core *core, const struct session *session, uint64_t seq)
{
	Ctl__Done done = CTL__DONE__INIT;

	if (!seq)
		return;
	session_send(core, session, &ENVELOPE(seq, DONE, done, &done));
}

/* ---- users */

static struct user *user_find(const struct core *core, uid_t uid)
{
	struct user *user;

	HASH_FIND(hh, core->users, &uid, sizeof(uid), user);
	return user;
}

struct usage core_usage(const struct core *core, uid_t uid)
{
	const struct user *user = user_find(core, uid);

	return user ? user->usage : (struct usage){ 0 };
}

/* Returns false without memory. */
static bool give_user(struct core *core, struct session *session)
{
	struct user *user = user_find(core, session->uid);

	if (!user) {
		user = calloc(1, sizeof(*user));
		if (!user)
			return false;
		user->uid = session->uid;
		HASH_ADD(hh, core->users, uid, sizeof(user->uid), user);
		if (!hash_added(&user->hh)) {
			free(user);
			return false;
		}
	}
	user->usage.sessions++;
	session->user = user;
	return true;
}

static void take_user(struct core *core, struct session *session)
{
	struct user *user = session->user;

	session->user = NULL;
	if (!user || --user->usage.sessions)
		return;
	HASH_DEL(core->users, user);
	free(user);
}

/* ---- opening */

/* Returns the number of sessions from that address without a Hello. */
static uint32_t count_unidentified(const struct core *core, const char *address)
{
	uint32_t n = 0;

	for (const struct session *session = core->sessions; session; session = session->hh.next)
		n += session->kind == CORE_PEER && session->role == CTL__ROLE__ROLE_NONE &&
			strcmp(session->address, address) == 0;
	return n;
}

static const char *limit_reached(const struct core *core, const struct core_session_info *info)
{
	const struct config *config = core->config;

	if (info->kind == CORE_PEER_DIALLED)
		return NULL; /* the core has dialled it */
	if (info->kind == CORE_PEER) {
		if (core->n_remote >= config->max_peers + ROOM_FOR_PEERS)
			return "there are too many sessions of other hosts (max_peers)";
		if (count_unidentified(core, info->address ? info->address : "") >=
			ROOM_FOR_UNIDENTIFIED)
			return "there are too many sessions without a Hello from this address";
		return NULL;
	}
	if (core->n_local >= config->max_sessions + (info->uid == 0 ? ROOM_FOR_ROOT : 0))
		return "there are too many processes (max_sessions)";
	if (info->uid != 0 && core_usage(core, info->uid).sessions >= config->max_sessions_per_user)
		return "this user has too many processes (max_sessions_per_user)";
	return NULL;
}

bool session_in_group(const struct session *session, gid_t gid)
{
	for (size_t i = 0; i < session->n_gids; i++) {
		if (session->gids[i] == gid)
			return true;
	}
	return false;
}

static bool is_operator(const struct core *core, const struct session *session)
{
	const struct config *config = core->config;

	if (session->kind != CORE_LOCAL)
		return false;
	/* Access to the socket of a private daemon does not make another user an operator. */
	if (session->uid == 0 || (core->facts.is_private && session->uid == core->facts.uid))
		return true;
	for (size_t i = 0; i < config->n_operators; i++) {
		if (session_in_group(session, config->operators[i]))
			return true;
	}
	return false;
}

void sessions_configure(struct core *core)
{
	for (struct session *session = core->sessions; session; session = session->hh.next)
		session->is_operator = is_operator(core, session);
}

static struct session *session_new(
	const struct core *core, uint64_t id, const struct core_session_info *info, uint64_t now_ns)
{
	struct session *session = calloc(1, sizeof(*session));

	if (!session)
		return NULL;
	session->id = id;
	session->kind = info->kind;
	session->role = CTL__ROLE__ROLE_NONE;
	session->opened_ns = now_ns;
	session->hello_by_ns = now_ns + core->config->hello_ms * UINT64_C(1000000);
	session->tls = info->tls;
	session->certified = info->certified;
	list_init(&session->ports);
	list_init(&session->listeners);
	list_init(&session->conns);
	list_init(&session->members);
	list_init(&session->requests);
	copy_text(session->address, sizeof(session->address), info->address ? info->address : "");
	if (info->kind != CORE_LOCAL)
		return session;
	session->uid = info->uid;
	session->n_gids = info->n_gids;
	memcpy(session->gids, info->gids, info->n_gids * sizeof(info->gids[0]));
	session->who.pid = (uint32_t)info->pid;
	session->who.uid = (uint32_t)info->uid;
	copy_text(session->who.program, sizeof(session->who.program),
		info->program ? info->program : "");
	frame_clean_text(session->who.program);
	session->is_operator = is_operator(core, session);
	return session;
}

static void turn_away(
	struct core *core, uint64_t id, const struct core_session_info *info, const char *limit)
{
	char text[CORE_REASON];

	core->counters.sessions_refused++;
	snprintf(text, sizeof(text), "%s", limit ? limit : "ferruled has no memory left");
	send_failure(core, id, 0, limit ? EDQUOT : ENOMEM, 0, text);
	if (core->refused_ns && core->now_ns - core->refused_ns < SAY_AGAIN_MS * UINT64_C(1000000))
		return;
	core->refused_ns = core->now_ns;
	if (info->kind == CORE_LOCAL)
		core_say(core, CORE_LOG_WARNING, "refused process %d of user %u: %s",
			(int)info->pid, info->uid, text);
	else
		core_say(core, CORE_LOG_WARNING, "refused a session from %s: %s",
			info->address ? info->address : "?", text);
}

/* Returns false without memory. */
static bool session_add(struct core *core, struct session *session)
{
	if (session->kind == CORE_LOCAL && !give_user(core, session))
		return false;
	HASH_ADD(hh, core->sessions, id, sizeof(session->id), session);
	if (hash_added(&session->hh))
		return true;
	take_user(core, session);
	return false;
}

bool core_opened(
	struct core *core, uint64_t id, const struct core_session_info *info, uint64_t now_ns)
{
	const char *limit = limit_reached(core, info);
	struct session *session = limit ? NULL : session_new(core, id, info, now_ns);

	core->now_ns = now_ns;
	core->due_ns = now_ns;
	if (session && !session_add(core, session)) {
		free(session);
		session = NULL;
	}
	if (!session) {
		turn_away(core, id, info, limit);
		return false;
	}
	core->counters.sessions++;
	core->n_unidentified++;
	if (info->kind == CORE_LOCAL) {
		core->n_local++;
		core->idle_since_ns = 0;
	} else {
		core->n_remote++;
	}
	if (info->kind == CORE_PEER_DIALLED)
		send_hello(core, session);
	return true;
}

void session_hello(struct core *core, struct session *session, const Ctl__Envelope *envelope)
{
	const Ctl__Hello *hello = envelope->hello;
	bool is_daemon = hello->role == CTL__ROLE__ROLE_DAEMON;

	if (envelope->version != CONTROL_VERSION) {
		session_reject(core, session, EPROTO,
			"%s has version %u of the control protocol (release %s), this ferruled "
			"version %d (release %s): install matching releases",
			hello->name, envelope->version, hello->release, CONTROL_VERSION,
			FERRULE_RELEASE);
		return;
	}
	if (is_daemon != (session->kind != CORE_LOCAL) || hello->instance == 0) {
		session_reject(core, session, EPROTO,
			"a Hello of role %d is not allowed on this socket", (int)hello->role);
		return;
	}
	session->role = hello->role;
	session->instance = hello->instance;
	core->n_unidentified--;
	if (is_daemon) {
		peers_hello(core, session, hello, core->now_ns);
		return;
	}
	if (hello->name[0])
		copy_text(session->who.program, sizeof(session->who.program), hello->name);
	/* The system has no process number here for another PID namespace. */
	if (!session->who.pid)
		session->who.pid = hello->pid;
	send_hello(core, session);
}

void session_drop_page(struct session *session)
{
	if (session->page.close)
		session->page.close(&session->page);
	session->page = (struct page_view){ 0 };
}

void core_page(struct core *core, uint64_t id, const struct page_view *page)
{
	struct session *session = session_find(core, id);

	if (!session) {
		page->close(page);
		return;
	}
	session_drop_page(session);
	session->page = *page;
}

/* ---- end */

void session_remove(struct core *core, struct session *session, enum core_end end, const char *why)
{
	uint64_t now_ns = core->now_ns;

	if (session->lost)
		return;
	session->lost = true;
	session->next_lost = core->lost;
	core->lost = session;
	HASH_DEL(core->sessions, session);
	if (session->role == CTL__ROLE__ROLE_NONE)
		core->n_unidentified--;
	if (session->kind == CORE_LOCAL)
		core->n_local--;
	else
		core->n_remote--;
	if (session->kind == CORE_LOCAL && core->n_local == 0)
		core->idle_since_ns = now_ns;
	if (session->kind == CORE_LOCAL)
		conns_session_lost(core, session, now_ns);
	groups_session_lost(core, session, now_ns);
	if (session->kind == CORE_LOCAL)
		ports_session_lost(core, session, now_ns);
	query_session_lost(core, session, now_ns);
	if (session->kind != CORE_LOCAL)
		peers_session_lost(core, session, end, why, now_ns);
	session_drop_page(session);
	take_user(core, session);
}

void session_reject(struct core *core, struct session *session, int error, const char *format, ...)
{
	char text[1000];
	va_list args;

	if (session->lost)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	core->counters.bad_messages++;
	if (session->kind == CORE_LOCAL)
		core_say(core, CORE_LOG_WARNING,
			"closed the session of process %u (%s) of user %u: %s", session->who.pid,
			session->who.program, session->who.uid, text);
	else
		core_say(core, CORE_LOG_WARNING, "closed the session of the daemon at %s: %s",
			session->address, text);
	send_failure(core, session->id, 0, error, 0, text);
	core->ops.close(core->ops.ctx, session->id);
	session_remove(core, session, CORE_END_BAD, text);
}

void session_close(struct core *core, struct session *session, uint64_t now_ns)
{
	if (session->lost)
		return;
	core->now_ns = now_ns;
	core->ops.close(core->ops.ctx, session->id);
	session_remove(core, session, CORE_END_CLOSED, "closed");
}

void core_closed(
	struct core *core, uint64_t id, enum core_end end, const char *why, uint64_t now_ns)
{
	struct session *session = session_find(core, id);

	core->now_ns = now_ns;
	core->due_ns = now_ns;
	if (end == CORE_END_BAD)
		core->counters.bad_messages++;
	if (session) {
		if (end == CORE_END_BAD && session->kind == CORE_LOCAL)
			core_say(core, CORE_LOG_WARNING, "process %u (%s) of user %u: %s",
				session->who.pid, session->who.program, session->who.uid, why);
		session_remove(core, session, end, why);
	} else if (id & CORE_DIALLED) {
		peers_dial_failed(core, id, end, why, now_ns);
	}
	sessions_reap(core);
}

void sessions_reap(struct core *core)
{
	while (core->lost) {
		struct session *session = core->lost;

		core->lost = session->next_lost;
		free(session);
	}
}

uint64_t sessions_tick(struct core *core)
{
	uint64_t due_ns = CORE_NEVER;
	struct session *session, *next;

	if (core->n_unidentified == 0)
		return due_ns;
	HASH_ITER(hh, core->sessions, session, next)
	{
		if (session->role != CTL__ROLE__ROLE_NONE)
			continue;
		if (session->hello_by_ns <= core->now_ns)
			session_reject(core, session, ETIMEDOUT, "no Hello came within %u ms",
				core->config->hello_ms);
		else if (session->hello_by_ns < due_ns)
			due_ns = session->hello_by_ns;
	}
	return due_ns;
}
