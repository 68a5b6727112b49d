/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints as they are worked with; struct frl_endpoint is one to be sent. */
#ifndef FERRULE_API_ENDPOINT_H
#define FERRULE_API_ENDPOINT_H

#include "lib/api/objects.h"
#include "lib/control/endpoint.h"

enum { ENDPOINT_ADDRESSES = 4 };

/* The first PSN is the one that its owner sends. */
struct endpoint {
	bool local_fabric;
	enum frl_qp_type type;
	uint32_t qpn;
	uint32_t psn;
	uint8_t mac[6];
	uint32_t path_mtu;
	uint32_t capabilities;
	uint8_t max_rd_atomic; /* of the device; 0: not known */
	uint8_t nonce[NONCE_SIZE];
	uint8_t host[ENDPOINT_HOST_SIZE]; /* of the local fabric; zero: not known */
	unsigned n_addresses;
	struct frl_gid addresses[ENDPOINT_ADDRESSES]; /* GIDs 1 and up; VLANs are not told */
};

void endpoint_describe(const struct frl_qp *qp, struct endpoint *ret);
void endpoint_encode(const struct endpoint *endpoint, struct frl_endpoint *ret);
/* -EPROTO. */
int endpoint_decode(const struct frl_endpoint *from, struct endpoint *ret);

/*
 * Which of their addresses two ends use, by index: of one family; rather in one subnet than through
 * a gateway; rather the main ones than later ones. Both ends find the same pair, since between
 * equals the one with the lower MAC decides. False: there is none.
 */
bool endpoint_choose(const struct endpoint *local, const struct endpoint *remote,
	unsigned *ret_local, unsigned *ret_remote);

#endif
