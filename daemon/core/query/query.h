/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface between the files for requests. query.c accepts a request and waits; qp.c finds
 * queue pairs; rows.c and report.c make tables; why.c combines the views of both ends.
 */
#ifndef FERRULE_DAEMON_CORE_QUERY_QUERY_H
#define FERRULE_DAEMON_CORE_QUERY_QUERY_H

#include "daemon/core/internal.h"

enum {
	/* Approximate size of a part of a report: far less than FRAME_MAX, so that a large report
	 * leaves room for other messages. */
	REPORT_PART = 256 << 10,
	/* Page slots that are read for one part. */
	REPORT_SLOTS = 16384,
};

/* ---- query.c */

void request_free(struct request *request);
/* Requests new pages from the processes concerned, and counts the answers to wait for. */
void request_publish(struct core *core, struct request *request, uint64_t now_ns);

/* ---- why.c: continues when all answers are there, or timed out; may free the request */

void why_go_on(struct core *core, struct request *request, uint64_t now_ns);
void view_go_on(struct core *core, struct request *request, uint64_t now_ns);

/* ---- rows.c: a report that is being made */

struct rows_block;

struct rows {
	struct core *core;
	struct request *request;
	uint64_t now_ns;
	struct rows_block *blocks; /* memory of the rows' structs and texts */
	void **list;               /* the current kind of rows */
	size_t n_list, room;
	size_t bytes;
	uint32_t slots; /* that were read */
	bool is_full;   /* the rest is for the next part */
	bool no_memory;
};

void rows_init(struct rows *rows, struct core *core, struct request *request, uint64_t now_ns);
void rows_fini(struct rows *rows);

/* Returns zeroed memory, valid until the part is sent. Returns NULL without memory: the answer is
 * ENOMEM then. */
void *rows_alloc(struct rows *rows, size_t size);
/* Returns text with the same lifetime, without characters that frame_unpack() refuses. Never
 * NULL. */
char *rows_text(struct rows *rows, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Adds a row of the tables of enum query_kind to the current part. */
void rows_add(struct rows *rows, ProtobufCMessage *row);
/* Counts page slots that were read. */
void rows_count(struct rows *rows, uint32_t slots);
/* Sends the added rows, if any, as a part. */
void rows_flush(struct rows *rows, enum _Ctl__QueryKind kind);

/* Returns the seconds since then; negative: never. */
double rows_age_s(const struct rows *rows, uint64_t then_ns);

/* ---- report.c */

/* Sends the next part of the answer to a REQUEST_REPORT. Returns true after the last one. */
bool report_send(struct core *core, struct request *request, uint64_t now_ns);
/* Sends the last part, with what the daemon says of itself, or that there is no memory. Frees the
 * rows. */
void report_finish(struct rows *rows, Ctl__Report *report);
/* `is_last`: includes the figures that take time to count. */
Ctl__DaemonInfo *report_daemon(struct rows *rows, bool is_last);
Ctl__ConnInfo *report_conn(struct rows *rows, const struct conn *conn);
/* Lists the counters of a port's page whose names begin with `prefix`, and returns their number.
 * Without memory it returns 0 and sets rows->no_memory. The list lives as long as the rows. */
size_t report_counters(
	struct rows *rows, const struct page *page, const char *prefix, Ctl__Counter ***ret_list);

/* ---- qp.c */

struct found_qp {
	struct session *session;
	struct port *port;
	struct page_qp qp;
};

/* Returns how many slots may hold queue pairs, at most max_qps_per_user over a user's ports.
 * Reading a slot takes time, and allocates memory if the process has never written it. */
uint32_t qp_slots(struct core *core, struct port *port);
/* Finds the port's queue pair of this number. Returns false if there is none. */
bool qp_of_port(struct core *core, struct port *port, uint32_t qpn, struct page_qp *ret);
Ctl__QpInfo *qp_info(struct rows *rows, const struct found_qp *found);

/*
 * Finds the one queue pair that the request is about. Returns false after a Failure if there is
 * none, if there are several, or if it is another user's.
 */
bool qp_find(struct core *core, const struct request *request, struct found_qp *ret);

/* Returns an address as text, "" for none. */
char *ip_text(struct rows *rows, const struct frl_ip *ip);

#endif
