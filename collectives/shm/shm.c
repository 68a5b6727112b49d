/* SPDX-License-Identifier: BSD-3-Clause */
/* Setup of shared memory between the ranks of one machine, and the choice of operations that use
 * it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "collectives/plan/shapes.h"
#include "collectives/shm/internal.h"
#include "gpudirect/cuda/cuda.h"
#include "lib/base/error.h"
#include "lib/base/memory/memfd.h"
#include "lib/base/memory/share.h"

#define SHM_MAGIC UINT64_C(0x394d48534c5246) /* "FRLSHM9" */

/* Exchanged between the ranks. They are on one machine, so numbers are in host order. */
struct page_record {
	int32_t pid;
	uint32_t is_willing;
	uint64_t secret;
	struct shm_export page;
};

/* ---- setting up */

/* Returns the reason why this rank does not use shared memory, or NULL. */
static const char *why_not(const struct frl_comm *comm)
{
	if (!comm->config.uses_shm)
		return "FRL_SHM or FRL_IN_PLACE is 0";
	return cuda_is_loaded() ? "it has CUDA, and so buffers may be on a GPU" : NULL;
}

/* Nobody else may write this rank's page. */
static bool seal_page(const struct shm *shm)
{
	struct share *share = share_find(shm->page, shm->page_size);
	int err = share_seal(share);

	share_put(share);
	errno = -err;
	return !err;
}

/* Exports this rank's page. If a rank cannot or may not, no rank uses shared memory. */
static void make_record(struct shm *shm, struct page_record *record)
{
	const char *why = why_not(shm->comm);
	struct shm_location location;
	unsigned at;

	*record = (struct page_record){ .pid = (int32_t)getpid() };
	shm->page_size = shm_page_size(shm->ranks);
	if (!why) {
		shm->page = share_alloc(shm->page_size);
		if (!shm->page || !seal_page(shm) ||
			getrandom(&record->secret, sizeof(record->secret), 0) !=
				sizeof(record->secret) ||
			!shm_export(shm->page, shm->page, shm->page_size, &location, &at))
			why = memfd_strerror(errno);
	}
	if (why) {
		frl_log(FRL_LOG_INFO, "collectives use packets, not shared memory: rank %u: %s",
			shm->me, why);
		return;
	}
	shm->page->magic = SHM_MAGIC;
	shm->page->secret = record->secret;
	record->page = location.export;
	record->is_willing = true;
}

static int map_page(struct shm *shm, uint32_t rank, const struct page_record *record)
{
	struct shm_mapping page = { .export = record->page };
	struct shm_peer *peer = &shm->peers[rank];
	int err;

	if (record->page.size < shm->page_size)
		return frl_fail(-EPROTO, "its page is too short");
	err = shm_map(record->pid, &page);
	if (err)
		return err;
	peer->pid = record->pid;
	peer->page = (const struct shm_page *)(const void *)page.addr;
	peer->page_size = record->page.size;
	/* A privileged rank could write to memory of others, and must not for a peer that names
	 * it. */
	peer->may_write = shm->comm->config.writes_shared && page.owner == geteuid();
	if (peer->page->magic != SHM_MAGIC || peer->page->secret != record->secret)
		return frl_fail(-EPROTO, "its page has another identifier");
	return 0;
}

static bool map_pages(struct shm *shm, const struct page_record *records)
{
	bool is_done = true;

	for (uint32_t rank = 0; rank < shm->ranks && is_done; rank++)
		is_done = records[rank].is_willing;
	for (uint32_t rank = 0; rank < shm->ranks && is_done; rank++) {
		if (rank == shm->me)
			continue;
		is_done = map_page(shm, rank, &records[rank]) == 0;
		if (!is_done)
			frl_log(FRL_LOG_INFO,
				"collectives use packets, not shared memory: "
				"rank %u cannot read memory of rank %u: %s",
				shm->me, rank, frl_last_error());
	}
	return is_done;
}

/* Two exchanges: the locations of the pages, and whether all ranks have mapped them. */
static int exchange(struct shm *shm, const struct shm_gather *gather, struct page_record *records,
	uint8_t *are_done, bool *ret_is_done)
{
	struct page_record mine;
	uint8_t is_done;
	int err;

	make_record(shm, &mine);
	err = gather->all(gather->ctx, &mine, sizeof(mine), records);
	if (err)
		return err;
	is_done = map_pages(shm, records);
	err = gather->all(gather->ctx, &is_done, sizeof(is_done), are_done);
	for (uint32_t rank = 0; rank < shm->ranks; rank++)
		is_done = is_done && are_done[rank];
	*ret_is_done = is_done;
	return err;
}

