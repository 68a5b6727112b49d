/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/communicator/mailbox.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferrule/collective.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"

static const uint8_t magic[4] = { 'F', 'R', 'L', 'M' };

enum {
	VERSION = 1,
	/* Limits for mail to communicators that do not exist yet, in bytes: one for failures,
	 * one for all other types. Mail that is lost is sent again, except for failures. */
	KEPT_FAILURES_MAX = 1024 * 1024,
	KEPT_MAX = 1024 * 1024,
	/* communicators that are remembered as ended, since mail for them may still arrive */
	ENDED = 64,
};

/* Header of every mail. */
struct mail_header {
	uint8_t magic[4];
	uint8_t version;
	uint8_t type;
	uint8_t zero[2];
	uint8_t id[COMM_ID_SIZE];
};

struct mailbox {
	struct frl_bootstrap *bootstrap;
	pthread_mutex_t mutex; /* protects all that follows, and the inboxes */
	unsigned users;
	struct inbox *inboxes;
	struct mail_list kept_failures, kept;
	size_t kept_failures_size, kept_size;
	/* IDs of ended communicators, by `n_ended` modulo ENDED */
	uint8_t ended[ENDED][COMM_ID_SIZE];
	uint32_t n_ended;
};

/* ---- lists */

static void init_mail_list(struct mail_list *list)
{
	memset(list, 0, sizeof(*list));
	list->end = &list->first;
}

static size_t cost_of(const struct mail *mail)
{
	return sizeof(*mail) + mail->size;
}

static struct mail **bucket_of(struct mail_list *list, const struct mail *mail)
{
	uint32_t hash = (uint32_t)mail->member * 7 + (uint32_t)mail->type * 3 + mail->channel +
		mail->id[0];

	return &list->buckets[hash % MAIL_BUCKETS];
}

static bool is_alike(const struct mail *a, const struct mail *b)
{
	return a->member == b->member && a->type == b->type && a->channel == b->channel &&
		memcmp(a->id, b->id, COMM_ID_SIZE) == 0;
}

static void append_mail(struct mail_list *list, struct mail *mail)
{
	struct mail **bucket = bucket_of(list, mail);

	mail->next = NULL;
	*list->end = mail;
	list->end = &mail->next;
	mail->next_alike = *bucket;
	*bucket = mail;
}

/* Appends a mail, or replaces the contents of an earlier mail of the same sender and type.
 * Returns false if the mail is not in the list; it has been freed. */
static bool add_mail(struct mail_list *list, struct mail *mail)
{
	struct mail *old = *bucket_of(list, mail);

	while (old && !is_alike(old, mail))
		old = old->next_alike;
	if (!old) {
		append_mail(list, mail);
		return true;
	}
	/* All mails of a type have one size; a mail with another size is malformed. */
	if (mail->type != MAIL_FAILED && mail->size == old->size)
		memcpy(old->bytes, mail->bytes, mail->size);
	free(mail);
	return false;
}

static struct mail *take_first(struct mail_list *list)
{
	struct mail *mail = list->first, **at = bucket_of(list, mail);

	list->first = mail->next;
	if (!list->first)
		list->end = &list->first;
	while (*at != mail)
		at = &(*at)->next_alike;
	*at = mail->next_alike;
	return mail;
}

static void free_mails(struct mail_list *list)
{
	while (list->first)
		free(take_first(list));
}

static struct inbox *find_inbox(const struct mailbox *mailbox, const uint8_t id[COMM_ID_SIZE])
{
	for (struct inbox *inbox = mailbox->inboxes; inbox; inbox = inbox->next) {
		if (memcmp(inbox->id, id, COMM_ID_SIZE) == 0)
			return inbox;
	}
	return NULL;
}

static bool has_ended(const struct mailbox *mailbox, const uint8_t id[COMM_ID_SIZE])
{
	for (uint32_t i = 0; i < ENDED && i < mailbox->n_ended; i++) {
		if (memcmp(mailbox->ended[i], id, COMM_ID_SIZE) == 0)
			return true;
	}
	return false;
}

/* ---- receiving */

/* Keeps a mail for a communicator that may be created later. The oldest mails are dropped at the
 * limit. */
static void keep(struct mail_list *list, size_t *size, size_t most, struct mail *mail)
{
	size_t cost = cost_of(mail);

	if (!add_mail(list, mail))
		return;
	*size += cost;
	while (*size > most) {
		struct mail *first = take_first(list);

		*size -= cost_of(first);
		free(first);
	}
}

static void deliver(struct mailbox *mailbox, struct inbox *inbox, struct mail *mail)
{
	if (inbox) {
		add_mail(&inbox->mails, mail);
		atomic_store_explicit(&inbox->is_waiting, true, memory_order_release);
	} else if (mail->type == MAIL_REPORT || has_ended(mailbox, mail->id)) {
		free(mail);
	} else if (mail->type == MAIL_FAILED) {
		keep(&mailbox->kept_failures, &mailbox->kept_failures_size, KEPT_FAILURES_MAX,
			mail);
	} else {
		keep(&mailbox->kept, &mailbox->kept_size, KEPT_MAX, mail);
	}
}

