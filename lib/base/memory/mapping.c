/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/memory/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sys/ioctl.h>

/* PROCMAP_QUERY of Linux 6.11, not yet in common headers: asks maps(5) for a single mapping. */
struct query {
	uint64_t size, flags, addr;
	uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
	uint32_t dev_major, dev_minor;
	uint32_t name_size, build_id_size;
	uint64_t name_addr, build_id_addr;
};

enum { IS_SHARED = 0x08 };

#define QUERY _IOWR('f', 17, struct query)

/* The name that the kernel shows for anonymous huge pages, whose file nobody can open. */
static const char huge_name[] = "/anon_hugepage (deleted)";

struct mapping {
	uintptr_t start, end;
	size_t page;
	bool is_private; /* private and anonymous */
};

static bool is_private(bool is_shared, uint64_t inode, const char *name)
{
	return !is_shared && (inode == 0 || strcmp(name, huge_name) == 0);
}

/* Reads the mapping at `at`. Returns -ENOENT if there is none, -ENOTTY if the kernel is older. */
static int ask(int fd, uintptr_t at, struct mapping *ret_mapping)
{
	char name[PATH_MAX] = "";
	struct query query = {
		.size = sizeof(query),
		.addr = at,
		.name_size = sizeof(name),
		.name_addr = (uintptr_t)name,
	};

	if (ioctl(fd, QUERY, &query))
		return -errno;
	ret_mapping->start = (uintptr_t)query.vma_start;
	ret_mapping->end = (uintptr_t)query.vma_end;
	ret_mapping->page = (size_t)query.vma_page_size;
	ret_mapping->is_private = is_private(query.vma_flags & IS_SHARED, query.inode, name);
	return 0;
}

/* Reads the next line of maps(5). The size of huge pages is not in it, and assumed to be 2 MiB. */
static bool read_mapping(FILE *file, struct mapping *ret_mapping)
{
	char line[PATH_MAX + 128], rights[5] = "";
	uint64_t inode;
	int name = 0;

	if (!fgets(line, sizeof(line), file))
		return false;
	line[strcspn(line, "\n")] = '\0';
	if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*x %*x:%*x %" SCNu64 " %n",
		    &ret_mapping->start, &ret_mapping->end, rights, &inode, &name) != 4)
		return false;
	ret_mapping->is_private = is_private(rights[3] != 'p', inode, line + name);
	ret_mapping->page = inode ? 2 << 20 : (size_t)sysconf(_SC_PAGESIZE);
	return true;
}

/* Accounts for the mapping at `*at` and moves `*at` to its end. Returns false if it does not
 * fit. */
static bool add(const struct mapping *mapping, uintptr_t *at, size_t *page)
{
	if (*at < mapping->start || !mapping->is_private || (*page && *page != mapping->page))
		return false;
	*page = mapping->page;
	*at = mapping->end;
	return true;
}

/* Like mapping_private_page(), for kernels without PROCMAP_QUERY. */
static size_t search_text(uintptr_t start, uintptr_t end)
{
	FILE *file = fopen("/proc/self/maps", "re");
	struct mapping mapping;
	size_t page = 0;

	if (!file)
		return 0;
	while (start < end && read_mapping(file, &mapping)) {
		if (mapping.end > start && !add(&mapping, &start, &page))
			break;
	}
	fclose(file);
	return start < end ? 0 : page;
}

size_t mapping_private_page(uintptr_t start, uintptr_t end)
{
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), rc = 0;
	struct mapping mapping;
	uintptr_t at = start;
	size_t page = 0;

	if (fd < 0)
		return 0;
	while (at < end && !rc) {
		rc = ask(fd, at, &mapping);
		if (!rc && !add(&mapping, &at, &page))
			rc = -EINVAL;
	}
	if (rc == -ENOTTY)
		page = search_text(start, end);
	else if (rc)
		page = 0;
	close(fd);
	return page;
}
