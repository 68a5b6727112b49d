/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives: operations of the n ranks of a communicator.
 *
 * All ranks start the same operations in the same order, with the same arguments except for the
 * buffers. The operation registers the buffers and uses them in place. Payload goes from the
 * sender's buffer into packets, and from the packet buffer, reduced, into the receiver's buffer.
 *
 * The operations, with n ranks and `count` elements (as NCCL counts):
 *
 * 	                send        recv        in place if
 * 	ALLREDUCE       count       count       send == recv
 * 	REDUCE_SCATTER  n * count   count       recv == send + rank * count
 * 	ALLGATHER       count       n * count   send == recv + rank * count
 * 	BROADCAST       count       count       send == recv; send is the root's only
 * 	REDUCE          count       count       send == recv; recv is the root's only
 * 	ALLTOALL        n * count   n * count   send == recv
 * 	ALLTOALLV       by send_counts, ...     never
 * 	GATHER          count       n * count   at the root: send == recv + root * count
 * 	SCATTER         n * count   count       at the root: recv == send + root * count
 * 	BARRIER         -           -
 * 	SEND, RECV      count       count       `root` is the peer, which may be this rank
 *
 * Other overlaps of buffers return an error. Any alignment is allowed. Buffers may be GPU memory
 * (the guide's page "GPU memory"). GPU work that is launched after the request has completed sees
 * the results.
 *
 * Results are bitwise the same on all ranks that receive them. They are also the same from run to
 * run while the number of ranks, their hosts and the choice of algorithm stay the same.
 *
 * Threads: one thread at a time uses a communicator, but any thread may call frl_comm_abort() and
 * frl_comm_post_done(). Several threads may use different communicators at once. With
 * FRL_PROGRESS_THREAD any thread may use a communicator at any time, except that frl_comm_destroy()
 * needs it alone. Only one thread at a time uses a request. Threads that start operations of one
 * communicator must agree on an order that is the same on all ranks. frl_comm_split() starts
 * several operations, so no other thread may start any meanwhile.
 *
 * After fork() only the parent may use its communicators. In the child frl_comm_destroy() does
 * nothing, and no other function may be called.
 *
 * Progress: a rank makes progress when it starts, tests or waits for a request, or destroys a
 * communicator. An idle communicator also makes progress for its related communicators: those split
 * from it, and those that it was split from. Ranks may therefore wait for requests of several
 * communicators in different orders. A rank that calls none of these functions makes no progress.
 * An operation may then complete only after the other ranks have called the library again; this
 * holds even for an operation that only needs them to receive data of this rank. With
 * FRL_PROGRESS_THREAD a thread of the library makes progress while a request is pending.
 *
 * Sources: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
 * workstations", 2009 (ring); Thakur, Rabenseifner and Gropp, "Optimization of collective
 * communication operations in MPICH", 2005 (halving and doubling, pairwise); Sanders, Speck and
 * Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009; Bruck et
 * al., "Efficient algorithms for all-to-all communications in multiport message-passing systems",
 * 1997.
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

enum frl_coll {
	FRL_ALLREDUCE,
	FRL_REDUCE_SCATTER,
	FRL_ALLGATHER,
	FRL_BROADCAST,
	FRL_REDUCE,
	FRL_ALLTOALL,
	FRL_ALLTOALLV,
	FRL_GATHER,
	FRL_SCATTER,
	FRL_BARRIER,
	FRL_SEND,
	FRL_RECV,
	FRL_COLLS /* number of operations */
};

/* Returns "allreduce", "reduce_scatter", ...; NULL for an invalid value. */
FRL_API const char *frl_coll_name(enum frl_coll coll);

enum frl_algo {
	FRL_ALGO_AUTO, /* the algorithm with the lowest cost of a model */
	FRL_ALGO_RING,
	FRL_ALGO_HALVING_DOUBLING, /* recursive */
	FRL_ALGO_TREE,             /* two binary trees, each for one half of the data */
	FRL_ALGO_DIRECT,           /* all pairs of ranks at once */
	FRL_ALGO_PAIRWISE,         /* all pairs of ranks, one after the other */
	FRL_ALGO_BRUCK,            /* in log n rounds over log n connections */
	FRL_ALGO_HIERARCHICAL,     /* within hosts, then between hosts, then within hosts */
	FRL_ALGOS                  /* number of algorithms */
};

/* Returns "auto", "ring", "halving-doubling", ...; NULL for an invalid value. */
FRL_API const char *frl_algo_name(enum frl_algo algo);

/* ---- communicators */

struct frl_comm_config {
	/*
	 * Rails: ports of this process. Each one has connections to the same port of the other
	 * ranks. Long messages are striped over the rails; if one rail fails, the others continue.
	 */
	struct frl_device *const *devices;
	int n_devices;
	/*
	 * An operation without progress for this time fails, and the error names the ranks that it
	 * waits for. 0: no limit. Default: FRL_COLL_TIMEOUT_S, or 0.
	 */
	int timeout_ms;
	/*
	 * The algorithms in the syntax of FRL_ALGO, the same on all ranks: "auto", "ring",
	 * "allreduce=ring,reduce=tree". NULL, the default: the value of FRL_ALGO. The text must
	 * stay valid until the communicator, and all that were split from it, are destroyed.
	 */
	const char *algos;
	/*
	 * FRL_PROGRESS_INLINE (the default) or FRL_PROGRESS_AUTO: only calls make progress. No
	 * lock is taken.
	 * FRL_PROGRESS_THREAD: any thread may call. A thread of the library makes progress while a
	 * request is pending and no caller waits for one: at once if the request is detached,
	 * otherwise about 100 us after its start, or up to 3.5 ms after callers have waited for
	 * others or tested them.
	 * Ranks may differ. Communicators that are split from this one inherit the value.
	 */
	enum frl_progress progress;
};

/* Fills in the defaults, then applies the FRL_* settings. */
FRL_API void frl_comm_config_init(struct frl_comm_config *config);

/*
 * Creates a communicator of the ranks of `bootstrap`; all of them must call this. The communicator
 * uses the bootstrap alone, until it and all communicators that were split from it are destroyed.
 * Destroy it with frl_comm_destroy().
 *
 * Blocks until the other ranks call this, at most as long as the bootstrap's allgather (60 s with
 * frl_bootstrap_join() unless set). Connections are made when they are first needed. Over a network
 * two or three ranks measure message costs here, unless FRL_TUNER_COSTS or a file gives them: see
 * "What messages cost" in the design's page on the choice of algorithm.
 *
 * Returns -EINVAL, -ECONNRESET, -ETIMEDOUT, -EPROTO (other settings, or another version of
 * Ferrule), -ENOMEM or -EAGAIN (no thread); frl_last_error() names the rank.
 */
FRL_API int frl_comm_create_with(struct frl_bootstrap *bootstrap,
	const struct frl_comm_config *config, struct frl_comm **ret_comm);

/* Calls frl_comm_create_with() with one device and the default configuration. */
FRL_API int frl_comm_create(
	struct frl_device *device, struct frl_bootstrap *bootstrap, struct frl_comm **ret_comm);

/*
 * Splits a communicator. Ranks with the same `color` form one communicator. Their order in it is
 * that of `key`, then that of their rank in `comm`. A rank with a negative color gets none:
 * *ret_comm is NULL.
 *
 * All ranks of `comm` call this, in the order of their operations, and the call waits for them. The
 * new communicator has its own connections, and is independent of `comm`, except that `comm` must
 * be destroyed later. If one rank cannot create it (-ENOMEM, -EAGAIN), all ranks of that color
 * fail, and `comm` stays usable. Other errors are errors of `comm`. *ret_comm is NULL after every
 * error.
 */
FRL_API int frl_comm_split(struct frl_comm *comm, int color, int key, struct frl_comm **ret_comm);

/* Creates a communicator with the same ranks, as frl_comm_split() does. */
FRL_API int frl_comm_duplicate(struct frl_comm *comm, struct frl_comm **ret_comm);

/*
 * Destroys a communicator. All ranks call this; the order of several communicators may differ.
 * Requests that have not completed are discarded. NULL is fine.
 *
 * Resources stay until the other ranks have destroyed the communicator too, so that no rank misses
 * a last acknowledgement. Destroying the last one of a set of related communicators waits for the
 * other ranks: at most 5 s, with several rails 20 s, because a rail may have failed.
 */
FRL_API void frl_comm_destroy(struct frl_comm *comm);

/*
 * Fails all operations with -ECANCELED and `reason` (a sentence; may be NULL): at once on this
 * rank, soon on all others. The other ranks are notified even if this process exits at once. Never
 * blocks; any thread may call it. Afterwards the communicator can only be destroyed;
 * frl_comm_destroy() does not wait then. Threads that wait in frl_request_wait() or
 * frl_comm_next_done() return.
 */
FRL_API void frl_comm_abort(struct frl_comm *comm, const char *reason);

/* Return the rank of this process, and the number of ranks. */
FRL_API int frl_comm_rank(const struct frl_comm *comm);
FRL_API int frl_comm_size(const struct frl_comm *comm);

/* ---- operations */

struct frl_collective {
	enum frl_coll coll;
	const void *send;
	void *recv;
	size_t count;
	enum frl_dtype dtype;
	enum frl_op op;     /* for ALLREDUCE, REDUCE_SCATTER, REDUCE */
	int root;           /* for BROADCAST, REDUCE, GATHER, SCATTER; the peer of SEND, RECV */
	const void *scalar; /* FRL_PREMUL_SUM: one element, multiplied with this rank's input; read
			     * before frl_start() returns */
	/*
	 * Encoding of float32 in packets, for every operation but BARRIER. Results are approximate
	 * with all values but FRL_WIRE_SAME. Data that is only copied is rounded once, as
	 * frl_wire_encode() does for a block (BROADCAST: for all elements). A rank's own data is
	 * rounded too, also in place and with one rank: results do not depend on the rank that had
	 * the data. Reductions: see the reference's page
	 * "Element types, reductions and wire types".
	 */
	enum frl_wire wire;
	/*
	 * ALLTOALLV: arrays of n counts and offsets, in elements; read before frl_start() returns.
	 * A rank must receive from each rank exactly what that rank sends to it. Received pieces
	 * must not overlap (-EINVAL); sent pieces may. If not all ranks can be connected, the ranks
	 * exchange these arrays first, and later operations begin when all ranks have started this
	 * one.
	 */
	const size_t *send_counts, *send_displs, *recv_counts, *recv_displs;
	/*
	 * Use `stream`, a CUstream (NULL: the default stream) of the one GPU that has the
	 * buffers. The operation begins after all work launched before into that stream. Without
	 * on_stream the buffers must be ready when the operation is started. Ranks may differ in
	 * whether their buffers are GPU memory. With host memory, which the stream may write as
	 * well, the stream's context must be current in the calling thread.
	 */
	bool on_stream;
	void *stream;
};

/*
 * Starts an operation. The buffers belong to *ret_request until it has completed. Several requests
 * may be in flight. All ranks start them in the same order. A request never waits for an earlier
 * one that involves none of its ranks.
 *
 * The n-th SEND of a rank to another one matches the n-th RECV there. Both are started between the
 * same two collectives, with the same count, type and wire type. Operations of no elements send
 * nothing and complete at once, but all ranks (both ends) must start them too. Ranks that violate
 * these rules fail with -EPROTO at their next common operation; the error names both operations.
 *
 * Returns -EINVAL, -ENOMEM, -ENOTSUP (also: managed memory, a stream that is being captured into a
 * CUDA graph, an unsupported GPU or driver), or the error of a failed communicator.
 */
FRL_API int frl_start(struct frl_comm *comm, const struct frl_collective *collective,
	struct frl_request **ret_request);

/*
 * Starts several operations, typically SENDs and RECVs, as one request. The order of the array
 * counts as the order of starting and must match that of the other ranks.
 */
FRL_API int frl_start_group(struct frl_comm *comm, const struct frl_collective collectives[], int n,
	struct frl_request **ret_request);

/*
 * Makes progress and sets *ret_done if the request has completed. A completed or failed request is
 * freed. A call without any event yields the processor to other processes.
 *
 * Returns 0 or the failure, which frl_last_error() explains: -ECONNRESET (a rank has exited, or has
 * destroyed its communicator), -ETIMEDOUT (the text says what each rank waits for), -EPROTO (ranks
 * started different operations), -ENOSPC (a connection needs more links of the local fabric than
 * the 4,096 of a device), -ECANCELED, -EIO. After a failure the contents of recv are undefined, and
 * the communicator can only be destroyed.
 */
FRL_API int frl_request_test(struct frl_request *request, bool *ret_done);

/*
 * Calls frl_request_test() until the request is done. Waiting spins, then yields, then sleeps.
 * After a failure this function, and frl_start(), may wait up to 20 s until no GPU accesses the
 * buffers.
 */
FRL_API int frl_request_wait(struct frl_request *request);

/*
 * Waits as frl_request_wait(), for at most `timeout_ms` (0: as frl_request_test(); negative: no
 * limit). Sets *ret_done to false if the request is still pending then; it stays usable.
 */
FRL_API int frl_request_wait_for(struct frl_request *request, int timeout_ms, bool *ret_done);

/* Calls frl_start() and frl_request_wait(). */
FRL_API int frl_run(struct frl_comm *comm, const struct frl_collective *collective);

/* ---- a queue of completed requests */

/*
 * Leaves a request to the communicator. When it has completed or failed, frl_comm_next_done()
 * reports `id`. The caller must not use `request` any more. Requests are reported in the order in
 * which they complete. Returns -EINVAL or -ENOMEM; the request is then unchanged.
 */
FRL_API int frl_request_detach(struct frl_request *request, uint64_t id);

/*
 * Takes one report from the queue. Waits for it, and makes progress meanwhile, for at most
 * `timeout_ms` (0: makes progress once; negative: no limit). Several threads may wait; each report
 * goes to one of them.
 *
 * Returns 1 and sets *ret_id. Sets *ret_err to 0 or to the failure of that request, which
 * frl_last_error() explains. The buffers of a reported request belong to the caller again.
 *
 * Returns 0 after the time. With FRL_PROGRESS_INLINE it also returns 0 as soon as the queue is
 * empty and no detached request is pending; with FRL_PROGRESS_THREAD it waits for requests that
 * other threads detach.
 *
 * Returns the error of a failed communicator when all its requests have been reported; a failure is
 * noticed while a request is pending, and when one is started. Returns -EINVAL.
 */
FRL_API int frl_comm_next_done(
	struct frl_comm *comm, int timeout_ms, uint64_t *ret_id, int *ret_err);

/*
 * Appends a report of `id`, with *ret_err 0, to the queue: to wake a thread that waits in
 * frl_comm_next_done(). Any thread, also with FRL_PROGRESS_INLINE. Returns -EINVAL or -ENOMEM.
 */
FRL_API int frl_comm_post_done(struct frl_comm *comm, uint64_t id);

/*
 * Returns a descriptor that is readable while the queue is not empty, for poll() and epoll. The
 * communicator owns it: neither read nor close it. Each call returns the same one. Needs
 * FRL_PROGRESS_THREAD, since otherwise nothing makes progress while the application sleeps. Returns
 * -EINVAL, -EMFILE or another error of eventfd(2).
 */
FRL_API int frl_comm_fd(struct frl_comm *comm);

/* ---- shorthands */

/* Shorthands for common operations; errors as for frl_start() and frl_request_wait(). */
FRL_API int frl_allreduce_start(struct frl_comm *comm, const void *send, void *recv, size_t count,
	enum frl_dtype dtype, enum frl_op op, struct frl_request **ret_request);
FRL_API int frl_allreduce(struct frl_comm *comm, const void *send, void *recv, size_t count,
	enum frl_dtype dtype, enum frl_op op);
FRL_API int frl_reduce_scatter(struct frl_comm *comm, const void *send, void *recv, size_t count,
	enum frl_dtype dtype, enum frl_op op);
FRL_API int frl_allgather(
	struct frl_comm *comm, const void *send, void *recv, size_t count, enum frl_dtype dtype);
FRL_API int frl_broadcast(struct frl_comm *comm, const void *send, void *recv, size_t count,
	enum frl_dtype dtype, int root);
FRL_API int frl_reduce(struct frl_comm *comm, const void *send, void *recv, size_t count,
	enum frl_dtype dtype, enum frl_op op, int root);
FRL_API int frl_alltoall(
	struct frl_comm *comm, const void *send, void *recv, size_t count, enum frl_dtype dtype);
/* Waits until all ranks have entered. Returns as frl_request_wait() does. */
FRL_API int frl_barrier(struct frl_comm *comm);

/*
 * Writes into `text`, as snprintf() does, why an algorithm is chosen for an operation. There is one
 * line for each possible algorithm: its name, the time that the model expects, and "<-" with the
 * reason at the chosen one. The choice ignores the counts of ALLTOALLV, because other ranks do not
 * know them; a further line then lists what this rank sends and receives. Another line has the
 * message costs in the form of FRL_TUNER_COSTS, and their source. The last line has the thresholds
 * for special methods. For an operation in shared memory a line describes the method and the
 * thresholds.
 */
FRL_API int frl_comm_explain(
	struct frl_comm *comm, const struct frl_collective *collective, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
