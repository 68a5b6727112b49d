/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory of a link's rings. The server creates it and passes its descriptor with the answer to
 * the hello. The client maps it. It outlives the peer.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdalign.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "drivers/local/in_place.h"
#include "drivers/local/ring.h"
#include "lib/base/memory/memfd.h"

static size_t way_size(uint32_t bytes)
{
	return offsetof(struct ring_way, records) + bytes + RING_BEHIND;
}

static size_t round_up(size_t size, size_t step)
{
	return (size + step - 1) & ~(step - 1);
}

/* The ring to the server comes first. */
static struct ring_way *to_client(void *memory, uint32_t bytes)
{
	return (void *)((uint8_t *)memory + round_up(way_size(bytes), alignof(struct ring_way)));
}

static size_t memory_size(uint32_t bytes)
{
	size_t ways = round_up(way_size(bytes), alignof(struct ring_way)) + way_size(bytes);

	return round_up(ways, (size_t)sysconf(_SC_PAGESIZE));
}

/*
 * Missing pages cause an error here, or a signal later. Both ends reserve them, because the client
 * does not know what the server has done. Neither can prevent the other from releasing pages: with
 * F_SEAL_WRITE the other end could not write either. New pages are then allocated when they are
 * touched.
 */
static int map(int fd, size_t size, struct ring_link **ret_link)
{
	int err = memfd_reserve(fd, size);
	struct ring_link *link = NULL;
	void *memory;

	if (err)
		return err == -EPERM ? -EINVAL : err;
	link = malloc(sizeof(*link));
	if (!link)
		return -ENOMEM;
	/* The first burst in a page maps it, in a microsecond. The port's owner waits for the link,
	 * and would wait up to 0.9 ms longer if all 2 MiB were mapped here. */
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED) {
		/* EAGAIN: too much memory is locked, and a retry does not help. */
		err = errno == EAGAIN ? -ENOMEM : errno == EPERM ? -EINVAL : -errno;
		free(link);
		return err;
	}
	link->memory = memory;
	link->size = size;
	*ret_link = link;
	return 0;
}

int ring_link_make(uint32_t bytes, struct ring_link **ret_link, int *ret_fd)
{
	int err, fd = memfd_make("ferrule-link", memory_size(bytes));
	struct ring_link *link = NULL;

	if (fd < 0)
		return fd == -EMFILE || fd == -ENFILE ? -EAGAIN : fd;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		err = -errno;
	else
		err = map(fd, memory_size(bytes), &link);
	if (err) {
		close(fd);
		return err;
	}
	ring_tx_init(&link->tx, to_client(link->memory, bytes), bytes);
	ring_rx_init(&link->rx, link->memory, bytes);
	*ret_link = link;
	*ret_fd = fd;
	return 0;
}

/* Returns the ring size for the size of the memory, `most` at most, or 0 if it is not that of
 * rings. */
static uint32_t ring_bytes(int fd, uint32_t most)
{
	static const uint32_t sizes[] = { RING_BYTES, RING_MEDIUM_BYTES, RING_SMALL_BYTES };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (sizes[i] <= most && in_place_check_memory(fd, memory_size(sizes[i])) == 0)
			return sizes[i];
	return 0;
}

int ring_link_join(int fd, uint32_t most_bytes, struct ring_link **ret_link)
{
	uint32_t bytes = fd < 0 ? 0 : ring_bytes(fd, most_bytes);
	struct ring_link *link = NULL;
	int err;

	/* Without this seal, the peer could hold the file's lock, which fallocate() takes, while it
	 * allocates. */
	if (!bytes || !(fcntl(fd, F_GET_SEALS) & F_SEAL_GROW))
		return -EINVAL;
	err = map(fd, memory_size(bytes), &link);
	if (err)
		return err;
	ring_tx_init(&link->tx, link->memory, bytes);
	ring_rx_init(&link->rx, to_client(link->memory, bytes), bytes);
	*ret_link = link;
	return 0;
}

void ring_link_destroy(struct ring_link *link)
{
	munmap(link->memory, link->size);
	free(link);
}
