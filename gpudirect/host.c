/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver registers each page once, for all contexts of the process. It rejects a range if any
 * page of the range is registered already. So one list holds all registrations, as pieces that do
 * not overlap. A piece that the application has registered is used in the same way, but never
 * unregistered here. Each GPU records which pieces it uses, how often, and at which GPU addresses.
 *
 * A registration ends with the context in which it was made, for all other contexts too. So pieces
 * are registered in a device's primary context, which is retained for them. They are never
 * registered in a context that the application created and may destroy.
 *
 * The lookup for each packet takes no lock: host_rows.h.
 */
#include "gpudirect/host.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpudirect/gpu.h"
#include "gpudirect/host_rows.h"
#include "lib/base/error.h"

/* [start, end) is registered with the driver. */
struct piece {
	struct piece *next;
	uintptr_t start, end;
	struct gpu *owner; /* held; has the registration; NULL: not ours, or the driver keeps it */
	bool is_ours;
	unsigned uses; /* GPUs that use it; 0 only if the driver refused to unregister it */
};

/* A piece that a GPU can access. The list is sorted as the pieces are. */
struct use {
	struct use *next;
	struct piece *piece;
	uint64_t device;
	unsigned maps; /* mappings of this GPU that need the piece */
};

/* The number of gpu_host_map() calls for a range. Holds the GPU. */
struct map {
	struct map *next;
	uintptr_t start, end;
	unsigned n;
};

struct gpu_host {
	struct use *uses;
	struct map *maps;
	struct gpu *registrar; /* its context holds the registrations; held while mappings exist */
	struct gpu_rows rows;  /* the lookup table for packets */
};

/* Sorted by start. The mutex protects all of the above except the rows. */
static struct {
	pthread_mutex_t mutex;
	struct piece *pieces;
} host = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/* ---- lookup table */

/* Returns false, and keeps the old rows, if memory is short. Cannot fail if the number of rows
 * shrinks. */
static bool publish(struct gpu_host *own)
{
	uint32_t n = 0;

	for (const struct use *use = own->uses; use; use = use->next)
		n++;
	if (!gpu_rows_begin(&own->rows, n))
		return false;
	for (const struct use *use = own->uses; use; use = use->next)
		if (use->maps)
			gpu_rows_add(&own->rows, use->piece->start, use->piece->end, use->device);
	gpu_rows_end(&own->rows);
	return true;
}

uint64_t gpu_host_address(const struct gpu *gpu, const void *addr, size_t length)
{
	return gpu_rows_find(&gpu->host->rows, (uintptr_t)addr, length);
}

/* ---- pieces; with the mutex held */

static void insert(struct piece *piece)
{
	struct piece **link = &host.pieces;

	while (*link && (*link)->start < piece->start)
		link = &(*link)->next;
	piece->next = *link;
	*link = piece;
}

static void drop(struct piece *piece)
{
	struct piece **link = &host.pieces;

	while (*link != piece)
		link = &(*link)->next;
	*link = piece->next;
	gpu_release(piece->owner);
	free(piece);
}

