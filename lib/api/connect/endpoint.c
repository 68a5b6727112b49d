/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints: the data that a queue pair sends its peer, and the choice of addresses. */
#include "lib/api/connect/endpoint.h"

#include <errno.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/error.h"
#include "lib/base/net/addr.h"
#include "lib/wire/packet.h"

_Static_assert(ENDPOINT_AT_MORE_IPS + (ENDPOINT_ADDRESSES - 1) * sizeof(struct frl_ip) <=
			ENDPOINT_AT_HOST &&
		(int)ENDPOINT_AT_HOST + (int)ENDPOINT_HOST_SIZE <= (int)FRL_ENDPOINT_SIZE,
	"all of it fits");
_Static_assert((int)ENDPOINT_HOST_SIZE <= (int)HOST_ID_SIZE, "the beginning of an id");

void endpoint_describe(const struct frl_qp *qp, struct endpoint *ret)
{
	const struct frl_device *device = qp->pd->device;
	const struct gid_table *gids = &device->gids;

	*ret = (struct endpoint){
		.local_fabric = device->attr.local_fabric,
		.type = qp->type,
		.qpn = qp->num,
		.psn = qp->local_psn,
		.path_mtu = device->attr.path_mtu,
		.capabilities = device->capabilities,
		.max_rd_atomic = (uint8_t)device->attr.max_rd_atomic,
	};
	memcpy(ret->mac, device->attr.mac, sizeof(ret->mac));
	memcpy(ret->nonce, device->nonce, NONCE_SIZE);
	memcpy(ret->host, device->host, sizeof(ret->host));
	for (unsigned i = 1; i < gids->n && ret->n_addresses < ENDPOINT_ADDRESSES; i++)
		ret->addresses[ret->n_addresses++] = gids->gids[i];
}

void endpoint_encode(const struct endpoint *endpoint, struct frl_endpoint *ret)
{
	uint8_t *out = ret->bytes;

	memset(out, 0, FRL_ENDPOINT_SIZE);
	put_be32(out + ENDPOINT_AT_MAGIC, ENDPOINT_MAGIC);
	put_be16(out + ENDPOINT_AT_VERSION, ENDPOINT_VERSION);
	put_be16(out + ENDPOINT_AT_FLAGS, endpoint->local_fabric ? ENDPOINT_LOCAL_FABRIC : 0);
	put_be32(out + ENDPOINT_AT_QPN, endpoint->qpn);
	put_be32(out + ENDPOINT_AT_PSN, endpoint->psn);
	memcpy(out + ENDPOINT_AT_MAC, endpoint->mac, sizeof(endpoint->mac));
	put_be16(out + ENDPOINT_AT_MTU, (uint16_t)endpoint->path_mtu);
	put_be32(out + ENDPOINT_AT_CAPABILITIES, endpoint->capabilities);
	memcpy(out + ENDPOINT_AT_NONCE, endpoint->nonce, NONCE_SIZE);
	memcpy(out + ENDPOINT_AT_HOST, endpoint->host, sizeof(endpoint->host));
	out[ENDPOINT_AT_TYPE] = (uint8_t)endpoint->type;
	out[ENDPOINT_AT_RD_ATOMIC] = endpoint->max_rd_atomic;
	out[ENDPOINT_AT_ADDRESSES] = (uint8_t)endpoint->n_addresses;
	for (unsigned i = 0; i < endpoint->n_addresses && i < ENDPOINT_ADDRESSES; i++) {
		out[ENDPOINT_AT_PREFIX_LEN + i] = endpoint->addresses[i].prefix_len;
		memcpy(out + endpoint_ip_at(i), &endpoint->addresses[i].ip, sizeof(struct frl_ip));
	}
}

