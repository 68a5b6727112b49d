/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/data/bounce.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <ferrule/fragments.h>

#include "gpudirect/gpu.h"
#include "gpudirect/host.h"
#include "gpudirect/memory.h"

enum {
	PAGE = 4096,
	ALIGNMENT = 64,
	HANDLE_AT = (sizeof(struct nccl_unpack_meta) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT,
	BLOCK_BYTES = (HANDLE_AT + sizeof(struct nccl_unpack_handle) + PAGE - 1) / PAGE * PAGE,
};

#define WINDOW (UINT64_C(1) << 32)

/* A range of a port's packet buffers that is mapped for the GPU. */
struct piece {
	struct piece *next;
	const struct net_port *port;
	void *addr;
	size_t length;
	unsigned users; /* connections */
};

struct bounce {
	struct bounce *next;
	struct gpu *gpu;
	struct piece *pieces;
	bool has_start;
	uint64_t start; /* GPU address of the window's start */
	/* The block that has been free for the longest time is first. */
	struct bounce_block *free_blocks;
	struct bounce_block *doubtful_blocks;
};

static struct {
	pthread_mutex_t lock; /* protects the lists, and all fields except `start` once it is set */
	struct bounce *first;
} bounces = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int explain(int err, char *why, size_t size)
{
	snprintf(why, size, "%s", frl_last_error());
	return err;
}

static int no_memory(char *why, size_t size)
{
	snprintf(why, size, "no memory for the packet list that a GPU reads");
	return -ENOMEM;
}

/* ---- with the lock held */

static void free_blocks(const struct bounce *bounce, struct bounce_block *first)
{
	while (first) {
		struct bounce_block *block = first;

		first = block->next;
		gpu_host_unmap(bounce->gpu, block->meta, BLOCK_BYTES);
		munmap(block->meta, BLOCK_BYTES);
		free(block);
	}
}

static void end(struct bounce *bounce)
{
	struct bounce **link = &bounces.first;

	while (*link != bounce)
		link = &(*link)->next;
	*link = bounce->next;
	free_blocks(bounce, bounce->free_blocks);
	free_blocks(bounce, bounce->doubtful_blocks);
	gpu_release(bounce->gpu);
	free(bounce);
}

/* Takes over the caller's hold on the GPU. */
static struct bounce *find_or_make(struct gpu *gpu)
{
	struct bounce *bounce = bounces.first;

	while (bounce && bounce->gpu != gpu)
		bounce = bounce->next;
	if (bounce) {
		gpu_release(gpu);
		return bounce;
	}
	bounce = calloc(1, sizeof(*bounce));
	if (!bounce) {
		gpu_release(gpu);
		return NULL;
	}
	bounce->gpu = gpu;
	bounce->next = bounces.first;
	bounces.first = bounce;
	return bounce;
}

static const struct piece *find_piece(
	const struct bounce *bounce, const struct net_port *port, const void *addr)
{
	const struct piece *piece = bounce->pieces;

	while (piece && (piece->port != port || piece->addr != addr))
		piece = piece->next;
	return piece;
}

static void unmap_port(struct bounce *bounce, const struct net_port *port)
{
	struct piece **link = &bounce->pieces;

	while (*link) {
		struct piece *piece = *link;

		if (piece->port != port) {
			link = &piece->next;
			continue;
		}
		*link = piece->next;
		gpu_host_unmap(bounce->gpu, piece->addr, piece->length);
		free(piece);
	}
}

/* The first range determines the window. */
static int check_window(struct bounce *bounce, const struct piece *piece, char *why, size_t size)
{
	uint64_t at = gpu_host_address(bounce->gpu, piece->addr, piece->length);

	if (!bounce->has_start && at)
		bounce->start = (at & -(uint64_t)ALIGNMENT) > WINDOW / 2
			? (at & -(uint64_t)ALIGNMENT) - WINDOW / 2
			: 0;
	bounce->has_start |= at != 0;
	if (at && at >= bounce->start && at + piece->length <= bounce->start + WINDOW)
		return 0;
	snprintf(why, size,
		"GPU %d maps packet buffers at 0x%llx, outside of its window of 4 GiB at 0x%llx",
		bounce->gpu->ordinal, (unsigned long long)at, (unsigned long long)bounce->start);
	return -ERANGE;
}

/* A mapped range stays mapped, even if it is outside of the window. */
static int map_piece(struct bounce *bounce, const struct net_port *port, void *addr, size_t length,
	char *why, size_t size)
{
	const struct piece *known = find_piece(bounce, port, addr);
	struct piece *piece;
	int err;

	if (known)
		return check_window(bounce, known, why, size);
	piece = calloc(1, sizeof(*piece));
	if (!piece)
		return no_memory(why, size);
	err = gpu_host_map(bounce->gpu, addr, length);
	if (err) {
		free(piece);
		return explain(err, why, size);
	}
	*piece = (struct piece){ bounce->pieces, port, addr, length, 0 };
	bounce->pieces = piece;
	return check_window(bounce, piece, why, size);
}

static int map_port(struct bounce *bounce, const struct net_port *port, char *why, size_t size)
{
	int err = 0, found = 0;

	for (unsigned i = 0; !found && !err; i++) {
		void *addr;
		size_t length;

		found = frl_fragments_memory(port->pd, i, &addr, &length);
		if (found && found != -ENOENT)
			err = explain(found, why, size);
		if (!found)
			err = map_piece(bounce, port, addr, length, why, size);
	}
	return err;
}

static bool has_rail(const struct net_device *device, const struct net_port *port)
{
	for (int i = 0; i < device->n_rails; i++)
		if (net_port_at(device, i) == port)
			return true;
	return false;
}

static void count_user(struct bounce *bounce, const struct net_device *device, int change)
{
	for (struct piece *piece = bounce->pieces; piece; piece = piece->next)
		if (has_rail(device, piece->port))
			piece->users += (unsigned)change;
}

static int map_device(
	struct bounce *bounce, const struct net_device *device, char *why, size_t size)
{
	int err = 0;

