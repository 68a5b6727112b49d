/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cache of registrations. `index` has the valid entries by address, and their pages are
 * watched. An entry whose memory is gone leaves the index at once, before a lookup can find it for
 * other memory. It is deregistered after its last user has put it back. Entries of GPU memory have
 * their own index: mr_cache_gpu.c.
 *
 * The lock is that of lib/base/memory/unmap_watch.h. While it is held, nothing may be allocated,
 * freed, registered or deregistered. Entries to be freed wait in `dead`.
 */
#include "lib/api/memory/mr_cache_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "lib/api/memory/memory_gpu.h"
#include "lib/api/objects.h"

enum {
	DEFAULT_REGIONS = 1024,
	/*
	 * Less is of no use: with such a small limit registrations fail anyway, and then evict
	 * cached regions.
	 */
	LEAST_BYTES = 4 << 20,
	/* A quarter of the lockable memory, or of all memory. */
	DEFAULT_SHARE = 4,
};

/* All caches of the process, of all devices, because they share the limit of locked memory. */
static pthread_mutex_t all_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct list all_caches = { &all_caches, &all_caches };

/* A child has no caches, and a thread of the parent may have held the mutex. */
static void reset_in_child(void)
{
	pthread_mutex_init(&all_mutex, NULL);
	list_init(&all_caches);
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, reset_in_child);
}

static struct mr_entry *entry_at(const struct list *node)
{
	return container_of(node, struct mr_entry, node);
}

static struct frl_mr_cache *cache_of(struct unmap_listener *listener)
{
	return container_of(listener, struct frl_mr_cache, listener);
}

/* ---- states of an entry; all with the lock held */

static struct mr_index *index_of(struct frl_mr_cache *cache, const struct mr_entry *entry)
{
	return entry->buffer ? &cache->gpu_index : &cache->index;
}

/* Returns the entry's share of the locked memory: only host memory counts. */
static uint64_t bytes_of(const struct mr_entry *entry)
{
	return entry->buffer ? 0 : entry->end - entry->start;
}

static void leave_index(struct frl_mr_cache *cache, struct mr_entry *entry)
{
	mr_index_remove(index_of(cache, entry), entry);
	if (entry->page)
		unmap_watch_release(entry->start, entry->end, entry->page);
}

static void leave_idle(struct frl_mr_cache *cache, struct mr_entry *entry)
{
	list_remove(&entry->node);
	cache->n_idle--;
	cache->idle_bytes -= bytes_of(entry);
}

/* Moves an idle entry to `dead`. */
static void discard_idle(struct frl_mr_cache *cache, struct mr_entry *entry)
{
	leave_idle(cache, entry);
	leave_index(cache, entry);
	list_add_tail(&cache->dead, &entry->node);
}

static void evict(struct frl_mr_cache *cache)
{
	while (cache->n_idle > cache->limit.max_regions ||
		cache->idle_bytes > cache->limit.max_bytes) {
		discard_idle(cache, entry_at(cache->idle.next));
		cache->stats.evicted++;
	}
}

void mr_cache_release(struct frl_mr_cache *cache, struct mr_entry *entry)
{
	if (--entry->users > 0)
		return;
	cache->in_use--;
	if (!entry->is_indexed) {
		list_add_tail(&cache->dead, &entry->node);
		return;
	}
	list_add_tail(&cache->idle, &entry->node);
	cache->n_idle++;
	cache->idle_bytes += bytes_of(entry);
	evict(cache);
}

void mr_cache_acquire(struct frl_mr_cache *cache, struct mr_entry *entry)
{
	if (entry->users++ > 0)
		return;
	leave_idle(cache, entry);
	cache->in_use++;
}

void mr_cache_invalidate(struct frl_mr_cache *cache, struct mr_entry *entry)
{
	cache->stats.invalidated++;
	if (entry->users)
		leave_index(cache, entry);
	else
		discard_idle(cache, entry);
}

static bool memory_gone(struct unmap_listener *listener, uintptr_t start, uintptr_t end)
{
	struct frl_mr_cache *cache = cache_of(listener);
	struct mr_entry *entry;
	bool has_died = false;

	for (struct list *node = cache->registering.next; node != &cache->registering;
		node = node->next) {
		entry = entry_at(node);
		entry->was_unmapped |= entry->start < end && start < entry->end;
	}
	while ((entry = mr_index_overlapping(&cache->index, start, end))) {
		has_died |= entry->users == 0;
		mr_cache_invalidate(cache, entry);
	}
	return has_died;
}

