/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers whose length each end gives: SEND and RECV, and the pieces of ALLTOALLV. If the lengths
 * differ, the ends may wait in different lanes, for small and large messages, or one end may
 * complete while the other waits. Recent transfers are therefore recorded, and compared with the
 * peer's when a message arrives or nothing makes progress.
 */
#include "collectives/communicator/communicator.h"

#include <string.h>

#include "collectives/net/channel.h"
/* ---- transfers of this rank */

static void note(struct peer *peer, enum transfer_way way, const struct transfer *transfer)
{
	struct transfers *transfers = &peer->transfers[way];

	transfers->ring[transfers->noted++ % TRANSFERS] = *transfer;
}

/* Returns the transfer of all steps in one lane. */
static struct transfer transfer_of(const struct run *run, const struct schedule_lane *lane)
{
	const struct schedule *schedule = run->schedule;
	struct transfer transfer = { .number = run->signature.number,
		.coll = run->signature.coll,
		.dtype = run->signature.dtype,
		.wire = run->signature.wire };

	for (uint32_t i = lane->first; i != PLAN_NOTHING; i = schedule->next_step[i]) {
		const struct plan_step *step = &schedule->plan.steps[i];

		transfer.count += step->count;
		transfer.bytes += schedule_payload(schedule, step, step->count);
	}
	return transfer;
}

/* Records an empty transfer, which has no lane: the other end may not be empty. */
static void note_empty(struct run *run)
{
	struct peer *peer = comm_peer(run->comm, run->schedule->key.root);
	enum transfer_way way = run->coll == FRL_SEND ? TRANSFER_SENT : TRANSFER_RECEIVED;
	struct transfer transfer = { .number = run->signature.number,
		.coll = run->signature.coll,
		.dtype = run->signature.dtype,
		.wire = run->signature.wire };

	/* Without this memory, the rank has never communicated with the peer. */
	if (!peer)
		return;
	run->signature.root = transfer.index = peer->transfers[way].pairs++;
	note(peer, way, &transfer);
}

void transfers_note(struct run *run)
{
	struct signature *signature = &run->signature;

	if (!run->schedule || !signature_has_two_lengths(signature->coll))
		return;
	if (signature->coll == FRL_SEND && run->schedule->n_lanes == 0) {
		note_empty(run);
		return;
	}
	for (uint32_t i = 0; i < run->schedule->n_lanes; i++) {
		const struct schedule_lane *lane = &run->schedule->lanes[i];
		bool is_sent = lane->kind == LANE_SEND_EAGER || lane->kind == LANE_SEND_BULK;
		enum transfer_way way = is_sent ? TRANSFER_SENT : TRANSFER_RECEIVED;
		struct transfer transfer;
		struct peer *peer;

		if (lane->kind == LANE_LOCAL)
			continue;
		peer = run->comm->peers[lane->peer];
		transfer = transfer_of(run, lane);
		if (signature->coll == FRL_SEND)
			signature->root = transfer.index = peer->transfers[way].pairs++;
		note(peer, way, &transfer);
	}
}

static bool is_same_operation(
	const struct transfer *a, uint8_t coll, uint32_t number, uint32_t index)
{
	return a->coll == coll && (coll == FRL_SEND ? a->index == index : a->number == number);
}

static const struct transfer *find(const struct peer *peer, enum transfer_way way, uint8_t coll,
	uint32_t number, uint32_t index)
{
	const struct transfers *transfers = &peer->transfers[way];

	for (uint32_t i = 0; i < TRANSFERS && i < transfers->noted; i++) {
		if (is_same_operation(&transfers->ring[i], coll, number, index))
			return &transfers->ring[i];
	}
	return NULL;
}

const struct transfer *transfer_find(
	const struct peer *peer, enum transfer_way way, const struct signature *signature)
{
	return find(peer, way, signature->coll, signature->number, signature->root);
}

/* ---- transfers of the peer */

/*
 * Returns whether this rank has started the ALLTOALLV and has no piece in that direction.
 * Operations are recorded in order, so the oldest entry shows how far back the record is complete.
 */
static bool has_none(const struct peer *peer, enum transfer_way way, uint32_t number)
{
	const struct frl_comm *comm = peer->comm;
	const struct transfers *transfers = &peer->transfers[way];
	const struct transfer *oldest = &transfers->ring[transfers->noted % TRANSFERS];

	if (comm->started - number - 1 >= HISTORY ||
		comm->history[number % HISTORY].coll != FRL_ALLTOALLV)
		return false;
	return transfers->noted <= TRANSFERS || (int32_t)(number - oldest->number) >= 0;
}

static bool agree(const struct transfer *a, const struct transfer *b)
{
	if (a->number != b->number || a->dtype != b->dtype || a->wire != b->wire)
		return false;
	if (a->count == TRANSFER_UNKNOWN || b->count == TRANSFER_UNKNOWN)
		return a->bytes == b->bytes;
	return a->count == b->count;
}

int transfer_compare(struct peer *peer, enum transfer_way way, const struct transfer *theirs)
{
	const struct transfer *mine = find(peer, way, theirs->coll, theirs->number, theirs->index);
	struct transfer none = *theirs;

	if (!mine && theirs->coll == FRL_ALLTOALLV && has_none(peer, way, theirs->number)) {
		none.count = none.bytes = 0;
		mine = &none;
	}
	if (!mine || agree(mine, theirs))
		return 0;
	return comm_fail_transfer(peer->comm, peer->rank, way, theirs, mine);
}
