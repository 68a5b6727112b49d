/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PMIx: mpirun of Open MPI, srun --mpi=pmix, prun. libpmix is loaded only if a launcher has set its
 * variables, and is never unloaded.
 *
 * A process has one connection, with a reference count. PMIx counts too, so that MPI in the same
 * process may have its own connection. When the last user releases ours, PMIx_Finalize() reports to
 * the launcher that this process ends in good order. Values that rank 0 publishes must exist until
 * all ranks have fetched them, which is certain once they have joined. A bootstrap therefore holds
 * the connection until it is closed.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pmix.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/api/launch/launch.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/process/condition.h"
#include "lib/base/process/thread.h"

enum {
	NS_PER_MS = 1000000,
	NS_PER_S = 1000000000,
	INIT_S = 15,
	AGAIN_MS = 50, /* between two queries for a missing value */
};

/* The PMIx functions that are used, as declared in pmix.h. */
#define PMIX_FUNCTIONS(X)          \
	X(init, PMIx_Init)         \
	X(finalize, PMIx_Finalize) \
	X(get, PMIx_Get)           \
	X(get_nb, PMIx_Get_nb)     \
	X(put, PMIx_Put)           \
	X(commit, PMIx_Commit)     \
	X(describe, PMIx_Error_string)

static struct {
	pthread_mutex_t mutex; /* protects all following fields but the functions' own work */
	void *library;
#define PMIX_MEMBER(member, name) __typeof__(name) *member;
	PMIX_FUNCTIONS(PMIX_MEMBER)
#undef PMIX_MEMBER
	unsigned users;
	pthread_cond_t changed; /* init_state */
	unsigned waiters;       /* number of threads that wait for `changed` */
	enum { INIT_NONE, INIT_RUNS, INIT_OVER } init_state;
	pmix_status_t status; /* result of PMIx_Init() */
	pmix_proc_t me;
} the_pmix = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* ---- the library */

static int load(void)
{
	void *library;

	if (the_pmix.library)
		return 0;
	library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return frl_fail(-ENOTSUP,
			"this process was started with PMIx (PMIX_NAMESPACE is set), but libpmix "
			"cannot be loaded: %s: install libpmix2, or set FRL_RANK, FRL_RANKS and "
			"FRL_JOB",
			dlerror());
#define PMIX_LOAD(member, name) the_pmix.member = (__typeof__(name) *)dlsym(library, #name);
	PMIX_FUNCTIONS(PMIX_LOAD)
#undef PMIX_LOAD
#define PMIX_IS_THERE(member, name) &&the_pmix.member
	if (!(true PMIX_FUNCTIONS(PMIX_IS_THERE))) {
		dlclose(library);
		return frl_fail(-ENOTSUP, "libpmix.so.2 lacks functions of PMIx 2");
	}
#undef PMIX_IS_THERE
	the_pmix.library = library;
	return 0;
}

/*
 * Runs PMIx_Init() in a thread of its own, because it waits for the server without limit. The
 * thread blocks all signals, and so do the threads that PMIx starts: signals are for the
 * application's threads. If all waiters have timed out, this thread continues alone and finalizes a
 * late connection.
 */
static void *init_main(void *arg)
{
	pmix_proc_t me;
	pmix_status_t status = the_pmix.init(&me, NULL, 0);

	pthread_mutex_lock(&the_pmix.mutex);
	the_pmix.me = me;
	the_pmix.status = status;
	the_pmix.init_state = INIT_OVER;
	/*
	 * Nobody waits any more: finalize, or the launcher would count a normal exit as a failure.
	 */
	if (the_pmix.waiters == 0 && status == PMIX_SUCCESS) {
		the_pmix.finalize(NULL, 0);
		the_pmix.init_state = INIT_NONE;
	}
	pthread_cond_broadcast(&the_pmix.changed);
	pthread_mutex_unlock(&the_pmix.mutex);
	return arg;
}

static int start_init(void)
{
	int err = thread_start(init_main, NULL, 0, NULL);

	if (err)
		return frl_fail(err, "cannot start a thread: %s", frl_strerror(err));
	the_pmix.init_state = INIT_RUNS;
	return 0;
}

