/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Protection domains and memory regions. Any memory of the process can be registered, as often as
 * needed and overlapping; registering never copies or moves it. Any thread.
 */
#ifndef FERRULE_MEMORY_H
#define FERRULE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include <ferrule/error.h>
#include <ferrule/gpu.h>
#include <ferrule/queue.h>

#ifdef __cplusplus
extern "C" {
#endif

struct frl_mr;
struct frl_mw;

/* A protection domain: queue pairs reach the memory of their own domain only. -ENOMEM. */
FRL_API int frl_pd_create(struct frl_device *device, struct frl_pd **ret_pd);

/* -EBUSY while it has queue pairs, shared receive queues, memory regions or windows, or address
 * handles. NULL is fine. */
FRL_API int frl_pd_destroy(struct frl_pd *pd);

/*
 * Registers [addr, addr + length) for work requests, and for the peer as far as `access` (enum
 * frl_access) allows. The memory must stay mapped until the region is gone. Keys have random bits,
 * and a key is not reused soon after its region went. `length` 0 is refused. Remote write and
 * atomic rights need LOCAL_WRITE.
 * Memory of a GPU, in the process that allocated it, is registered by its device pointer, in the
 * best way that there is: frl_mr_query() tells which and why. It must not be freed before the
 * region is gone (no driver refuses that: what a NIC writes then goes to whoever has the memory),
 * nor may its context end (cuCtxDestroy(), cudaDeviceReset()): NVIDIA does not define what a call
 * into one that is gone does. A cache may hold regions too: frl_mr_cache_trim() first. Memory of
 * cuMemMap() needs its rights before (cuMemSetAccess()), LOCAL_WRITE that to write.
 * Refused (-ENOTSUP) are managed memory, REMOTE_ATOMIC and MW_BIND on a software device, and what
 * no way leads to, all with the reason.
 * -EINVAL, -ENOMEM, -ENOSPC (no room for another one), or what the port cannot do, with the reason
 * in frl_last_error().
 */
FRL_API int frl_reg_mr(
	struct frl_pd *pd, void *addr, size_t length, uint32_t access, struct frl_mr **ret_mr);

/* The same, but in work requests, local ones and the peer's, the region starts at address `iova`,
 * which with hardware is as far into a page as `addr`.
 * With REMOTE_ATOMIC or MW_BIND that differs from `addr` by a multiple of 8. */
FRL_API int frl_reg_mr_iova(struct frl_pd *pd, void *addr, size_t length, uint64_t iova,
	uint32_t access, struct frl_mr **ret_mr);

/*
 * Registers part of a dma-buf: memory of another device, such as a GPU, that a NIC reads and writes
 * itself. `offset` and `length` are within the buffer; in work requests it starts at `iova`. The
 * descriptor may be closed afterwards. -EINVAL; -ENOTSUP: the device, its driver or the kernel
 * cannot; else as frl_reg_mr(). ibv_reg_dmabuf_mr(3).
 */
FRL_API int frl_reg_dmabuf_mr(struct frl_pd *pd, int fd, uint64_t offset, size_t length,
	uint64_t iova, uint32_t access, struct frl_mr **ret_mr);

enum frl_rereg_flags {
	FRL_REREG_TRANSLATION = 1 << 0, /* addr, length; the region then starts at addr (no iova) */
	FRL_REREG_PD = 1 << 1,          /* another protection domain of the device */
	FRL_REREG_ACCESS = 1 << 2,
};

/*
 * Changes a region; what `flags` does not name stays, and after a failure everything does, unless
 * the sentence says that the region is of no use any more: that is with hardware alone, and leaves
 * only frl_dereg_mr(). A software device keeps its keys, hardware may give others: ask for them
 * again. -EBUSY as frl_dereg_mr(); -ENOTSUP: the device cannot, register anew; -EINVAL: also of a
 * cache's region; -EIO: it was of no use before. ibv_rereg_mr(3).
 */
FRL_API int frl_rereg_mr(struct frl_mr *mr, uint32_t flags, struct frl_pd *pd, void *addr,
	size_t length, uint32_t access);

/*
 * Ends a registration. Work requests and peers that use the keys afterwards get access errors.
 * -EBUSY while packets that refer to the memory are still in a NIC's queue (try again), and while
 * memory windows are bound to it. -EINVAL: the region is a cache's. NULL is fine.
 */
FRL_API int frl_dereg_mr(struct frl_mr *mr);

FRL_API uint32_t frl_mr_lkey(const struct frl_mr *mr);
FRL_API uint32_t frl_mr_rkey(const struct frl_mr *mr);

/* How a region is reached. */
struct frl_mr_attr {
	enum frl_mr_tier tier;
	/* CUDA's number of the device that has the memory; -1: none, or (of frl_reg_dmabuf_mr())
	 * nobody has said which. */
	int gpu;
	/* Bytes: of what was registered with the NIC, which may be more than was asked for; 1 where
	 * nothing is rounded. */
	uint32_t alignment;
	bool needs_flush; /* kernels that run already see what arrives after frl_mr_flush() only */
	char reason[256]; /* why not by a better way; "" if there is none */
};

/* Any thread. */
FRL_API void frl_mr_query(const struct frl_mr *mr, struct frl_mr_attr *ret_attr);

/*
 * What has completed before this call is seen by GPU kernels that were running already. A kernel
 * that is launched after the completion sees it in any case. Nothing where needs_flush is false.
 * -EIO. NVIDIA, GPUDirect RDMA, "Synchronization and Memory Ordering".
 */
FRL_API int frl_mr_flush(struct frl_mr *mr);

/*
 * A cache of registrations, for who is given the same buffers again and again: registering takes a
 * NIC tens of microseconds and more. A region stays registered after its last user has put it back,
 * until its memory is unmapped, moved or given back (madvise(2)), by whatever code of the process,
 * or others need its place. That is found out by userfaultfd(2).
 *
 * Kept is private anonymous memory (malloc(), mmap(), huge pages), frl_mem_alloc()'s, and that of
 * GPUs: whether that is what it was, the driver says each time. GPU memory that was freed may stay
 * taken while a region of it is kept: that ends by and by, when other memory is registered, or by
 * frl_mr_cache_trim(). All else
 * is registered for as long as it is used, and no longer: files, also those in memory, and shared
 * memory, since others can take the pages away without a word; devices; everything on systems
 * without userfaultfd(2). Memory of which pages were given back is kept again 0.1 s later: they go
 * some time after the kernel has told of it.
 *
 * The kernel does not tell of shmat() with SHM_REMAP, of remap_file_pages(), and of guard pages
 * (MADV_GUARD_INSTALL): nobody may do these to memory while the cache keeps it. While it does,
 * another userfaultfd cannot have that memory (UFFDIO_REGISTER: EBUSY); of memory that another one
 * has already nothing is kept. Each region that is kept may take two of the vm.max_map_count
 * mappings of the process.
 *
 * Any thread, but no signal handlers. In a child after fork() a cache is of no use, as its device.
 */
struct frl_mr_cache;

struct frl_mr_cache_config {
	uint32_t max_regions; /* that are kept though nobody uses them; 0: 1024 */
	/* The same; that of GPUs does not count. UINT64_MAX: no limit. 0: a quarter of what the
	 * process may lock (RLIMIT_MEMLOCK) or, if that is not limited for it, of the machine's
	 * memory; at least 4 MiB. */
	uint64_t max_bytes;
};

struct frl_mr_cache_stats {
	uint64_t hits, misses;
	uint64_t evicted;     /* to make room, or by frl_mr_cache_trim() */
	uint64_t invalidated; /* their memory was unmapped, moved or given back */
	uint64_t unwatched;   /* of the misses: cannot be kept, or not at that moment */
	uint64_t deregistered;
};

/* `config` NULL: the defaults. -EINVAL, -ENOMEM. Where nothing can be kept the first call logs why,
 * and what to do. */
FRL_API int frl_mr_cache_create(struct frl_pd *pd, const struct frl_mr_cache_config *config,
	struct frl_mr_cache **ret_cache);

/* -EBUSY: regions of it are in use, or cannot be deregistered yet. NULL is fine. */
FRL_API int frl_mr_cache_destroy(struct frl_mr_cache *cache);

/*
 * A region that covers [addr, addr + length), one that there is, or a new one. With remote rights
 * it is exactly this, with exactly these rights; without, it may cover more (whole pages), and have
 * more rights: its rkey is for nobody. If it cannot be registered, others that nobody uses make
 * room. It is the cache's: frl_rereg_mr() and frl_dereg_mr() refuse it. The memory must stay as it
 * is during the call. Errors as frl_reg_mr().
 */
FRL_API int frl_mr_cache_get(struct frl_mr_cache *cache, void *addr, size_t length, uint32_t access,
	struct frl_mr **ret_mr);

/* Its user needs it no more; nothing that refers to it is under way. What is not of this cache, or
 * not in use, stays as it is, and that is logged. */
FRL_API void frl_mr_cache_put(struct frl_mr_cache *cache, struct frl_mr *mr);

/* Deregisters all that nobody uses. That happens by itself, in all caches of the process, when
 * something is registered or made and no more may be pinned. To be called before a CUDA context
 * ends in which memory of regions lies. NULL is fine. */
FRL_API void frl_mr_cache_trim(struct frl_mr_cache *cache);

FRL_API void frl_mr_cache_query(struct frl_mr_cache *cache, struct frl_mr_cache_stats *ret_stats);

/*
 * Memory windows of type 2 (bound to a region and a queue pair by FRL_WR_BIND_MW, invalidated by
 * FRL_WR_LOCAL_INV or by the peer's SEND_WITH_INV; the low byte of the key is the user's). A new
 * window is not bound, nor is one whose queue pair was reset or destroyed. IBTA volume 1, 10.6.7.2.
 * -EINVAL, -ENOMEM, -ENOSPC.
 */
FRL_API int frl_mw_alloc(struct frl_pd *pd, struct frl_mw **ret_mw);
/* Ends the window, bound or not. NULL is fine. */
FRL_API void frl_mw_dealloc(struct frl_mw *mw);
/* The key of the last bind, or a first one to derive others from. */
FRL_API uint32_t frl_mw_rkey(struct frl_mw *mw);

/* The next of the 256 keys of a window. */
static inline uint32_t frl_inc_rkey(uint32_t rkey)
{
	return (rkey & 0xffffff00u) | ((rkey + 1) & 0xffu);
}

/*
 * Page-aligned, zeroed memory that every port can use without a copy. On the local fabric a peer
 * reads what is sent from such memory in place, out of this process, once the memory is registered:
 * it is the fastest memory to send from. Peers can then read the whole allocation, and only read
 * (FRL_IN_PLACE=0 turns this off). Payload is copied as long as more than 256 MiB of the allocation
 * were never touched. It is
 * shared memory: after fork() parent and child have the same pages. NULL with frl_last_error() when
 * there is none. Free with frl_mem_free and the same size.
 *
 * Pages come when they are touched first, as those of malloc() do: large sparse memory costs
 * nothing, and a kernel or memory cgroup that has run out of memory kills a process then. With
 * vm.overcommit_memory=2 all pages are reserved here, or the call fails. The size must not exceed
 * RLIMIT_FSIZE (ulimit -f), which shared memory counts for.
 */
FRL_API void *frl_mem_alloc(size_t size);
FRL_API void frl_mem_free(void *addr, size_t size);

#ifdef __cplusplus
}
#endif
#endif