	for (int i = 0; i < device->n_rails && !err; i++)
		err = map_port(bounce, net_port_at(device, i), why, size);
	return err;
}

/* ---- public functions */

int net_bounce_get(const struct net_device *device, const void *data, size_t size,
	struct bounce **ret_bounce, char *why, size_t why_size)
{
	struct bounce *bounce;
	struct gpu_memory memory;
	struct gpu *gpu = NULL;
	int err = gpu_memory_look(data, size, &memory);

	if (err)
		return explain(err, why, why_size);
	if (memory.kind == GPU_MEMORY_HOST) {
		snprintf(why, why_size, "no GPU memory at %p", data);
		return -EINVAL;
	}
	err = gpu_hold(memory.context, memory.ordinal, &gpu);
	if (err)
		return explain(err, why, why_size);
	pthread_mutex_lock(&bounces.lock);
	bounce = find_or_make(gpu);
	err = bounce ? map_device(bounce, device, why, why_size) : no_memory(why, why_size);
	if (!err) {
		count_user(bounce, device, 1);
		*ret_bounce = bounce;
	} else if (bounce && !bounce->pieces) {
		end(bounce);
	}
	pthread_mutex_unlock(&bounces.lock);
	return err;
}

void net_bounce_put(struct bounce *bounce, const struct net_device *device)
{
	pthread_mutex_lock(&bounces.lock);
	count_user(bounce, device, -1);
	pthread_mutex_unlock(&bounces.lock);
}

static void clear(const struct bounce *bounce, struct bounce_block *block)
{
	memset(block->meta, 0, sizeof(*block->meta));
	*block->handle = (struct nccl_unpack_handle){
		.meta = gpu_host_address(bounce->gpu, block->meta, sizeof(*block->meta)),
		.bounce = bounce->start,
		.head = UINT64_MAX,
	};
	block->handle_address = gpu_host_address(
		bounce->gpu, block->handle, sizeof(*block->handle));
}

static struct bounce_block *make_block(struct bounce *bounce, char *why, size_t why_size)
{
	struct bounce_block *block = calloc(1, sizeof(*block));
	/* MAP_SHARED, because the GPU must read the same pages after a fork(). */
	uint8_t *memory = mmap(
		NULL, BLOCK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (!block || memory == MAP_FAILED) {
		no_memory(why, why_size);
	} else if (gpu_host_map(bounce->gpu, memory, BLOCK_BYTES)) {
		explain(0, why, why_size);
	} else {
		block->meta = (struct nccl_unpack_meta *)(void *)memory;
		block->handle = (struct nccl_unpack_handle *)(void *)(memory + HANDLE_AT);
		return block;
	}
	if (memory != MAP_FAILED)
		munmap(memory, BLOCK_BYTES);
	free(block);
	return NULL;
}

int net_bounce_take_block(
	struct bounce *bounce, struct bounce_block **ret_block, char *why, size_t why_size)
{
	struct bounce_block *block;

	pthread_mutex_lock(&bounces.lock);
	block = bounce->free_blocks;
	if (block)
		bounce->free_blocks = block->next;
	else
		block = make_block(bounce, why, why_size);
	if (block)
		clear(bounce, block);
	pthread_mutex_unlock(&bounces.lock);
	*ret_block = block;
	return block ? 0 : -ENOMEM;
}

void net_bounce_give_block(struct bounce *bounce, struct bounce_block *block, bool is_in_doubt)
{
	struct bounce_block **link = is_in_doubt ? &bounce->doubtful_blocks : &bounce->free_blocks;

	pthread_mutex_lock(&bounces.lock);
	memset(block->meta->counts, 0, sizeof(block->meta->counts));
	while (*link && !is_in_doubt)
		link = &(*link)->next;
	block->next = *link;
	*link = block;
	pthread_mutex_unlock(&bounces.lock);
}

bool net_bounce_offset(
	const struct bounce *bounce, const void *addr, size_t length, uint32_t *ret_offset)
{
	uint64_t at = gpu_host_address(bounce->gpu, addr, length);

	/* All mapped ranges are in the window. */
	*ret_offset = (uint32_t)(at - bounce->start);
	return at;
}

bool net_bounce_release_port(const struct net_port *port)
{
	struct bounce *bounce, *next;
	bool is_used = false;

	pthread_mutex_lock(&bounces.lock);
	for (bounce = bounces.first; bounce; bounce = bounce->next)
		for (struct piece *piece = bounce->pieces; piece; piece = piece->next)
			is_used |= piece->port == port && piece->users;
	for (bounce = bounces.first; bounce && !is_used; bounce = next) {
		next = bounce->next;
		unmap_port(bounce, port);
		if (!bounce->pieces)
			end(bounce);
	}
	pthread_mutex_unlock(&bounces.lock);
	return !is_used;
}
