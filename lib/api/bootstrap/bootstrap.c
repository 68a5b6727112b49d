/* SPDX-License-Identifier: BSD-3-Clause */
/* Joining and leaving a job, and handling the daemon's messages. */
#include "lib/api/bootstrap/bootstrap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/limit.h"
#include "lib/base/process/condition.h"
#include "lib/base/random.h"
#include "lib/base/settings.h"

enum {
	GATHER_TIMEOUT_MS = 60 * 1000,
	LEAVE_MS = 500, /* close() waits this long for the daemon to confirm the leave */
	AWAY_MS = 2000, /* and before that for absent daemons, if the job fails anyway */
	RANKS_MAX = 32768,
	MS_PER_S = 1000,
	NS_PER_MS = 1000000,
};

/* ---- waiting */

bool bootstrap_wait(struct bootstrap *bootstrap, uint64_t deadline_ns)
{
	return condition_wait(&bootstrap->changed, &bootstrap->mutex, deadline_ns);
}

bool bootstrap_wait_logged(struct bootstrap *bootstrap, uint64_t deadline_ns,
	struct reminder *reminder, void (*log_wait)(const struct bootstrap *bootstrap))
{
	uint64_t due_ns = reminder->due_ns;

	if (bootstrap_wait(bootstrap, due_ns < deadline_ns ? due_ns : deadline_ns))
		return true;
	if (due_ns >= deadline_ns)
		return false;
	if (reminder_is_due(reminder, clock_now_ns()))
		log_wait(bootstrap);
	return true;
}

uint64_t bootstrap_deadline(int timeout_ms)
{
	return timeout_ms < 0 ? UINT64_MAX
			      : clock_now_ns() + (uint64_t)timeout_ms * (uint64_t)NS_PER_MS;
}

/* ---- messages of the daemon: with the mutex held, in the thread of the connection */

static bool is_mine(const struct bootstrap *bootstrap, const ProtobufCBinaryData *id)
{
	return id->len == UUID_SIZE && memcmp(id->data, bootstrap->id, UUID_SIZE) == 0;
}

void bootstrap_fail(struct bootstrap *bootstrap, int error, const char *why)
{
	if (bootstrap->state == BOOTSTRAP_FAILED)
		return;
	bootstrap->state = BOOTSTRAP_FAILED;
	bootstrap->error = error;
	snprintf(bootstrap->why, sizeof(bootstrap->why), "%s", why);
}

static void take_piece(struct bootstrap *bootstrap, const Ctl__GroupPiece *from)
{
	int32_t ahead = (int32_t)(from->round - bootstrap->round);
	struct bootstrap_piece *piece;

	if (from->rank >= (uint32_t)bootstrap->ranks || from->rank == (uint32_t)bootstrap->rank ||
		ahead > 1) {
		bootstrap_fail(bootstrap, -EPROTO,
			"invalid message from the control daemon: use the same release of both");
		return;
	}
	piece = &bootstrap->pieces[from->round % 2][from->rank];
	/* A repeated piece: another rank may lack it. */
	if (ahead < 0 || piece->bytes)
		return;
	piece->bytes = malloc(from->data.len ? from->data.len : 1);
	if (!piece->bytes) {
		bootstrap_fail(bootstrap, -ENOMEM, "no memory for the pieces of other ranks");
		return;
	}
	if (from->data.len)
		memcpy(piece->bytes, from->data.data, from->data.len);
	piece->size = from->data.len;
}

static void take_loss(struct bootstrap_loss *loss, const Ctl__GroupEvent *event)
{
	if (loss->rank != BOOTSTRAP_NO_RANK)
		return;
	loss->rank = (int)event->rank;
	snprintf(loss->text, sizeof(loss->text), "%s", event->text);
}

/* The daemon of this host runs, but has lost the daemon that keeps the job. */
static void take_away(struct bootstrap *bootstrap, const char *what)
{
	if (bootstrap->state != BOOTSTRAP_JOINED && bootstrap->state != BOOTSTRAP_BACK)
		return;
	bootstrap_handle_loss(bootstrap, what);
	bootstrap_post_join(bootstrap);
	control_wake();
}

