/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases: devices and addresses of the configuration's fabrics that processes have. The addresses
 * of a lease that has ended rest: they stay reserved for hold_ms, so that late packets of the old
 * process reach no other process. One thread, like core.h.
 */
#ifndef FERRULE_DAEMON_CORE_LEASES_LEASES_H
#define FERRULE_DAEMON_CORE_LEASES_LEASES_H

#include "daemon/core/internal.h"

/* An address of a pool that is leased, or that rests after its lease has ended. */
struct lease {
	uint64_t id;
	struct list node;  /* core.leases */
	struct port *port; /* NULL: rests */
	uint64_t free_ns;  /* when hold_ms has passed */
	char fabric[CORE_NAME];
	char *devargs; /* NULL: rests; the device may have another lease */
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
	bool is_shared;        /* other leases may have the device too */
	uint64_t socket;       /* identifies its packet socket for core_ops.has_socket(); 0: none */
	bool waits_for_socket; /* rests because its socket is still open, and this was logged */
};

/* ---- leases.c */

/* Leases a device of this fabric to a process of the session's user. `wanted`: the lease that it
 * had, or NULL. Fails with NULL, a positive errno and a sentence; EAGAIN: free after hold_ms. */
struct lease *lease_new(struct core *core, const struct session *session,
	const struct config_fabric *fabric, const Ctl__Lease *wanted, uint64_t now_ns,
	int *ret_error, char *why, size_t size);
/* Takes back a lease that was not passed to a process. */
void lease_drop(struct core *core, struct lease *lease);
/* Returns the time until a resting lease of the fabric is free; 0 if none rests. Leases whose
 * sockets are still open do not count, since their end is unknown. */
uint32_t lease_rest_ms(const struct core *core, const char *fabric, uint64_t now_ns);
/* Ends a lease: its addresses rest. */
void lease_end(struct core *core, struct lease *lease, uint64_t now_ns);
/* Frees leases that have rested for hold_ms. Returns the next deadline. */
uint64_t leases_tick(struct core *core, uint64_t now_ns);
void leases_destroy(struct core *core);
const struct config_fabric *fabric_find(const struct core *core, const char *name);
bool may_use_fabric(
	const struct core *core, const struct session *session, const struct config_fabric *fabric);
/* Prints "10.1.1.5/24@7,fd00::5/64@7", as in struct frl_device_config; `out` has LEASE_TEXT
 * bytes. */
void lease_print_ip(const struct lease *lease, char *out);

/* Parses "10.1.1.5/24@7,fd00::5/64@7" into addresses, prefix lengths and the VLAN of all. Returns
 * false if the text is not of this form. */
bool lease_read_ip(const char *text, struct lease *lease);

/* ---- sockets.c */

/* Opens the packet socket of a new lease, if its device has one. *ret_has: the descriptor is passed
 * with the next message to the session. Returns false with a positive errno and a sentence if the
 * lease is useless. */
bool lease_open_socket(struct core *core, const struct session *session, struct lease *lease,
	bool *ret_has, int *ret_error, char *why, size_t size);
/* Returns true while the socket of a lease that has rested for hold_ms is still open. */
bool lease_socket_is_open(struct core *core, struct lease *lease);
/* Saves the leases with sockets: one is new, or has ended. */
void leases_save(struct core *core);
/* Returns how many leases of a user have ended while their sockets are still open. The lease that
 * continues as `wanted` on this fabric does not count; NULL: none continues. */
uint32_t leases_with_sockets(
	const struct core *core, uid_t uid, const char *fabric, const Ctl__Lease *wanted);

/* ---- addresses.c */

struct frl_ip range_at(const struct config_range *range, uint64_t index);
bool in_range(const struct config_range *range, const struct frl_ip *ip);
void pool_mac(const struct config_fabric *fabric, uint64_t index, uint8_t mac[6]);
bool pool_has_mac(const struct config_fabric *fabric, const uint8_t mac[6]);

#endif
