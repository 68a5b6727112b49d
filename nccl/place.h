/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * This host's place: the address at which its services are found. A thread asks the control daemon
 * for it once, because the daemon may have to be started, and may be slow to answer.
 */
#ifndef FERRULE_NCCL_PLACE_H
#define FERRULE_NCCL_PLACE_H

#include <stdbool.h>
#include <stddef.h>

#include <ferrule/cm.h>

/* Starts to ask, if the place is unknown. Never blocks. */
void net_place_ask(void);

/*
 * Returns the place. Waits for it up to five seconds, or longer if is_patient. On failure returns a
 * negative errno, with a sentence in `why`. A failure is cached briefly, so that not every caller
 * waits again.
 */
int net_place(bool is_patient, char place[FRL_PLACE_SIZE], char *why, size_t size);

/* Waits until the asking thread has ended. */
void net_place_finish(void);

#endif