static bool needs_page(struct unmap_listener *listener, uintptr_t at, uintptr_t *until)
{
	struct frl_mr_cache *cache = cache_of(listener);
	uintptr_t page = cache->page;

	for (struct list *node = cache->registering.next; node != &cache->registering;
		node = node->next) {
		const struct mr_entry *entry = entry_at(node);
		uintptr_t first = entry->start & ~(page - 1);
		uintptr_t end = (entry->end + page - 1) & ~(page - 1);
		bool is_inside = first <= at && at < end;
		uintptr_t next = is_inside ? end : first;

		if (!entry->page || end <= at)
			continue;
		if (next < *until)
			*until = next;
		if (is_inside)
			return true;
	}
	return mr_index_has(&cache->index, at, page, until);
}

/* ---- without the lock */

/* Takes the first dead entry, or returns NULL. `was_freed`: whether the one before it was freed. */
static struct mr_entry *take_dead(struct frl_mr_cache *cache, bool was_freed)
{
	struct mr_entry *entry = NULL;

	unmap_watch_lock();
	cache->stats.deregistered += was_freed;
	if (!list_empty(&cache->dead)) {
		entry = entry_at(cache->dead.next);
		list_remove(&entry->node);
	}
	unmap_watch_unlock();
	return entry;
}

/*
 * Deregisters the dead entries. Returns how many cannot be deregistered yet. Keeps
 * frl_last_error(), because the caller's operation has not failed.
 */
static unsigned deregister_dead(struct frl_mr_cache *cache)
{
	char error[ERROR_TEXT_MAX];
	bool was_freed = false;
	struct mr_entry *entry;
	unsigned n_busy = 0;
	struct list busy;

	list_init(&busy);
	error_save(error);
	while ((entry = take_dead(cache, was_freed))) {
		was_freed = mr_dereg_cached(entry->mr) != -EBUSY;
		if (was_freed) {
			free(entry);
		} else {
			list_add_tail(&busy, &entry->node);
			n_busy++;
		}
	}
	error_restore(error);
	if (!n_busy)
		return 0;
	unmap_watch_lock();
	while (!list_empty(&busy)) {
		struct list *node = busy.next;

		list_remove(node);
		list_add_tail(&cache->dead, node);
	}
	unmap_watch_unlock();
	return n_busy;
}

static void after_memory_gone(struct unmap_listener *listener)
{
	deregister_dead(cache_of(listener));
}

/* Deregisters all unused entries. */
static void trim(struct frl_mr_cache *cache)
{
	unmap_watch_lock();
	while (!list_empty(&cache->idle)) {
		discard_idle(cache, entry_at(cache->idle.next));
		cache->stats.evicted++;
	}
	unmap_watch_unlock();
	deregister_dead(cache);
}

/*
 * Makes room in the index for one entry. Called with the lock held, which is released to allocate.
 */
static bool make_room(struct mr_index *index)
{
	while (index->room <= index->n) {
		uint32_t room = index->room ? 2 * index->room : 64;
		struct mr_slot *more, *old;

		unmap_watch_unlock();
		more = calloc(room, sizeof(*more));
		unmap_watch_lock();
		if (!more)
			return false;
		old = mr_index_grow(index, more, room);
		unmap_watch_unlock();
		free(old);
		unmap_watch_lock();
	}
	return true;
}

/* Removes an entry from the list of those being made. With the lock held. */
static void leave_registering(struct mr_entry *entry)
{
	list_remove(&entry->node);
	if (entry->page)
		unmap_watch_release(entry->start, entry->end, entry->page);
}

/*
 * Adds a registered entry to the index, unless its memory has changed meanwhile. With the lock
 * held.
 */
static void insert_entry(struct frl_mr_cache *cache, struct mr_entry *entry)
{
	struct mr_index *index = index_of(cache, entry);
	bool has_room = (entry->page || entry->buffer) && make_room(index);

	cache->in_use++;
	if (!has_room || entry->was_unmapped) {
		leave_registering(entry);
		return;
	}
	list_remove(&entry->node);
	mr_index_add(index, entry);
}

/* GPU pages are larger, and one page may belong to several allocations: use the exact range. */
static struct mr_entry *new_entry(
	struct frl_mr_cache *cache, uintptr_t start, uintptr_t end, uint32_t access, bool is_gpu)
{
	const uintptr_t in_page = mr_remote_rights(access) || is_gpu ? 0 : cache->page - 1;
	struct mr_entry *entry = calloc(1, sizeof(*entry));

