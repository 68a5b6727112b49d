/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives whose payload stays in packet buffers: checks arguments and calls the device. */
#include <ferrule/fragments.h>

#include <stdlib.h>

#include "lib/api/objects.h"

static int check_supported(const struct frl_device *device)
{
	if (device->ops->fragments_create)
		return 0;
	return frl_fail(-ENOTSUP,
		"a %s device cannot keep payload in packet buffers: its NIC writes to memory; use "
		"frl_reg_mr()",
		device->ops->kind);
}

int frl_fragments_create(struct frl_pd *pd, uint32_t frames, struct frl_fragments **ret_fragments)
{
	struct frl_fragments *fragments;
	int rc;

	if (!pd || !frames || !ret_fragments)
		return frl_fail(-EINVAL,
			"frl_fragments_create: pd, a number of frames and ret_fragments are "
			"required");
	rc = check_supported(pd->device);
	if (rc)
		return rc;
	fragments = calloc(1, pd->device->ops->fragments_size);
	if (!fragments)
		return frl_fail(-ENOMEM, "no memory for a share of packet buffers");
	fragments->pd = pd;
	pd_count(pd, 1);
	rc = pd->device->ops->fragments_create(fragments, frames);
	if (rc) {
		pd_count(pd, -1);
		free(fragments);
		return rc;
	}
	*ret_fragments = fragments;
	return 0;
}

int frl_fragments_destroy(struct frl_fragments *fragments)
{
	struct frl_device *device;
	unsigned regions;

	if (!fragments)
		return 0;
	device = fragments->pd->device;
	device_enter(device);
	regions = fragments->regions;
	device_leave(device);
	if (regions)
		return frl_fail(-EBUSY,
			"%u memory regions of the share of packet buffers are registered: "
			"deregister them first",
			regions);
	device->ops->fragments_destroy(fragments);
	pd_count(fragments->pd, -1);
	free(fragments);
	return 0;
}

int frl_fragments_memory(struct frl_pd *pd, unsigned index, void **ret_addr, size_t *ret_length)
{
	int rc;

	if (!pd || !ret_addr || !ret_length)
		return frl_fail(
			-EINVAL, "frl_fragments_memory: pd, ret_addr and ret_length are required");
	rc = check_supported(pd->device);
	if (rc)
		return rc;
	return pd->device->ops->fragments_memory(pd->device, index, ret_addr, ret_length);
}

static int reg_name(struct frl_mr *mr, void *arg)
{
	mr->attr = (struct frl_mr_attr){ .tier = FRL_MR_HOST, .gpu = -1, .alignment = 1 };
	return mr->device->ops->mr_reg(mr);
}

/* Adds `change`, 1 or -1. */
static void count_regions(struct frl_fragments *fragments, int change)
{
	device_enter(fragments->pd->device);
	fragments->regions += (unsigned)change;
	device_leave(fragments->pd->device);
}

int frl_reg_fragments(struct frl_fragments *fragments, void *addr, size_t length, uint32_t access,
	struct frl_mr **ret_mr)
{
	const struct frl_mr wanted = {
		.addr = addr,
		.length = length,
		.iova = (uintptr_t)addr,
		.access = access,
		.fragments = fragments,
	};
	int rc;

	if (!fragments || !addr || length == 0 || !ret_mr)
		return frl_fail(-EINVAL,
			"frl_reg_fragments: fragments, addr, a length and ret_mr are required");
	if (access != (FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE))
		return frl_fail(-EINVAL,
			"frl_reg_fragments: access 0x%x: it must be LOCAL_WRITE and REMOTE_WRITE, "
			"because the region only receives peers' writes",
			access);
	count_regions(fragments, 1);
	rc = mr_make(fragments->pd, &wanted, reg_name, NULL, ret_mr);
	if (rc)
		count_regions(fragments, -1);
	return rc;
}

void mr_release_fragments(struct frl_mr *mr)
{
	if (mr->fragments)
		count_regions(mr->fragments, -1);
}

static bool is_inside(const struct frl_mr *mr, const void *addr, size_t length)
{
	uintptr_t start = (uintptr_t)mr->addr, at = (uintptr_t)addr;

	return at >= start && length <= mr->length && at - start <= mr->length - length;
}

int frl_fragments_arm(struct frl_fragments *fragments, struct frl_mr *mr, void *addr, size_t length,
	struct frl_fragment *list, uint32_t frames, uint32_t *ret_token)
{
	const struct fragments_range range = { addr, length, list, frames };

	if (!fragments || !mr || !addr || (frames && !list) || !ret_token)
		return frl_fail(-EINVAL,
			"frl_fragments_arm: fragments, mr, addr, a list for the frames and "
			"ret_token are required");
	if (mr->fragments != fragments)
		return frl_fail(-EINVAL,
			"frl_fragments_arm: the region is not of this share of packet buffers: "
			"register it by frl_reg_fragments()");
	if (!is_inside(mr, addr, length))
		return frl_fail(-EINVAL, "frl_fragments_arm: %p to %p is not inside the region",
			addr, (void *)((uintptr_t)addr + length));
	return fragments->pd->device->ops->fragments_arm(fragments, mr, &range, ret_token);
}

static int check_token(int rc, const char *function, uint32_t token)
{
	return rc ? frl_fail(rc, "%s: token 0x%x is not armed: it was released, or never returned",
			    function, token)
		  : 0;
}

int frl_fragments_count(
	struct frl_fragments *fragments, uint32_t token, uint32_t *ret_n, size_t *ret_bytes)
{
	if (!fragments || !ret_n || !ret_bytes)
		return frl_fail(-EINVAL,
			"frl_fragments_count: fragments, ret_n and ret_bytes are required");
	return check_token(
		fragments->pd->device->ops->fragments_count(fragments, token, ret_n, ret_bytes),
		"frl_fragments_count", token);
}

int frl_fragments_release(struct frl_fragments *fragments, uint32_t token)
{
	if (!fragments)
		return frl_fail(-EINVAL, "frl_fragments_release: fragments is required");
	return check_token(fragments->pd->device->ops->fragments_release(fragments, token),
		"frl_fragments_release", token);
}
