/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The error line of ferrule-pingpong when requests fail because the peer has ended, and when they
 * fail for other reasons. The connections and their completions are fakes. Time passes only in
 * frl_conn_wait_end(): the daemon's report comes as late as a row says.
 */
#include <check.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/fixtures/program.h"
#include "tools/pingpong/pingpong.h"

#define GONE     "is gone: process 7 has ended"
#define LINK_END "the link to the peer is gone"

enum {
	NEVER = -1,
	AT_ONCE = 100,
	LATE = 5000, /* as late as on a busy machine */
	MAX_COMPLETIONS = 3,
	LINE = 1000,
};

/* The queue pair on which requests fail, and the other connection. */
enum fails {
	MEASURED,
	SIDE,
	SIDE_ALONE, /* there is no other connection yet */
};

struct row {
	const char *name;
	enum fails fails;
	int rank;
	struct frl_wc wc[MAX_COMPLETIONS];
	int n_wc;
	int report_ms;    /* time until the daemon reports the end of the peer */
	int rc;           /* 0, or any error */
	const char *line; /* a part of what is printed; "": nothing is */
	const char *why;  /* the queue pair's reason; NULL: the end of the link */
};

/* clang-format off */
#define SENT(how)     { .opcode = FRL_WC_SEND, .status = (how) }
#define RECEIVED(how) { .opcode = FRL_WC_RECV, .status = (how), .byte_len = 1 }
/* clang-format on */

static const struct row rows[] = {
	{ "unacknowledged send", MEASURED, SERVER, { SENT(FRL_WC_REM_ABORT_ERR) }, 1, LATE, -1,
		"the peer (client) " GONE, NULL },
	{ "receives only", MEASURED, SERVER, { RECEIVED(FRL_WC_WR_FLUSH_ERR) }, 1, LATE, -1,
		"the peer (client) " GONE, NULL },
	{ "receives only, client", MEASURED, CLIENT, { RECEIVED(FRL_WC_WR_FLUSH_ERR) }, 1, LATE, -1,
		"the peer (server) " GONE, NULL },
	{ "receives only, no reason", MEASURED, SERVER, { RECEIVED(FRL_WC_WR_FLUSH_ERR) }, 1, LATE,
		-1, "the peer (client) " GONE, "" },
	{ "no daemon", MEASURED, SERVER, { RECEIVED(FRL_WC_WR_FLUSH_ERR) }, 1, NEVER, -1,
		"a request failed: " LINK_END, NULL },
	/* The peer then gives up and closes its connection: that is not the cause. */
	{ "end of a lease", MEASURED, SERVER, { SENT(FRL_WC_WR_FLUSH_ERR) }, 1, LATE, -1,
		"a request failed: the lease has ended", "the lease has ended" },
	{ "silent peer", MEASURED, SERVER, { SENT(FRL_WC_RETRY_EXC_ERR) }, 1, AT_ONCE, -1,
		"the peer (client) " GONE, NULL },
	{ "silent peer, later", MEASURED, SERVER, { SENT(FRL_WC_RETRY_EXC_ERR) }, 1, LATE, -1,
		"a request failed: no answer", "no answer" },
	{ "exchange, unacknowledged send", SIDE, SERVER, { SENT(FRL_WC_REM_ABORT_ERR) }, 1, LATE,
		-1, "the peer (client) " GONE, NULL },
	{ "exchange, receive", SIDE, SERVER,
		{ SENT(FRL_WC_SUCCESS), RECEIVED(FRL_WC_WR_FLUSH_ERR) }, 2, LATE, -1,
		"the peer (client) " GONE, NULL },
	{ "exchange, silent peer", SIDE, CLIENT, { SENT(FRL_WC_RETRY_EXC_ERR) }, 1, AT_ONCE, -1,
		"the peer (server) " GONE, NULL },
	{ "first exchange", SIDE_ALONE, SERVER, { SENT(FRL_WC_REM_ABORT_ERR) }, 1, LATE, -1,
		"the peer (client) " GONE, NULL },
	{ "exchange, no daemon", SIDE, SERVER, { SENT(FRL_WC_REM_ABORT_ERR) }, 1, NEVER, -1,
		"a request failed: " LINK_END, NULL },
	{ "exchange, the peer has left", SIDE, SERVER,
		{ RECEIVED(FRL_WC_SUCCESS), SENT(FRL_WC_REM_ABORT_ERR) }, 2, LATE, 0, "", NULL },
	{ "exchange, done", SIDE, SERVER, { RECEIVED(FRL_WC_SUCCESS), SENT(FRL_WC_SUCCESS) }, 2,
		NEVER, 0, "", NULL },
	{ "exchange, invalid message", SIDE, SERVER, { { .opcode = FRL_WC_RECV, .byte_len = 2 } },
		1, NEVER, -1, "the peer sent an invalid message of 2 bytes", NULL },
};

