/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that is unmapped while a region of it exists (FRL_ACCESS_MAY_UNMAP). In half of the rows
 * the library cannot watch the memory, because another userfaultfd has it. It then finds out when
 * it accesses the memory, as it does in the moment between the unmapping and the kernel's message.
 */
#ifndef FERRULE_TESTS_UNIT_API_MEMORY_UNMAP_FIXTURE_H
#define FERRULE_TESTS_UNIT_API_MEMORY_UNMAP_FIXTURE_H

#include "tests/fixtures/api_fixture.h"

#include <fcntl.h>
#include <unistd.h>

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum {
	PAGE = 4096,
	SIZE = 16 * PAGE,
	FLAGGED = ALL_ACCESS | FRL_ACCESS_MAY_UNMAP,
};

/* Whether the library watches the memory. */
enum watching { WATCHED, UNWATCHED, N_WATCHING };

/* Memory, and a region of it. */
struct target {
	struct end *end;
	uint8_t *memory;
	struct frl_mr *mr;
	int other; /* the other userfaultfd, or -1 */
	/* Not watched: memory that malloc() maps there would be used. */
	bool is_reserved;
};

static struct target target;

/* Returns -1 if there is none; then no memory is watched. */
static inline int open_userfaultfd(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

	if (fd >= 0)
		ck_assert_int_eq(ioctl(fd, UFFDIO_API, &api), 0);
	return fd;
}

/* Without userfaultfd(2) nothing is watched. */
static inline bool is_watched(enum watching watching)
{
	int fd = open_userfaultfd();

	if (fd >= 0)
		close(fd);
	return watching == WATCHED && fd >= 0;
}

static inline int occupy(void *memory)
{
	struct uffdio_register range = { .range = { (uintptr_t)memory, SIZE },
		.mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = open_userfaultfd();

	memset(memory, 1, SIZE);
	if (fd >= 0)
		ck_assert_int_eq(ioctl(fd, UFFDIO_REGISTER, &range), 0);
	return fd;
}

static inline uint8_t *map_at(void *at)
{
	uint8_t *memory = mmap(at, SIZE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	ck_assert_ptr_ne(memory, MAP_FAILED);
	return memory;
}

static inline void make_target(struct end *end, enum watching watching)
{
	target = (struct target){ .end = end, .memory = map_at(NULL), .other = -1 };
	if (watching == UNWATCHED)
		target.other = occupy(target.memory);
	target.is_reserved = !is_watched(watching);
	ok(frl_reg_mr(end->pd, target.memory, SIZE, FLAGGED, &target.mr));
}

/* Nothing else may be mapped there, so that the end of a test does not unmap it. */
static inline void reserve(size_t n)
{
	ck_assert_ptr_eq(
		mmap(target.memory, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
		target.memory);
}

static inline void unmap_target(void)
{
	if (target.is_reserved)
		reserve(SIZE);
	else
		ck_assert_int_eq(munmap(target.memory, SIZE), 0);
}

static inline void end_target(void)
{
	uint64_t limit_ns = hang_limit_ns();
	int rc;

	while ((rc = frl_dereg_mr(target.mr)) == -EBUSY && may_wait(limit_ns))
		frl_progress(target.end->device);
	ok(rc);
	if (target.other >= 0)
		close(target.other);
	if (target.is_reserved)
		munmap(target.memory, SIZE);
}

static inline struct frl_sge target_sge(uint32_t length)
{
	return (struct frl_sge){ target.memory, length, frl_mr_lkey(target.mr) };
}

#endif
