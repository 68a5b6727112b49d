/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/server/dial.c with a resolver of its own, as slow as the test needs: names with several
 * addresses, more names than threads, and dials that are given up meanwhile.
 */
#include "daemon/server/dial.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <check.h>

#include "daemon/server/listener.h"
#include "lib/base/clock.h"
#include "tests/fixtures/program.h"

enum {
	MANY = 100,
	THREADS_MAX = 32,
	THREADS_EACH = 8,
	USERS = 7,
};

static struct event_base *base;
static struct dials *dials;
static struct listener_socket *listener;
static uint16_t port;
static unsigned n_accepted, n_connected, n_failed;
static enum core_end last_end;
static char last_why[400], last_address[64];
static bool is_forbidden;

/* ---- the resolver */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static bool is_slow;
static unsigned n_looking, most_looking;
static int n_results; /* that are not freed */

static void count_results(int more)
{
	pthread_mutex_lock(&lock);
	n_results += more;
	pthread_mutex_unlock(&lock);
}

static int results(void)
{
	int count;

	pthread_mutex_lock(&lock);
	count = n_results;
	pthread_mutex_unlock(&lock);
	return count;
}

static struct addrinfo *make_result(const char *address, const char *service, struct addrinfo *next)
{
	struct addrinfo *result = calloc(1, sizeof(*result) + sizeof(struct sockaddr_in));
	struct sockaddr_in *to = (struct sockaddr_in *)(void *)(result + 1);

	to->sin_family = AF_INET;
	to->sin_port = htons((uint16_t)atoi(service));
	inet_pton(AF_INET, address, &to->sin_addr);
	result->ai_family = AF_INET;
	result->ai_addr = (struct sockaddr *)to;
	result->ai_addrlen = sizeof(*to);
	result->ai_next = next;
	count_results(1);
	return result;
}

static bool is_replaced; /* this file runs: the others of its program resolve names as ever */

int __real_getaddrinfo(
	const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **ret);
void __real_freeaddrinfo(struct addrinfo *found);
int __wrap_getaddrinfo(
	const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **ret);
void __wrap_freeaddrinfo(struct addrinfo *found);

int __wrap_getaddrinfo(
	const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **ret)
{
	struct in_addr numeric;

	if (!is_replaced)
		return __real_getaddrinfo(name, service, hints, ret);
	if (inet_pton(AF_INET, name, &numeric) == 1) {
		*ret = make_result(name, service, NULL);
		return 0;
	}
	if (hints->ai_flags & AI_NUMERICHOST)
		return EAI_NONAME;
	pthread_mutex_lock(&lock);
	n_looking++;
	most_looking = n_looking > most_looking ? n_looking : most_looking;
	while (is_slow)
		pthread_cond_wait(&change, &lock);
	n_looking--;
	pthread_mutex_unlock(&lock);
	if (strcmp(name, "nowhere") == 0)
		return EAI_NONAME;
	/* Nothing listens on the first one; no connection to the broadcast address is possible. */
	*ret = make_result("127.0.0.2", service,
		make_result(strcmp(name, "refusing") == 0 ? "255.255.255.255" : "127.0.0.1",
			service, NULL));
	return 0;
}

void __wrap_freeaddrinfo(struct addrinfo *found)
{
	if (!is_replaced) {
		__real_freeaddrinfo(found);
		return;
	}
	while (found) {
		struct addrinfo *next = found->ai_next;

		free(found);
		count_results(-1);
		found = next;
	}
}

/* ---- sockets */

/* The first connection of the next dial waits for ever, the second one fails with this error, and
 * the others succeed. 0: no effect. */
static int second_fails;
static unsigned n_connects;
static int second_fd;
static uint16_t open_port; /* where the others connect to */

int __real_connect(int fd, const struct sockaddr *to, socklen_t length);
int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *length);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t length);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *length);

int __wrap_connect(int fd, const struct sockaddr *to, socklen_t length)
{
	struct sockaddr_in other;

	if (!second_fails || n_connects++ == 0)
		return __real_connect(fd, to, length);
	if (n_connects == 2)
		second_fd = fd;
	memcpy(&other, to, sizeof(other));
	other.sin_port = htons(open_port);
	return __real_connect(fd, (struct sockaddr *)&other, sizeof(other));
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *length)
{
	if (!second_fails || n_connects != 2 || fd != second_fd || name != SO_ERROR)
		return __real_getsockopt(fd, level, name, value, length);
	memcpy(value, &second_fails, sizeof(second_fails));
	return 0;
}

static void set_slow(bool slow)
{
	pthread_mutex_lock(&lock);
	is_slow = slow;
	pthread_cond_broadcast(&change);
	pthread_mutex_unlock(&lock);
}