/* ---- the fakes; only their addresses matter */

static char measured_conn, side_conn, measured_qp, side_qp, any_cq;
static const struct row *row;
static int polled, now_ms;
static char printed[LINE];

int __wrap_frl_conn_test(struct frl_conn *conn);
int __wrap_frl_conn_wait_end(struct frl_conn *conn, int timeout_ms);
int __wrap_frl_poll_cq(struct frl_cq *cq, int max, struct frl_wc wc[]);
int __wrap_frl_post_send(struct frl_qp *qp, const struct frl_send_wr wr[], int n, int *ret_posted);
int __wrap_frl_post_recv(struct frl_qp *qp, const struct frl_recv_wr wr[], int n, int *ret_posted);
uint32_t __wrap_frl_mr_lkey(const struct frl_mr *mr);
const char *__wrap_frl_last_error(void);
const char *__wrap_frl_qp_error(struct frl_qp *qp, char *text, size_t size);
void __wrap_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void __wrap_say_failure(int rc, const char *format, ...) __attribute__((format(printf, 2, 3)));

int __wrap_frl_conn_test(struct frl_conn *conn)
{
	ck_assert_ptr_nonnull(conn);
	if (row->report_ms == NEVER || now_ms < row->report_ms)
		return 0;
	return -ECONNRESET;
}

int __wrap_frl_conn_wait_end(struct frl_conn *conn, int timeout_ms)
{
	/* The connection must be that of the failed request: the other one may not exist. */
	ck_assert_ptr_eq(conn, row->fails == MEASURED ? &measured_conn : &side_conn);
	ck_assert_int_ge(timeout_ms, 0);
	if (row->report_ms == NEVER || now_ms + timeout_ms < row->report_ms) {
		now_ms += timeout_ms;
		return -ETIMEDOUT;
	}
	if (now_ms < row->report_ms)
		now_ms = row->report_ms;
	return __wrap_frl_conn_test(conn);
}

int __wrap_frl_poll_cq(struct frl_cq *cq, int max, struct frl_wc wc[])
{
	ck_assert_int_ge(max, 1);
	ck_assert_int_lt(polled, row->n_wc); /* else it would poll for ever */
	*wc = row->wc[polled++];
	return 1;
}

int __wrap_frl_post_send(struct frl_qp *qp, const struct frl_send_wr wr[], int n, int *ret_posted)
{
	return n;
}

int __wrap_frl_post_recv(struct frl_qp *qp, const struct frl_recv_wr wr[], int n, int *ret_posted)
{
	return n;
}

uint32_t __wrap_frl_mr_lkey(const struct frl_mr *mr)
{
	return 1;
}

/* The last call that failed was that of the ended connection. */
const char *__wrap_frl_last_error(void)
{
	return "process 7 has ended";
}

const char *__wrap_frl_qp_error(struct frl_qp *qp, char *text, size_t size)
{
	ck_assert_ptr_eq(qp, row->fails == MEASURED ? &measured_qp : &side_qp);
	snprintf(text, size, "%s", row->why ? row->why : frl_wc_status_str(FRL_WC_REM_ABORT_ERR));
	return text;
}

static void print(const char *format, va_list args)
{
	ck_assert_str_eq(printed, ""); /* one line explains a failure */
	vsnprintf(printed, sizeof(printed), format, args);
}

void __wrap_say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print(format, args);
	va_end(args);
}

void __wrap_say_failure(int rc, const char *format, ...)
{
	va_list args;
	size_t used;

	va_start(args, format);
	print(format, args);
	va_end(args);
	used = strlen(printed);
	snprintf(printed + used, sizeof(printed) - used, ": %s", __wrap_frl_last_error());
}

/* ---- the rows */

START_LOOP_TEST(end_of_peer, ROWS(rows))
{
	struct link link = {
		.rank = rows[_i].rank,
		.conn = rows[_i].fails == SIDE_ALONE ? NULL : (struct frl_conn *)&measured_conn,
		.qp = (struct frl_qp *)&measured_qp,
		.cq = (struct frl_cq *)&any_cq,
		.side.conn = (struct frl_conn *)&side_conn,
		.side.qp = (struct frl_qp *)&side_qp,
		.side.cq = (struct frl_cq *)&any_cq,
	};
	int rc;

	row = &rows[_i];
	polled = now_ms = 0;
	printed[0] = '\0';
	rc = row->fails == MEASURED ? link_poll(&link) : link_sync(&link);
	ck_assert_msg(row->rc ? rc < 0 : rc == 0, "%s: %d", row->name, rc);
	if (*row->line)
		ck_assert_msg(strstr(printed, row->line), "%s: it says '%s'", row->name, printed);
	else
		ck_assert_msg(!*printed, "%s: it says '%s'", row->name, printed);
	ck_assert_int_eq(polled, row->n_wc);
}
END_TEST

TEST_FILE(pingpong_end)
