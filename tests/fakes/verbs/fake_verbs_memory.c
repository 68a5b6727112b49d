/* SPDX-License-Identifier: BSD-3-Clause */
/* The libibverbs in memory: protection domains, regions, windows and address handles. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/fakes/cuda/fake_libcuda.h"
#include "tests/fakes/verbs/fake_verbs_internal.h"

/* The header has them as macros around internal functions. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

enum {
	REMOTE_CHANGES = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	KNOWN_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
		IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB,
};

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct fake_context *of = fake_context_of(context);
	struct fake_pd *pd = fake_make(__func__, FAKE_VERBS_PD, sizeof(*pd), of->object.device, of);

	if (!pd)
		return NULL;
	pd->ibv.context = context;
	pd->ibv.handle = ++of->object.device->next_handle;
	fake_leave();
	return &pd->ibv;
}

int ibv_dealloc_pd(struct ibv_pd *ibv)
{
	struct fake_pd *pd = FAKE_OF(struct fake_pd, ibv, ibv);
	int err = fake_destroy(__func__, &pd->object);

	return err != 0 ? err : fake_destroyed(&pd->object);
}

/* --- Regions */

/* Whether all pages of this memory exist, as pinning finds out. */
static bool is_mapped(const uint8_t *base, uint64_t length)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t at = (uintptr_t)base & ~(page - 1), end = (uintptr_t)base + length;
	unsigned char pages[1024];

	for (; at < end; at += sizeof(pages) * page) {
		size_t part = end - at < sizeof(pages) * page ? end - at : sizeof(pages) * page;

		if (mincore((void *)at, part, pages) != 0)
			return false;
	}
	return true;
}

/* Memory that the processor cannot read is a GPU's, or nobody's. NULL: it is not pinned. */
static uint8_t *find_memory(const struct fake_device *device, uint8_t *base, uint64_t length)
{
	const struct fake_cuda *cuda;
	uint8_t byte;
	struct iovec to = { .iov_base = &byte, .iov_len = 1 };
	struct iovec from = { .iov_base = base, .iov_len = 1 };

	if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1)
		return base;
	cuda = device->is.has_peermem ? fake_cuda_find() : NULL;
	return cuda ? cuda->look((uintptr_t)base, length) : NULL;
}

