/* SPDX-License-Identifier: BSD-3-Clause */
/* The bootstrap for ranks of one process: a gather in memory, and mail with a delay. */
#include "tests/sim/coll/coll_world.h"

#include "lib/base/error.h"
#include "tests/sim/common/fail.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int check(void *ctx, int *ret_rank)
{
	const struct coll_world *world = ((struct coll_rank *)ctx)->world;

	*ret_rank = world->gone;
	if (world->gone < 0 || !world->config.tells_leaving ||
		world->clock.now_ns < world->gone_at_ns + world->config.gone_ns)
		return 0;
	return frl_fail(-ECONNRESET, "rank %d is gone: it gave up", world->gone);
}

static int allgather(void *ctx, const void *mine, size_t size, void *all)
{
	struct coll_rank *rank = ctx;
	struct coll_world *world = rank->world;
	struct coll_meeting *gather = &world->gather;
	uint64_t round = gather->rounds;
	uint8_t **pieces = &gather->pieces[round % 2];
	size_t ranks = (size_t)world->config.ranks;
	int gone;

	if (gather->arrived == 0) {
		free(*pieces);
		*pieces = sim_alloc(ranks, size);
		gather->size = size;
	}
	SIM_CHECK(size == gather->size, "rank %d gathers %zu bytes, others %zu", rank->number, size,
		gather->size);
	memcpy(*pieces + (size_t)rank->number * size, mine, size);
	if (++gather->arrived == world->config.ranks) {
		gather->arrived = 0;
		gather->rounds++;
		for (size_t i = 0; i < ranks; i++)
			coll_wake(&world->ranks[i]);
	}
	while (gather->rounds == round) {
		if (check(rank, &gone) < 0)
			return -ECONNRESET;
		coll_attend(rank);
	}
	memcpy(all, *pieces, ranks * size);
	return 0;
}

static bool has_left(void *ctx, int rank)
{
	const struct coll_world *world = ((struct coll_rank *)ctx)->world;

	return world->config.tells_leaving && world->ranks[rank].is_done;
}

static void give_up(void *ctx, const char *why)
{
	const struct coll_rank *rank = ctx;
	struct coll_world *world = rank->world;

	if (world->gone < 0) {
		world->gone = rank->number;
		world->gone_at_ns = world->clock.now_ns;
	}
	SIM_CHECK(!why || world->config.may_fail, "rank %d gives up: %s", rank->number, why);
}

static void leave(void *ctx)
{
	(void)ctx;
}

static void arrive(void *owner, void *arg)
{
	struct coll_rank *rank = owner;
	struct coll_mail *mail = arg;

	if (!rank->receive) {
		*rank->kept_end = mail;
		rank->kept_end = &mail->next;
		return;
	}
	rank->world->reading = rank;
	rank->receive(rank->receive_arg, mail->from, mail->bytes, mail->size);
	rank->world->reading = NULL;
	free(mail);
	coll_wake(rank);
}

static int post(void *ctx, int to, const void *data, size_t size)
{
	struct coll_rank *rank = ctx;
	struct coll_world *world = rank->world;
	struct coll_mail *mail;

	SIM_CHECK(size <= FRL_MAIL_MAX && to >= 0 && to < world->config.ranks,
		"rank %d: mail of %zu bytes to rank %d", rank->number, size, to);
	if (world->config.mail_losses && world->mails++ % world->config.mail_losses == 0)
		return 0;
	mail = sim_alloc(1, sizeof(*mail) + size);
	*mail = (struct coll_mail){ .from = rank->number, .size = size };
	memcpy(mail->bytes, data, size);
	clock_at(&world->clock, world->clock.now_ns + world->config.mail_ns, arrive,
		&world->ranks[to], mail);
	return 0;
}

static void set_receiver(
	void *ctx, void (*receive)(void *arg, int rank, const void *data, size_t size), void *arg)
{
	struct coll_rank *rank = ctx;

	rank->receive = receive;
	rank->receive_arg = arg;
	while (rank->receive && rank->kept) {
		struct coll_mail *mail = rank->kept;

		rank->kept = mail->next;
		rank->receive(arg, mail->from, mail->bytes, mail->size);
		free(mail);
	}
	if (!rank->kept)
		rank->kept_end = &rank->kept;
}

void coll_bootstrap_init(struct coll_rank *rank)
{
	rank->kept_end = &rank->kept;
	rank->bootstrap = (struct frl_bootstrap){
		.rank = rank->number,
		.ranks = rank->world->config.ranks,
		.ctx = rank,
		.allgather = allgather,
		.check = check,
		.abort = give_up,
		.close = leave,
		.has_left = has_left,
		.post = post,
		.set_receiver = set_receiver,
	};
}

void coll_bootstrap_fini(struct coll_rank *rank)
{
	while (rank->kept) {
		struct coll_mail *mail = rank->kept;

		rank->kept = mail->next;
		free(mail);
	}
}
