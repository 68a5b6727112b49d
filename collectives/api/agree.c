/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The first exchange between the ranks of a new communicator: each rank publishes its location and
 * the parameters of its plans. The plans of two ranks match only if both use the same parameters.
 */
#include "collectives/api/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "collectives/api/measure.h"
#include "collectives/communicator/location.h"
#include "collectives/net/channel.h"
#include "lib/base/error.h"

static const uint8_t record_magic[4] = { 'F', 'R', 'L', 'C' };

enum { RECORD_VERSION = 10 };

/* The record that each rank publishes. Numbers are big-endian. */
struct record {
	uint8_t magic[4];
	uint8_t version;
	uint8_t rails;
	uint8_t eager_slot[2];
	uint8_t segment_bytes[4];
	uint8_t bulk_receives[2];
	uint8_t eager_data[2];
	uint8_t numa[4];
	uint8_t algos[8]; /* hash of FRL_ALGO */
	uint8_t host[HOST_ID_SIZE];
	uint8_t id[COMM_ID_SIZE]; /* random; the communicator takes the one of rank 0 */
	/* All ranks take the costs of rank 0. */
	struct tuner_costs costs;
	uint8_t costs_made[8]; /* seconds since 1970 */
	uint8_t costs_source;
	uint8_t costs_are_due;      /* the costs should be checked by a measurement */
	uint8_t first_processor[2]; /* the first processor of the rank's affinity mask */
	uint8_t processors[4];
	uint8_t kinds[4];  /* hash of the kinds of its devices */
	uint8_t is_staged; /* the rank receives data to reduce into staging rings */
	uint8_t zero[7];
};

_Static_assert((int)TOPOLOGY_HOST_ID == (int)HOST_ID_SIZE, "hosts have one kind of id");
_Static_assert(sizeof(struct record) == 96, "the record has no holes");

/* Returns the FNV-1a hash of a string. */
static uint64_t hash_of(const char *text)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (; *text; text++)
		hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
	return hash;
}

/* Returns true if all rails are on the local fabric, which has fixed costs (decision 59). */
static bool is_local(const struct frl_comm *comm)
{
	for (unsigned i = 0; i < comm->n_rails; i++)
		if (!comm->rails[i].attr.local_fabric)
			return false;
	return true;
}

/* Finds the costs: FRL_TUNER_COSTS, else the local fabric's constants, else rank 0's file, else
 * none. */
static int find_costs(const struct frl_comm *comm, struct record *record)
{
	const char *text = comm->config.tuner_costs, *folder = comm->config.tuner_folder;
	char key[MEASURE_KEY];
	int64_t now_s = time(NULL);
	struct measure_kept kept;

	record->costs_source = TUNER_DEFAULTS;
	if (text[0] != '\0') {
		record->costs_source = TUNER_GIVEN;
		return tuner_read_costs(text, &record->costs);
	}
	if (is_local(comm)) {
		record->costs_source = TUNER_LOCAL;
		return 0;
	}
	if (comm->rank != 0 || comm->ranks == 1 || folder[0] == '\0')
		return 0;
	measure_key(comm, key);
	if (measure_file_read(folder, key, now_s, &kept) < 0)
		return 0;
	record->costs = kept.costs;
	record->costs_source = TUNER_KEPT;
	record->costs_are_due = measure_is_due(&kept, now_s);
	put_number(record->costs_made, sizeof(record->costs_made), (uint64_t)kept.made_s);
	return 0;
}

