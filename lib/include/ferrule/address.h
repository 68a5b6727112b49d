/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses. A GID is an IP address; an address handle says how to reach one.
 *
 * Threads: any thread may call these functions. IBTA volume 1, 11.2.2 (address handles); Annex
 * A17.4.5 (GIDs of RoCEv2).
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
	FRL_GRH_SIZE = 40, /* bytes in front of the payload in a datagram receive */
};

/* A GID of RoCEv2: an IPv6 address, or an IPv4 address in the form ::ffff:a.b.c.d. */
struct frl_ip {
	uint8_t bytes[16];
};

/*
 * An address of a device. Index 0 is the link-local IPv6 address that follows from the MAC
 * (EUI-64). The addresses that the device was opened with follow in their order.
 */
struct frl_gid {
	struct frl_ip ip;
	uint8_t prefix_len; /* length of the subnet prefix, bits of the address's family */
	uint16_t vlan;      /* VLAN identifier of the address; 0: untagged */
};

/* Copies the GID at `index`. Returns -ENOENT past the last one, or -EINVAL. */
FRL_API int frl_query_gid(struct frl_device *device, unsigned index, struct frl_gid *ret_gid);

/* The path to a destination: the attributes of an address handle and of a connection. */
struct frl_ah_attr {
	struct frl_ip dgid;    /* destination; datagrams: may be a multicast group */
	uint8_t sgid_index;    /* the device's source GID, of the same family as dgid */
	uint8_t hop_limit;     /* 0: 64 */
	uint8_t traffic_class; /* DSCP (upper six bits) and ECN */
	uint8_t sl;            /* service level, 0 to 7: the priority (PCP) of a VLAN tag */
	uint32_t flow_label;   /* 20 bits; if not 0, it sets the UDP source port on networks */
	uint8_t dmac[6];       /* MAC of the next hop; zero: resolved by ARP or ND and kept current
			        */
	uint16_t link;         /* local fabric: the port's link to the destination; used if dmac is
			        * not zero */
};

/*
 * Creates an address handle for datagrams. With a zero dmac and a unicast dgid the call blocks
 * until ARP or ND has answered, up to 3 s. On the local fabric it makes a link to the device with
 * that GID, unless there is one: see frl_qp_modify().
 *
 * Multicast on the local fabric: with a zero dmac, datagrams go to all devices of this user that
 * use multicast, and over all other links of the device. The call makes the links, as does
 * frl_attach_mcast(), and waits up to 1 s for processes that do not answer. With any other dmac,
 * datagrams go over `link` alone.
 *
 * A software device uses the handle only while a request is posted. Hardware may use the handle
 * until the request has completed: a program for both destroys the handle after the completion.
 * Hardware requires dmac and link to be 0, because the kernel resolves the MAC.
 *
 * Returns -EINVAL (also: the address of sgid_index is gone), -ENOMEM or -EHOSTUNREACH (no route or
 * no answer; local fabric: no device has the address). Local fabric: also -EACCES (the device
 * belongs to another user) and -ENOSPC (too many links).
 */
FRL_API int frl_ah_create(
	struct frl_pd *pd, const struct frl_ah_attr *attr, struct frl_ah **ret_ah);

/* Destroys an address handle. NULL is fine. */
FRL_API void frl_ah_destroy(struct frl_ah *ah);

/* Copies the attributes of an address handle. */
FRL_API void frl_ah_query(const struct frl_ah *ah, struct frl_ah_attr *ret_attr);

/*
 * Computes the attributes for a reply to the sender of a received datagram. `grh` is the first
 * FRL_GRH_SIZE bytes of the receive buffer and `wc` its completion. Returns -EINVAL if there is no
 * valid header, or if the datagram was sent to a group or to an address that this device does not
 * have.
 */
FRL_API int frl_ah_attr_from_wc(struct frl_device *device, const struct frl_wc *wc,
	const uint8_t grh[FRL_GRH_SIZE], struct frl_ah_attr *ret_attr);

#ifdef __cplusplus
}
#endif
#endif
