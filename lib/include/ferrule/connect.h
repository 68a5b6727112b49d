/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Setting connections up: what two ends must tell each other, and a bootstrap that carries it.
 *
 * An endpoint is what one queue pair tells its peer (QPN, PSN, MAC, IP, MTU, capabilities). How it
 * gets there is the caller's business: any channel will do. Connection management (cm.h) does all
 * of it by name; struct frl_bootstrap is what the collectives use.
 */
#ifndef FERRULE_CONNECT_H
#define FERRULE_CONNECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/error.h>
#include <ferrule/queue.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Agreed when a connection is set up; a peer that is not Ferrule has none. */
enum frl_capability {
	FRL_CAP_NO_ICRC = 1 << 0, /* packets carry no ICRC: enum frl_icrc_mode */
};

enum { FRL_ENDPOINT_SIZE = 128 };

/* Fixed size and layout, to be sent as it is; the contents are checked by the receiver. */
struct frl_endpoint {
	uint8_t bytes[FRL_ENDPOINT_SIZE];
};

/*
 * Writes what the peer must know. The queue pair must be RC or UC and in RESET; its first PSN is
 * chosen here, at random. Of the device's addresses the first four are told: GIDs 1 to 4.
 */
FRL_API int frl_qp_endpoint(struct frl_qp *qp, struct frl_endpoint *ret_endpoint);

struct frl_connect_config {
	uint32_t access_flags; /* enum frl_access for the peer; default: REMOTE_WRITE,
				* REMOTE_READ and REMOTE_ATOMIC */
	uint8_t timeout;       /* as in struct frl_qp_attr; default FRL_ACK_TIMEOUT, or else 14 (67
				* ms), 16 on the local fabric, 18 (1.07 s) with RDMA NICs */
	uint8_t retry_cnt;     /* default 7 */
	uint8_t rnr_retry;     /* default 7: without limit */
	uint8_t min_rnr_timer; /* default 1: 0.01 ms */
	uint8_t traffic_class; /* default FRL_TRAFFIC_CLASS, or else 0 */
	uint8_t max_rd_atomic; /* READs and atomics outstanding, each way; alike at both ends, and
				* no more than the peer's device can; default 16, or what this
				* device can */
	/* frl_connect(): whoever offers the service will do; default: only the same user ID, and
	 * root's. */
	bool any_user;
	int timeout_ms; /* how long to wait for the link and for ARP or ND; default 10000 */
	/* Asked about every millisecond while waiting; a negative errno ends the wait and is its
	 * result, with frl_last_error() as the function left it. NULL: never. */
	int (*interrupt)(void *arg);
	void *interrupt_arg;
};

/* Defaults for queue pairs of `device`. */
FRL_API void frl_connect_config_init(struct frl_device *device, struct frl_connect_config *config);

/*
 * Takes a queue pair (RC, UC) from RESET to RTS towards the peer that `remote` describes, which may
 * be of the same device; both ends do it. Of their addresses they use those that are in one subnet,
 * the first ones if there are several, or else go through a gateway.
 * Makes the link on the local fabric. On Ethernet a gateway's MAC address is resolved by ARP or ND;
 * a peer in the same subnet has told its own in `remote`, or is resolved if that is zero. Blocks up
 * to config->timeout_ms. `config` NULL: defaults.
 * A queue pair that is not in RESET, or has no endpoint, is left alone: -EINVAL. After any other
 * failure it is to be reset or destroyed. -EPROTO: `remote` is no endpoint of a Ferrule that this
 * one can speak to; -EHOSTUNREACH (also: it is on another host's local fabric); -ETIMEDOUT;
 * -EINVAL; -ECONNRESET: the peer has ended; -ENOSPC: the device has all the links that it can have;
 * -ENOMEM; -ECANCELED: another thread has reset it meanwhile; -EIO, -EPERM, -EBUSY of hardware; and
 * what config->interrupt says.
 */
FRL_API int frl_qp_connect(struct frl_qp *qp, const struct frl_endpoint *remote,
	const struct frl_connect_config *config);

/*
 * The same without blocking, for who connects many at a time: starts, and asks until the answer is
 * not -EAGAIN. frl_qp_connect_start() returns 0 also when it is done at once; after a failure the
 * queue pair is as frl_qp_connect() leaves it, and there is nothing to ask about. The time of
 * config->timeout_ms begins with it; config->interrupt is not used; `config` and `remote` are not
 * needed any more when it returns. -ENOMEM.
 * To destroy or reset the queue pair gives the attempt up. Any thread.
 */
