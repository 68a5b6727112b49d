/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory of a link's rings. The server makes it and passes its descriptor on with the answer to
 * the hello; the client maps it. It outlives the peer.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "drivers/local/in_place.h"
#include "drivers/local/ring.h"
#include "lib/base/memfd.h"

struct ring_memory {
	struct ring_way to_server, to_client;
};

static size_t memory_size(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (sizeof(struct ring_memory) + page - 1) & ~(page - 1);
}

/*
 * Pages that cannot be had are an error here, and a signal later. Both ends ask for them: one that
 * joins does not know what the other has done. Neither can keep the other from giving pages back
 * (with F_SEAL_WRITE it could not write either); new ones then come when they are touched.
 */
static int map(int fd, struct ring_link **ret_link)
{
	int err = memfd_reserve(fd, memory_size());
	struct ring_link *link = NULL;
	void *memory;

	if (err)
		return err == -EPERM ? -EINVAL : err;
	link = malloc(sizeof(*link));
	if (!link)
		return -ENOMEM;
	/* All of it now: no burst shall wait for a page. */
	memory = mmap(
		NULL, memory_size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (memory == MAP_FAILED) {
		/* EAGAIN: too much is locked, and trying again does not help. */
		err = errno == EAGAIN ? -ENOMEM : errno == EPERM ? -EINVAL : -errno;
		free(link);
		return err;
	}
	link->memory = memory;
	*ret_link = link;
	return 0;
}

int ring_link_make(struct ring_link **ret_link, int *ret_fd)
{
	int err, fd = memfd_make("ferrule-link", memory_size());
	struct ring_link *link = NULL;

	if (fd < 0)
		return fd == -EMFILE || fd == -ENFILE ? -EAGAIN : fd;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		err = -errno;
	else
		err = map(fd, &link);
	if (err) {
		close(fd);
		return err;
	}
	ring_tx_init(&link->tx, &link->memory->to_client);
	ring_rx_init(&link->rx, &link->memory->to_server);
	*ret_link = link;
	*ret_fd = fd;
	return 0;
}

int ring_link_join(int fd, struct ring_link **ret_link)
{
	struct ring_link *link = NULL;
	int err;

	if (fd < 0 || in_place_check_memory(fd, memory_size()))
		return -EINVAL;
	/* Else the peer could hold the file's lock, which fallocate() takes, while it allocates. */
	if (!(fcntl(fd, F_GET_SEALS) & F_SEAL_GROW))
		return -EINVAL;
	err = map(fd, &link);
	if (err)
		return err;
	ring_tx_init(&link->tx, &link->memory->to_server);
	ring_rx_init(&link->rx, &link->memory->to_client);
	*ret_link = link;
	return 0;
}

void ring_link_destroy(struct ring_link *link)
{
	munmap(link->memory, memory_size());
	free(link);
}
