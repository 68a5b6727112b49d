/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two ends of a connection in one process, over the drop-in libibverbs.so.1. This file and the
 * tests that use it see <infiniband/verbs.h> only, as programs do. One thread, except for waiting.
 */
#ifndef FERRULE_TESTS_UNIT_DROPIN_IBVERBS_FIXTURE_H
#define FERRULE_TESTS_UNIT_DROPIN_IBVERBS_FIXTURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "tests/fixtures/program.h"

enum {
	DEPTH = 64,       /* requests of each queue, by default */
	MEMORY = 1 << 18, /* bytes of each end */
	QKEY = 0x11111111,
	GRH = 40,
	LEAST_TIMEOUT = 16, /* on the local fabric; smaller ones become this one */
	RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND,
};

/* AddressSanitizer keeps its marks of frames that a cancellation unwinds. */
#ifdef __SANITIZE_ADDRESS__
enum { CAN_CANCEL = false };
#else
enum { CAN_CANCEL = true };
#endif

/* The objects of both ends. All zero: RC queue pairs of one context each, and lists of requests. */
struct wants {
	enum ibv_qp_type type;
	bool one_context;
	bool has_channel, has_srq, has_cq_ex;
	bool sq_sig_all;
	uint64_t ops; /* enum ibv_qp_create_send_ops_flags; 0: created without */
	uint32_t max_send_wr, max_recv_wr, max_sge, max_inline, cqe;
	int rights; /* of the queue pairs; 0: all */
	uint8_t rnr_retry;
};

struct end {
	struct ibv_context *context;
	bool shares_context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory;
};

extern struct end a, b;

/* Fails the case if `rc` is not 0, or the pointer is NULL. */
#define ok(rc)       ibverbs_ok(rc, #rc)
#define made(object) ck_assert_msg((object) != NULL, "%s: %s", #object, strerror(errno))
/* The call returns NULL with errno, or -1 with errno, or an errno. */
#define refused_null(err, call)               \
	do {                                  \
		errno = 0;                    \
		ck_assert_ptr_null(call);     \
		ck_assert_int_eq(errno, err); \
	} while (0)
#define refused_minus1(err, call)             \
	do {                                  \
		errno = 0;                    \
		ck_assert_int_eq(call, -1);   \
		ck_assert_int_eq(errno, err); \
	} while (0)
#define refused(err, call) ck_assert_int_eq(call, err)

void ibverbs_ok(int rc, const char *call);

/* Opens the first device. */
struct ibv_context *open_context(void);
void open_ends(const struct wants *wants);
/* Opens and connects both ends. */
void start(const struct wants *wants);
/* The same, but b's queue pair stays in RTR. */
void start_half(const struct wants *wants);
/* Destroys both ends; each call must succeed. */
void finish(void);
void destroy_qp(struct end *end);

struct ibv_qp *create_qp(const struct end *end, const struct wants *wants);
/* Queue pairs: RESET to INIT, RTR, RTS. `mask` 0: what the type requires. */
int to_init(struct ibv_qp *qp, int rights, int mask);
int to_rtr(struct ibv_qp *qp, const struct ibv_qp *peer, int mask);
int to_rts(struct ibv_qp *qp, uint8_t rnr_retry, int mask);
int to_state(struct ibv_qp *qp, enum ibv_qp_state state);
int rtr_mask(enum ibv_qp_type type);
int rts_mask(enum ibv_qp_type type);
enum ibv_qp_state state_of(struct ibv_qp *qp);
void connect_qps(struct ibv_qp *one, struct ibv_qp *two);
/* The path to the device's own address. */
struct ibv_ah_attr own_path(struct ibv_context *context);

struct ibv_sge sge_of(const struct end *end, uint32_t offset, uint32_t length);
/* A signaled request with one element. RDMA and atomics: `offset` of the peer's memory. */
struct ibv_send_wr request(uint64_t wr_id, enum ibv_wr_opcode opcode, struct ibv_sge *sge);
void aim(struct ibv_send_wr *wr, const struct end *peer, uint32_t offset);
void post(const struct end *end, struct ibv_send_wr *wr);
void post_recv(const struct end *end, uint64_t wr_id, uint32_t offset, uint32_t length);
/* The first request is refused. */
void refused_send(const struct end *end, struct ibv_send_wr *wr, int err);

/* Waits for the next completion of the end's queue. */
struct ibv_wc next_wc(const struct end *end);
struct ibv_wc expect(const struct end *end, uint64_t wr_id, enum ibv_wc_status status);
/* The queue is empty. A completion that may still come is waited for by another one, see sync(). */
void expect_none(const struct end *end);
/* Sends an empty message from one end to the other. All earlier requests have completed then. */
void sync_ends(const struct end *from, const struct end *to);
/* Waits for the context's next asynchronous event, which must have this type. It is not
 * acknowledged. */
struct ibv_async_event next_event(struct ibv_context *context, enum ibv_event_type type);
void expect_no_event(struct ibv_context *context);
bool is_readable(int fd);
/* Waits until the thread of this process whose number another one stores here sleeps. */
void await_sleep(atomic_int *tid);
/* Waits until the descriptor is readable. */
void await_readable(int fd);

void fill(const struct end *end, uint32_t offset, uint32_t length, uint8_t seed);
void check_filled(const struct end *end, uint32_t offset, uint32_t length, uint8_t seed);

#endif
