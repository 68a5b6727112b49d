/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls between the files of this folder:
 *
 *	create.c, agree.c, split.c, measure*.c
 *	             creation of communicators, and their destruction
 *	request.c, operation.c, collective.c, explain.c
 *	             operations that the caller starts, from arguments to completion
 *	wait.c, driver.c, notices.c
 *	             how callers learn of completion, and who makes progress meanwhile
 *	progress.c, siblings.c
 *	             progress of a communicator, and of those that were split from it
 *	hang.c       hang detection
 *
 * Threads: one thread at a time, which has entered the communicator (siblings.h).
 */
#ifndef FERRULE_COLLECTIVES_API_INTERNAL_H
#define FERRULE_COLLECTIVES_API_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/collective.h>

#include "collectives/api/notices.h"
#include "collectives/api/siblings.h"
#include "collectives/communicator/communicator.h"
#include "collectives/communicator/operation.h"

/* create.c: creates a communicator that has only the rails of `config`. */
int comm_new(const struct frl_comm_config *config, int rank, int ranks, struct frl_comm **ret_comm);
/* Frees a communicator, also one that was created only in part. */
void comm_free(struct frl_comm *comm);
/* Handles mail from other ranks and aborts by other threads. Returns 0 or the communicator's
 * error. */
int comm_take_mail(struct frl_comm *comm);

/* agree.c: exchanges what the ranks must know of each other first. */
int comm_agree(struct frl_comm *comm);

/* progress.c: makes progress once. Returns the number of events, or the communicator's error. */
int comm_progress(struct frl_comm *comm);
/* Advances all lanes that are ready, after new work was started. Returns 0 or the communicator's
 * error. */
int comm_advance(struct frl_comm *comm);

/* request.c: frl_start_group() without the flush. */
int request_start(struct frl_comm *comm, const struct frl_collective collectives[], int n,
	struct frl_request **ret_request);
/* Tests a request without making progress. Frees it if it is complete or failed. */
int request_conclude(struct frl_request *request, bool *ret_done);
/* Frees completed requests and ends the registrations of their buffers. */
void requests_settle(struct frl_comm *comm);
/* Completes requests whose runs are done. */
void comm_finish_requests(struct frl_comm *comm);
void requests_free(struct frl_comm *comm);
/* Leaves a request to the communicator, which reports it. */
void request_detach(struct frl_request *request, struct notice *notice);
/* After a failure: reports detached requests that may be freed. */
void requests_report_failed(struct frl_comm *comm);

/* wait.c */
#define WAIT_FOREVER UINT64_MAX
/* Waits for a notice at most `timeout_ms`, or without a limit if it is negative. Sets *ret_notice
 * to the notice or to NULL. Returns 0, or the communicator's error if there will be none. */
int comm_wait_for_notice(struct frl_comm *comm, int timeout_ms, struct notice **ret_notice);

/* operation.c: checks the arguments of an operation. Fails with -EINVAL or -ENOMEM. */
int operation_init(struct operation *operation, const struct frl_comm *comm,
	const struct frl_collective *collective);

/* explain.c: chooses the algorithm and job->segment_bytes. */
int comm_choose(const struct frl_comm *comm, struct plan_job *job, enum frl_algo *ret_algo);

/* hang.c: checks for ranks that are gone, that are in another operation, or that exceed the
 * timeout. */
int comm_check_clock(struct frl_comm *comm);
/* Handles a MAIL_REPORT. */
void comm_take_report(struct frl_comm *comm, int rank, const uint8_t *bytes, size_t size);
/* Updates the state note, from which questions of other ranks are answered. */
void comm_note_operation(struct frl_comm *comm);

#endif
