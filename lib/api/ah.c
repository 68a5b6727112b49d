/* SPDX-License-Identifier: BSD-3-Clause */
/* Address handles, and whom a received datagram came from. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/api/objects.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/wire/checksum.h"

enum {
	GRH_IPV4_AT = FRL_GRH_SIZE - IPV4_LEN, /* of a receive over IPv4 the last bytes */
	DSCP_MASK = 0xfc,
	FLOW_LABEL_MASK = 0xfffff,
};

void describe_silence(
	struct frl_device *device, const struct frl_ah_attr *attr, char *out, size_t size)
{
	struct frl_ip hop;

	if (!neighbors_next_hop(&device->engine.neighbors, attr->sgid_index, &attr->dgid, &hop))
		hop = attr->dgid;
	snprintf(out, size, "%s does not answer %s: check that it is on this port's network",
		format_ip(&hop), ip_is_v4(&hop) ? "ARP" : "neighbour discovery");
}

/* -EAGAIN: the next hop has been asked for. */
static int add_ah(struct frl_device *device, struct frl_ah *ah)
{
	const char *why = "";
	int rc = 0;

	device_enter(device);
	if (device->attr.local_fabric)
		rc = fabric_find_way(device, &ah->attr);
	if (!rc) {
		rc = engine_add_ah(&device->engine, &ah->engine, &ah->attr, clock_now_ns(), &why);
		if (rc && rc != -EAGAIN)
			frl_fail(rc, "address handle for %s: %s", format_ip(&ah->attr.dgid), why);
	}
	if (!rc || rc == -EAGAIN)
		ah->pd->objects++;
	device_leave(device);
	return rc;
}

static int try_ready(struct frl_device *device, void *arg)
{
	const struct engine_ah *ah = arg;

	return engine_ah_ready(&device->engine, ah) ? 0 : -EAGAIN;
}

int frl_ah_create(struct frl_pd *pd, const struct frl_ah_attr *attr, struct frl_ah **ret_ah)
{
	static const struct patience patience = { .timeout_ms = RESOLVE_MS };
	char silent[160];
	struct frl_ah *ah;
	int rc;

	if (!pd || !attr || !ret_ah)
		return frl_fail(-EINVAL, "frl_ah_create: pd, attr and ret_ah are required");
	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return frl_fail(-ENOMEM, "no memory for an address handle");
	ah->pd = pd;
	ah->attr = *attr;
	if (!ah->attr.hop_limit)
		ah->attr.hop_limit = DEFAULT_HOP_LIMIT;
	ah->engine.core.pd = pd;
	rc = add_ah(pd->device, ah);
	if (rc == -EAGAIN) {
		rc = device_wait(pd->device, try_ready, &ah->engine, &patience);
		if (rc) {
			device_enter(pd->device);
			describe_silence(pd->device, attr, silent, sizeof(silent));
			device_leave(pd->device);
			frl_ah_destroy(ah);
			return frl_fail(-EHOSTUNREACH, "%s", silent);
		}
	}
	if (rc) {
		free(ah);
		return rc;
	}
	*ret_ah = ah;
	return 0;
}

void frl_ah_destroy(struct frl_ah *ah)
{
	struct frl_device *device;

	if (!ah)
		return;
	device = ah->pd->device;
	device_enter(device);
	engine_remove_ah(&device->engine, &ah->engine);
	ah->pd->objects--;
	device_leave(device);
	free(ah);
}

void frl_ah_query(const struct frl_ah *ah, struct frl_ah_attr *ret_attr)
{
	*ret_attr = ah->attr;
}

static bool read_ipv4(const uint8_t *ip, struct frl_ah_attr *attr, struct frl_ip *ret_dst)
{
	if (ip[0] != 0x45 || checksum_fold(checksum_add(0, ip, IPV4_LEN)) != 0xffff)
		return false;
	attr->dgid = ip_from_v4(ip + 12);
	*ret_dst = ip_from_v4(ip + 16);
	attr->traffic_class = ip[1] & DSCP_MASK;
	return true;
}

static bool read_ipv6(const uint8_t *ip, struct frl_ah_attr *attr, struct frl_ip *ret_dst)
{
	uint32_t word = get_be32(ip);

	if (word >> 28 != 6)
		return false;
	memcpy(attr->dgid.bytes, ip + 8, sizeof(attr->dgid.bytes));
	memcpy(ret_dst->bytes, ip + 24, sizeof(ret_dst->bytes));
	attr->traffic_class = (uint8_t)(word >> 20) & DSCP_MASK;
	attr->flow_label = word & FLOW_LABEL_MASK;
	return true;
}

int frl_ah_attr_from_wc(struct frl_device *device, const struct frl_wc *wc,
	const uint8_t grh[FRL_GRH_SIZE], struct frl_ah_attr *ret_attr)
{
	struct frl_ah_attr attr = { .hop_limit = DEFAULT_HOP_LIMIT };
	struct frl_ip dst;
	int sgid_index;

	if (!device || !wc || !grh || !ret_attr)
		return frl_fail(
			-EINVAL, "frl_ah_attr_from_wc: device, wc, grh and ret_attr are required");
	if (!(wc->flags & FRL_WC_GRH))
		return frl_fail(
			-EINVAL, "the completion is not of a datagram: it has no FRL_WC_GRH flag");
	/* In front of an IPv4 header there are zeros. */
	if (!read_ipv6(grh, &attr, &dst) && !read_ipv4(grh + GRH_IPV4_AT, &attr, &dst))
		return frl_fail(-EINVAL, "the receive does not start with an IP header");
	sgid_index = gid_find(&device->engine.gids, &dst, wc->vlan);
	if (sgid_index < 0)
		return frl_fail(-EINVAL,
			"the datagram was sent to %s, which is %s: choose the address to answer "
			"from",
			format_ip(&dst),
			ip_is_multicast(&dst) ? "a multicast group" : "no address of this device");
	attr.sgid_index = (uint8_t)sgid_index;
	attr.sl = wc->sl;
	*ret_attr = attr;
	return 0;
}
