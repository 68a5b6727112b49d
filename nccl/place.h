/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * This host's place, where its services are found. The control daemon is asked for it once, by a
 * thread: it may have to be started, and may be slow to answer.
 */
#ifndef FERRULE_NCCL_PLACE_H
#define FERRULE_NCCL_PLACE_H

#include <stdbool.h>
#include <stddef.h>

#include <ferrule/cm.h>

/* Begins to ask, if it is not known. Never blocks. */
void net_place_ask(void);

/*
 * The place, for which it waits: with patience, or five seconds. With a negative errno `why` is a
 * sentence. What went wrong is remembered a little, so that not everybody waits for it anew.
 */
int net_place(bool is_patient, char place[FRL_PLACE_SIZE], char *why, size_t size);

/* Nobody is asking any more when this returns. */
void net_place_finish(void);

#endif
