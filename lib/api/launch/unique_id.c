/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Unique ids: "frl1:JOB:PLACE:HOST". JOB is random. PLACE identifies the daemon that keeps the job.
 * HOST is the address of that daemon for other hosts. An id that is valid only on one host has
 * "-NAME" of the host instead, for a clear error text. An id made with FRL_JOB_HOST has zeros as
 * its PLACE. frl_place_create() (cm.h) returns "PLACE:HOST" alone.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/api/launch/launch.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/limit.h"
#include "lib/base/random.h"
#include "lib/base/settings.h"
#include "lib/control/client.h"
#include "lib/control/frame.h"
#include "lib/control/spawn.h"

enum {
	CREATE_MS = 10000,
	JOB = 32,   /* hexadecimal digits */
	PLACE = 16, /* hexadecimal digits */
	HOST = 64,  /* characters */
	NS_PER_MS = 1000000,
};

static const char prefix[] = "frl1:";
static const char no_place[] = "0000000000000000";

static_assert(sizeof(prefix) - 1 + JOB + 1 + PLACE + 1 + 1 + HOST < FRL_UNIQUE_ID_SIZE,
	"an id and its end fit");
static_assert(PLACE + 1 + 1 + HOST < FRL_PLACE_SIZE, "a place and its end fit");

/* The decoded parts of an id. */
struct parts {
	char job[JOB + 1];
	char place[PLACE + 1];
	char host[HOST + 1]; /* "": none, the id is valid only on one host */
	char name[HOST + 1]; /* the name of that host */
};

/* ---- the daemon of this process */

struct daemon {
	struct control_handler handler;
	char place[PLACE + 1];
	char listen[HOST + 1]; /* "10.0.0.1:7476", or "" */
	char host[HOST + 1];   /* the daemon's name of its host */
};

static bool handle_message(struct control_handler *handler, const Ctl__Envelope *envelope)
{
	return false;
}

static void handle_up(struct control_handler *handler, bool again)
{
}

static uint64_t mix(uint64_t hash, const void *bytes, size_t size)
{
	const uint8_t *byte = bytes;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3); /* FNV-1a */
	return hash;
}

/* Finds the folder of the daemon's socket, and adds the socket's name to the hash. */
static int find_folder(struct stat *ret_folder, uint64_t *hash)
{
	char path[DAEMON_PATH] = "", *real, *slash;
	int err = 0;

	if (!control_place(path, sizeof(path)))
		return frl_fail(-ENOTCONN, "there is no connection to a control daemon");
	real = realpath(path, NULL);
	if (!real)
		return frl_fail(-errno, "cannot find %s: %s", path, frl_strerror(errno));
	slash = strrchr(real, '/');
	*hash = mix(*hash, slash, strlen(slash));
	slash[slash == real] = '\0';
	if (stat(real, ret_folder))
		err = frl_fail(-errno, "cannot read %s: %s", real, frl_strerror(errno));
	free(real);
	return err;
}

/*
 * Identifies the daemon of this process. Two processes have the same daemon if its socket has the
 * same name in the same folder of the same kernel. The socket itself is replaced when a daemon is
 * started; whole paths and host names may be the same in two containers.
 */
static int find_place(char place[PLACE + 1])
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	char boot[64] = "";
	struct stat folder;
	FILE *file;
	int err;

	err = find_folder(&folder, &hash);
	if (err)
		return err;
	file = fopen("/proc/sys/kernel/random/boot_id", "re");
	if (file && !fgets(boot, sizeof(boot), file))
		boot[0] = '\0';
	if (file)
		fclose(file);
	if (!boot[0])
		gethostname(boot, sizeof(boot) - 1);
	hash = mix(hash, boot, strlen(boot));
	hash = mix(hash, &folder.st_dev, sizeof(folder.st_dev));
	hash = mix(hash, &folder.st_ino, sizeof(folder.st_ino));
	snprintf(place, PLACE + 1, "%016" PRIx64, hash);
	return 0;
}

