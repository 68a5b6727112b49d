/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packet sockets that the daemon opens for leases, their state in the kernel's list, and the text
 * about them that the core saves in PATH.sockets beside the Unix socket. On the loop's thread.
 */
#ifndef FERRULE_DAEMON_SERVER_SOCKETS_H
#define FERRULE_DAEMON_SERVER_SOCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/core/core.h"

struct sockets;

/* `path`: of the Unix socket. Returns NULL without memory. */
struct sockets *sockets_create(const char *path);
void sockets_destroy(struct sockets *sockets);

/* Implements core_ops.open_socket(). Returns the descriptor. */
int sockets_open(struct sockets *sockets, const struct core_socket *wanted, uint64_t *ret_id,
	char *why, size_t size);
bool sockets_has(struct sockets *sockets, uint64_t id);
/* Saves the text for the next daemon, as a whole or not at all. "" removes it. The first failure is
 * logged. */
void sockets_save(struct sockets *sockets, const char *text);
/* Returns the text of the last sockets_save(), for the caller to free; NULL if there is none. */
char *sockets_saved(const struct sockets *sockets);

#endif
