/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cm-peer: a process that connects and is connected to, as it is told line by line on standard
 * input. It answers each command with one line. Connections have numbers, from 0.
 *
 *	listen SERVICE           listening SERVICE
 *	request MS               request N PROGRAM PID PRIVATE
 *	connect HOST SERVICE MS [PRIVATE]   connecting N ("-" is this host)
 *	accept N [PRIVATE]       accepted N
 *	reject N REASON          rejected N
 *	wait N MS                established N HOST PROGRAM PRIVATE
 *	end N MS                 ended N ERRNO REASON; QP STATE ERROR
 *	send N TEXT              sent N
 *	post N                   posted N
 *	receive N                received N TEXT
 *	close N                  closed N
 *	unlisten                 unlistened
 *	quit
 *
 * A command that fails answers "error ERRNO TEXT". Empty private data is shown as "-". Options:
 * --port, --ip, --fabric as in struct frl_device_config.
 */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferrule/ferrule.h>

enum {
	MAX_CONNS = 8192,
	MAX_WORDS = 5,
	DEPTH = 4,
	CQ_DEPTH = 8192,
	MESSAGE = 64,
	WAIT_MS = 120000,
};

struct end {
	struct frl_conn *conn;
	struct frl_qp *qp;
	struct frl_cq *cq;
};

static struct frl_device *device;
static struct frl_pd *pd;
static struct frl_mr *mr;
static struct frl_listener *listener;
static char memory[2 * MESSAGE]; /* to send from, to receive into */
static struct end ends[MAX_CONNS];
static int n_ends;

