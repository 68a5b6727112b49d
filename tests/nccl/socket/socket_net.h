/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A net plugin over TCP that does what NCCL's own Socket transport does with its defaults. The
 * thread that calls test() moves the bytes, through one socket a connection. A header with the size
 * precedes each message, and messages of up to 128 bytes go with it. NCCL_SOCKET_NTHREADS and
 * NCCL_NSOCKS_PERTHREAD add helper threads with sockets of their own, to which a message then goes
 * in parts of at least 64 KiB. It is the peer of the bench, and proves the harness.
 *
 * SOCKET_NET_RECVS=N adds grouped receives of up to N, which NCCL's Socket transport lacks.
 * SOCKET_NET_DEFECT=NAME makes one deliberate mistake; the list is in socket_defects.h.
 */
#ifndef TESTS_NCCL_SOCKET_NET_H
#define TESTS_NCCL_SOCKET_NET_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>

#include "tests/nccl/caller/abi.h"

enum {
	SOCKET_MAX_SOCKETS = 64,
	SOCKET_MAX_THREADS = 16,
	SOCKET_MAX_DEVICES = 16,
	SOCKET_MAX_REQUESTS = NCCL_MAX_REQUESTS * NCCL_MAX_RECVS,
	SOCKET_INLINE_BYTES = 128,
	SOCKET_MIN_TASK_BYTES = 64 * 1024,
};

struct socket_device {
	char name[16];
	char pci_path[256];
	struct sockaddr_in address;
	int speed_mbps;
};

/* Precedes every message. */
struct socket_header {
	uint64_t size;
	int32_t tag;
	uint32_t reserved;
};

/* A piece of a message, moved by a helper thread. */
struct socket_task {
	struct socket_task *next;
	int fd;
	bool is_send;
	uint8_t *data;
	size_t size;
	size_t offset;
	_Atomic int result; /* 0: under way, 1: done, -1: failed */
};

struct socket_part {
	uint8_t *data;
	size_t capacity;
	size_t size;
	int tag;
	bool is_full;
	void *mr;
};

enum socket_state {
	SOCKET_HEADER,
	SOCKET_PAYLOAD,
	SOCKET_MOVED, /* nothing is left for the control socket; tasks may be */
};

struct socket_request {
	bool is_used;
	bool is_late; /* defect: counts as done never */
	enum socket_state state;
	struct socket_comm *comm;
	unsigned int n_parts;
	unsigned int n_full;
	struct socket_part parts[NCCL_MAX_RECVS];
	struct socket_part *part; /* the one that arrives, or is sent */
	uint8_t wire[sizeof(struct socket_header) + SOCKET_INLINE_BYTES];
	size_t offset; /* of `wire`, then of the payload */
	uint8_t *bounce;
	struct socket_task tasks[SOCKET_MAX_SOCKETS];
	unsigned int n_tasks;
	void *event;
};

struct socket_worker {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct socket_task *first;
	bool is_started;
	bool is_stopped;
};

struct socket_comm {
	struct socket_comm *next; /* of all there are */
	bool is_send;
	bool is_listener;
	struct socket_comm *pending; /* listener: what is being accepted */
	struct socket_comm *child;   /* listener: what was accepted last */
	int listen_fd;
	int control_fd;
	int fds[SOCKET_MAX_SOCKETS];
	unsigned int n_sockets;
	unsigned int n_threads;
	unsigned int n_greeted; /* connections that have said, or heard, which they are */
	int greeting_fd;
	unsigned int next_socket;
	int result; /* why it failed */
	unsigned int n_used;
	unsigned int sent;
	unsigned int head;
	unsigned int tail;
	struct socket_request *order[SOCKET_MAX_REQUESTS];
	struct socket_request requests[SOCKET_MAX_REQUESTS];
	struct socket_worker workers[SOCKET_MAX_THREADS];
	uint8_t *late; /* defect: a byte that is written after completion */
};

/* The handle's contents for connect; `pending` is connect's own state. */
struct socket_handle {
	uint32_t magic;
	uint32_t n_sockets;
	struct sockaddr_in address;
	struct socket_comm *pending;
};
static_assert(sizeof(struct socket_handle) <= NCCL_HANDLE_BYTES, "goes through NCCL");

#define SOCKET_MAGIC 0x50cce7u

extern nccl_logger socket_log;
extern nccl_profiler socket_profiler;

/* The entries, in the newest form. See abi.h. */
int socket_init(nccl_logger log, nccl_profiler profiler);
int socket_devices(int *n);
int socket_properties(int dev, struct nccl_properties_v12 *properties);
int socket_listen(int dev, void *handle, void **listen_comm);
int socket_connect(int dev, void *handle, void **send_comm, struct nccl_device_handle **device);
int socket_accept(void *listen_comm, void **recv_comm, struct nccl_device_handle **device);
int socket_reg(void *comm, void *data, size_t size, int type, void **mr);
int socket_reg_dmabuf(
	void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mr);
int socket_dereg(void *comm, void *mr);
int socket_isend(
	void *comm, void *data, size_t size, int tag, void *mr, void *parent, void **request);
int socket_irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs,
	void **parents, void **request);
int socket_iflush(void *comm, int n, void **data, int *sizes, void **mrs, void **request);
int socket_test(void *request, int *done, int *sizes);
int socket_close(void *comm);

/* Whether a registration covers these bytes. */
bool socket_covers(const void *mr, const void *data, size_t size);
/* Requests hold the registrations that they use, so that use after deregistration is found. */
void *socket_hold(void *mr);
void socket_drop(void *mr);
bool socket_is_gone(const void *mr);
/* The most receives in one: 1, or SOCKET_NET_RECVS. */
int socket_max_recvs(void);

/* Ends the helper threads of a comm; they never wait. */
void socket_stop_workers(struct socket_comm *comm);
/* Hands a task to the helper thread of the comm's next socket; 0, or -1 without a thread. */
int socket_hand_over(struct socket_comm *comm, struct socket_task *task);
/* Moves as many bytes as a socket allows without waiting. Returns them (0: none now), or -1 for the
 * end. */
ssize_t socket_move(int fd, bool is_send, void *data, size_t size);

#endif
