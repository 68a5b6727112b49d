/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/config/tls_check.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#define SERVICE_USER "ferrule" /* of systemd/ferruled.service.in */

enum { DAY = 24 * 60 * 60 };

struct look {
	const struct config *config;
	const struct tls_check *check;
	STACK_OF(X509) * own; /* the certificate and the intermediate ones */
	EVP_PKEY *key;
	int64_t expires; /* 0: unknown */
};

static void say(const struct look *look, enum tls_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void say(const struct look *look, enum tls_level level, const char *format, ...)
{
	char text[600];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	look->check->say(look->check->arg, level, text);
}

static const char *openssl_error(void)
{
	unsigned long code = ERR_peek_error();
	const char *reason = code ? ERR_reason_error_string(code) : NULL;

	return reason ? reason : "unknown error";
}

/* ---- file permissions */

static bool can_read(const struct passwd *user, const char *path)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(initgroups(user->pw_name, user->pw_gid) || setgid(user->pw_gid) ||
			setuid(user->pw_uid) || access(path, R_OK));
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status == 0;
}

/* The daemon reads the files again on SIGHUP, as its user. */
static void check_user(const struct look *look, const char *setting, const char *path)
{
	const char *name = look->config->user ? look->config->user : SERVICE_USER;
	const struct passwd *user;

	if (!look->check->as_user || geteuid() != 0)
		return;
	user = getpwnam(name);
	if (user && !can_read(user, path))
		say(look, look->config->user ? TLS_FAILURE : TLS_WARNING,
			"%s: the daemon's user %s cannot read %s: make it readable for that user",
			setting, name, path);
}

/* Returns true if this process can read the file. */
static bool check_file(const struct look *look, const char *setting, const char *path)
{
	if (access(path, R_OK) == 0) {
		check_user(look, setting, path);
		return true;
	}
	if (errno == EACCES)
		say(look, TLS_HIDDEN, "%s: this user may not read %s", setting, path);
	else
		say(look, TLS_FAILURE, "%s: cannot read %s: %s", setting, path, strerror(errno));
	return false;
}

/* ---- dates */

void tls_date(char text[24], int64_t seconds)
{
	time_t time = (time_t)seconds;
	struct tm utc;

	*text = '\0';
	if (gmtime_r(&time, &utc))
		strftime(text, 24, "%Y-%m-%d %H:%M UTC", &utc);
}

static bool seconds_of(const ASN1_TIME *time, int64_t *ret_seconds)
{
	struct tm tm = { 0 };

	if (ASN1_TIME_to_tm(time, &tm) != 1)
		return false;
	*ret_seconds = timegm(&tm);
	return true;
}

static void check_dates(
	struct look *look, const X509 *certificate, const char *setting, const char *path)
{
	int64_t now = look->check->now, begins = 0, ends = 0;
	char date[24];

	if (!seconds_of(X509_get0_notBefore(certificate), &begins) ||
		!seconds_of(X509_get0_notAfter(certificate), &ends)) {
		say(look, TLS_FAILURE, "%s: a certificate in %s has no valid dates", setting, path);
		return;
	}
	if (!look->expires || ends < look->expires)
		look->expires = ends;
	tls_date(date, begins > now ? begins : ends);
	if (begins > now)
		say(look, TLS_FAILURE, "%s: %s is not valid before %s: check this host's clock",
			setting, path, date);
	else if (ends <= now)
		say(look, TLS_FAILURE, "%s: %s has expired on %s: renew it, then reload ferruled",
			setting, path, date);
	else if (ends - now < (int64_t)TLS_WARN_DAYS * DAY)
		say(look, TLS_WARNING,
			"%s: %s expires in %" PRId64 " days, on %s: renew it, then reload ferruled",
			setting, path, (ends - now) / DAY, date);
}

/* ---- contents */

static bool read_own(struct look *look)
{
	const char *path = look->config->tls_certificate;
	BIO *file = BIO_new_file(path, "r");
	X509 *certificate;

	look->own = sk_X509_new_null();
	while (file && look->own && (certificate = PEM_read_bio_X509(file, NULL, NULL, NULL)))
		if (!sk_X509_push(look->own, certificate))
			X509_free(certificate);
	BIO_free(file);
	if (sk_X509_num(look->own) > 0)
		return true;
	say(look, TLS_FAILURE, "tls_certificate: there is no certificate in %s: %s", path,
		openssl_error());
	return false;
}

static int no_passphrase(char *to, int size, int is_writing, void *arg)
{
	return -1;
}

