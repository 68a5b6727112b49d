/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Maps memory of other ranks. It is opened through /proc, which the kernel allows for processes
 * that may trace the owner: ranks of one user. The seals set by share.c prevent truncation while it
 * is mapped, and writing if a process of another user may have the descriptor as well.
 */
#include "collectives/shm/page.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/memory/share.h"

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

/* ---- memory of others */

/* Checks that a file is the expected memory, and that it cannot be truncated. Returns its owner. */
static int check(int fd, int32_t pid, const struct shm_export *export, uid_t *ret_owner)
{
	struct stat status;
	int seals = fcntl(fd, F_GET_SEALS);

	if (fstat(fd, &status))
		return frl_fail(
			-errno, "looking at memory of process %d: %s", (int)pid, strerror(errno));
	if (status.st_ino != export->inode || (uint64_t)status.st_size != export->size ||
		export->size == 0 || seals < 0 || (seals & SEALS) != SEALS)
		return frl_fail(-ESTALE,
			"file %d of process %d is not the expected memory: does that process "
			"run in another container?",
			(int)export->fd, (int)pid);
	*ret_owner = status.st_uid;
	return 0;
}

/* Maps a file that has been checked, for writing. Returns MAP_FAILED if it is sealed against
 * that. */
static void *map_writable(int fd, size_t size)
{
	char path[64];
	void *addr;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return MAP_FAILED;
	addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return addr;
}

int shm_map(int32_t pid, struct shm_mapping *mapping)
{
	const struct shm_export *export = &mapping->export;
	void *addr = MAP_FAILED;
	char path[64];
	int fd, err;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, (int)export->fd);
	/* O_NONBLOCK and O_NOCTTY: it may be any file if the process is not the expected one. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return frl_fail(-errno, "opening memory of process %d (%s): %s", (int)pid, path,
			strerror(errno));
	err = check(fd, pid, export, &mapping->owner);
	if (err) {
		close(fd);
		return err;
	}
	if (mapping->is_writable)
		addr = map_writable(fd, export->size);
	mapping->is_writable = addr != MAP_FAILED;
	if (!mapping->is_writable)
		addr = mmap(NULL, export->size, PROT_READ, MAP_SHARED, fd, 0);
	err = errno;
	close(fd);
	if (addr == MAP_FAILED)
		return frl_fail(-err, "mapping %" PRIu64 " bytes of process %d: %s", export->size,
			(int)pid, strerror(err));
	mapping->addr = addr;
	return 0;
}

static void drop(struct shm_mapping *mapping)
{
	munmap(mapping->addr, mapping->export.size);
	*mapping = (struct shm_mapping){ 0 };
}

static bool is_exported(const struct shm_page *page, uint64_t id)
{
	for (unsigned i = 0; i < SHM_EXPORTS; i++)
		if (atomic_load_explicit(&page->exports[i], memory_order_relaxed) == id)
			return true;
	return false;
}

/* Unmaps memory that the peer has freed. */
void shm_drop_freed(struct shm_peer *peer)
{
	uint64_t changed = atomic_load_explicit(&peer->page->exports_changed, memory_order_acquire);

	if (changed == peer->exports_changed)
		return;
	peer->exports_changed = changed;
	for (unsigned i = 0; i < SHM_MAPPINGS; i++) {
		struct shm_mapping *mapping = &peer->mappings[i];

		if (mapping->addr && !is_exported(peer->page, mapping->export.id))
			drop(mapping);
	}
}

/* Maps memory, replacing the least recently used mapping if there is no room. */
static int map_anew(
	struct shm_peer *peer, const struct shm_export *export, struct shm_mapping **ret_mapping)
{
	struct shm_mapping new = { .export = *export, .is_writable = peer->may_write };
	struct shm_mapping *mapping = &peer->mappings[0];
	int err = shm_map(peer->pid, &new);

	if (err)
		return err;
	for (unsigned i = 1; i < SHM_MAPPINGS; i++)
		if (peer->mappings[i].used < mapping->used)
			mapping = &peer->mappings[i];
	if (mapping->addr)
		drop(mapping);
	*mapping = new;
	*ret_mapping = mapping;
	return 0;
}

static int find_in(struct shm_peer *peer, struct shm_mapping *mapping, uint64_t offset,
	size_t bytes, const uint8_t **ret_addr)
{
	if (offset > mapping->export.size || bytes > mapping->export.size - offset)
		return frl_fail(-EPROTO,
			"%zu bytes at %" PRIu64 " are not in the %" PRIu64 " of that memory", bytes,
			offset, mapping->export.size);
	mapping->used = ++peer->uses;
	*ret_addr = mapping->addr + offset;
	return 0;
}

int shm_find_mapped(struct shm_peer *peer, const struct shm_location *location, size_t bytes,
	const uint8_t **ret_addr)
{
	uint64_t id = location->export.id;

	for (unsigned i = 0; i < SHM_MAPPINGS; i++) {
		struct shm_mapping *mapping = &peer->mappings[i];

		if (mapping->addr && mapping->export.id == id)
			return find_in(peer, mapping, location->offset, bytes, ret_addr);
	}
	return -ENOENT;
}

