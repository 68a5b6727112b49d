/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files in memory (memfd_create(2)), which other processes can map. The kernel ends a process by
 * SIGXFSZ when a file grows beyond RLIMIT_FSIZE, and by SIGBUS when a page that is touched cannot
 * be had. Both are errors here. Any thread.
 */
#ifndef FERRULE_BASE_MEMFD_H
#define FERRULE_BASE_MEMFD_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Creates a file of `size` zeroed bytes that can be sealed. Pages are allocated when they are
 * touched first, as with malloc(). With vm.overcommit_memory=2, where that can fail, all of them
 * are reserved here. Returns the descriptor or a negative errno: -EFBIG above RLIMIT_FSIZE,
 * -ENOMEM, -EMFILE, -ENFILE.
 */
int memfd_make(const char *name, size_t size);

/* Like memfd_make() with huge pages; *size becomes a multiple of their size. -E2BIG: more than half
 * of it would be lost. mmap() fails if too few are free. */
int memfd_make_huge(const char *name, size_t *size);

/* Reserves the first `size` bytes of a file, which has them. Returns 0 or a negative errno. */
int memfd_reserve(int fd, size_t size);

/* Returns whether memory that nobody has touched may be missing when it is touched, which raises
 * SIGBUS: vm.overcommit_memory is 2, or cannot be read. */
bool memfd_accounting_is_strict(void);

/* Explains an errno of these functions, of either sign, and says what to do. */
const char *memfd_strerror(int err);

/* The file of the kernel's overcommit policy; tests name another one. */
extern const char *memfd_policy_file;

#endif
