/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of peers that is mapped here, and the limits of its costs. Payload of a refused import is
 * copied, which is the only effect. These costs are limited, per link and for the process:
 *
 * - Address space, and the page tables that reading fills: the sum of all mappings. A link maps
 *   each memory once, so page tables take at most 1/512 of the memory that the peer has allocated.
 * - Memory: an untouched page (a hole) is allocated by its first reader, and charged to that
 *   process and its control group. With vm.overcommit_memory=2 the allocation may fail, which
 *   raises SIGBUS. Holes are therefore summed up, and in that mode none are accepted. Seals prevent
 *   a peer from adding holes: by punching (F_SEAL_FUTURE_WRITE or F_SEAL_WRITE), by truncation,
 *   which would raise SIGBUS here (F_SEAL_SHRINK), or by growth (F_SEAL_GROW).
 *
 * Holes are computed from the block count of the file. That needs no lock of the file, which a peer
 * could hold for long. A peer can cheat by blocks that do not stay: behind the end of the file, or
 * of an fallocate() whose process it ends. It can then charge this process for at most as many
 * bytes as it was charged for itself.
 */
#include "drivers/local/in_place.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "lib/base/error.h"
#include "lib/base/memory/memfd.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define MIB ((uint64_t)1 << 20)
#define TIB ((uint64_t)1 << 40)

enum { HUGE_PAGE = 2 << 20, BLOCK = 512 };

struct import_limits import_limits = {
	.link = { .bytes = TIB, .holes = 256 * MIB },
	.process = { .bytes = 8 * TIB, .holes = 1024 * MIB },
};

/* Sums over all links. Protected by the link thread's mutex, like each link's sum. */
static struct import_sum mapped;

/* Reads of the mapping must not fail. The file must be memory that nobody can truncate, and not
 * huge pages, which may be used up. */
int in_place_check_memory(int fd, uint64_t size)
{
	struct statfs fs;
	struct stat st;
	int seals;

	if (size == 0)
		return -EINVAL;
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return -EINVAL;
	if (fstatfs(fd, &fs) || fs.f_type != TMPFS_MAGIC)
		return -EINVAL;
	return fstat(fd, &st) || (uint64_t)st.st_size != size ? -EINVAL : 0;
}

/* Returns the bytes of the file without a page. A huge page may extend past the end. */
static int count_holes(int fd, uint64_t size, struct stat *ret_st, uint64_t *ret_holes)
{
	uint64_t bytes;

	if (fstat(fd, ret_st))
		return -errno;
	bytes = (uint64_t)ret_st->st_blocks * BLOCK;
	if (bytes > size + HUGE_PAGE)
		return -EINVAL;
	*ret_holes = bytes < size ? size - bytes : 0;
	return 0;
}

static bool is_sealed(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & F_SEAL_GROW) &&
		(seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE));
}

static bool is_mapped(const struct in_place *in_place, const struct stat *st)
{
	for (int id = 0; id < IN_PLACE_IDS; id++)
		if (in_place->imports[id].addr && in_place->imports[id].inode == st->st_ino)
			return true;
	return false;
}

static bool fits(
	const struct import_sum *sum, const struct import_sum *limit, uint64_t size, uint64_t holes)
{
	return size <= limit->bytes - least(sum->bytes, limit->bytes) &&
		holes <= limit->holes - least(sum->holes, limit->holes);
}

static const char *too_much(const struct in_place *in_place, uint64_t size, uint64_t holes)
{
	if (!fits(&in_place->mapped, &import_limits.link, size, 0) ||
		!fits(&mapped, &import_limits.process, size, 0))
		return "the peer's memory would need too many addresses; send from fewer or "
		       "smaller allocations";
	if (!fits(&in_place->mapped, &import_limits.link, 0, holes) ||
		!fits(&mapped, &import_limits.process, 0, holes) ||
		(holes && memfd_accounting_is_strict()))
		return "much of the peer's memory was never written, and reading it would allocate "
		       "pages here; write to buffers before sending from them";
	return NULL;
}

static int check(const struct in_place *in_place, int fd, uint64_t size, struct import *import,
	const char **ret_why)
{
	struct stat st;
	/* Check the seals first: they keep the checked properties from changing. */
	int err = is_sealed(fd) ? in_place_check_memory(fd, size) : -EINVAL;

	if (!err)
		err = count_holes(fd, size, &st, &import->holes);
	/* With a second id it would be mapped twice. */
	if (!err && is_mapped(in_place, &st))
		err = -EINVAL;
	if (err)
		return err;
	import->inode = st.st_ino;
	*ret_why = too_much(in_place, size, import->holes);
	return *ret_why ? -ENOSPC : 0;
}

static void add(struct import_sum *sum, const struct import *import)
{
	sum->bytes += import->size;
	sum->holes += import->holes;
}

static void take_off(struct import_sum *sum, const struct import *import)
{
	sum->bytes -= import->size;
	sum->holes -= import->holes;
}

int import_map(struct in_place *in_place, struct import *import, int fd, uint64_t size)
{
	const char *why = "the peer's memory is not from frl_mem_alloc(), or from another version";
	int err = check(in_place, fd, size, import, &why);
	void *addr;

	if (err)
		goto refuse;
	addr = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	if (addr == MAP_FAILED) {
		err = -errno;
		why = frl_strerror(err);
		goto refuse;
	}
	if (size >= HUGE_PAGE)
		madvise(addr, size, MADV_HUGEPAGE);
	import->addr = addr;
	import->size = size;
	add(&in_place->mapped, import);
	add(&mapped, import);
	return 0;

refuse:
	if (!in_place->has_warned)
		frl_log(FRL_LOG_WARNING, "payload of a peer on this machine is copied: %s", why);
	in_place->has_warned = true;
	return err;
}

void import_unmap(struct in_place *in_place, struct import *import)
{
	if (!import->addr)
		return;
	munmap(import->addr, import->size);
	import->addr = NULL;
	take_off(&in_place->mapped, import);
	take_off(&mapped, import);
}
