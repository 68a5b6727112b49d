/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/server/http.c over real sockets: answers, refusals, and that no client blocks others for
 * long.
 */
#include "daemon/server/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <check.h>
#include <event2/event.h>

#include "tests/fixtures/program.h"

enum { SHORT_MS = 100 };

static struct event_base *base;
static struct http *http;
static char host[INET_ADDRSTRLEN];
static uint16_t port;
static unsigned writes, asks;
static char answer[65536];

static void write_text(void *arg, FILE *out)
{
	ck_assert_ptr_eq(arg, &writes);
	writes++;
	fprintf(out, "metric %u\n", asks);
}

static void ask(void *arg)
{
	ck_assert_ptr_eq(arg, &writes);
	asks++;
}

/* A loopback address of this process's own: nobody takes its ports. */
static struct in_addr own_address(void)
{
	return (struct in_addr){ .s_addr = htonl(127u << 24 | ((uint32_t)getpid() & 0xffffff)) };
}

static uint16_t free_port(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = own_address() };
	socklen_t length = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
	close(fd);
	return ntohs(address.sin_port);
}

static void setup(void)
{
	char error[200];

	signal(SIGPIPE, SIG_IGN);
	writes = 0;
	asks = 0;
	base = event_base_new();
	port = free_port();
	inet_ntop(AF_INET, &(struct in_addr){ own_address().s_addr }, host, sizeof(host));
	http = http_start(base, host, port, write_text, &writes, error, sizeof(error));
	ck_assert_msg(http, "%s", error);
	http_limit(http, HANG_MS, HANG_MS);
}

static void teardown(void)
{
	http_stop(http);
	event_base_free(base);
}

static int dial(void)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = own_address()
	};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static void turn(void)
{
	static const struct timeval tick = { .tv_usec = 2000 };

	event_base_loopexit(base, &tick);
	event_base_dispatch(base);
}

static void put(int fd, const char *text)
{
	ck_assert_int_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (int)strlen(text));
}

/* Reads everything until the end into `answer`; returns false: no end within `turns` of 2 ms and
 * more. */
static bool get(int fd, int turns)
{
	size_t length = 0;

	while (turns--) {
		ssize_t count;

		turn();
		count = recv(fd, answer + length, sizeof(answer) - 1 - length, MSG_DONTWAIT);
		if (count > 0)
			length += (size_t)count;
		answer[length] = '\0';
		if (count == 0 || (count < 0 && errno != EAGAIN))
			return true;
	}
	return false;
}

static void request(const char *text)
{
	int fd = dial();

	put(fd, text);
	ck_assert_msg(get(fd, HANG_MS / 2), "no end of the answer to %s", text);
	close(fd);
}

static bool has(const char *text)
{
	return strstr(answer, text);
}

static const struct {
	const char *request;
	const char *status;
	const char *part;
	const char *no_part;
} rows[] = {
	{ "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 ", "\r\n\r\nmetric 0\n", NULL },
	{ "GET /metrics HTTP/1.0\r\n\r\n", "HTTP/1.0 200 ", "text/plain; version=0.0.4", NULL },
	{ "GET /metrics?a=b HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 ", "metric 0\n", NULL },
	{ "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 ", "Connection: close", NULL },
	{ "HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 ", "Content-Length: 9",
		"metric" },
	{ "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 ", "/metrics\n", "metric 0" },
	{ "GET /metricsx HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 404 ", NULL, "metric 0" },
	{ "GET /../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 404 ", NULL, "root:" },
	{ "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 405 ",
		"Allow: GET, HEAD", "metric 0" },
	{ "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 405 ", NULL, NULL },
	{ "DELETE /x HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 405 ", NULL, NULL },
	{ "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 413 ",
		NULL, "metric 0" },
	{ "BREW /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 501 ", NULL, "metric 0" },
	{ "rubbish\r\n\r\n", "HTTP/1.1 400 ", NULL, "metric 0" },
};

START_LOOP_TEST(answers, ROWS(rows))
{
	request(rows[_i].request);
	ck_assert_msg(strncmp(answer, rows[_i].status, strlen(rows[_i].status)) == 0,
		"%s: answered by %s", rows[_i].request, answer);
	if (rows[_i].part)
		ck_assert_msg(has(rows[_i].part), "%s lacks %s", answer, rows[_i].part);
	if (rows[_i].no_part)
		ck_assert_msg(!has(rows[_i].no_part), "%s has %s", answer, rows[_i].no_part);
}
END_TEST

