/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files in memory (memfd_create(2)), which other processes can map. The kernel raises SIGXFSZ when
 * a file grows beyond RLIMIT_FSIZE, and SIGBUS when a touched page cannot be allocated. These
 * functions return errors in both cases. Any thread.
 */
#ifndef FERRULE_BASE_MEMFD_H
#define FERRULE_BASE_MEMFD_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Creates a sealable file of `size` zeroed bytes. Pages are allocated when they are first touched,
 * as with malloc(). With vm.overcommit_memory=2 that can fail, so all pages are reserved here.
 * Returns the descriptor or a negative errno: -EFBIG above RLIMIT_FSIZE, -ENOMEM, -EMFILE, -ENFILE.
 */
int memfd_make(const char *name, size_t size);

/* Like memfd_make() with huge pages: rounds *size up to a multiple of their size. Returns -E2BIG if
 * more than half of the file would be unused. mmap() fails if too few are free. */
int memfd_make_huge(const char *name, size_t *size);

/* Reserves a file of `size` bytes, whole pages, unless it has as many already. Returns 0 or a
 * negative errno. */
int memfd_reserve(int fd, size_t size);

/* Returns true if untouched memory may be unavailable when it is touched, which raises SIGBUS:
 * vm.overcommit_memory is 2, or cannot be read. */
bool memfd_accounting_is_strict(void);

/* Explains an errno of these functions, of either sign, and names the remedy. */
const char *memfd_strerror(int err);

/* The file with the kernel's overcommit policy. Tests replace it. */
extern const char *memfd_policy_file;

#endif
