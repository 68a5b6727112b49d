/* SPDX-License-Identifier: BSD-3-Clause */
/* The host: memory, permissions, drivers. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/ctl/doctor.h"

enum {
	NAMES = 16,
	MEMLOCK_WANTED = 256 << 20, /* twice what EAL uses by default */
	PORT_HUGE_MIB = 32,         /* packet buffers for a path MTU of 4096 take half of it */
	NOFILE_WANTED = 4096,
	CAP_NET_ADMIN_BIT = 12,
	CAP_NET_RAW_BIT = 13,
	ROOM_WANTED = 1 << 20, /* of a packet socket; the kernel doubles it */
};

static bool has_driver(const struct doctor *doctor, const char *driver)
{
	size_t i;

	for (i = 0; i < doctor->n_ports; i++) {
		if (strcmp(doctor->ports[i].driver, driver) == 0)
			return true;
	}
	return false;
}

/* ---- memory */

/* Ports that use physical addresses (IOVA as PA) need huge pages for their packet buffers. */
static void check_hugepages_of_ports(struct doctor *doctor, unsigned n_ports, long long free_mib)
{
	const char *ports = n_ports == 1 ? "port that uses" : "ports that use";
	long long wanted = (long long)n_ports * PORT_HUGE_MIB;

	if (free_mib < wanted)
		doctor_say(doctor, DOCTOR_FAIL, "hugepages", "sysctl vm.nr_hugepages=128, or more",
			"%lld MiB are free, %lld are needed for %u %s physical addresses", free_mib,
			wanted, n_ports, ports);
	else
		doctor_say(doctor, DOCTOR_OK, "hugepages", NULL,
			"%lld MiB are free for %u %s physical addresses", free_mib, n_ports, ports);
}

void doctor_hugepages(struct doctor *doctor)
{
	unsigned n_ports = doctor_physical_ports(doctor);
	char names[NAMES][DOCTOR_NAME];
	long long free_kib = 0;
	size_t count, i;
	bool any = false;

	count = root_list(doctor, "/sys/kernel/mm/hugepages", "hugepages-", names, NAMES);
	for (i = 0; i < count; i++) {
		const char *size = names[i] + strlen("hugepages-");
		long long total = 0, left = 0;

		if (!root_number(
			    doctor, &total, "/sys/kernel/mm/hugepages/%s/nr_hugepages", names[i]) ||
			!root_number(doctor, &left, "/sys/kernel/mm/hugepages/%s/free_hugepages",
				names[i]) ||
			total == 0)
			continue;
		any = true;
		free_kib += left * strtoll(size, NULL, 10);
		doctor_say(doctor, left ? DOCTOR_OK : DOCTOR_WARN, "hugepages",
			left ? NULL : "reserve more: sysctl vm.nr_hugepages=N",
			"%lld of %lld pages of %s are free", left, total, size);
	}
	if (n_ports)
		check_hugepages_of_ports(doctor, n_ports, free_kib >> 10);
	else if (!any)
		doctor_say(doctor, DOCTOR_OK, "hugepages", NULL,
			"none are reserved, and none are needed unless FRL_EAL_ARGS requests them");
}

/* Returns the value of a line such as "Max open files 1024 4096 files" of /proc/PID/limits.
 * UINT64_MAX: unlimited. */
static bool limit_of(const char *limits, const char *name, bool hard, uint64_t *ret)
{
	const char *line = strstr(limits, name);
	char soft_text[32], hard_text[32];
	const char *text;

	if (!line || sscanf(line + strlen(name), "%31s %31s", soft_text, hard_text) != 2)
		return false;
	text = hard ? hard_text : soft_text;
	if (strcmp(text, "unlimited") == 0) {
		*ret = UINT64_MAX;
		return true;
	}
	*ret = strtoull(text, NULL, 10);
	return isdigit((unsigned char)text[0]);
}