static unsigned looking(void)
{
	unsigned count;

	pthread_mutex_lock(&lock);
	count = n_looking;
	pthread_mutex_unlock(&lock);
	return count;
}

/* ---- the handler */

static bool allowed(void *ctx, const char **why)
{
	*why = "no TLS";
	return !is_forbidden;
}

static void connected(
	void *ctx, uint64_t id, int fd, const char *host, const struct sockaddr_storage *address)
{
	n_connected++;
	address_text(address, last_address, sizeof(last_address));
	close(fd);
}

static void failed(void *ctx, uint64_t id, enum core_end end, const char *why)
{
	n_failed++;
	last_end = end;
	snprintf(last_why, sizeof(last_why), "%s", why);
}

static void accepted(void *arg, int fd, const struct sockaddr_storage *peer)
{
	n_accepted++;
	close(fd);
}

static void setup(void)
{
	static const struct dial_handler handler = { allowed, connected, failed, NULL };
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	n_accepted = n_connected = n_failed = most_looking = 0;
	is_forbidden = false;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fd, 256), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
	port = ntohs(address.sin_port);
	base = event_base_new();
	dials = dials_create(base, &handler);
	listener = listener_start(base, fd, accepted, NULL);
}

static void teardown(void)
{
	set_slow(false);
	dials_destroy(dials);
	listener_stop(listener);
	event_base_free(base);
	/* Threads whose results nobody waits for any more, and these results. */
	for (uint64_t last_ns = hang_limit_ns(); looking() || results(); usleep(100))
		ck_assert_msg(clock_now_ns() < last_ns, "%d results are not freed", results());
}

static void wait_for_answers(unsigned count)
{
	uint64_t last_ns = hang_limit_ns();

	while (n_connected + n_failed < count) {
		ck_assert_msg(clock_now_ns() < last_ns, "%u of %u were answered",
			n_connected + n_failed, count);
		event_base_loop(base, EVLOOP_NONBLOCK);
		usleep(100);
	}
	event_base_loop(base, EVLOOP_NONBLOCK);
	ck_assert_uint_eq(n_connected + n_failed, count);
}

static void wait_for_threads(unsigned count)
{
	uint64_t last_ns = hang_limit_ns();

	while (looking() < count) {
		ck_assert_uint_lt(clock_now_ns(), last_ns);
		event_base_loop(base, EVLOOP_NONBLOCK);
		usleep(100);
	}
}

/* ---- tests */

START_TEST(address_after_address)
{
	dial_start(dials, 1, "there", NULL, port, 0);
	ck_assert_uint_eq(n_connected + n_failed, 0);
	wait_for_answers(1);
	ck_assert_uint_eq(n_connected, 1);
	ck_assert_str_eq(last_address, "127.0.0.1");
}
END_TEST

/* The first address refuses, the second one cannot be reached: the host is alive. */
START_TEST(refusal_is_reported)
{
	dial_start(dials, 1, "refusing", NULL, port, 0);
	wait_for_answers(1);
	ck_assert_int_eq(last_end, CORE_END_REFUSED);
	ck_assert_ptr_nonnull(strstr(last_why, "127.0.0.2"));
}
END_TEST

/* The address is known: the name is not looked up. */
START_TEST(known_address)
{
	dial_start(dials, 1, "nowhere", "127.0.0.1", port, 0);
	wait_for_answers(1);
	ck_assert_uint_eq(n_connected, 1);
	ck_assert_str_eq(last_address, "127.0.0.1");
}
END_TEST

/* Sockets that wait for the answer to their SYN to this port of 127.0.0.1. */
static unsigned syns_to(uint16_t to)
{
	FILE *table = fopen("/proc/self/net/tcp", "r");
	char line[256], wanted[32];
	unsigned count = 0;

	ck_assert_ptr_nonnull(table);
	snprintf(wanted, sizeof(wanted), "0100007F:%04X 02 ", to);
	while (fgets(line, sizeof(line), table))
		count += strstr(line, wanted) != NULL;
	fclose(table);
	return count;
}