static void answer(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void answer(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

static void answer_error(int rc)
{
	const char *name = strerrorname_np(-rc);

	answer("error %s %s", name ? name : "?", frl_last_error());
}

static void must(int rc, const char *what)
{
	if (!rc)
		return;
	fprintf(stderr, "cm-peer: %s: %s\n", what, frl_last_error());
	exit(EXIT_FAILURE);
}

/* Returns the connection number's text, or NULL after sending an error. */
static struct end *find(const char *word)
{
	char *rest;
	long n = word ? strtol(word, &rest, 10) : -1;

	if (n >= 0 && n < n_ends && ends[n].conn)
		return &ends[n];
	answer("error EINVAL there is no connection %s", word ? word : "");
	return NULL;
}

static struct end *new_end(void)
{
	if (n_ends < MAX_CONNS)
		return &ends[n_ends];
	fprintf(stderr, "cm-peer: too many connections\n");
	exit(EXIT_FAILURE);
}

static void make_qp(struct end *end)
{
	struct frl_qp_config config = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH };

	must(frl_cq_create(device, 2 * DEPTH, &end->cq), "a completion queue");
	config.send_cq = end->cq;
	config.recv_cq = end->cq;
	must(frl_qp_create(pd, &config, &end->qp), "a queue pair");
}

static void free_qp(struct end *end)
{
	frl_qp_destroy(end->qp);
	frl_cq_destroy(end->cq);
	end->qp = NULL;
	end->cq = NULL;
}

static size_t size_of(const char *text)
{
	return text ? strlen(text) : 0;
}

static int ms_of(const char *word)
{
	return word ? atoi(word) : WAIT_MS;
}

static const char *private_of(struct frl_conn *conn, char text[FRL_PRIVATE_DATA_MAX + 1])
{
	size_t size = frl_conn_private_data(conn, text, FRL_PRIVATE_DATA_MAX);

	text[size] = '\0';
	return size ? text : "-";
}

static void do_listen(char *words[])
{
	int rc = frl_listen(device, words[1], NULL, &listener);

	if (rc)
		answer_error(rc);
	else
		answer("listening %s", frl_listener_service(listener));
}

static void do_unlisten(char *words[])
{
	frl_listener_close(listener);
	listener = NULL;
	answer("unlistened");
}

static void do_request(char *words[])
{
	char text[FRL_PRIVATE_DATA_MAX + 1];
	struct end *end = new_end();
	struct frl_conn_peer peer;
	int rc = frl_wait_request(listener, ms_of(words[1]), &end->conn);

	if (rc) {
		answer_error(rc);
		return;
	}
	frl_conn_peer(end->conn, &peer);
	answer("request %d %s %u %s", n_ends++, peer.program, peer.pid,
		private_of(end->conn, text));
}

static void do_connect(char *words[])
{
	struct end *end = new_end();
	struct frl_connect_config config;
	const char *host = words[1];
	int rc;

	if (!words[3]) {
		answer("error EINVAL connect HOST SERVICE MS [PRIVATE]");
		return;
	}
	frl_connect_config_init(device, &config);
	config.timeout_ms = ms_of(words[3]);
	make_qp(end);
	rc = frl_connect(end->qp, strcmp(host, "-") == 0 ? NULL : host, words[2], words[4],
		size_of(words[4]), &config, &end->conn);
	if (rc) {
		answer_error(rc);
		free_qp(end);
		return;
	}
	answer("connecting %d", n_ends++);
}

static void do_accept(char *words[])
{
	struct end *end = find(words[1]);
	int rc;

	if (!end)
		return;
	make_qp(end);
	rc = frl_accept(end->conn, end->qp, words[2], size_of(words[2]), NULL);
	if (rc)
		answer_error(rc);
	else
		answer("accepted %s", words[1]);
}

static void do_reject(char *words[])
{
	struct end *end = find(words[1]);
	int rc = end ? frl_reject(end->conn, words[2], words[3], size_of(words[3])) : 0;

	if (rc)
		answer_error(rc);
	else if (end)
		answer("rejected %s", words[1]);
}

static void do_wait(char *words[])
{
	char text[FRL_PRIVATE_DATA_MAX + 1];
	struct end *end = find(words[1]);
	struct frl_conn_peer peer;
	int rc = end ? frl_conn_wait(end->conn, ms_of(words[2])) : 0;

	if (!end)
		return;
	if (rc) {
		answer_error(rc);
		return;
	}
	frl_conn_peer(end->conn, &peer);
	answer("established %s %s %s %s", words[1], peer.host, peer.program,
		private_of(end->conn, text));
}

static void do_end(char *words[])
{
	struct end *end = find(words[1]);
	struct frl_qp_attr attr = { 0 };
	char reason[256], text[256] = "";
	int rc;

	if (!end)
		return;
	rc = frl_conn_wait_end(end->conn, ms_of(words[2]));
	snprintf(reason, sizeof(reason), "%s", frl_last_error());
	/* The connection may have ended for the same reason. */
	if (rc == -ETIMEDOUT && frl_conn_test(end->conn) != rc) {
		answer("error ETIMEDOUT %s", reason);
		return;
	}
	if (end->qp) {
		frl_qp_query(end->qp, &attr);
		frl_qp_error(end->qp, text, sizeof(text));
	}
	answer("ended %s %s %s; %s %s", words[1], strerrorname_np(-rc), reason,
		frl_qp_state_str(attr.state), text);
}

/* Waits for a completion of the connection's queue. */
static bool complete(struct end *end, struct frl_wc *wc)
{
	int n = frl_cq_wait(end->cq, 1, wc, WAIT_MS);

	if (n == 1 && wc->status == FRL_WC_SUCCESS)
		return true;
	answer("error EIO %s", n == 1 ? frl_wc_status_str(wc->status) : "no completion");
	return false;
}

static void do_send(char *words[])
{
	struct end *end = find(words[1]);
	struct frl_sge sge = { memory, (uint32_t)size_of(words[2]), frl_mr_lkey(mr) };
	struct frl_send_wr wr = {
		.opcode = FRL_WR_SEND, .flags = FRL_SEND_SIGNALED, .sge = &sge, .n_sge = 1
	};
	struct frl_wc wc;
	int rc;

	if (!end || !words[2] || sge.length > MESSAGE)
		return;
	memcpy(memory, words[2], sge.length);
	rc = frl_post_send(end->qp, &wr, 1, NULL);
	if (rc < 0)
		answer_error(rc);
	else if (complete(end, &wc))
		answer("sent %s", words[1]);
}

static void do_post(char *words[])
{
	struct end *end = find(words[1]);
	struct frl_sge sge = { memory + MESSAGE, MESSAGE, frl_mr_lkey(mr) };
	struct frl_recv_wr wr = { .sge = &sge, .n_sge = 1 };
	int rc = end ? frl_post_recv(end->qp, &wr, 1, NULL) : 0;

	if (rc < 0)
		answer_error(rc);
	else if (end)
		answer("posted %s", words[1]);
}

static void do_receive(char *words[])
{
	struct end *end = find(words[1]);
	struct frl_wc wc;

	if (end && complete(end, &wc))
		answer("received %s %.*s", words[1], (int)wc.byte_len, memory + MESSAGE);
}

static void do_close(char *words[])
{
	struct end *end = find(words[1]);

	if (!end)
		return;
	frl_conn_close(end->conn);
	end->conn = NULL;
	free_qp(end);
	answer("closed %s", words[1]);
}

static const struct {
	const char *name;
	void (*run)(char *words[]);
} commands[] = {
	{ "listen", do_listen },
	{ "unlisten", do_unlisten },
	{ "request", do_request },
	{ "connect", do_connect },
	{ "accept", do_accept },
	{ "reject", do_reject },
	{ "wait", do_wait },
	{ "end", do_end },
	{ "send", do_send },
	{ "post", do_post },
	{ "receive", do_receive },
	{ "close", do_close },
};

static void run(char *line)
{
	char *words[MAX_WORDS + 1] = { NULL };
	int n = 0;

	for (char *at = strtok(line, " \n"); at && n < MAX_WORDS; at = strtok(NULL, " \n"))
		words[n++] = at;
	for (size_t i = 0; n && i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(words[0], commands[i].name) == 0) {
			commands[i].run(words);
			return;
		}
	answer("error EINVAL there is no command '%s'", n ? words[0] : "");
}

static void open_device(int argc, char *argv[])
{
	static const struct option options[] = {
		{ "port", required_argument, NULL, 'p' },
		{ "ip", required_argument, NULL, 'i' },
		{ "fabric", required_argument, NULL, 'f' },
		{ NULL, 0, NULL, 0 },
	};
	struct frl_device_config config;
	int code;

	frl_device_config_init(&config);
	config.progress = FRL_PROGRESS_THREAD;
	while ((code = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (code) {
		case 'p': config.port = optarg; break;
		case 'i': config.ip = optarg; break;
		case 'f': config.fabric = optarg; break;
		default: exit(2);
		}
	}
	must(frl_device_open(&config, &device), "the device");
	must(frl_pd_create(device, &pd), "a protection domain");
	must(frl_reg_mr(pd, memory, sizeof(memory), FRL_ACCESS_LOCAL_WRITE, &mr), "a region");
}

static void close_device(void)
{
	frl_listener_close(listener);
	for (int i = 0; i < n_ends; i++) {
		frl_conn_close(ends[i].conn);
		free_qp(&ends[i]);
	}
	must(frl_dereg_mr(mr), "the region");
	must(frl_pd_destroy(pd), "the protection domain");
	must(frl_device_close(device), "the device");
}

int main(int argc, char *argv[])
{
	char line[512];

	open_device(argc, argv);
	answer("ready");
	while (fgets(line, sizeof(line), stdin) && strncmp(line, "quit", 4) != 0)
		run(line);
	close_device();
	return EXIT_SUCCESS;
}
