/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connection management: queue pairs that find each other by host and service name, through the
 * control daemon (ferruled). Where none runs the library starts a private one for the user.
 *
 *	active                               passive
 *	frl_connect(qp, host, service) ----> readable: frl_get_request()
 *	                               <---- frl_accept(conn, qp), or frl_reject(conn)
 *	readable: frl_conn_test() == 0 ----> readable: frl_conn_test() == 0
 *
 * Nothing here blocks but where a function says so. A descriptor (frl_listener_fd, frl_conn_fd) is
 * readable while there is news: for poll(2) and epoll(7), not to be read. A thread of the library
 * does the work, whoever drives the device.
 *
 * Queue pairs are RC or UC, in RESET when handed over, and in RTS when the connection is
 * established: they may be used from then on with everything in queue.h. Receives can be posted
 * once the state is INIT or later; to have them there before the peer's first message, give them
 * to an SRQ, or let the peer wait for a message of yours. A connection ends when either end closes
 * it or ends itself: both queue pairs are then in ERR, flushed, and frl_conn_test() says why.
 *
 * Threads: any thread may call any function here; one connection or listener must not be closed
 * while another thread uses it.
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
	FRL_PRIVATE_DATA_MAX = 196, /* bytes, each way */
	FRL_SERVICE_MAX = 64,       /* characters of a service name */
	FRL_HOST_MAX = 255,
};

struct frl_listen_config {
	/* Requests that wait for frl_get_request() and an answer; more are refused with
	 * -ECONNREFUSED at the peer. Default 1024. */
	uint32_t backlog;
	/* Processes of other users may connect, if they say any_user, too; default: of the same
	 * user ID, and root's. */
	bool any_user;
};

FRL_API void frl_listen_config_init(struct frl_listen_config *config);

/*
 * Offers a service without waiting: connections to it are for queue pairs of `device`. `service` is
 * 1 to FRL_SERVICE_MAX characters of [A-Za-z0-9._-]; NULL or "": the daemon chooses one. `config`
 * NULL: defaults. -EINVAL, -ENOMEM, -EMFILE, -ENOTCONN. All else comes with frl_listener_test().
 */
FRL_API int frl_listen_start(struct frl_device *device, const char *service,
	const struct frl_listen_config *config, struct frl_listener **ret_listener);

/*
 * 0: the service is offered; -EAGAIN: not yet; else why not, or not any more: -EADDRINUSE (somebody
 * on this host offers it), -ENOTCONN (no daemon, and none could be started; frl_last_error() says
 * why), -EBUSY (the host is draining), -EDQUOT.
 */
FRL_API int frl_listener_test(struct frl_listener *listener);

/* frl_listen_start(), and waits up to 5 s for the daemon's answer: the errors of
 * frl_listener_test() as well, and -ETIMEDOUT. */
FRL_API int frl_listen(struct frl_device *device, const char *service,
	const struct frl_listen_config *config, struct frl_listener **ret_listener);

/* The service name; the listener's. One that the daemon chooses is there when frl_listener_test()
 * has said 0. */
FRL_API const char *frl_listener_service(const struct frl_listener *listener);

/* Readable while frl_get_request() has something, and until frl_listener_test() has said that the
 * service is offered. The listener's. */
FRL_API int frl_listener_fd(const struct frl_listener *listener);

/* Refuses what waits. NULL is fine. */
FRL_API void frl_listener_close(struct frl_listener *listener);

enum { FRL_PLACE_SIZE = 88 };

/*
 * Where the services of this host are found, for processes that are told of them by other means
 * than their users: text to be passed on, up to the '\0', and given to frl_host_of_place() there.
 * Blocks while a daemon is started. -ENOTCONN, -ETIMEDOUT: no daemon.
 */
FRL_API int frl_place_create(char ret_place[FRL_PLACE_SIZE]);

/*
 * The `host` for frl_connect(), from where this process is: "" if that is the same daemon's place.
 * Blocks as frl_place_create(). -EINVAL: that is no place; -EHOSTUNREACH: the daemon there serves
 * processes of its own host only (the one that the library starts does); frl_last_error() names it.
 */
FRL_API int frl_host_of_place(const char *place, char ret_host[FRL_HOST_MAX + 1]);

/*
 * The next request in *ret_conn, the caller's: to be answered by frl_accept() or frl_reject(), and
 * closed by frl_conn_close(). -EAGAIN: none waits. Another negative errno: the listener is of no
 * more use. frl_wait_request() waits up to `timeout_ms` (negative: without limit); -ETIMEDOUT.
 */