static void take_event(struct bootstrap *bootstrap, const Ctl__GroupEvent *event)
{
	bool of_rank = event->rank < (uint32_t)bootstrap->ranks;

	switch (event->kind) {
	case CTL__GROUP_EVENT_KIND__GROUP_LEFT:
		if (of_rank)
			bootstrap->left[event->rank] = true;
		return;
	case CTL__GROUP_EVENT_KIND__GROUP_DEAD:
		if (of_rank)
			take_loss(&bootstrap->dead, event);
		return;
	case CTL__GROUP_EVENT_KIND__GROUP_ABORTED:
		if (of_rank)
			take_loss(&bootstrap->aborted, event);
		return;
	case CTL__GROUP_EVENT_KIND__GROUP_REFUSED:
		if (bootstrap->state == BOOTSTRAP_AWAY)
			bootstrap_fail(bootstrap, -ECONNRESET, event->text);
		else if (bootstrap->state == BOOTSTRAP_JOINING && event->refusal > 0 &&
			event->refusal < 4096)
			bootstrap_fail(bootstrap, -(int)event->refusal, event->text);
		return;
	case CTL__GROUP_EVENT_KIND__GROUP_LOST:
		bootstrap_fail(bootstrap, -ECONNRESET, event->text);
		return;
	case CTL__GROUP_EVENT_KIND__GROUP_AWAY: take_away(bootstrap, event->text); return;
	case CTL__GROUP_EVENT_KIND__GROUP_MET:
		bootstrap->all_joined = true;
		if (bootstrap->state == BOOTSTRAP_BACK)
			bootstrap->state = BOOTSTRAP_JOINED;
		return;
	case CTL__GROUP_EVENT_KIND__GROUP_AGAIN:
		bootstrap_resend(bootstrap, event->round, event->rounds);
		return;
	case CTL__GROUP_EVENT_KIND__GROUP_EVENT_NONE: return;
	case _CTL__GROUP_EVENT_KIND_IS_INT_SIZE: return;
	}
}

/* Without mail ranks would wait for each other without limit. */
static void refuse_old_daemon(struct bootstrap *bootstrap)
{
	char why[BOOTSTRAP_TEXT];

	snprintf(why, sizeof(why),
		"the control daemon of this host%s%s is older than this library and cannot carry "
		"mail between ranks: update ferruled, and restart it",
		bootstrap->host[0] ? " or of " : "", bootstrap->host);
	bootstrap_fail(bootstrap, -EPROTO, why);
}

static void take_joined(struct bootstrap *bootstrap, const Ctl__GroupJoined *joined)
{
	if (bootstrap->state == BOOTSTRAP_JOINING)
		bootstrap->state = BOOTSTRAP_JOINED;
	else if (bootstrap->state == BOOTSTRAP_AWAY)
		bootstrap->state = BOOTSTRAP_BACK;
	else
		return;
	if (!joined->carries_mail && bootstrap->ranks > 1)
		refuse_old_daemon(bootstrap);
	bootstrap->group = joined->group;
}

static bool handle_message(struct control_handler *handler, const Ctl__Envelope *envelope)
{
	struct bootstrap *bootstrap = container_of(handler, struct bootstrap, handler);
	const ProtobufCBinaryData *id;

	switch ((int)envelope->body_case) {
	case CTL__ENVELOPE__BODY_GROUP_JOINED: id = &envelope->group_joined->member; break;
	case CTL__ENVELOPE__BODY_GROUP_PIECE: id = &envelope->group_piece->member; break;
	case CTL__ENVELOPE__BODY_GROUP_EVENT: id = &envelope->group_event->member; break;
	case CTL__ENVELOPE__BODY_GROUP_MAIL: id = &envelope->group_mail->member; break;
	default: return false;
	}
	if (!is_mine(bootstrap, id))
		return false;
	if (envelope->body_case == CTL__ENVELOPE__BODY_GROUP_MAIL) {
		bootstrap_take_mail(bootstrap, envelope->group_mail);
		return true;
	}
	pthread_mutex_lock(&bootstrap->mutex);
	if (envelope->body_case == CTL__ENVELOPE__BODY_GROUP_PIECE)
		take_piece(bootstrap, envelope->group_piece);
	else if (envelope->body_case == CTL__ENVELOPE__BODY_GROUP_EVENT)
		take_event(bootstrap, envelope->group_event);
	else
		take_joined(bootstrap, envelope->group_joined);
	pthread_cond_broadcast(&bootstrap->changed);
	pthread_mutex_unlock(&bootstrap->mutex);
	return true;
}