static bool decode_addresses(const uint8_t *in, struct endpoint *ret)
{
	if (in[ENDPOINT_AT_ADDRESSES] < 1 || in[ENDPOINT_AT_ADDRESSES] > ENDPOINT_ADDRESSES)
		return false;
	ret->n_addresses = in[ENDPOINT_AT_ADDRESSES];
	for (unsigned i = 0; i < ret->n_addresses; i++) {
		struct frl_gid *gid = &ret->addresses[i];

		memcpy(&gid->ip, in + endpoint_ip_at(i), sizeof(gid->ip));
		gid->prefix_len = in[ENDPOINT_AT_PREFIX_LEN + i];
		if (gid->prefix_len > (ip_is_v4(&gid->ip) ? 32 : 128))
			return false;
	}
	return true;
}

int endpoint_decode(const struct frl_endpoint *from, struct endpoint *ret)
{
	const uint8_t *in = from->bytes;
	uint32_t mtu = get_be16(in + ENDPOINT_AT_MTU);

	if (get_be32(in + ENDPOINT_AT_MAGIC) != ENDPOINT_MAGIC)
		return frl_fail(-EPROTO, "the peer's endpoint is not one of Ferrule");
	if (get_be16(in + ENDPOINT_AT_VERSION) != ENDPOINT_VERSION)
		return frl_fail(-EPROTO,
			"the peer's endpoint has version %u, this library has %d: use the same "
			"release on both ends",
			get_be16(in + ENDPOINT_AT_VERSION), ENDPOINT_VERSION);
	*ret = (struct endpoint){
		.local_fabric = get_be16(in + ENDPOINT_AT_FLAGS) & ENDPOINT_LOCAL_FABRIC,
		.type = (enum frl_qp_type)in[ENDPOINT_AT_TYPE],
		.qpn = get_be32(in + ENDPOINT_AT_QPN),
		.psn = get_be32(in + ENDPOINT_AT_PSN),
		.path_mtu = mtu,
		.capabilities = get_be32(in + ENDPOINT_AT_CAPABILITIES),
		.max_rd_atomic = in[ENDPOINT_AT_RD_ATOMIC],
	};
	memcpy(ret->mac, in + ENDPOINT_AT_MAC, sizeof(ret->mac));
	memcpy(ret->nonce, in + ENDPOINT_AT_NONCE, NONCE_SIZE);
	memcpy(ret->host, in + ENDPOINT_AT_HOST, sizeof(ret->host));
	if (mtu < 256 || mtu > WIRE_MAX_MTU || (mtu & (mtu - 1)) || ret->psn > PSN_MASK ||
		ret->qpn == 0 || ret->qpn >= QPN_MULTICAST)
		return frl_fail(-EPROTO,
			"the peer's endpoint is damaged: QPN 0x%x, PSN 0x%x, MTU %u", ret->qpn,
			ret->psn, mtu);
	if (!decode_addresses(in, ret))
		return frl_fail(-EPROTO, "the peer's endpoint is damaged: its addresses");
	return 0;
}

bool endpoint_choose(const struct endpoint *local, const struct endpoint *remote,
	unsigned *ret_local, unsigned *ret_remote)
{
	int order = memcmp(local->mac, remote->mac, sizeof(local->mac));
	unsigned best = UINT32_MAX;
	bool first;

	/* Two processes may share a hardware port. */
	if (!order)
		order = memcmp(local->nonce, remote->nonce, sizeof(local->nonce));
	first = order < 0;

	for (unsigned i = 0; i < local->n_addresses; i++) {
		for (unsigned j = 0; j < remote->n_addresses; j++) {
			const struct frl_gid *own = &local->addresses[i];
			const struct frl_gid *theirs = &remote->addresses[j];
			unsigned cost = (i + j) * ENDPOINT_ADDRESSES + (first ? i : j);

			if (ip_is_v4(&own->ip) != ip_is_v4(&theirs->ip))
				continue;
			if (!in_subnet(own, &theirs->ip) || !in_subnet(theirs, &own->ip))
				cost += 1000;
			if (cost >= best)
				continue;
			best = cost;
			*ret_local = i;
			*ret_remote = j;
		}
	}
	return best != UINT32_MAX;
}
