/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/server/tls.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/x509v3.h>

struct tls {
	SSL_CTX *context;
};

/* Certificates are matched by their alternative names only. The subject is free text. */
#define NAME_FLAGS (X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT)

/* The subject of the certificate that was refused last. OpenSSL does not keep it. */
static char refused[100];

static int on_verified(int fine, X509_STORE_CTX *context)
{
	X509 *certificate = X509_STORE_CTX_get_current_cert(context);

	if (!fine && certificate)
		X509_NAME_oneline(
			X509_get_subject_name(certificate), refused, (int)sizeof(refused));
	return fine;
}

/* A key with a passphrase is refused: OpenSSL would ask for it at the terminal. */
static int no_passphrase(char *to, int size, int is_writing, void *arg)
{
	return -1;
}

/* Returns the first error that OpenSSL recorded, as a text. */
static const char *first_error(void)
{
	unsigned long code = ERR_peek_error();
	const char *reason = code ? ERR_reason_error_string(code) : NULL;

	return reason ? reason : "unknown error";
}

static bool load(SSL_CTX *context, const struct config *config, char *error, size_t size)
{
	if (SSL_CTX_load_verify_locations(context, config->tls_ca, NULL) != 1) {
		snprintf(error, size, "TLS: cannot read the CA certificates in %s: %s",
			config->tls_ca, first_error());
		return false;
	}
	if (SSL_CTX_use_certificate_chain_file(context, config->tls_certificate) != 1) {
		snprintf(error, size, "TLS: cannot read the certificate in %s: %s",
			config->tls_certificate, first_error());
		return false;
	}
	SSL_CTX_set_default_passwd_cb(context, no_passphrase);
	if (SSL_CTX_use_PrivateKey_file(context, config->tls_key, SSL_FILETYPE_PEM) != 1) {
		snprintf(error, size, "TLS: cannot read the key in %s, or it does not match %s: %s",
			config->tls_key, config->tls_certificate, first_error());
		return false;
	}
	return true;
}

struct tls *tls_create(const struct config *config, char *error, size_t size)
{
	struct tls *tls = calloc(1, sizeof(*tls));

	ERR_clear_error();
	if (tls)
		tls->context = SSL_CTX_new(TLS_method());
	if (!tls || !tls->context ||
		SSL_CTX_set_min_proto_version(tls->context, TLS1_3_VERSION) != 1) {
		snprintf(error, size, "TLS: no memory");
		tls_destroy(tls);
		return NULL;
	}
	SSL_CTX_set_verify(
		tls->context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, on_verified);
	/* Every connection presents its certificate: no resumption with the keys of an older
	 * one. */
	SSL_CTX_set_session_cache_mode(tls->context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_num_tickets(tls->context, 0);
	SSL_CTX_set_mode(
		tls->context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	if (load(tls->context, config, error, size))
		return tls;
	ERR_clear_error();
	tls_destroy(tls);
	return NULL;
}

void tls_destroy(struct tls *tls)
{
	if (!tls)
		return;
	SSL_CTX_free(tls->context);
	free(tls);
}

static bool is_address(const char *name)
{
	uint8_t address[16];

	return inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1;
}

static bool expect_name(SSL *ssl, const char *host)
{
	X509_VERIFY_PARAM *param = SSL_get0_param(ssl);

	if (is_address(host))
		return X509_VERIFY_PARAM_set1_ip_asc(param, host) == 1;
	X509_VERIFY_PARAM_set_hostflags(param, NAME_FLAGS);
	return X509_VERIFY_PARAM_set1_host(param, host, 0) == 1;
}

SSL *tls_connection(const struct tls *tls, int fd, const char *host)
{
	SSL *ssl = SSL_new(tls->context);

	if (!ssl || SSL_set_fd(ssl, fd) != 1 || (host && !expect_name(ssl, host))) {
		SSL_free(ssl);
		ERR_clear_error();
		return NULL;
	}
	if (host)
		SSL_set_connect_state(ssl);
	else
		SSL_set_accept_state(ssl);
	return ssl;
}

bool tls_certifies(SSL *ssl, const char *name)
{
	X509 *certificate = SSL_get0_peer_certificate(ssl);
	bool right;

	if (!certificate || !*name)
		return false;
	if (is_address(name))
		right = X509_check_ip_asc(certificate, name, 0) == 1;
	else
		right = X509_check_host(certificate, name, 0, NAME_FLAGS, NULL) == 1;
	ERR_clear_error();
	return right;
}

static void explain_certificate(long result, char *why, size_t size)
{
	switch (result) {
	case X509_V_ERR_HOSTNAME_MISMATCH:
	case X509_V_ERR_IP_ADDRESS_MISMATCH:
		snprintf(why, size, "its certificate (of %s) is not for the name that was dialled",
			refused);
		break;
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
	case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
	case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
	case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
	case X509_V_ERR_CERT_SIGNATURE_FAILURE:
		snprintf(why, size,
			"its certificate (of %s) is not signed by this cluster's CA: %s", refused,
			X509_verify_cert_error_string(result));
		break;
	default:
		snprintf(why, size, "its certificate (of %s) is not accepted: %s", refused,
			X509_verify_cert_error_string(result));
		break;
	}
}

void tls_explain(SSL *ssl, char *why, size_t size)
{
	unsigned long code = ERR_peek_error();
	int reason = ERR_GET_REASON(code);
	long verified = SSL_get_verify_result(ssl);

	if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED && verified != X509_V_OK)
		explain_certificate(verified, why, size);
	else if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
		snprintf(why, size, "it sent no certificate");
	else if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST ||
		reason == SSL_R_PACKET_LENGTH_TOO_LONG || reason == SSL_R_RECORD_TOO_SMALL)
		snprintf(why, size, "it does not speak TLS (%s)", first_error());
	else if (reason == SSL_R_UNSUPPORTED_PROTOCOL ||
		reason == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION)
		snprintf(why, size, "it does not speak TLS 1.3");
	else if (reason > SSL_AD_REASON_OFFSET)
		snprintf(why, size, "it refused this host or its certificate: %s", first_error());
	else
		snprintf(why, size, "TLS failed: %s", first_error());
}