/* If the daemon exits before its answer, another one may follow. */
static void handle_up(struct control_handler *handler, bool again)
{
	struct bootstrap *bootstrap = container_of(handler, struct bootstrap, handler);

	(void)again;
	pthread_mutex_lock(&bootstrap->mutex);
	if (bootstrap->state == BOOTSTRAP_JOINING || bootstrap->state == BOOTSTRAP_AWAY)
		bootstrap_post_join(bootstrap);
	pthread_cond_broadcast(&bootstrap->changed);
	pthread_mutex_unlock(&bootstrap->mutex);
}

static void handle_down(struct control_handler *handler, int error, const char *why)
{
	struct bootstrap *bootstrap = container_of(handler, struct bootstrap, handler);

	pthread_mutex_lock(&bootstrap->mutex);
	if (bootstrap->state == BOOTSTRAP_JOINED || bootstrap->state == BOOTSTRAP_BACK) {
		bootstrap_handle_loss(bootstrap,
			"the control daemon of this host, which connects the ranks of the job, has "
			"ended");
	} else if (error && bootstrap->state != BOOTSTRAP_AWAY) {
		bootstrap_fail(bootstrap, error < 0 ? error : -error,
			why ? why : "there is no control daemon");
	}
	pthread_cond_broadcast(&bootstrap->changed);
	pthread_mutex_unlock(&bootstrap->mutex);
	control_wake();
}

/* ---- leaving */

static void make_leave(struct bootstrap *bootstrap, Ctl__GroupLeave *leave, Ctl__Envelope *envelope)
{
	ctl__group_leave__init(leave);
	bootstrap_set_id(&leave->member, bootstrap);
	envelope_init(envelope);
	envelope->body_case = CTL__ENVELOPE__BODY_GROUP_LEAVE;
	envelope->group_leave = leave;
}

static void bootstrap_abort(void *ctx, const char *why)
{
	struct bootstrap *bootstrap = ctx;
	char text[BOOTSTRAP_WHY];
	Ctl__GroupLeave leave;
	Ctl__Envelope envelope;

	snprintf(text, sizeof(text), "%.*s", BOOTSTRAP_WHY - 1, why ? why : "");
	frame_clean_text(text);
	make_leave(bootstrap, &leave, &envelope);
	leave.aborts = true;
	leave.why = text;
	pthread_mutex_lock(&bootstrap->mutex);
	/* The first reason counts, also for a later daemon. */
	if (!bootstrap->has_aborted)
		memcpy(bootstrap->abort_reason, text, sizeof(text));
	bootstrap->has_aborted = true;
	control_post(&envelope, -1);
	pthread_mutex_unlock(&bootstrap->mutex);
}

static void bootstrap_free(struct bootstrap *bootstrap)
{
	for (int i = 0; i < 2; i++) {
		for (int rank = 0; bootstrap->pieces[i] && rank < bootstrap->ranks; rank++)
			free(bootstrap->pieces[i][rank].bytes);
		free(bootstrap->pieces[i]);
	}
	free(bootstrap->left);
	bootstrap_mail_fini(&bootstrap->mail);
	pthread_cond_destroy(&bootstrap->changed);
	pthread_mutex_destroy(&bootstrap->mutex);
	free(bootstrap);
}

/* Returns whether nothing has failed that would make other ranks fail too. */
static bool is_healthy(const struct bootstrap *bootstrap)
{
	return !bootstrap->has_aborted && bootstrap->dead.rank == BOOTSTRAP_NO_RANK &&
		bootstrap->aborted.rank == BOOTSTRAP_NO_RANK;
}