FRL_API int frl_get_request(struct frl_listener *listener, struct frl_conn **ret_conn);
FRL_API int frl_wait_request(
	struct frl_listener *listener, int timeout_ms, struct frl_conn **ret_conn);

/* Who is at the other end, as far as it is known yet. */
struct frl_conn_peer {
	char host[FRL_HOST_MAX + 1]; /* as its daemon names it; certified where TLS is used */
	char program[64];
	uint32_t pid;
	uint32_t uid;
	uint32_t qpn;
	struct frl_ip ip;
};

FRL_API void frl_conn_peer(struct frl_conn *conn, struct frl_conn_peer *ret_peer);

/* What the peer sent along with its request, acceptance or rejection: up to `size` bytes are
 * copied. Returns how many there are. */
FRL_API size_t frl_conn_private_data(struct frl_conn *conn, void *data, size_t size);

/* What both ends agreed on, once it is established: path MTU, capabilities, depth of READs and
 * atomics, timers. -EAGAIN before. */
FRL_API int frl_conn_query(struct frl_conn *conn, struct frl_qp_attr *ret_attr);

/*
 * Asks for a connection of `qp` to a service on `host`: a name or an address, with ":PORT" behind
 * it where the daemon there does not listen on the usual one; NULL, "" or "localhost": this host.
 * The queue pair is the connection's until that is closed; destroying it ends the connection.
 * `private_data` is copied. `config` NULL: defaults; of its fields `interrupt` is not used, and
 * timeout_ms (default 10000) is for all of the setting up. Path MTU, depth of READs and atomics
 * and capabilities become what both ends can do, timeouts the longer and numbers of retries the
 * larger one.
 * -EINVAL, -ENOMEM. All else comes with frl_conn_test().
 */
FRL_API int frl_connect(struct frl_qp *qp, const char *host, const char *service,
	const void *private_data, size_t private_size, const struct frl_connect_config *config,
	struct frl_conn **ret_conn);

/* Takes a request, with a queue pair of the listener's device. -EINVAL, -ENOMEM; -ECONNRESET: who
 * asked has ended or given up. The rest comes with frl_conn_test(). */
FRL_API int frl_accept(struct frl_conn *conn, struct frl_qp *qp, const void *private_data,
	size_t private_size, const struct frl_connect_config *config);

/* Refuses a request: frl_conn_test() at the peer gives -ECONNREFUSED, and frl_last_error() the
 * `reason`, a sentence (may be NULL). Then close the connection. */
FRL_API int frl_reject(
	struct frl_conn *conn, const char *reason, const void *private_data, size_t private_size);

/* Readable when frl_conn_test() has something new to say: established, or ended. The connection's,
 * and made when it is first asked for: -EMFILE and the like. */
FRL_API int frl_conn_fd(struct frl_conn *conn);

/*
 * 0: established; -EAGAIN: not yet; else why it ended or failed, explained by frl_last_error():
 * -ECONNREFUSED (no such service, or rejected), -ETIMEDOUT, -EHOSTUNREACH (no way to the daemon or
 * the port of the peer), -ECONNRESET (the peer has closed it or died), -EHOSTDOWN (the peer's host
 * answers no more), -EACCES (not of that user; TLS refused), -ECANCELED (an operator's wish),
 * -EPROTO (the ends have nothing in common), -EBUSY (draining), -ENOTCONN (no daemon).
 */
FRL_API int frl_conn_test(struct frl_conn *conn);

/* As frl_conn_test(), but waits up to `timeout_ms` (negative: without limit) while it says -EAGAIN;
 * -ETIMEDOUT then; the connection goes on being set up. */
FRL_API int frl_conn_wait(struct frl_conn *conn, int timeout_ms);

/* Waits until a connection ends, for up to `timeout_ms`: returns why, or -ETIMEDOUT (which
 * frl_conn_test() tells from a connection that was not set up in time). */
FRL_API int frl_conn_wait_end(struct frl_conn *conn, int timeout_ms);

/* Ends the connection, whatever its state: cancels setting up, or tells the peer. The queue pair is
 * in ERR or RESET then and the caller's again. NULL is fine. */
FRL_API void frl_conn_close(struct frl_conn *conn);

#ifdef __cplusplus
}
#endif
#endif