static void say_memlock(struct doctor *doctor, uint64_t bytes)
{
	if (bytes == UINT64_MAX)
		doctor_say(doctor, DOCTOR_OK, "memlock", NULL, "no limit on locked memory");
	else if (bytes >= MEMLOCK_WANTED)
		doctor_say(doctor, DOCTOR_OK, "memlock", NULL, "%" PRIu64 " MiB may be locked",
			bytes >> 20);
	else if (has_driver(doctor, "pci"))
		doctor_say(doctor, DOCTOR_FAIL, "memlock",
			"raise `memlock` in /etc/security/limits.d, or LimitMEMLOCK= of the "
			"service",
			"only %" PRIu64 " KiB may be locked: devices that DPDK drives through VFIO "
			"need their buffers locked",
			bytes >> 10);
	else
		doctor_say(doctor, DOCTOR_OK, "memlock", NULL,
			"%" PRIu64 " KiB may be locked: enough, since no fabric has a PCI device",
			bytes >> 10);
}

void doctor_limits(struct doctor *doctor)
{
	char limits[4096];
	uint64_t value;

	if (!root_text(doctor, limits, sizeof(limits), "/proc/self/limits")) {
		doctor_say(doctor, DOCTOR_SKIP, "limits", NULL, "/proc/self/limits is not there");
		return;
	}
	if (limit_of(limits, "Max locked memory", false, &value))
		say_memlock(doctor, value);
	if (!limit_of(limits, "Max open files", true, &value))
		return;
	if (value >= NOFILE_WANTED)
		doctor_say(doctor, DOCTOR_OK, "nofile", NULL,
			"a process may have %s%" PRIu64 " files open",
			value == UINT64_MAX ? "more than " : "",
			value == UINT64_MAX ? UINT64_C(1) << 20 : value);
	else
		doctor_say(doctor, DOCTOR_WARN, "nofile",
			"raise `nofile` in /etc/security/limits.d, or LimitNOFILE= of the service",
			"only %" PRIu64
			" files may be open: each connection on this machine takes some",
			value);
}

/* ---- devices */

/* Reads the capabilities of a process, by its directory in /proc. Returns false if that fails. */
static bool capabilities_of(const struct doctor *doctor, const char *process, uint64_t *ret)
{
	char status[4096];
	const char *line = root_text(doctor, status, sizeof(status), "/proc/%s/status", process)
		? strstr(status, "CapEff:")
		: NULL;

	if (line)
		*ret = strtoull(line + strlen("CapEff:"), NULL, 16);
	return line;
}

static bool has_capability(uint64_t set, unsigned bit)
{
	return set >> bit & 1;
}

/* DPDK sets the MAC address of the interface when it starts the port. */
static void check_af_packet(struct doctor *doctor, uint64_t own)
{
	if (has_capability(own, CAP_NET_RAW_BIT) && has_capability(own, CAP_NET_ADMIN_BIT))
		doctor_say(doctor, DOCTOR_OK, "packet sockets", NULL,
			"this user has CAP_NET_RAW and CAP_NET_ADMIN, which net_af_packet needs");
	else
		doctor_say(doctor, DOCTOR_WARN, "packet sockets",
			"use packet:INTERFACE in the fabric's ports, or "
			"AmbientCapabilities=CAP_NET_RAW CAP_NET_ADMIN of the program's service",
			"this user lacks CAP_NET_RAW or CAP_NET_ADMIN: its programs cannot open "
			"ports of net_af_packet");
}

static void check_room(struct doctor *doctor)
{
	long long room = 0;

	if (!root_number(doctor, &room, "/proc/sys/net/core/rmem_max") || room >= ROOM_WANTED)
		return;
	doctor_say(doctor, DOCTOR_WARN, "packet sockets",
		"sysctl net.core.rmem_max=8388608, and a file in /etc/sysctl.d",
		"net.core.rmem_max is %lld: sockets of leases have no room for a window, and lose "
		"frames",
		room);
}

