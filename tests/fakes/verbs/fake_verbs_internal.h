/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared declarations of the libibverbs in memory. One lock guards everything; functions here are
 * called with it held, unless they say otherwise. Tests see fake_verbs.h alone.
 *
 *   fake_verbs.c            objects, devices, faults: what a test says beforehand
 *   fake_verbs_control.c    what it does to them later
 *   fake_verbs_device.c     lists, contexts, queries
 *   fake_verbs_events.c     asynchronous events, completion channels
 *   fake_verbs_memory.c     PDs, regions, windows, address handles
 *   fake_verbs_cq.c         completion queues, plain and extended
 *   fake_verbs_names.c      words for numbers
 *   fake_verbs_qp.c         QPs, SRQs, groups
 *   fake_verbs_states.c     changes of a QP's state
 *   fake_verbs_post.c       posting, plain and ibv_wr_*()
 *   fake_verbs_wire.c       the requester, its timers, who hears whom
 *   fake_verbs_responder.c  what a message does where it arrives
 *   fake_verbs_raw.c        raw packets, flow rules
 */
#ifndef FERRULE_TESTS_FAKES_VERBS_FAKE_VERBS_INTERNAL_H
#define FERRULE_TESTS_FAKES_VERBS_FAKE_VERBS_INTERNAL_H

#include <pthread.h>
#include <stddef.h>

#include "tests/fakes/verbs/fake_verbs.h"

/* The object around a structure that libibverbs hands out. */
#define FAKE_OF(type, member, pointer) \
	((type *)(void *)((char *)(void *)(pointer)-offsetof(type, member)))

enum { FAKE_MAX_SGE = 32, FAKE_GRH = 40, FAKE_ACK_MS = 120000 };

struct fake_device {
	struct ibv_device ibv;
	struct fake_verbs_device is;
	bool is_dead;
	uint32_t next_qpn, next_key, next_handle;
	uint64_t pinned;
};

/* An object of libibverbs, in a list of all objects, oldest first. */
struct fake_object {
	struct fake_object *next, *prev;
	enum fake_verbs_kind kind;
	struct fake_device *device;
	struct fake_context *context; /* NULL: a list of devices */
	unsigned n_users;             /* objects that hold this one */
	bool is_gone;                 /* destroyed on a dead device: not alive, its memory stays */
	bool is_orphan;               /* its context was closed */
	unsigned n_pending;           /* events handed out and not acknowledged */
};

struct fake_event {
	struct fake_object *object; /* NULL: of the port or device */
	struct ibv_async_event event;
};

/* Events in order. The file is readable while the list has one. */
struct fake_events {
	int fd;
	bool is_readable, has_hung_up;
	struct fake_event *list;
	size_t n, room;
};

struct fake_list {
	struct fake_object object;
	struct ibv_device *devices[FAKE_VERBS_DEVICES + 1];
};

struct fake_context {
	struct fake_object object;
	struct fake_events events;
	struct verbs_context verbs;
};

struct fake_pd {
	struct fake_object object;
	struct ibv_pd ibv;
};

struct fake_mr {
	struct fake_object object;
	struct ibv_mr ibv;
	uint8_t *base; /* of iova */
	uint64_t iova, length;
	unsigned access;
	uint64_t pinned;
	void *map; /* of a dma-buf */
	size_t map_length;
};

struct fake_mw {
	struct fake_object object;
	struct ibv_mw ibv;
	struct fake_mr *mr; /* NULL: not bound */
	struct fake_qp *qp;
	uint64_t addr, length;
	unsigned access;
};

struct fake_channel {
	struct fake_object object;
	struct ibv_comp_channel ibv;
	struct fake_events events;
};

struct fake_cqe {
	struct ibv_wc wc;
	struct fake_qp *qp;   /* NULL: destroyed since */
	struct fake_srq *srq; /* where the receive was taken from */
	bool is_send;
	uint64_t index; /* of the send */
};

enum fake_notify { FAKE_NOTIFY_NONE, FAKE_NOTIFY_SOLICITED, FAKE_NOTIFY_ANY };

struct fake_cq {
	struct fake_object object;
	union {
		struct ibv_cq ibv;
		struct ibv_cq_ex ex;
	};
	struct fake_channel *channel;
	struct fake_cqe *ring;
	uint32_t head, n;
	bool has_overrun;
	bool is_dead; /* fake_verbs_overrun() */
	enum fake_notify notify;
	pthread_mutex_t polling; /* from ibv_start_poll() to ibv_end_poll() */
	struct fake_cqe current;
};

struct fake_recv {
	uint64_t wr_id;
	int n_sge;
	struct ibv_sge *sges; /* in the ring's memory */
};

/* Receives: `posted` and `taken` count for ever; `polled` of those taken are free again. */
struct fake_recv_ring {
	struct fake_recv *slots;
	struct ibv_sge *sges;
	uint32_t max_wr, max_sge;
	uint64_t posted, taken, polled;
};

