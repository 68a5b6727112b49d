/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of query.c do for each other: a request is asked and waits (query.c), finds its
 * queue pairs (query_qp.c), and is answered by rows (query_rows.c, query_report.c) or by what both
 * ends say (query_why.c).
 */
#ifndef FERRULE_DAEMON_CORE_QUERY_H
#define FERRULE_DAEMON_CORE_QUERY_H

#include "daemon/core/internal.h"

enum {
	/* A report is sent in parts of about so many bytes: far less than FRAME_MAX, so that a
	 * large one leaves room for what else is to be sent. */
	REPORT_PART = 256 << 10,
	/* So many slots of pages are looked at for one part. */
	REPORT_SLOTS = 16384,
};

/* ---- query.c */

void request_free(struct request *request);
/* Has the processes that matter publish. What it waits for from now on is counted. */
void request_publish(struct core *core, struct request *request, uint64_t now_ns);

/* ---- query_why.c: what is awaited is there, or will not come; may free the request */

void why_go_on(struct core *core, struct request *request, uint64_t now_ns);
void view_go_on(struct core *core, struct request *request, uint64_t now_ns);

/* ---- query_rows.c: a report that is being made */

struct rows_block;

struct rows {
	struct core *core;
	struct request *request;
	uint64_t now_ns;
	struct rows_block *blocks; /* what holds the rows' structs and texts */
	void **list;               /* of the kind of row that is being added */
	size_t n_list, room;
	size_t bytes;
	uint32_t slots; /* that were looked at */
	bool is_full;   /* the rest is for the next part */
	bool no_memory;
};

void rows_init(struct rows *rows, struct core *core, struct request *request, uint64_t now_ns);
void rows_fini(struct rows *rows);

/* Zeroed memory, which lives until the part is sent; NULL: none, and the answer is ENOMEM. */
void *rows_alloc(struct rows *rows, size_t size);
/* Text that lives as long, without what frame_unpack() refuses. Never NULL. */
char *rows_text(struct rows *rows, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Rows of the tables of enum query_kind, for the part that is being made. */
void rows_add(struct rows *rows, ProtobufCMessage *row);
/* So many slots were looked at. */
void rows_count(struct rows *rows, uint32_t slots);
/* Sends what was added, if anything, as a part. */
void rows_flush(struct rows *rows, enum _Ctl__QueryKind kind);

/* Seconds since then; negative: never. */
double rows_age_s(const struct rows *rows, uint64_t then_ns);

/* ---- query_report.c */

/* Sends the next part of the answer to a REQUEST_REPORT. True: that was the last one. */
bool report_send(struct core *core, struct request *request, uint64_t now_ns);
/* `is_last`: with all that takes a while to count. */
Ctl__DaemonInfo *report_daemon(struct rows *rows, bool is_last);
Ctl__ConnInfo *report_conn(struct rows *rows, const struct conn *conn);
/* The counters of a port's page whose names begin with `prefix`; returns how many. 0 without
 * memory, with rows->no_memory set. The list lives as long as the rows. */
size_t report_counters(
	struct rows *rows, const struct page *page, const char *prefix, Ctl__Counter ***ret_list);

/* ---- query_qp.c */

struct found_qp {
	struct session *session;
	struct port *port;
	struct page_qp qp;
};

/* Slots that may hold queue pairs: of a user's ports no more than max_qps_per_user, for to look at
 * a slot takes time, and memory where the process has never written it. */
uint32_t qp_slots(struct core *core, struct port *port);
/* The port's queue pair of this number; false: it has none. */
bool qp_of_port(struct core *core, struct port *port, uint32_t qpn, struct page_qp *ret);
Ctl__QpInfo *qp_info(struct rows *rows, const struct found_qp *found);

/*
 * The one queue pair that the request is about. False: there is none, or several, or it is another
 * user's: the request has been answered by a Failure that says so.
 */
bool qp_find(struct core *core, const struct request *request, struct found_qp *ret);

/* An address, or "" for none. */
char *ip_text(struct rows *rows, const struct frl_ip *ip);

#endif
