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
 * -EINVAL, -ENOMEM, -ENOSPC (no room for another one), or what the port cannot do, with the reason
 * in frl_last_error().
 */
FRL_API int frl_reg_mr(
	struct frl_pd *pd, void *addr, size_t length, uint32_t access, struct frl_mr **ret_mr);

/* The same, but in work requests, local ones and the peer's, the region starts at address `iova`.
 * With REMOTE_ATOMIC or MW_BIND that differs from `addr` by a multiple of 8. */
FRL_API int frl_reg_mr_iova(struct frl_pd *pd, void *addr, size_t length, uint64_t iova,
	uint32_t access, struct frl_mr **ret_mr);

enum frl_rereg_flags {
	FRL_REREG_TRANSLATION = 1 << 0, /* addr, length; the region then starts at addr (no iova) */
	FRL_REREG_PD = 1 << 1,          /* another protection domain of the device */
	FRL_REREG_ACCESS = 1 << 2,
};

/*
 * Changes a region and keeps its keys; what `flags` does not name stays, and after a failure
 * everything does. -EBUSY as frl_dereg_mr().
 */
FRL_API int frl_rereg_mr(struct frl_mr *mr, uint32_t flags, struct frl_pd *pd, void *addr,
	size_t length, uint32_t access);

/*
 * Ends a registration. Work requests and peers that use the keys afterwards get access errors.
 * -EBUSY while packets that refer to the memory are still in a NIC's queue (try again), and while
 * memory windows are bound to it. NULL is fine.
 */
FRL_API int frl_dereg_mr(struct frl_mr *mr);

FRL_API uint32_t frl_mr_lkey(const struct frl_mr *mr);
FRL_API uint32_t frl_mr_rkey(const struct frl_mr *mr);

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
 * (FRL_IN_PLACE=0 turns this off). It is shared memory: after fork() parent and child have the same
 * pages. NULL with frl_last_error() when there is none. Free with frl_mem_free and the same size.
 */
FRL_API void *frl_mem_alloc(size_t size);
FRL_API void frl_mem_free(void *addr, size_t size);

#ifdef __cplusplus
}
#endif
#endif
