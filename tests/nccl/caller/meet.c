/* SPDX-License-Identifier: BSD-3-Clause */
/* The sides of a row on two machines; see runner.h. */
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/nccl/caller/runner.h"

/* The other side's machine may be slow and end its last row later. */
enum { PATIENCE_S = 60, AGAIN_US = 50000 };

/* The row that a side is about to run. */
struct greeting {
	char row[32];
	int version;
};

static struct addrinfo *resolve(const char *place, bool listens)
{
	const struct addrinfo hints = { .ai_flags = listens ? AI_PASSIVE : 0,
		.ai_socktype = SOCK_STREAM };
	const char *colon = strrchr(place, ':');
	struct addrinfo *found;
	char host[256];

	if (!colon)
		return NULL;
	snprintf(host, sizeof(host), "%.*s", (int)(colon - place), place);
	if (getaddrinfo(*host ? host : NULL, colon + 1, &hints, &found))
		return NULL;
	return found;
}

static int open_socket(const struct addrinfo *at, bool listens)
{
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	int rc = -1;

	if (fd < 0)
		return -1;
	if (listens) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (bind(fd, at->ai_addr, at->ai_addrlen) == 0)
			rc = listen(fd, 8);
	} else {
		rc = connect(fd, at->ai_addr, at->ai_addrlen);
	}
	if (rc == 0)
		return fd;
	close(fd);
	return -1;
}

static int open_place(const char *place, bool listens)
{
	struct addrinfo *at = resolve(place, listens);
	int fd = at ? open_socket(at, listens) : -1;

	if (at)
		freeaddrinfo(at);
	return fd;
}

bool meet_prepare(struct setup *setup)
{
	/* The receiver's side listens. */
	if (setup->own_side == 1)
		setup->meeting = open_place(setup->meet, true);
	return setup->own_side != 1 || setup->meeting >= 0;
}

static int reach(const struct setup *setup)
{
	uint64_t until_ns = now_ns() + PATIENCE_S * 1000000000ull;
	int fd;

	if (setup->own_side == 1)
		return accept4(setup->meeting, NULL, NULL, SOCK_CLOEXEC);
	while ((fd = open_place(setup->meet, false)) < 0 && now_ns() < until_ns)
		usleep(AGAIN_US);
	return fd;
}

/* Sets a limit of PATIENCE_S for accept() and recv() on `fd`, or 0: none. */
static void limit(int fd, int seconds)
{
	const struct timeval wait = { .tv_sec = seconds };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
}

static bool greet(int fd, const struct greeting *own)
{
	struct greeting theirs;

	if (send(fd, own, sizeof(*own), MSG_NOSIGNAL) != sizeof(*own) ||
		recv(fd, &theirs, sizeof(theirs), MSG_WAITALL) != sizeof(theirs)) {
		snprintf(report->text, sizeof(report->text), "the other side says nothing: %s",
			strerror(errno));
		return false;
	}
	if (memcmp(own, &theirs, sizeof(theirs)) == 0)
		return true;
	snprintf(report->text, sizeof(report->text), "the other side is at row %.32s, version %d",
		theirs.row, theirs.version);
	return false;
}

int meet_for(const struct setup *setup, const struct row *row)
{
	struct greeting own;
	int one = 1;
	int fd;

	memset(&own, 0, sizeof(own));
	snprintf(own.row, sizeof(own.row), "%s", row->name);
	own.version = setup->version;
	if (setup->own_side == 1)
		limit(setup->meeting, PATIENCE_S);
	fd = reach(setup);
	if (fd < 0) {
		snprintf(report->text, sizeof(report->text), "the other side is not there: %s",
			strerror(errno));
		return -1;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	limit(fd, PATIENCE_S);
	if (!greet(fd, &own)) {
		close(fd);
		return -1;
	}
	limit(fd, 0);
	return fd;
}
