/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of a communicator, and services for all its parts:
 *
 *	run.c        one operation under way: its buffers, registrations and end
 *	schedule.c   cache of plans that are ready to run
 *	rail.c, rail_health.c
 *	             devices, their registrations and failures
 *	mailbox.c    mail between ranks, and its delivery to communicators
 *	failure.c    failures and their error texts
 *	location.c   host, NUMA node and processors of this rank
 *
 * The parts are in other folders: net/ (connections and steps of plans), shm/ (operations in memory
 * that ranks of one machine share), gpu/ (operations on GPU memory). They see this folder and not
 * each other; api/ joins them.
 *
 * Threads: one thread at a time, which has entered the communicator (api/siblings.h). Other threads
 * may access struct inbox, struct notices and comm->mailbox at any time.
 */
#ifndef FERRULE_COLLECTIVES_COMMUNICATOR_COMMUNICATOR_H
#define FERRULE_COLLECTIVES_COMMUNICATOR_COMMUNICATOR_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <ferrule/collective.h>
#include <ferrule/memory.h>

#include "collectives/communicator/config.h"
#include "collectives/communicator/mailbox.h"
#include "collectives/communicator/run.h"
#include "collectives/communicator/schedule.h"
#include "collectives/plan/topology.h"
#include "collectives/tune/tuner.h"

enum {
	POLL_BATCH = 16,
	BUSY_MS = 100, /* most time that a NIC may keep a registration in use; then it is leaked */
	ERROR_TEXT = 1024,
	HISTORY = 64, /* collectives whose signatures are kept */
	NS_PER_MS = 1000000,
};

struct request_list {
	struct frl_request *first;
	struct frl_request *last;
};

struct frl_request {
	struct frl_comm *comm;
	struct request_list *list; /* the list that the request is in */
	struct frl_request *previous, *next;
	struct run *runs;
	uint32_t number; /* of the request: 1, 2, ... */
	uint32_t left;   /* runs that are not complete */
	uint32_t moves;  /* number of advances, for api/hang.c */
	uint32_t seen_moves;
	uint64_t since_ns; /* time of the last advance; 0: not checked yet */
	/* deadline for its deregistrations, after which it completes without; 0: not set yet */
	uint64_t busy_by_ns;
	bool done;
	struct waiter *waiter; /* the thread that sleeps until it is done, or NULL */
	struct notice *notice; /* reserved by frl_request_detach(); NULL: not detached */
};

/* Notices for frl_comm_next_done(): api/notices.h. */
struct notices {
	pthread_mutex_t mutex; /* protects all that follows */
	struct notice *first, **end;
	_Atomic unsigned count;
	int fd; /* an eventfd, readable while there are notices; -1: not created yet */
};

/* One device, and the communicator's resources on it. */
struct rail {
	struct frl_device *device;
	struct frl_pd *pd;
	struct frl_device_attr attr;
	/* registration cache for the caller's buffers; NULL: registering takes no time */
	struct frl_mr_cache *cache;
	bool has_posted; /* work was posted since the device's last progress */
	bool is_down;    /* its port has no link */
	bool is_lost;    /* the device has failed and will not recover */
	/* number of suspicions of the sibling communicators that have been handled */
	uint32_t suspicions;
};

/* A completion queue. There are several if the queue depth is too small for all channels. */
struct poller {
	struct frl_cq *cq;
	unsigned rail;
	uint32_t room;    /* for this many more completions */
	uint32_t emptied; /* number of polls that found it empty */
	bool is_over;     /* no completions will come: the device has failed */
};

struct channel;
struct compute;
struct driver;
struct gpu_ops;
struct notice;
struct peer;
struct rail_health;
struct segment;
struct shm;
struct siblings;
struct staging_ring;
struct waiter;

/* A communicator's membership among its siblings: api/siblings.h. */
struct sibling {
	struct siblings *siblings;
	struct frl_comm *next; /* in a ring */
	atomic_bool is_used;
	uint32_t rounds;       /* of progress */
	uint32_t quiet_rounds; /* consecutive rounds without events */
	uint64_t helped_ns;
	/* While it is being destroyed: */
	bool is_leaving;
	struct frl_request *barrier; /* NULL: complete */
	uint64_t linger_ns, end_ns;
};

