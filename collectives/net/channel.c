/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How channels are set up. A rank that needs a peer, or receives mail from a rank that needs it,
 * creates its queue pairs and mails their endpoints. A rank that has the peer's endpoints connects,
 * and mails when its queue pairs can receive. Nothing is sent before that, since packets to a queue
 * pair that is not ready would be lost. Mail may be lost, so a rank that waits repeats its mail.
 */
#include "collectives/net/channel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/communicator/communicator.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

enum {
	REPEAT_MS = 500, /* the interval doubles with each repetition, up to REPEATS_SLOWER times */
	REPEATS_SLOWER = 4,
	REPEATS_WARNED = 5, /* repetitions after which a warning is logged */
};

/* Flags and contents of a MAIL_CONNECT. */
enum channel_flags {
	CHANNEL_IS_READY = 1 << 0,     /* the sender's queue pairs can receive */
	CHANNEL_NEEDS_ANSWER = 1 << 1, /* the receiver must mail its own state */
};

struct channel_mail {
	uint8_t channel;
	uint8_t flags;
	uint8_t zero[2];
	uint8_t epoch[4];
	uint8_t resume[5][4]; /* struct resume */
	uint8_t more_zero[4];
	char host[CHANNEL_HOST]; /* the sender's, for operators */
	struct frl_endpoint endpoints[2];
};

_Static_assert((int)MAIL_CHANNELS == (int)RAILS_MAX, "the mailbox knows all channels of a peer");
_Static_assert(sizeof(struct channel_mail) == 32 + CHANNEL_HOST + 2 * FRL_ENDPOINT_SIZE,
	"the mail has no holes");

/* A work request that could not be posted because the device failed is posted to the next
 * connection. */
int channel_post_failed(struct channel *channel, int err)
{
	struct frl_comm *comm = channel->peer->comm;

	err = rail_check(comm, channel->rail, err);
	return err ? comm_fail(comm, err, "posting to the connection to rank %d: %s",
			     channel->peer->rank, frl_last_error())
		   : 0;
}

/* ---- peers */

static bool flight_init(struct flight *flight, uint32_t at_least)
{
	flight->size = 1;
	while (flight->size < at_least)
		flight->size *= 2;
	flight->segments = calloc(flight->size, sizeof(*flight->segments));
	return flight->segments != NULL;
}

static void peer_free(struct peer *peer)
{
	free(peer->sends.segments);
	free(peer->receives.segments);
	free(peer);
}

struct peer *comm_peer(struct frl_comm *comm, int rank)
{
	struct peer *peer = comm->peers[rank];

	if (peer)
		return peer;
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return NULL;
	peer->comm = comm;
	peer->rank = rank;
	for (int kind = 0; kind < LANE_PEER_KINDS; kind++)
		peer->lanes[kind] = (struct lane){ .kind = (enum lane_kind)kind, .peer = peer };
	if (!flight_init(&peer->sends, BULK_SENDS * comm->n_rails) ||
		!flight_init(&peer->receives, BULK_RECEIVES * comm->n_rails)) {
		peer_free(peer);
		return NULL;
	}
	peer->next = comm->first_peer;
	comm->first_peer = peer;
	comm->peers[rank] = peer;
	return peer;
}

bool peers_create(struct frl_comm *comm, const struct schedule *schedule)
{
	for (uint32_t i = 0; i < schedule->n_lanes; i++) {
		const struct schedule_lane *lane = &schedule->lanes[i];

		if (lane->kind != LANE_LOCAL && !comm_peer(comm, (int)lane->peer))
			return false;
	}
	return true;
}

bool peer_is_awaited(const struct peer *peer)
{
	bool waits = peer->receives.first != peer->receives.next ||
		peer->sends.first != peer->sends.next;

	for (int kind = 0; kind < LANE_PEER_KINDS && !waits; kind++)
		waits = peer->lanes[kind].first && !peer->lanes[kind].first->run->is_blocked;
	return waits;
}

void peers_free(struct frl_comm *comm)
{
	while (comm->first_peer) {
		struct peer *peer = comm->first_peer;

		comm->first_peer = peer->next;
		for (unsigned rail = 0; rail < comm->n_rails; rail++) {
			if (peer->channels[rail])
				channel_free(peer->channels[rail]);
		}
		peer_free(peer);
	}
}

void channels_destroy_queue_pairs(struct frl_comm *comm)
{
	for (struct peer *peer = comm->first_peer; peer; peer = peer->next) {
		for (unsigned rail = 0; rail < comm->n_rails; rail++) {
			struct channel *channel = peer->channels[rail];

			if (!channel)
				continue;
			channel_destroy_queue_pairs(channel);
		}
	}
}

/* ---- mail */