/*
 * Waits until the other ranks are back after a lost daemon. If this rank exited first, they would
 * miss it, and may also lack its pieces. Without any allgather the others need not join at all.
 */
static void await_others(struct bootstrap *bootstrap)
{
	uint64_t deadline_ns;

	pthread_mutex_lock(&bootstrap->mutex);
	if (is_healthy(bootstrap))
		deadline_ns = bootstrap_deadline((int)settings_get()->control_lost_s * MS_PER_S);
	else
		deadline_ns = limit_after_ms(clock_now_ns(), AWAY_MS);
	while (bootstrap_is_away(bootstrap) &&
		(bootstrap->round > 0 || bootstrap->state == BOOTSTRAP_AWAY) &&
		bootstrap_wait(bootstrap, deadline_ns))
		;
	pthread_mutex_unlock(&bootstrap->mutex);
}

/* Waits until the daemon has the leave: without it, a process that exits now counts as dead. */
static void leave_job(struct bootstrap *bootstrap)
{
	Ctl__Envelope envelope, *answer = NULL;
	Ctl__GroupLeave leave;

	await_others(bootstrap);
	make_leave(bootstrap, &leave, &envelope);
	if (control_is_up() &&
		control_call(&envelope, limit_after_ms(clock_now_ns(), LEAVE_MS), &answer) == 0)
		ctl__envelope__free_unpacked(answer, NULL);
}

void bootstrap_close(void *ctx)
{
	struct bootstrap *bootstrap = ctx;

	leave_job(bootstrap);
	control_unregister(&bootstrap->handler);
	bootstrap_free(bootstrap);
}

void frl_bootstrap_set_timeout(struct frl_bootstrap *bootstrap, int timeout_ms)
{
	struct bootstrap *mine = bootstrap->ctx;

	pthread_mutex_lock(&mine->mutex);
	mine->timeout_ms = timeout_ms;
	pthread_mutex_unlock(&mine->mutex);
}

/* ---- joining */

static struct bootstrap *bootstrap_new(int rank, int ranks)
{
	struct bootstrap *bootstrap = calloc(1, sizeof(*bootstrap));
	uint64_t id[2] = { random_entropy(), random_entropy() };

	if (!bootstrap)
		return NULL;
	*bootstrap = (struct bootstrap){
		.handler = {
			.message = handle_message,
			.up = handle_up,
			.down = handle_down,
			.tick = bootstrap_tick,
		},
		.rank = rank,
		.ranks = ranks,
		.state = BOOTSTRAP_JOINING,
		.timeout_ms = GATHER_TIMEOUT_MS,
		.dead = { .rank = BOOTSTRAP_NO_RANK },
		.aborted = { .rank = BOOTSTRAP_NO_RANK },
		.pieces = { calloc((size_t)ranks, sizeof(struct bootstrap_piece)),
			calloc((size_t)ranks, sizeof(struct bootstrap_piece)) },
		.left = calloc((size_t)ranks, sizeof(*bootstrap->left)),
	};
	memcpy(bootstrap->id, id, sizeof(bootstrap->id));
	bootstrap_mail_init(&bootstrap->mail);
	pthread_mutex_init(&bootstrap->mutex, NULL);
	pthread_cond_init(&bootstrap->changed, NULL);
	if (bootstrap->pieces[0] && bootstrap->pieces[1] && bootstrap->left)
		return bootstrap;
	bootstrap_free(bootstrap);
	return NULL;
}

/* Parses "JOB" or "JOB@HOST". */
static int parse_job(struct bootstrap *bootstrap, const char *text)
{
	static const char characters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
					 "0123456789._-";
	size_t length = strspn(text, characters);
	const char *host = text[length] == '@' ? text + length + 1 : "";

	if (length < 1 || length > FRL_SERVICE_MAX || (text[length] && text[length] != '@'))
		return frl_fail(-EINVAL,
			"'%s' is not a job: its name has 1 to %d letters, digits, '.', '_' and "
			"'-', and \"@HOST\" may follow",
			text, FRL_SERVICE_MAX);
	if (text[length] && (!host[0] || strlen(host) > FRL_HOST_MAX))
		return frl_fail(-EINVAL, "'%s': a host has 1 to %d characters", text, FRL_HOST_MAX);
	memcpy(bootstrap->job, text, length);
	snprintf(bootstrap->host, sizeof(bootstrap->host), "%s", host);
	return 0;
}