int shm_find(struct shm_peer *peer, const struct shm_location *location, size_t bytes,
	const uint8_t **ret_addr)
{
	const struct shm_export export = location->export;
	struct shm_mapping *mapping;
	int err = shm_find_mapped(peer, location, bytes, ret_addr);

	if (err != -ENOENT)
		return err;
	err = map_anew(peer, &export, &mapping);
	return err ? err : find_in(peer, mapping, location->offset, bytes, ret_addr);
}

uint8_t *shm_writable(const struct shm_peer *peer, const uint8_t *addr)
{
	for (unsigned i = 0; i < SHM_MAPPINGS; i++) {
		const struct shm_mapping *mapping = &peer->mappings[i];

		if (mapping->is_writable && addr >= mapping->addr &&
			addr < mapping->addr + mapping->export.size)
			return mapping->addr + (addr - mapping->addr);
	}
	return NULL;
}

void shm_unmap(struct shm_peer *peer)
{
	for (unsigned i = 0; i < SHM_MAPPINGS; i++)
		if (peer->mappings[i].addr)
			drop(&peer->mappings[i]);
	if (peer->page)
		munmap((void *)(uintptr_t)peer->page, peer->page_size);
	peer->page = NULL;
}

/* ---- memory of this rank */

static void set_export(struct shm_page *page, unsigned i, uint64_t id)
{
	atomic_store_explicit(&page->exports[i], id, memory_order_relaxed);
}

/* Removes freed memory from the exports. Returns the first unused entry, or SHM_EXPORTS. */
static unsigned remove_freed(struct shm_page *page, bool *ret_has_changed)
{
	unsigned unused = SHM_EXPORTS;

	for (unsigned i = 0; i < SHM_EXPORTS; i++) {
		uint64_t id = atomic_load_explicit(&page->exports[i], memory_order_relaxed);

		if (id && !share_is_there(id)) {
			set_export(page, i, 0);
			*ret_has_changed = true;
			id = 0;
		}
		if (!id && unused == SHM_EXPORTS)
			unused = i;
	}
	return unused;
}

/* Returns the entry of `id`, or SHM_EXPORTS. */
static unsigned find_export(const struct shm_page *page, uint64_t id)
{
	unsigned at = 0;

	while (at < SHM_EXPORTS &&
		atomic_load_explicit(&page->exports[at], memory_order_relaxed) != id)
		at++;
	return at;
}

static void publish_change(struct shm_page *page)
{
	uint64_t changed = atomic_load_explicit(&page->exports_changed, memory_order_relaxed);

	atomic_store_explicit(&page->exports_changed, changed + 1, memory_order_release);
}

void shm_publish_freed(struct shm_page *page)
{
	uint64_t frees = share_frees();
	bool has_changed = false;

	if (frees == page->frees)
		return;
	page->frees = frees;
	remove_freed(page, &has_changed);
	if (has_changed)
		publish_change(page);
}

/* Publishes an export, and removes freed ones. Returns its entry, or SHM_EXPORTS if another
 * export would have to go and `may_displace` is false. */
static unsigned note_export(struct shm_page *page, uint64_t id, bool may_displace)
{
	uint64_t changed = atomic_load_explicit(&page->exports_changed, memory_order_relaxed);
	uint64_t frees = share_frees();
	unsigned known = find_export(page, id), at;
	bool has_changed = false;

	if (known < SHM_EXPORTS && frees == page->frees)
		return known;
	page->frees = frees;
	at = remove_freed(page, &has_changed);
	if (known < SHM_EXPORTS) {
		at = known;
	} else if (at == SHM_EXPORTS && may_displace) {
		at = (unsigned)(changed % SHM_EXPORTS);
		has_changed = true;
	}
	if (at < SHM_EXPORTS)
		set_export(page, at, id);
	if (has_changed)
		publish_change(page);
	return at;
}

static bool find_location(const void *addr, size_t bytes, struct shm_location *ret_location)
{
	struct share *share = share_find(addr, bytes);

	*ret_location = (struct shm_location){ 0 };
	if (!share)
		return false;
	ret_location->export = (struct shm_export){
		.id = share->id, .inode = share->inode, .size = share->size, .fd = share->fd
	};
	ret_location->offset = (uint64_t)((const uint8_t *)addr - share->addr);
	share_put(share);
	return true;
}

bool shm_export(struct shm_page *page, const void *addr, size_t bytes,
	struct shm_location *ret_location, unsigned *ret_at)
{
	if (!find_location(addr, bytes, ret_location))
		return false;
	*ret_at = note_export(page, ret_location->export.id, true);
	return true;
}

bool shm_export_if_room(struct shm_page *page, const void *addr, size_t bytes,
	struct shm_location *ret_location, unsigned *ret_at)
{
	if (!find_location(addr, bytes, ret_location))
		return false;
	*ret_at = note_export(page, ret_location->export.id, false);
	return *ret_at < SHM_EXPORTS;
}
