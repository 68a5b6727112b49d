/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Protection domains and memory regions. Any memory of the process can be registered, as often as
 * needed and overlapping. Registration never copies or moves memory.
 *
 * Threads: any thread may call these functions.
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

/*
 * Creates a protection domain. A queue pair can access only memory of its own domain. Destroy it
 * with frl_pd_destroy(). Returns -ENOMEM on failure.
 */
FRL_API int frl_pd_create(struct frl_device *device, struct frl_pd **ret_pd);

/*
 * Destroys a protection domain. NULL is fine. Returns -EBUSY while the domain has queue pairs,
 * shared receive queues, memory regions, memory windows or address handles.
 */
FRL_API int frl_pd_destroy(struct frl_pd *pd);

/*
 * Registers [addr, addr + length) for work requests, and for the peer with the rights of `access`
 * (enum frl_access). The memory must stay mapped until frl_dereg_mr(), except as below. `length`
 * must not be 0. Remote write and atomic rights need LOCAL_WRITE. Keys have random bits, and a key
 * is not reused soon.
 *
 * With FRL_ACCESS_MAY_UNMAP a program may unmap the memory, or a part of it, before
 * frl_dereg_mr(). The whole region then allows nothing, as if it were deregistered: requests in
 * flight complete with FRL_WC_LOC_PROT_ERR, later ones are refused, and those of peers complete
 * with FRL_WC_REM_ACCESS_ERR. Pages may be given back (madvise(2)) at any time. Files, and all
 * memory on systems without userfaultfd(2), are not watched: the region fails when an address is
 * used that is not mapped, and other memory that was mapped there meanwhile is accessed. The first
 * such region installs a handler for SIGSEGV and SIGBUS, which passes all signals of the
 * application on to the handler that was there before. A handler that is installed later must do
 * the same, and threads that call the library must not block the two. A NIC pins the memory and
 * ignores the flag. GPU memory is not watched.
 *
 * GPU memory is registered by its device pointer, in the process that allocated it. frl_mr_query()
 * returns the access method and why it was chosen. Deregister the region before you free the
 * memory: no driver refuses the free, and a NIC would then write to the next owner's memory.
 * Deregister also before the context ends (cuCtxDestroy(), cudaDeviceReset()): calls into a
 * destroyed context are undefined. A cache may hold regions too: call frl_mr_cache_trim() first.
 * Memory of cuMemMap() needs its access rights before (cuMemSetAccess()); LOCAL_WRITE needs the
 * right to write.
 *
 * Returns -ENOTSUP for managed memory, for REMOTE_ATOMIC and MW_BIND of GPU memory on a software
 * device, and if no access method works. Other errors are -EINVAL, -ENOMEM, -ENOSPC (too many
 * regions) and errors of the port. frl_last_error() has the reason.
 */
FRL_API int frl_reg_mr(
	struct frl_pd *pd, void *addr, size_t length, uint32_t access, struct frl_mr **ret_mr);

/*
 * Registers memory that starts at address `iova` in local and remote work requests. Hardware
 * requires the same offset within a page for `iova` and `addr`. With REMOTE_ATOMIC or MW_BIND the
 * two must differ by a multiple of 8. Otherwise as frl_reg_mr().
 */
FRL_API int frl_reg_mr_iova(struct frl_pd *pd, void *addr, size_t length, uint64_t iova,
	uint32_t access, struct frl_mr **ret_mr);

/*
 * Registers part of a dma-buf: memory of another device, such as a GPU, that a NIC reads and writes
 * directly. `offset` and `length` are within the buffer. The region starts at `iova` in work
 * requests. The descriptor may be closed afterwards. Returns -EINVAL, -ENOTSUP (no support in the
 * device, its driver or the kernel), or errors of frl_reg_mr(). ibv_reg_dmabuf_mr(3).
 */
FRL_API int frl_reg_dmabuf_mr(struct frl_pd *pd, int fd, uint64_t offset, size_t length,
	uint64_t iova, uint32_t access, struct frl_mr **ret_mr);

enum frl_rereg_flags {
	FRL_REREG_TRANSLATION = 1 << 0, /* use addr and length; the region then starts at addr (no
					 * iova) */
	FRL_REREG_PD = 1 << 1,          /* use `pd`, another protection domain of the device */
	FRL_REREG_ACCESS = 1 << 2,
};