/* Returns -ETIMEDOUT if PMIx_Init() has not returned yet. Mutex held, but not while waiting. */
static int await_init(void)
{
	uint64_t until_ns = clock_now_ns() + (uint64_t)INIT_S * NS_PER_S;

	/* Another waiter may have taken the connection and released it. */
	while (the_pmix.init_state != INIT_OVER) {
		int err = the_pmix.init_state == INIT_NONE ? start_init() : 0;
		bool is_late;

		if (err)
			return err;
		the_pmix.waiters++;
		is_late = !condition_wait(&the_pmix.changed, &the_pmix.mutex, until_ns);
		the_pmix.waiters--;
		if (is_late)
			return frl_fail(-ETIMEDOUT,
				"the PMIx server of the launcher (PMIX_SERVER_URI*) has not "
				"answered for %d s: check it, unset PMIX_NAMESPACE and the like, "
				"or set another FRL_LAUNCHER",
				INIT_S);
	}
	return 0;
}

/* Mutex held, but not while waiting. */
static int connect_to_server(void)
{
	int status, err = load();

	if (err)
		return err;
	if (the_pmix.users > 0) {
		the_pmix.users++;
		return 0;
	}
	err = await_init();
	if (err)
		return err;
	/* Several threads may have waited. */
	status = the_pmix.status;
	if (status != PMIX_SUCCESS)
		the_pmix.init_state = INIT_NONE;
	if (status != PMIX_SUCCESS)
		return frl_fail(-ENOTCONN,
			"the PMIx server of the launcher cannot be reached (PMIx_Init: %s): if it "
			"has ended, unset PMIX_NAMESPACE and the like, or set another FRL_LAUNCHER",
			the_pmix.describe(status));
	the_pmix.users++;
	return 0;
}

void pmix_get(void)
{
	pthread_mutex_lock(&the_pmix.mutex);
	the_pmix.users++;
	pthread_mutex_unlock(&the_pmix.mutex);
}

void pmix_put(void)
{
	pthread_mutex_lock(&the_pmix.mutex);
	if (--the_pmix.users == 0) {
		the_pmix.finalize(NULL, 0);
		the_pmix.init_state = INIT_NONE;
	}
	pthread_mutex_unlock(&the_pmix.mutex);
}

/* ---- values of the launcher */

static bool number_of(const pmix_value_t *value, int *ret_number)
{
	uint64_t number;

	switch (value->type) {
	case PMIX_UINT8: number = value->data.uint8; break;
	case PMIX_UINT16: number = value->data.uint16; break;
	case PMIX_UINT32: number = value->data.uint32; break;
	case PMIX_UINT64: number = value->data.uint64; break;
	case PMIX_INT: number = (uint64_t)value->data.integer; break; /* huge if negative */
	case PMIX_PROC_RANK: number = value->data.rank; break;
	default: return false;
	}
	if (number > LAUNCH_RANKS_MAX)
		return false;
	*ret_number = (int)number;
	return true;
}

static void free_value(pmix_value_t *value)
{
	if (value->type == PMIX_STRING)
		free(value->data.string);
	free(value);
}

/*
 * Queries a number about a rank, or about the job (PMIX_RANK_WILDCARD). Returns false if the
 * launcher does not provide it.
 */
static bool get_number(pmix_rank_t rank, const char *key, int *ret_number)
{
	pmix_proc_t about = the_pmix.me;
	pmix_value_t *value = NULL;
	bool found;

	about.rank = rank;
	if (the_pmix.get(&about, key, NULL, 0, &value) != PMIX_SUCCESS || !value)
		return false;
	found = number_of(value, ret_number);
	free_value(value);
	return found;
}

static int describe_me(struct frl_launch *launch)
{
	if (!get_number(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, &launch->ranks) || launch->ranks < 1)
		return frl_fail(-EINVAL,
			"the PMIx server of the launcher does not report the number of ranks "
			"(PMIX_JOB_SIZE, at most %d)",
			LAUNCH_RANKS_MAX);
	if (the_pmix.me.rank >= (uint32_t)launch->ranks)
		return frl_fail(-EINVAL, "PMIx reports rank %u of %d", (unsigned)the_pmix.me.rank,
			launch->ranks);
	launch->rank = (int)the_pmix.me.rank;
	get_number(the_pmix.me.rank, PMIX_LOCAL_RANK, &launch->local_rank);
	get_number(PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE, &launch->local_ranks);
	return 0;
}

int pmix_open(struct frl_launch *launch)
{
	int err;

	pthread_mutex_lock(&the_pmix.mutex);
	err = connect_to_server();
	pthread_mutex_unlock(&the_pmix.mutex);
	if (err)
		return err;
	launch->ctx = &the_pmix;
	return describe_me(launch);
}

