/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connection setup: the endpoint data that two queue pairs exchange, and a bootstrap that carries
 * it.
 *
 * An endpoint is what one queue pair sends to its peer (QPN, PSN, MAC, IP, MTU, capabilities). The
 * caller may carry it over any channel. Connection management (cm.h) does all of this by name.
 * Collectives use struct frl_bootstrap.
 *
 * Threads: any thread may call these functions; struct frl_bootstrap has its own rules.
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

/* Agreed at connection setup; a peer that is not Ferrule has none. */
enum frl_capability {
	FRL_CAP_NO_ICRC = 1 << 0, /* packets have no ICRC: enum frl_icrc_mode */
};

enum { FRL_ENDPOINT_SIZE = 128 };

/*
 * An opaque block of fixed size and layout: send its bytes unchanged. The receiver checks the
 * contents.
 */
struct frl_endpoint {
	uint8_t bytes[FRL_ENDPOINT_SIZE];
};

/*
 * Writes the endpoint of a queue pair for its peer. The queue pair must be RC or UC and in RESET.
 * Chooses the first PSN at random. The endpoint has the first four addresses of the device: GIDs 1
 * to 4. Returns -EINVAL for other queue pairs.
 */
FRL_API int frl_qp_endpoint(struct frl_qp *qp, struct frl_endpoint *ret_endpoint);

struct frl_connect_config {
	uint32_t access_flags; /* enum frl_access of the peer; default: REMOTE_WRITE, REMOTE_READ
			        * and REMOTE_ATOMIC */
	uint8_t timeout;       /* as in struct frl_qp_attr; default FRL_ACK_TIMEOUT, or else 14 (67
				* ms), 16 on the local fabric, 18 (1.07 s) with RDMA NICs */
	uint8_t retry_cnt;     /* default 7 */
	uint8_t rnr_retry;     /* default 7: without limit */
	uint8_t min_rnr_timer; /* default 1: 0.01 ms */
	uint8_t traffic_class; /* default FRL_TRAFFIC_CLASS, or else 0 */
	uint8_t max_rd_atomic; /* outstanding READs and atomics, in each direction; the same at both
			        * ends, and at most what the peer's device supports; default 16, or
			        * what this device supports */
	/*
	 * frl_connect(): accept a service of any user. Default: only of the same user ID, and of
	 * root.
	 */
	bool any_user;
	int timeout_ms; /* how long to wait for the link and for ARP or ND; default 10000 */
	/*
	 * Called about once per millisecond while waiting. A negative errno ends the wait and is
	 * its result; frl_last_error() is what the function set. NULL: not called.
	 */
	int (*interrupt)(void *arg);
	void *interrupt_arg;
};

/* Fills in the defaults for queue pairs of `device`. */
FRL_API void frl_connect_config_init(struct frl_device *device, struct frl_connect_config *config);

/*
 * Moves a queue pair (RC, UC) from RESET to RTS, connected to the peer that `remote` describes. The
 * peer may be of the same device. Both ends call this function. `config` NULL: defaults.
 *
 * The ends use their first addresses in a common subnet, or else a gateway. On the local fabric the
 * call creates the link. On Ethernet it resolves a gateway's MAC address by ARP or ND. The MAC
 * address of a peer in the same subnet comes from `remote`, or is resolved if it is zero there.
 * Blocks up to config->timeout_ms.
 *
 * Returns -EINVAL for a queue pair that is not in RESET or has no endpoint, and leaves it
 * unchanged. After any other failure reset or destroy the queue pair. The other failures are
 * -EPROTO (`remote` is not an endpoint of a compatible Ferrule), -EHOSTUNREACH (also: `remote` is
 * on another host's local fabric), -ETIMEDOUT, -EINVAL, -ECONNRESET (the peer has exited), -ENOSPC
 * (the device has its maximum number of links), -ENOMEM, -ECANCELED (another thread has reset the
 * queue pair), -EIO, -EPERM and -EBUSY of hardware, and errors of config->interrupt.
 */
FRL_API int frl_qp_connect(struct frl_qp *qp, const struct frl_endpoint *remote,
	const struct frl_connect_config *config);

/*
 * Starts frl_qp_connect() without blocking, for programs that set up many connections at a time.
 * Then call frl_qp_connect_test() until it does not return -EAGAIN. Returns 0 also if the
 * connection is complete at once. After a failure the queue pair is as frl_qp_connect() leaves it,
 * and must not be tested.
 *
 * config->timeout_ms begins with this call, and config->interrupt is not used. `config` and
 * `remote` are not used after the call returns. Also returns -ENOMEM. To cancel, destroy or reset
 * the queue pair. Any thread may call this.
 */