/* The staging state of a communicator: net/staging.h. */
struct staging {
	bool is_needed; /* a device does not reduce, or must not */
	size_t ring_bytes;
	uint32_t n_rings;                     /* created so far */
	struct staging_ring *idle, *idle_gpu; /* in host memory, and in memory of GPUs */
	struct segment *first, *last;         /* chunks that have arrived, oldest first */
};

/*
 * Calls into the parts that move data, for services that all parts use: api/create.c. Only
 * failures, and operations on GPU memory, lead to these calls.
 */
struct comm_hooks {
	/* Handles waiting mail and aborts. Returns 0 or the communicator's error. */
	int (*take_mail)(struct frl_comm *comm);
	/* Stops all accesses to buffers, because the communicator has failed. */
	void (*stop)(struct frl_comm *comm);
	/* Returns a rank that this rank waits for and that has left, or -1. */
	int (*find_left)(const struct frl_comm *comm);
	/* Moves all channels of a rail that failed to other rails. Returns 0 or the communicator's
	 * error. */
	int (*leave_rail)(struct frl_comm *comm, unsigned rail);
	/* Returns the memory of idle staging rings on GPUs to the idle blocks. */
	void (*give_idle)(struct frl_comm *comm);
	/* Unblocks a run whose stream and copies are done. */
	void (*open_run)(struct run *run);
};

struct frl_comm {
	const struct comm_hooks *hooks;
	struct frl_bootstrap *bootstrap;
	struct collective_config config;
	struct topology topology;
	struct tuner tuner;
	int rank;
	int ranks;
	int *members;    /* by rank: the rank in the bootstrap; NULL: the same */
	int *rank_order; /* the ranks, sorted by their rank in the bootstrap */
	bool is_child;
	pid_t pid;             /* of the process that created it; a forked child must not use it */
	struct driver *driver; /* NULL: FRL_PROGRESS_INLINE */
	struct notices notices;
	unsigned detached; /* pending requests that were detached */
	/* the rank that measured with this one and has received all answers */
	int measured_by;
	struct sibling sibling; /* of its sibling communicators */
	struct mailbox *mailbox;
	struct inbox inbox;

	struct rail_health *rail_health; /* shared with the siblings */
	struct rail rails[RAILS_MAX];
	unsigned n_rails;
	struct poller *pollers;
	unsigned n_pollers;

	struct peer **peers; /* by rank; NULL: not used yet */
	struct peer *first_peer;
	struct channel *connecting; /* channels that are not up */
	struct channel *reports_due;
	struct lane *ready;
	struct lane **ready_end;

	struct shm *shm; /* NULL: the ranks share no memory */
	struct staging staging;
	struct schedule_cache schedules;
	size_t idle_scratch;           /* bytes that idle runs keep */
	struct compute *computes;      /* GPUs that have been used */
	const struct gpu_ops *gpu_ops; /* NULL: no GPU has been used */
	/* runs that wait for a stream; runs that wait for room in the copy queue */
	struct run *stream_waiting, *moving;
	uint64_t stream_eager_ns; /* until this time streams are polled in each round */
	uint64_t stream_poll_ns;  /* after that, streams are polled next at this time */
	/* after a failure: deadline for GPUs to become idle; 0: not set yet */
	uint64_t still_by_ns;
	uint32_t started; /* collectives started */
	struct signature history[HISTORY];
	bool has_self_runs; /* a run in the two lists below has been unblocked */
	struct self_list {
		struct run *first, *last;
		uint32_t started;    /* including empty ones */
	} self_sends, self_receives; /* from this rank to itself, oldest first */

	uint32_t requests;             /* started so far */
	struct request_list active;    /* in the order of their start */
	struct request_list finishing; /* complete except for their deregistrations */
	struct request_list done;      /* waiting for the caller's test */
	struct request_list stale;     /* freed by the caller, but a registration is still in use */
	struct request_list idle;      /* for reuse */

	struct hang {
		uint32_t polls, idle_polls; /* since the last clock check */
		uint64_t checked_ns;
		uint64_t probed_ns;
		uint32_t probes;
		uint64_t questioned_ns; /* 0: no questions are under way */
		uint32_t question;
		struct report *reports; /* by rank, while questions are under way */
	} hang;

	bool draining; /* frl_comm_destroy() was called: failures are not sent to other ranks */
	int error;     /* 0: none */
	char error_text[ERROR_TEXT];
};

