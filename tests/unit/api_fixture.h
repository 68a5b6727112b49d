/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two devices in one process, connected, and driven by one thread. They are of the local fabric, or
 * where the environment has FRL_TEST_PORT ("verbs:rxe0") of that hardware. Rows that hardware does
 * not have then say why they are skipped, and each row that ran is named.
 */
#ifndef FERRULE_TESTS_UNIT_API_FIXTURE_H
#define FERRULE_TESTS_UNIT_API_FIXTURE_H

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferrule/ferrule.h>

#include "tests/unit/program.h"

enum {
	DEPTH = 16,
	MEMORY = 65536,
	MESSAGE = 20000,
	SHORT_MS = 30,
	ALL_ACCESS = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_READ |
		FRL_ACCESS_REMOTE_ATOMIC | FRL_ACCESS_MW_BIND,
};

/* One end: a device with one queue pair, and memory. */
struct end {
	struct frl_device *device;
	struct frl_pd *pd;
	struct frl_cq *cq;
	struct frl_qp *qp;
	struct frl_mr *mr;
	uint8_t *memory;
	bool shared; /* from frl_mem_alloc() */
	struct frl_endpoint mine, theirs;
	int rc;
	struct frl_wc early; /* hardware: came before the one that was asked for */
	bool has_early;
};

static struct end a, b;

static inline void ok(int rc)
{
	ck_assert_msg(rc == 0, "%d: %s", rc, frl_last_error());
}

/* The hardware that the rows are run on, or NULL. */
static inline const char *test_port(void)
{
	const char *port = getenv("FRL_TEST_PORT");

	return port && *port ? port : NULL;
}

static inline void say_skipped(const char *function, int i, const char *reason)
{
	size_t len = strlen(function) - strlen("_fn"); /* START_TEST adds it */

	printf("skipped: %.*s:%d: %s\n", (int)len, function, i, reason);
	fflush(stdout);
}

/* At the beginning of a row. */
#define SOFTWARE_ONLY_IF(condition, reason)                \
	do {                                               \
		if (test_port() && (condition)) {          \
			say_skipped(__func__, _i, reason); \
			return;                            \
		}                                          \
	} while (0)
#define SOFTWARE_ONLY(reason) SOFTWARE_ONLY_IF(true, reason)

/* Linux' rxe, which lacks some of what RDMA NICs have. */
static inline bool is_rxe(void)
{
	return test_port() && strncmp(test_port(), "verbs:rxe", 9) == 0;
}

/* Software does things when it is told to, hardware a little later. */
static inline int soon_ms(void)
{
	return test_port() ? HANG_MS : 0;
}

/* Runs a suite and frees it. Returns an exit status. */
static inline int run_rows(Suite *suite)
{
	/* On hardware a row may hang in the kernel. */
	return test_port() ? run_suite_forked(suite) : run_suite_unforked(suite);
}

/* Fails as it should, with a sentence that has `word` in it. */
static inline void refused(int rc, int want, const char *word)
{
	ck_assert_msg(rc == want, "%d instead of %d (%s)", rc, want, word);
	ck_assert_msg(*frl_last_error() && strstr(frl_last_error(), word),
		"'%s' does not name '%s'", frl_last_error(), word);
}

static inline struct frl_qp *add_qp(struct end *end)
{
	struct frl_qp_config config = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.max_send_wr = DEPTH,
		.max_recv_wr = DEPTH,
		.context = end,
	};
	struct frl_qp *qp;

	ok(frl_qp_create(end->pd, &config, &qp));
	return qp;
}

