/* SPDX-License-Identifier: BSD-3-Clause */
/* Setting up the connections of a communicator: records through the bootstrap, then queue pairs. */
#include "collectives/communicator.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"

static const uint8_t record_magic[4] = { 'F', 'R', 'L', 'C' };

enum { RECORD_VERSION = 2 };

/* What each rank tells the others; numbers are big-endian. */
struct record {
	uint8_t magic[4];
	uint8_t version;
	uint8_t lanes;
	uint8_t data_receives; /* the most credits that may be given */
	uint8_t credit_receives;
	uint8_t segment_bytes[4];
	uint8_t two_rings_bytes[8];
	uint8_t reserved[4];
	struct {
		struct frl_endpoint out;
		struct frl_endpoint in;
	} lane[LANES_MAX];
};

_Static_assert(sizeof(struct record) == 24 + 4 * FRL_ENDPOINT_SIZE, "the record has no holes");

static void put_number(uint8_t *to, size_t size, uint64_t value)
{
	for (size_t i = 0; i < size; i++)
		to[i] = (uint8_t)(value >> 8 * (size - 1 - i));
}

static uint64_t get_number(const uint8_t *from, size_t size)
{
	uint64_t value = 0;

	for (size_t i = 0; i < size; i++)
		value = value << 8 | from[i];
	return value;
}

static int make_record(struct frl_comm *comm, struct record *record)
{
	*record = (struct record){
		.version = RECORD_VERSION,
		.lanes = (uint8_t)comm->lanes,
		.data_receives = DATA_RECEIVES,
		.credit_receives = CREDIT_RECEIVES,
	};
	memcpy(record->magic, record_magic, sizeof(record_magic));
	put_number(
		record->segment_bytes, sizeof(record->segment_bytes), comm->config.segment_bytes);
	put_number(record->two_rings_bytes, sizeof(record->two_rings_bytes),
		comm->config.two_rings_bytes);
	for (unsigned i = 0; i < comm->lanes; i++) {
		int err = frl_qp_endpoint(comm->lane[i].out, &record->lane[i].out);

		if (!err)
			err = frl_qp_endpoint(comm->lane[i].in, &record->lane[i].in);
		if (err)
			return err;
	}
	return 0;
}

/* The plans of two ranks fit together only if both were made from the same numbers. */
static int check_record(const struct frl_comm *comm, const struct record *record, int rank)
{
	uint64_t segment = get_number(record->segment_bytes, sizeof(record->segment_bytes));

	if (memcmp(record->magic, record_magic, sizeof(record_magic)) != 0)
		return frl_fail(-EPROTO, "rank %d sent no record of a Ferrule communicator", rank);
	if (record->version != RECORD_VERSION)
		return frl_fail(-EPROTO,
			"rank %d speaks version %d of communicators, this one %d: "
			"use the same Ferrule on all ranks",
			rank, record->version, RECORD_VERSION);
	if (segment != comm->config.segment_bytes)
		return frl_fail(-EPROTO,
			"rank %d has segments of %llu bytes, this one of %u: "
			"set FRL_SEGMENT_KB alike on all ranks",
			rank, (unsigned long long)segment, comm->config.segment_bytes);
	if (record->lanes != comm->lanes || record->data_receives != DATA_RECEIVES ||
		record->credit_receives != CREDIT_RECEIVES ||
		get_number(record->two_rings_bytes, sizeof(record->two_rings_bytes)) !=
			comm->config.two_rings_bytes)
		return frl_fail(-EPROTO,
			"rank %d plans differently: use the same Ferrule on all ranks", rank);
	return 0;
}

/* A rank that died will never make its end. */
static int ranks_live(void *arg)
{
	struct frl_comm *comm = arg;
	int gone = -1;
	int err = comm->bootstrap->check(comm->bootstrap->ctx, &gone);

	/* Where no rank is to blame, the bootstrap has said what is. */
	if (!err || gone < 0)
		return err;
	return frl_fail(err, "rank %d is gone: it ended or gave up", gone);
}

static int connect_pair(struct frl_comm *comm, struct frl_qp *qp, const struct frl_endpoint *remote,
	int peer, uint64_t deadline_ns)
{
	struct frl_connect_config config;
	uint64_t now = clock_now_ns();
	int err;

	if (now >= deadline_ns)
		return frl_fail(-ETIMEDOUT, "rank %d: no time left to connect to rank %d",
			comm->rank, peer);
	frl_connect_config_init(comm->device, &config);
	config.access_flags = 0;
	config.interrupt = ranks_live;
	config.interrupt_arg = comm;
	config.timeout_ms = (int)((deadline_ns - now) / 1000000) + 1;
	err = frl_qp_connect(qp, remote, &config);
	if (err)
		return frl_fail(err, "connecting to rank %d: %s", peer, frl_last_error());
	return 0;
}