	if (!entry)
		return NULL;
	list_init(&entry->node);
	entry->cache = cache;
	entry->start = start & ~in_page;
	entry->end = (end + in_page) & ~in_page;
	entry->access = access;
	entry->users = 1;
	return entry;
}

/* `can_watch`: it is host memory, and all unmappings are reported. */
static int register_entry(struct frl_mr_cache *cache, struct mr_entry *entry, bool can_watch)
{
	size_t page = 0;
	int rc;

	if (can_watch)
		page = unmap_watch_page(entry->start, entry->end);

	unmap_watch_lock();
	list_add_tail(&cache->registering, &entry->node);
	if (page && !unmap_watch_range(entry->start, entry->end, page))
		entry->page = page;
	cache->stats.misses++;
	cache->stats.unwatched += !entry->page && !entry->buffer;
	unmap_watch_unlock();
	rc = frl_reg_mr(cache->pd, (void *)entry->start, entry->end - entry->start, entry->access,
		&entry->mr);
	if (!rc)
		entry->mr->cached = entry;
	unmap_watch_lock();
	if (rc)
		leave_registering(entry);
	else
		insert_entry(cache, entry);
	unmap_watch_unlock();
	return rc;
}

/* ---- limits */

/* Returns whether RLIMIT_MEMLOCK does not apply: capabilities(7). */
static bool may_lock_all(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	return syscall(SYS_capget, &header, data) == 0 &&
		(data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK));
}

static uint64_t default_bytes(void)
{
	uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
		limit.rlim_cur < all && !may_lock_all())
		all = limit.rlim_cur;
	return all / DEFAULT_SHARE < LEAST_BYTES ? LEAST_BYTES : all / DEFAULT_SHARE;
}

static void set_limits(struct frl_mr_cache *cache, const struct frl_mr_cache_config *config)
{
	if (config)
		cache->limit = *config;
	if (!cache->limit.max_regions)
		cache->limit.max_regions = DEFAULT_REGIONS;
	if (!cache->limit.max_bytes)
		cache->limit.max_bytes = default_bytes();
}

/* Logs once if memory cannot be watched: nothing is cached then, which is slow and unexpected. */
static void start_to_watch(struct frl_mr_cache *cache)
{
	static atomic_flag was_said = ATOMIC_FLAG_INIT;
	char error[ERROR_TEXT_MAX];

	error_save(error);
	cache->can_watch = unmap_watch_add(&cache->listener) == 0;
	if (!cache->can_watch && !atomic_flag_test_and_set(&was_said))
		frl_log(FRL_LOG_WARNING, "memory is registered for each use: %s", frl_last_error());
	error_restore(error);
}

/* ---- the public functions */

int frl_mr_cache_create(struct frl_pd *pd, const struct frl_mr_cache_config *config,
	struct frl_mr_cache **ret_cache)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct frl_mr_cache *cache;

	if (!pd || !ret_cache)
		return frl_fail(-EINVAL, "frl_mr_cache_create: pd and ret_cache are required");
	cache = calloc(1, sizeof(*cache));
	if (!cache)
		return frl_fail(-ENOMEM, "no memory for a cache of registrations");
	cache->pd = pd;
	cache->page = (uintptr_t)sysconf(_SC_PAGESIZE);
	set_limits(cache, config);
	list_init(&cache->idle);
	list_init(&cache->dead);
	list_init(&cache->registering);
	list_init(&cache->listener.node);
	cache->listener.gone = memory_gone;
	cache->listener.after = after_memory_gone;
	cache->listener.needs = needs_page;
	start_to_watch(cache);
	pd_count(pd, 1);
	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&all_mutex);
	list_add_tail(&all_caches, &cache->node);
	pthread_mutex_unlock(&all_mutex);
	*ret_cache = cache;
	return 0;
}

/*
 * Deregisters all regions. Returns -EBUSY if some cannot be deregistered yet; the cache is
 * unchanged then.
 */
static int deregister_all(struct frl_mr_cache *cache)
{
	unsigned busy = deregister_dead(cache);

	/* The thread in after_memory_gone() may have had entries, and put them back. */
	if (!busy && cache->can_watch) {
		unmap_watch_remove(&cache->listener);
		busy = deregister_dead(cache);
		if (busy)
			start_to_watch(cache);
	}
	if (!busy)
		return 0;
	return frl_fail(-EBUSY,
		"%u regions of the cache cannot be deregistered yet: packets refer to them, or "
		"memory windows are bound to them",
		busy);
}