static int make_record(const struct frl_comm *comm, struct record *record)
{
	char kinds[MEASURE_KINDS];
	uint32_t first;

	*record = (struct record){ .version = RECORD_VERSION, .rails = (uint8_t)comm->n_rails };
	memcpy(record->magic, record_magic, sizeof(record_magic));
	put_number(record->eager_slot, sizeof(record->eager_slot), EAGER_SLOT);
	put_number(
		record->segment_bytes, sizeof(record->segment_bytes), comm->config.segment_bytes);
	put_number(record->bulk_receives, sizeof(record->bulk_receives), BULK_RECEIVES);
	put_number(record->eager_data, sizeof(record->eager_data), EAGER_DATA);
	put_number(record->numa, sizeof(record->numa), location_numa());
	put_number(record->algos, sizeof(record->algos), hash_of(comm->config.algos));
	location_host(record->host);
	put_number(record->processors, sizeof(record->processors), location_processors(&first));
	put_number(record->first_processor, sizeof(record->first_processor), first);
	measure_kinds(comm, kinds);
	put_number(record->kinds, sizeof(record->kinds), hash_of(kinds) & UINT32_MAX);
	record->is_staged = comm->staging.is_needed;
	if (getrandom(record->id, sizeof(record->id), 0) != sizeof(record->id))
		return frl_fail(-EIO, "no random numbers from the kernel");
	return find_costs(comm, record);
}

/* Fails if the rank is on another host and this rank uses the local fabric, which does not leave a
 * host. */
static int check_reach(const struct frl_comm *comm, const struct record *mine,
	const struct record *record, int rank)
{
	if (!is_local(comm) || memcmp(record->host, mine->host, sizeof(mine->host)) == 0)
		return 0;
	return frl_fail(-EPROTO,
		"rank %d is on another host or network namespace, which the local fabric does not "
		"reach: set FRL_FABRIC, or name a port (packet:eth0)",
		rank);
}

static int check_record(const struct record *mine, const struct record *record, int rank)
{
	uint64_t segment = get_number(record->segment_bytes, sizeof(record->segment_bytes));
	uint64_t own = get_number(mine->segment_bytes, sizeof(mine->segment_bytes));

	if (memcmp(record->magic, record_magic, sizeof(record_magic)) != 0)
		return frl_fail(-EPROTO, "rank %d sent no record of a Ferrule communicator", rank);
	if (record->version != RECORD_VERSION)
		return frl_fail(-EPROTO,
			"rank %d has version %d of the communicator protocol, this rank %d: "
			"use the same Ferrule on all ranks",
			rank, record->version, RECORD_VERSION);
	if (segment != own)
		return frl_fail(-EPROTO,
			"rank %d has segments of %llu bytes, this rank of %llu: "
			"set the same FRL_SEGMENT_KB on all ranks",
			rank, (unsigned long long)segment, (unsigned long long)own);
	if (memcmp(record->algos, mine->algos, sizeof(mine->algos)) != 0)
		return frl_fail(-EPROTO,
			"rank %d has another FRL_ALGO than this rank: set the same on all ranks",
			rank);
	if (record->rails != mine->rails)
		return frl_fail(-EPROTO,
			"rank %d has %d rails, this rank %d: give all ranks the same number of "
			"devices",
			rank, record->rails, mine->rails);
	if (memcmp(record->eager_slot, mine->eager_slot, 2) != 0 ||
		memcmp(record->bulk_receives, mine->bulk_receives, 2) != 0 ||
		memcmp(record->eager_data, mine->eager_data, 2) != 0)
		return frl_fail(-EPROTO,
			"rank %d has other message limits: use the same Ferrule on all ranks",
			rank);
	return 0;
}

/* Hosts are numbered in the order of their lowest ranks. */
static int find_locations(
	const struct record *records, struct topology_location *locations, uint32_t ranks)
{
	struct topology_host *hosts = calloc(ranks, sizeof(*hosts));
	uint32_t *numbers = calloc(ranks, sizeof(*numbers));
	bool has_memory = hosts && numbers;

	for (uint32_t rank = 0; rank < ranks && has_memory; rank++) {
		hosts[rank].rank = rank;
		memcpy(hosts[rank].id, records[rank].host, sizeof(hosts[rank].id));
	}
	if (has_memory)
		topology_number_hosts(hosts, ranks, numbers);
	for (uint32_t rank = 0; rank < ranks && has_memory; rank++) {
		const struct record *record = &records[rank];

		locations[rank] = (struct topology_location){
			.host = numbers[rank],
			.numa = (uint32_t)get_number(record->numa, sizeof(record->numa)),
			.rails = record->rails,
		};
	}
	free(hosts);
	free(numbers);
	return has_memory ? 0 : -ENOMEM;
}