void channel_send_mail(struct channel *channel, bool needs_answer)
{
	struct frl_comm *comm = channel->peer->comm;
	struct channel_mail mail = { .channel = (uint8_t)channel->number };
	const struct resume *resume = &channel->resume;
	const uint32_t numbers[] = { resume->received, resume->partial, resume->arrived,
		resume->credits, resume->returned };

	channel->mailed_ns = clock_now_ns();
	if (channel->state == CHANNEL_FLUSHING)
		return;
	put_number(mail.epoch, sizeof(mail.epoch), channel->epoch);
	for (int i = 0; i < 5; i++)
		put_number(mail.resume[i], sizeof(mail.resume[i]), numbers[i]);
	if (channel->state >= CHANNEL_READY)
		mail.flags |= CHANNEL_IS_READY;
	if (needs_answer)
		mail.flags |= CHANNEL_NEEDS_ANSWER;
	memcpy(mail.endpoints, channel->mine, sizeof(mail.endpoints));
	/* A name that is too long is cut, or stays empty. */
	gethostname(mail.host, sizeof(mail.host) - 1);
	mailbox_send(comm->mailbox, comm_member(comm, channel->peer->rank), MAIL_CONNECT,
		&comm->inbox, &mail, sizeof(mail));
}

static void store_theirs(struct channel *channel, const struct channel_mail *mail)
{
	uint32_t numbers[5];

	for (int i = 0; i < 5; i++)
		numbers[i] = (uint32_t)get_number(mail->resume[i], sizeof(mail->resume[i]));
	channel->their_resume = (struct resume){ .received = numbers[0],
		.partial = numbers[1],
		.arrived = numbers[2],
		.credits = numbers[3],
		.returned = numbers[4] };
	memcpy(channel->theirs, mail->endpoints, sizeof(channel->theirs));
	memcpy(channel->their_host, mail->host, sizeof(channel->their_host) - 1);
	channel->has_theirs = true;
}

int channel_take_mail(struct frl_comm *comm, int rank, const uint8_t *bytes, size_t size)
{
	struct channel_mail mail;
	struct channel *channel;
	struct peer *peer;
	uint32_t epoch;
	int err;

	if (size != sizeof(mail))
		return 0;
	memcpy(&mail, bytes, sizeof(mail));
	peer = mail.channel < comm->n_rails ? comm_peer(comm, rank) : NULL;
	if (!peer)
		return 0;
	err = peer_open_channels(peer);
	if (err)
		return err;
	channel = peer->channels[mail.channel];
	epoch = (uint32_t)get_number(mail.epoch, sizeof(mail.epoch));
	/* The peer has restarted the channel, and this end has not noticed yet. */
	if ((int32_t)(epoch - channel->epoch) > 0)
		err = comm->n_rails > 1 ? channel_follow(channel, epoch)
					: channel_malformed(channel);
	if (err || epoch != channel->epoch)
		return err;
	if (!channel->has_theirs)
		store_theirs(channel, &mail);
	channel->mails_unanswered = 0;
	if (mail.flags & CHANNEL_IS_READY)
		channel->peer_ready = true;
	if (mail.flags & CHANNEL_NEEDS_ANSWER)
		channel_send_mail(channel, false);
	return 0;
}

/* Returns the interval to the next repetition, which grows with the number of repetitions. */
static uint64_t repeat_interval_ns(const struct channel *channel)
{
	unsigned slower = channel->mails_unanswered < REPEATS_SLOWER ? channel->mails_unanswered
								     : REPEATS_SLOWER;

	return ((uint64_t)REPEAT_MS << slower) * NS_PER_MS;
}

int channels_repeat_mail(struct frl_comm *comm, uint64_t now_ns)
{
	for (struct channel *channel = comm->connecting; channel;
		channel = channel->next_connecting) {
		if (now_ns <= channel->mailed_ns + repeat_interval_ns(channel))
			continue;
		channel_send_mail(channel, true);
		if (++channel->mails_unanswered == REPEATS_WARNED)
			frl_log(FRL_LOG_WARNING,
				"communicator, rank %d: rank %d has not connected for %d s: it has "
				"not started the operation, or mail to it is lost",
				comm->rank, channel->peer->rank,
				REPEAT_MS * ((1 << REPEATS_WARNED) - 1) / 1000);
	}
	return 0;
}

/* ---- opening */

void channel_add_to_connecting(struct channel *channel)
{
	struct frl_comm *comm = channel->peer->comm;

	if (channel->is_connecting)
		return;
	channel->is_connecting = true;
	channel->next_connecting = comm->connecting;
	comm->connecting = channel;
}

static int open_channel(struct peer *peer, unsigned number)
{
	struct channel *channel = channel_new(peer, number);
	int err;

	if (!channel)
		return frl_fail(-ENOMEM, "no memory for a connection");
	peer->channels[number] = channel;
	channel_add_to_connecting(channel);
	if (peer->comm->rails[number].is_lost)
		return channel_restart(channel);
	err = channel_create_queue_pairs(channel);
	if (err || channel->state != CHANNEL_EXCHANGING)
		return err;
	if (channel_is_better_elsewhere(channel))
		return channel_restart(channel);
	channel_send_mail(channel, false);
	return 0;
}

