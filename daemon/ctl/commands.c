/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands with a single request: tables, kill-qp, drain, why. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/json.h"
#include "daemon/ctl/why.h"

unsigned terminal_width(void)
{
	const char *columns = getenv("COLUMNS");
	struct winsize size;

	if (columns && atoi(columns) > 0)
		return (unsigned)atoi(columns);
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
		return size.ws_col;
	return 0;
}

static int exit_of(int error)
{
	switch (-error) {
	case ENOTCONN: return EXIT_NO_DAEMON;
	case ENOENT:
	case EINVAL: return EXIT_NOT_FOUND;
	case EPERM:
	case EACCES: return EXIT_DENIED;
	default: return EXIT_FAILED;
	}
}

int report_error(const struct ctl_options *options, int error, const char *text)
{
	if (options->json) {
		const char *name = strerrorname_np(-error);

		print_json(stdout,
			json_pack("{s:{s:i,s:s,s:s}}", "error", "errno", -error, "name",
				name ? name : "?", "text", text),
			false);
	} else {
		fprintf(stderr, "ferrulectl: %s\n", text);
	}
	return exit_of(error);
}

/* Connects to the daemon and sends one request. On success the caller owns the answer. */
static int ask(const struct ctl_options *options, Ctl__Envelope *envelope, struct answer *answer,
	int *ret_exit)
{
	struct link link;
	int err = link_open(&link, options->socket);

	*answer = (struct answer){ .parts = NULL };
	if (!err)
		err = link_ask(&link, envelope, answer);
	if (err)
		*ret_exit = report_error(options, err, link.error);
	link_close(&link);
	return err;
}

int command_show(const struct ctl_options *options, const struct show *show)
{
	struct show_options how = {
		.json = options->json, .wide = options->wide, .width = terminal_width()
	};
	struct answer answer = { .parts = NULL };
	int status = EXIT_OK, err;
	struct link link;

	err = link_open(&link, options->socket);
	if (!err)
		err = show_ask(show, &link, options->qpn, options->pid, &answer);
	if (err)
		status = report_error(options, err, link.error);
	else if (how.json)
		print_json(stdout, show_json(show, &answer), false);
	else
		show_print(stdout, show, &how, &answer, NULL, 0);
	answer_free(&answer);
	link_close(&link);
	return status;
}

int command_kill(const struct ctl_options *options)
{
	Ctl__KillQp kill = CTL__KILL_QP__INIT;
	struct answer answer;
	int status = EXIT_OK;

	kill.qpn = options->qpn;
	kill.pid = options->pid;
	kill.port = options->port;
	if (options->reason)
		kill.reason = (char *)options->reason;
	if (ask(options, &ENVELOPE(0, KILL_QP, kill_qp, &kill), &answer, &status) == 0) {
		if (options->json)
			print_json(stdout, json_pack("{s:{s:i}}", "killed", "qpn", (int)kill.qpn),
				false);
		else
			printf("Queue pair %u will fail.\n", kill.qpn);
	}
	answer_free(&answer);
	return status;
}

/* ---- drain */

static void say_drained(const struct ctl_options *options, const Ctl__DaemonInfo *daemon)
{
	if (options->json)
		print_json(stdout, json_pack("{s:o}", "daemon", json_of_message(&daemon->base)),
			false);
	else if (options->undo)
		printf("%s accepts new work again.\n", daemon->host);
	else
		printf("%s accepts no new work: %s. %u connections, %u ports and %u processes are "
		       "left.\n",
			daemon->host, daemon->draining, daemon->connections, daemon->ports,
			daemon->processes);
}

/* Polls twice a second until no connection and no port is left. */
static int wait_until_empty(const struct ctl_options *options)
{
	const struct show *stats = show_find("stats");
	const struct timespec pause = { .tv_nsec = 500000000 };
	uint32_t printed = UINT32_MAX;
	struct link link;
	int err = link_open(&link, options->socket);

	while (!err) {
		const Ctl__DaemonInfo *daemon;
		struct answer answer;
		uint32_t left = 0;

		err = show_ask(stats, &link, 0, 0, &answer);
		daemon = answer.report.daemon;
		if (!err && daemon) {
			left = daemon->connections + daemon->ports;
			if (!left || !daemon->draining[0])
				say_drained(options, daemon);
			else if (left != printed && !options->json)
				printf("%u connections and %u ports are left.\n",
					daemon->connections, daemon->ports);
			fflush(stdout);
			printed = left;
			if (left && !daemon->draining[0])
				left = 0; /* another operator has ended the drain */
		}
		answer_free(&answer);
		if (!err && (!left || ferror(stdout)))
			break;
		nanosleep(&pause, NULL);
	}
	link_close(&link);
	return err ? report_error(options, err, link.error) : EXIT_OK;
}

int command_drain(const struct ctl_options *options)
{
	Ctl__Drain drain = CTL__DRAIN__INIT;
	struct answer answer;
	int status = EXIT_OK, err;

	drain.undo = options->undo;
	if (options->reason)
		drain.reason = (char *)options->reason;
	err = ask(options, &ENVELOPE(0, DRAIN, drain, &drain), &answer, &status);
	if (!err && answer.report.daemon && (!options->wait || options->undo))
		say_drained(options, answer.report.daemon);
	answer_free(&answer);
	if (!err && options->wait && !options->undo)
		return wait_until_empty(options);
	return status;
}

/* ---- why */

static void print_why(const struct ctl_options *options, const Ctl__Report *report)
{
	const Ctl__QpInfo *qp = report->qps[0];
	const Ctl__ConnInfo *conn = report->n_connections ? report->connections[0] : NULL;
	json_t *object, *lines;
	struct why why;
	unsigned i;

	why_explain(&why, qp, conn, report->peer_view, report->peer_error);
	if (!options->json) {
		for (i = 0; i < why.n_lines; i++)
			printf("%s\n", why.lines[i]);
		printf("\nDiagnosis: %s\n", why.diagnosis);
		return;
	}
	object = json_object();
	lines = json_array();
	for (i = 0; i < why.n_lines; i++)
		json_array_append_new(lines, json_string(why.lines[i]));
	json_object_set_new(object, "qp", json_of_message(&qp->base));
	json_object_set_new(
		object, "connection", conn ? json_of_message(&conn->base) : json_null());
	json_object_set_new(object, "peer_view",
		report->peer_view ? json_of_message(&report->peer_view->base) : json_null());
	json_object_set_new(
		object, "peer_error", json_string(report->peer_error ? report->peer_error : ""));
	json_object_set_new(object, "sentences", lines);
	json_object_set_new(object, "diagnosis", json_string(why.diagnosis));
	print_json(stdout, object, false);
}

int command_why(const struct ctl_options *options)
{
	Ctl__Query query = CTL__QUERY__INIT;
	struct answer answer;
	int status = EXIT_OK;

	query.kind = CTL__QUERY_KIND__QUERY_WHY;
	query.qpn = options->qpn;
	query.pid = options->pid;
	query.port = options->port;
	if (ask(options, &ENVELOPE(0, QUERY, query, &query), &answer, &status) == 0) {
		if (answer.report.n_qps)
			print_why(options, &answer.report);
		else
			status = report_error(options, -EPROTO, "the daemon's answer is empty");
	}
	answer_free(&answer);
	return status;
}
