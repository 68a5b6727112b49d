/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses: GIDs, which are IP addresses, and address handles, which say how to reach one. Any
 * thread. IBTA volume 1, 11.2.2 (address handles); Annex A17.4.5 (GIDs of RoCEv2).
 */
#ifndef FERRULE_ADDRESS_H
#define FERRULE_ADDRESS_H

#include <stdint.h>

#include <ferrule/error.h>

#ifdef __cplusplus
extern "C" {
#endif

struct frl_device;
struct frl_pd;
struct frl_wc;
struct frl_ah;

enum {
	FRL_MAX_GIDS = 16,
	FRL_GRH_SIZE = 40, /* bytes before the payload in a receive of a datagram */
};

/* An IPv6 address, or an IPv4 one in the form ::ffff:a.b.c.d: what RoCEv2 has for a GID. */
struct frl_ip {
	uint8_t bytes[16];
};

/*
 * An address of a device. [0] is the link-local IPv6 address that follows from the MAC (EUI-64),
 * then come the addresses that the device was opened with, in that order.
 */
struct frl_gid {
	struct frl_ip ip;
	uint8_t prefix_len; /* of its subnet, in bits of the address's family */
	uint16_t vlan;      /* identifier of the VLAN that it is on; 0: untagged */
};

/* -ENOENT past the last one; -EINVAL. */
FRL_API int frl_query_gid(struct frl_device *device, unsigned index, struct frl_gid *ret_gid);

/* How to get somewhere: the attributes of an address handle and of a connection's path. */
struct frl_ah_attr {
	struct frl_ip dgid;    /* the destination; datagrams: also a multicast group */
	uint8_t sgid_index;    /* which of the device's GIDs it comes from: of dgid's family */
	uint8_t hop_limit;     /* 0: 64 */
	uint8_t traffic_class; /* DSCP (upper six bits) and ECN */
	uint8_t sl;            /* service level, 0 to 7: the priority (PCP) of a VLAN tag */
	uint32_t flow_label;   /* 20 bits; not 0: on networks it decides the UDP source port, too */
	uint8_t dmac[6];       /* of the next hop; all zero: found by ARP or ND, and kept current */
	uint16_t link;         /* local fabric: the port's link that leads there */
};

/*
 * Makes an address handle for datagrams. Where dmac is zero and dgid no group, blocks until ARP or
 * ND has answered, up to 3 s. A software device needs the handle only while a request with it is
 * posted; hardware may look at it until the request has completed, so a program that is to run on
 * both destroys it after that. Hardware takes no dmac and no link: its kernel finds the MAC.
 * -EINVAL (also: the address of sgid_index is gone), -ENOMEM, -EHOSTUNREACH (no route, no answer;
 * local fabric: no link to that device: connect a queue pair to it first).
 */
FRL_API int frl_ah_create(
	struct frl_pd *pd, const struct frl_ah_attr *attr, struct frl_ah **ret_ah);

/* NULL is fine. */
FRL_API void frl_ah_destroy(struct frl_ah *ah);

FRL_API void frl_ah_query(const struct frl_ah *ah, struct frl_ah_attr *ret_attr);

/*
 * The attributes with which the sender of a received datagram is answered. `grh` is the first
 * FRL_GRH_SIZE bytes of the receive, `wc` its completion. -EINVAL: no valid header there, or it was
 * sent to a group or an address that this device does not have.
 */
FRL_API int frl_ah_attr_from_wc(struct frl_device *device, const struct frl_wc *wc,
	const uint8_t grh[FRL_GRH_SIZE], struct frl_ah_attr *ret_attr);

#ifdef __cplusplus
}
#endif
#endif
