/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives whose payload stays in packet buffers: the receiver is told where the pieces of a
 * message lie, and reads them there, a GPU's kernel for example. Nothing is copied on the way.
 * Software devices only: everywhere else there are no packet buffers (-ENOTSUP). docs/fragments.md.
 *
 *	create       takes a share of the device's packet buffers, which nobody else uses
 *	reg          an address range that peers may write to; it is a name, there need be no memory
 *	arm          part of that range is written to soon: by so many packets at most
 *	  ... the peer's FRL_WR_RDMA_WRITE_WITH_IMM completes here ...
 *	count        so many pieces of it have come; the caller's list says where they are
 *	release      the pieces have been read: their packet buffers go back to the port
 *
 * A peer writes as to any memory, and knows of nothing. What it writes where nothing is armed, or
 * by more packets than were armed for, has no place: its queue pair here fails, frl_qp_error() says
 * why, and a completion that tells of it has FRL_WC_LOC_PROT_ERR. Nothing is lost silently.
 *
 * Buffers stay taken for as long as the receiver likes, so each user has his own from the
 * beginning (docs/decisions/0023): one that lets its buffers lie stops nobody else, and what is
 * armed always finds the buffers it was armed with.
 *
 * Any thread, except that `list` must not be read before the completion, and the pieces not after
 * the release.
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

enum { FRL_MAX_ARMED = 16 }; /* parts of a struct frl_fragments that are armed at once */

/* A share of a device's packet buffers. */
struct frl_fragments;

/* A piece of a message. */
struct frl_fragment {
	const void *addr; /* in a packet buffer, which stays as it is until the release */
	uint64_t offset;  /* bytes, from the address that was armed */
	uint32_t length;  /* bytes; never 0, and at most the path MTU */
	uint32_t reserved;
};

/*
 * Takes `frames` packet buffers of the domain's device. It has as many for this as it was opened
 * with: frl_device_config.held_frames, which frl_device_attr tells too. -ENOSPC: so many are not
 * left; -ENOTSUP: hardware, or a port that has payload go to a GPU; -EINVAL; -ENOMEM.
 */
FRL_API int frl_fragments_create(
	struct frl_pd *pd, uint32_t frames, struct frl_fragments **ret_fragments);

/* Gives them back. What is still armed is released by this. -EBUSY: regions of it are registered.
 * NULL is fine. */
FRL_API int frl_fragments_destroy(struct frl_fragments *fragments);

/*
 * The pieces of memory that packet buffers lie in, from `index` 0 on; they stay for as long as the
 * device is open. For who has to make them known to somebody else, such as a GPU. -ENOENT: there
 * is none of that index, and frl_last_error() stays as it is; -ENOTSUP, -EINVAL.
 */
FRL_API int frl_fragments_memory(
	struct frl_pd *pd, unsigned index, void **ret_addr, size_t *ret_length);

/*
 * Registers [addr, addr + length) for peers to write to. `addr` may be anything, a GPU's memory
 * for example, and also be registered otherwise: nothing here ever touches it. `access` is
 * FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE, and nothing can be read. The region has an
 * rkey, but no work request can use its lkey. frl_rereg_mr() refuses it.
 * frl_dereg_mr() is -EBUSY while a part of it is armed. Errors as frl_reg_mr().
 */
FRL_API int frl_reg_fragments(struct frl_fragments *fragments, void *addr, size_t length,
	uint32_t access, struct frl_mr **ret_mr);

/*
 * [addr, addr + length) of the region, which is one of this share, will be written to by at most
 * `frames` packets: a message of n bytes is n / path MTU packets, rounded up, if its sender fills
 * them, as Ferrule does. A part that no byte will be written to is fine, with `frames` 0.
 * `list` has room for `frames` entries and is the library's until the release. The pieces are in
 * it in the order in which they came; those of several queue pairs are mixed.
 * -EAGAIN: fewer of the share's buffers are free, or FRL_MAX_ARMED parts are armed: try again after
 * a release. Then frl_last_error() stays as it is: this is for who asks again and again.
 * -EBUSY: overlaps with a part that is armed; -EINVAL: no region of this share, or not inside it,
 * or more frames than the share has.
 * Armed before the peer is told that it may write: what comes earlier makes its queue pair fail.
 */
FRL_API int frl_fragments_arm(struct frl_fragments *fragments, struct frl_mr *mr, void *addr,
	size_t length, struct frl_fragment *list, uint32_t frames, uint32_t *ret_token);

/*
 * How many pieces have come, and how many bytes they have in all. After the completion of the last
 * message to the part this does not change any more. Whoever does not trust the peer compares the
 * bytes with what was to come, and the pieces' offsets: it may have written some bytes twice and
 * others never. An unreliable queue pair (UC) may leave pieces of a message that was lost.
 * -EINVAL: the token is not armed.
 */
FRL_API int frl_fragments_count(
	struct frl_fragments *fragments, uint32_t token, uint32_t *ret_n, size_t *ret_bytes);

/*
 * Ends what was armed, in any order, written to or not: the buffers go back to the port, and will
 * soon have other contents. -EINVAL: the token is not armed (tokens are used again late).
 */
FRL_API int frl_fragments_release(struct frl_fragments *fragments, uint32_t token);

#ifdef __cplusplus
}
#endif
#endif
