/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/process/closer.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/process/thread.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum {
	MAX_THREADS = 16, /* a close that never ends occupies one thread for good */
	STACK = 1 << 17,
	ROOM = 8192, /* exceeds what all sessions and links can leave at once */
	INTERRUPT_NS = 1000000,
};

static struct {
	pthread_mutex_t mutex;
	int fds[ROOM]; /* a stack */
	unsigned n, threads;
	unsigned pending;
	int signal; /* 0: none */
} closer = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static void before_fork(void)
{
	pthread_mutex_lock(&closer.mutex);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&closer.mutex);
}

/* The child has copies of the queued descriptors. Its next close also closes them. */
static void after_fork_in_child(void)
{
	closer.threads = 0;
	closer.pending = closer.n;
	after_fork();
}

/* Registered when the library is loaded, before the handlers of callers that hold their locks. */
__attribute__((constructor(201))) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

static void interrupt_every(timer_t timer, long ns)
{
	const struct itimerspec times = { { 0, ns }, { 0, ns } };

	timer_settime(timer, 0, &times, NULL);
}

/* Directs the timer's signals to this thread. The timer repeats because its first signal may arrive
 * before the sleep begins. */
static void close_interrupted(int fd, int signal)
{
	struct sigevent event;
	sigset_t set;
	timer_t timer;

	memset(&event, 0, sizeof(event));
	event.sigev_notify = SIGEV_THREAD_ID;
	event.sigev_signo = signal;
	event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
	if (timer_create(CLOCK_MONOTONIC, &event, &timer)) {
		close(fd);
		return;
	}
	sigemptyset(&set);
	sigaddset(&set, signal);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	interrupt_every(timer, INTERRUPT_NS);
	close(fd);
	timer_delete(timer);
}

static void *run(void *arg)
{
	pthread_mutex_lock(&closer.mutex);
	while (closer.n) {
		int fd = closer.fds[--closer.n], signal = closer.signal;

		pthread_mutex_unlock(&closer.mutex);
		if (signal)
			close_interrupted(fd, signal);
		else
			close(fd);
		pthread_mutex_lock(&closer.mutex);
		closer.pending--;
	}
	closer.threads--;
	pthread_mutex_unlock(&closer.mutex);
	return NULL;
}

void closer_close(int fd)
{
	pthread_mutex_lock(&closer.mutex);
	closer.pending++;
	if (closer.n < ROOM)
		closer.fds[closer.n++] = fd;
	if (closer.threads < MAX_THREADS && thread_start(run, NULL, STACK, NULL) == 0)
		closer.threads++;
	pthread_mutex_unlock(&closer.mutex);
}

unsigned closer_pending(void)
{
	unsigned pending;

	pthread_mutex_lock(&closer.mutex);
	pending = closer.pending;
	pthread_mutex_unlock(&closer.mutex);
	return pending;
}

void closer_interrupt_by(int signal)
{
	pthread_mutex_lock(&closer.mutex);
	closer.signal = signal;
	pthread_mutex_unlock(&closer.mutex);
}