static uint64_t ms_since(uint64_t since_ns, uint64_t now_ns)
{
	return since_ns && now_ns > since_ns ? (now_ns - since_ns) / 1000000 : 0;
}

/* Writes a report: the number of the question, then the state note (see api/hang.c). */
static void write_report(
	const struct inbox *inbox, const uint8_t question[REPORT_QUESTION_SIZE], uint8_t *report)
{
	uint64_t now_ns = clock_now_ns();
	const struct state_note *note = inbox ? &inbox->note : NULL;

	memset(report, 0, REPORT_SIZE);
	memcpy(report, question, REPORT_QUESTION_SIZE);
	if (!note)
		return;
	put_number(report + 4, 4, 1);
	put_number(report + 8, 4, atomic_load_explicit(&note->number, memory_order_relaxed));
	put_number(report + 12, 4, atomic_load_explicit(&note->coll, memory_order_relaxed));
	put_number(report + 16, 4, atomic_load_explicit(&note->oldest, memory_order_relaxed));
	put_number(report + 20, 4,
		(uint32_t)atomic_load_explicit(&note->awaited, memory_order_relaxed));
	put_number(report + 24, 6,
		ms_since(atomic_load_explicit(&note->since_ns, memory_order_relaxed), now_ns));
	put_number(report + 30, 6,
		ms_since(atomic_load_explicit(&note->polled_ns, memory_order_relaxed), now_ns));
	put_number(report + 36, 1, atomic_load_explicit(&note->down_rails, memory_order_relaxed));
	put_number(report + 37, 8, atomic_load_explicit(&note->count, memory_order_relaxed));
}

static void send_mail(struct mailbox *mailbox, int member, enum mail_type type, const uint8_t *id,
	const void *bytes, size_t size)
{
	uint8_t mail[FRL_MAIL_MAX];
	struct mail_header header = { .version = VERSION, .type = (uint8_t)type };

	memcpy(header.magic, magic, sizeof(magic));
	memcpy(header.id, id, COMM_ID_SIZE);
	memcpy(mail, &header, sizeof(header));
	memcpy(mail + sizeof(header), bytes, size);
	mailbox->bootstrap->post(mailbox->bootstrap->ctx, member, mail, sizeof(header) + size);
}

/* The caller holds the mutex, so the inbox cannot be removed meanwhile. */
static void answer(
	struct mailbox *mailbox, int member, const uint8_t *id, const uint8_t *bytes, size_t size)
{
	uint8_t report[REPORT_SIZE];

	if (size != REPORT_QUESTION_SIZE)
		return;
	write_report(find_inbox(mailbox, id), bytes, report);
	send_mail(mailbox, member, MAIL_REPORT, id, report, sizeof(report));
}

static void take_mail(struct mailbox *mailbox, int member, const struct mail_header *header,
	const uint8_t *bytes, size_t size)
{
	struct mail *mail;
	struct inbox *inbox;

	if (header->type == MAIL_QUESTION) {
		answer(mailbox, member, header->id, bytes, size);
		return;
	}
	if (header->type != MAIL_CONNECT && header->type != MAIL_FAILED &&
		header->type != MAIL_REPORT && header->type != MAIL_MEASURED)
		return;
	if (header->type == MAIL_CONNECT && (size == 0 || bytes[0] >= MAIL_CHANNELS))
		return;
	mail = malloc(sizeof(*mail) + size);
	if (!mail)
		return;
	*mail = (struct mail){ .member = member, .type = header->type, .size = size };
	if (header->type == MAIL_CONNECT)
		mail->channel = bytes[0];
	memcpy(mail->id, header->id, COMM_ID_SIZE);
	memcpy(mail->bytes, bytes, size);
	inbox = find_inbox(mailbox, mail->id);
	deliver(mailbox, inbox, mail);
	if (inbox && inbox->on_connect && header->type == MAIL_CONNECT)
		inbox->on_connect(inbox->on_connect_arg);
}

static void receive(void *arg, int member, const void *data, size_t size)
{
	struct mailbox *mailbox = arg;
	struct mail_header header;

	if (size < sizeof(header))
		return;
	memcpy(&header, data, sizeof(header));
	if (memcmp(header.magic, magic, sizeof(magic)) != 0 || header.version != VERSION)
		return;
	pthread_mutex_lock(&mailbox->mutex);
	take_mail(mailbox, member, &header, (const uint8_t *)data + sizeof(header),
		size - sizeof(header));
	pthread_mutex_unlock(&mailbox->mutex);
}

/* ---- mailboxes and inboxes */

