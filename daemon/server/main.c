/* SPDX-License-Identifier: BSD-3-Clause */
/* ferruled: settings, socket path, privileges; then the event loop. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "daemon/compat/systemd.h"
#include "daemon/server/log.h"
#include "daemon/server/loop.h"
#include "daemon/server/privileges.h"
#include "daemon/config/tls_check.h"
#include "lib/base/process/closer.h"

enum {
	ERROR_SIZE = 512,
	/* Descriptors beside sessions: listeners, logs, peers, requests for metrics, pages in
	 * transfer, sockets that are slow to close. */
	OTHER_FILES = 320,
	MMAP_BYTES = 1 << 17,
};

/* Takes the socket that systemd has opened (sd_listen_fds(3)); -1 if there is none. Its path
 * replaces the configured one. */
static bool take_given(struct config *config, int *ret_fd, char *error, size_t size)
{
	struct sockaddr_un address = { 0 };
	socklen_t length = sizeof(address) - 1;
	int count = sd_listen_fds(1);

	*ret_fd = count > 0 ? SD_LISTEN_FDS_START : -1;
	if (count <= 0)
		return true;
	if (count > 1 || sd_is_socket_unix(*ret_fd, SOCK_STREAM, 1, NULL, 0) <= 0 ||
		getsockname(*ret_fd, (struct sockaddr *)&address, &length) < 0) {
		snprintf(error, size,
			"systemd must pass exactly one socket: a listening Unix stream socket with "
			"a path");
		return false;
	}
	free(config->socket);
	config->socket = strdup(address.sun_path);
	snprintf(error, size, "no memory");
	return config->socket != NULL;
}

static void want_files(const struct config *config)
{
	size_t wanted = (size_t)config->max_sessions + config->max_peers * 2 + OTHER_FILES;
	size_t have = privileges_raise_files(wanted);

	if (have < wanted)
		log_line(CORE_LOG_WARNING,
			"only %zu descriptors are allowed, but max_sessions (%u) may need %zu: "
			"raise LimitNOFILE, or lower max_sessions",
			have, config->max_sessions, wanted);
}

static void warn_of_folder(const struct loop *loop)
{
	char folder[LOCAL_FOLDER];

	if (!local_can_leave(loop->local, folder))
		log_line(CORE_LOG_WARNING,
			"ferruled will not be able to remove its socket: its user may not write to "
			"%s: chown the directory, or change `socket`",
			folder);
}

/* Returns 0, or the exit status. */
static int start(const struct options *options, struct loop **ret_loop)
{
	char error[ERROR_SIZE] = "";
	struct config *config = options_config(options, error, sizeof(error));
	struct local *local;
	enum local_result result;
	int given;

	if (!config || !take_given(config, &given, error, sizeof(error)))
		goto failed;
	want_files(config);
	result = local_take(config->socket, options->is_private, config->user, given, &local, error,
		sizeof(error));
	if (result == LOCAL_BUSY && options->is_private) {
		/* Two programs have started a private daemon at once. */
		log_line(CORE_LOG_INFO, "%s", error);
		config_free(config);
		return EXIT_SUCCESS;
	}
	if (result != LOCAL_TAKEN)
		goto failed;
	*ret_loop = loop_create(options, config, local, error, sizeof(error));
	config = NULL;
	if (*ret_loop &&
		privileges_drop((*ret_loop)->config->user, config_has_packet((*ret_loop)->config),
			error, sizeof(error))) {
		warn_of_folder(*ret_loop);
		return EXIT_SUCCESS;
	}
	loop_destroy(*ret_loop);
	*ret_loop = NULL;
failed:
	log_line(CORE_LOG_ERROR, "%s", error);
	config_free(config);
	return EXIT_FAILURE;
}

static void print_finding(void *arg, enum tls_level level, const char *text)
{
	bool *failed = arg;

	fprintf(stderr, "%s%s\n", level == TLS_WARNING ? "warning: " : "", text);
	*failed |= level != TLS_WARNING;
}

static int check_config(const struct options *options)
{
	char error[ERROR_SIZE] = "";
	struct config *config = options_config(options, error, sizeof(error));
	bool failed = false;
	const struct tls_check check = {
		.say = print_finding, .arg = &failed, .now = time(NULL), .as_user = true
	};

	if (!config) {
		fprintf(stderr, "%s\n", error);
		return EXIT_FAILURE;
	}
	if (config->tls_certificate)
		tls_check(config, &check);
	if (!failed)
		printf("%s: fine\n", options->config ? options->config : "no file; defaults");
	config_free(config);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* For the options that only print. */
static int finish_output(int status)
{
	if (fflush(stdout) == 0)
		return status;
	fprintf(stderr, "ferruled: cannot write to standard output: %s\n", strerror(errno));
	return EXIT_FAILURE;
}

static void on_alarm(int number)
{
}

/* Threads close descriptors of other processes that are slow to close; this limits their time. */
static void close_soon(void)
{
	const struct sigaction action = { .sa_handler = on_alarm };

	sigaction(SIGALRM, &action, NULL);
	closer_interrupt_by(SIGALRM);
}

int main(int argc, char **argv)
{
	struct loop *loop = NULL;
	struct options options;
	int status = options_parse(&options, argc, argv);

	if (status >= 0)
		return finish_output(status);
	if (options.check_config)
		return finish_output(check_config(&options));
	log_start(options.log_level);
	/* The service that started a private daemon must not get notifications from it. */
	if (options.is_private)
		unsetenv("NOTIFY_SOCKET");
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a log that cannot grow must not end the daemon */
	close_soon();
	umask(077);
	/* Return the memory of a flood to the system when it is over. */
	mallopt(M_MMAP_THRESHOLD, MMAP_BYTES);
	mallopt(M_TRIM_THRESHOLD, MMAP_BYTES);
	status = start(&options, &loop);
	if (!loop)
		return status;
	if (loop_run(loop) < 0) {
		log_line(CORE_LOG_ERROR, "the event loop failed: %s", strerror(errno));
		status = EXIT_FAILURE;
	}
	loop_destroy(loop);
	return status;
}