/* Checks a region. Returns an errno value, or 0. */
static int check_region(const struct fake_device *device, const struct fake_mr *mr)
{
	bool on_demand = mr->access & IBV_ACCESS_ON_DEMAND;

	if ((mr->access & ~(unsigned)(KNOWN_ACCESS | IBV_ACCESS_OPTIONAL_RANGE)) != 0 ||
		(mr->access & IBV_ACCESS_ZERO_BASED) != 0)
		return EINVAL;
	if ((mr->access & REMOTE_CHANGES) && !(mr->access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	if (on_demand && !(device->is.odp.general_caps & IBV_ODP_SUPPORT))
		return EOPNOTSUPP;
	if (on_demand && !mr->base && mr->length == UINT64_MAX)
		return device->is.odp.general_caps & IBV_ODP_SUPPORT_IMPLICIT ? 0 : EOPNOTSUPP;
	if (mr->length == 0 || mr->length > device->is.attr.max_mr_size ||
		(uintptr_t)mr->base + mr->length < (uintptr_t)mr->base ||
		mr->iova + mr->length < mr->iova)
		return EINVAL;
	if (!on_demand && !is_mapped(mr->base, mr->length))
		return EFAULT;
	if (mr->pinned > device->is.memlock - device->pinned)
		return ENOMEM;
	return 0;
}

static void give_keys(struct fake_mr *mr)
{
	struct fake_device *device = mr->object.device;

	mr->ibv.lkey = device->next_key++ << 8;
	/* As with most providers there is an rkey even without remote rights. */
	mr->ibv.rkey = mr->ibv.lkey | UINT32_C(0x80000000);
}

/* `wants` has base, length, iova, access and map. */
static struct ibv_mr *reg(const char *function, struct ibv_pd *pd, const struct fake_mr *wants)
{
	struct fake_pd *of = FAKE_OF(struct fake_pd, ibv, pd);
	struct fake_device *device = of->object.device;
	struct fake_mr *mr = fake_make(
		function, FAKE_VERBS_MR, sizeof(*mr), device, of->object.context);
	int err;

	if (!mr)
		return NULL;
	mr->base = wants->base;
	mr->length = wants->length;
	mr->iova = wants->iova;
	mr->access = wants->access;
	if (!device->is.has_iova2)
		mr->access &= ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;
	mr->pinned = wants->map || (mr->access & IBV_ACCESS_ON_DEMAND) ? 0 : mr->length;
	err = fake_world.live[FAKE_VERBS_MR] > (unsigned)device->is.attr.max_mr
		? ENOMEM
		: check_region(device, mr);
	if (err == 0 && !(mr->access & IBV_ACCESS_ON_DEMAND)) {
		mr->base = find_memory(device, mr->base, mr->length);
		err = mr->base ? 0 : EFAULT;
	}
	if (err != 0)
		return fake_unmake(&mr->object, err);
	mr->map = wants->map;
	mr->map_length = wants->map_length;
	device->pinned += mr->pinned;
	of->object.n_users++;
	mr->ibv.context = pd->context;
	mr->ibv.pd = pd;
	mr->ibv.addr = wants->map ? NULL : wants->base;
	mr->ibv.length = mr->length;
	mr->ibv.handle = ++device->next_handle;
	give_keys(mr);
	fake_leave();
	return &mr->ibv;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return reg(__func__, pd,
		&(struct fake_mr){ .base = addr,
			.length = length,
			.iova = (uintptr_t)addr,
			.access = (unsigned)access });
}

struct ibv_mr *ibv_reg_mr_iova(
	struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return reg(__func__, pd,
		&(struct fake_mr){
			.base = addr, .length = length, .iova = iova, .access = (unsigned)access });
}

struct ibv_mr *ibv_reg_mr_iova2(
	struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	return reg(__func__, pd,
		&(struct fake_mr){
			.base = addr, .length = length, .iova = iova, .access = access });
}

/* Returns the offset of a dma-buf in its file: 0, or the descriptor's position for dma-bufs of
 * tests/fakes/cuda. */
static off_t dmabuf_start(int fd)
{
	char path[64], target[64] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, target, sizeof(target) - 1) < 0 ||
		strncmp(target, "/memfd:fake-cuda", 16) != 0)
		return 0;
	return lseek(fd, 0, SEEK_CUR);
}

struct ibv_mr *ibv_reg_dmabuf_mr(
	struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	struct fake_device *device = FAKE_OF(struct fake_pd, ibv, pd)->object.device;
	uint64_t into = offset % (uint64_t)sysconf(_SC_PAGESIZE);
	struct fake_mr wants = { .length = length, .iova = iova, .access = (unsigned)access };
	struct ibv_mr *mr;

	if (!device->is.has_dmabuf) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	wants.map_length = length + into;
	wants.map = mmap(NULL, wants.map_length, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		dmabuf_start(fd) + (off_t)(offset - into));
	if (wants.map == MAP_FAILED) {
		errno = EBADF;
		return NULL;
	}
	wants.base = (uint8_t *)wants.map + into;
	mr = reg(__func__, pd, &wants);
	if (!mr) {
		int err = errno;

		munmap(wants.map, wants.map_length);
		errno = err;
	}
	return mr;
}

int ibv_rereg_mr(
	struct ibv_mr *ibv, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct fake_mr *mr = FAKE_OF(struct fake_mr, ibv, ibv), wants = *mr;
	struct fake_device *device = mr->object.device;
	int err = fake_enter(__func__, FAKE_CALL_MAKES, device), said = 0;

	if (err == IBV_REREG_MR_ERR_DO_FORK_OLD) {
		said = err;
		err = fake_enter(__func__, FAKE_CALL_MAKES, device);
	}
	if (err != 0) {
		errno = err > 0 ? err : ENOMEM;
		return err > 0 ? IBV_REREG_MR_ERR_CMD : err;
	}
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		wants.base = addr;
		wants.iova = (uintptr_t)addr;
		wants.length = wants.pinned = length;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		wants.access = (unsigned)access;
	device->pinned -= mr->pinned;
	err = flags == 0 || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0 || mr->map
		? EINVAL
		: check_region(device, &wants);
	if (err == 0) {
		mr->base = wants.base;
		mr->iova = wants.iova;
		mr->length = wants.length;
		mr->pinned = wants.pinned;
		mr->access = wants.access;
		ibv->addr = wants.base;
		ibv->length = wants.length;
		give_keys(mr);
	}
	if (err == 0 && (flags & IBV_REREG_MR_CHANGE_PD)) {
		FAKE_OF(struct fake_pd, ibv, ibv->pd)->object.n_users--;
		FAKE_OF(struct fake_pd, ibv, pd)->object.n_users++;
		ibv->pd = pd;
	}
	device->pinned += mr->pinned;
	fake_leave();
	errno = err != 0 ? err : errno;
	return err != 0 ? IBV_REREG_MR_ERR_INPUT : said;
}

