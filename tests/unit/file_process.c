/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/file_process.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void reap(pid_t pid)
{
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* Reaps the orphans that have ended, as init does. True: `leader` has ended, and is not reaped: its
 * number, which is the group's, cannot be another process's yet. */
static bool has_ended(pid_t leader)
{
	for (;;) {
		siginfo_t info = { .si_pid = 0 };

		if (waitid(P_PID, (id_t)leader, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
			info.si_pid == leader)
			return true;
		info.si_pid = 0;
		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid == 0)
			return false;
		if (info.si_pid != leader)
			reap(info.si_pid);
	}
}

/* Returns the signal that is to end this process, or 0: the leader has ended. */
static int wait_end(pid_t leader, const sigset_t *set)
{
	while (!has_ended(leader)) {
		int number = sigwaitinfo(set, NULL);

		if (number > 0 && number != SIGCHLD)
			return number;
	}
	return 0;
}

/* Kills the orphans of the file, which had sessions of their own. True: there were some. Their
 * children are orphans next. */
static bool kill_orphans(void)
{
	FILE *file = fopen("/proc/thread-self/children", "r");
	pid_t list[256];
	int n = 0;

	while (file && n < 256 && fscanf(file, "%d", &list[n]) == 1)
		n++;
	if (file)
		fclose(file);
	for (int i = 0; i < n; i++)
		kill(list[i], SIGKILL);
	for (int i = 0; i < n; i++)
		reap(list[i]);
	return n > 0;
}

int file_process_run(int (*run)(void *ctx), void (*end)(void), void *ctx)
{
	int status = -1, number;
	sigset_t set, before;
	pid_t pid;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	signal(SIGCHLD, SIG_DFL);
	sigprocmask(SIG_BLOCK, &set, &before);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		sigprocmask(SIG_SETMASK, &before, NULL);
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		exit(run(ctx));
	}
	if (pid > 0) {
		setpgid(pid, pid); /* whichever process is first */
		number = wait_end(pid, &set);
		kill(-pid, SIGKILL);
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
		while (kill_orphans())
			;
		end();
		if (number) {
			signal(number, SIG_DFL);
			raise(number);
		}
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	return status;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
	return remove(path) && errno != ENOENT ? -1 : 0;
}

void remove_tree(const char *path)
{
	if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) && errno != ENOENT)
		perror(path);
}
