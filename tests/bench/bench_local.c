/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures the cost of the local fabric for a process: the time to open its first device, its
 * memory with one device, and with links to many other devices. Prints one object of JSON.
 *
 * bench_local [LINKS]; 0 (default): no links.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <ferrule/ferrule.h>

enum {
	MOST = 4096,
	A_CHILD = 128, /* devices of a process that is linked to */
	TIMEOUT_MS = 600000,
};

struct end {
	struct frl_device *device;
	struct frl_pd *pd;
	struct frl_cq *cq;
	struct frl_qp *qp;
	struct frl_endpoint mine, theirs;
	int rc;
};

struct child {
	pid_t pid;
	int to, from; /* pipes */
	unsigned n;
};

static struct end ends[MOST];

static void die(const char *what)
{
	fprintf(stderr, "bench_local: %s: %s (%s)\n", what, frl_last_error(), strerror(errno));
	exit(1);
}

static double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static long resident_kb(void)
{
	char line[256];
	long kb = 0;
	FILE *file = fopen("/proc/self/status", "r");

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "VmRSS: %ld", &kb) == 1)
			break;
	if (file)
		fclose(file);
	return kb;
}

static struct frl_device *open_device(void)
{
	struct frl_device_config config;
	struct frl_device *device;

	frl_device_config_init(&config);
	config.port = NULL;
	config.progress = FRL_PROGRESS_INLINE;
	if (frl_device_open(&config, &device))
		die("cannot open a device");
	return device;
}

static void make_end(struct end *end, const struct end *first)
{
	struct frl_qp_config config = { .max_send_wr = 4, .max_recv_wr = 4 };

	end->device = first ? first->device : open_device();
	end->pd = first ? first->pd : NULL;
	end->cq = first ? first->cq : NULL;
	if (!end->pd &&
		(frl_pd_create(end->device, &end->pd) || frl_cq_create(end->device, 16, &end->cq)))
		die("no objects");
	config.send_cq = config.recv_cq = end->cq;
	if (frl_qp_create(end->pd, &config, &end->qp) || frl_qp_endpoint(end->qp, &end->mine))
		die("no queue pair");
}

static void connect_all(struct end *all, unsigned n)
{
	struct frl_connect_config config;
	unsigned left = n;

	for (unsigned i = 0; i < n; i++) {
		frl_connect_config_init(all[i].device, &config);
		config.timeout_ms = TIMEOUT_MS;
		all[i].rc = frl_qp_connect_start(all[i].qp, &all[i].theirs, &config);
		if (all[i].rc)
			die("cannot connect");
		all[i].rc = -EAGAIN;
	}
	while (left) {
		for (unsigned i = 0; i < n; i++) {
			if (all[i].rc != -EAGAIN)
				continue;
			all[i].rc = frl_qp_connect_test(all[i].qp);
			if (all[i].rc && all[i].rc != -EAGAIN)
				die("cannot connect");
			left -= all[i].rc == 0;
		}
		usleep(200);
	}
}

static void move(int fd, struct frl_endpoint *endpoint, int is_read)
{
	char *bytes = (char *)endpoint;

	for (size_t done = 0; done < sizeof(*endpoint);) {
		ssize_t n = is_read ? read(fd, bytes + done, sizeof(*endpoint) - done)
				    : write(fd, bytes + done, sizeof(*endpoint) - done);

		if (n <= 0)
			die("a process of this bench has ended");
		done += (size_t)n;
	}
}

/* Runs until the parent has ended. */
static void be_child(int in, int out, unsigned n)
{
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned i = 0; i < n; i++) {
		make_end(&ends[i], NULL);
		move(out, &ends[i].mine, 0);
	}
	for (unsigned i = 0; i < n; i++)
		move(in, &ends[i].theirs, 1);
	connect_all(ends, n);
	if (write(out, "c", 1) != 1 || read(in, &byte, 1) < 0)
		die("the parent has ended");
	_exit(0);
}

static void start_child(struct child *child, unsigned n)
{
	int to[2], from[2];

	if (pipe(to) || pipe(from))
		die("no pipes");
	child->n = n;
	child->to = to[1];
	child->from = from[0];
	child->pid = fork();
	if (child->pid < 0)
		die("cannot fork");
	if (child->pid == 0)
		be_child(to[0], from[1], n);
	close(to[0]);
	close(from[1]);
}

static void print_links(unsigned n)
{
	struct child children[MOST / A_CHILD + 1];
	unsigned n_children = 0, at = 0;
	double began_ms;
	long before_kb;
	char byte;

	for (unsigned left = n; left; left -= children[n_children++].n)
		start_child(&children[n_children], left < A_CHILD ? left : A_CHILD);
	for (unsigned i = 0; i < n; i++)
		make_end(&ends[i], i ? &ends[0] : NULL);
	for (unsigned c = 0; c < n_children; c++)
		for (unsigned i = 0; i < children[c].n; i++)
			move(children[c].from, &ends[at++].theirs, 1);
	before_kb = resident_kb();
	began_ms = now_ms();
	at = 0;
	for (unsigned c = 0; c < n_children; c++)
		for (unsigned i = 0; i < children[c].n; i++)
			move(children[c].to, &ends[at++].mine, 0);
	connect_all(ends, n);
	for (unsigned c = 0; c < n_children; c++)
		if (read(children[c].from, &byte, 1) != 1)
			die("a process of this bench has ended");
	printf(", \"links\": %u, \"connect_ms\": %.1f, \"kb_a_link\": %.1f", n, now_ms() - began_ms,
		(double)(resident_kb() - before_kb) / n);
	for (unsigned c = 0; c < n_children; c++) {
		kill(children[c].pid, SIGKILL);
		waitpid(children[c].pid, NULL, 0);
	}
}

static void print_one(void)
{
	double began_ms = now_ms();
	struct frl_device *device = open_device();

	printf("\"first_open_ms\": %.3f", now_ms() - began_ms);
	printf(", \"resident_kb\": %ld", resident_kb());
	frl_device_close(device);
}

int main(int argc, char **argv)
{
	unsigned n = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
	struct rlimit limit;

	if (n > MOST) {
		fprintf(stderr, "bench_local: at most %d links\n", MOST);
		return 2;
	}
	setenv("FRL_CONTROL", "off", 1);
	if (n && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	printf("{");
	print_one();
	if (n)
		print_links(n);
	printf("}\n");
	return 0;
}