/* A queue pair of the type UD or GSI, in RTS. */
static inline struct frl_qp *add_datagram_qp(
	const struct end *end, enum frl_qp_type type, uint32_t qkey)
{
	struct frl_qp_attr attr = { .state = FRL_QPS_INIT, .port_num = 1, .qkey = qkey };
	struct frl_qp_config config = {
		.type = type,
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.max_send_wr = DEPTH,
		.max_recv_wr = DEPTH,
	};
	struct frl_qp *qp;

	ok(frl_qp_create(end->pd, &config, &qp));
	ok(frl_qp_modify(qp, &attr,
		FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT |
			(type == FRL_QPT_UD ? FRL_QP_QKEY : 0)));
	attr.state = FRL_QPS_RTR;
	ok(frl_qp_modify(qp, &attr, FRL_QP_STATE));
	attr.state = FRL_QPS_RTS;
	attr.sq_psn = 77;
	ok(frl_qp_modify(qp, &attr, FRL_QP_STATE | FRL_QP_SQ_PSN));
	return qp;
}

/* The device by `config`, and all objects of an end. */
static inline void make_end(struct end *end, bool shared, const struct frl_device_config *config)
{
	*end = (struct end){ .shared = shared };
	ok(frl_device_open(config, &end->device));
	ok(frl_pd_create(end->device, &end->pd));
	ok(frl_cq_create(end->device, 4 * DEPTH, &end->cq));
	end->memory = shared ? frl_mem_alloc(MEMORY) : calloc(1, MEMORY);
	ck_assert_ptr_nonnull(end->memory);
	ok(frl_reg_mr(end->pd, end->memory, MEMORY, ALL_ACCESS, &end->mr));
	end->qp = add_qp(end);
	ok(frl_qp_endpoint(end->qp, &end->mine));
}

/* path_mtu, held_frames: as of struct frl_device_config. */
static inline void open_end_with(struct end *end, bool shared, enum frl_progress progress,
	uint32_t path_mtu, uint32_t held_frames)
{
	struct frl_device_config config;

	frl_device_config_init(&config);
	config.port = test_port();
	config.progress = progress;
	config.path_mtu = path_mtu;
	config.held_frames = held_frames;
	make_end(end, shared, &config);
}

/* As on a network, where a MESSAGE is of more than two packets. */
static inline void open_end(struct end *end, bool shared, enum frl_progress progress)
{
	open_end_with(end, shared, progress, test_port() ? 0 : 4096, 0);
}

/* A NIC may still have references for a while; the driver says so. */
static inline void deregister(struct end *end)
{
	uint64_t limit_ns = hang_limit_ns();
	int rc;

	while ((rc = frl_dereg_mr(end->mr)) == -EBUSY && may_wait(limit_ns))
		frl_progress(end->device);
	ok(rc);
	end->mr = NULL;
}

static inline void close_end(struct end *end)
{
	frl_qp_destroy(end->qp);
	deregister(end);
	ok(frl_cq_destroy(end->cq));
	ok(frl_pd_destroy(end->pd));
	ok(frl_device_close(end->device));
	if (end->shared)
		frl_mem_free(end->memory, MEMORY);
	else
		free(end->memory);
	end->device = NULL;
}

static inline void *connect_end(void *arg)
{
	struct frl_connect_config config;
	struct end *end = arg;

	frl_connect_config_init(end->device, &config);
	config.timeout_ms = HANG_MS;
	end->rc = frl_qp_connect(end->qp, &end->theirs, &config);
	return NULL;
}

static inline void connect_both(void)
{
	pthread_t thread;

	a.theirs = b.mine;
	b.theirs = a.mine;
	ck_assert_int_eq(pthread_create(&thread, NULL, connect_end, &b), 0);
	connect_end(&a);
	pthread_join(thread, NULL);
	ok(a.rc);
	ok(b.rc);
}

static inline void start(bool shared, enum frl_progress progress)
{
	open_end(&a, shared, progress);
	open_end(&b, shared, progress);
	connect_both();
	for (uint32_t i = 0; i < MEMORY; i++) {
		a.memory[i] = (uint8_t)(i * 7 + i / 251);
		b.memory[i] = 0x11;
	}
}