int ibv_dereg_mr(struct ibv_mr *ibv)
{
	struct fake_mr *mr = FAKE_OF(struct fake_mr, ibv, ibv);
	int err = fake_destroy(__func__, &mr->object);

	if (err != 0)
		return err;
	mr->object.device->pinned -= mr->pinned;
	FAKE_OF(struct fake_pd, ibv, ibv->pd)->object.n_users--;
	return fake_destroyed(&mr->object);
}

/* --- Keys */

static uint8_t *in_region(const struct fake_mr *mr, uint64_t addr, uint64_t length)
{
	if (addr < mr->iova || length > mr->length || addr - mr->iova > mr->length - length)
		return NULL;
	/* Implicit ODP begins at address 0, where no array can be. */
	return (uint8_t *)((uintptr_t)mr->base + (addr - mr->iova));
}

static struct fake_mr *find_mr(const struct fake_device *device, uint32_t key, bool is_remote)
{
	struct fake_object *at = NULL;

	while ((at = fake_next(FAKE_VERBS_MR, at)) != NULL) {
		struct fake_mr *mr = (struct fake_mr *)at;

		if (at->device == device && (is_remote ? mr->ibv.rkey : mr->ibv.lkey) == key)
			return mr;
	}
	return NULL;
}

uint8_t *fake_verbs_memory(const char *name, uint32_t lkey, uint64_t addr)
{
	uint8_t *found = NULL;
	struct fake_device *device;
	struct fake_mr *mr;

	fake_enter_always(__func__);
	device = fake_find_device(name);
	mr = device ? find_mr(device, lkey, false) : NULL;
	if (mr)
		found = in_region(mr, addr, 1);
	fake_leave();
	return found;
}

static struct fake_mw *find_mw(const struct fake_device *device, uint32_t rkey)
{
	struct fake_object *at = NULL;

	while ((at = fake_next(FAKE_VERBS_MW, at)) != NULL)
		if (at->device == device && ((struct fake_mw *)at)->ibv.rkey == rkey)
			return (struct fake_mw *)at;
	return NULL;
}

int fake_spans(struct fake_span spans[FAKE_MAX_SGE], const struct fake_pd *pd,
	const struct ibv_sge *sges, int n, unsigned access)
{
	for (int i = 0; i < n; i++) {
		struct fake_mr *mr = find_mr(pd->object.device, sges[i].lkey, false);

		spans[i] = (struct fake_span){ NULL, sges[i].length };
		if (sges[i].length == 0)
			continue;
		if (!mr || mr->ibv.pd != &pd->ibv || (mr->access & access) != access)
			return -1;
		spans[i].data = in_region(mr, sges[i].addr, sges[i].length);
		if (!spans[i].data)
			return -1;
	}
	return n;
}

uint8_t *fake_remote(
	const struct fake_qp *qp, uint32_t rkey, uint64_t addr, uint64_t length, unsigned access)
{
	struct fake_mw *mw = find_mw(qp->object.device, rkey);
	struct fake_mr *mr = mw ? mw->mr : find_mr(qp->object.device, rkey, true);
	unsigned given;

	if (!mr || mr->ibv.pd != qp->ibv.pd)
		return NULL;
	given = mw ? mw->access : mr->access;
	if ((given & access) != access)
		return NULL;
	if (mw &&
		(mw->qp != qp || addr < mw->addr || length > mw->length ||
			addr - mw->addr > mw->length - length))
		return NULL;
	return in_region(mr, addr, length);
}