static bool is_unregistered(cu_result result)
{
	if (!result || result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED ||
		result == CUDA_ERROR_DEINITIALIZED || result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
		return true;
	cuda_fail(result, "cuMemHostUnregister", "unregistering host memory");
	return false;
}

/* Returns whether the driver no longer has the registration. If the registration's context is gone,
 * the registration is gone too. */
static bool unregister(struct gpu *gpu, const struct piece *piece)
{
	char error[ERROR_TEXT_MAX];
	struct gpu_scope scope;
	bool is_done = false;
	int rc;

	error_save(error);
	rc = gpu_enter(gpu, &scope);
	if (rc == -ENODEV) {
		is_done = true;
	} else if (!rc) {
		is_done = is_unregistered(gpu->cuda->cuMemHostUnregister((void *)piece->start));
		gpu_leave(&scope);
	}
	if (!is_done)
		frl_log(FRL_LOG_WARNING, "%s", frl_last_error());
	error_restore(error);
	return is_done;
}

/* Releases a piece that no GPU uses. */
static void let_go(struct piece *piece)
{
	if (!piece->is_ours || unregister(piece->owner, piece)) {
		drop(piece);
		return;
	}
	gpu_release(piece->owner);
	piece->owner = NULL;
}

/* Unregisters pieces that the driver refused to unregister earlier. Other memory may be mapped
 * there by now, so the old registration is useless. */
static int try_again(struct gpu *registrar, uintptr_t start, uintptr_t end)
{
	struct piece *next;

	for (struct piece *piece = host.pieces; piece; piece = next) {
		next = piece->next;
		if (piece->uses || piece->start >= end || piece->end <= start)
			continue;
		if (!unregister(registrar, piece))
			return frl_fail(-EBUSY,
				"the driver did not end an old registration of %zu bytes of host "
				"memory at %p: use other memory",
				(size_t)(piece->end - piece->start), (void *)piece->start);
		drop(piece);
	}
	return 0;
}

/* `owner` is NULL if Ferrule did not register the range. */
static int add_piece(uintptr_t start, uintptr_t end, struct gpu *owner)
{
	struct piece *piece = calloc(1, sizeof(*piece));

	if (!piece)
		return frl_fail(
			-ENOMEM, "no memory to record %zu bytes of host memory", end - start);
	piece->start = start;
	piece->end = end;
	piece->is_ours = owner != NULL;
	piece->owner = owner;
	if (owner)
		gpu_hold_again(owner);
	insert(piece);
	return 0;
}

/* Returns -EEXIST, without an error text, if any page of the range is registered already. */
static int register_range(struct gpu *registrar, uintptr_t start, uintptr_t end)
{
	const unsigned int flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
	struct gpu_scope scope;
	cu_result result;
	char what[96];
	int rc = gpu_enter(registrar, &scope);

	if (rc)
		return rc;
	result = registrar->cuda->cuMemHostRegister((void *)start, (size_t)(end - start), flags);
	if (result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) {
		rc = -EEXIST;
	} else if (result) {
		snprintf(what, sizeof(what), "registering %zu bytes of host memory with GPU %d",
			(size_t)(end - start), registrar->ordinal);
		rc = cuda_fail(result, "cuMemHostRegister", what);
	} else {
		rc = add_piece(start, end, registrar);
		if (rc)
			registrar->cuda->cuMemHostUnregister((void *)start);
	}
	gpu_leave(&scope);
	return rc;
}

/* The next functions run in the GPU's context. Returns the page's GPU address, or 0 if the page is
 * not registered. */
static uint64_t page_address(struct gpu *gpu, uintptr_t page)
{
	cu_deviceptr device = 0;

	return gpu->cuda->cuMemHostGetDevicePointer(&device, (void *)page, 0) ? 0 : device;
}

/* The application has registered some pages of the range. Finds these page by page, and registers
 * the rest. */
static int register_around(struct gpu *gpu, uintptr_t start, uintptr_t end)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	int rc = 0;

	while (start < end && !rc) {
		uint64_t device = page_address(gpu, start), next = 0;
		uintptr_t to = start + page;

		while (to < end) {
			next = page_address(gpu, to);
			if (device ? next != device + (to - start) : next != 0)
				break;
			to += page;
		}
		rc = device ? add_piece(start, to, NULL)
			    : register_range(gpu->host->registrar, start, to);
		if (rc == -EEXIST)
			rc = frl_fail(-EBUSY,
				"%zu bytes of host memory at %p have a CUDA registration that GPU "
				"%d cannot use: unregister them, or register them with "
				"CU_MEMHOSTREGISTER_PORTABLE",
				(size_t)(to - start), (void *)start, gpu->ordinal);
		start = to;
	}
	return rc;
}

/* Fails if the piece's registration is gone with its context (cudaDeviceReset()) while regions
 * still use the piece. The piece cannot be registered again, because its other users are not known
 * here. */
static int check_there(const struct piece *piece)
{
	struct gpu_scope scope;
	int rc = piece->is_ours ? gpu_enter(piece->owner, &scope) : 0;

	if (rc == -ENODEV)
		return frl_fail(-EBUSY,
			"regions remain for host memory at %p, whose CUDA context on GPU %d is "
			"gone (cudaDeviceReset()): call frl_dereg_mr(), frl_mr_cache_trim() or "
			"frl_comm_destroy() first",
			(void *)piece->start, piece->owner->ordinal);
	if (!rc && piece->is_ours)
		gpu_leave(&scope);
	return 0;
}

