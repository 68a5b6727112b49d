/* SPDX-License-Identifier: BSD-3-Clause */
/* ferrulectl: displays and controls the state of ferruled. man ferrulectl. */
#include <errno.h>
#include <getopt.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/ctl.h"
#include "lib/control/install.h"

enum { OPTION_ROOT = 256, OPTION_REASON, OPTION_UNDO, OPTION_WAIT, OPTION_PORT, OPTION_VERSION };

static const struct option long_options[] = {
	{ "socket", required_argument, NULL, 's' },
	{ "json", no_argument, NULL, 'j' },
	{ "wide", no_argument, NULL, 'w' },
	{ "pid", required_argument, NULL, 'p' },
	{ "port", required_argument, NULL, OPTION_PORT },
	{ "reason", required_argument, NULL, OPTION_REASON },
	{ "undo", no_argument, NULL, OPTION_UNDO },
	{ "wait", no_argument, NULL, OPTION_WAIT },
	{ "interval", required_argument, NULL, 'i' },
	{ "count", required_argument, NULL, 'n' },
	{ "config", required_argument, NULL, 'c' },
	{ "root", required_argument, NULL, OPTION_ROOT },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, OPTION_VERSION },
	{ NULL, 0, NULL, 0 },
};

static const char usage[] =
	"Usage: ferrulectl [--socket PATH] [--json] COMMAND\n"
	"\n"
	"Commands:\n"
	"  ports              ports of processes, and addresses that are reserved after use\n"
	"  qps                queue pairs: state, peer, traffic, what they wait for\n"
	"  connections        connections that were made by service names\n"
	"  peers              other hosts' daemons\n"
	"  stats              the daemon, and all counters\n"
	"  watch [COMMAND]    one of these (qps), refreshed; counters as rates; ^C ends\n"
	"      --interval SECONDS  default: 1; --count N: ends after N refreshes\n"
	"  why QPN            what a queue pair waits for, since when, and what to do\n"
	"  kill-qp QPN        makes a queue pair and its peer fail\n"
	"      --reason TEXT       both programs get this text\n"
	"  drain              accepts no new work on this host; existing work continues\n"
	"      --reason TEXT, --wait (until nothing is left), --undo\n"
	"  doctor             checks whether this host is set up correctly\n"
	"      --config FILE       the daemon's configuration\n"
	"      --root DIR          directory of proc, sys and dev\n"
	"  help               this text\n"
	"\n"
	"Options:\n"
	"  -s, --socket PATH  the daemon's socket; else FRL_CONTROL, the system's, the user's own\n"
	"  -j, --json         output for programs\n"
	"  -w, --wide         all columns\n"
	"  -p, --pid PID      only this process; --port N: only its port of that number\n"
	"\n"
	"Exit status: 0 done; 1 failed or refused; 2 wrong usage; 3 no daemon; 4 no such queue "
	"pair,\n"
	"or several; 5 not allowed. More: man ferrulectl.\n";

static int usage_error(const char *format, const char *word)
{
	fputs("ferrulectl: ", stderr);
	fprintf(stderr, format, word); /* one of the literals below */
	fputs("; see ferrulectl help\n", stderr);
	return EXIT_USAGE;
}

static bool take_number(const char *text, uint32_t max, uint32_t *ret)
{
	char *end;
	unsigned long value;

	errno = 0;
	value = strtoul(text, &end, 0);
	if (errno || end == text || *end || text[0] == '-' || value == 0 || value > max)
		return false;
	*ret = (uint32_t)value;
	return true;
}

static bool take_seconds(const char *text, double *ret)
{
	char *end;

	*ret = strtod(text, &end);
	return end != text && *end == '\0' && *ret >= 0.1 && *ret <= 3600;
}

