/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The first thing that ranks do together: each tells where it is and how it plans. The plans of two
 * ranks fit together only if both were made from the same numbers.
 */
#include "collectives/communicator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "collectives/place.h"
#include "lib/base/error.h"

static const uint8_t record_magic[4] = { 'F', 'R', 'L', 'C' };

enum {
	RECORD_VERSION = 3,
	FABRIC_LINKS = 31, /* that a process can have on the local fabric, see fabric.c */
};

/* What each rank tells the others; numbers are big-endian. */
struct record {
	uint8_t magic[4];
	uint8_t version;
	uint8_t rails;
	uint8_t eager_slot[2];
	uint8_t segment_bytes[4];
	uint8_t bulk_receives[2];
	uint8_t eager_data[2];
	uint8_t links[4]; /* to how many others it can be connected */
	uint8_t numa[4];
	uint8_t algos[8]; /* a hash of FRL_ALGO */
	uint8_t host[HOST_ID_SIZE];
	uint8_t id[COMM_ID_SIZE]; /* random; rank 0's is the communicator's */
};

_Static_assert(sizeof(struct record) == 64, "the record has no holes");

static uint32_t links_of(const struct frl_comm *comm)
{
	uint32_t links = (uint32_t)comm->ranks - 1, most = FABRIC_LINKS / comm->n_rails;

	for (unsigned i = 0; i < comm->n_rails; i++) {
		if (comm->rails[i].attr.local_fabric && most < links)
			links = most;
	}
	return links;
}

/* FNV-1a. */
static uint64_t hash_of(const char *text)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (; *text; text++)
		hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
	return hash;
}

static int make_record(const struct frl_comm *comm, struct record *record)
{
	*record = (struct record){ .version = RECORD_VERSION, .rails = (uint8_t)comm->n_rails };
	memcpy(record->magic, record_magic, sizeof(record_magic));
	put_number(record->eager_slot, sizeof(record->eager_slot), EAGER_SLOT);
	put_number(
		record->segment_bytes, sizeof(record->segment_bytes), comm->config.segment_bytes);
	put_number(record->bulk_receives, sizeof(record->bulk_receives), BULK_RECEIVES);
	put_number(record->eager_data, sizeof(record->eager_data), EAGER_DATA);
	put_number(record->links, sizeof(record->links), links_of(comm));
	put_number(record->numa, sizeof(record->numa), place_numa());
	put_number(record->algos, sizeof(record->algos), hash_of(comm->config.algos));
	place_host(record->host);
	if (getrandom(record->id, sizeof(record->id), 0) != sizeof(record->id))
		return frl_fail(-EIO, "no random numbers from the kernel");
	return 0;
}

static int check_record(const struct record *mine, const struct record *record, int rank)
{
	uint64_t segment = get_number(record->segment_bytes, sizeof(record->segment_bytes));
	uint64_t own = get_number(mine->segment_bytes, sizeof(mine->segment_bytes));

	if (memcmp(record->magic, record_magic, sizeof(record_magic)) != 0)
		return frl_fail(-EPROTO, "rank %d sent no record of a Ferrule communicator", rank);
	if (record->version != RECORD_VERSION)
		return frl_fail(-EPROTO,
			"rank %d speaks version %d of communicators, this one %d: "
			"use the same Ferrule on all ranks",
			rank, record->version, RECORD_VERSION);
	if (segment != own)
		return frl_fail(-EPROTO,
			"rank %d has segments of %llu bytes, this one of %llu: "
			"set FRL_SEGMENT_KB alike on all ranks",
			rank, (unsigned long long)segment, (unsigned long long)own);
	if (memcmp(record->algos, mine->algos, sizeof(mine->algos)) != 0)
		return frl_fail(-EPROTO,
			"rank %d has another FRL_ALGO than this one: set it alike on all ranks",
			rank);
	if (record->rails != mine->rails)
		return frl_fail(-EPROTO,
			"rank %d has %d rails, this one %d: give all ranks as many devices", rank,
			record->rails, mine->rails);
	if (memcmp(record->eager_slot, mine->eager_slot, 2) != 0 ||
		memcmp(record->bulk_receives, mine->bulk_receives, 2) != 0 ||
		memcmp(record->eager_data, mine->eager_data, 2) != 0)
		return frl_fail(-EPROTO,
			"rank %d plans differently: use the same Ferrule on all ranks", rank);
	return 0;
}

/* Hosts are numbered in the order of their lowest ranks. */
static void find_places(const struct record *records, struct topology_place *places, int ranks)
{
	uint32_t hosts = 0;

	for (int rank = 0; rank < ranks; rank++) {
		const struct record *record = &records[rank];
		uint32_t host = hosts;

		for (int before = 0; before < rank && host == hosts; before++) {
			if (memcmp(records[before].host, record->host, HOST_ID_SIZE) == 0)
				host = places[before].host;
		}
		hosts += host == hosts;
		places[rank] = (struct topology_place){
			.host = host,
			.numa = (uint32_t)get_number(record->numa, sizeof(record->numa)),
			.rails = record->rails,
		};
	}
}

static int learn(struct frl_comm *comm, const struct record *mine, const struct record *records)
{
	size_t ranks = (size_t)comm->ranks;
	struct topology_place *places = calloc(ranks, sizeof(*places));
	uint32_t links = (uint32_t)comm->ranks - 1;
	int err = places ? 0 : frl_fail(-ENOMEM, "no memory for %d ranks", comm->ranks);

	for (int rank = 0; rank < comm->ranks && !err; rank++) {
		const struct record *record = &records[rank];
		uint32_t theirs = (uint32_t)get_number(record->links, sizeof(record->links));

		err = check_record(mine, record, rank);
		if (theirs < links)
			links = theirs;
	}
	if (!err)
		find_places(records, places, comm->ranks);
	if (!err && topology_init(&comm->topology, places, (uint32_t)comm->ranks, links) < 0)
		err = frl_fail(-ENOMEM, "no memory for %d ranks", comm->ranks);
	free(places);
	memcpy(comm->post.id, records[0].id, COMM_ID_SIZE);
	return err;
}

int comm_agree(struct frl_comm *comm)
{
	struct frl_bootstrap *bootstrap = comm->bootstrap;
	struct record *records = calloc((size_t)comm->ranks, sizeof(*records));
	struct record mine;
	int err;

	if (!records)
		return frl_fail(-ENOMEM, "no memory for the records of %d ranks", comm->ranks);
	err = make_record(comm, &mine);
	if (!err)
		err = bootstrap->allgather(bootstrap->ctx, &mine, sizeof(mine), records);
	if (!err)
		err = learn(comm, &mine, records);
	free(records);
	return err;
}
