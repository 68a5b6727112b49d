/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A table that is refreshed, with counters as rates: in place on a terminal, else one table after
 * the other. It changes no terminal setting, so that ^C may end it at any time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "daemon/ctl/ctl.h"
#include "lib/base/clock.h"

static void sleep_until(uint64_t until_ns)
{
	const struct timespec until = { .tv_sec = (time_t)(until_ns / 1000000000),
		.tv_nsec = (long)(until_ns % 1000000000) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

static void print_head(FILE *out, const struct show *show, const char *host)
{
	time_t now = time(NULL);
	struct tm local;
	char text[32] = "";

	if (localtime_r(&now, &local))
		strftime(text, sizeof(text), "%H:%M:%S", &local);
	fprintf(out, "%s  %s  %s  (^C ends)\n\n", text, host, show_name(show));
}

/* Draws in place: clears the rest of each line, then the lines below. This does not flicker. The
 * text is limited to the screen, which would scroll otherwise. */
static void draw(const char *text, unsigned lines)
{
	const char *line = text, *end;

	fputs("\033[H", stdout);
	for (; lines && (end = strchr(line, '\n')); lines--) {
		printf("%.*s\033[K", (int)(end - line), line);
		line = end + 1;
		if (*line && lines > 1)
			fputc('\n', stdout);
	}
	fputs("\033[J", stdout);
}

static unsigned terminal_lines(void)
{
	struct winsize size;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || size.ws_row < 8)
		return 8;
	return size.ws_row;
}

/* `answer` NULL: there is no daemon at the moment; `error` has the reason. */
static void refresh(const struct ctl_options *options, const struct show *show,
	struct answer *answer, const struct answer *before, double seconds, const char *error)
{
	struct show_options how = { .json = options->json,
		.wide = options->wide,
		.width = terminal_width(),
		.lines = terminal_lines() - 5 };
	char *text = NULL;
	size_t size;
	FILE *out;

	if (options->json) {
		print_json(stdout, show_json(show, answer), true);
	} else if (!isatty(STDOUT_FILENO)) {
		how.lines = 0;
		show_print(stdout, show, &how, answer, before, seconds);
		fputc('\n', stdout);
	} else if ((out = open_memstream(&text, &size))) {
		print_head(out, show, answer ? answer->report.daemon->host : "no daemon");
		if (answer)
			show_print(out, show, &how, answer, before, seconds);
		else
			fprintf(out, "%s\n", error);
		fclose(out);
		if (text)
			draw(text, terminal_lines());
		free(text);
	}
	fflush(stdout);
}

/* Reconnects if the daemon was restarted. */
static int ask(struct link *link, const struct ctl_options *options, const struct show *show,
	struct answer *answer)
{
	int err = -ENOTCONN;

	if (link->socket.fd >= 0)
		err = show_ask(show, link, options->qpn, options->pid, answer);
	if (err != -ENOTCONN)
		return err;
	answer_free(answer);
	link_close(link);
	err = link_open(link, options->socket);
	return err ? err : show_ask(show, link, options->qpn, options->pid, answer);
}

int command_watch(const struct ctl_options *options, const struct show *show)
{
	struct answer answers[2] = { { .parts = NULL }, { .parts = NULL } };
	struct answer *before = NULL;
	uint64_t interval_ns = (uint64_t)(options->interval_s * 1e9), due_ns, then_ns = 0;
	struct link link;
	unsigned round = 0;
	int err = link_open(&link, options->socket);

	due_ns = clock_now_ns();
	while (!err && !ferror(stdout) && (!options->count || round < options->count)) {
		struct answer *now = &answers[round & 1];
		uint64_t now_ns;

		sleep_until(due_ns);
		answer_free(now);
		err = ask(&link, options, show, now);
		now_ns = clock_now_ns();
		due_ns = now_ns > due_ns + interval_ns ? now_ns : due_ns + interval_ns;
		if (!err) {
			refresh(options, show, now, before, (double)(now_ns - then_ns) / 1e9, NULL);
			before = now;
			then_ns = now_ns;
			round++;
		} else if (err == -ENOTCONN && round && isatty(STDOUT_FILENO)) {
			/* The daemon may be restarting. */
			refresh(options, show, NULL, NULL, 0, link.error);
			before = NULL;
			due_ns = now_ns + interval_ns;
			err = 0;
		}
	}
	answer_free(&answers[0]);
	answer_free(&answers[1]);
	link_close(&link);
	return err ? report_error(options, err, link.error) : EXIT_OK;
}
