/* SPDX-License-Identifier: BSD-3-Clause */
/* Protection domains, regions and windows. Access flags have the same values as in libibverbs. */
#include "drivers/verbs/internal.h"

#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/settings.h"

_Static_assert(FRL_ACCESS_LOCAL_WRITE == (int)IBV_ACCESS_LOCAL_WRITE &&
		FRL_ACCESS_REMOTE_WRITE == (int)IBV_ACCESS_REMOTE_WRITE &&
		FRL_ACCESS_REMOTE_READ == (int)IBV_ACCESS_REMOTE_READ &&
		FRL_ACCESS_REMOTE_ATOMIC == (int)IBV_ACCESS_REMOTE_ATOMIC &&
		FRL_ACCESS_MW_BIND == (int)IBV_ACCESS_MW_BIND,
	"rights are the same");
_Static_assert(FRL_REREG_TRANSLATION == (int)IBV_REREG_MR_CHANGE_TRANSLATION &&
		FRL_REREG_PD == (int)IBV_REREG_MR_CHANGE_PD &&
		FRL_REREG_ACCESS == (int)IBV_REREG_MR_CHANGE_ACCESS,
	"changes are the same");

#define BROKEN_REGION                                                   \
	"the region is unusable after a failed change: deregister it, " \
	"and register the memory again"

int verbs_pd_create(struct frl_pd *base)
{
	struct verbs_pd *pd = verbs_pd(base);

	errno = 0;
	pd->pd = ibv_alloc_pd(device_of_pd(base)->context);
	if (pd->pd)
		return 0;
	return verbs_fail(verbs_null_errno(), "%s: no protection domain", device_of_pd(base)->name);
}

int verbs_pd_destroy(struct frl_pd *base)
{
	int rc = ibv_dealloc_pd(verbs_pd(base)->pd), err;

	/* A failed device has forgotten it already. The event may not have come yet. */
	if (!rc || atomic_load(&device_of_pd(base)->is_fatal))
		return 0;
	err = verbs_errno(rc);
	if (err == EIO || err == ENODEV)
		return 0;
	/* Objects that could not be destroyed hold it until the device is closed. */
	if (err == EBUSY && atomic_load(&verbs_pd(base)->has_left))
		return 0;
	return verbs_fail(
		err, "%s: cannot destroy the protection domain", device_of_pd(base)->name);
}

/*
 * Returns true if the device may reorder its writes. A completion is still ordered after all of its
 * data. But a program that polls the memory itself may see the last byte before the first, and
 * memory that a peer writes is used that way.
 */
static bool is_relaxed(uint32_t access)
{
	const char *setting = settings_get()->relaxed_ordering;
	const uint32_t written = FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_ATOMIC |
		FRL_ACCESS_MW_BIND; /* A window may grant write access. */

	if (strcmp(setting, "auto") == 0)
		return !(access & written);
	return strcmp(setting, "on") == 0;
}

/* A NIC pins the memory, so it may always be unmapped. */
static unsigned known_access(const struct frl_mr *base)
{
	return base->access & ~(unsigned)FRL_ACCESS_MAY_UNMAP;
}

static struct ibv_mr *reg(const struct frl_mr *base, unsigned access)
{
	struct ibv_pd *pd = verbs_pd(base->pd)->pd;

	errno = 0;
	if (base->iova == (uintptr_t)base->addr && !(access & IBV_ACCESS_OPTIONAL_RANGE))
		return (ibv_reg_mr)(pd, base->addr, base->length, (int)access);
	return ibv_reg_mr_iova2(pd, base->addr, base->length, base->iova, access);
}

static void take_keys(struct frl_mr *base, const struct ibv_mr *mr)
{
	base->lkey = mr->lkey;
	base->rkey = mr->rkey;
}

static int cannot_register(const struct frl_mr *base, int err)
{
	const char *name = verbs_device(base->device)->name;

	if (err == ENOSPC)
		return frl_fail(-ENOSPC, "%s has no room for another memory region (at most %u)",
			name, base->device->attr.max_mr);
	if (err == EINVAL && (base->iova ^ (uintptr_t)base->addr) % (uint64_t)sysconf(_SC_PAGESIZE))
		return frl_fail(-EINVAL,
			"%s does not register %p with iova 0x%llx: with hardware the two are "
			"equally far into a page",
			name, base->addr, (unsigned long long)base->iova);
	if (err == EINVAL)
		return frl_fail(-EINVAL,
			"%s does not register %zu bytes at %p with access 0x%x (at most %llu "
			"bytes): a mapping that it cannot pin?",
			name, base->length, base->addr, base->access,
			(unsigned long long)base->device->attr.max_mr_size);
	return verbs_fail(err, "%s: cannot register %zu bytes at %p with access 0x%x", name,
		base->length, base->addr, base->access);
}

/* Relaxed ordering is optional: a device that does not support it need not refuse the region. */
static bool is_relaxed_refused(void)
{
	int err = verbs_null_errno();

	return err == EINVAL || err == EOPNOTSUPP;
}

