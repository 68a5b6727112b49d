/* SPDX-License-Identifier: BSD-3-Clause */
/* Pages: a process creates and writes them; the daemon reads them without trust. */
#include "lib/control/page.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lib/base/process/closer.h"
#include "lib/base/memory/memfd.h"

enum { TRIES = 8 };

static_assert(offsetof(struct page_qp, sequence) == 0 && offsetof(struct page_qp, qpn) == 4,
	"the number is read together with its sequence number");

void page_write_begin(struct page_qp *qp)
{
	uint32_t sequence = atomic_load_explicit(&qp->sequence, memory_order_relaxed);

	atomic_store_explicit(&qp->sequence, sequence + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
}

void page_write_end(struct page_qp *qp)
{
	uint32_t sequence = atomic_load_explicit(&qp->sequence, memory_order_relaxed);

	atomic_store_explicit(&qp->sequence, sequence + 1, memory_order_release);
}

static bool read_at(const struct page_view *view, size_t at, void *to, size_t size)
{
	return pread(view->fd, to, size, (off_t)at) == (ssize_t)size;
}

bool page_read_head(const struct page_view *view, struct page *ret)
{
	struct page again;

	if (!read_at(view, 0, ret, sizeof(*ret)))
		return false;
	/*
	 * The copy may contain a number that was half written: repeat until two copies are equal.
	 */
	for (int i = 0; i < TRIES; i++) {
		if (!read_at(view, 0, &again, sizeof(again)))
			return false;
		if (memcmp(ret, &again, sizeof(again)) == 0)
			return true;
		memcpy(ret, &again, sizeof(again));
	}
	return true;
}

uint64_t page_published_ns(const struct page_view *view)
{
	uint64_t published_ns;

	return read_at(view, offsetof(struct page, published_ns), &published_ns,
		       sizeof(published_ns))
		? published_ns
		: 0;
}

uint32_t page_used_slots(const struct page_view *view)
{
	uint32_t used;

	if (!read_at(view, offsetof(struct page, used_slots), &used, sizeof(used)))
		return 0;
	return used < view->slots ? used : view->slots;
}

bool page_read_qp(const struct page_view *view, uint32_t slot, struct page_qp *ret)
{
	const size_t at = page_size(slot);

	for (int i = 0; i < TRIES; i++) {
		struct {
			uint32_t sequence, qpn;
		} before, after;

		if (!read_at(view, at, &before, sizeof(before)))
			return false;
		if (before.sequence & 1)
			continue;
		/* Most slots are empty: read no more of them. */
		if (before.qpn == 0)
			return false;
		atomic_thread_fence(memory_order_acquire);
		if (!read_at(view, at, ret, sizeof(*ret)))
			return false;
		atomic_thread_fence(memory_order_acquire);
		if (!read_at(view, at, &after, sizeof(after)))
			return false;
		if (before.sequence != after.sequence)
			continue;
		ret->error[PAGE_REASON - 1] = '\0';
		ret->peer_host[PAGE_HOST - 1] = '\0';
		return ret->qpn != 0;
	}
	return false;
}

struct page *page_create(uint32_t slots, int *ret_fd)
{
	int error, fd = memfd_make("ferrule-page", page_size(slots));
	struct page *page;

	if (fd < 0) {
		errno = -fd;
		return NULL;
	}
	page = mmap(NULL, page_size(slots), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		goto err_close;
	/* From now on no other process can write to the memory or remove pages of it. */
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL))
		goto err_unmap;
	page->magic = PAGE_MAGIC;
	page->version = PAGE_VERSION;
	page->slots = slots;
	*ret_fd = fd;
	return page;

err_unmap:
	error = errno;
	munmap(page, page_size(slots));
	errno = error;
err_close:
	error = errno;
	close(fd);
	errno = error;
	return NULL;
}

/*
 * Returns NULL and the size if the descriptor is a sealed memfd of a valid size, or else the
 * reason.
 */
static const char *check_fd(int fd, size_t *ret_size)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs fs;
	struct stat st;

	if (seals < 0)
		return "the page's descriptor is not a memfd";
	if (fstatfs(fd, &fs) || fs.f_type != TMPFS_MAGIC)
		return "the page is not in ordinary memory";
	if (!(seals & F_SEAL_SHRINK) || !(seals & F_SEAL_GROW) ||
		!(seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)))
		return "the page is not sealed: other processes could change its size or content";
	if (fstat(fd, &st) || st.st_size < (off_t)sizeof(struct page) ||
		(uint64_t)st.st_size > page_size(PAGE_SLOTS))
		return "the page is shorter than its header, or longer than any page";
	*ret_size = (size_t)st.st_size;
	return NULL;
}

/*
 * The last close of a memfd frees its memory, which may be a lot: also memory behind its end.
 * Another thread does that.
 */
static void close_view(const struct page_view *view)
{
	closer_close(view->fd);
}

const char *page_open(int fd, struct page_view *ret_view)
{
	struct page_view view = { .fd = fd, .close = close_view };
	struct page head;
	size_t size;
	const char *why = check_fd(fd, &size);

	if (why)
		return why;
	if (!page_read_head(&view, &head))
		return "the page cannot be read";
	if (head.magic != PAGE_MAGIC || head.version != PAGE_VERSION)
		return "the page is not of this version: use the same release of library and "
		       "daemon";
	if (head.slots > PAGE_SLOTS || page_size(head.slots) > size)
		return "the page is too short for its number of slots";
	view.slots = head.slots;
	*ret_view = view;
	return NULL;
}
