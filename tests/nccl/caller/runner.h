/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs one row in processes of its own, under a deadline. Their log is kept in the setup's log
 * file, which the caller gives (a memfd will do) and may show.
 */
#ifndef TESTS_NCCL_RUNNER_H
#define TESTS_NCCL_RUNNER_H

#include "tests/nccl/caller/row.h"

enum outcome { PASSED, FAILED, SKIPPED };

/* `seconds`: a deadline instead of the row's own; 0: none. The reason is in `report->text`. */
enum outcome run_row(const struct setup *setup, const struct row *row, unsigned int seconds);

/* The same for two processes that run `body`, each for a side, without a row. */
enum outcome run_pair(
	const struct setup *setup, void (*body)(struct side *side), unsigned int seconds);

/* For rows whose other side is on another machine (setup->meet): the receiver's side listens.
 * Returns false with errno if it cannot. Call it once, before run_row(). */
bool meet_prepare(struct setup *setup);
/* Returns a connection with the other side, which is about to run the same row; or -1, with the
 * reason in `report->text`. For run_row(). */
int meet_for(const struct setup *setup, const struct row *row);

/* Shared memory for the reports of processes; once, before run_row. */
void runner_init(void);

#endif