struct fake_srq {
	struct fake_object object;
	struct ibv_srq ibv;
	struct fake_recv_ring ring;
	uint32_t limit;
};

struct fake_ah {
	struct fake_object object;
	struct ibv_ah ibv;
	struct ibv_ah_attr attr;
};

struct fake_mcast {
	struct fake_object object;
	union ibv_gid gid;
	uint16_t lid;
	struct fake_qp *qp;
};

struct fake_flow {
	struct fake_object object;
	struct ibv_flow ibv;
	struct fake_qp *qp;
	uint8_t port;
	uint16_t priority;
	bool dont_trap;
	unsigned n_layers;
	struct ibv_flow_spec layers[4];
};

struct fake_send {
	struct ibv_send_wr wr; /* sg_list is of the ring */
	struct ibv_sge *sges;
	uint8_t *bytes;        /* inline */
	uint64_t length;       /* of all segments */
	struct ibv_ah_attr to; /* UD */
	struct ibv_pd *ah_pd;  /* UD */
};

enum fake_blocked { FAKE_RUNS, FAKE_BLOCKED_RNR, FAKE_BLOCKED_LOST };

struct fake_qp {
	struct fake_object object;
	union {
		struct ibv_qp ibv;
		struct ibv_qp_ex ex;
	};
	bool has_ex;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct fake_send *sends;
	struct ibv_sge *send_sges;
	uint8_t *send_bytes;
	uint64_t posted, done, freed; /* sends */
	struct fake_recv_ring recvs;
	uint32_t psn, expected_psn;
	bool has_heard, is_cut;
	bool is_late; /* what it has left is flushed when it is destroyed */
	enum fake_blocked blocked;
	uint64_t deadline_ns; /* 0: none */
	/* ibv_wr_*() */
	pthread_mutex_t building;
	unsigned n_staged;
	int staged_error;
};

enum fake_call {
	FAKE_CALL_MAKES,    /* counted by fake_verbs_fail_nth() */
	FAKE_CALL_DESTROYS, /* the same, not by fake_verbs_fail_nth_made() */
	FAKE_CALL_LOOPS,    /* fails only by name */
};

struct fake_world {
	pthread_mutex_t lock;
	pthread_cond_t wake; /* of the thread */
	pthread_cond_t acknowledged;
	struct fake_device *devices[FAKE_VERBS_DEVICES];
	unsigned n_devices;
	struct fake_object objects; /* head of the ring */
	unsigned live[FAKE_VERBS_KINDS];
	bool cut[FAKE_VERBS_DEVICES][FAKE_VERBS_DEVICES];
	bool is_held;
	unsigned allowed; /* messages that may go though held */
	unsigned divisor;
	bool is_fork_safe;
	bool has_thread, stops;
	pthread_t thread;
	struct fake_verbs_stats stats;
};
extern struct fake_world fake_world;

/* --- fake_verbs.c */

/* Takes the lock for a call of `function` on `device` (may be NULL). Returns an error if the test
 * has planned one or the device is dead; the lock is then not held. */
int fake_enter(const char *function, enum fake_call call, const struct fake_device *device);
/* The same, for functions that work on a dead device. */
int fake_enter_anyway(const char *function, enum fake_call call);
/* The same, for functions that cannot fail. */
void fake_enter_always(const char *function);
void fake_leave(void);
/* Waits if the test has blocked the function, with the lock held, which is released meanwhile. */
void fake_stand_still(const char *function);

/* Enters and returns a new zeroed object, with the lock held. Returns NULL and errno without
 * entering. */
void *fake_make(const char *function, enum fake_verbs_kind kind, size_t size,
	struct fake_device *device, struct fake_context *context);
/* Enters to destroy an object. 0: destroy it, and end with fake_destroyed(). */
int fake_destroy(const char *function, struct fake_object *object);
/* Used instead on a dead device: the object is no longer alive, but stays. Returns EIO, and
 * leaves. */
int fake_give_up(struct fake_object *object);
/* Waits for acknowledgements, frees the object and leaves. */
int fake_destroyed(struct fake_object *object);
/* Undoes fake_make() and leaves; errno becomes `err`. */
void *fake_unmake(struct fake_object *object, int err);
/* Frees everything that an object owns, for all kinds. */
void fake_free_parts(struct fake_object *object);
uint64_t fake_now_ns(void);

/* Returns the next object of this kind behind `at` (NULL: the first) that is in use, or NULL. */
struct fake_object *fake_next(enum fake_verbs_kind kind, struct fake_object *at);

/* --- fake_verbs_control.c */

struct fake_device *fake_find_device(const char *name);
struct fake_qp *fake_find_qp(const struct fake_device *device, uint32_t qp_num);

/* --- fake_verbs_device.c */

struct fake_context *fake_context_of(struct ibv_context *context);
/* Returns port `number` (from 1) of a device, or NULL. */
struct fake_verbs_port *fake_port_of(struct fake_device *device, unsigned number);
void fake_context_free(struct fake_context *context);