FRL_API int frl_qp_connect_start(struct frl_qp *qp, const struct frl_endpoint *remote,
	const struct frl_connect_config *config);

/*
 * Drives the device and takes what steps can be taken, so call it often until it is over. 0: the
 * queue pair is in RTS and its link is up, also when that was said before; -EAGAIN: not yet; else
 * why it failed, once, as frl_qp_connect() says it. -EINVAL: the queue pair is not being connected
 * by frl_qp_connect_start(), and not in RTS.
 */
FRL_API int frl_qp_connect_test(struct frl_qp *qp);

enum { FRL_MAIL_MAX = 2048 };

/*
 * How the ranks of a job find each other. All ranks call allgather and barrier in the same order.
 * allgather and close are called by one thread at a time; the others by any, as several threads may
 * use the communicators of one bootstrap.
 */
struct frl_bootstrap {
	int rank;
	int ranks;
	void *ctx;
	/*
	 * Gathers `size` bytes (at most 1 MiB) of each rank into `all`, `size` times ranks bytes,
	 * in rank order. -ECONNRESET when a rank is gone, -ETIMEDOUT; frl_last_error() names it.
	 */
	int (*allgather)(void *ctx, const void *mine, size_t size, void *all);
	/*
	 * Never blocks: 0 while all ranks live, -ECONNRESET with *ret_rank once one is gone (-1:
	 * what connects the ranks). Cheap, but not for every round of a poll loop.
	 */
	int (*check)(void *ctx, int *ret_rank);
	/* Tells the other ranks that this one gives up, and why: a sentence, or NULL. What check()
	 * says there names the process and, in its first 300 characters, that. Best effort. */
	void (*abort)(void *ctx, const char *why);
	void (*close)(void *ctx);
	/*
	 * Optional (NULL: cannot tell): has the rank left in good order? To check() it is not gone,
	 * but who still waits for it waits in vain. Never blocks.
	 */
	bool (*has_left)(void *ctx, int rank);
	/*
	 * Mail to another rank, at most FRL_MAIL_MAX bytes. Never blocks; any thread, also from
	 * within a receiver. Between two ranks it keeps its order and comes at most once; it is
	 * lost when what carries it breaks or is full, and when that rank has not joined yet, so
	 * who needs an answer asks again. -EINVAL, -ENOMEM, -ECONNRESET (that rank is gone).
	 */
	int (*post)(void *ctx, int rank, const void *data, size_t size);
	/*
	 * Whom mail is given to: called by a thread of the bootstrap, one mail at a time, and must
	 * not block; `data` is good until it returns. What comes while there is no receiver is
	 * kept, up to 1 MiB; what comes then is lost. Setting another one, or NULL, waits until a
	 * call that is running has returned, so not with a lock held that the receiver takes;
	 * within that call it does not wait. Any thread. The bootstrap is not to be closed there.
	 */
	void (*set_receiver)(void *ctx,
		void (*receive)(void *arg, int rank, const void *data, size_t size), void *arg);
};

/*
 * Joins a job as rank `rank` of `ranks`, through the control daemon: the job is a name like that of
 * a service (cm.h), kept by the daemon of this host, or for "JOB@HOST" by that of HOST. Only
 * processes of one user meet. Waits up to `timeout_ms` for the daemons, not for the other ranks.
 * Whoever gets a bootstrap closes it with its close function. -EINVAL (also: other ranks gave
 * another number of ranks), -ETIMEDOUT, -ENOTCONN (no daemon), -EHOSTUNREACH, -EEXIST (the rank
 * joined already), -EPROTO (one of the daemons is older than this library, and cannot do what it
 * needs: update it).
 */
FRL_API int frl_bootstrap_join(
	const char *job, int rank, int ranks, int timeout_ms, struct frl_bootstrap *ret_bootstrap);

/*
 * How long an allgather of this bootstrap, which is one of frl_bootstrap_join(), waits for the
 * other ranks: 60000 ms unless set; negative: without limit. A rank that dies ends it anyway.
 */
FRL_API void frl_bootstrap_set_timeout(struct frl_bootstrap *bootstrap, int timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
