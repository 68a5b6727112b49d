/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/nccl/caller/unpack.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/cuda/fake_libcuda.h"
#include "tests/nccl/caller/row.h"

enum { MAX_LINKS = 256, LANE = 16 };

struct link {
	const void *comm;
	const struct nccl_device_handle *device;
};

static struct {
	pthread_mutex_t lock;
	struct link links[MAX_LINKS];
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void set(const void *comm, const void *now, const struct nccl_device_handle *device)
{
	struct link *link = NULL;

	pthread_mutex_lock(&all.lock);
	for (unsigned int i = 0; i < MAX_LINKS && !link; i++)
		if (all.links[i].comm == comm)
			link = &all.links[i];
	if (link)
		*link = (struct link){ now, device };
	pthread_mutex_unlock(&all.lock);
	REQUIRE(link || comm, "too many connections for the harness");
}

void unpack_accepted(void *comm, const struct nccl_device_handle *device)
{
	set(NULL, comm, device);
}

void unpack_closed(const void *comm)
{
	set(comm, NULL, NULL);
}

static const struct nccl_device_handle *device_of(const void *comm)
{
	const struct nccl_device_handle *device = NULL;

	pthread_mutex_lock(&all.lock);
	for (unsigned int i = 0; i < MAX_LINKS && comm; i++)
		if (all.links[i].comm == comm)
			device = all.links[i].device;
	pthread_mutex_unlock(&all.lock);
	return device;
}

bool unpack_has_handle(const void *comm)
{
	return device_of(comm);
}

bool unpack_is_on(const void *comm)
{
	const struct nccl_device_handle *device = device_of(comm);

	if (!device || device->device_type == 0)
		return false;
	REQUIRE(device->device_type == NCCL_DEVICE_UNPACK &&
			device->device_version == NCCL_DEVICE_UNPACK_VERSION && device->handle &&
			device->size == sizeof(struct nccl_unpack_handle) &&
			device->needs_proxy_progress,
		"a device handle of type %d, version 0x%x, %zu bytes", device->device_type,
		device->device_version, device->size);
	return true;
}

/* Returns the bytes at a GPU's address that is registered or allocated now. */
static void *at(uint64_t address, size_t size, const char *what)
{
	static const struct fake_cuda *fake;
	void *bytes;

	if (!fake)
		fake = fake_cuda_find();
	if (!fake)
		skip("kernels cannot be played on a GPU that is there");
	bytes = fake->look(address, size);
	REQUIRE(bytes, "a kernel would crash: %s, %zu bytes at 0x%llx", what, size,
		(unsigned long long)address);
	return bytes;
}

/* All lanes load and store that many bytes at once, so only at such addresses. */
static void copy_lanes(uint8_t *to, const uint8_t *from, uint64_t to_address, uint64_t from_address,
	uint32_t length, uint32_t width)
{
	REQUIRE(to_address % width == 0 && from_address % width == 0,
		"a kernel would crash: it loads %u bytes at 0x%llx, and stores them at 0x%llx",
		width, (unsigned long long)from_address, (unsigned long long)to_address);
	for (uint32_t i = 0; i + width <= length; i += width)
		memcpy(to + i, from + i, width);
}

static void copy_piece(const struct nccl_unpack_piece *piece,
	const struct nccl_unpack_handle *handle, uint8_t *data)
{
	uint64_t from_address = handle->bounce + piece->src;
	uint64_t to_address = (uintptr_t)data + piece->dst;
	uint32_t place = (uint32_t)((piece->src | piece->dst) % LANE);
	uint32_t width = place ? place & -place : LANE, bulk = piece->length / LANE * LANE;
	const uint8_t *from = at(from_address, piece->length, "a piece in a packet");
	uint8_t *to = at(to_address, piece->length, "a piece's place");

	/* The alignment is relative to both starts, which NCCL takes to be aligned. */
	copy_lanes(to, from, to_address, from_address, bulk, width);
	for (uint32_t i = bulk; i < piece->length; i++)
		to[i] = from[i];
}

static const struct nccl_unpack_meta *meta_of(const struct nccl_unpack_handle *handle)
{
	REQUIRE(handle->meta % LANE == 0, "pieces at 0x%llx, which are loaded by 16 bytes",
		(unsigned long long)handle->meta);
	return at(handle->meta, sizeof(struct nccl_unpack_meta), "the slots");
}

static uint64_t count_at(const struct nccl_unpack_meta *meta, uint64_t slot)
{
	return atomic_load_explicit(
		(const _Atomic uint64_t *)&meta->counts[slot], memory_order_acquire);
}

/* Warps come to pieces in any order. */
static void copy_pieces(const struct nccl_unpack_piece *pieces, uint64_t n,
	const struct nccl_unpack_handle *handle, uint8_t *data, size_t size)
{
	uint64_t bytes = 0, first = n ? (uint64_t)rand() % n : 0;

	for (uint64_t i = 0; i < n; i++) {
		const struct nccl_unpack_piece *piece = &pieces[(first + i) % n];

		REQUIRE(piece->length && piece->dst + piece->length <= size,
			"a piece of %u bytes at %llu of %zu", piece->length,
			(unsigned long long)piece->dst, size);
		copy_piece(piece, handle, data);
		bytes += piece->length;
	}
	REQUIRE(bytes == size, "the pieces of %zu bytes have %llu", size,
		(unsigned long long)bytes);
}

void unpack_fetch(const void *comm, uint8_t *data, size_t size)
{
	struct nccl_unpack_handle *handle;
	const struct nccl_unpack_meta *meta;
	uint64_t slot, n;

	if (!unpack_is_on(comm))
		return;
	handle = at((uintptr_t)device_of(comm)->handle, sizeof(*handle), "the handle");
	meta = meta_of(handle);
	slot = (handle->head + 1) % NCCL_UNPACK_SLOTS;
	n = count_at(meta, slot);
	REQUIRE(n <= NCCL_UNPACK_PIECES, "slot %llu has %llu pieces", (unsigned long long)slot,
		(unsigned long long)n);
	copy_pieces(meta->pieces[slot], n, handle, data, size);
	handle->head++;
}

const struct nccl_unpack_handle *unpack_handle(const void *comm)
{
	return at((uintptr_t)device_of(comm)->handle, sizeof(struct nccl_unpack_handle),
		"the handle");
}

unsigned int unpack_ready_at(const struct nccl_unpack_handle *handle)
{
	const struct nccl_unpack_meta *meta = meta_of(handle);
	unsigned int n = 0;

	for (unsigned int i = 0; i < NCCL_UNPACK_SLOTS; i++)
		n += count_at(meta, i) != 0;
	return n;
}

unsigned int unpack_ready(const void *comm)
{
	return unpack_is_on(comm) ? unpack_ready_at(unpack_handle(comm)) : 0;
}