int peer_open_channels(struct peer *peer)
{
	if (peer->has_channels)
		return 0;
	peer->has_channels = true;
	for (unsigned i = 0; i < peer->comm->n_rails; i++) {
		int err = open_channel(peer, i);

		if (err)
			return comm_fail(peer->comm, err, "rank %d cannot connect to rank %d: %s",
				peer->comm->rank, peer->rank, frl_last_error());
	}
	return 0;
}

/* ---- steps */

static int start_connecting(struct channel *channel)
{
	struct frl_comm *comm = channel->peer->comm;
	int member = comm_member(comm, channel->peer->rank), err;
	struct frl_connect_config config;

	frl_connect_config_init(comm->rails[channel->rail].device, &config);
	config.access_flags = 0;
	config.timeout_ms = comm->config.connect_timeout_ms;
	err = frl_qp_connect_start(channel->bulk, &channel->theirs[0], &config);
	if (!err)
		err = frl_qp_connect_start(channel->eager, &channel->theirs[1], &config);
	if (err)
		return err;
	channel->state = CHANNEL_CONNECTING;
	frl_qp_set_peer(channel->bulk, member, channel->their_host);
	frl_qp_set_peer(channel->eager, member, channel->their_host);
	return 0;
}

/* Returns 0 when both queue pairs are connected, -EAGAIN before that. */
static int test_connecting(struct channel *channel)
{
	int bulk = frl_qp_connect_test(channel->bulk), eager;

	if (bulk && bulk != -EAGAIN)
		return bulk;
	eager = frl_qp_connect_test(channel->eager);
	return eager ? eager : bulk;
}

static void lanes_wake(struct peer *peer)
{
	for (unsigned rail = 0; rail < peer->comm->n_rails; rail++) {
		if (peer->channels[rail]->state != CHANNEL_UP)
			return;
	}
	peer->is_up = true;
	for (int kind = 0; kind < LANE_PEER_KINDS; kind++)
		lane_wake(peer->comm, &peer->lanes[kind]);
}

/* ---- states of a connection */

static int become_ready(struct channel *channel)
{
	struct frl_qp_attr attr;
	int err;

	frl_qp_query(channel->bulk, &attr);
	channel->path_mtu = attr.path_mtu;
	err = eager_post_receives(channel);
	if (!err)
		err = bulk_resume_receives(channel);
	if (err || channel->state != CHANNEL_CONNECTING)
		return err; /* restarted meanwhile if the rail has failed */
	channel->state = CHANNEL_READY;
	channel_send_mail(channel, false);
	return 0;
}

static int become_up(struct channel *channel)
{
	int err = 0;

	channel->state = CHANNEL_UP;
	if (channel->epoch > 0)
		err = eager_resume_sends(channel);
	if (!err && channel->epoch > 0)
		err = bulk_resume_sends(channel);
	/* Test the new connection: there may be no other traffic for long. */
	if (!err && channel->epoch > 0)
		err = channel_ping(channel);
	if (!err)
		lanes_wake(channel->peer);
	channel_needs_report(channel);
	return err;
}

static bool is_flushed(const struct channel *channel)
{
	const struct frl_comm *comm = channel->peer->comm;
	const struct poller *poller;

	if (!channel->bulk)
		return true;
	poller = &comm->pollers[channel->poller];
	return poller->is_over || (int32_t)(poller->emptied - channel->flushed_at) >= 0;
}

/* Advances the channel's state as far as possible. Returns 0, or the error that ends the
 * attempt. */
static int step(struct channel *channel)
{
	int err = 0;

	if (channel->state == CHANNEL_FLUSHING && is_flushed(channel))
		err = channel_reopen(channel);
	if (!err && channel->state == CHANNEL_EXCHANGING && channel->has_theirs)
		err = start_connecting(channel);
	if (!err && channel->state == CHANNEL_CONNECTING) {
		err = test_connecting(channel);
		if (err == -EAGAIN)
			return 0;
		if (!err)
			err = become_ready(channel);
	}
	if (!err && channel->state == CHANNEL_READY && channel->peer_ready)
		err = become_up(channel);
	return err;
}

int channels_step(struct frl_comm *comm)
{
	struct channel **at = &comm->connecting;

	while (*at) {
		struct channel *channel = *at;
		int err = step(channel);

		if (err && !comm->error)
			err = channel_connecting_failed(channel, err);
		if (err)
			return err;
		if (channel->state != CHANNEL_UP) {
			at = &channel->next_connecting;
			continue;
		}
		channel->is_connecting = false;
		*at = channel->next_connecting;
	}
	return 0;
}