/* Covers the whole range with pieces. After a failure some unused pieces may remain. */
static int cover(struct gpu *gpu, uintptr_t start, uintptr_t end)
{
	while (start < end) {
		struct piece *next = host.pieces;
		uintptr_t to;
		int rc;

		while (next && next->end <= start)
			next = next->next;
		if (next && next->start <= start) {
			rc = check_there(next);
			if (rc)
				return rc;
			start = next->end;
			continue;
		}
		to = next && next->start < end ? next->start : end;
		rc = register_range(gpu->host->registrar, start, to);
		if (rc == -EEXIST)
			rc = register_around(gpu, start, to);
		if (rc)
			return rc;
		start = to;
	}
	return 0;
}

/* Removes unused pieces that cover() made. */
static void uncover(uintptr_t start, uintptr_t end)
{
	struct piece *next;

	for (struct piece *piece = host.pieces; piece; piece = next) {
		next = piece->next;
		if (!piece->uses && piece->start < end && start < piece->end)
			let_go(piece);
	}
}

/* ---- uses and mappings of a GPU; with the mutex held */

static struct use *find_use(const struct gpu_host *own, const struct piece *piece)
{
	struct use *use = own->uses;

	while (use && use->piece != piece)
		use = use->next;
	return use;
}

/* Removes uses that no mapping needs. They must not be in the rows any more. */
static void end_uses(struct gpu_host *own)
{
	struct use **link = &own->uses;

	while (*link) {
		struct use *use = *link;

		if (use->maps) {
			link = &use->next;
			continue;
		}
		*link = use->next;
		if (--use->piece->uses == 0)
			let_go(use->piece);
		free(use);
	}
}

static void insert_use(struct gpu_host *own, struct use *use)
{
	struct use **link = &own->uses;

	while (*link && (*link)->piece->start < use->piece->start)
		link = &(*link)->next;
	use->next = *link;
	*link = use;
}

static int add_use(struct gpu *gpu, struct piece *piece)
{
	struct use *use = calloc(1, sizeof(*use));
	cu_deviceptr device = 0;
	cu_result result;

	if (!use)
		return frl_fail(-ENOMEM, "no memory to record that a GPU uses host memory");
	result = gpu->cuda->cuMemHostGetDevicePointer(&device, (void *)piece->start, 0);
	if (result) {
		free(use);
		return cuda_fail(result, "cuMemHostGetDevicePointer",
			"querying the GPU address of host memory");
	}
	use->piece = piece;
	use->device = device;
	insert_use(gpu->host, use);
	piece->uses++;
	return 0;
}

/* Adds `change` (1 or -1) to the mapping count of the pieces in [start, end). */
static void count_maps(struct gpu_host *own, uintptr_t start, uintptr_t end, int change)
{
	for (struct use *use = own->uses; use; use = use->next) {
		if (use->piece->start < end && start < use->piece->end)
			use->maps += (unsigned)change;
	}
}

static int use_pieces(struct gpu *gpu, uintptr_t start, uintptr_t end)
{
	int rc = 0;

	for (struct piece *piece = host.pieces; piece && !rc; piece = piece->next) {
		if (piece->start < end && start < piece->end && !find_use(gpu->host, piece))
			rc = add_use(gpu, piece);
	}
	return rc;
}

/* In the GPU's context. */
static int make_map(struct gpu *gpu, struct map *map)
{
	struct gpu_host *own = gpu->host;
	int rc;

	rc = try_again(own->registrar, map->start, map->end);
	if (rc)
		return rc;
	rc = cover(gpu, map->start, map->end);
	if (!rc)
		rc = use_pieces(gpu, map->start, map->end);
	if (!rc) {
		count_maps(own, map->start, map->end, 1);
		if (publish(own))
			return 0;
		count_maps(own, map->start, map->end, -1);
		rc = frl_fail(-ENOMEM, "no memory to record the GPU address of host memory");
	}
	end_uses(own);
	uncover(map->start, map->end);
	return rc;
}