START_TEST(long_headers_are_refused)
{
	static char text[20000];
	int fd = dial();

	snprintf(text, sizeof(text), "GET /metrics HTTP/1.1\r\nHost: a\r\nX: %015000d\r\n\r\n", 0);
	put(fd, text);
	ck_assert(get(fd, HANG_MS / 2));
	ck_assert(!has("metric"));
	ck_assert_uint_eq(writes, 0);
	close(fd);
}
END_TEST

/* The request comes before the answer. */
START_TEST(asks_first)
{
	http_prepare(http, ask);
	request("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
	ck_assert_uint_eq(asks, 1);
	ck_assert_uint_eq(writes, 1);
	ck_assert(has("\r\n\r\nmetric 1\n"));
}
END_TEST

START_TEST(one_text_for_all)
{
	int fds[8];

	http_prepare(http, ask);
	for (int i = 0; i < 8; i++) {
		fds[i] = dial();
		put(fds[i], "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
	}
	for (int i = 0; i < 8; i++) {
		ck_assert(get(fds[i], HANG_MS / 2));
		ck_assert(has("\r\n\r\nmetric "));
		close(fds[i]);
	}
	/* As many as come before the first are due. */
	ck_assert_uint_eq(asks, writes);
	ck_assert_uint_lt(writes, 8);
}
END_TEST

START_TEST(gone_before_the_answer)
{
	int fd = dial();

	http_prepare(http, ask);
	put(fd, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
	while (!asks)
		turn();
	close(fd);
	request("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
	ck_assert(has("\r\n\r\nmetric "));
}
END_TEST

START_TEST(stopped_before_the_answer)
{
	int fd = dial();

	http_prepare(http, ask);
	put(fd, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
	while (!asks)
		turn();
	http_stop(http);
	http = NULL;
	ck_assert(get(fd, HANG_MS / 2));
	ck_assert_uint_eq(writes, 0);
	close(fd);
}
END_TEST

/* Silent connections fill the places. */
START_TEST(silent_ones_are_few)
{
	enum { SILENT = 40 };
	int fds[SILENT];
	int i, fd;

	for (i = 0; i < SILENT; i++)
		fds[i] = dial();
	turn();
	fd = dial();
	put(fd, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
	ck_assert_msg(!get(fd, 20), "it was served although all places are taken");
	for (i = 0; i < SILENT; i++) {
		close(fds[i]);
		turn();
	}
	ck_assert(get(fd, HANG_MS / 2));
	ck_assert(has("metric 0"));
	close(fd);
}
END_TEST

/* If places are few, no connection keeps one for its full time. */
START_TEST(crowd_is_cut_short)
{
	enum { SILENT = 40 };
	int fds[SILENT], fd;

	http_limit(http, 4 * HANG_MS, SHORT_MS);
	for (int i = 0; i < SILENT; i++)
		fds[i] = dial();
	turn();
	fd = dial();
	put(fd, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
	ck_assert(get(fd, HANG_MS / 2));
	ck_assert(has("metric 0"));
	for (int i = 0; i < SILENT; i++)
		close(fds[i]);
	close(fd);
}
END_TEST

/* A byte now and then does not keep a place. */
START_TEST(slow_ones_are_cut)
{
	bool cut = false;
	int patient, fd;

	patient = dial();
	turn();
	http_limit(http, SHORT_MS, HANG_MS);
	fd = dial();
	for (uint64_t limit_ns = hang_limit_ns(); !cut && may_wait(limit_ns);) {
		ck_assert_int_eq(send(patient, "G", 1, MSG_NOSIGNAL), 1);
		cut = send(fd, "G", 1, MSG_NOSIGNAL) < 0 || get(fd, 10);
	}
	ck_assert(cut);
	ck_assert(!get(patient, 1));
	close(patient);
	close(fd);
}
END_TEST

START_TEST(address_in_use)
{
	char error[200] = "";

	ck_assert_ptr_null(http_start(base, host, port, write_text, NULL, error, sizeof(error)));
	ck_assert_ptr_nonnull(strstr(error, "in use"));
	ck_assert_ptr_nonnull(strstr(error, host));
}
END_TEST

/* At boot an address may come later than the daemon. No interface has this one (RFC 5737). */
START_TEST(address_comes_later)
{
	char error[200] = "";
	struct http *other;

	other = http_start(base, "192.0.2.1", port, write_text, NULL, error, sizeof(error));
	ck_assert_msg(other != NULL, "%s", error);
	http_stop(other);
	other = http_start(base, "2001:db8::1", port, write_text, NULL, error, sizeof(error));
	ck_assert_msg(other != NULL, "%s", error);
	http_stop(other);
}
END_TEST

TEST_MAIN(http)
{
	return run_suite(all_tests(setup, teardown));
}