/* Returns the number of ranks per processor, or 0 if there is no memory. */
static double find_oversubscription(
	const struct record *records, const struct topology_location *locations, uint32_t ranks)
{
	struct location_share *shares = calloc(ranks, sizeof(*shares));
	double oversubscription;

	if (!shares)
		return 0;
	for (uint32_t rank = 0; rank < ranks; rank++) {
		const struct record *record = &records[rank];

		shares[rank] = (struct location_share){
			.host = locations[rank].host,
			.first_processor = (uint32_t)get_number(
				record->first_processor, sizeof(record->first_processor)),
			.processors = (uint32_t)get_number(
				record->processors, sizeof(record->processors)),
		};
	}
	oversubscription = location_oversubscription(shares, ranks);
	free(shares);
	return oversubscription < TUNER_OVERSUBSCRIPTION_MOST ? oversubscription
							      : TUNER_OVERSUBSCRIPTION_MOST;
}

static int take_costs(struct tuner *tuner, const struct record *record)
{
	if (!tuner_costs_are_plausible(&record->costs) || record->costs_source >= TUNER_SOURCES)
		return frl_fail(
			-EPROTO, "rank 0 sent invalid costs: use the same Ferrule on all ranks");
	tuner_set_costs(tuner, &record->costs, record->costs_source);
	tuner->made_s = (int64_t)get_number(record->costs_made, sizeof(record->costs_made));
	tuner->is_due = record->costs_source == TUNER_KEPT && record->costs_are_due;
	return 0;
}

/*
 * One rank that needs staging slows down all ranks, so the flag is set for all. If devices differ
 * between ranks, no costs are kept: costs measured on the devices of rank 0 do not apply to others.
 */
static void compare_devices(struct frl_comm *comm, const struct record *records)
{
	struct tuner *tuner = &comm->tuner;
	const struct tuner_costs none = { .step = { 0 } };
	bool are_mixed = false;

	for (int rank = 0; rank < comm->ranks; rank++) {
		const struct record *record = &records[rank];

		tuner->is_staged = tuner->is_staged || record->is_staged;
		are_mixed = are_mixed ||
			memcmp(record->kinds, records[0].kinds, sizeof(record->kinds)) != 0;
	}
	if (!are_mixed)
		return;
	comm->config.tuner_folder = "";
	if (tuner->source == TUNER_KEPT || tuner->source == TUNER_LOCAL)
		tuner_set_costs(tuner, &none, TUNER_DEFAULTS);
	tuner->is_due = false;
}

static int learn(struct frl_comm *comm, const struct record *mine, const struct record *records)
{
	uint32_t ranks = (uint32_t)comm->ranks;
	struct topology_location *locations = calloc(ranks, sizeof(*locations));
	int err = locations ? 0 : frl_fail(-ENOMEM, "no memory for %d ranks", comm->ranks);

	for (int rank = 0; rank < comm->ranks && !err; rank++)
		err = check_record(mine, &records[rank], rank);
	for (int rank = 0; rank < comm->ranks && !err; rank++)
		err = check_reach(comm, mine, &records[rank], rank);
	if (!err &&
		(find_locations(records, locations, ranks) < 0 ||
			topology_init(&comm->topology, locations, ranks) < 0))
		err = frl_fail(-ENOMEM, "no memory for %d ranks", comm->ranks);
	if (!err)
		err = take_costs(&comm->tuner, &records[0]);
	if (!err) {
		compare_devices(comm, records);
		comm->tuner.oversubscription = find_oversubscription(records, locations, ranks);
		if (!(comm->tuner.oversubscription > 0))
			err = frl_fail(-ENOMEM, "no memory for %d ranks", comm->ranks);
	}
	free(locations);
	memcpy(comm->inbox.id, records[0].id, COMM_ID_SIZE);
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
