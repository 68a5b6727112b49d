/* SPDX-License-Identifier: BSD-3-Clause */
/* Shares of the port's packet buffers, for payload that stays in them. */
#include <errno.h>

#include "lib/base/error.h"
#include "lib/device/soft.h"

/* Fragments are payload in packet buffers that the processor reads. A port with caps.has_far has
 * payload in GPU memory instead. */
static int refuse_far(void)
{
	return frl_fail(-ENOTSUP,
		"the port receives payload into GPU memory: it has no packet "
		"buffers to keep payload in");
}

int soft_fragments_create(struct frl_fragments *base, uint32_t frames)
{
	struct soft_device *device = soft_device(base->pd->device);
	uint32_t left;
	int rc;

	if (device->port->caps.has_far)
		return refuse_far();
	device_enter(&device->base);
	left = fragments_left(&device->engine);
	rc = fragments_init(&device->engine, &soft_fragments(base)->core, frames);
	device_leave(&device->base);
	if (rc == -ENOSPC)
		return frl_fail(rc,
			"%u packet buffers requested, but the device has %u left of %u: "
			"request fewer, or open it with more held_frames (FRL_HELD_FRAMES)",
			frames, left, device->port->caps.max_kept);
	return rc ? frl_fail(rc, "no memory to track %u packet buffers", frames) : 0;
}

void soft_fragments_destroy(struct frl_fragments *base)
{
	struct soft_device *device = soft_device(base->pd->device);

	device_enter(&device->base);
	fragments_fini(&device->engine, &soft_fragments(base)->core);
	device_leave(&device->base);
}

int soft_fragments_memory(
	struct frl_device *base, unsigned index, void **ret_addr, size_t *ret_length)
{
	struct port *port = soft_device(base)->port;

	if (port->caps.has_far)
		return refuse_far();
	if (!port->caps.max_kept || !port->ops->rx_memory(port, index, ret_addr, ret_length))
		return -ENOENT;
	return 0;
}

int soft_fragments_arm(struct frl_fragments *base, const struct frl_mr *mr,
	const struct fragments_range *range, uint32_t *ret_token)
{
	struct fragments *core = &soft_fragments(base)->core;
	const struct fragments_part part = {
		.region = &soft_mr(mr)->region,
		.addr = range->addr,
		.length = range->length,
		.list = range->list,
		.frames = range->frames,
	};
	int rc;

	if (part.frames > core->quota)
		return frl_fail(-EINVAL,
			"frl_fragments_arm: %u frames requested, but the share has only %u",
			part.frames, core->quota);
	device_enter(base->pd->device);
	rc = fragments_arm(core, &part, ret_token);
	device_leave(base->pd->device);
	if (rc == -EBUSY)
		frl_fail(rc, "frl_fragments_arm: a part of that range is armed already");
	return rc;
}

int soft_fragments_count(
	struct frl_fragments *base, uint32_t token, uint32_t *ret_n, size_t *ret_bytes)
{
	const struct armed *armed;

	device_enter(base->pd->device);
	armed = fragments_find(&soft_fragments(base)->core, token);
	if (armed) {
		*ret_n = armed->n;
		*ret_bytes = armed->bytes;
	}
	device_leave(base->pd->device);
	return armed ? 0 : -EINVAL;
}

int soft_fragments_release(struct frl_fragments *base, uint32_t token)
{
	struct soft_device *device = soft_device(base->pd->device);
	int rc;

	device_enter(&device->base);
	rc = fragments_release(&device->engine, &soft_fragments(base)->core, token);
	device_leave(&device->base);
	return rc;
}
