/* SPDX-License-Identifier: BSD-3-Clause */
/* Address handles, and the sender's address of a received datagram. */
#include "lib/api/objects.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/wire/checksum.h"
#include "lib/wire/packet.h"

enum {
	GRH_IPV4_AT = FRL_GRH_SIZE - IPV4_LEN, /* IPv4: the header is in the last bytes */
	DSCP_MASK = 0xfc,
	FLOW_LABEL_MASK = 0xfffff,
};

int frl_ah_create(struct frl_pd *pd, const struct frl_ah_attr *attr, struct frl_ah **ret_ah)
{
	struct frl_device *device;
	struct frl_ah *ah;
	int rc;

	if (!pd || !attr || !ret_ah)
		return frl_fail(-EINVAL, "frl_ah_create: pd, attr and ret_ah are required");
	device = pd->device;
	ah = calloc(1, device->ops->ah_size);
	if (!ah)
		return frl_fail(-ENOMEM, "no memory for an address handle");
	ah->pd = pd;
	ah->attr = *attr;
	if (!ah->attr.hop_limit)
		ah->attr.hop_limit = DEFAULT_HOP_LIMIT;
	pd_count(pd, 1);
	rc = device->ops->ah_create(ah);
	if (rc) {
		pd_count(pd, -1);
		free(ah);
		return rc;
	}
	*ret_ah = ah;
	return 0;
}

void frl_ah_destroy(struct frl_ah *ah)
{
	if (!ah)
		return;
	ah->pd->device->ops->ah_destroy(ah);
	pd_count(ah->pd, -1);
	free(ah);
}

void frl_ah_query(const struct frl_ah *ah, struct frl_ah_attr *ret_attr)
{
	*ret_attr = ah->attr;
}

static bool is_checksum_right(const uint8_t *ip)
{
	return checksum_fold(checksum_add(0, ip, IPV4_LEN)) == 0xffff;
}

static bool read_ipv4(const uint8_t *ip, struct frl_ah_attr *attr, struct frl_ip *ret_dst)
{
	/* Datagrams of Linux' rxe to its own device have no checksum. */
	bool has_checksum = get_be16(ip + 10) != 0;

	if (ip[0] != 0x45 || (has_checksum && !is_checksum_right(ip)))
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

/*
 * Hardware leaves the bytes before an IPv4 header uninitialised, and they may look like an IPv6
 * header. The checksum then decides, as in the kernel's ib_get_rdma_header_version().
 */
static bool read_header(
	const uint8_t grh[FRL_GRH_SIZE], struct frl_ah_attr *attr, struct frl_ip *ret_dst)
{
	const uint8_t *ipv4 = grh + GRH_IPV4_AT;

	if (ipv4[0] == 0x45 && is_checksum_right(ipv4) && read_ipv4(ipv4, attr, ret_dst))
		return true;
	return read_ipv6(grh, attr, ret_dst) || read_ipv4(ipv4, attr, ret_dst);
}

/* Hardware may report no VLAN, or a wrong one. */
static int find_gid(const struct frl_device *device, const struct frl_ip *ip, uint16_t vlan)
{
	int index = gid_find(&device->gids, ip, vlan);

	return index < 0 && device->ops->is_hardware ? gid_find_any(&device->gids, ip) : index;
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
	if (!read_header(grh, &attr, &dst))
		return frl_fail(-EINVAL, "the receive does not start with an IP header");
	sgid_index = find_gid(device, &dst, wc->vlan);
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