/*
 * Connects the lane's end of edge `edge`, which joins rank `edge` and the one after it, if this
 * rank is at one of its ends.
 */
static int connect_edge(struct frl_comm *comm, struct lane *lane, int edge,
	const struct record *records, uint64_t deadline_ns)
{
	bool forward = lane->direction == RING_FORWARD;
	int from = forward ? edge : (edge + 1) % comm->ranks; /* data goes this way */
	int to = forward ? (edge + 1) % comm->ranks : edge;
	unsigned n = lane->number;

	if (comm->rank == from)
		return connect_pair(comm, lane->out, &records[to].lane[n].in, to, deadline_ns);
	if (comm->rank == to)
		return connect_pair(comm, lane->in, &records[from].lane[n].out, from, deadline_ns);
	return 0;
}

/*
 * Connecting blocks until the other end connects too, so the order matters. Rounds: edges with an
 * even number, then with an odd one; of an odd ring the last edge has a round of its own, since it
 * meets edge 0 at rank 0. All ranks go through (round, lane) in this order, and the edges of a
 * round share no rank. So there is no deadlock: of the connections that are not made yet
 * take one of the first (round, lane). Both its ends have made theirs before, thus both are at this
 * one now, and it is made. And it takes three rounds, however many ranks there are.
 */
static int connect_rings(struct frl_comm *comm, const struct record *records, uint64_t deadline_ns)
{
	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < comm->lanes; i++) {
			for (int edge = 0; edge < comm->ranks; edge++) {
				bool last_of_odd = comm->ranks % 2 == 1 && edge == comm->ranks - 1;
				int err;

				if ((last_of_odd ? 2 : edge % 2) != round)
					continue;
				err = connect_edge(
					comm, &comm->lane[i], edge, records, deadline_ns);
				if (err)
					return err;
			}
		}
	}
	return 0;
}

/* Drives the device while this rank waits for the others in the bootstrap, because their connects
 * may need answers of ours (ARP, ND), and with inline progress nobody else gives them. */
struct driver {
	struct frl_device *device;
	atomic_bool stop;
};

static void *drive(void *arg)
{
	struct driver *driver = arg;
	struct frl_backoff backoff = { 0 };

	frl_backoff_reset(&backoff);
	while (!atomic_load(&driver->stop)) {
		if (frl_progress(driver->device) > 0)
			frl_backoff_reset(&backoff);
		else
			frl_backoff_idle(&backoff);
	}
	return NULL;
}

static bool start_driver(pthread_t *thread, struct driver *driver)
{
	sigset_t all, before;
	bool started;

	/* Signals are for the host's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	started = pthread_create(thread, NULL, drive, driver) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return started;
}

/* No rank may send before all are connected: a packet to a queue pair that is not ready is lost. */
static int wait_until_all_connected(struct frl_comm *comm)
{
	struct driver driver = { .device = comm->device };
	struct frl_bootstrap *bootstrap = comm->bootstrap;
	uint8_t mine = 1;
	uint8_t *all = calloc((size_t)comm->ranks, sizeof(*all));
	pthread_t thread;
	bool driven;
	int err;

	if (!all)
		return frl_fail(-ENOMEM, "no memory for %d ranks", comm->ranks);
	driven = start_driver(&thread, &driver);
	err = bootstrap->allgather(bootstrap->ctx, &mine, sizeof(mine), all);
	if (driven) {
		atomic_store(&driver.stop, true);
		pthread_join(thread, NULL);
	}
	free(all);
	return err;
}

int comm_connect(struct frl_comm *comm)
{
	struct frl_bootstrap *bootstrap = comm->bootstrap;
	struct record *records = calloc((size_t)comm->ranks, sizeof(*records));
	struct record mine;
	uint64_t deadline_ns;
	int err;

	if (!records)
		return frl_fail(-ENOMEM, "no memory for the records of %d ranks", comm->ranks);
	err = make_record(comm, &mine);
	if (!err)
		err = bootstrap->allgather(bootstrap->ctx, &mine, sizeof(mine), records);
	for (int rank = 0; !err && rank < comm->ranks; rank++)
		err = check_record(comm, &records[rank], rank);
	/* From here on all ranks are there: how long some of them took to come does not count. */
	deadline_ns = clock_now_ns() + (uint64_t)comm->config.connect_timeout_ms * 1000000;
	if (!err)
		err = connect_rings(comm, records, deadline_ns);
	free(records);
	if (!err)
		err = comm_post_credit_receives(comm);
	return err ? err : wait_until_all_connected(comm);
}
