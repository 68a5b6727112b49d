/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mail between ranks. The thread of the daemon connection receives mail and calls the receiver
 * without a lock, so a receiver may post, and set another receiver. Without a receiver mail is kept
 * in order; that thread delivers it once a receiver is set.
 */
#include "lib/api/bootstrap/bootstrap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"

enum {
	KEPT_MAX = 1024 * 1024, /* including the overhead of keeping */
	/*
	 * Limit of mail that waits for the daemon: a fraction of the limit of control_post(), so
	 * that other messages still have room.
	 */
	QUEUED_MAX = 16 << 20,
};

struct kept_mail {
	struct list node;
	int rank;
	size_t size;
	uint8_t data[];
};

void bootstrap_mail_init(struct bootstrap_mail *mail)
{
	pthread_mutex_init(&mail->mutex, NULL);
	pthread_cond_init(&mail->returned, NULL);
	list_init(&mail->kept);
}

static struct kept_mail *take_first(struct bootstrap_mail *mail)
{
	struct kept_mail *first = container_of(mail->kept.next, struct kept_mail, node);

	list_remove(&first->node);
	mail->kept_size -= sizeof(*first) + first->size;
	return first;
}

void bootstrap_mail_fini(struct bootstrap_mail *mail)
{
	while (!list_empty(&mail->kept))
		free(take_first(mail));
	pthread_cond_destroy(&mail->returned);
	pthread_mutex_destroy(&mail->mutex);
}

/* ---- in the thread of the connection */

/* Calls the receiver. Called with the mutex held, which is released meanwhile. */
static void call_receiver(struct bootstrap_mail *mail, int rank, const void *data, size_t size)
{
	void (*receive)(void *, int, const void *, size_t) = mail->receive;
	void *arg = mail->arg;

	mail->calls = true;
	mail->caller = pthread_self();
	mail->number++;
	pthread_mutex_unlock(&mail->mutex);
	receive(arg, rank, data, size);
	pthread_mutex_lock(&mail->mutex);
	mail->calls = false;
	pthread_cond_broadcast(&mail->returned);
}

/*
 * Keeps mail until there is a receiver; drops it if there is no room or no memory. With the mutex
 * held.
 */
static void keep(struct bootstrap_mail *mail, int rank, const ProtobufCBinaryData *data)
{
	struct kept_mail *kept = NULL;

	if (mail->kept_size + sizeof(*kept) + data->len <= KEPT_MAX)
		kept = malloc(sizeof(*kept) + data->len);
	if (!kept)
		return;
	kept->rank = rank;
	kept->size = data->len;
	if (data->len)
		memcpy(kept->data, data->data, data->len);
	mail->kept_size += sizeof(*kept) + data->len;
	list_init(&kept->node);
	list_add_tail(&mail->kept, &kept->node);
}

static void deliver_kept(struct bootstrap_mail *mail)
{
	while (mail->receive && !list_empty(&mail->kept)) {
		struct kept_mail *kept = take_first(mail);

		call_receiver(mail, kept->rank, kept->data, kept->size);
		free(kept);
	}
}

void bootstrap_mail_deliver(struct bootstrap_mail *mail)
{
	pthread_mutex_lock(&mail->mutex);
	deliver_kept(mail);
	pthread_mutex_unlock(&mail->mutex);
}

void bootstrap_take_mail(struct bootstrap *bootstrap, const Ctl__GroupMail *from)
{
	struct bootstrap_mail *mail = &bootstrap->mail;

	if (from->rank >= (uint32_t)bootstrap->ranks || from->rank == (uint32_t)bootstrap->rank)
		return;
	pthread_mutex_lock(&mail->mutex);
	deliver_kept(mail);
	if (mail->receive)
		call_receiver(mail, (int)from->rank, from->mail.data, from->mail.len);
	else
		keep(mail, (int)from->rank, &from->mail);
	pthread_mutex_unlock(&mail->mutex);
}

/* ---- callbacks of struct frl_bootstrap */

void bootstrap_set_receiver(
	void *ctx, void (*receive)(void *arg, int rank, const void *data, size_t size), void *arg)
{
	struct bootstrap *bootstrap = ctx;
	struct bootstrap_mail *mail = &bootstrap->mail;
	uint64_t number;
	bool has_kept;

	pthread_mutex_lock(&mail->mutex);
	mail->receive = receive;
	mail->arg = arg;
	number = mail->number;
	/* Within the receiver, do not wait for the receiver itself. */
	while (mail->calls && mail->number == number &&
		!pthread_equal(mail->caller, pthread_self()))
		pthread_cond_wait(&mail->returned, &mail->mutex);
	has_kept = receive && !list_empty(&mail->kept);
	pthread_mutex_unlock(&mail->mutex);
	if (has_kept)
		control_wake();
}

/* With the mutex held. */
static int check_recipient(const struct bootstrap *bootstrap, int rank)
{
	if (bootstrap->state == BOOTSTRAP_FAILED)
		return frl_fail(-ECONNRESET, "%s", bootstrap->why);
	if (bootstrap->left[rank])
		return frl_fail(-ECONNRESET, "rank %d is gone: it has left", rank);
	if (bootstrap->dead.rank == rank)
		return frl_fail(-ECONNRESET, "rank %d is gone: %s", rank, bootstrap->dead.text);
	return 0;
}

int bootstrap_post(void *ctx, int rank, const void *data, size_t size)
{
	struct bootstrap *bootstrap = ctx;
	Ctl__GroupMail mail = CTL__GROUP_MAIL__INIT;
	Ctl__Envelope envelope;
	int err;

	if (rank < 0 || rank >= bootstrap->ranks || rank == bootstrap->rank)
		return frl_fail(
			-EINVAL, "rank %d is not another rank of the %d", rank, bootstrap->ranks);
	if (size > FRL_MAIL_MAX || (!data && size > 0))
		return frl_fail(-EINVAL, "%zu bytes: mail has at most %d", size, FRL_MAIL_MAX);
	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_GROUP_MAIL;
	envelope.group_mail = &mail;
	bootstrap_set_id(&mail.member, bootstrap);
	mail.rank = (uint32_t)rank;
	mail.mail = (ProtobufCBinaryData){ size, (uint8_t *)(uintptr_t)data };
	pthread_mutex_lock(&bootstrap->mutex);
	err = check_recipient(bootstrap, rank);
	if (!err && control_queued() > QUEUED_MAX)
		err = frl_fail(-ENOMEM,
			"too much mail is queued for the control daemon: check whether it hangs");
	if (!err)
		err = control_post(&envelope, -1);
	pthread_mutex_unlock(&bootstrap->mutex);
	return err == -ENOTCONN ? -ECONNRESET : err;
}
