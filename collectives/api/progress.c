/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes progress: polls shared memory, channels and GPUs, and advances the lanes that became ready.
 * In normal operation it never waits, allocates or makes a system call. Its cost depends on
 * the number of events, not of ranks.
 */
#include "collectives/api/internal.h"
#include "collectives/gpu/compute.h"
#include "collectives/net/channel.h"
#include "collectives/shm/shm.h"

enum {
	LOCAL_SHARE = 8,      /* segments of local work per call */
	IDLE_POLLS = 32,      /* between two clock checks */
	BUSY_POLLS = 1 << 14, /* the same while there are events */
};

int comm_advance(struct frl_comm *comm)
{
	int share = LOCAL_SHARE, chunks = LOCAL_SHARE;
	int err = comm->shm ? shm_advance(comm->shm, false) : 0;

	if (err >= 0)
		err = lanes_advance(comm, &share);

	/*
	 * After each chunk the peer gets credits for the free room, and sends the next chunk while
	 * this rank reduces. Chunks have a share of their own, because peers wait for them.
	 */
	while (!err && comm->staging.first && chunks-- > 0) {
		comm_flush(comm);
		if (!bulk_reduce(comm))
			break;
		err = lanes_advance(comm, &share);
	}
	if (comm->computes)
		computes_launch(comm);
	return err;
}

/* There were no completions. Returns the number of packets handled. */
static int idle(struct frl_comm *comm)
{
	int packets = 0;

	comm->sibling.quiet_rounds++;
	for (unsigned i = 0; i < comm->n_rails; i++)
		packets += frl_progress(comm->rails[i].device);
	if (packets == 0 && ++comm->hang.idle_polls >= IDLE_POLLS) {
		int err = comm_check_clock(comm);

		if (err)
			return err;
	}
	return packets;
}

/* Most of the time, short operations in shared memory proceed without a check of anything else. */
static int shared_round(struct frl_comm *comm)
{
	int n = shm_advance(comm->shm, true);

	if (n <= 0 || shm_is_due(comm->shm))
		return n < 0 ? n : 0;
	comm_finish_requests(comm);
	comm->sibling.quiet_rounds = 0;
	return n;
}

int comm_progress(struct frl_comm *comm)
{
	int events, err;

	if (comm->error)
		return comm_error(comm);
	err = inbox_is_waiting(&comm->inbox) ? comm_take_mail(comm) : 0;
	if (!err && comm->shm)
		err = shared_round(comm);
	if (err != 0)
		return err;
	if (comm->connecting)
		err = channels_step(comm);
	if (err)
		return err;
	events = channels_poll(comm);
	if (events >= 0 && comm->computes) {
		int n = computes_poll(comm);

		events = n < 0 ? n : events + n;
	}
	if (events < 0)
		return events;
	err = comm_advance(comm);
	if (!err && ++comm->hang.polls >= BUSY_POLLS)
		err = comm_check_clock(comm);
	if (err)
		return err;
	comm_finish_requests(comm);
	if (events == 0 && !comm->ready && !comm->staging.first)
		return idle(comm);
	comm->sibling.quiet_rounds = 0;
	return events + 1;
}
