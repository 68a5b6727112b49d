/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TLS between daemons: version 1.3, both ends with a certificate of the cluster's own CA, no
 * resumption. One thread; a `struct tls` is not looked at any more by the connections it made.
 */
#ifndef FERRULE_DAEMON_TLS_H
#define FERRULE_DAEMON_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include <openssl/ssl.h>

#include "daemon/config.h"

struct tls;

/* The files of the configuration. NULL with a sentence in `error`. */
struct tls *tls_create(const struct config *config, char *error, size_t size);
void tls_destroy(struct tls *tls);

/* One connection. `host`: whose certificate it must be, of a connection that was dialled; NULL: one
 * that was accepted. NULL: no memory. To be freed by SSL_free(). */
SSL *tls_connection(const struct tls *tls, int fd, const char *host);

/* Does the peer's certificate stand for this name or address? */
bool tls_certifies(SSL *ssl, const char *name);

/* Why the last call on it failed, as a sentence without its end. */
void tls_explain(SSL *ssl, char *why, size_t size);

#endif
