/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases: devices and addresses of the configuration's fabrics that processes have. Addresses of a
 * lease that has ended rest, so that packets of its process reach no other one. One thread, as
 * core.h.
 */
#ifndef FERRULE_DAEMON_CORE_LEASES_H
#define FERRULE_DAEMON_CORE_LEASES_H

#include "daemon/core/internal.h"

/* An address of a pool that is leased, or rests after its lease has ended. */
struct lease {
	uint64_t id;
	struct list node;  /* core.leases */
	struct port *port; /* NULL: rests */
	uint64_t free_ns;  /* when it has rested enough */
	char fabric[CORE_NAME];
	char *devargs; /* NULL: rests, the device can be leased already */
	struct frl_ip addresses[LEASE_ADDRESSES];
	uint32_t n_addresses;
	bool has_mac;
	uint8_t mac[6];
	uint8_t prefix_len[LEASE_ADDRESSES];
	uint16_t vlan;
	char gateway[96];
	uint32_t path_mtu;
	uint32_t uid;
	uint32_t qpn_first, qpn_count;
	uint64_t since_ns;
	bool is_shared;  /* others may have the device, too */
	uint64_t socket; /* its packet socket, as core_ops.has_socket() knows it; 0: none */
	bool is_kept;    /* rests because somebody has the socket still, and that has been said */
};

/* ---- leases.c */

/* A lease on a fabric of the configuration for a process of the session's user; `wanted`: the one
 * that it had, or NULL. NULL with errno, positive, and a sentence; EAGAIN: what is needed rests. */
struct lease *lease_new(struct core *core, const struct session *session,
	const struct config_fabric *fabric, const Ctl__Lease *wanted, uint64_t now_ns,
	int *ret_error, char *why, size_t size);
/* Takes back a lease that no process got. */
void lease_drop(struct core *core, struct lease *lease);
/* How long until the next lease of the fabric has rested enough; 0: none rests, except for those
 * whose sockets are kept, for nobody knows how long. */
uint32_t lease_rest_ms(const struct core *core, const char *fabric, uint64_t now_ns);
/* Ends a lease: its addresses rest. */
void lease_end(struct core *core, struct lease *lease, uint64_t now_ns);
/* Forgets those that have rested enough; the next deadline. */
uint64_t leases_tick(struct core *core, uint64_t now_ns);
void leases_destroy(struct core *core);
const struct config_fabric *fabric_find(const struct core *core, const char *name);
bool may_use_fabric(
	const struct core *core, const struct session *session, const struct config_fabric *fabric);
/* "10.1.1.5/24@7,fd00::5/64@7", as in struct frl_device_config; `out` has LEASE_TEXT bytes. */
void lease_print_ip(const struct lease *lease, char *out);

/* "10.1.1.5/24@7,fd00::5/64@7" into addresses, prefix lengths and the VLAN of all; false: it is
 * none of that. */
bool lease_read_ip(const char *text, struct lease *lease);

/* ---- lease_sockets.c */

/* Opens the packet socket of a new lease, if its device has one; *ret_has: it goes with the next
 * message to the session. False, with errno, positive, and a sentence: the lease is of no use. */
bool lease_open_socket(struct core *core, const struct session *session, struct lease *lease,
	bool *ret_has, int *ret_error, char *why, size_t size);
/* The lease has rested enough, but for its socket: true as long as that is there. */
bool lease_is_kept(struct core *core, struct lease *lease);
/* A lease with a socket is new, or has gone. */
void leases_keep(struct core *core);
/* How many leases of a user have ended while a process still has their sockets, without the one of
 * the fabric that goes on as `wanted`, or NULL. */
uint32_t leases_kept(
	const struct core *core, uid_t uid, const char *fabric, const Ctl__Lease *wanted);

/* ---- addresses.c */

struct frl_ip range_at(const struct config_range *range, uint64_t index);
bool in_range(const struct config_range *range, const struct frl_ip *ip);
void pool_mac(const struct config_fabric *fabric, uint64_t index, uint8_t mac[6]);
bool pool_has_mac(const struct config_fabric *fabric, const uint8_t mac[6]);

#endif
