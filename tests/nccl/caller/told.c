/* SPDX-License-Identifier: BSD-3-Clause */
/* A plugin's reports to NCCL, by its log and the profiler's events, and the expected ones. See
 * row.h. */
#include <pthread.h>
#include <regex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/nccl/caller/row.h"

enum { LINE_BYTES = 128 };

static int log_fd = -1;
static bool is_verbose;

/* Lines at level WARN; under the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char warnings[16384];
static size_t n_bytes;

static struct {
	_Atomic unsigned int started, stopped, torn;
	_Atomic uint64_t bytes;
} events[2];

void told_to(const struct setup *setup)
{
	log_fd = setup->log_fd;
	is_verbose = setup->is_verbose;
}

static void remember(const char *text)
{
	pthread_mutex_lock(&lock);
	if (n_bytes + strlen(text) + 2 <= sizeof(warnings))
		n_bytes += (size_t)sprintf(warnings + n_bytes, "%s\n", text);
	pthread_mutex_unlock(&lock);
}

void harness_log(
	int level, unsigned long flags, const char *file, int line, const char *format, ...)
{
	char text[1024];
	va_list arguments;
	int n;

	va_start(arguments, format);
	n = vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (n < 0 || (level > NCCL_LOG_INFO && !is_verbose))
		return;
	if (level == NCCL_LOG_WARN)
		remember(text);
	dprintf(log_fd, "%d %s %s:%d %s\n", getpid(), level == NCCL_LOG_WARN ? "WARN" : "INFO",
		file ? file : "?", line, text);
}

bool harness_has_warned(const char *pattern)
{
	regex_t regex;
	int result;

	REQUIRE(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB | REG_NEWLINE) == 0,
		"\"%s\" is no regular expression", pattern);
	pthread_mutex_lock(&lock);
	result = regexec(&regex, warnings, 0, NULL, 0);
	pthread_mutex_unlock(&lock);
	regfree(&regex);
	return result == 0;
}

const char *expected(const struct side *side, const char *name)
{
	size_t length = strlen(name);

	for (unsigned int i = 0; i < side->setup->n_expected; i++)
		if (strncmp(side->setup->expected[i], name, length) == 0 &&
			side->setup->expected[i][length] == '=')
			return side->setup->expected[i] + length + 1;
	return NULL;
}

/* The bytes of an event. Profilers look at the id first: it gives the kind of the description. */
static uint64_t read_event(int64_t plugin, const void *data)
{
	const struct nccl_socket_event_v1 *socket = data;
	const struct nccl_ib_event_v1 *ib = data;

	REQUIRE(plugin >> 16, "an event of plugin 0x%llx, which is of no network",
		(unsigned long long)plugin);
	if (plugin >> 16 != NCCL_NET_TYPE_IB && plugin >> 16 != NCCL_NET_TYPE_SOCKET)
		return 0;
	REQUIRE((plugin & 0xffff) == 1, "an event's description is of version %u",
		(unsigned int)(plugin & 0xffff));
	REQUIRE(data, "an event has no description");
	REQUIRE(ib->type == 1, "an event is of type %u", ib->type);
	if (plugin >> 16 == NCCL_NET_TYPE_SOCKET)
		return socket->socket.length;
	REQUIRE(ib->qp.qp_num > 0 && ib->qp.device >= 0, "an event of queue pair %d, device %d",
		ib->qp.qp_num, ib->qp.device);
	return ib->qp.length;
}

/* Parents are sides. The result of an event names its side. */
int harness_profiler(void **event, int call, void *parent, int64_t plugin, void *data)
{
	const struct side *side = parent;
	unsigned int index;
	uint64_t bytes;

	if (call == NCCL_PROFILE_START) {
		REQUIRE(parent, "an event was started without a parent");
		bytes = read_event(plugin, data);
		events[side->index].started++;
		events[side->index].bytes += bytes;
		events[side->index].torn += bytes % LINE_BYTES != 0;
		*event = (void *)(uintptr_t)(side->index + 1);
	} else if (call == NCCL_PROFILE_STOP || call == NCCL_PROFILE_UPDATE_AND_STOP) {
		index = (unsigned int)(uintptr_t)*event;
		REQUIRE(index, "an event was stopped that was not started");
		events[index - 1].stopped++;
	}
	return NCCL_SUCCESS;
}

struct events harness_events(const struct side *side)
{
	return (struct events){
		.started = events[side->index].started,
		.stopped = events[side->index].stopped,
		.torn = events[side->index].torn,
		.bytes = events[side->index].bytes,
	};
}
