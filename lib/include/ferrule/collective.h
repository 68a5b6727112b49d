/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives: a communicator of n ranks and what they do together.
 *
 * All ranks start the same operations in the same order, with the same arguments but for the
 * buffers. Buffers are registered for the operation and used in place: payload goes from the
 * sender's buffer into packets and out of the packet buffer, reduced, into the receiver's buffer.
 *
 * The operations, with n ranks and `count` elements (as NCCL counts):
 *
 *	                send        recv        in place if
 *	ALLREDUCE       count       count       send == recv
 *	REDUCE_SCATTER  n * count   count       recv == send + rank * count
 *	ALLGATHER       count       n * count   send == recv + rank * count
 *	BROADCAST       count       count       send == recv; send is the root's only
 *	REDUCE          count       count       send == recv; recv is the root's only
 *	ALLTOALL        n * count   n * count   send == recv
 *	ALLTOALLV       by send_counts, ...     never
 *	GATHER          count       n * count   at the root: send == recv + root * count
 *	SCATTER         n * count   count       at the root: recv == send + root * count
 *	BARRIER         -           -
 *	SEND, RECV      count       count       `root` is the peer, which may be this rank
 *
 * Buffers that overlap otherwise are refused. None needs any alignment. They may be GPU memory:
 * docs/gpudirect.md. What is launched there after the request has completed sees the results.
 *
 * Results are bitwise the same on all ranks that get them, and from run to run while the number of
 * ranks, their places and the choice of algorithm stay the same.
 *
 * Threads: one thread at a time uses a communicator, but any thread may call frl_comm_abort().
 * Different communicators may be used by different threads at once.
 *
 * Progress is made by whoever tests or waits for a request, starts or destroys: in that
 * communicator, and while it has nothing to do also in those that were made out of it, or it out of
 * them. So ranks may wait for requests of several communicators in different orders. Nobody makes
 * it for a rank that does none of that: an operation may complete only when the other ranks have
 * called the library again after they started it, also one that needs nothing of them but that they
 * take what this rank brings.
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
	FRL_COLLS /* how many there are */
};

/* "allreduce", "reduce_scatter", ...; NULL for a value that is none. */
FRL_API const char *frl_coll_name(enum frl_coll coll);

enum frl_algo {
	FRL_ALGO_AUTO, /* by a model of what each would cost */
	FRL_ALGO_RING,
	FRL_ALGO_HALVING_DOUBLING, /* recursive */
	FRL_ALGO_TREE,             /* two binary trees, each for one half */
	FRL_ALGO_DIRECT,           /* everybody with everybody at once */
	FRL_ALGO_PAIRWISE,         /* everybody with everybody, one after the other */
	FRL_ALGO_BRUCK,            /* in log n rounds over log n connections */
	FRL_ALGO_HIERARCHICAL,     /* within the hosts, then between them, then within */
	FRL_ALGOS                  /* how many there are */
};

/* "auto", "ring", "halving-doubling", ...; NULL for a value that is none. */
FRL_API const char *frl_algo_name(enum frl_algo algo);

/* ---- communicators */

struct frl_comm_config {
	/* Rails: ports of this process, all with connections to the same ports of the others; what
	 * is long is striped over them, and when one dies the others go on. */
	struct frl_device *const *devices;
	int n_devices;
	/* An operation that makes no progress for so long fails, and says who is awaited; 0: never.
	 * Default: FRL_COLL_TIMEOUT_S, or 0. */
	int timeout_ms;
	/* Which algorithms, as FRL_ALGO names them, alike on all ranks: "auto", "ring",
	 * "allreduce=ring,reduce=tree". NULL, the default: as FRL_ALGO says. The text is lent until
	 * the communicator, and all that were made out of it, are destroyed. */
	const char *algos;
};

FRL_API void frl_comm_config_init(struct frl_comm_config *config);

/*
 * Makes a communicator out of the ranks that `bootstrap` joins; all of them call it. The bootstrap
 * is lent until the communicator, and all that were made out of it, are destroyed: nobody else uses
 * it. Blocks while the others are awaited, as long as the bootstrap lets its allgather take (60 s
 * with frl_bootstrap_join() unless set). Connections are made when they are first needed; but over
 * a network two or three ranks measure what messages cost, unless FRL_TUNER_COSTS or a file says
 * it: see "What messages cost" in docs/collectives.md.
 * -EINVAL; -ECONNRESET, -ETIMEDOUT, -EPROTO (other settings, another Ferrule), -ENOMEM;
 * frl_last_error() names the rank.
 */
FRL_API int frl_comm_create_with(struct frl_bootstrap *bootstrap,
	const struct frl_comm_config *config, struct frl_comm **ret_comm);

/* The same with one device and defaults. */
FRL_API int frl_comm_create(
	struct frl_device *device, struct frl_bootstrap *bootstrap, struct frl_comm **ret_comm);

/*
 * Splits a communicator: ranks that give the same `color` form one, numbered by `key`, and among
 * equal keys by their number in `comm`. A negative color: part of none, *ret_comm is NULL. All
 * ranks of `comm` call it, in the order of their operations; waits for them. The new one has
 * connections of its own, and is independent of the old one, which must be destroyed later.
 * If one rank cannot make it (-ENOMEM), no rank of its color gets it, and `comm` goes on. Other
 * errors are the communicator's. *ret_comm is NULL after any.
 */
FRL_API int frl_comm_split(struct frl_comm *comm, int color, int key, struct frl_comm **ret_comm);

/* One with the same ranks. */
FRL_API int frl_comm_duplicate(struct frl_comm *comm, struct frl_comm **ret_comm);