/* rail.c. rails_close() is required even if rails_open() fails. */
int rails_open(struct frl_comm *comm, const struct frl_comm_config *config);
void rails_close(struct frl_comm *comm);
/*
 * Registers a buffer of a run. Returns 0 and leaves *ret_mr unchanged if the rail has failed. Fails
 * as frl_reg_mr(), or with the communicator's error.
 */
int rail_register(struct frl_comm *comm, unsigned rail, enum plan_buffer buffer, void *addr,
	size_t bytes, struct frl_mr **ret_mr);
/* Deregisters a buffer that is not in use. Fails as frl_dereg_mr(). */
int rail_deregister(
	struct frl_comm *comm, unsigned rail, enum plan_buffer buffer, struct frl_mr *mr);
/* Ends a registration that is not in use. Fails with -EBUSY if a NIC still uses it after
 * BUSY_MS. */
int rail_end_registration(const struct frl_comm *comm, unsigned rail, struct frl_mr *mr);
/*
 * Checks the return value of a call on the rail's device, with the thread's last error. If the
 * device has failed, channels move to other rails and the function returns 0, or the communicator's
 * error if that is impossible. Returns other errors unchanged.
 */
int rail_check(struct frl_comm *comm, unsigned rail, int err);

static inline int comm_member(const struct frl_comm *comm, int rank)
{
	return comm->members ? comm->members[rank] : rank;
}

/* Returns the rank of a member of the bootstrap, or -1 if it is not in this communicator. */
int comm_rank_of_member(const struct frl_comm *comm, int member);

/* Hands all posted work to the devices. */
void comm_flush(struct frl_comm *comm);

/* request.c: lists of requests. */
void request_unlink(struct frl_request *request);
void request_append(struct request_list *list, struct frl_request *request);
/* A run of the request is done; with the last one, the request waits for its deregistrations. */
void request_run_done(struct frl_request *request);

/* failure.c: fails the communicator. Only the first failure has an effect. Returns its error. */
int comm_fail(struct frl_comm *comm, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* As comm_fail(), without sending the failure to other ranks: they know it from elsewhere. */
int comm_fail_quietly(struct frl_comm *comm, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Fails after frl_comm_abort(), which has sent the failure. */
int comm_fail_aborted(struct frl_comm *comm, const char *reason);
/* Any thread: mails the failure to all other ranks. */
void comm_send_failure(const struct frl_comm *comm, int err, const char *text);
/* Any thread: aborts the whole job, unless the communicator was split from another one. Unlike
 * mail, that cannot get lost. */
void comm_give_up_job(const struct frl_comm *comm, const char *why);
/* Returns the error of a failed communicator and sets the thread's last error. */
int comm_error(const struct frl_comm *comm);
/* Fails because of an error completion on the connection to rank `peer`. */
int comm_fail_completion(struct frl_comm *comm, int peer, enum frl_wc_status status);
/* Returns whether the status means that the connection is broken or the peer is gone. */
bool comm_is_broken(enum frl_wc_status status);
/* A connection to `peer` broke: waits a moment for the bootstrap or for mail to report the
 * cause. Returns the communicator's error if they do, else 0. */
int comm_find_reason(struct frl_comm *comm, int peer, enum frl_wc_status status);
/* Fails because rank `peer` cannot be connected, with the thread's last error. */
int comm_fail_connecting(struct frl_comm *comm, int peer, int err);
/* Fails because rank `peer` is in another operation than this rank. */
int comm_fail_mismatch(struct frl_comm *comm, int peer, const struct signature *theirs,
	const struct signature *mine);
/* Fails because both ends of a transfer have different lengths or types. */
int comm_fail_transfer(struct frl_comm *comm, int peer, enum transfer_way way,
	const struct transfer *theirs, const struct transfer *mine);
/* Fails because memory of rank `peer` cannot be read, with the thread's last error. */
int comm_fail_reading(struct frl_comm *comm, int peer, int err);
/* Fails because rank `peer` failed while its memory was read, so the data is undefined. */
int comm_fail_taken_back(struct frl_comm *comm, int peer);
/* Asks the bootstrap which ranks are gone. Returns 0 or the communicator's error. */
int comm_check_ranks(struct frl_comm *comm);
/* Handles a MAIL_FAILED. */
int comm_take_failure(struct frl_comm *comm, int rank, const uint8_t *bytes, size_t size);

/* Compares the operation that a peer reports with this rank's operation of the same number.
 * Returns 0 or the communicator's error. */
int comm_compare(struct frl_comm *comm, int peer, const struct signature *theirs);

#endif