/* A listener at *ret_port whose queue is full: SYNs to it are dropped. */
static void fill_queue(int ret_fds[2], uint16_t *ret_port)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof(address);

	for (int i = 0; i < 2; i++)
		ret_fds[i] = socket(AF_INET, SOCK_STREAM, 0);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(bind(ret_fds[0], (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(ret_fds[0], 0), 0);
	ck_assert_int_eq(getsockname(ret_fds[0], (struct sockaddr *)&address, &length), 0);
	ck_assert_int_eq(connect(ret_fds[1], (struct sockaddr *)&address, sizeof(address)), 0);
	*ret_port = ntohs(address.sin_port);
}

/* The SYN is lost: the next one comes from a new connection, before TCP repeats the first one. */
START_TEST(lost_syns)
{
	uint64_t last_ns = hang_limit_ns();
	uint16_t full_port;
	int full[2], taken;

	fill_queue(full, &full_port);
	dial_start(dials, 1, "127.0.0.1", NULL, full_port, 0);
	while (syns_to(full_port) < 2) {
		ck_assert_msg(clock_now_ns() < last_ns, "no second SYN comes");
		event_base_loop(base, EVLOOP_NONBLOCK);
		usleep(100);
	}
	taken = accept(full[0], NULL, NULL);
	wait_for_answers(1);
	ck_assert_uint_eq(n_connected, 1);
	close(taken);
	for (int i = 0; i < 2; i++)
		close(full[i]);
}
END_TEST

/* An error of a new connection may pass, and the dial continues; a refusal ends it. */
START_LOOP_TEST(a_fresh_connection_fails, 2)
{
	uint16_t full_port;
	int full[2];

	fill_queue(full, &full_port);
	open_port = port;
	n_connects = 0;
	second_fails = _i ? ECONNREFUSED : EHOSTUNREACH;
	dial_start(dials, 1, "127.0.0.1", NULL, full_port, 0);
	wait_for_answers(1);
	ck_assert_uint_eq(n_connects, _i ? 2 : 3);
	ck_assert_uint_eq(n_connected, _i ? 0 : 1);
	ck_assert(!_i || last_end == CORE_END_REFUSED);
	second_fails = 0;
	for (int i = 0; i < 2; i++)
		close(full[i]);
}
END_TEST

START_TEST(nothing_is_dialled_unless_allowed)
{
	is_forbidden = true;
	dial_start(dials, 1, "there", NULL, port, 0);
	wait_for_answers(1);
	ck_assert_int_eq(last_end, CORE_END_TLS);
	ck_assert_str_eq(last_why, "no TLS");
	ck_assert_uint_eq(n_accepted, 0);
}
END_TEST

START_TEST(unknown_name)
{
	dial_start(dials, 1, "nowhere", NULL, port, 0);
	wait_for_answers(1);
	ck_assert_int_eq(last_end, CORE_END_UNREACHABLE);
	ck_assert_ptr_nonnull(strstr(last_why, "cannot look up nowhere: "));
}
END_TEST

/* Looks up MANY names of several users, as many at once as there may be threads. */
static void start_slow_names(void)
{
	set_slow(true);
	for (uint64_t id = 1; id <= MANY; id++)
		dial_start(dials, id, "there", NULL, port, (uid_t)id % USERS);
	wait_for_threads(THREADS_MAX);
}

/* More names than threads: the others wait for their turn, and addresses do not wait for names. */
START_TEST(many_slow_names)
{
	start_slow_names();
	dial_start(dials, MANY + 1, "127.0.0.1", NULL, port, 0);
	wait_for_answers(1);
	ck_assert_uint_eq(n_connected, 1);
	set_slow(false);
	wait_for_answers(MANY + 1);
	ck_assert_uint_eq(n_failed, 0);
	ck_assert_uint_eq(most_looking, THREADS_MAX);
}
END_TEST

/* A user with many names does not block the others' lookups. */
START_TEST(slow_names_of_one_user)
{
	set_slow(true);
	for (uint64_t id = 1; id <= MANY; id++)
		dial_start(dials, id, "there", NULL, port, 1);
	wait_for_threads(THREADS_EACH);
	dial_start(dials, MANY + 1, "there", NULL, port, 2);
	wait_for_threads(THREADS_EACH + 1);
	set_slow(false);
	wait_for_answers(MANY + 1);
	ck_assert_uint_eq(n_failed, 0);
	ck_assert_uint_eq(most_looking, THREADS_EACH + 1);
}
END_TEST

/* Given up while a thread looks for them, and while they wait for one. */
START_TEST(cancelled)
{
	start_slow_names();
	for (uint64_t id = 1; id < MANY; id++)
		ck_assert(dial_cancel(dials, id));
	ck_assert(!dial_cancel(dials, 1));
	set_slow(false);
	wait_for_answers(1);
	ck_assert_uint_eq(n_connected, 1);
	ck_assert_uint_le(most_looking, THREADS_MAX);
}
END_TEST

START_TEST(destroyed_meanwhile)
{
	start_slow_names();
}
END_TEST

/* Each answer is freed, whether it comes just before the end or just after it. */
START_LOOP_TEST(destroyed_as_they_answer, 100)
{
	start_slow_names();
	set_slow(false);
	if (_i % 2)
		sched_yield();
}
END_TEST

TEST_MAIN(dial)
{
	is_replaced = true;
	return run_suite(all_tests(setup, teardown));
}