/*
 * Ends it; all ranks call this, for several communicators in any order. Requests that were not
 * tested to their end are gone. What belongs to it stays until the other ranks have destroyed it
 * too, so that nobody misses a last acknowledgement: the last one of those that were made out of
 * one another waits for them (5 s at most, with several rails 20 s, since one of them may have
 * died). NULL is fine.
 */
FRL_API void frl_comm_destroy(struct frl_comm *comm);

/*
 * Makes all operations fail, here at once and soon on all other ranks, with -ECANCELED and
 * `reason` (a sentence; may be NULL). Never blocks; any thread. The others hear it also if this
 * process ends at once. The communicator is of no more use
 * but for frl_comm_destroy(), which does not wait then.
 */
FRL_API void frl_comm_abort(struct frl_comm *comm, const char *reason);

FRL_API int frl_comm_rank(const struct frl_comm *comm);
FRL_API int frl_comm_size(const struct frl_comm *comm);

/* ---- operations */

struct frl_collective {
	enum frl_coll coll;
	const void *send;
	void *recv;
	size_t count;
	enum frl_dtype dtype;
	enum frl_op op;     /* of ALLREDUCE, REDUCE_SCATTER, REDUCE */
	int root;           /* of BROADCAST, REDUCE, GATHER, SCATTER; the peer of SEND, RECV */
	const void *scalar; /* FRL_PREMUL_SUM: an element by which this rank's input is multiplied;
			     * read before frl_start() returns */
	/* How float32 travels, in every operation but BARRIER; other than FRL_WIRE_SAME the results
	 * are approximate. What is only copied is rounded once, as frl_wire_encode() of a block (of
	 * BROADCAST: of all) does it; also what a rank has for itself, in place and with one rank:
	 * no result depends on where it was. Reductions: see docs/collectives.md. */
	enum frl_wire wire;
	/* ALLTOALLV: n numbers each, elements and where they begin; read before frl_start()
	 * returns. What a rank sends to another is what that one receives from it. Received pieces
	 * must not overlap (-EINVAL); those that are sent may. Where not all ranks can be
	 * connected, they tell each other these numbers first, and what is started later begins
	 * when all ranks have started this one. */
	const size_t *send_counts, *send_displs, *recv_counts, *recv_displs;
	/* Buffers in GPU memory, all of one GPU, may have been written by what was launched before
	 * into this CUstream of it, NULL being the default one: the operation begins when all that
	 * has finished. Without `on_stream` they are ready when the operation is started. Whether
	 * buffers are a GPU's is each rank's own matter. With host memory, which the stream may
	 * write as well, the calling thread must have the stream's context current. */
	bool on_stream;
	void *stream;
};

/*
 * Starts an operation. The buffers belong to the request until it has completed. Several requests
 * may be in flight; all ranks start them in the same order, and none waits for an earlier one that
 * it has no rank in common with. Between two ranks the first SEND meets the first RECV, the second
 * the second, and so on; both are started between the same two collectives, with the same count,
 * type and wire type. Operations of no elements send nothing and complete at once, but count like
 * others: all ranks (both ends) start them. Ranks that do not keep to this fail with -EPROTO, and a
 * text that names both, as soon as they meet in the communicator again.
 * -EINVAL, -ENOMEM, -ENOTSUP (also: managed memory, a stream that is being captured into a CUDA
 * graph, a GPU or driver that Ferrule cannot work with), or the communicator's error once it has
 * failed.
 */
FRL_API int frl_start(struct frl_comm *comm, const struct frl_collective *collective,
	struct frl_request **ret_request);

/* Starts several at once, typically SENDs and RECVs, as one request. They count as started in the
 * order of the array: it must fit that of the other ranks, as if each were started by itself. */
FRL_API int frl_start_group(struct frl_comm *comm, const struct frl_collective collectives[], int n,
	struct frl_request **ret_request);

/*
 * Makes progress and says in *ret_done whether the request has completed; a completed or failed
 * request is gone afterwards. Returns 0 or the failure, which frl_last_error() explains:
 * -ECONNRESET when a rank is gone, -ETIMEDOUT (with what each rank waits for), -EPROTO when ranks
 * started different operations, -ENOSPC when a connection needs one more link of the local fabric
 * than a device can have (4,096), -ECANCELED, -EIO. After a failure the contents of recv are
 * undefined and the communicator is of no more use but for frl_comm_destroy(). Without any event it
 * yields the processor to others that want it.
 */
FRL_API int frl_request_test(struct frl_request *request, bool *ret_done);

/* As frl_request_test() until it is done, waiting politely. After a failure it also waits, as may
 * frl_start(), until a GPU touches the buffers no more: for 20 seconds at most. */
FRL_API int frl_request_wait(struct frl_request *request);

/* frl_start() and frl_request_wait() in one. */
FRL_API int frl_run(struct frl_comm *comm, const struct frl_collective *collective);

/* The common ones. */
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
/* Returns when all ranks have entered. */
FRL_API int frl_barrier(struct frl_comm *comm);

/*
 * Writes into `text`, as snprintf() does, one line for each algorithm that can do the operation:
 * its name, the time that the model expects, and "<-" at the one that is chosen, and why. The
 * choice does not depend on the counts of ALLTOALLV, which other ranks do not know; a line more
 * says then what this rank sends and receives. Another line says what messages cost, in the form
 * of FRL_TUNER_COSTS, and where that is from; the last one has the thresholds at which operations
 * are done another way. For an operation in shared memory: a line that says how it is done, and the
 * thresholds.
 */
FRL_API int frl_comm_explain(
	struct frl_comm *comm, const struct frl_collective *collective, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