static inline void finish(void)
{
	close_end(&a);
	close_end(&b);
}

/* At the end of each case: those that are still open. */
static inline void close_ends(void)
{
	if (a.device)
		close_end(&a);
	if (b.device)
		close_end(&b);
}

/* Takes a completion. Both ends are driven by this thread. */
static inline int poll_both(struct end *end, struct frl_wc *wc)
{
	struct end *other = end == &a ? &b : &a;
	uint64_t limit_ns = hang_limit_ns();
	int n = 0;

	while (n == 0 && may_wait(limit_ns)) {
		n = frl_poll_cq(end->cq, 1, wc);
		if (other->device)
			frl_progress(other->device);
	}
	return n;
}

/* Hardware puts sends and receives of one queue in no order. */
static inline bool is_early(const struct frl_wc *wc, uint64_t wr_id)
{
	return test_port() && wc->wr_id != wr_id && wc->status == FRL_WC_SUCCESS;
}

static inline struct frl_wc next_wc(struct end *end, uint64_t wr_id, enum frl_wc_status status)
{
	struct frl_wc wc = { 0 };
	int n = 1;

	if (end->has_early) {
		wc = end->early;
		end->has_early = false;
	} else {
		n = poll_both(end, &wc);
	}
	if (n == 1 && is_early(&wc, wr_id)) {
		end->early = wc;
		end->has_early = true;
		n = poll_both(end, &wc);
		ck_assert_msg((wc.opcode ^ end->early.opcode) & FRL_WC_RECV, "request %d before %d",
			(int)end->early.wr_id, (int)wr_id);
	}
	ck_assert_msg(n == 1, "no completion of request %d", (int)wr_id);
	ck_assert_msg(wc.wr_id == wr_id && wc.status == status, "request %d instead of %d: %s",
		(int)wc.wr_id, (int)wr_id, frl_wc_status_str(wc.status));
	return wc;
}

static inline struct frl_wc expect(struct end *end, uint64_t wr_id, enum frl_wc_status status)
{
	struct frl_wc wc = next_wc(end, wr_id, status);

	ck_assert_uint_eq(wc.qp_num, frl_qp_num(end->qp));
	return wc;
}

static inline struct frl_sge sge_of(const struct end *end, uint32_t offset, uint32_t length)
{
	return (struct frl_sge){ end->memory + offset, length, frl_mr_lkey(end->mr) };
}

static inline struct frl_send_wr send_wr(
	uint64_t wr_id, enum frl_wr_opcode opcode, const struct frl_sge *sge)
{
	return (struct frl_send_wr){
		.wr_id = wr_id,
		.opcode = opcode,
		.flags = FRL_SEND_SIGNALED,
		.sge = sge,
		.n_sge = 1,
		.imm_data = 0xabcd,
		.remote_addr = (uintptr_t)b.memory,
		.rkey = frl_mr_rkey(b.mr),
	};
}

static inline void post_on(struct frl_qp *qp, const struct frl_send_wr *wr)
{
	int posted = -1, rc = frl_post_send(qp, wr, 1, &posted);

	ck_assert_msg(rc == 1 && posted == 1, "%s", frl_last_error());
}

static inline void post_send(const struct frl_send_wr *wr)
{
	post_on(a.qp, wr);
}

static inline void post_recv(uint64_t wr_id, uint32_t offset, uint32_t length, bool reduce)
{
	struct frl_sge sge = { b.memory + offset, length, frl_mr_lkey(b.mr) };
	struct frl_recv_wr wr = { .wr_id = wr_id, .sge = &sge, .n_sge = 1 };

	if (reduce)
		wr.action = (struct frl_recv_action){
			.type = FRL_ACTION_REDUCE, .dtype = FRL_FLOAT32, .op = FRL_SUM
		};
	ck_assert_msg(frl_post_recv(b.qp, &wr, 1, NULL) == 1, "%s", frl_last_error());
}

#endif