int mailbox_create(struct frl_bootstrap *bootstrap, struct mailbox **ret_mailbox)
{
	struct mailbox *mailbox = calloc(1, sizeof(*mailbox));

	if (!mailbox)
		return frl_fail(-ENOMEM, "no memory for a communicator");
	mailbox->bootstrap = bootstrap;
	mailbox->users = 1;
	pthread_mutex_init(&mailbox->mutex, NULL);
	init_mail_list(&mailbox->kept_failures);
	init_mail_list(&mailbox->kept);
	if (bootstrap->set_receiver)
		bootstrap->set_receiver(bootstrap->ctx, receive, mailbox);
	*ret_mailbox = mailbox;
	return 0;
}

struct mailbox *mailbox_get(struct mailbox *mailbox)
{
	pthread_mutex_lock(&mailbox->mutex);
	mailbox->users++;
	pthread_mutex_unlock(&mailbox->mutex);
	return mailbox;
}

void mailbox_put(struct mailbox *mailbox)
{
	bool is_last;

	if (!mailbox)
		return;
	pthread_mutex_lock(&mailbox->mutex);
	is_last = --mailbox->users == 0;
	pthread_mutex_unlock(&mailbox->mutex);
	if (!is_last)
		return;
	if (mailbox->bootstrap->set_receiver)
		mailbox->bootstrap->set_receiver(mailbox->bootstrap->ctx, NULL, NULL);
	free_mails(&mailbox->kept_failures);
	free_mails(&mailbox->kept);
	pthread_mutex_destroy(&mailbox->mutex);
	free(mailbox);
}

/* Moves the kept mail of a communicator to its inbox. */
static void hand_over(
	struct mailbox *mailbox, struct inbox *inbox, struct mail_list *kept, size_t *kept_size)
{
	struct mail *mail = kept->first;

	init_mail_list(kept);
	while (mail) {
		struct mail *next = mail->next;

		if (memcmp(mail->id, inbox->id, COMM_ID_SIZE) == 0) {
			*kept_size -= cost_of(mail);
			deliver(mailbox, inbox, mail);
		} else {
			append_mail(kept, mail);
		}
		mail = next;
	}
}

void mailbox_add(struct mailbox *mailbox, struct inbox *inbox)
{
	init_mail_list(&inbox->mails);
	atomic_store(&inbox->note.coll, FRL_COLLS);
	atomic_store(&inbox->note.awaited, -1);
	pthread_mutex_lock(&mailbox->mutex);
	inbox->next = mailbox->inboxes;
	mailbox->inboxes = inbox;
	hand_over(mailbox, inbox, &mailbox->kept_failures, &mailbox->kept_failures_size);
	hand_over(mailbox, inbox, &mailbox->kept, &mailbox->kept_size);
	pthread_mutex_unlock(&mailbox->mutex);
}

void mailbox_watch(
	struct mailbox *mailbox, struct inbox *inbox, void (*on_connect)(void *arg), void *arg)
{
	pthread_mutex_lock(&mailbox->mutex);
	inbox->on_connect = on_connect;
	inbox->on_connect_arg = arg;
	pthread_mutex_unlock(&mailbox->mutex);
}

void mailbox_remove(struct mailbox *mailbox, struct inbox *inbox)
{
	struct inbox **at = &mailbox->inboxes;

	pthread_mutex_lock(&mailbox->mutex);
	while (*at && *at != inbox)
		at = &(*at)->next;
	if (*at) {
		*at = inbox->next;
		memcpy(mailbox->ended[mailbox->n_ended++ % ENDED], inbox->id, COMM_ID_SIZE);
	}
	free_mails(&inbox->mails);
	pthread_mutex_unlock(&mailbox->mutex);
}

struct mail *mailbox_take(struct mailbox *mailbox, struct inbox *inbox)
{
	struct mail *first;

	pthread_mutex_lock(&mailbox->mutex);
	atomic_store_explicit(&inbox->is_waiting, false, memory_order_relaxed);
	first = inbox->mails.first;
	init_mail_list(&inbox->mails);
	pthread_mutex_unlock(&mailbox->mutex);
	return first;
}

void mailbox_send(struct mailbox *mailbox, int member, enum mail_type type,
	const struct inbox *inbox, const void *bytes, size_t size)
{
	send_mail(mailbox, member, type, inbox->id, bytes, size);
}

bool mailbox_abort(struct mailbox *mailbox, struct inbox *inbox, const char *reason)
{
	bool is_first;

	pthread_mutex_lock(&mailbox->mutex);
	is_first = !inbox->is_aborted;
	if (is_first)
		snprintf(inbox->reason, sizeof(inbox->reason), "%s", reason);
	inbox->is_aborted = true;
	atomic_store_explicit(&inbox->is_waiting, true, memory_order_release);
	pthread_mutex_unlock(&mailbox->mutex);
	return is_first;
}

bool mailbox_is_aborted(struct mailbox *mailbox, struct inbox *inbox, char reason[REASON_MAX])
{
	bool is_aborted;

	pthread_mutex_lock(&mailbox->mutex);
	is_aborted = inbox->is_aborted;
	memcpy(reason, inbox->reason, REASON_MAX);
	pthread_mutex_unlock(&mailbox->mutex);
	return is_aborted;
}