static void log_no_answer(const struct bootstrap *bootstrap)
{
	bool is_up = control_is_up();

	frl_log(FRL_LOG_WARNING, "job %s: waiting for the control daemon of %s%s", bootstrap->job,
		is_up && bootstrap->host[0] ? bootstrap->host : "this host",
		is_up && bootstrap->host[0] ? ", which keeps the job" : "");
}

static int await_answer(struct bootstrap *bootstrap, int timeout_ms)
{
	struct reminder reminder = reminder_start(clock_now_ns());
	uint64_t deadline_ns = bootstrap_deadline(timeout_ms);
	bool in_time = true;
	int err = 0;

	pthread_mutex_lock(&bootstrap->mutex);
	while (bootstrap->state == BOOTSTRAP_JOINING && in_time)
		in_time = bootstrap_wait_logged(bootstrap, deadline_ns, &reminder, log_no_answer);
	if (bootstrap->state == BOOTSTRAP_FAILED)
		err = frl_fail(bootstrap->error, "%s", bootstrap->why);
	else if (bootstrap->state == BOOTSTRAP_JOINING)
		err = frl_fail(-ETIMEDOUT, "no answer from the control daemon %s%s within %d ms",
			bootstrap->host[0] ? "for " : "of this host", bootstrap->host, timeout_ms);
	pthread_mutex_unlock(&bootstrap->mutex);
	return err;
}

static int join(struct bootstrap *bootstrap, int timeout_ms)
{
	Ctl__GroupLeave leave;
	Ctl__Envelope envelope;
	/* up() posts the join. */
	int err = control_register(&bootstrap->handler, CONTROL_START);

	if (err)
		return err;
	err = await_answer(bootstrap, timeout_ms);
	if (!err)
		return 0;
	if (err == -ETIMEDOUT || err == -EPROTO) {
		/* Leave, so that the other ranks do not wait for a rank that cannot continue. */
		if (err == -EPROTO)
			bootstrap_abort(bootstrap, bootstrap->why);
		/* Leave anyway: the daemon may still be waiting for another daemon. */
		make_leave(bootstrap, &leave, &envelope);
		control_post(&envelope, -1);
	}
	control_unregister(&bootstrap->handler);
	return err;
}

int frl_bootstrap_join(
	const char *job, int rank, int ranks, int timeout_ms, struct frl_bootstrap *ret_bootstrap)
{
	struct bootstrap *bootstrap;
	int err;

	if (!job || !ret_bootstrap)
		return frl_fail(-EINVAL, "the job or ret_bootstrap is NULL");
	if (ranks < 1 || ranks > RANKS_MAX || rank < 0 || rank >= ranks || timeout_ms < 0)
		return frl_fail(
			-EINVAL, "rank %d of %d, %d ms: out of range", rank, ranks, timeout_ms);
	bootstrap = bootstrap_new(rank, ranks);
	if (!bootstrap)
		return frl_fail(-ENOMEM, "no memory for a bootstrap of %d ranks", ranks);
	err = parse_job(bootstrap, job);
	if (!err)
		err = join(bootstrap, timeout_ms);
	if (err) {
		bootstrap_free(bootstrap);
		return err;
	}
	*ret_bootstrap = (struct frl_bootstrap){
		.rank = rank,
		.ranks = ranks,
		.ctx = bootstrap,
		.allgather = bootstrap_allgather,
		.check = bootstrap_check,
		.abort = bootstrap_abort,
		.close = bootstrap_close,
		.has_left = bootstrap_has_left,
		.post = bootstrap_post,
		.set_receiver = bootstrap_set_receiver,
	};
	return 0;
}
