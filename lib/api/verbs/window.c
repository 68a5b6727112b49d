/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory windows: allocates and frees their keys; requests bind them. */
#include "lib/api/objects.h"

#include <stdlib.h>

int frl_mw_alloc(struct frl_pd *pd, struct frl_mw **ret_mw)
{
	struct frl_device *device;
	struct frl_mw *mw;
	int rc;

	if (!pd || !ret_mw)
		return frl_fail(-EINVAL, "frl_mw_alloc: pd and ret_mw are required");
	device = pd->device;
	mw = calloc(1, device->ops->mw_size);
	if (!mw)
		return frl_fail(-ENOMEM, "no memory for a memory window");
	mw->pd = pd;
	pd_count(pd, 1);
	rc = device->ops->mw_alloc(mw);
	if (rc) {
		pd_count(pd, -1);
		free(mw);
		return rc;
	}
	*ret_mw = mw;
	return 0;
}

void frl_mw_dealloc(struct frl_mw *mw)
{
	if (!mw)
		return;
	mw->pd->device->ops->mw_dealloc(mw);
	pd_count(mw->pd, -1);
	free(mw);
}

uint32_t frl_mw_rkey(struct frl_mw *mw)
{
	return mw->pd->device->ops->mw_rkey(mw);
}
