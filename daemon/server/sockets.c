/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/server/sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/server/log.h"
#include "daemon/server/privileges.h"
#include "drivers/packet/socket.h"
#include "lib/base/clock.h"
#include "lib/base/net/gids.h"

enum {
	PATH_SIZE = sizeof(((struct sockaddr_un *)0)->sun_path) + 16,
	KEPT_MAX = 1 << 22,
};

#define LIST_AGE_NS UINT64_C(20000000)

struct sockets {
	char path[PATH_SIZE], new_path[PATH_SIZE + 4];
	/* A recent copy of /proc/net/packet. */
	uint64_t *ids;
	size_t n_ids, room;
	uint64_t read_ns; /* 0: not read since a socket was opened */
	bool warned_unlisted, warned_unsaved;
};

struct sockets *sockets_create(const char *path)
{
	struct sockets *sockets = calloc(1, sizeof(*sockets));

	if (!sockets)
		return NULL;
	snprintf(sockets->path, sizeof(sockets->path), "%s.sockets", path);
	snprintf(sockets->new_path, sizeof(sockets->new_path), "%s.new", sockets->path);
	return sockets;
}

void sockets_destroy(struct sockets *sockets)
{
	if (!sockets)
		return;
	free(sockets->ids);
	free(sockets);
}

int sockets_open(struct sockets *sockets, const struct core_socket *wanted, uint64_t *ret_id,
	char *why, size_t size)
{
	struct gid_table gids = { .n = 1 };
	const struct packet_lease lease = {
		.port = wanted->port,
		.gids = &gids,
		.mac = wanted->mac,
	};

	if (!privileges_have_raw()) {
		snprintf(why, size, "ferruled lacks CAP_NET_RAW");
		return -EPERM;
	}
	for (uint32_t i = 0; i < wanted->n_addresses && gids.n < FRL_MAX_GIDS; i++)
		gids.gids[gids.n++] = (struct frl_gid){ .ip = wanted->addresses[i],
			.vlan = wanted->vlan };
	sockets->read_ns = 0;
	return packet_lease_socket(&lease, ret_id, why, size);
}

/* ---- the kernel's list */

static bool add_id(struct sockets *sockets, uint64_t id)
{
	if (sockets->n_ids == sockets->room) {
		size_t room = sockets->room ? 2 * sockets->room : 64;
		uint64_t *ids = realloc(sockets->ids, room * sizeof(*ids));

		if (!ids)
			return false;
		sockets->ids = ids;
		sockets->room = room;
	}
	sockets->ids[sockets->n_ids++] = id;
	return true;
}

/* The inode number ends each line but the first. */
static bool read_list(struct sockets *sockets)
{
	FILE *file = fopen("/proc/self/net/packet", "re");
	bool all = file != NULL;
	char line[256];

	sockets->n_ids = 0;
	while (all && fgets(line, sizeof(line), file)) {
		unsigned long long id;

		if (sscanf(line, "%*s %*s %*s %*s %*s %*s %*s %*s %llu", &id) == 1)
			all = add_id(sockets, id);
	}
	all = all && !ferror(file);
	if (file)
		fclose(file);
	return all;
}

/* If the list cannot be read, the socket is assumed to be open. */
bool sockets_has(struct sockets *sockets, uint64_t id)
{
	uint64_t now_ns = clock_now_ns();

	if (!sockets->read_ns || now_ns - sockets->read_ns > LIST_AGE_NS) {
		sockets->read_ns = 0;
		if (!read_list(sockets)) {
			if (!sockets->warned_unlisted)
				log_line(CORE_LOG_WARNING,
					"cannot read /proc/self/net/packet: addresses of leases "
					"with sockets stay reserved");
			sockets->warned_unlisted = true;
			return true;
		}
		sockets->read_ns = now_ns;
	}
	for (size_t i = 0; i < sockets->n_ids; i++)
		if (sockets->ids[i] == id)
			return true;
	return false;
}

/* ---- the saved text */

/* Refuses anything but a regular file: a FIFO of that name would block the daemon. Returns -1 with
 * errno. */
static int open_file(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	struct stat status;

	if (fd < 0 || (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)))
		return fd;
	close(fd);
	errno = EINVAL;
	return -1;
}

/* Returns false with errno. */
static bool write_file(const char *path, const char *text)
{
	size_t length = strlen(text);
	int fd = open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
	ssize_t written = fd >= 0 ? write(fd, text, length) : -1;
	int error = written >= 0 && (size_t)written < length ? ENOSPC : errno;

	if (fd >= 0 && close(fd) < 0 && (size_t)written == length) {
		error = errno;
		written = -1;
	}
	if (written == (ssize_t)length)
		return true;
	if (fd >= 0)
		unlink(path);
	errno = error;
	return false;
}

static bool replace_file(const struct sockets *sockets, const char *text)
{
	return write_file(sockets->new_path, text) && rename(sockets->new_path, sockets->path) == 0;
}

void sockets_save(struct sockets *sockets, const char *text)
{
	bool done = *text ? replace_file(sockets, text) : !unlink(sockets->path) || errno == ENOENT;

	/* Truncate it if this user may not remove files there. */
	if (!done && !*text)
		done = truncate(sockets->path, 0) == 0;
	if (!done && !sockets->warned_unsaved)
		log_line(CORE_LOG_WARNING,
			"cannot write %s (%s): after a crash, addresses may be leased again while "
			"their sockets are still open",
			sockets->path, strerror(errno));
	sockets->warned_unsaved |= !done;
}

char *sockets_saved(const struct sockets *sockets)
{
	int fd = open_file(sockets->path, O_RDONLY);
	char *text = fd >= 0 ? calloc(1, KEPT_MAX) : NULL;
	ssize_t got = text ? read(fd, text, KEPT_MAX - 1) : -1;

	if (fd >= 0)
		close(fd);
	if (got > 0)
		return text;
	free(text);
	return NULL;
}
