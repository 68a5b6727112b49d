/* SPDX-License-Identifier: BSD-3-Clause */
/* Decoded endpoints; struct frl_endpoint is the encoded form. */
#ifndef FERRULE_API_CONNECT_ENDPOINT_H
#define FERRULE_API_CONNECT_ENDPOINT_H

#include "lib/api/objects.h"
#include "lib/control/endpoint.h"

enum { ENDPOINT_ADDRESSES = 4 };

/* The first PSN is that of the endpoint's sender. */
struct endpoint {
	bool local_fabric;
	enum frl_qp_type type;
	uint32_t qpn;
	uint32_t psn;
	uint8_t mac[6];
	uint32_t path_mtu;
	uint32_t capabilities;
	uint8_t max_rd_atomic; /* of the device; 0: unknown */
	uint8_t nonce[NONCE_SIZE];
	uint8_t host[ENDPOINT_HOST_SIZE]; /* on the local fabric; zero: unknown */
	unsigned n_addresses;
	struct frl_gid addresses[ENDPOINT_ADDRESSES]; /* GIDs 1 and up; without VLANs */
};

void endpoint_describe(const struct frl_qp *qp, struct endpoint *ret);
void endpoint_encode(const struct endpoint *endpoint, struct frl_endpoint *ret);
/* Decodes an endpoint. Returns -EPROTO if it is invalid. */
int endpoint_decode(const struct frl_endpoint *from, struct endpoint *ret);

/*
 * Chooses the addresses of two ends, by index, both of one family. Prefers a common subnet to a
 * gateway, and main addresses to later ones. Both ends choose the same pair: the end with the lower
 * MAC breaks ties. Returns false if there is no pair.
 */
bool endpoint_choose(const struct endpoint *local, const struct endpoint *remote,
	unsigned *ret_local, unsigned *ret_remote);

#endif