/* ---- values of the ranks */

int pmix_publish(const char *key, const char *text)
{
	pmix_value_t value = { .type = PMIX_STRING };
	int status;

	value.data.string = (char *)(uintptr_t)text;
	status = the_pmix.put(PMIX_GLOBAL, key, &value);
	if (status == PMIX_SUCCESS)
		status = the_pmix.commit();
	if (status != PMIX_SUCCESS)
		return frl_fail(-EIO,
			"cannot publish the name of the job through the launcher: PMIx: %s",
			the_pmix.describe(status));
	return 0;
}

/*
 * A query in progress. The server may answer after the waiter has timed out: the last holder frees
 * the query.
 */
struct query {
	pthread_mutex_t mutex; /* protects all following fields */
	pthread_cond_t changed;
	unsigned holders;
	bool answered;
	pmix_status_t status;
	char text[FRL_UNIQUE_ID_SIZE];
};

static struct query *query_new(void)
{
	struct query *query = calloc(1, sizeof(*query));

	if (!query)
		return NULL;
	query->holders = 1;
	pthread_mutex_init(&query->mutex, NULL);
	pthread_cond_init(&query->changed, NULL);
	return query;
}

/* Releases the query. Mutex held; released on return. */
static void query_put(struct query *query)
{
	bool is_last = --query->holders == 0;

	pthread_mutex_unlock(&query->mutex);
	if (!is_last)
		return;
	pthread_cond_destroy(&query->changed);
	pthread_mutex_destroy(&query->mutex);
	free(query);
}

/* Called by a thread of PMIx. */
static void handle_answer(pmix_status_t status, pmix_value_t *value, void *arg)
{
	struct query *query = arg;

	pthread_mutex_lock(&query->mutex);
	query->answered = true;
	query->status = status;
	if (status == PMIX_SUCCESS && (!value || value->type != PMIX_STRING || !value->data.string))
		query->status = PMIX_ERR_TYPE_MISMATCH;
	else if (status == PMIX_SUCCESS)
		snprintf(query->text, sizeof(query->text), "%s", value->data.string);
	pthread_cond_broadcast(&query->changed);
	query_put(query);
}

/* Waits for the answer, or until the deadline. Mutex held. */
static pmix_status_t await_answer(struct query *query, uint64_t until_ns)
{
	while (!query->answered)
		if (!condition_wait(&query->changed, &query->mutex, until_ns))
			return PMIX_ERR_TIMEOUT;
	return query->status;
}

static pmix_status_t fetch_once(const char *key, uint64_t until_ns, char *text, size_t size)
{
	struct query *query = query_new();
	pmix_proc_t first = the_pmix.me;
	pmix_status_t status;

	if (!query)
		return PMIX_ERR_NOMEM;
	first.rank = 0;
	query->holders++; /* PMIx, until it has answered */
	status = the_pmix.get_nb(&first, key, NULL, 0, handle_answer, query);
	pthread_mutex_lock(&query->mutex);
	if (status != PMIX_SUCCESS)
		query->holders--;
	else
		status = await_answer(query, until_ns);
	if (status == PMIX_SUCCESS)
		snprintf(text, size, "%s", query->text);
	query_put(query);
	return status;
}

static bool is_not_yet(pmix_status_t status)
{
	return status == PMIX_ERR_NOT_FOUND || status == PMIX_ERR_TIMEOUT;
}

int pmix_fetch(const char *key, int timeout_ms, char *text, size_t size)
{
	const struct timespec pause = { .tv_nsec = AGAIN_MS * NS_PER_MS };
	uint64_t until_ns = clock_now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
	pmix_status_t status;

	/*
	 * Repeat: a server that knows rank 0 from an earlier connection returns "not found" at
	 * once, and a server may time out before this rank does (Open MPI 4: after 2 s).
	 */
	for (;;) {
		status = fetch_once(key, until_ns, text, size);
		if (!is_not_yet(status) || clock_now_ns() >= until_ns)
			break;
		nanosleep(&pause, NULL);
	}
	if (is_not_yet(status))
		return frl_fail(-ETIMEDOUT,
			"rank 0 has not published the name of the job within %d ms", timeout_ms);
	if (status != PMIX_SUCCESS)
		return frl_fail(-EIO, "cannot get the name of the job from the launcher: PMIx: %s",
			the_pmix.describe(status));
	return 0;
}
