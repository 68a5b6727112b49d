/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/common/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ferrule/ferrule.h>

#include "tools/common/common.h"

/* The library detects a dead rank within 3 s. A rank that lives longer hangs. */
static const uint64_t grace_after_failure_ns = 5000000000u;
static const uint64_t grace_after_signal_ns = 2000000000u;

enum { STAND_IN_MS = 1000 };

struct child {
	pid_t pid;  /* 0: none, or reaped */
	int report; /* read end of the pipe for its report */
	bool failed;
};

struct job {
	const struct launch *launch;
	char name[48];
	sigset_t watched, original;
	struct sigaction original_sigchld;
	struct child children[MAX_RANKS];
	int alive;
	int signal;           /* the signal that ended the job */
	uint64_t deadline_ns; /* when ranks that still run are killed; 0: never */
	bool failed;
	bool stands_in;
	struct frl_bootstrap stand_in; /* joined in place of a rank that has ended */
};

/* Chooses a random name, different from those of other jobs. */
static int choose_name(struct job *job)
{
	uint64_t name[2];

	if (getrandom(name, sizeof(name), 0) != sizeof(name))
		return -EIO;
	snprintf(job->name, sizeof(job->name), "launch-%016jx%016jx", (uintmax_t)name[0],
		(uintmax_t)name[1]);
	return 0;
}

static bool write_report(int fd, const void *report, size_t size)
{
	return size == 0 ||
		write(fd, report, size) == (ssize_t)size; /* atomic for up to PIPE_BUF bytes */
}

__attribute__((noreturn)) static void run_child(
	struct job *job, int rank, pid_t parent, int report_fd)
{
	const struct launch *launch = job->launch;
	char report[PIPE_BUF] = { 0 };
	int status;