int verbs_mr_reg(struct frl_mr *base)
{
	struct verbs_mr *mr = verbs_mr(base);
	unsigned relaxed = is_relaxed(base->access) ? IBV_ACCESS_RELAXED_ORDERING : 0;

	mr->mr = reg(base, known_access(base) | relaxed);
	if (!mr->mr && relaxed && is_relaxed_refused())
		mr->mr = reg(base, known_access(base));
	if (!mr->mr)
		return cannot_register(base, verbs_null_errno());
	take_keys(base, mr->mr);
	return 0;
}

static struct ibv_mr *reg_dmabuf(
	const struct frl_mr *base, int fd, uint64_t offset, unsigned access)
{
	errno = 0;
	return ibv_reg_dmabuf_mr(
		verbs_pd(base->pd)->pd, offset, base->length, base->iova, fd, (int)access);
}

int verbs_mr_reg_dmabuf(struct frl_mr *base, int fd, uint64_t offset)
{
	struct verbs_mr *mr = verbs_mr(base);
	const char *name = verbs_device(base->device)->name;
	unsigned relaxed = is_relaxed(base->access) ? IBV_ACCESS_RELAXED_ORDERING : 0;
	int err;

	mr->mr = reg_dmabuf(base, fd, offset, known_access(base) | relaxed);
	if (!mr->mr && relaxed && is_relaxed_refused())
		mr->mr = reg_dmabuf(base, fd, offset, known_access(base));
	if (mr->mr) {
		take_keys(base, mr->mr);
		return 0;
	}
	err = verbs_null_errno();
	if (err == EOPNOTSUPP || err == ENOSYS || err == EPROTONOSUPPORT)
		return frl_fail(-ENOTSUP,
			"%s cannot register dma-bufs: this needs a NIC and driver with support "
			"(mlx5), and Linux 5.12; or copy through host memory",
			name);
	return verbs_fail(err, "%s: cannot register %zu bytes of dma-buf %d from offset %llu", name,
		base->length, fd, (unsigned long long)offset);
}

int verbs_mr_rereg(struct frl_mr *base, uint32_t flags, const struct frl_mr *wanted)
{
	struct verbs_mr *mr = verbs_mr(base);
	const char *name = verbs_device(base->device)->name;
	int rc, err;

	if (mr->is_broken)
		return frl_fail(-EIO, "%s: " BROKEN_REGION, name);
	errno = 0;
	rc = ibv_rereg_mr(mr->mr, (int)flags, verbs_pd(wanted->pd)->pd, wanted->addr,
		wanted->length, flags & FRL_REREG_ACCESS ? (int)known_access(wanted) : 0);
	if (rc == IBV_REREG_MR_ERR_DO_FORK_OLD)
		verbs_warn(verbs_null_errno(),
			"a memory region was changed: forked children may lack the memory that it "
			"covered before");
	if (!rc || rc == IBV_REREG_MR_ERR_DO_FORK_OLD) {
		take_keys(base, mr->mr);
		return 0;
	}
	err = rc == IBV_REREG_MR_ERR_INPUT ? EINVAL : errno ? errno : EIO;
	if (err == EOPNOTSUPP || err == ENOSYS)
		return frl_fail(-ENOTSUP,
			"%s cannot change regions: deregister it, and register it again", name);
	mr->is_broken = rc == IBV_REREG_MR_ERR_CMD || rc == IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW;
	return verbs_fail(err, "%s: cannot change the memory region%s", name,
		mr->is_broken ? "; " BROKEN_REGION : "");
}

int verbs_mr_dereg(struct frl_mr *base)
{
	struct verbs_mr *mr = verbs_mr(base);
	struct verbs_device *device = verbs_device(base->device);
	int rc = ibv_dereg_mr(mr->mr), err;

	if (!rc || atomic_load(&device->is_fatal))
		return 0;
	err = verbs_errno(rc);
	/* The device has failed, but the event has not come yet: the region is gone. */
	if (err == EIO || err == ENODEV)
		return 0;
	/* rxe returns EINVAL for a bound window. A valid region has no other cause. */
	if (err == EBUSY || err == EINVAL)
		return frl_fail(-EBUSY,
			"memory windows are bound to the memory region: invalidate them first");
	return verbs_fail(err, "%s: cannot deregister memory", device->name);
}

int verbs_mw_alloc(struct frl_mw *base)
{
	struct verbs_mw *mw = verbs_mw(base);
	const char *name = device_of_pd(base->pd)->name;

	errno = 0;
	mw->mw = ibv_alloc_mw(verbs_pd(base->pd)->pd, IBV_MW_TYPE_2);
	if (!mw->mw)
		return verbs_fail(verbs_null_errno(), "%s: no memory window of type 2", name);
	atomic_init(&mw->rkey, mw->mw->rkey);
	return 0;
}

void verbs_mw_dealloc(struct frl_mw *base)
{
	int rc = ibv_dealloc_mw(verbs_mw(base)->mw);

	verbs_destroyed(
		device_of_pd(base->pd), verbs_pd(base->pd), rc, "cannot free a memory window");
}

uint32_t verbs_mw_rkey(struct frl_mw *base)
{
	return atomic_load_explicit(&verbs_mw(base)->rkey, memory_order_relaxed);
}