static void check_key(struct look *look)
{
	const char *path = look->config->tls_key;
	BIO *file = BIO_new_file(path, "r");

	look->key = file ? PEM_read_bio_PrivateKey(file, NULL, no_passphrase, NULL) : NULL;
	BIO_free(file);
	if (!look->key)
		say(look, TLS_FAILURE, "tls_key: cannot read the key in %s: %s", path,
			openssl_error());
	else if (look->own && X509_check_private_key(sk_X509_value(look->own, 0), look->key) != 1)
		say(look, TLS_FAILURE,
			"tls_key: %s is not the key of the certificate in %s: install a matching "
			"pair",
			path, look->config->tls_certificate);
}

static bool is_own(const struct look *look, const X509 *certificate)
{
	for (int i = 0; i < sk_X509_num(look->own); i++)
		if (X509_cmp(sk_X509_value(look->own, i), certificate) == 0)
			return true;
	return false;
}

static void check_chain_dates(struct look *look, STACK_OF(X509) * chain)
{
	const struct config *config = look->config;

	for (int i = 0; i < sk_X509_num(chain); i++) {
		const X509 *certificate = sk_X509_value(chain, i);
		bool own = is_own(look, certificate);

		check_dates(look, certificate, own ? "tls_certificate" : "tls_ca",
			own ? config->tls_certificate : config->tls_ca);
	}
}

/* Checks whether a peer that dials, or is dialled, accepts the certificate, apart from its
 * dates. */
static bool verify(struct look *look, X509_STORE *store, int purpose, STACK_OF(X509) * *ret_chain)
{
	X509_STORE_CTX *context = X509_STORE_CTX_new();
	X509 *certificate = sk_X509_value(look->own, 0);
	bool right = false;

	if (context && X509_STORE_CTX_init(context, store, certificate, look->own) == 1) {
		X509_STORE_CTX_set_purpose(context, purpose);
		X509_STORE_CTX_set_flags(context, X509_V_FLAG_NO_CHECK_TIME);
		right = X509_verify_cert(context) == 1;
		if (right)
			*ret_chain = X509_STORE_CTX_get1_chain(context);
		else
			say(look, TLS_FAILURE,
				"tls_certificate: no CA in %s has signed %s (%s): other hosts "
				"refuse it",
				look->config->tls_ca, look->config->tls_certificate,
				X509_verify_cert_error_string(X509_STORE_CTX_get_error(context)));
	}
	X509_STORE_CTX_free(context);
	return right;
}

/* Checks the name under which the daemon introduces itself. */
static void check_name(const struct look *look)
{
	X509 *certificate = sk_X509_value(look->own, 0);
	const char *host = look->config->host;

	if (X509_check_host(certificate, host, 0, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, NULL) != 1 &&
		X509_check_ip_asc(certificate, host, 0) != 1)
		say(look, TLS_WARNING,
			"tls_certificate: %s is not for the name %s of this host (setting host): "
			"other hosts refuse it",
			look->config->tls_certificate, host);
}

static void check_chain(struct look *look)
{
	const struct config *config = look->config;
	STACK_OF(X509) *chain = NULL, *again = NULL;
	X509_STORE *store = X509_STORE_new();

	if (!store || X509_STORE_load_file(store, config->tls_ca) != 1)
		say(look, TLS_FAILURE, "tls_ca: there is no certificate in %s: %s", config->tls_ca,
			openssl_error());
	else if (verify(look, store, X509_PURPOSE_SSL_SERVER, &chain) &&
		verify(look, store, X509_PURPOSE_SSL_CLIENT, &again))
		check_name(look);
	if (chain)
		check_chain_dates(look, chain);
	else
		check_dates(look, sk_X509_value(look->own, 0), "tls_certificate",
			config->tls_certificate);
	sk_X509_pop_free(chain, X509_free);
	sk_X509_pop_free(again, X509_free);
	X509_STORE_free(store);
}

int64_t tls_check(const struct config *config, const struct tls_check *check)
{
	struct look look = { .config = config, .check = check };
	bool has_own, has_ca, has_key;

	ERR_clear_error();
	has_own = check_file(&look, "tls_certificate", config->tls_certificate) && read_own(&look);
	has_ca = check_file(&look, "tls_ca", config->tls_ca);
	has_key = check_file(&look, "tls_key", config->tls_key);
	ERR_clear_error(); /* from reading to the end of the certificates */
	if (has_own && has_ca)
		check_chain(&look);
	else if (has_own)
		check_dates(&look, sk_X509_value(look.own, 0), "tls_certificate",
			config->tls_certificate);
	if (has_key)
		check_key(&look);
	sk_X509_pop_free(look.own, X509_free);
	EVP_PKEY_free(look.key);
	ERR_clear_error();
	return look.expires;
}
