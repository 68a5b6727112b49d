/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/memory/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/process/file_limit.h"

/* Bytes reserved by one call. A step takes less than a millisecond, so that interrupting signals
 * cannot delay the reservation for ever. */
enum { STEP = 2 << 20 };

const char *memfd_policy_file = "/proc/sys/vm/overcommit_memory";

/* In this mode, pages of a memfd are accounted for one by one when they are touched. It is then too
 * late to refuse. */
bool memfd_accounting_is_strict(void)
{
	int fd = open(memfd_policy_file, O_RDONLY | O_CLOEXEC);
	char policy = '2';

	if (fd < 0)
		return true;
	if (read(fd, &policy, 1) != 1)
		policy = '2';
	close(fd);
	return policy == '2';
}

static bool is_reserved(int fd, size_t size)
{
	enum { BLOCK = 512 };
	struct stat status;

	return fstat(fd, &status) == 0 && (size_t)status.st_blocks >= size / BLOCK;
}

int memfd_reserve(int fd, size_t size)
{
	/* fallocate() would clear each page that nobody has touched, which takes as long as to
	 * allocate it. */
	if (is_reserved(fd, size))
		return 0;
	for (size_t at = 0; at < size; at += STEP) {
		size_t n = size - at < STEP ? size - at : STEP;

		while (fallocate(fd, 0, (off_t)at, (off_t)n)) {
			if (errno != EINTR)
				return errno == ENOSPC ? -ENOMEM : -errno;
		}
	}
	return 0;
}

static int give_size(int fd, size_t size)
{
	if (!file_limit_allows(size))
		return -EFBIG;
	if (ftruncate(fd, (off_t)size))
		return -errno;
	return memfd_accounting_is_strict() ? memfd_reserve(fd, size) : 0;
}

int memfd_make(const char *name, size_t size)
{
	int err, fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	err = give_size(fd, size);
	if (err) {
		close(fd);
		return err;
	}
	return fd;
}

int memfd_make_huge(const char *name, size_t *size)
{
	int err, fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
	size_t page, whole;
	struct stat status;

	if (fd < 0)
		return -errno;
	err = fstat(fd, &status) ? -errno : 0;
	page = err ? 1 : (size_t)status.st_blksize;
	whole = (*size + page - 1) / page * page;
	if (!err && whole / 2 > *size)
		err = -E2BIG;
	if (!err && !file_limit_allows(whole))
		err = -EFBIG;
	if (!err && ftruncate(fd, (off_t)whole))
		err = -errno;
	if (err) {
		close(fd);
		return err;
	}
	*size = whole;
	return fd;
}

const char *memfd_strerror(int err)
{
	switch (abs(err)) {
	case EFBIG:
		return "shared memory exceeds the limit for files (RLIMIT_FSIZE): raise it with "
		       "ulimit -f";
	case ENOMEM:
		return "no memory is left: end other processes, or use less; with "
		       "vm.overcommit_memory=2 see also vm.overcommit_ratio";
	default: return frl_strerror(err);
	}
}
