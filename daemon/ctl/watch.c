/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A table that is refreshed in place, with counters as rates. On something else than a terminal:
 * one table after the other. Whatever ends it, the terminal is as it was.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "daemon/ctl/ctl.h"
#include "lib/base/clock.h"

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
	ended = number;
}

struct screen {
	bool is_terminal; /* of the output */
	bool has_keys;
	struct termios before;
	struct sigaction old_int, old_term, old_hup, old_winch;
	sigset_t unblocked; /* while it waits: signals come only there */
};

/* Signals end the waiting and nothing else. */
static void catch_signals(struct screen *screen)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct sigaction redraw = { .sa_handler = SIG_IGN };
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGHUP);
	sigprocmask(SIG_BLOCK, &mask, &screen->unblocked);
	sigdelset(&screen->unblocked, SIGINT);
	sigdelset(&screen->unblocked, SIGTERM);
	sigdelset(&screen->unblocked, SIGHUP);
	sigaction(SIGINT, &action, &screen->old_int);
	sigaction(SIGTERM, &action, &screen->old_term);
	sigaction(SIGHUP, &action, &screen->old_hup);
	sigaction(SIGWINCH, &redraw, &screen->old_winch);
}

static void screen_open(struct screen *screen)
{
	struct termios raw;

	*screen = (struct screen){ .is_terminal = isatty(STDOUT_FILENO) };
	catch_signals(screen);
	if (!screen->is_terminal)
		return;
	/* Another screen, no cursor, no line goes on in the next; keys come one by one and are not
	 * shown. */
	fputs("\033[?1049h\033[?25l\033[?7l", stdout);
	if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &screen->before))
		return;
	raw = screen->before;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	raw.c_cc[VMIN] = 0;
	raw.c_cc[VTIME] = 0;
	screen->has_keys = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

static void screen_close(struct screen *screen)
{
	if (screen->has_keys)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &screen->before);
	if (screen->is_terminal)
		fputs("\033[?7h\033[?25h\033[?1049l", stdout);
	fflush(stdout);
	sigaction(SIGINT, &screen->old_int, NULL);
	sigaction(SIGTERM, &screen->old_term, NULL);
	sigaction(SIGHUP, &screen->old_hup, NULL);
	sigaction(SIGWINCH, &screen->old_winch, NULL);
}

/* Waits for the time, a signal or a key. True: go on. */
static bool screen_wait(struct screen *screen, uint64_t until_ns)
{
	struct pollfd keys = { .fd = STDIN_FILENO, .events = POLLIN };
	uint64_t now_ns;
	char key;

	while (!ended && (now_ns = clock_now_ns()) < until_ns) {
		struct timespec left = { .tv_sec = (time_t)((until_ns - now_ns) / 1000000000),
			.tv_nsec = (long)((until_ns - now_ns) % 1000000000) };
		int ready = ppoll(&keys, screen->has_keys ? 1 : 0, &left, &screen->unblocked);

		if (ready <= 0)
			continue;
		if (read(STDIN_FILENO, &key, 1) != 1) {
			screen->has_keys = false; /* the terminal has hung up */
			continue;
		}
		if (key == 'q' || key == 'Q' || key == 3)
			return false;
		if (key == ' ' || key == '\n')
			return true; /* at once */
	}
	return !ended;
}

static void print_head(FILE *out, const struct show *show, const char *host)
{
	time_t now = time(NULL);
	struct tm local;
	char text[32] = "";

	if (localtime_r(&now, &local))
		strftime(text, sizeof(text), "%H:%M:%S", &local);
	fprintf(out, "%s  %s  %s  (q ends)\n\n", text, host, show_name(show));
}

/* In place: each line's rest is cleared, then what is below; nothing flickers. */
static void draw(const char *text)
{
	const char *line = text, *end;

	fputs("\033[H", stdout);
	while ((end = strchr(line, '\n'))) {
		printf("%.*s\033[K", (int)(end - line), line);
		line = end + 1;
		if (*line)
			fputc('\n', stdout);
	}
	fputs("\033[J", stdout);
	fflush(stdout);
}

static unsigned terminal_lines(void)
{
	struct winsize size;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || size.ws_row < 8)
		return 8;
	return size.ws_row;
}

static unsigned lines_of(const char *text)
{
	unsigned count = 0;

	for (; (text = strchr(text, '\n')); text++)
		count++;
	return count;
}

static void refresh(const struct ctl_options *options, const struct show *show,
	const struct screen *screen, struct answer *answer, const struct answer *before,
	double seconds)
{
	struct show_options how = {
		.json = options->json, .wide = options->wide, .width = terminal_width()
	};
	char *text = NULL;
	size_t size;
	FILE *out;

	if (options->json) {
		print_json(stdout, show_json(show, answer), true);
		fflush(stdout);
		return;
	}
	if (!screen->is_terminal) {
		show_print(stdout, show, &how, answer, before, seconds);
		fputc('\n', stdout);
		fflush(stdout);
		return;
	}
	/* Some tables have lines of their own above: what is too much is left out then. */
	how.lines = terminal_lines() - 5;
	do {
		free(text);
		text = NULL;
		out = open_memstream(&text, &size);
		if (!out)
			return;
		print_head(out, show, answer->report.daemon->host);
		show_print(out, show, &how, answer, before, seconds);
		fclose(out);
	} while (text && lines_of(text) > terminal_lines() && --how.lines);
	if (text)
		draw(text);
	free(text);
}

/* The daemon may be on its way back. */
static void tell_trouble(const struct show *show, const char *error)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return;
	print_head(out, show, "no daemon");
	fprintf(out, "%s\n", error);
	fclose(out);
	if (text)
		draw(text);
	free(text);
}

/* Connects again when the daemon was started anew. */
static int ask(struct link *link, const struct ctl_options *options, const struct show *show,
	struct answer *answer)
{
	int err = -ENOTCONN;

	if (link->fd >= 0)
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
	struct screen screen;
	struct link link;
	unsigned round = 0;
	int err = link_open(&link, options->socket);

	if (err) {
		link_close(&link);
		return report_error(options, err, link.error);
	}
	screen_open(&screen);
	due_ns = clock_now_ns();
	do {
		struct answer *now = &answers[round & 1];
		uint64_t now_ns;

		answer_free(now);
		err = ask(&link, options, show, now);
		now_ns = clock_now_ns();
		if (err == -ENOTCONN && screen.is_terminal) {
			tell_trouble(show, link.error);
			before = NULL;
			due_ns = now_ns + interval_ns;
			continue;
		}
		if (err)
			break;
		refresh(options, show, &screen, now, before, (double)(now_ns - then_ns) / 1e9);
		before = now;
		then_ns = now_ns;
		round++;
		due_ns = now_ns > due_ns + interval_ns ? now_ns : due_ns + interval_ns;
	} while ((!options->count || round < options->count) && screen_wait(&screen, due_ns));
	screen_close(&screen);
	answer_free(&answers[0]);
	answer_free(&answers[1]);
	link_close(&link);
	return err ? report_error(options, err, link.error) : EXIT_OK;
}
