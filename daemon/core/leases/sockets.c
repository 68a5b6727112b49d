/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packet sockets of leases. The daemon opens them. A process may keep its descriptor, or pass it
 * on, after the lease has ended, and the daemon cannot revoke it. The socket still receives packets
 * for the addresses of the lease. So these stay reserved until the kernel no longer lists the
 * socket. For the next daemon, leases with sockets are saved as text:
 *
 *	SOCKET UID FABRIC ADDRESSES MAC      "4711 1000 roce 10.1.1.5/24@7 020000000105", MAC or "-"
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/leases/leases.h"

enum {
	MAC_TEXT = 13,
	LINE_TEXT = 32 + CORE_NAME + LEASE_TEXT + MAC_TEXT, /* with both numbers and spaces */
};

bool lease_open_socket(struct core *core, const struct session *session, struct lease *lease,
	bool *ret_has, int *ret_error, char *why, size_t size)
{
	const struct core_socket wanted = {
		.port = lease->devargs,
		.addresses = lease->addresses,
		.n_addresses = lease->n_addresses,
		.vlan = lease->vlan,
		.mac = lease->has_mac ? lease->mac : NULL,
	};
	char reason[CORE_REASON];
	int rc;

	*ret_has = false;
	if (!config_is_packet(lease->devargs))
		return true;
	rc = core->ops.open_socket(
		core->ops.ctx, session->id, &wanted, &lease->socket, reason, sizeof(reason));
	*ret_has = rc == 0;
	if (rc == 0)
		leases_save(core);
	if (rc == -EPERM && !core->warned_no_socket) {
		core->warned_no_socket = true;
		core_say(core, CORE_LOG_WARNING,
			"programs need CAP_NET_RAW for packet sockets of fabric %s, since %s: "
			"restart ferruled with that capability",
			lease->fabric, reason);
	}
	if (rc == 0 || rc == -EPERM)
		return true;
	*ret_error = -rc;
	snprintf(why, size, "%s", reason);
	return false;
}

bool lease_socket_is_open(struct core *core, struct lease *lease)
{
	char ip[LEASE_TEXT];

	if (!lease->socket || !core->ops.has_socket(core->ops.ctx, lease->socket))
		return false;
	if (!lease->waits_for_socket) {
		lease_print_ip(lease, ip);
		core_say(core, CORE_LOG_WARNING,
			"a process of user %u still has the socket of an ended lease: %s of fabric "
			"%s stay reserved until it is closed",
			lease->uid, ip, lease->fabric);
	}
	lease->waits_for_socket = true;
	return true;
}

static bool is_claim(const struct lease *lease, const char *fabric, const Ctl__Lease *wanted)
{
	char ip[LEASE_TEXT];

	if (!wanted || strcmp(lease->fabric, fabric) != 0)
		return false;
	lease_print_ip(lease, ip);
	return strcmp(ip, wanted->ip) == 0;
}

/* Counted from the end of the lease, not after hold_ms. Otherwise a user who closes ports and keeps
 * their sockets could have any number of them. */
uint32_t leases_with_sockets(
	const struct core *core, uid_t uid, const char *fabric, const Ctl__Lease *wanted)
{
	uint32_t n = 0;

	LIST_EACH(const struct lease, lease, &core->leases, node) {
		n += !lease->port && lease->uid == uid && lease->socket &&
			!is_claim(lease, fabric, wanted) &&
			core->ops.has_socket(core->ops.ctx, lease->socket);
	}
	return n;
}

/* ---- leases saved as text */

static void print_mac(const struct lease *lease, char text[MAC_TEXT])
{
	snprintf(text, MAC_TEXT, "-");
	for (size_t i = 0; lease->has_mac && i < sizeof(lease->mac); i++)
		snprintf(text + 2 * i, 3, "%02x", lease->mac[i]);
}

void leases_save(struct core *core)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return;
	LIST_EACH(const struct lease, lease, &core->leases, node) {
		char ip[LEASE_TEXT], mac[MAC_TEXT];

		if (!lease->socket ||
			(!lease->port && !core->ops.has_socket(core->ops.ctx, lease->socket)))
			continue;
		lease_print_ip(lease, ip);
		print_mac(lease, mac);
		fprintf(out, "%" PRIu64 " %u %s %s %s\n", lease->socket, lease->uid, lease->fabric,
			ip, mac);
	}
	if (fclose(out) == 0)
		core->ops.save(core->ops.ctx, text);
	free(text);
}

void core_save(struct core *core)
{
	leases_save(core);
}

static bool read_mac(const char *text, struct lease *lease)
{
	unsigned byte;

	lease->has_mac = strcmp(text, "-") != 0;
	for (size_t i = 0; lease->has_mac && i < sizeof(lease->mac); i++) {
		if (sscanf(text + 2 * i, "%2x", &byte) != 1)
			return false;
		lease->mac[i] = (uint8_t)byte;
	}
	return !lease->has_mac || strlen(text) == 2 * sizeof(lease->mac);
}

static bool read_line(const char *line, struct lease *lease)
{
	char ip[LEASE_TEXT], mac[MAC_TEXT];

	return sscanf(line, "%" SCNu64 " %u %63s %255s %12s", &lease->socket, &lease->uid,
		       lease->fabric, ip, mac) == 5 &&
		lease->socket && lease_read_ip(ip, lease) && read_mac(mac, lease);
}

void core_restore(struct core *core, const char *text, uint64_t now_ns)
{
	while (*text) {
		struct lease *lease = calloc(1, sizeof(*lease));
		size_t length = strcspn(text, "\n");
		char line[LINE_TEXT];

		if (!lease)
			return;
		list_init(&lease->node);
		/* sscanf() would continue in the next line. */
		snprintf(line, sizeof(line), "%.*s", (int)length, text);
		if (length < sizeof(line) && read_line(line, lease)) {
			lease->id = core->next_lease++;
			lease->since_ns = now_ns;
			lease->free_ns = now_ns + core->config->hold_ms * UINT64_C(1000000);
			list_add_tail(&core->leases, &lease->node);
		} else {
			free(lease);
		}
		text += length;
		text += *text == '\n';
	}
}
