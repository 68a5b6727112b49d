/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators between ranks of this process.
 *
 * job_simulate(): each rank is a coroutine in virtual time, with devices on a simulated network
 * (tests/sim/coll/coll_world.h).
 *
 * job_run(): each rank is a thread with a device, of the local fabric by default. They meet through
 * a bootstrap in memory, whose mail a thread of the job delivers. For tests of shared memory, of
 * other devices, or of several threads of a rank.
 */
#ifndef FERRULE_TESTS_UNIT_COLLECTIVES_COMM_FIXTURE_H
#define FERRULE_TESTS_UNIT_COLLECTIVES_COMM_FIXTURE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <ferrule/ferrule.h>

#include "tests/fixtures/program.h"

enum { JOB_RANKS = 8, JOB_RAILS = 4, JOB_TEXT = 1024 };

/* Tests are shorter with a slow sanitizer. */
#if defined(__SANITIZE_THREAD__)
#define JOB_SHARE 8
#elif defined(__SANITIZE_ADDRESS__)
#define JOB_SHARE 4
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define JOB_SHARE 8
#endif
#endif
#ifndef JOB_SHARE
#define JOB_SHARE 1
#endif

struct job;

struct rank {
	struct job *job;
	int number;
	int ranks;
	pthread_t thread;
	struct frl_device *devices[JOB_RAILS];
	struct frl_bootstrap bootstrap;
	struct frl_comm *comm;
	void (*receive)(void *arg, int rank, const void *data, size_t size);
	void *receive_arg;
	bool left;
	int created; /* what making the communicator returned, and said */
	char created_text[JOB_TEXT];
	char failure[JOB_TEXT];
};

struct job_mail {
	struct job_mail *next;
	int from, to;
	size_t size;
	uint8_t data[];
};

struct job {
	int ranks;
	void (*main)(struct rank *rank);
	void *arg;                       /* the test's */
	const char *algos;               /* of the communicators; NULL: as set */
	int timeout_ms;                  /* of the communicators */
	enum frl_progress progress;      /* of the devices; 0: as set */
	int rails;                       /* devices of each rank; 0: one */
	enum frl_progress comm_progress; /* of the communicators; a thread: for job_run() alone */
	/* The devices, as in frl_device_config.port; NULL: of the local fabric. */
	const char *(*port)(int rank, int rail);
	unsigned poor;       /* ranks, a bit each, whose devices do not reduce on receive */
	unsigned rich_rails; /* rails, a bit each, whose devices do it nevertheless */
	unsigned short_mtu;  /* ranks, a bit each, whose devices have a path MTU of 1024 */
	bool may_fail;       /* to make communicators */
	bool is_simulated;   /* set by job_simulate() */
	bool is_busy;        /* others want the processors, to job_simulate() */
	unsigned losses;     /* one of so many mails is lost; 0: none */
	struct rank rank[JOB_RANKS];
	pthread_t postman;
	pthread_mutex_t mutex; /* for all that follows, and the ranks' receivers */
	pthread_cond_t changed;
	struct job_mail *mails, **mails_end;
	int calls; /* rank whose receiver runs, or -1 */
	unsigned posted;
	bool ends;
	int gone; /* rank that gave up, or -1 */
	char why[JOB_TEXT];
	unsigned round, arrived, leaving;
	uint8_t *gathered;
	pthread_barrier_t meeting; /* of all ranks */
};

/* Runs `job->main` on all ranks, with job->rank[].comm made, and asserts that none complained. */
void job_run(struct job *job);

/* The same in virtual time. With shared memory, and under ThreadSanitizer, it is job_run(). */
void job_simulate(struct job *job);

/* A case for each _i from `first` to `end` - 1, or from 0 to `n` - 1, that is one job: `run` is one
 * of the two above, the rest are members of the job. The closing `struct job` takes the semicolon.
 */
#define JOB_RANGE_TEST(name, first, end, run, ...) \
	START_RANGE_TEST(name, first, end)         \
	{                                          \
		struct job job = { __VA_ARGS__ };  \
		run(&job);                         \
	}                                          \
	struct job
#define JOB_TEST(name, n, run, ...) JOB_RANGE_TEST(name, 0, n, run, __VA_ARGS__)

/* For `main`: the first complaint counts. Returns false, so that callers can give up. */
bool complain(struct rank *rank, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline bool expect_that(
	struct rank *rank, bool condition, const char *text, const char *file, int line)
{
	return condition || complain(rank, "%s:%d: %s (%s)", file, line, text, frl_last_error());
}

#define expect(rank, condition) expect_that((rank), (condition), #condition, __FILE__, __LINE__)

/* The ranks' inputs: small whole numbers, so that every sum is exact. */
int32_t job_input(int rank, size_t i);
int32_t job_sum(int ranks, size_t i);

/* The counts that a rank sends to and receives from others in ALLTOALLV, for about `count`
 * elements. */
struct job_vectors {
	size_t send_counts[JOB_RANKS], send_displs[JOB_RANKS];
	size_t recv_counts[JOB_RANKS], recv_displs[JOB_RANKS];
	size_t sent, received;
};
void job_make_vectors(struct job_vectors *v, const struct rank *rank, size_t count);

/* For `main`: waits without using the library. */
void job_sleep_ms(int ms);
/* Returns memory of frl_mem_alloc(), or aborts. */
void *job_shared_memory(size_t bytes);
/* For `main`: private memory, which others cannot read in place. */
void *job_private_memory(size_t bytes);

/* For `main`: waits until all ranks have called it. */
void job_meet(struct job *job);

#endif