/* Writes in ascending order as NICs do: some readers watch it (NCCL's LL128). */
static void copy(uint8_t *to, const uint8_t *from, uint64_t length)
{
	uint64_t at = 0;

	if (to < from + length && from < to + length) {
		memmove(to, from, length);
		return;
	}
	for (; length - at >= sizeof(uint64_t); at += sizeof(uint64_t)) {
		memcpy(to + at, from + at, sizeof(uint64_t));
		atomic_thread_fence(memory_order_release);
	}
	memcpy(to + at, from + at, length - at);
}

void fake_copy(const struct fake_span *to, int n_to, const struct fake_span *from, int n_from)
{
	uint64_t at = 0, taken = 0;

	while (n_to > 0 && n_from > 0) {
		uint64_t room = to->length - at, left = from->length - taken;
		uint64_t part = room < left ? room : left;

		if (part > 0)
			copy(to->data + at, from->data + taken, part);
		at += part;
		taken += part;
		if (at == to->length) {
			to++;
			n_to--;
			at = 0;
		}
		if (taken == from->length) {
			from++;
			n_from--;
			taken = 0;
		}
	}
}

/* --- Windows */

bool fake_mw_bind(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;
	struct fake_mw *mw = FAKE_OF(struct fake_mw, ibv, wr->bind_mw.mw);
	struct fake_mr *mr;

	/* A window of type 2 must be free, and each binding has a tag of its own. */
	if (mw->mr || mw->ibv.pd != qp->ibv.pd || !info->mr || info->length == 0 ||
		(wr->bind_mw.rkey ^ mw->ibv.rkey) >> 8 != 0 || wr->bind_mw.rkey == mw->ibv.rkey)
		return false;
	mr = FAKE_OF(struct fake_mr, ibv, info->mr);
	if (mr->ibv.pd != qp->ibv.pd || !(mr->access & IBV_ACCESS_MW_BIND) ||
		((info->mw_access_flags & REMOTE_CHANGES) &&
			!(mr->access & IBV_ACCESS_LOCAL_WRITE)) ||
		!in_region(mr, info->addr, info->length))
		return false;
	mw->mr = mr;
	mr->object.n_users++;
	mw->qp = qp;
	mw->addr = info->addr;
	mw->length = info->length;
	mw->access = info->mw_access_flags;
	mw->ibv.rkey = wr->bind_mw.rkey;
	return true;
}

static void unbind(struct fake_mw *mw)
{
	mw->mr->object.n_users--;
	mw->mr = NULL;
	mw->qp = NULL;
}

/* Only windows: user space has no regions that can be invalidated. */
bool fake_invalidate(struct fake_qp *qp, uint32_t rkey)
{
	struct fake_mw *mw = find_mw(qp->object.device, rkey);

	if (!mw || !mw->mr || mw->qp != qp)
		return false;
	unbind(mw);
	return true;
}

void fake_windows_forget(const struct fake_qp *qp)
{
	struct fake_object *at = NULL;

	while ((at = fake_next(FAKE_VERBS_MW, at)) != NULL)
		if (((struct fake_mw *)at)->qp == qp)
			unbind((struct fake_mw *)at);
}

/* --- Address handles */

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct fake_pd *of = FAKE_OF(struct fake_pd, ibv, pd);
	struct fake_ah *ah = fake_make(
		__func__, FAKE_VERBS_AH, sizeof(*ah), of->object.device, of->object.context);
	int err;

	if (!ah)
		return NULL;
	err = fake_world.live[FAKE_VERBS_AH] > (unsigned)of->object.device->is.attr.max_ah
		? ENOMEM
		: fake_check_path(of->object.device, attr);
	if (err != 0)
		return fake_unmake(&ah->object, err);
	of->object.n_users++;
	ah->ibv.context = pd->context;
	ah->ibv.pd = pd;
	ah->ibv.handle = ++of->object.device->next_handle;
	ah->attr = *attr;
	fake_leave();
	return &ah->ibv;
}

int ibv_destroy_ah(struct ibv_ah *ibv)
{
	struct fake_ah *ah = FAKE_OF(struct fake_ah, ibv, ibv);
	int err = fake_destroy(__func__, &ah->object);

	if (err != 0)
		return err;
	FAKE_OF(struct fake_pd, ibv, ibv->pd)->object.n_users--;
	return fake_destroyed(&ah->object);
}
