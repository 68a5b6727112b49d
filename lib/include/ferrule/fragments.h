/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives whose payload stays in packet buffers. The receiver gets a list of the pieces of a
 * message and reads them in place, for example with a GPU kernel. The payload is not copied.
 * Software devices only: hardware has no packet buffers (-ENOTSUP). See the
 * guide's page "Payload that stays in packet buffers".
 *
 * 	create       takes a share of the device's packet buffers for this user alone
 * 	reg          registers an address range as target of WRITEs; no memory need be there
 * 	arm          prepares a part of the range for WRITEs of at most so many packets
 * 	  ... the peer's FRL_WR_RDMA_WRITE_WITH_IMM completes here ...
 * 	count        returns the number of pieces; the caller's list says where they are
 * 	release      the pieces have been read: returns their packet buffers to the port
 *
 * The peer writes as to any memory; it needs no support for fragments. A WRITE outside the armed
 * parts, or of more packets than were armed for, is an error. The local queue pair then fails,
 * frl_qp_error() says why, and its completion, if any, has FRL_WC_LOC_PROT_ERR. No data is lost
 * silently.
 *
 * A receiver may keep buffers for any time, so each user has its own share from the beginning.
 * With a common pool, users could each hold part of a message, and none would complete. A user that
 * keeps its buffers blocks no other user, and an armed part always has its buffers.
 *
 * Threads: any thread may call these functions. Do not read `list` before the completion, nor the
 * pieces after the release.
 */
#ifndef FERRULE_FRAGMENTS_H
#define FERRULE_FRAGMENTS_H

#include <stddef.h>
#include <stdint.h>

#include <ferrule/error.h>
#include <ferrule/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FRL_MAX_ARMED = 16 }; /* parts of a struct frl_fragments that can be armed at once */

/* A share of a device's packet buffers. */
struct frl_fragments;

/* A piece of a message. */
struct frl_fragment {
	const void *addr; /* in a packet buffer; unchanged until the release */
	uint64_t offset;  /* bytes, from the start of the armed part */
	uint32_t length;  /* bytes; never 0, and at most the path MTU */
	uint32_t reserved;
};

/*
 * Takes `frames` packet buffers of the domain's device. The device has
 * frl_device_config.held_frames buffers for this purpose; frl_device_attr reports the number too.
 * Free them with frl_fragments_destroy(). Returns -ENOSPC (fewer buffers are left), -ENOTSUP
 * (hardware, or a port that receives into GPU memory), -EINVAL or -ENOMEM.
 */
FRL_API int frl_fragments_create(
	struct frl_pd *pd, uint32_t frames, struct frl_fragments **ret_fragments);

/*
 * Returns the buffers to the device and releases all armed parts. NULL is fine. Returns -EBUSY
 * while regions of it are registered.
 */
FRL_API int frl_fragments_destroy(struct frl_fragments *fragments);

/*
 * Returns in *ret_addr and *ret_length the memory areas of the packet buffers, for `index` 0 and
 * up. They stay valid while the device is open. For users that must register this memory elsewhere,
 * such as with a GPU. Returns -ENOENT after the last area, without changing frl_last_error(), and
 * otherwise -ENOTSUP or -EINVAL.
 */
FRL_API int frl_fragments_memory(
	struct frl_pd *pd, unsigned index, void **ret_addr, size_t *ret_length);

/*
 * Registers [addr, addr + length) for WRITEs of peers. `addr` may be any address, such as GPU
 * memory, and may be registered otherwise too: the memory there is never accessed. `access` must be
 * FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE; nothing can be read. The region has an rkey,
 * but work requests cannot use its lkey. frl_rereg_mr() refuses it. frl_dereg_mr() returns -EBUSY
 * while a part of it is armed. Errors as frl_reg_mr().
 */
FRL_API int frl_reg_fragments(struct frl_fragments *fragments, void *addr, size_t length,
	uint32_t access, struct frl_mr **ret_mr);

/*
 * Prepares [addr, addr + length) of a region of this share for WRITEs of at most `frames` packets.
 * A message of n bytes takes n / path MTU packets, rounded up, if the sender fills its packets, as
 * Ferrule does. `frames` may be 0 for a part that receives no bytes. Arm a part before the peer may
 * write: an earlier WRITE fails its queue pair.
 *
 * `list` has room for `frames` entries and belongs to the library until the release. Pieces are
 * listed in order of arrival; those of several queue pairs are mixed.
 *
 * Returns -EAGAIN if too few of the share's buffers are free, or if FRL_MAX_ARMED parts are armed:
 * try again after a release. -EAGAIN does not change frl_last_error(), because callers may retry
 * often. Returns -EBUSY if the part overlaps an armed one. Returns -EINVAL if the region is not of
 * this share, if the part is not inside it, or if `frames` exceeds the share.
 */
FRL_API int frl_fragments_arm(struct frl_fragments *fragments, struct frl_mr *mr, void *addr,
	size_t length, struct frl_fragment *list, uint32_t frames, uint32_t *ret_token);

/*
 * Returns the number of pieces received and their bytes in all. The values are final after the
 * completion of the last message to the part. A receiver that does not trust the peer must check
 * the number of bytes and the pieces' offsets: the peer may have written some bytes twice and
 * others never. An unreliable queue pair (UC) may leave pieces of a lost message. Returns -EINVAL
 * if the token is not armed.
 */
FRL_API int frl_fragments_count(
	struct frl_fragments *fragments, uint32_t token, uint32_t *ret_n, size_t *ret_bytes);

/*
 * Releases an armed part, in any order, written to or not. The buffers return to the port and will
 * be overwritten soon. Returns -EINVAL if the token is not armed (tokens are reused late).
 */
FRL_API int frl_fragments_release(struct frl_fragments *fragments, uint32_t token);

#ifdef __cplusplus
}
#endif
#endif