/*
 * Changes the parts of a region that `flags` names. A failed call changes nothing, with one
 * exception on hardware: if frl_last_error() says that the region is unusable, call frl_dereg_mr().
 * A software device keeps the keys. Hardware may change them: read them again. Returns -EBUSY as
 * frl_dereg_mr() does, -ENOTSUP (the device cannot: register anew), -EINVAL (also for a cache's
 * region), or -EIO (the region was unusable before). ibv_rereg_mr(3).
 */
FRL_API int frl_rereg_mr(struct frl_mr *mr, uint32_t flags, struct frl_pd *pd, void *addr,
	size_t length, uint32_t access);

/*
 * Deregisters a region. Later work requests and peers that use its keys get access errors. Returns
 * -EBUSY while a NIC's queue has packets that refer to the memory (try again), and while memory
 * windows are bound to the region. Returns -EINVAL for a cache's region. NULL is fine.
 */
FRL_API int frl_dereg_mr(struct frl_mr *mr);

/* Return the keys of a region: for local work requests, and for the peer. */
FRL_API uint32_t frl_mr_lkey(const struct frl_mr *mr);
FRL_API uint32_t frl_mr_rkey(const struct frl_mr *mr);

/* How a device accesses a region. */
struct frl_mr_attr {
	enum frl_mr_tier tier;
	/*
	 * CUDA ordinal of the GPU that has the memory; -1: none, or not known
	 * (frl_reg_dmabuf_mr()).
	 */
	int gpu;
	/*
	 * Bytes that the range registered with the NIC is aligned to. That range may be larger than
	 * the request. 1: no rounding.
	 */
	uint32_t alignment;
	bool needs_flush; /* running kernels see received data only after frl_mr_flush() */
	char reason[256]; /* why no better method is used; "" if there is none */
};

/* Copies the attributes of a region. */
FRL_API void frl_mr_query(const struct frl_mr *mr, struct frl_mr_attr *ret_attr);

/*
 * Makes completed transfers visible to GPU kernels that are already running. A kernel that is
 * launched after the completion sees the data in any case. Does nothing if needs_flush is false.
 * Returns -EIO on failure. NVIDIA, GPUDirect RDMA, "Synchronization and Memory Ordering".
 */
FRL_API int frl_mr_flush(struct frl_mr *mr);

/*
 * A cache of registrations, for programs that use the same buffers again and again. A registration
 * with a NIC takes tens of microseconds and more. A region stays registered after its last user has
 * put it back. It ends when its memory is unmapped, moved or given back (madvise(2)) by any code of
 * the process, or when other regions need its place. The cache detects this by userfaultfd(2).
 *
 * The cache keeps regions of private anonymous memory (malloc(), mmap(), huge pages), of
 * frl_mem_alloc(), and of GPUs. For GPU memory each lookup asks the driver whether the allocation
 * is still the same. Freed GPU memory may stay allocated while its region is kept, until other
 * memory is registered or frl_mr_cache_trim() is called.
 *
 * All other memory is registered only while it is used: files (also those in memory) and shared
 * memory, because other processes can remove the pages unnoticed; devices; and everything on
 * systems without userfaultfd(2). Memory with pages given back is kept again only after 0.1 s,
 * because the pages go some time after the kernel has reported it.
 *
 * Limits: the kernel does not report shmat() with SHM_REMAP, remap_file_pages() and guard pages
 * (MADV_GUARD_INSTALL). Do not apply them to memory while the cache keeps it. Another userfaultfd
 * cannot register kept memory (UFFDIO_REGISTER: EBUSY), and memory that another userfaultfd has
 * registered is not kept. Each kept region may take two of the process's vm.max_map_count mappings.
 *
 * Threads: any thread, but no signal handler. After fork() a child must not use a cache, nor its
 * device.
 */
struct frl_mr_cache;

struct frl_mr_cache_config {
	uint32_t max_regions; /* limit of regions kept without a user; 0: 1024 */
	/*
	 * Limit of bytes kept without a user; GPU memory does not count. UINT64_MAX: no limit. 0: a
	 * quarter of RLIMIT_MEMLOCK or, if the process has no such limit, of the machine's memory;
	 * at least 4 MiB.
	 */
	uint64_t max_bytes;
};

