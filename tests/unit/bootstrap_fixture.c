/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/bootstrap_fixture.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "tests/unit/program.h"

char socket_path[64];
static char config_path[64];
pid_t daemon_pid;

uint64_t now_ms(void)
{
	return clock_now_ns() / 1000000;
}

static bool daemon_is_there(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool there;

	memcpy(address.sun_path, socket_path, strlen(socket_path) + 1);
	there = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
	close(fd);
	return there;
}

void start_daemon(void)
{
	const char *root = getenv("FRL_BUILD_ROOT");
	uint64_t end = now_ms() + HANG_MS;
	char path[4096];

	snprintf(path, sizeof(path), "%s/daemon/ferruled", root ? root : "build");
	daemon_pid = fork();
	if (daemon_pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!freopen("/dev/null", "w", stderr))
			_exit(127);
		execl(path, path, "--private", "--config", config_path, "--socket", socket_path,
			(char *)NULL);
		_exit(127);
	}
	while (!daemon_is_there()) {
		/* No assertion, for it may be outside of any test. */
		if (waitpid(daemon_pid, NULL, WNOHANG) != 0 || now_ms() >= end) {
			fprintf(stderr, "%s has ended, or does not listen\n", path);
			exit(EXIT_FAILURE);
		}
		usleep(2000);
	}
}

void kill_process(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

void stop_daemon(void)
{
	if (daemon_pid > 0)
		kill_process(daemon_pid);
	daemon_pid = 0;
}

int run_with_daemon(int (*run)(Suite *suite), Suite *suite)
{
	int status;

	start_daemon();
	status = run(suite);
	stop_daemon();
	return status;
}

struct frl_bootstrap join(int rank, int ranks)
{
	struct frl_bootstrap bootstrap = { 0 };
	int err = frl_bootstrap_join("test", rank, ranks, JOIN_MS, &bootstrap);

	ck_assert_msg(err == 0, "%s", frl_last_error());
	ck_assert_int_eq(bootstrap.rank, rank);
	ck_assert_int_eq(bootstrap.ranks, ranks);
	return bootstrap;
}

pid_t join_elsewhere(int rank, int ranks)
{
	struct frl_bootstrap bootstrap;
	int fds[2];
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (frl_bootstrap_join("test", rank, ranks, JOIN_MS, &bootstrap) == 0 &&
			write(fds[1], "+", 1) == 1)
			pause();
		_exit(1);
	}
	close(fds[1]);
	ck_assert_msg(read(fds[0], &byte, 1) == 1, "rank %d could not join", rank);
	close(fds[0]);
	return pid;
}

int wait_for_check(struct frl_bootstrap *bootstrap, int *ret_rank)
{
	for (uint64_t limit_ns = hang_limit_ns(); may_wait(limit_ns);) {
		int err = bootstrap->check(bootstrap->ctx, ret_rank);

		if (err)
			return err;
		usleep(1000);
	}
	return 0;
}

/* A process may be stopped for as long. */
static void write_config(void)
{
	FILE *file;

	snprintf(config_path, sizeof(config_path), "%s/ferruled.conf", test_folder());
	file = fopen(config_path, "w");
	if (!file || fputs("hello_ms = 60000;\nidle_exit_ms = 0;\n", file) < 0 || fclose(file)) {
		perror(config_path);
		exit(EXIT_FAILURE);
	}
}

void set_socket_path(void)
{
	write_config();
	snprintf(socket_path, sizeof(socket_path), "%s/ferruled.sock", test_folder());
	setenv("FRL_CONTROL", socket_path, 1);
	setenv("FRL_CONTROL_LOST_S", "600", 1);
}
