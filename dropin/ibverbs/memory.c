/* SPDX-License-Identifier: BSD-3-Clause */
/* Protection domains, memory regions and memory windows. */
#include <errno.h>
#include <stdlib.h>

#include "dropin/ibverbs/dropin.h"

/* ---- protection domains */

static struct dropin_pd *new_pd(struct ibv_context *ibv)
{
	struct dropin_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return NULL;
	pd->ibv.context = ibv;
	pd->process = process_now();
	return pd;
}

struct frl_pd *pd_use(struct ibv_pd *ibv)
{
	atomic_fetch_add(&dropin_pd(ibv)->children, 1);
	return dropin_pd(ibv)->frl;
}

void pd_unuse(struct ibv_pd *ibv)
{
	atomic_fetch_sub(&dropin_pd(ibv)->children, 1);
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ibv)
{
	struct dropin_pd *pd = new_pd(ibv);
	int rc;

	if (!pd)
		return NULL;
	rc = frl_pd_create(dropin_context(ibv)->frl, &pd->frl);
	if (!rc)
		return &pd->ibv;
	free(pd);
	dropin_errno(rc);
	return NULL;
}

int ibv_dealloc_pd(struct ibv_pd *ibv)
{
	struct dropin_pd *pd = dropin_pd(ibv);
	int rc;

	if (pd->process != process_now())
		return 0;
	if (atomic_load(&pd->children))
		return dropin_refuse(EBUSY, "objects still use the protection domain");
	if (pd->parent) {
		atomic_fetch_sub(&pd->parent->children, 1);
		free(pd);
		return 0;
	}
	rc = frl_pd_destroy(pd->frl);
	if (rc)
		return dropin_errno(rc);
	free(pd);
	return 0;
}

struct ibv_pd *alloc_parent_domain(
	struct ibv_context *ibv, struct ibv_parent_domain_init_attr *attr)
{
	struct dropin_pd *pd;

	if (!attr->pd || (attr->comp_mask & ~(uint32_t)IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)) {
		dropin_refuse(attr->pd ? EOPNOTSUPP : EINVAL,
			"ibv_alloc_parent_domain: a domain is required, and allocators are not "
			"supported");
		return NULL;
	}
	pd = new_pd(ibv);
	if (!pd)
		return NULL;
	pd->parent = dropin_pd(attr->pd);
	pd->frl = pd->parent->frl;
	atomic_fetch_add(&pd->parent->children, 1);
	return &pd->ibv;
}

/* Thread domains promise that one thread uses the objects: nothing depends on that. */
struct ibv_td *alloc_td(struct ibv_context *ibv, struct ibv_td_init_attr *attr)
{
	struct ibv_td *td;

	if (attr->comp_mask) {
		dropin_refuse(EINVAL, "ibv_alloc_td: unknown bits in comp_mask");
		return NULL;
	}
	td = calloc(1, sizeof(*td));
	if (td)
		td->context = ibv;
	return td;
}

int dealloc_td(struct ibv_td *td)
{
	free(td);
	return 0;
}

/* ---- memory regions */

/* Drops what is only a hint. Memory may be unmapped without ibv_dereg_mr(), as with a NIC. Returns
 * an errno. */
static int access_to_frl(unsigned access, uint32_t *ret_access)
{
	const unsigned rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

	if (access & IBV_ACCESS_ON_DEMAND)
		return dropin_refuse(EOPNOTSUPP, "on-demand paging is not supported");
	if (access &
		~(rights | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE))
		return dropin_refuse(EINVAL, "unknown access flags");
	*ret_access = (access & rights) | FRL_ACCESS_MAY_UNMAP;
	return 0;
}