static int query_daemon(struct daemon *daemon, uint64_t limit_ns)
{
	/* The shortest report: all reports describe the daemon. */
	Ctl__Query query = CTL__QUERY__INIT;
	Ctl__Envelope request, *answer = NULL;
	int err;

	envelope_init(&request);
	request.body_case = CTL__ENVELOPE__BODY_QUERY;
	request.query = &query;
	query.kind = CTL__QUERY_KIND__QUERY_PEERS;
	err = control_call(&request, limit_ns, &answer);
	if (err)
		return err;
	if (answer->body_case == CTL__ENVELOPE__BODY_REPORT && answer->report->daemon) {
		const Ctl__DaemonInfo *info = answer->report->daemon;

		/* A truncated address is too long for an id, and is later found to be invalid. */
		snprintf(daemon->listen, sizeof(daemon->listen), "%s", info->listen);
		snprintf(daemon->host, sizeof(daemon->host), "%s", info->host);
	} else {
		err = frl_fail(-EPROTO,
			"the control daemon's answer is not a report: use the same release of "
			"both");
	}
	ctl__envelope__free_unpacked(answer, NULL);
	return err ? err : find_place(daemon->place);
}

static int find_daemon(struct daemon *daemon, uint64_t limit_ns)
{
	int err;

	*daemon = (struct daemon){
		.handler = { .message = handle_message, .up = handle_up },
	};
	err = control_register(&daemon->handler, CONTROL_START);
	if (err)
		return err;
	err = query_daemon(daemon, limit_ns);
	control_unregister(&daemon->handler);
	return err;
}

static uint64_t create_limit_ns(void)
{
	return limit_after_ms(clock_now_ns(), CREATE_MS);
}

/* ---- creating */

/* Writes the address of a listening daemon for other hosts, or "" if there is none. */
static void name_host(const struct daemon *daemon, char host[HOST + 1])
{
	const char *listen = daemon->listen, *port = strrchr(listen, ':');
	size_t length;

	host[0] = '\0';
	if (!port || !strncmp(listen, "127.", 4) || !strncmp(listen, "[::1]", 5))
		return;
	length = (size_t)(port - listen);
	if ((length == 7 && !memcmp(listen, "0.0.0.0", 7)) ||
		(length == 4 && !memcmp(listen, "[::]", 4))) {
		/* The daemon listens on all addresses: use the host's name. */
		if (strlen(daemon->host) + strlen(port) <= HOST) {
			strncat(host, daemon->host, HOST);
			strncat(host, port, HOST - strlen(host));
		}
	} else {
		memcpy(host, listen, strlen(listen) + 1);
	}
}

static void write_id(const struct parts *parts, struct frl_unique_id *ret_id)
{
	*ret_id = (struct frl_unique_id){ "" };
	snprintf(ret_id->text, sizeof(ret_id->text), "%s%s:%s:%s%s", prefix, parts->job,
		parts->place, parts->host[0] ? "" : "-",
		parts->host[0] ? parts->host : parts->name);
}

int unique_id_create(uint64_t limit_ns, struct frl_unique_id *ret_id)
{
	const char *job_host = settings_get()->job_host;
	struct daemon daemon;
	struct parts parts;
	int err;

	snprintf(parts.job, sizeof(parts.job), "%016" PRIx64 "%016" PRIx64, random_entropy(),
		random_entropy());
	if (*job_host) {
		if (strlen(job_host) > HOST)
			return frl_fail(-EINVAL,
				"FRL_JOB_HOST is \"%.64s...\"; for a unique id it may have at most "
				"%d characters",
				job_host, HOST);
		snprintf(parts.place, sizeof(parts.place), "%s", no_place);
		snprintf(parts.host, sizeof(parts.host), "%s", job_host);
	} else {
		err = find_daemon(&daemon, limit_ns);
		if (err)
			return err;
		memcpy(parts.place, daemon.place, sizeof(parts.place));
		memcpy(parts.name, daemon.host, sizeof(parts.name));
		name_host(&daemon, parts.host);
	}
	write_id(&parts, ret_id);
	return 0;
}

int frl_unique_id_create(struct frl_unique_id *ret_id)
{
	if (!ret_id)
		return frl_fail(-EINVAL, "ret_id is NULL");
	if (settings_error())
		return frl_fail(-EINVAL, "%s", settings_error());
	return unique_id_create(create_limit_ns(), ret_id);
}

/* ---- joining */

/* Takes `n` hexadecimal digits and a colon. */
static const char *take_digits(const char *at, size_t n, char *ret_text)
{
	if (!at || strspn(at, "0123456789abcdef") != n || at[n] != ':')
		return NULL;
	memcpy(ret_text, at, n);
	ret_text[n] = '\0';
	return at + n + 1;
}

/* Returns whether all characters may be in a host's name or address. */
static bool is_graphic(const char *text)
{
	while (*text > ' ' && *text < 0x7f)
		text++;
	return *text == '\0';
}