/* --- fake_verbs_events.c */

bool fake_events_init(struct fake_events *events);
void fake_events_fini(struct fake_events *events);
/* From now on the file has hung up, and there are no events. */
void fake_events_hang_up(struct fake_events *events);
void fake_events_add(struct fake_events *events, const struct fake_event *event);
void fake_events_forget(struct fake_events *events, const struct fake_object *object);
/* Raises an asynchronous event of this object. */
void fake_event_raise(struct fake_object *object, enum ibv_event_type type);
/* Raises one of a port, for all contexts of the device. */
void fake_event_raise_port(struct fake_device *device, enum ibv_event_type type, int port);

/* --- fake_verbs_memory.c */

struct fake_span {
	uint8_t *data;
	uint64_t length;
};

/* Returns the number of memory segments by their lkeys, with this right beside reading, or -1. */
int fake_spans(struct fake_span spans[FAKE_MAX_SGE], const struct fake_pd *pd,
	const struct ibv_sge *sges, int n, unsigned access);
/* Returns memory that a peer names by an rkey; NULL: access is not allowed. */
uint8_t *fake_remote(
	const struct fake_qp *qp, uint32_t rkey, uint64_t addr, uint64_t length, unsigned access);
void fake_copy(const struct fake_span *to, int n_to, const struct fake_span *from, int n_from);
/* Work requests on windows. */
bool fake_mw_bind(struct fake_qp *qp, const struct ibv_send_wr *wr);
bool fake_invalidate(struct fake_qp *qp, uint32_t rkey);
void fake_windows_forget(const struct fake_qp *qp);
/* --- fake_verbs_cq.c */

void fake_cq_add(struct fake_cq *cq, const struct fake_cqe *cqe, bool is_solicited);
/* The QP (or SRQ) is gone; its completions go with it unless they are kept. */
void fake_cq_forget(struct fake_cq *cq, const struct fake_object *object, bool keep);
int fake_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int fake_req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct ibv_cq_ex *fake_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);

/* --- fake_verbs_qp.c */

struct ibv_qp *fake_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
bool fake_recv_ring_init(struct fake_recv_ring *ring, uint32_t max_wr, uint32_t max_sge);
void fake_recv_ring_fini(struct fake_recv_ring *ring);

/* --- fake_verbs_states.c */

/* Moves it to IBV_QPS_ERR or _SQE and flushes queued requests. */
void fake_qp_fail(struct fake_qp *qp, enum ibv_qp_state state);
/* Ends the queued requests of a QP in one of these states. */
void fake_qp_flush(struct fake_qp *qp);

/* --- fake_verbs_post.c */

int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int fake_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
void fake_qp_ex_init(struct fake_qp *qp, uint64_t ops);

/* --- fake_verbs_wire.c */

/* The result of a message at its destination. */
enum fake_verdict { FAKE_DONE, FAKE_RNR, FAKE_LOST };

/* Checks a path. Returns an errno value, or 0. */
int fake_check_path(struct fake_device *device, const struct ibv_ah_attr *attr);
bool fake_is_multicast(const union ibv_gid *gid);
bool fake_is_v4(const union ibv_gid *gid);
/* Whether this port reaches that one at all. */
bool fake_is_linked(const struct fake_device *a, const struct fake_verbs_port *from,
	const struct fake_device *b, const struct fake_verbs_port *to);
/* Sends all messages that can go. */
void fake_wire_run(void);
/* Starts the thread unless it runs. */
bool fake_wire_start(void);
/* Ends the thread. Called without the lock. */
void fake_wire_stop(void);
/* How many packets of this MTU a message has. */
uint32_t fake_packets(uint64_t length, enum ibv_mtu mtu);
/* Completes the first send of the queue. */
void fake_complete_send(struct fake_qp *qp, enum ibv_wc_status status);

/* --- fake_verbs_responder.c */

/* Executes a request of a connected QP at its peer; `local` is the requester's memory. `ret_status`
 * is the requester's completion status for FAKE_DONE. */
enum fake_verdict fake_respond(struct fake_qp *peer, struct fake_qp *from,
	const struct fake_send *send, const struct fake_span *local, int n_local,
	enum ibv_wc_status *ret_status);
/* Delivers a datagram, or drops it if nobody wants it. Returns whether it was delivered. */
bool fake_receive_datagram(struct fake_qp *peer, struct fake_qp *from, const struct fake_send *send,
	const struct fake_span *local, int n_local);

/* --- fake_verbs_raw.c */

struct ibv_flow *fake_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr);
int fake_destroy_flow(struct ibv_flow *flow);
/* Sends a frame of a queue pair for raw packets, of `length` bytes in these spans. */
enum ibv_wc_status fake_raw_send(
	struct fake_qp *qp, const struct fake_span *local, int n_local, uint64_t length);
void fake_raw_reset(void);

#endif
