/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives: a communicator of n ranks and what they do together.
 *
 * All ranks call the same operations in the same order, with the same count, type and operation.
 * Buffers are registered for the operation and used in place: payload goes from the sender's buffer
 * into packets and out of the packet buffer, reduced, into the receiver's buffer.
 *
 * Threads: one thread at a time uses a communicator. Progress is made by whoever tests or waits.
 *
 * Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
 * workstations", 2009 (ring).
 */
#ifndef FERRULE_COLLECTIVE_H
#define FERRULE_COLLECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/connect.h>
#include <ferrule/device.h>
#include <ferrule/error.h>
#include <ferrule/reduce.h>

#ifdef __cplusplus
extern "C" {
#endif

struct frl_comm;
struct frl_request;

/*
 * Makes a communicator on `device` out of the ranks that `bootstrap` joins; all of them call it.
 * The bootstrap is lent until the communicator is destroyed: nobody else uses it. Blocks while the
 * others are awaited: in two allgathers, each as long as the bootstrap lets them take (60 s with
 * frl_bootstrap_join() unless set), and between them up to 30 s to make the connections.
 * -ECONNRESET, -ETIMEDOUT, -EPROTO, -ENOMEM; frl_last_error() names the rank.
 */
FRL_API int frl_comm_create(
	struct frl_device *device, struct frl_bootstrap *bootstrap, struct frl_comm **ret_comm);

/*
 * Ends it; all ranks call this, and it waits a moment (5 s at most) for the others, so that nobody
 * misses a last acknowledgement. Requests that were not tested to their end are gone. NULL is fine.
 */
FRL_API void frl_comm_destroy(struct frl_comm *comm);

FRL_API int frl_comm_rank(const struct frl_comm *comm);
FRL_API int frl_comm_size(const struct frl_comm *comm);

/*
 * Starts recv[i] = op over all ranks of send[i], for `count` elements. send may equal recv (in
 * place); otherwise they must not overlap. Neither needs any alignment. Both belong to the request
 * until it completes. Every rank gets bitwise the same result. Several requests may be in flight;
 * they run in the order of starting.
 * -EINVAL, -ENOMEM, or the communicator's error once it has failed.
 */
FRL_API int frl_allreduce_start(struct frl_comm *comm, const void *send, void *recv, size_t count,
	enum frl_dtype dtype, enum frl_op op, struct frl_request **ret_request);

/*
 * Makes progress and says in *ret_done whether the request has completed; a completed or failed
 * request is gone afterwards. Returns 0 or the failure, which frl_last_error() explains:
 * -ECONNRESET when a rank is gone, -EPROTO when ranks called different operations, -EIO. After a
 * failure the contents of recv are undefined and the communicator is of no more use but for
 * frl_comm_destroy().
 */
FRL_API int frl_request_test(struct frl_request *request, bool *ret_done);

/* As frl_request_test() until it is done, waiting politely. */
FRL_API int frl_request_wait(struct frl_request *request);

/* frl_allreduce_start() and frl_request_wait() in one. */
FRL_API int frl_allreduce(struct frl_comm *comm, const void *send, void *recv, size_t count,
	enum frl_dtype dtype, enum frl_op op);

/* Returns when all ranks have entered. */
FRL_API int frl_barrier(struct frl_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
