/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/memory/share.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/memory/memfd.h"
#include "lib/base/memory/share_source.h"
#include "lib/base/settings.h"

enum { HUGE_PAGE = 2 << 20 };

static struct {
	pthread_mutex_t mutex; /* protects the list and the counts */
	struct share *first;
	uint64_t n; /* number of allocations so far */
	_Atomic uint64_t n_freed;
} shares = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static atomic_bool prefers_huge;

/* NULL: the process has no other shared memory. Does not change after the library was loaded. */
static const struct share_source *source;

static void before_fork(void)
{
	pthread_mutex_lock(&shares.mutex);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&shares.mutex);
}

/* Registered when the library is loaded, before the handlers of callers that hold their locks. */
__attribute__((constructor(201))) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
}

/* A preloaded library is loaded before this one. */
__attribute__((constructor)) static void find_source(void)
{
	const struct share_source *found = dlsym(RTLD_DEFAULT, SHARE_SOURCE_SYMBOL);

	if (found && found->version == SHARE_SOURCE_VERSION &&
		found->share_size == sizeof(struct share))
		source = found;
}

void share_prefer_huge(void)
{
	atomic_store(&prefers_huge, true);
}

/* Maps a memfd of share->size bytes, or closes it on failure. Passes a negative `fd` on. The seals
 * prevent others from removing pages. */
static int map_memfd(struct share *share, int fd)
{
	int seals = F_SEAL_SHRINK | F_SEAL_GROW, err;
	size_t size = share->size;
	struct stat status;
	uint8_t *addr;

	if (fd < 0)
		return fd;
	if (fstat(fd, &status))
		goto err_close;
	addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (addr == MAP_FAILED)
		goto err_close;
	if (!settings_get()->shm_write)
		seals |= F_SEAL_FUTURE_WRITE;
	if (fcntl(fd, F_ADD_SEALS, seals))
		goto err_unmap;
	/* Huge pages reduce TLB misses. Failure does not matter. */
	if (size >= HUGE_PAGE)
		madvise(addr, size, MADV_HUGEPAGE);
	share->addr = addr;
	share->inode = status.st_ino;
	return fd;

err_unmap:
	err = errno;
	munmap(addr, size);
	errno = err;
err_close:
	err = -errno;
	close(fd);
	return err;
}

/* Maps huge pages if preferred and free. */
static int map_any(struct share *share)
{
	size_t wanted = share->size;
	int fd = -1;

	if (atomic_load(&prefers_huge))
		fd = map_memfd(share, memfd_make_huge("ferrule", &share->size));
	share->is_huge = fd >= 0;
	if (share->is_huge)
		return fd;
	share->size = wanted;
	return map_memfd(share, memfd_make("ferrule", wanted));
}

void *share_alloc(size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t whole = (size + page - 1) & ~(page - 1);
	struct share *share;
	int fd;

	if (whole < size || whole > PTRDIFF_MAX) {
		errno = ENOMEM;
		return NULL;
	}
	share = calloc(1, sizeof(*share));
	if (!share)
		return NULL;
	share->size = whole;
	fd = map_any(share);
	if (fd < 0) {
		free(share);
		errno = -fd;
		return NULL;
	}
	share->fd = fd;
	share->users = 1;
	pthread_mutex_lock(&shares.mutex);
	share->id = ++shares.n;
	share->next = shares.first;
	shares.first = share;
	pthread_mutex_unlock(&shares.mutex);
	return share->addr;
}

int share_seal(struct share *share)
{
	int seals = fcntl(share->fd, F_GET_SEALS);
	struct stat status;

	atomic_store(&share->passed, true);
	/* The program may have closed the descriptor, and use the number for another file. */
	if (fstat(share->fd, &status) || status.st_ino != share->inode)
		return -EBADF;
	if (seals >= 0 && (seals & F_SEAL_FUTURE_WRITE))
		return 0;
	return fcntl(share->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) ? -errno : 0;
}

/* Call with the mutex held. */
static void put(struct share *share)
{
	if (--share->users > 0)
		return;
	close(share->fd);
	free(share);
}

bool share_free(void *addr)
{
	struct share *share = NULL;

	pthread_mutex_lock(&shares.mutex);
	for (struct share **p = &shares.first; *p; p = &(*p)->next) {
		if ((*p)->addr != addr)
			continue;
		share = *p;
		*p = share->next;
		/* Set the flag before the address can be reused: users of the address check it
		 * without the mutex. */
		atomic_store(&share->freed, true);
		atomic_fetch_add(&shares.n_freed, 1);
		munmap(share->addr, share->size);
		put(share);
		break;
	}
	pthread_mutex_unlock(&shares.mutex);
	return share != NULL;
}

struct share *share_find(const void *addr, size_t len)
{
	const uint8_t *at = addr;
	struct share *share;

	pthread_mutex_lock(&shares.mutex);
	for (share = shares.first; share; share = share->next) {
		if (at >= share->addr && len <= share->size &&
			(size_t)(at - share->addr) <= share->size - len) {
			share->users++;
			break;
		}
	}
	pthread_mutex_unlock(&shares.mutex);
	return share || !source ? share : source->find(addr, len);
}

void share_put(struct share *share)
{
	if (share->id & SHARE_FROM_SOURCE) {
		source->put(share);
		return;
	}
	pthread_mutex_lock(&shares.mutex);
	put(share);
	pthread_mutex_unlock(&shares.mutex);
}

bool share_is_there(uint64_t id)
{
	const struct share *share;

	if (id & SHARE_FROM_SOURCE)
		return source && source->is_there(id);
	pthread_mutex_lock(&shares.mutex);
	for (share = shares.first; share && share->id != id; share = share->next)
		;
	pthread_mutex_unlock(&shares.mutex);
	return share != NULL;
}

uint64_t share_frees(void)
{
	uint64_t n = atomic_load_explicit(&shares.n_freed, memory_order_acquire);

	return source ? n + source->frees() : n;
}

void share_hold(void)
{
	if (source)
		source->hold();
}

void share_release(void)
{
	if (source)
		source->release();
}
