/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests of daemon/core/query.c: two hosts, processes with pages, and operators who ask.
 */
#ifndef FERRULE_TESTS_QUERY_FIXTURE_H
#define FERRULE_TESTS_QUERY_FIXTURE_H

#include "tests/unit/conns_fixture.h"

enum { ROOT = 0, ALICE = 1000, BOB = 2000, SLOTS = 16 };

/* Made by query_set_up(). */
extern struct world *world;
extern int alpha, beta;

void query_set_up(void);
void query_tear_down(void);

/* A page for the process's port, published now. */
struct page *give_page(struct process *process, uint32_t slots);
/* A queue pair that has sent 0x10 to 0x15 and waits for the acknowledgement of 0x12. */
struct page_qp *set_qp(struct page *page, uint32_t slot, uint32_t qpn);
void publish(struct page *page);
/* The process is told to publish, and does. Returns its answer, which the caller sends. */
Ctl__Envelope publish_done(struct process *process, struct page *page);
/* Also sends the answer. */
void publish_when_told(struct process *process, struct page *page);

/* These return the seq of what was sent. */
uint64_t send_request(struct process *asks, Ctl__Envelope__BodyCase body, void *message);
uint64_t send_query(struct process *asks, Ctl__QueryKind kind, uint32_t qpn, uint32_t pid);
uint64_t send_kill(struct process *asks, uint32_t qpn, uint32_t pid, const char *reason);

/* The next message is this answer. To be freed. */
Ctl__Envelope *take_answer(struct process *asks, uint64_t seq, Ctl__Envelope__BodyCase body);
void expect_failure(struct process *asks, uint64_t seq, int error, const char *words);
/* Asks for what is fresh, and takes the answer: the first part, which has all the rows. */
Ctl__Envelope *report(struct process *asks, Ctl__QueryKind kind, uint32_t qpn, uint32_t pid);

#endif
