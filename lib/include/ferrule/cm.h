/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connection management: queue pairs connect by host and service name, through the control daemon
 * (ferruled). If no daemon runs, the library starts a private one for the user.
 *
 *     active                               passive
 *     frl_connect(qp, host, service) ----> readable: frl_get_request()
 *                                    <---- frl_accept(conn, qp), or frl_reject(conn)
 *     readable: frl_conn_test() == 0 ----> readable: frl_conn_test() == 0
 *
 * Functions block only where their description says so. A descriptor (frl_listener_fd, frl_conn_fd)
 * is readable while there is news. It is for poll(2) and epoll(7); do not read from it. A thread of
 * the library does the work, no matter which thread drives the device.
 *
 * Queue pairs are RC or UC. They must be in RESET when passed in, and are in RTS when the
 * connection is established; from then on all functions of queue.h may be used. Receives can be
 * posted once the state is INIT or later. To have receives ready before the peer's first message,
 * use an SRQ, or let the peer wait for a message first. A connection ends when either end closes it
 * or exits. Both queue pairs are then in ERR and flushed, and frl_conn_test() returns the reason.
 *
 * Threads: any thread may call any function here. A connection or listener must not be closed while
 * another thread uses it.
 */
#ifndef FERRULE_CM_H
#define FERRULE_CM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/connect.h>
#include <ferrule/error.h>