	/* If the parent died before prctl() took effect, no signal is sent. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(EXIT_FAILURE);
	for (int i = 0; i < rank; i++)
		close(job->children[i].report);
	say_rank(rank);
	sigaction(SIGCHLD, &job->original_sigchld, NULL);
	sigprocmask(SIG_SETMASK, &job->original, NULL);
	status = launch->rank_main(rank, job->name, report, launch->arg);
	if (!status && !write_report(report_fd, report, launch->report_size)) {
		say("cannot report to the parent: %s", strerror(errno));
		status = EXIT_FAILURE;
	}
	exit(finish_output(status));
}

static int start_child(struct job *job, int rank)
{
	pid_t parent = getpid(), pid;
	int fds[2];

	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (pid == 0) {
		close(fds[0]);
		run_child(job, rank, parent, fds[1]);
	}
	close(fds[1]);
	if (pid < 0) {
		int rc = -errno;

		close(fds[0]);
		return rc;
	}
	job->children[rank] = (struct child){ .pid = pid, .report = fds[0] };
	job->alive++;
	return 0;
}

/*
 * Signals only children that were not reaped: their process ids cannot belong to other processes.
 */
static void kill_children(const struct job *job, int sig)
{
	for (int i = 0; i < job->launch->ranks; i++)
		if (job->children[i].pid > 0)
			kill(job->children[i].pid, sig);
}

static void set_deadline(struct job *job, uint64_t grace_ns)
{
	if (!job->deadline_ns)
		job->deadline_ns = now_ns() + grace_ns;
}

/*
 * Joins the job in place of a rank that ended before it had joined, and aborts. The daemon reports
 * only the end of ranks that have joined; without this the others would wait. The replacement stays
 * until all ranks have ended, so that ranks that join later are notified too. The process has no
 * thread of the library before this call, because all ranks were forked already.
 */
static void stand_in_for(struct job *job, int rank)
{
	if (job->stands_in || job->alive == 0)
		return;
	if (frl_bootstrap_join(job->name, rank, job->launch->ranks, STAND_IN_MS, &job->stand_in))
		return; /* the rank had joined, or there is no daemon: all ranks fail */
	job->stands_in = true;
	job->stand_in.abort(job->stand_in.ctx, "its process ended before it had joined");
}

/* Records the end of a rank. A rank that exits with a status has printed the reason itself. */
static void child_ended(struct job *job, int rank, int status)
{
	struct child *child = &job->children[rank];

	if (WIFSIGNALED(status) && !job->signal)
		say("rank %d (process %d) was killed by signal %d (%s)", rank, (int)child->pid,
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	child->failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
	child->pid = 0;
	job->alive--;
	if (child->failed) {
		job->failed = true;
		set_deadline(job, grace_after_failure_ns);
		stand_in_for(job, rank);
	}
}

static void reap(struct job *job)
{
	for (int i = 0; i < job->launch->ranks; i++) {
		int status, n;

		if (job->children[i].pid <= 0)
			continue;
		n = (int)waitpid(job->children[i].pid, &status, WNOHANG);
		if (n < 0 && errno == ECHILD) {
			say("rank %d ended with an unknown status", i);
			status = W_EXITCODE(EXIT_FAILURE, 0);
		}
		if (n > 0 || (n < 0 && errno == ECHILD))
			child_ended(job, i, status);
	}
}

static void kill_stragglers(struct job *job)
{
	for (int i = 0; i < job->launch->ranks; i++)
		if (job->children[i].pid > 0)
			say("rank %d did not end after the failure: killing process %d", i,
				(int)job->children[i].pid);
	job->failed = true;
	kill_children(job, SIGKILL);
	job->deadline_ns = UINT64_MAX;
}

static void wait_for_children(struct job *job)
{
	const struct timespec tick = { .tv_nsec = 100000000 };

	while (job->alive > 0) {
		int sig = sigtimedwait(&job->watched, NULL, &tick);

		if (sig > 0 && sig != SIGCHLD && !job->signal) {
			job->signal = sig;
			kill_children(job, SIGTERM);
			job->deadline_ns = now_ns() + grace_after_signal_ns;
		}
		reap(job);
		if (job->alive > 0 && job->deadline_ns && now_ns() > job->deadline_ns)
			kill_stragglers(job);
	}
}

/* Reads without blocking: a killed child may have written a part of its report, or nothing. */
static bool read_report(int fd, uint8_t *report, size_t size)
{
	size_t used = 0;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	while (used < size) {
		ssize_t n = read(fd, report + used, size - used);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		used += (size_t)n;
	}
	return true;
}

static void collect_reports(struct job *job)
{
	size_t size = job->launch->report_size;

	for (int i = 0; i < job->launch->ranks; i++) {
		struct child *child = &job->children[i];

		if (child->report < 0)
			continue;
		if (!job->failed &&
			!read_report(
				child->report, (uint8_t *)job->launch->reports + size * i, size)) {
			say("rank %d ended without its report", i);
			job->failed = true;
		}
		close(child->report);
	}
}

static int start_all(struct job *job)
{
	int rc = choose_name(job);

	if (rc) {
		say("no random numbers from the kernel");
		return rc;
	}
	fflush(NULL); /* or each child prints the buffered output again */
	for (int i = 0; i < job->launch->ranks && !rc; i++)
		rc = start_child(job, i);
	if (rc)
		say("cannot start a process: %s", strerror(-rc));
	return rc;
}

static void watch_signals(struct job *job)
{
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP };
	const struct sigaction usual = { .sa_handler = SIG_DFL };

	/* If the parent of this process ignores SIGCHLD, there is neither a signal nor a status. */
	sigaction(SIGCHLD, &usual, &job->original_sigchld);
	sigemptyset(&job->watched);
	sigaddset(&job->watched, SIGCHLD);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		struct sigaction action;

		/* Keep ignored signals ignored, for nohup. */
		if (!sigaction(ends[i], NULL, &action) && action.sa_handler != SIG_IGN)
			sigaddset(&job->watched, ends[i]);
	}
	sigprocmask(SIG_BLOCK, &job->watched, &job->original);
}

int launch_ranks(const struct launch *launch)
{
	struct job job = { .launch = launch };

	for (int i = 0; i < launch->ranks; i++)
		job.children[i].report = -1;
	watch_signals(&job);
	if (start_all(&job)) {
		job.failed = true;
		kill_children(&job, SIGTERM);
		set_deadline(&job, grace_after_signal_ns);
	}
	wait_for_children(&job);
	collect_reports(&job);
	if (job.stands_in)
		job.stand_in.close(job.stand_in.ctx);
	sigprocmask(SIG_SETMASK, &job.original, NULL);
	sigaction(SIGCHLD, &job.original_sigchld, NULL);
	if (job.signal) {
		say("ended by signal %d (%s)", job.signal, strsignal(job.signal));
		return 128 + job.signal;
	}
	return job.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