/* Takes part in the exchanges of other communicators without a page. */
static int decline(const struct shm_gather *gather)
{
	const struct page_record none = { 0 };
	const uint8_t is_done = false;
	int err = gather->all(gather->ctx, &none, sizeof(none), NULL);

	return err ? err : gather->all(gather->ctx, &is_done, sizeof(is_done), NULL);
}

int shm_create(struct frl_comm *comm, const struct shm_gather *gather)
{
	uint32_t ranks = comm ? (uint32_t)comm->ranks : 0;
	struct page_record *records;
	uint8_t *are_done;
	struct shm *shm;
	bool is_done = false;
	int err;

	if (ranks < 2 || ranks > SHM_RANKS_MAX || comm->topology.hosts != 1)
		return gather->is_for_others ? decline(gather) : 0;
	shm = calloc(1, sizeof(*shm) + ranks * sizeof(shm->peers[0]));
	records = calloc(ranks, sizeof(*records));
	are_done = calloc(ranks, sizeof(*are_done));
	if (shm && records && are_done) {
		shm->comm = comm;
		shm->me = (uint32_t)comm->rank;
		shm->ranks = ranks;
		shm->waiting_end = &shm->waiting;
		err = exchange(shm, gather, records, are_done, &is_done);
	} else {
		err = frl_fail(-ENOMEM, "no memory for %u ranks", ranks);
	}
	free(records);
	free(are_done);
	if (is_done && !err)
		comm->shm = shm;
	else
		shm_destroy(shm);
	return err;
}

void shm_destroy(struct shm *shm)
{
	if (!shm)
		return;
	if (shm->complete < shm->published)
		shm_give_up(shm);
	for (unsigned i = 0; i < SHM_SLOTS; i++)
		shm_stop_holding(&shm->operations[i]);
	while (shm->idle) {
		struct run *run = shm->idle;

		shm->idle = run->next;
		free(run);
	}
	for (uint32_t rank = 0; rank < shm->ranks; rank++)
		shm_unmap(&shm->peers[rank]);
	if (shm->page)
		share_free(shm->page);
	free(shm);
}

/* ---- operations */

/* Long operations that scale their input first are not supported: there is no room for the
 * scaled input. */
static bool can_long(const struct schedule_key *key)
{
	const struct shape *shape = shape_of(key->coll);

	return shape->shm == SHAPE_SHM_ANY &&
		!(shape->reduces && operation_scales_first(key->op, key->dtype));
}

bool shm_is_long(const struct frl_comm *comm, const struct operation *operation)
{
	const struct schedule_key *key = &operation->key;
	size_t ranks = (size_t)comm->ranks, bytes = key->count * operation->job.elem_size;
	const struct shape *shape = shape_of(key->coll);

	if (ranks == 2 && shape_reduces_to_all(key->coll) && bytes > SHM_SHORT_OF_TWO &&
		can_long(key))
		return true;
	return bytes > SHM_INLINE ||
		bytes * shape_blocks(&shape->send, ranks) * (ranks - 1) > SHM_INLINE;
}

bool shm_can(const struct frl_comm *comm, const struct operation *operation)
{
	const struct schedule_key *key = &operation->key;

	if (!comm->shm || comm->tuner.forced[key->coll] != FRL_ALGO_AUTO ||
		key->wire != FRL_WIRE_SAME || operation->is_empty)
		return false;
	if (shape_of(key->coll)->shm == SHAPE_SHM_NEVER)
		return false;
	return !shm_is_long(comm, operation) || can_long(key);
}

int shm_get_run(struct frl_comm *comm, bool is_long, struct run **ret_run)
{
	struct shm *shm = comm->shm;
	struct run *run = shm->idle;

	if (run) {
		shm->idle = run->next;
		shm->n_idle--;
		memset(run, 0, sizeof(*run));
	} else {
		run = calloc(1, sizeof(*run));
	}
	if (!run)
		return frl_fail(-ENOMEM, "no memory for an operation");
	run->comm = comm;
	run->left = 1;
	run->is_shm = true;
	run->is_long = is_long;
	*ret_run = run;
	return 0;
}

void shm_put_run(struct run *run)
{
	struct shm *shm = run->comm->shm;

	for (unsigned i = 0; i < SHM_SLOTS; i++)
		if (shm->operations[i].run == run)
			shm->operations[i].run = NULL;
	for (struct run **at = &shm->waiting; *at; at = &(*at)->next_self) {
		if (*at != run)
			continue;
		*at = run->next_self;
		if (!*at)
			shm->waiting_end = at;
		break;
	}
	if (shm->n_idle == SHM_SLOTS) {
		free(run);
		return;
	}
	run->next = shm->idle;
	shm->idle = run;
	shm->n_idle++;
}
