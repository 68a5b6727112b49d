/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The address of this host's control daemon, by which peers find this process's services (see
 * frl_place_create()). A thread queries it once, because the daemon may have to be started, and may
 * be slow to answer.
 */
#ifndef FERRULE_NCCL_DAEMON_ADDRESS_H
#define FERRULE_NCCL_DAEMON_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

#include <ferrule/cm.h>

/* Starts the query, if the address is unknown. Never blocks. */
void net_daemon_address_query(void);

/*
 * Copies the address to `address`. Waits for it up to five seconds, or a minute if waits_long. On
 * failure returns a negative errno, with a sentence in `why`. A failure is cached briefly, so that
 * not every caller waits again.
 */
int net_daemon_address(bool waits_long, char address[FRL_PLACE_SIZE], char *why, size_t size);

/* Waits until the query's thread has ended. */
void net_daemon_address_wait(void);

#endif