struct frl_mr_cache_stats {
	uint64_t hits, misses;
	uint64_t evicted;     /* removed to make room, or by frl_mr_cache_trim() */
	uint64_t invalidated; /* removed because the memory was unmapped, moved or given back */
	uint64_t unwatched;   /* misses whose region could not be kept, or not at that moment */
	uint64_t deregistered;
};

/*
 * Creates a cache of the domain. `config` NULL: the defaults. If no memory can be kept, the first
 * call logs why, and what to do. Returns -EINVAL or -ENOMEM on failure.
 */
FRL_API int frl_mr_cache_create(struct frl_pd *pd, const struct frl_mr_cache_config *config,
	struct frl_mr_cache **ret_cache);

/*
 * Destroys a cache. NULL is fine. Returns -EBUSY while regions are in use or cannot be deregistered
 * yet.
 */
FRL_API int frl_mr_cache_destroy(struct frl_mr_cache *cache);

/*
 * Returns in *ret_mr a region that covers [addr, addr + length), from the cache or new. With remote
 * rights the region has exactly this range and these rights. Without, it may be larger (whole
 * pages) and have more rights; do not give its rkey to a peer. If registration fails, the cache
 * frees unused regions and tries again. The cache owns the region: frl_rereg_mr() and
 * frl_dereg_mr() refuse it. The mapping must not change during the call. Errors as frl_reg_mr().
 */
FRL_API int frl_mr_cache_get(struct frl_mr_cache *cache, void *addr, size_t length, uint32_t access,
	struct frl_mr **ret_mr);

/*
 * Returns a region to the cache. No request that refers to it may be in flight. A region that is
 * not of this cache, or not in use, is ignored, and an error is logged.
 */
FRL_API void frl_mr_cache_put(struct frl_mr_cache *cache, struct frl_mr *mr);

/*
 * Deregisters all unused regions. The library does this itself, in all caches of the process, when
 * a registration or an allocation finds that no more memory may be pinned. Call it before a CUDA
 * context ends that has memory of regions. NULL is fine.
 */
FRL_API void frl_mr_cache_trim(struct frl_mr_cache *cache);

/* Copies the counters since the cache was created. */
FRL_API void frl_mr_cache_query(struct frl_mr_cache *cache, struct frl_mr_cache_stats *ret_stats);

/*
 * Allocates a memory window of type 2. FRL_WR_BIND_MW binds a window to a region and a queue pair.
 * FRL_WR_LOCAL_INV or the peer's SEND_WITH_INV invalidates it. The user chooses the low byte of the
 * key. A new window is not bound, nor is one whose queue pair was reset or destroyed. Returns
 * -EINVAL, -ENOMEM or -ENOSPC on failure. IBTA volume 1, 10.6.7.2.
 */
FRL_API int frl_mw_alloc(struct frl_pd *pd, struct frl_mw **ret_mw);
/* Frees a window, bound or not. NULL is fine. */
FRL_API void frl_mw_dealloc(struct frl_mw *mw);
/* Returns the key of the last bind, or a first key to derive others from. */
FRL_API uint32_t frl_mw_rkey(struct frl_mw *mw);

/* Returns the next of the 256 keys of a window. */
static inline uint32_t frl_inc_rkey(uint32_t rkey)
{
	return (rkey & 0xffffff00u) | ((rkey + 1) & 0xffu);
}

/*
 * Allocates page-aligned, zeroed memory that every port can use without a copy. Returns NULL on
 * failure; frl_last_error() has the reason. Free it with frl_mem_free() and the same size.
 *
 * On the local fabric this is the fastest memory to send from: a peer reads the data in place, out
 * of this process, once the memory is registered. Peers can then read the whole allocation, but
 * never write it (FRL_IN_PLACE=0 turns this off). Only ranks of one communicator and user write
 * results of collectives into each other's buffers (FRL_SHM_WRITE=0 turns this off). Payload is
 * copied while more than 256 MiB of the allocation were never touched. The memory is shared: after
 * fork() parent and child have the same pages.
 *
 * Pages are allocated at the first access, as with malloc(). Large sparse memory costs nothing, and
 * a process may be killed when the kernel or its memory cgroup runs out of memory. With
 * vm.overcommit_memory=2 all pages are reserved here, or the call fails. The size must not exceed
 * RLIMIT_FSIZE (ulimit -f), which applies to shared memory.
 */
FRL_API void *frl_mem_alloc(size_t size);
FRL_API void frl_mem_free(void *addr, size_t size);

#ifdef __cplusplus
}
#endif
#endif