#ifdef __cplusplus
extern "C" {
#endif

struct frl_listener;
struct frl_conn;

enum {
	FRL_PRIVATE_DATA_MAX = 196, /* bytes, in each direction */
	FRL_SERVICE_MAX = 64,       /* characters of a service name */
	FRL_HOST_MAX = 255,
};

struct frl_listen_config {
	/*
	 * The number of requests that may wait for frl_get_request() and an answer. The peer of
	 * each further request gets -ECONNREFUSED. Default 1024.
	 */
	uint32_t backlog;
	/*
	 * Processes of other users may connect if they set any_user too. Default: only processes of
	 * the same user ID, and of root.
	 */
	bool any_user;
};

/* Fills in the defaults. */
FRL_API void frl_listen_config_init(struct frl_listen_config *config);

/*
 * Starts to offer a service and returns at once. Connections to it are for queue pairs of `device`.
 * `service` is 1 to FRL_SERVICE_MAX characters of [A-Za-z0-9._-]; with NULL or "" the daemon
 * chooses a name. `config` NULL: defaults. Close *ret_listener with frl_listener_close(). Returns
 * -EINVAL, -ENOMEM, -EMFILE or -ENOTCONN; frl_listener_test() reports all later errors.
 */
FRL_API int frl_listen_start(struct frl_device *device, const char *service,
	const struct frl_listen_config *config, struct frl_listener **ret_listener);

/*
 * Returns 0 if the service is offered and -EAGAIN if it is not offered yet. Another error says why
 * the service is not, or no longer, offered: -EADDRINUSE (a process on this host offers that name),
 * -ENOTCONN (no daemon, and none could be started; frl_last_error() says why), -EBUSY (the host is
 * draining), -EDQUOT.
 */
FRL_API int frl_listener_test(struct frl_listener *listener);

/*
 * Calls frl_listen_start() and waits up to 5 s for the daemon's answer. Returns the errors of both
 * frl_listen_start() and frl_listener_test(), and -ETIMEDOUT.
 */
FRL_API int frl_listen(struct frl_device *device, const char *service,
	const struct frl_listen_config *config, struct frl_listener **ret_listener);

/*
 * Returns the service name, which the listener owns. A name that the daemon chooses is known once
 * frl_listener_test() has returned 0.
 */
FRL_API const char *frl_listener_service(const struct frl_listener *listener);

/*
 * Returns a descriptor that the listener owns. It is readable while frl_get_request() has a
 * request, and until frl_listener_test() has reported that the service is offered.
 */
FRL_API int frl_listener_fd(const struct frl_listener *listener);

/* Ends the service and refuses the waiting requests. NULL is fine. */
FRL_API void frl_listener_close(struct frl_listener *listener);

enum { FRL_PLACE_SIZE = 88 };

/*
 * Writes a text that says where the services of this host are found. It is for processes that learn
 * of these services by other means than from the user. Pass the text on, up to the '\0', and call
 * frl_host_of_place() there. Blocks while a daemon is started. Returns -ENOTCONN or -ETIMEDOUT if
 * there is no daemon.
 */
FRL_API int frl_place_create(char ret_place[FRL_PLACE_SIZE]);

/*
 * Computes the `host` argument for frl_connect() from a text of frl_place_create(). The host is ""
 * if the text is of this process's own daemon. Blocks like frl_place_create(). Returns -EINVAL for
 * a malformed text. Returns -EHOSTUNREACH if the daemon there serves only processes of its own
 * host, as a daemon started by the library does; frl_last_error() names the daemon.
 */
FRL_API int frl_host_of_place(const char *place, char ret_host[FRL_HOST_MAX + 1]);

/*
 * Fetches the next request. The caller owns *ret_conn: answer with frl_accept() or frl_reject(),
 * and close it with frl_conn_close(). Returns -EAGAIN if no request waits. Any other error means
 * that the listener has failed: close it. frl_wait_request() waits up to `timeout_ms` (negative:
 * without limit) and returns -ETIMEDOUT after that.
 */
FRL_API int frl_get_request(struct frl_listener *listener, struct frl_conn **ret_conn);
FRL_API int frl_wait_request(
	struct frl_listener *listener, int timeout_ms, struct frl_conn **ret_conn);

/* The process at the other end, as far as it is known yet. */
struct frl_conn_peer {
	char host[FRL_HOST_MAX + 1]; /* the name that its daemon gives; certified if TLS is used */
	char program[64];
	uint32_t pid;
	uint32_t uid;
	uint32_t qpn;
	struct frl_ip ip;
};

/* Copies the known data about the peer. */
FRL_API void frl_conn_peer(struct frl_conn *conn, struct frl_conn_peer *ret_peer);

/*
 * Copies up to `size` bytes of the data that the peer sent with its request, acceptance or
 * rejection. Returns how many bytes the peer sent.
 */
FRL_API size_t frl_conn_private_data(struct frl_conn *conn, void *data, size_t size);

/*
 * Copies the attributes that both ends agreed on: path MTU, capabilities, depth of READs and
 * atomics, timers. Returns -EAGAIN until the connection is established.
 */
FRL_API int frl_conn_query(struct frl_conn *conn, struct frl_qp_attr *ret_attr);

/*
 * Starts to connect `qp` to a service on `host`. `host` is a name or an address, followed by
 * ":PORT" if the daemon there does not listen on the default port. NULL, "" and "localhost" are
 * this host. Close *ret_conn with frl_conn_close().
 *
 * The connection uses the queue pair until the connection is closed; destroying the queue pair ends
 * the connection. `private_data` is copied. `config` NULL: defaults. Its field `interrupt` is not
 * used, and timeout_ms (default 10000) limits the whole setup. Path MTU, depth of READs and
 * atomics, and capabilities become the largest that both ends support. Timeouts and retry counts
 * become the larger of the two.
 *
 * Returns -EINVAL or -ENOMEM; frl_conn_test() reports all later errors.
 */
FRL_API int frl_connect(struct frl_qp *qp, const char *host, const char *service,
	const void *private_data, size_t private_size, const struct frl_connect_config *config,
	struct frl_conn **ret_conn);

/*
 * Accepts a request with a queue pair of the listener's device. Returns -EINVAL, -ENOMEM, or
 * -ECONNRESET if the requester has exited or given up. frl_conn_test() reports all later errors.
 */
FRL_API int frl_accept(struct frl_conn *conn, struct frl_qp *qp, const void *private_data,
	size_t private_size, const struct frl_connect_config *config);

/*
 * Rejects a request: frl_conn_test() of the peer returns -ECONNREFUSED, and frl_last_error() there
 * gives `reason`, a sentence (may be NULL). The caller still closes the connection.
 */
FRL_API int frl_reject(
	struct frl_conn *conn, const char *reason, const void *private_data, size_t private_size);

/*
 * Returns a descriptor that is readable when frl_conn_test() has news: established, or ended. The
 * connection owns the descriptor. The first call creates it, and can fail with -EMFILE and similar
 * errors.
 */
FRL_API int frl_conn_fd(struct frl_conn *conn);

/*
 * Returns 0 if the connection is established and -EAGAIN if it is not yet. Another error says why
 * the connection ended or failed, and frl_last_error() explains it:
 * -ECONNREFUSED (no such service, or rejected), -ETIMEDOUT, -EHOSTUNREACH (no route to the daemon
 * or the port of the peer), -ECONNRESET (the peer closed the connection or died), -EHOSTDOWN (the
 * peer's host does not answer), -EACCES (not of that user; TLS refused), -ECANCELED (an operator
 * ended it), -EPROTO (no common parameters), -EBUSY (draining), -ENOTCONN (no daemon).
 */
FRL_API int frl_conn_test(struct frl_conn *conn);

/*
 * Waits up to `timeout_ms` (negative: without limit) while frl_conn_test() returns -EAGAIN, and
 * then returns its result. Returns -ETIMEDOUT if the time is over; the setup continues.
 */
FRL_API int frl_conn_wait(struct frl_conn *conn, int timeout_ms);

/*
 * Waits up to `timeout_ms` until a connection ends, and returns the reason. Returns -ETIMEDOUT if
 * the time is over; frl_conn_test() distinguishes this from a setup that timed out.
 */
FRL_API int frl_conn_wait_end(struct frl_conn *conn, int timeout_ms);

/*
 * Closes the connection in any state: cancels the setup, or notifies the peer. The queue pair is in
 * ERR or RESET afterwards and belongs to the caller again. NULL is fine.
 */
FRL_API void frl_conn_close(struct frl_conn *conn);

#ifdef __cplusplus
}
#endif
#endif
