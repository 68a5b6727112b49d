/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Private memory of other ranks, such as that of malloc(): the kernel copies it on request
 * (lib/base/process/peer_memory.h). That takes one copy less than a ring, and a system call for
 * each block. All ranks of a communicator do so if FRL_READ_PRIVATE is 1 for all, or none.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/shm/internal.h"
#include "lib/base/error.h"

enum { PAGE = 4096 };

/* Returns whether this rank can read memory of all others. Sets the reason if not. */
static bool can_read_all(struct shm *shm)
{
	for (uint32_t rank = 0; rank < shm->ranks; rank++) {
		if (rank == shm->me || peer_memory_check(&shm->peers[rank].memory) == 0)
			continue;
		snprintf(shm->no_private, sizeof(shm->no_private), "rank %u: %s", shm->me,
			frl_last_error());
		return false;
	}
	return true;
}

bool shm_private_begin(struct shm *shm)
{
	char before[ERROR_TEXT_MAX];

	if (!shm->comm->config.reads_private) {
		snprintf(shm->no_private, sizeof(shm->no_private), "rank %u: FRL_READ_PRIVATE is 0",
			shm->me);
		return false;
	}
	error_save(before);
	if (can_read_all(shm)) {
		shm->scratch = aligned_alloc(PAGE, SHM_BLOCK + PAGE);
		if (!shm->scratch)
			snprintf(shm->no_private, sizeof(shm->no_private), "rank %u: no memory",
				shm->me);
	}
	error_restore(before);
	return shm->scratch;
}

void shm_private_end(struct shm *shm, uint32_t unable)
{
	free(shm->scratch);
	shm->scratch = NULL;
	if (!shm->no_private[0])
		snprintf(shm->no_private, sizeof(shm->no_private),
			"rank %u cannot or may not; its log has the reason", unable);
	if (!shm->comm->config.reads_private)
		return;
	frl_log(FRL_LOG_INFO,
		"collectives copy private memory, for example from malloc(), through shared rings: "
		"%s",
		shm->no_private);
}

const char *shm_no_private(const struct frl_comm *comm)
{
	return comm->shm->scratch ? NULL : comm->shm->no_private;
}

int shm_private_read(struct shm *shm, uint32_t rank, uint64_t at, void *dst, size_t bytes)
{
	struct shm_peer *peer = &shm->peers[rank];
	int err = bytes > 0 ? peer_memory_read(&peer->memory, dst, at, bytes) : 0;

	if (!err)
		return 0;
	if (atomic_load_explicit(&peer->page->failed, memory_order_acquire))
		return comm_fail_taken_back(shm->comm, (int)rank);
	return comm_fail_reading(shm->comm, (int)rank, err);
}

int shm_private_fetch(
	struct shm *shm, uint32_t rank, uint64_t at, size_t bytes, const uint8_t **ret_bytes)
{
	/* The same distance from a page's start as there: copies are fastest then. */
	uint8_t *to = shm->scratch + at % PAGE;

	*ret_bytes = to;
	return shm_private_read(shm, rank, at, to, bytes);
}