static struct ibv_mr *reg(
	struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	struct dropin_mr *mr;
	uint32_t rights = 0;
	int rc;

	if (access_to_frl(access, &rights))
		return NULL;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;
	rc = frl_reg_mr_iova(pd_use(pd), addr, length, iova, rights, &mr->frl);
	if (rc) {
		pd_unuse(pd);
		free(mr);
		dropin_errno(rc);
		return NULL;
	}
	mr->process = process_now();
	mr->ibv = (struct ibv_mr){
		.context = pd->context,
		.pd = pd,
		.addr = addr,
		.length = length,
		.lkey = frl_mr_lkey(mr->frl),
		.rkey = frl_mr_rkey(mr->frl),
	};
	return &mr->ibv;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	bool zero_based = access & IBV_ACCESS_ZERO_BASED;

	return reg(pd, addr, length, zero_based ? 0 : (uintptr_t)addr, (unsigned)access);
}

#undef ibv_reg_mr_iova
struct ibv_mr *ibv_reg_mr_iova(
	struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return reg(pd, addr, length, iova, (unsigned)access);
}

/* NCCL asks whether it exists by a call without a domain. */
struct ibv_mr *ibv_reg_mr_iova2(
	struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	if (!pd) {
		dropin_refuse(EINVAL, "ibv_reg_mr_iova2: a protection domain is required");
		return NULL;
	}
	return reg(pd, addr, length, access & IBV_ACCESS_ZERO_BASED ? 0 : iova, access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(
	struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	dropin_refuse(EOPNOTSUPP, "a device in software does not reach memory of a dma-buf");
	return NULL;
}

/* The keys stay. After the error IBV_REREG_MR_ERR_INPUT the region is as before. */
int ibv_rereg_mr(
	struct ibv_mr *ibv, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct dropin_mr *mr = dropin_mr(ibv);
	uint32_t rights = 0;
	int rc;

	if ((flags & IBV_REREG_MR_CHANGE_ACCESS) && access_to_frl((unsigned)access, &rights))
		return IBV_REREG_MR_ERR_INPUT;
	rc = frl_rereg_mr(
		mr->frl, (uint32_t)flags, pd ? dropin_pd(pd)->frl : NULL, addr, length, rights);
	if (rc) {
		dropin_errno(rc);
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		pd_use(pd);
		pd_unuse(ibv->pd);
		ibv->pd = pd;
	}
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		ibv->addr = addr;
		ibv->length = length;
	}
	ibv->lkey = frl_mr_lkey(mr->frl);
	ibv->rkey = frl_mr_rkey(mr->frl);
	return 0;
}

int ibv_dereg_mr(struct ibv_mr *ibv)
{
	struct dropin_mr *mr = dropin_mr(ibv);
	int rc;

	if (mr->process != process_now())
		return 0;
	rc = frl_dereg_mr(mr->frl);
	if (rc)
		return dropin_errno(rc);
	pd_unuse(ibv->pd);
	free(mr);
	return 0;
}

/* ---- memory windows */

struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct dropin_mw *mw;
	int rc;

	if (type != IBV_MW_TYPE_2) {
		dropin_refuse(EOPNOTSUPP, "memory windows of type 1 are not supported");
		return NULL;
	}
	mw = calloc(1, sizeof(*mw));
	if (!mw)
		return NULL;
	rc = frl_mw_alloc(pd_use(pd), &mw->frl);
	if (rc) {
		pd_unuse(pd);
		free(mw);
		dropin_errno(rc);
		return NULL;
	}
	mw->process = process_now();
	mw->ibv = (struct ibv_mw){
		.context = pd->context,
		.pd = pd,
		.rkey = frl_mw_rkey(mw->frl),
		.type = type,
	};
	return &mw->ibv;
}

int dealloc_mw(struct ibv_mw *ibv)
{
	struct dropin_mw *mw = dropin_mw(ibv);

	if (mw->process != process_now())
		return 0;
	frl_mw_dealloc(mw->frl);
	pd_unuse(ibv->pd);
	free(mw);
	return 0;
}

/* Windows of type 2 are bound by requests. */
int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	return dropin_refuse(EOPNOTSUPP, "ibv_bind_mw: memory windows of type 1 are not supported");
}
