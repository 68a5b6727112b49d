/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multicast on the local fabric, which has no switch. A device that uses a group binds the abstract
 * name "ferrule-groups/<address>", and makes links to all devices that have bound theirs. Each does
 * so before it searches, so the later one of two devices finds the earlier one. The engine sends to
 * all links, and receivers drop packets of groups that they have not joined.
 *
 * Processes of other users, and ones that just end, are skipped. A process that is stopped is not
 * waited for again; its link is made when it continues.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/local/local.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/limit.h"
#include "lib/base/net/ip.h"
#include "lib/device/soft.h"

/* The kernel shows a NUL of an abstract name as '@'. */
static const char shown_prefix[] = " @ferrule-groups/";

/* The sockets of the thread's network namespace, one a line, with their names at the end. */
static const char sockets_path[] = "/proc/thread-self/net/unix";

/* Devices to which links are being made. */
struct meeting {
	struct frl_ip *ips;
	size_t n, room;
	size_t at; /* the next one to look at */
};

enum {
	MEET_AT_ONCE = 32, /* devices, in one hold of the guard */
	FIRST_ROOM = 64,
};

/* Guard held. */
static void bind_name(struct soft_device *device)
{
	char name[64];
	int fd;

	if (device->groups_fd >= 0)
		return;
	snprintf(name, sizeof(name), "ferrule-groups/%s", format_ip(&device->base.attr.ip));
	fd = fabric_claim_name(name);
	if (fd >= 0)
		device->groups_fd = fd;
	else if (fd != -EADDRINUSE) /* by another process: the name is there */
		frl_log(FRL_LOG_WARNING, "later senders of multicast will not find this device: %s",
			frl_last_error());
}

/* Any process can choose names. */
static bool parse_name(char *line, struct frl_ip *ret_ip)
{
	const char *name = strstr(line, shown_prefix);
	uint8_t v4[4];

	line[strcspn(line, "\n")] = '\0';
	if (!name || inet_pton(AF_INET, name + strlen(shown_prefix), v4) != 1)
		return false;
	*ret_ip = ip_from_v4(v4);
	return local_is_address(ret_ip);
}

static int add_device(struct meeting *meeting, const struct frl_ip *ip)
{
	size_t room = meeting->room ? 2 * meeting->room : FIRST_ROOM;
	struct frl_ip *ips;

	if (meeting->n == meeting->room) {
		ips = realloc(meeting->ips, room * sizeof(*ips));
		if (!ips)
			return -ENOMEM;
		meeting->ips = ips;
		meeting->room = room;
	}
	meeting->ips[meeting->n++] = *ip;
	return 0;
}

static int find_devices(const struct soft_device *device, struct meeting *meeting)
{
	FILE *sockets = fopen(sockets_path, "re");
	char *line = NULL;
	size_t size = 0;
	struct frl_ip ip;
	int rc = 0;

	if (!sockets)
		return -errno;
	while (!rc && getline(&line, &size, sockets) > 0)
		if (parse_name(line, &ip) && !ip_equal(&ip, &device->base.attr.ip))
			rc = add_device(meeting, &ip);
	free(line);
	fclose(sockets);
	return rc;
}

/* Returns true if there is nothing more to wait for. */
static bool has_met(struct soft_device *device, const struct frl_ip *ip)
{
	const struct soft_link *link;
	int rc = fabric_find_device(device, ip, &link);

	if (rc == -EAGAIN)
		return fabric_is_silent(device, ip);
	/* Others are of another user, or have just ended. */
	if (rc && rc != -EACCES && rc != -EHOSTUNREACH)
		frl_log(FRL_LOG_WARNING, "multicast misses a device: %s", frl_last_error());
	return true;
}

/* Looks at some of the devices. -EAGAIN: not all links are there. */
static int meet_some(struct frl_device *base, void *arg)
{
	struct meeting *meeting = arg;

	for (unsigned i = 0; i < MEET_AT_ONCE && meeting->n; i++) {
		if (meeting->at >= meeting->n)
			meeting->at = 0;
		if (has_met(soft_device(base), &meeting->ips[meeting->at]))
			meeting->ips[meeting->at] = meeting->ips[--meeting->n];
		else
			meeting->at++;
	}
	return meeting->n ? -EAGAIN : 0;
}

static void meet(struct soft_device *device, struct meeting *meeting)
{
	struct wait_limit limit = { .limit_ns = limit_after_ms(clock_now_ns(), FABRIC_MEET_MS) };

	if (device_wait(&device->base, meet_some, meeting, &limit) != -ETIMEDOUT)
		return;
	device_enter(&device->base);
	for (size_t i = 0; i < meeting->n; i++)
		fabric_set_silent(device, &meeting->ips[i]);
	device_leave(&device->base);
}

void fabric_meet(struct soft_device *device)
{
	struct meeting meeting = { .ips = NULL };
	char error[ERROR_TEXT_MAX];
	int rc;

	error_save(error);
	device_enter(&device->base);
	bind_name(device);
	device_leave(&device->base);
	rc = find_devices(device, &meeting);
	if (rc)
		frl_log(FRL_LOG_WARNING, "multicast may miss devices: cannot read %s: %s",
			sockets_path, frl_strerror(rc));
	if (meeting.n)
		meet(device, &meeting);
	free(meeting.ips);
	error_restore(error);
}
