/* SPDX-License-Identifier: BSD-3-Clause */
/* The main loop of the peer program: one TCP connection at a time, one line at a time. */
#include "tests/interop/peer/peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static char reply[MAX_LINE];
static size_t reply_len;

void answer(const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(reply + reply_len, sizeof(reply) - reply_len, format, args);
	va_end(args);
	if (n > 0 && (size_t)n < sizeof(reply) - reply_len)
		reply_len += (size_t)n;
}

const char *arg_text(const struct line *line, const char *name)
{
	for (int i = 0; i < line->n_args; i++)
		if (!strcmp(line->arg[i].name, name))
			return line->arg[i].value;
	return NULL;
}

uint64_t arg_number(const struct line *line, const char *name, uint64_t otherwise)
{
	const char *text = arg_text(line, name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

static void cut_up(char *text, struct line *line)
{
	char *save, *word = strtok_r(text, " \r\n", &save);

	memset(line, 0, sizeof(*line));
	line->command = word ? word : "";
	while ((word = strtok_r(NULL, " \r\n", &save)) != NULL && line->n_args < 64) {
		char *equals = strchr(word, '=');

		if (!equals)
			continue;
		*equals = '\0';
		line->arg[line->n_args].name = word;
		line->arg[line->n_args].value = equals + 1;
		line->n_args++;
	}
}

static int hello(void)
{
	uint8_t gid[NIC_GID_SIZE];
	char text[INET6_ADDRSTRLEN];

	answer(" backend=%s addr=0x%llx size=%d mtu=%d", nic_backend,
		(unsigned long long)(uintptr_t)arena, ARENA_SIZE, nic_path_mtu());
	for (unsigned i = 0; !nic_gid(i, gid); i++)
		answer(" gid=%s", inet_ntop(AF_INET6, gid, text, sizeof(text)));
	return 0;
}

static int counters(void)
{
	char line[4096];

	nic_counters(line, sizeof(line));
	answer(" %s", line);
	return 0;
}

static int execute(const struct line *line)
{
	int rc;

	if (!strcmp(line->command, "hello"))
		return hello();
	if (!strcmp(line->command, "counters"))
		return counters();
	rc = memory_command(line);
	if (rc == UNKNOWN_COMMAND)
		rc = object_command(line);
	if (rc == UNKNOWN_COMMAND)
		rc = work_command(line);
	return rc == UNKNOWN_COMMAND ? -ENOSYS : rc;
}

static void handle(char *text, FILE *out)
{
	struct line line;
	int err;

	cut_up(text, &line);
	reply_len = 0;
	reply[0] = '\0';
	err = execute(&line);
	if (err)
		fprintf(out, "error %d %s\n", -err, nic_error(err));
	else
		fprintf(out, "ok%s\n", reply);
	fflush(out);
}

static int listen_at(const char *port)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)atoi(port)),
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) || listen(fd, 1)) {
		close(fd);
		return -errno;
	}
	return fd;
}

/* Runs until the driver hangs up. */
static int serve(int listener)
{
	static char text[MAX_LINE];
	int fd = accept(listener, NULL, NULL), on = 1;
	FILE *in, *out;

	if (fd < 0)
		return -errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	in = fdopen(fd, "r");
	out = fdopen(dup(fd), "w");
	if (!in || !out)
		return -ENOMEM;
	while (fgets(text, sizeof(text), in))
		handle(text, out);
	fclose(in);
	fclose(out);
	return 0;
}

int main(int argc, char **argv)
{
	const char *port = NULL, *device = NULL, *ip = NULL;
	int err, listener;

	for (int i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--listen"))
			port = argv[i + 1];
		else if (!strcmp(argv[i], "--device"))
			device = argv[i + 1];
		else if (!strcmp(argv[i], "--ip"))
			ip = argv[i + 1];
	}
	if (!port || !device) {
		fprintf(stderr, "usage: %s --listen PORT --device DEVICE [--ip ADDRESSES]\n",
			argv[0]);
		return 2;
	}
	/* Pages of its own, so that a stray access next to it faults. */
	arena = mmap(NULL, ARENA_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (arena == MAP_FAILED)
		return 1;
	err = nic_open(device, ip);
	if (err) {
		fprintf(stderr, "%s: %s\n", device, nic_error(err));
		return 1;
	}
	listener = listen_at(port);
	if (listener < 0) {
		fprintf(stderr, "port %s: %s\n", port, strerror(-listener));
		return 1;
	}
	err = serve(listener);
	nic_close();
	return err ? 1 : 0;
}