/* Parses "PLACE:HOST". Returns false if the text is malformed. */
static bool parse_place(const char *at, struct parts *parts)
{
	at = take_digits(at, PLACE, parts->place);
	if (!at || strlen(at) > HOST + 1 || !*at || (at[0] != '-' && strlen(at) > HOST) ||
		!is_graphic(at))
		return false;
	if (at[0] == '-')
		memcpy(parts->name, at + 1, strlen(at));
	else
		memcpy(parts->host, at, strlen(at) + 1);
	return true;
}

static int parse(const struct frl_unique_id *id, struct parts *parts)
{
	size_t length = sizeof(prefix) - 1;
	const char *at = id->text;

	*parts = (struct parts){ .job = "" };
	if (!memchr(id->text, '\0', sizeof(id->text)))
		return frl_fail(-EINVAL, "the unique id is not terminated: pass on all its bytes");
	at = strncmp(at, prefix, length) == 0 ? at + length : NULL;
	at = take_digits(at, JOB, parts->job);
	if (!parse_place(at, parts))
		return frl_fail(-EINVAL,
			"\"%.40s\" is not a unique id of this release: use frl_unique_id_create()",
			id->text);
	return 0;
}

/* Finds the host whose daemon keeps the job, as seen from this host. */
static int find_job_host(const struct parts *parts, uint64_t limit_ns, char host[HOST + 1])
{
	struct daemon daemon;
	int err;

	snprintf(host, HOST + 1, "%s", parts->host);
	if (strcmp(parts->place, no_place) == 0) {
		if (launch_is_this_host(host))
			host[0] = '\0';
		return 0;
	}
	err = find_daemon(&daemon, limit_ns);
	if (err)
		return err;
	if (strcmp(parts->place, daemon.place) == 0)
		host[0] = '\0';
	else if (!host[0])
		return frl_fail(-EHOSTUNREACH,
			"the unique id is of another control daemon (%s), unreachable from this "
			"one (%s): set listen_address of each ferruled, or FRL_JOB_HOST (one host: "
			"one FRL_CONTROL)",
			parts->name, daemon.host);
	return 0;
}

int frl_bootstrap_from_unique_id(const struct frl_unique_id *id, int rank, int ranks,
	int timeout_ms, struct frl_bootstrap *ret_bootstrap)
{
	uint64_t until_ns, now_ns;
	char host[HOST + 1], job[JOB + HOST + 8];
	struct parts parts;
	int err;

	if (!id || !ret_bootstrap || timeout_ms < 0)
		return frl_fail(-EINVAL, "the id or ret_bootstrap is NULL, or the time negative");
	until_ns = clock_now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
	err = parse(id, &parts);
	if (!err)
		err = find_job_host(&parts, until_ns, host);
	if (err)
		return err;
	now_ns = clock_now_ns();
	timeout_ms = now_ns < until_ns ? (int)((until_ns - now_ns) / NS_PER_MS) : 0;
	snprintf(job, sizeof(job), "%s%s%s", parts.job, host[0] ? "@" : "", host);
	return frl_bootstrap_join(job, rank, ranks, timeout_ms, ret_bootstrap);
}

/* ---- places without a job */

int frl_place_create(char ret_place[FRL_PLACE_SIZE])
{
	char host[HOST + 1];
	struct daemon daemon;
	int err;

	if (settings_error())
		return frl_fail(-EINVAL, "%s", settings_error());
	err = find_daemon(&daemon, create_limit_ns());
	if (err)
		return err;
	name_host(&daemon, host);
	snprintf(ret_place, FRL_PLACE_SIZE, "%s:%s%s", daemon.place, host[0] ? "" : "-",
		host[0] ? host : daemon.host);
	return 0;
}

int frl_host_of_place(const char *place, char ret_host[FRL_HOST_MAX + 1])
{
	struct parts parts = { .job = "" };
	struct daemon daemon;
	int err;

	if (!parse_place(place, &parts))
		return frl_fail(-EINVAL,
			"\"%.40s\" is not a place of this release: use frl_place_create()",
			place ? place : "");
	err = find_daemon(&daemon, create_limit_ns());
	if (err)
		return err;
	if (strcmp(parts.place, daemon.place) == 0)
		ret_host[0] = '\0';
	else if (parts.host[0])
		memcpy(ret_host, parts.host, strlen(parts.host) + 1);
	else
		return frl_fail(-EHOSTUNREACH,
			"the place is of another control daemon (%s), unreachable from this one "
			"(%s): set listen_address of each ferruled (one host: one FRL_CONTROL)",
			parts.name, daemon.host);
	return 0;
}