/* Returns -1 to continue, else the exit status. */
static int take_option(struct ctl_options *options, int option, const char *value)
{
	switch (option) {
	case 's': options->socket = value; break;
	case 'j': options->json = true; break;
	case 'w': options->wide = true; break;
	case 'c': options->config = value; break;
	case OPTION_ROOT: options->root = value; break;
	case OPTION_REASON:
		if (strlen(value) > 120)
			return usage_error("a reason may have at most 120 characters%s", "");
		options->reason = value;
		break;
	case OPTION_UNDO: options->undo = true; break;
	case OPTION_WAIT: options->wait = true; break;
	case 'p':
		if (!take_number(value, INT32_MAX, &options->pid))
			return usage_error("--pid: %s is not a process number", value);
		break;
	case OPTION_PORT:
		if (!take_number(value, UINT32_MAX, &options->port))
			return usage_error("--port: %s is not a number from 1", value);
		break;
	case 'n':
		if (!take_number(value, UINT32_MAX, &options->count))
			return usage_error("--count: %s is not a number from 1", value);
		break;
	case 'i':
		if (!take_seconds(value, &options->interval_s))
			return usage_error("--interval: %s is not between 0.1 and 3600 s", value);
		break;
	case 'h': fputs(usage, stdout); return EXIT_OK;
	case OPTION_VERSION: printf("ferrulectl %s\n", FERRULE_RELEASE); return EXIT_OK;
	default: return usage_error("wrong option%s", "");
	}
	return -1;
}

struct command {
	const char *name;
	int (*run)(const struct ctl_options *options);
	bool of_qp; /* takes a queue pair number */
};

static const struct command commands[] = {
	{ "kill-qp", command_kill, true },
	{ "why", command_why, true },
	{ "drain", command_drain, false },
	{ "doctor", command_doctor, false },
};

static int run_watch(const struct ctl_options *options, const char *what)
{
	const struct show *show = show_find(what ? what : "qps");

	if (!show)
		return usage_error("watch: there is no table %s", what);
	return command_watch(options, show);
}

static int run(struct ctl_options *options, int count, char **words)
{
	const char *name = words[0], *argument = count > 1 ? words[1] : NULL;
	const struct show *show = show_find(name);
	size_t i;

	if (count > 2)
		return usage_error("unexpected argument: %s", words[2]);
	if (strcmp(name, "watch") == 0)
		return run_watch(options, argument);
	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(commands[i].name, name) != 0)
			continue;
		if (commands[i].of_qp && !argument)
			return usage_error("%s needs the number of a queue pair", name);
		if (commands[i].of_qp && !take_number(argument, 0xffffff, &options->qpn))
			return usage_error("%s is not the number of a queue pair", argument);
		if (!commands[i].of_qp && argument)
			return usage_error("unexpected argument: %s", argument);
		return commands[i].run(options);
	}
	if (!show)
		return usage_error("there is no command %s", name);
	if (argument && !take_number(argument, 0xffffff, &options->qpn))
		return usage_error("%s is not the number of a queue pair", argument);
	return command_show(options, show);
}

/* The output is the result: a command that cannot write it has failed. */
static int finish_output(int status)
{
	int err = fflush(stdout) ? errno : 0;

	if (!err && !ferror(stdout))
		return status;
	fprintf(stderr, "ferrulectl: cannot write to standard output%s%s\n", err ? ": " : "",
		err ? strerror(err) : "");
	return status ? status : EXIT_FAILED;
}

int main(int argc, char **argv)
{
	struct ctl_options options = { .interval_s = 1, .root = "" };
	int option, status;

	setlocale(LC_CTYPE, "");
	while ((option = getopt_long(argc, argv, "s:jwp:i:n:c:h", long_options, NULL)) != -1) {
		status = take_option(&options, option, optarg);
		if (status >= 0)
			return finish_output(status);
	}
	if (optind == argc || strcmp(argv[optind], "help") == 0) {
		fputs(usage, optind == argc ? stderr : stdout);
		return finish_output(optind == argc ? EXIT_USAGE : EXIT_OK);
	}
	return finish_output(run(&options, argc - optind, argv + optind));
}
