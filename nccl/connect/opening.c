/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/connect/opening.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "nccl/connect/daemon_address.h"
#include "nccl/log.h"
#include "nccl/thread.h"

enum { KNOWN = 64, WHY = 400 };

/* Hosts found so far ("": this host), by the address of their daemon. A daemon's host does not
 * change. */
static struct {
	pthread_mutex_t lock;
	unsigned n; /* hosts ever added; the newest KNOWN are in the list */
	struct {
		char address[FRL_PLACE_SIZE];
		char host[FRL_HOST_MAX + 1];
	} list[KNOWN];
} known = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool look_up(const char *address, char *host)
{
	bool is_known = false;

	pthread_mutex_lock(&known.lock);
	for (unsigned i = 0; i < known.n && i < KNOWN && !is_known; i++) {
		is_known = strcmp(known.list[i].address, address) == 0;
		if (is_known)
			memcpy(host, known.list[i].host, sizeof(known.list[i].host));
	}
	pthread_mutex_unlock(&known.lock);
	return is_known;
}

static int find_host(const char *address, char *host)
{
	char own[FRL_PLACE_SIZE], why[WHY];
	int err = net_daemon_address(true, own, why, sizeof(why));

	host[0] = '\0';
	if (!err && strcmp(own, address) != 0) {
		err = frl_host_of_place(address, host);
		if (err)
			snprintf(why, sizeof(why), "%s", frl_last_error());
	}
	if (err) {
		net_log_warning("cannot connect: %s", why);
		return err;
	}
	pthread_mutex_lock(&known.lock);
	memcpy(known.list[known.n % KNOWN].address, address, FRL_PLACE_SIZE);
	memcpy(known.list[known.n % KNOWN].host, host, FRL_HOST_MAX + 1);
	known.n++;
	pthread_mutex_unlock(&known.lock);
	return 0;
}

static void *open_all(void *arg)
{
	struct opening *opening = arg;
	int err = 0;

	if (!opening->holds_device) {
		err = net_device_acquire(opening->device);
		opening->holds_device = !err;
	}
	if (!err && *opening->address && !look_up(opening->address, opening->host))
		err = find_host(opening->address, opening->host);
	if (!err && opening->then)
		err = opening->then(opening->arg);
	/* The system's -EAGAIN (no thread) would mean "not yet" here. */
	opening->err = err == -EAGAIN ? -ENOMEM : err;
	atomic_store(&opening->is_done, true);
	return NULL;
}

void net_opening_start(struct opening *opening)
{
	char host[FRL_HOST_MAX + 1];
	bool is_slow;

	opening->has_thread = false;
	atomic_init(&opening->is_done, false);
	opening->holds_device = net_device_acquire_open(opening->device);
	is_slow = !opening->holds_device || (*opening->address && !look_up(opening->address, host));
	if (is_slow && !net_devices_are_refused())
		opening->has_thread = net_thread_start(open_all, opening, &opening->thread) == 0;
	/* Run the opening in this thread: no slow step is left, or no thread can be created. */
	if (!opening->has_thread)
		open_all(opening);
}

int net_opening_test(struct opening *opening)
{
	return atomic_load(&opening->is_done) ? opening->err : -EAGAIN;
}

void net_opening_wait(struct opening *opening)
{
	if (opening->has_thread)
		pthread_join(opening->thread, NULL);
	opening->has_thread = false;
}

void net_opening_end(struct opening *opening)
{
	net_opening_wait(opening);
	if (opening->holds_device)
		net_device_release(opening->device);
	opening->holds_device = false;
}
