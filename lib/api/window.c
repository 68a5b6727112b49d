/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory windows: here they get and lose their keys; requests bind them. */
#include <errno.h>
#include <stdlib.h>

#include "lib/api/objects.h"
#include "lib/base/error.h"

int frl_mw_alloc(struct frl_pd *pd, struct frl_mw **ret_mw)
{
	struct frl_device *device;
	struct frl_mw *mw;
	int rc;

	if (!pd || !ret_mw)
		return frl_fail(-EINVAL, "frl_mw_alloc: pd and ret_mw are required");
	mw = calloc(1, sizeof(*mw));
	if (!mw)
		return frl_fail(-ENOMEM, "no memory for a memory window");
	mw->pd = pd;
	mw->region = (struct region){ .pd = pd, .is_window = true };
	device = pd->device;
	device_enter(device);
	rc = engine_add_region(&device->engine, &mw->region);
	if (!rc) {
		pd->objects++;
		device->windows++;
	}
	device_leave(device);
	if (rc) {
		free(mw);
		return frl_fail(
			rc, "no room for another memory window (at most %d a device)", REGION_MAX);
	}
	*ret_mw = mw;
	return 0;
}

void frl_mw_dealloc(struct frl_mw *mw)
{
	struct frl_device *device;

	if (!mw)
		return;
	device = mw->pd->device;
	device_enter(device);
	engine_remove_region(&device->engine, &mw->region);
	mw->pd->objects--;
	device->windows--;
	device_leave(device);
	free(mw);
}

uint32_t frl_mw_rkey(struct frl_mw *mw)
{
	struct frl_device *device = mw->pd->device;
	uint32_t rkey;

	device_enter(device);
	rkey = mw->region.key;
	device_leave(device);
	return rkey;
}
