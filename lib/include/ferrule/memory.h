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

/* A protection domain: queue pairs reach the memory of their own domain only. -ENOMEM. */
FRL_API int frl_pd_create(struct frl_device *device, struct frl_pd **ret_pd);

/* -EBUSY while it has queue pairs or memory regions. NULL is fine. */
FRL_API int frl_pd_destroy(struct frl_pd *pd);

/*
 * Registers [addr, addr + length) for work requests, and for the peer as far as `access` (enum
 * frl_access) allows. The memory must stay mapped until the region is gone. Keys have random high
 * bits, and a key is not reused soon after its region went. `length` 0 is refused.
 * -EINVAL, -ENOMEM, or what the port cannot do, with the reason in frl_last_error().
 */
FRL_API int frl_reg_mr(
	struct frl_pd *pd, void *addr, size_t length, uint32_t access, struct frl_mr **ret_mr);

/*
 * Ends a registration. Work requests and peers that use the keys afterwards get access errors.
 * -EBUSY while packets that refer to the memory are still in a NIC's queue; try again. NULL is
 * fine.
 */
FRL_API int frl_dereg_mr(struct frl_mr *mr);

FRL_API uint32_t frl_mr_lkey(const struct frl_mr *mr);
FRL_API uint32_t frl_mr_rkey(const struct frl_mr *mr);

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
