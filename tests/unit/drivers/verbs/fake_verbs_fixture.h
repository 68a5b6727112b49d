/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ends on devices of tests/fakes/verbs/fake_verbs.h, by plain verbs. A failure fails the test.
 */
#ifndef FERRULE_TESTS_UNIT_DRIVERS_VERBS_FAKE_VERBS_FIXTURE_H
#define FERRULE_TESTS_UNIT_DRIVERS_VERBS_FAKE_VERBS_FIXTURE_H

#include "tests/fakes/verbs/fake_verbs.h"

enum { FIXTURE_BYTES = 16384, FIXTURE_QKEY = 0x1234 };

struct fixture_end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq; /* NULL: none */
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	int sgid_index;
	union ibv_gid gid;
	_Alignas(4096) uint8_t bytes[FIXTURE_BYTES];
};

struct fixture {
	struct fixture_end ends[2];
};

/* Properties of the ends; zeros are defaults. */
struct fixture_wants {
	enum ibv_qp_type type; /* 0: RC */
	bool has_srq;
	bool is_connected;                     /* up to RTS */
	uint8_t timeout, retry_cnt, rnr_retry; /* 0: 1, 1, 0 */
	uint32_t psn_gap;                      /* how far the first PSNs are off */
	enum ibv_mtu mtu;                      /* of the second end; 0: 1024, as of the first */
	uint8_t max_rd_atomic;                 /* 0: 4, 255: 0 */
	unsigned access;                       /* of the QPs beyond all rights: taken away */
};

/* Plugs in "fake0" (10.0.0.1) and "fake1" (10.0.0.2), the second with this P_Key and MTU. */
void fixture_plug(struct fixture *fixture, uint16_t pkey, enum ibv_mtu active_mtu);
/* The ends are on devices 0 and 1 in the order they were added (both on 0 if there is only one). */
void fixture_open(struct fixture *fixture, const struct fixture_wants *wants);
void fixture_close(struct fixture *fixture);
/* From RESET to RTS. */
void fixture_connect(struct fixture *fixture, const struct fixture_wants *wants);
/* Returns 0 or the error of the first ibv_modify_qp() that failed. */
int fixture_move(struct fixture_end *end, const struct fixture_end *peer,
	const struct fixture_wants *wants, uint32_t sq_psn, uint32_t rq_psn);
/* `length` bytes at `offset` of this end. */
struct ibv_sge fixture_sge(const struct fixture_end *end, uint32_t offset, uint32_t length);
void fixture_post_recv(struct fixture_end *end, uint64_t wr_id, uint32_t offset, uint32_t length);
int fixture_post(struct fixture_end *end, enum ibv_wr_opcode opcode, unsigned flags,
	const struct ibv_sge *sge, uint64_t remote_addr, uint32_t rkey);
/* Returns the next completion, which must have this status. */
struct ibv_wc fixture_expect(struct fixture_end *end, enum ibv_wc_status status);
void fixture_expect_none(struct fixture_end *end);
/* Returns the next asynchronous event, acknowledged; it must be of this type. */
struct ibv_async_event fixture_event(struct fixture_end *end, enum ibv_event_type type);

#endif
