/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TLS between daemons: version 1.3, certificates of the cluster's own CA at both ends, no
 * resumption. One thread. Connections do not refer to their `struct tls` after they were made.
 */
#ifndef FERRULE_DAEMON_SERVER_TLS_H
#define FERRULE_DAEMON_SERVER_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include <openssl/ssl.h>

#include "daemon/config/config.h"

struct tls;

/* Loads the files of the configuration. Returns NULL with a sentence in `error`. */
struct tls *tls_create(const struct config *config, char *error, size_t size);
void tls_destroy(struct tls *tls);

/* Creates a connection, to be freed by SSL_free(). `host`: the name that the certificate of a
 * dialled peer must have; NULL for an accepted connection. Returns NULL without memory. */
SSL *tls_connection(const struct tls *tls, int fd, const char *host);

/* Returns true if the peer's certificate is valid for this name or address. */
bool tls_certifies(SSL *ssl, const char *name);

/* Writes why the last call on the connection failed, as a sentence without a full stop. */
void tls_explain(SSL *ssl, char *why, size_t size);

#endif
