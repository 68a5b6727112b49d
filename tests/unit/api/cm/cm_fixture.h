/* SPDX-License-Identifier: BSD-3-Clause */
/* Two devices of one process that connect through a control daemon of the test's. */
#ifndef FERRULE_TESTS_UNIT_API_CM_CM_FIXTURE_H
#define FERRULE_TESTS_UNIT_API_CM_CM_FIXTURE_H

#include <poll.h>
#include <stdio.h>

#include <ferrule/cm.h>

#include "tests/fixtures/api_fixture.h"
#include "tests/unit/api/cm/cm_daemon.h"

static struct frl_listener *listener;

static inline bool readable(int fd)
{
	struct pollfd event = { .fd = fd, .events = POLLIN };

	ck_assert_int_ge(fd, 0);
	return poll(&event, 1, 0) == 1;
}

static inline bool becomes_readable(int fd)
{
	struct pollfd event = { .fd = fd, .events = POLLIN };

	ck_assert_int_ge(fd, 0);
	return poll(&event, 1, HANG_MS) == 1;
}

static inline void begin(void)
{
	stub_start();
	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	ok(frl_listen(b.device, "test", NULL, &listener));
}

static inline void end(void)
{
	frl_listener_close(listener);
	listener = NULL;
	finish();
	stub_stop();
}

static inline struct frl_conn *ask(struct frl_qp *qp, const char *service)
{
	struct frl_conn *conn;

	ok(frl_connect(qp, NULL, service, "question", 8, NULL, &conn));
	return conn;
}

static inline struct frl_conn *next_request(void)
{
	struct frl_conn *conn;

	ok(frl_wait_request(listener, HANG_MS, &conn));
	return conn;
}

/* Two ends that are connected. */
static inline void meet(struct frl_conn **active, struct frl_conn **passive)
{
	*active = ask(a.qp, "test");
	*passive = next_request();
	ok(frl_accept(*passive, b.qp, "answer", 6, NULL));
	ok(frl_conn_wait(*active, HANG_MS));
	ok(frl_conn_wait(*passive, HANG_MS));
}

static inline enum frl_qp_state state_of(struct frl_qp *qp)
{
	struct frl_qp_attr attr;

	frl_qp_query(qp, &attr);
	return attr.state;
}

static inline void move_data(void)
{
	struct frl_sge sge = sge_of(&a, 0, MESSAGE);
	struct frl_send_wr wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);

	for (uint32_t i = 0; i < MEMORY; i++)
		a.memory[i] = (uint8_t)(i * 13 + i / 251);
	post_send(&wr);
	expect(&a, 1, FRL_WC_SUCCESS);
	ck_assert_mem_eq(b.memory, a.memory, MESSAGE);
}

static inline void wait_ended(struct frl_conn *conn, int rc, const char *word)
{
	refused(frl_conn_wait_end(conn, HANG_MS), rc, word);
}

static inline int run(Suite *suite)
{
	stub_prepare();
	return run_suite_unforked(suite);
}

#endif
