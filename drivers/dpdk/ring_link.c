/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links over rings of our own. The server makes the memory and passes its descriptor on with the
 * answer to the hello; the client maps it, says so (MAPPED) and is up; the server is when it hears
 * that. Unlike a memif's the memory outlives the peer: nothing has to be saved from it in a hurry,
 * and an end that closes the link just hangs up.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "drivers/dpdk/fabric.h"
#include "drivers/dpdk/in_place.h"
#include "drivers/dpdk/ring.h"
#include "lib/base/memfd.h"

enum { RETRY_NS = 1000 * 1000 };

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

/* ---- the carrier */

static int offer(struct fabric_link *link, struct meet_answer *answer, int *ret_passed)
{
	return ring_link_make(&link->ring, ret_passed);
}

static int take_up(struct fabric_link *link, const struct meet_answer *answer, int passed)
{
	int err = ring_link_join(passed, &link->ring);

	/* This process had no room for the descriptor, or the peer is not one of ours: the next
	 * one may be better. */
	return err == -EINVAL ? -EAGAIN : err;
}

static int step(struct fabric_link *link, struct fabric_pass *pass)
{
	int err;

	if (link->request.server || link->mapped)
		return 0;
	err = in_place_say_mapped(link);
	if (!err) {
		link->mapped = true;
		pass->publish = true;
	} else if (err == -EAGAIN) {
		pass->wake_ns = RTE_MIN(pass->wake_ns, pass->now_ns + RETRY_NS);
		err = 0;
	}
	return err;
}

static bool is_up(const struct fabric_link *link)
{
	return link->mapped;
}

static void show(struct fabric_link *link, struct burst_link *seen)
{
	seen->ring = link->ring;
	seen->wake = link->peer_wake;
	seen->draining = false;
}

/* A peer that writes on and on after it has hung up gets no more than a ring of it through. */
static void drain(struct fabric_link *link, struct burst_link *seen)
{
	seen->draining = true;
	seen->left = RING_BYTES / RING_LINE;
	/* Its owner may be asleep. */
	seen->drained = seen->broken || ring_look(&link->ring->rx, RING_MAX_FRAME) == -EAGAIN;
}

static bool stop(struct fabric_link *link, struct fabric_pass *pass)
{
	if (link->ring)
		ring_link_destroy(link->ring);
	link->ring = NULL;
	link->mapped = false;
	return true;
}

const struct carrier ring_carrier = {
	.name = "ring",
	.offer = offer,
	.take_up = take_up,
	.step = step,
	.is_up = is_up,
	.show = show,
	.drain = drain,
	.stop = stop,
	.outlives_peer = true,
};
