/* SPDX-License-Identifier: BSD-3-Clause */
/* Pages: made and written by a process, mapped and read, without trust, by the daemon. */
#include "lib/control/page.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lib/base/memfd.h"

enum { TRIES = 8 };

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

/* What is behind the sequence number, eight bytes at a time: the writer may be at it. */
static void copy_slot(const struct page_qp *from, struct page_qp *to)
{
	const volatile uint32_t *word = (const volatile uint32_t *)from;
	uint32_t copy[sizeof(*from) / sizeof(uint32_t)];

	for (size_t i = 0; i < sizeof(copy) / sizeof(copy[0]); i++)
		copy[i] = word[i];
	memcpy(to, copy, sizeof(*to));
}

bool page_read_qp(const struct page *page, uint32_t slot, struct page_qp *ret)
{
	const struct page_qp *qp = &page->qp[slot];

	for (int i = 0; i < TRIES; i++) {
		uint32_t before = atomic_load_explicit(&qp->sequence, memory_order_acquire);

		if (before & 1)
			continue;
		copy_slot(qp, ret);
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load_explicit(&qp->sequence, memory_order_relaxed) != before)
			continue;
		ret->error[PAGE_REASON - 1] = '\0';
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
	/* From now on nobody else can write, nor take pages away. */
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

/* The descriptor is what it should be; *ret_size. */
static const char *check_fd(int fd, size_t *ret_size)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs fs;
	struct stat st;

	if (seals < 0)
		return "the page's descriptor is no memfd";
	/* Who reads huge pages that are not there gets a SIGBUS where none is left. */
	if (fstatfs(fd, &fs) || fs.f_type != TMPFS_MAGIC)
		return "the page is not in ordinary memory";
	/* One that grows could take seconds to be freed, by its last mapping. */
	if (!(seals & F_SEAL_SHRINK) || !(seals & F_SEAL_GROW))
		return "the page could shrink or grow: it is not sealed against that";
	if (fstat(fd, &st) || st.st_size < (off_t)sizeof(struct page) ||
		(uint64_t)st.st_size > page_size(PAGE_SLOTS))
		return "the page is shorter than its header, or longer than any page";
	*ret_size = (size_t)st.st_size;
	return NULL;
}

/* Once: the process may change it later on. */
static const char *check_header(const struct page *page, size_t size, uint32_t *ret_slots)
{
	uint32_t slots = *(const volatile uint32_t *)&page->slots;

	if (page->magic != PAGE_MAGIC || page->version != PAGE_VERSION)
		return "the page is not of this version: use the same release of library and "
		       "daemon";
	if (slots > PAGE_SLOTS || page_size(slots) > size)
		return "the page is too short for what it says is in it";
	*ret_slots = slots;
	return NULL;
}

const struct page *page_map(int fd, uint32_t *ret_slots, size_t *ret_size, const char **ret_why)
{
	const struct page *page;
	size_t size;

	*ret_why = check_fd(fd, &size);
	if (*ret_why)
		return NULL;
	page = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED) {
		*ret_why = "the page cannot be mapped";
		return NULL;
	}
	*ret_why = check_header(page, size, ret_slots);
	if (*ret_why) {
		page_unmap(page, size);
		return NULL;
	}
	*ret_size = size;
	return page;
}

void page_unmap(const struct page *page, size_t size)
{
	munmap((void *)(uintptr_t)page, size);
}