FRL_API int frl_qp_connect_start(struct frl_qp *qp, const struct frl_endpoint *remote,
	const struct frl_connect_config *config);

/*
 * Drives the device and takes the next steps of the setup; call it often. Returns 0 if the queue
 * pair is in RTS and its link is up, also on later calls. Returns -EAGAIN while the setup
 * continues, and otherwise the error of frl_qp_connect(), once. Returns -EINVAL if the queue pair
 * is not in RTS and no frl_qp_connect_start() is in progress.
 */
FRL_API int frl_qp_connect_test(struct frl_qp *qp);

enum { FRL_MAIL_MAX = 2048 };

/*
 * Exchange among the ranks of a job. All ranks call allgather and barrier in the same order. Only
 * one thread at a time may call allgather and close. Any thread may call the other functions,
 * because several threads may use the communicators of one bootstrap.
 */
struct frl_bootstrap {
	int rank;
	int ranks;
	void *ctx;
	/*
	 * Gathers `size` bytes (at most 1 MiB) of each rank into `all`, which has room for `size`
	 * times ranks bytes, in rank order. Returns -ECONNRESET if a rank has exited, or
	 * -ETIMEDOUT; frl_last_error() names the rank.
	 */
	int (*allgather)(void *ctx, const void *mine, size_t size, void *all);
	/*
	 * Returns 0 while all ranks live. Returns -ECONNRESET once a rank has exited, with its
	 * number in *ret_rank (-1: the service that connects the ranks has failed). Never blocks.
	 * The call is cheap, but too expensive for every round of a poll loop.
	 */
	int (*check)(void *ctx, int *ret_rank);
	/*
	 * Reports to the other ranks that this rank gives up. `why` is a sentence, or NULL.
	 * frl_last_error() after their check() names this process and has the first 300 characters
	 * of `why`. Best effort.
	 */
	void (*abort)(void *ctx, const char *why);
	void (*close)(void *ctx);
	/*
	 * Optional (NULL: not known): returns whether the rank has left in good order. check() does
	 * not report such a rank as gone, but a rank that waits for it would wait in vain. Never
	 * blocks.
	 */
	bool (*has_left)(void *ctx, int rank);
	/*
	 * Sends at most FRL_MAIL_MAX bytes to another rank. Never blocks. Any thread may call it,
	 * also a receiver. Mail between two ranks keeps its order and arrives at most once. Mail is
	 * lost if the connection breaks, if a buffer is full, or if that rank has not joined yet;
	 * repeat a request until it is answered. Returns -EINVAL, -ENOMEM or -ECONNRESET (that rank
	 * has exited).
	 */
	int (*post)(void *ctx, int rank, const void *data, size_t size);
	/*
	 * Sets the receiver of mail. A thread of the bootstrap calls `receive`, one mail at a
	 * time. The receiver must not block and must not close the bootstrap; `data` is valid until
	 * it returns. Without a receiver up to 1 MiB of mail is kept, and further mail is lost.
	 *
	 * Setting another receiver, or NULL, waits until a running call has returned: do not hold a
	 * lock that the receiver takes. Within the receiver it does not wait. Any thread may call
	 * this.
	 */
	void (*set_receiver)(void *ctx,
		void (*receive)(void *arg, int rank, const void *data, size_t size), void *arg);
};

/*
 * Joins a job as rank `rank` of `ranks`, through the control daemon. The job is a name like that of
 * a service (cm.h). The daemon of this host keeps the job; for "JOB@HOST" the daemon of HOST does.
 * All ranks must be processes of one user. Waits up to `timeout_ms` for the daemons, but not for
 * the other ranks. The caller must close *ret_bootstrap with its close function.
 *
 * Returns -EINVAL (also: other ranks gave another number of ranks), -ETIMEDOUT, -ENOTCONN (no
 * daemon), -EHOSTUNREACH, -EEXIST (the rank joined already), or -EPROTO (one of the daemons is
 * older than this library and lacks a function: update it).
 */
FRL_API int frl_bootstrap_join(
	const char *job, int rank, int ranks, int timeout_ms, struct frl_bootstrap *ret_bootstrap);

/*
 * Sets how long an allgather waits for the other ranks. Default: 60000 ms; negative: without limit.
 * The death of a rank always ends the wait. `bootstrap` must be of frl_bootstrap_join().
 */
FRL_API void frl_bootstrap_set_timeout(struct frl_bootstrap *bootstrap, int timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