static int hold_registrar(struct gpu *gpu)
{
	struct gpu_host *own = gpu->host;

	if (own->registrar)
		return 0;
	if (!gpu->is_primary)
		return gpu_hold(NULL, gpu->ordinal, &own->registrar);
	own->registrar = gpu;
	gpu_hold_again(gpu);
	return 0;
}

static void release_registrar(struct gpu_host *own)
{
	struct gpu *registrar = own->registrar;

	if (own->maps)
		return;
	own->registrar = NULL;
	gpu_release(registrar);
}

static struct map **find_map(struct gpu_host *own, uintptr_t start, uintptr_t end)
{
	struct map **link = &own->maps;

	while (*link && ((*link)->start != start || (*link)->end != end))
		link = &(*link)->next;
	return link;
}

/* Rounds to pages. Returns -EINVAL if the range is not valid. */
static int round_range(const void *addr, size_t length, uintptr_t *ret_start, uintptr_t *ret_end)
{
	const uintptr_t in_page = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
	uintptr_t start = (uintptr_t)addr, end = start + length;

	if (!length || end < start || end + in_page < end)
		return frl_fail(-EINVAL, "%zu bytes at %p are not a valid range to map for a GPU",
			length, addr);
	*ret_start = start & ~in_page;
	*ret_end = (end + in_page) & ~in_page;
	return 0;
}

static int map_range(struct gpu *gpu, uintptr_t start, uintptr_t end)
{
	struct map *map, **link;
	struct gpu_scope scope;
	int rc;

	link = find_map(gpu->host, start, end);
	if (*link) {
		(*link)->n++;
		return 0;
	}
	map = calloc(1, sizeof(*map));
	if (!map)
		return frl_fail(
			-ENOMEM, "no memory to record that host memory is mapped for a GPU");
	*map = (struct map){ .start = start, .end = end, .n = 1 };
	rc = hold_registrar(gpu);
	if (!rc)
		rc = gpu_enter(gpu, &scope);
	if (!rc) {
		rc = make_map(gpu, map);
		gpu_leave(&scope);
	}
	if (rc) {
		release_registrar(gpu->host);
		free(map);
		return rc;
	}
	*link = map;
	gpu_hold_again(gpu);
	return 0;
}

int gpu_host_map(struct gpu *gpu, const void *addr, size_t length)
{
	uintptr_t start = 0, end = 0;
	int rc = round_range(addr, length, &start, &end);

	if (rc)
		return rc;
	if (!gpu->caps.host_register)
		return frl_fail(-ENOTSUP,
			"GPU %d cannot reach host memory that is registered with it "
			"(HOST_REGISTER_SUPPORTED is 0)",
			gpu->ordinal);
	pthread_mutex_lock(&host.mutex);
	rc = map_range(gpu, start, end);
	pthread_mutex_unlock(&host.mutex);
	return rc;
}

static void end_map(struct gpu *gpu, struct map **link)
{
	struct gpu_host *own = gpu->host;
	struct map *map = *link;

	if (--map->n)
		return;
	*link = map->next;
	count_maps(own, map->start, map->end, -1);
	free(map);
	publish(own);
	end_uses(own);
	release_registrar(own);
	gpu_release(gpu);
}

void gpu_host_unmap(struct gpu *gpu, const void *addr, size_t length)
{
	uintptr_t start = 0, end = 0;
	struct map **link;

	if (round_range(addr, length, &start, &end))
		return;
	pthread_mutex_lock(&host.mutex);
	link = find_map(gpu->host, start, end);
	if (*link)
		end_map(gpu, link);
	pthread_mutex_unlock(&host.mutex);
}

int gpu_host_prepare(struct gpu *gpu)
{
	gpu->host = calloc(1, sizeof(*gpu->host));
	return gpu->host ? 0 : frl_fail(-ENOMEM, "no memory for a list of a GPU's host memory");
}

void gpu_host_fini(struct gpu *gpu)
{
	if (gpu->host)
		gpu_rows_free(&gpu->host->rows);
	free(gpu->host);
	gpu->host = NULL;
}
