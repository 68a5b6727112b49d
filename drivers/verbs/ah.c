/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Address handles. The kernel resolves the MAC of the next hop, which may take long. With some
 * devices, posted requests refer to their address handle in memory: it must not be destroyed before
 * they complete.
 */
#include "drivers/verbs/internal.h"

#include <stdio.h>

#include "lib/base/error.h"
#include "lib/base/net/ip.h"

static int fill_path(
	struct verbs_device *device, const struct frl_ah_attr *attr, struct ibv_ah_attr *ret_path)
{
	const char *why;

	device_enter(&device->base);
	verbs_fill_path(device, attr, ret_path, &why);
	device_leave(&device->base);
	if (!why)
		return 0;
	return frl_fail(-EINVAL, "address handle for %s: %s", format_ip(&attr->dgid), why);
}

/* Checks that the port still has the source address of the path. The event of a change may not have
 * come yet. */
static int check_source(struct verbs_device *device, const struct frl_ah_attr *attr)
{
	struct ibv_ah_attr path;

	verbs_find_gids_again(device);
	return fill_path(device, attr, &path);
}

bool verbs_is_silence(int err)
{
	return err == ETIMEDOUT || err == EHOSTUNREACH || err == EHOSTDOWN || err == ENODATA ||
		err == ENETUNREACH || err == EADDRNOTAVAIL;
}

void verbs_describe_silence(const struct frl_ip *ip, char *text, size_t size)
{
	snprintf(text, size,
		"the kernel finds no path to %s: %s does not answer, or there is no route: check "
		"ping, ip route and ip neigh",
		format_ip(ip), ip_is_v4(ip) ? "ARP" : "neighbour discovery");
}

int verbs_ah_create(struct frl_ah *base)
{
	struct verbs_ah *ah = verbs_ah(base);
	struct verbs_device *device = device_of_pd(base->pd);
	const struct frl_ip *dgid = &base->attr.dgid;
	struct ibv_ah_attr path;
	char reason[REASON_SIZE];
	int err, rc = fill_path(device, &base->attr, &path);

	if (rc)
		return rc;
	errno = 0;
	ah->ah = ibv_create_ah(verbs_pd(base->pd)->pd, &path);
	if (ah->ah)
		return 0;
	err = errno;
	/* libibverbs reports no errno, or EINVAL, if it cannot resolve the MAC. */
	if (err && err != EINVAL && !verbs_is_silence(err))
		return verbs_fail(err, "%s: address handle for %s", device->name, format_ip(dgid));
	rc = check_source(device, &base->attr);
	if (rc)
		return rc;
	verbs_describe_silence(dgid, reason, sizeof(reason));
	return frl_fail(-EHOSTUNREACH, "%s%s", reason,
		verbs_is_silence(err) ? "" : "; or the device does not take this path");
}

void verbs_ah_destroy(struct frl_ah *base)
{
	int rc = ibv_destroy_ah(verbs_ah(base)->ah);

	verbs_destroyed(
		device_of_pd(base->pd), verbs_pd(base->pd), rc, "cannot destroy an address handle");
}