int frl_mr_cache_destroy(struct frl_mr_cache *cache)
{
	unsigned in_use;
	int rc;

	if (!cache)
		return 0;
	unmap_watch_lock();
	in_use = cache->in_use;
	while (!in_use && !list_empty(&cache->idle))
		discard_idle(cache, entry_at(cache->idle.next));
	unmap_watch_unlock();
	if (in_use)
		return frl_fail(-EBUSY, "%u registrations of the cache are in use", in_use);
	rc = deregister_all(cache);
	if (rc)
		return rc;
	pthread_mutex_lock(&all_mutex);
	list_remove(&cache->node);
	pthread_mutex_unlock(&all_mutex);
	pd_count(cache->pd, -1);
	free(cache->index.slots);
	free(cache->gpu_index.slots);
	free(cache);
	return 0;
}

void frl_mr_cache_trim(struct frl_mr_cache *cache)
{
	if (cache)
		trim(cache);
}

bool mr_caches_make_room(int rc)
{
	bool has_any;

	if (rc != -ENOMEM && rc != -ENOSPC)
		return false;
	pthread_mutex_lock(&all_mutex);
	for (struct list *node = all_caches.next; node != &all_caches; node = node->next)
		trim(container_of(node, struct frl_mr_cache, node));
	/* Another thread may have trimmed just now: nothing is left, but there is room. */
	has_any = !list_empty(&all_caches);
	pthread_mutex_unlock(&all_mutex);
	return has_any;
}

int frl_mr_cache_get(struct frl_mr_cache *cache, void *addr, size_t length, uint32_t access,
	struct frl_mr **ret_mr)
{
	uintptr_t start = (uintptr_t)addr, end = start + length;
	bool is_dirty, can_keep, is_gpu = false;
	struct mr_entry *entry = NULL;
	uint64_t buffer = 0;
	int rc;

	if (!cache || !addr || !length || end < start || !ret_mr)
		return frl_fail(-EINVAL,
			"frl_mr_cache_get: cache, addr, a length within the address space and "
			"ret_mr are required");
	unmap_watch_lock();
	can_keep = cache->can_watch && unmap_watch_catch_up();
	if (can_keep)
		entry = mr_index_find(&cache->index, start, end, access);
	if (entry) {
		mr_cache_acquire(cache, entry);
		cache->stats.hits++;
	}
	is_dirty = !list_empty(&cache->dead);
	unmap_watch_unlock();
	if (!entry)
		is_gpu = mr_gpu_buffer(addr, length, &buffer);
	if (buffer)
		entry = mr_cache_find_gpu(cache, start, end, access, buffer);
	if (is_dirty || buffer)
		deregister_dead(cache);
	if (!entry) {
		entry = new_entry(cache, start, end, access, is_gpu);
		if (!entry)
			return frl_fail(-ENOMEM, "no memory for a memory region");
		entry->buffer = buffer;
		rc = register_entry(cache, entry, can_keep && !is_gpu);
		if (rc) {
			free(entry);
			return rc;
		}
	}
	*ret_mr = entry->mr;
	return 0;
}

void frl_mr_cache_put(struct frl_mr_cache *cache, struct frl_mr *mr)
{
	struct mr_entry *entry = mr ? mr->cached : NULL;
	bool is_mistake, is_dirty;

	if (!cache || !mr)
		return;
	unmap_watch_lock();
	is_mistake = !entry || entry->cache != cache || entry->users == 0;
	if (!is_mistake)
		mr_cache_release(cache, entry);
	is_dirty = !list_empty(&cache->dead);
	unmap_watch_unlock();
	if (is_mistake) {
		frl_fail(-EINVAL, "frl_mr_cache_put: the region is %s",
			entry && entry->cache == cache ? "not in use: it was put back before"
						       : "not one of this cache");
		frl_log(FRL_LOG_ERROR, "%s", frl_last_error());
	}
	if (is_dirty)
		deregister_dead(cache);
}

void frl_mr_cache_query(struct frl_mr_cache *cache, struct frl_mr_cache_stats *ret_stats)
{
	unmap_watch_lock();
	*ret_stats = cache->stats;
	unmap_watch_unlock();
}