static void check_packet(struct doctor *doctor, uint64_t own)
{
	char process[16];
	uint64_t daemons = 0;

	snprintf(process, sizeof(process), "%u", doctor->daemon_pid);
	if (doctor->daemon_pid && capabilities_of(doctor, process, &daemons) &&
		has_capability(daemons, CAP_NET_RAW_BIT))
		doctor_say(doctor, DOCTOR_OK, "packet sockets", NULL,
			"ferruled opens them: programs need no capability");
	else if (has_capability(own, CAP_NET_RAW_BIT))
		doctor_say(doctor, DOCTOR_OK, "packet sockets", NULL,
			"this user has CAP_NET_RAW, which packet sockets need");
	else
		doctor_say(doctor, DOCTOR_WARN, "packet sockets",
			"start ferruled with CAP_NET_RAW, as its unit does, and a fabric of "
			"packet: ports; or setcap cap_net_raw+ep PROGRAM",
			"neither ferruled nor this user has CAP_NET_RAW: programs cannot open "
			"packet: ports");
	check_room(doctor);
}

void doctor_rights(struct doctor *doctor)
{
	bool packet = has_driver(doctor, "packet"), af_packet = has_driver(doctor, "af_packet");
	uint64_t own;

	if (!af_packet && !packet) {
		doctor_say(doctor, DOCTOR_SKIP, "packet sockets", NULL,
			"no fabric uses packet sockets");
		return;
	}
	if (!capabilities_of(doctor, "self", &own)) {
		doctor_say(doctor, DOCTOR_SKIP, "packet sockets", NULL,
			"/proc/self/status does not show the capabilities");
		return;
	}
	if (af_packet)
		check_af_packet(doctor, own);
	if (packet)
		check_packet(doctor, own);
}

void doctor_infiniband(struct doctor *doctor)
{
	char names[NAMES][DOCTOR_NAME];
	size_t count = root_list(doctor, "/dev/infiniband", "uverbs", names, NAMES), i;

	if (!count) {
		doctor_say(doctor, DOCTOR_SKIP, "infiniband", NULL,
			"/dev/infiniband has no devices: none are needed");
		return;
	}
	for (i = 0; i < count; i++) {
		if (!root_access(doctor, R_OK | W_OK, "/dev/infiniband/%s", names[i])) {
			doctor_say(doctor, DOCTOR_WARN, "infiniband",
				"its udev rule (rdma-core) makes it writable for all",
				"/dev/infiniband/%s cannot be opened by this user", names[i]);
			return;
		}
	}
	doctor_say(doctor, DOCTOR_OK, "infiniband", NULL, "%zu verbs devices can be opened", count);
}

void doctor_runtime_dir(struct doctor *doctor, const char *folder, uint32_t uid)
{
	struct stat info;

	if (!folder || folder[0] != '/')
		doctor_say(doctor, DOCTOR_OK, "runtime folder", NULL,
			"XDG_RUNTIME_DIR is not set: private daemons have their sockets in "
			"/tmp/ferrule-%u",
			uid);
	else if (stat(folder, &info) || !S_ISDIR(info.st_mode))
		doctor_say(doctor, DOCTOR_WARN, "runtime folder",
			"unset XDG_RUNTIME_DIR, or log in through a systemd session",
			"XDG_RUNTIME_DIR is %.200s, which is not a directory", folder);
	else if (info.st_uid != uid || (info.st_mode & 077))
		doctor_say(doctor, DOCTOR_WARN, "runtime folder",
			"it must belong to this user, with mode 0700 (sudo and su keep another "
			"user's)",
			"XDG_RUNTIME_DIR is %.200s: of user %u, mode %03o", folder,
			(unsigned)info.st_uid, (unsigned)info.st_mode & 0777);
	else
		doctor_say(doctor, DOCTOR_OK, "runtime folder", NULL, "%.200s", folder);
}
