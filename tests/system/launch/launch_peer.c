/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank that does nothing but meet the others, for the tests of launchers:
 *
 *	launch-peer detect                       what frl_launch_detect() says, and no more
 *	launch-peer environment [TIMES]          joins as the launcher says, that often
 *	launch-peer launch TIMES                 the same with one launch, and then once more
 *	launch-peer deaf                         detects a server of PMIx that does not answer
 *	launch-peer hold                         the same once, and then waits for its end
 *	launch-peer id                           prints a unique id, and ends
 *	launch-peer join RANK RANKS <ID          joins by the id on standard input
 *	launch-peer place                        prints this host's place
 *	launch-peer host PLACE                   prints that place's host as seen from here
 *
 * The ranks gather their numbers, so that each sees whom it has met. Waits LAUNCH_PEER_MS
 * milliseconds for the daemons and for the other ranks; by default until a hang is certain. Status
 * 1 with what the library says about a failure.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <netinet/in.h>
#include <sys/socket.h>

#include <ferrule/ferrule.h>

enum { HANG_MS = 120000, RANKS_MAX = 1024 };

static int wait_ms(void)
{
	const char *text = getenv("LAUNCH_PEER_MS");

	return text ? atoi(text) : HANG_MS;
}

static int fail(const char *what, int err)
{
	fprintf(stderr, "%s: %s: %s\n", what, frl_strerror(err), frl_last_error());
	return EXIT_FAILURE;
}

/* It has met the ranks of its job, in their order. */
static int meet(struct frl_bootstrap *bootstrap)
{
	int all[RANKS_MAX], err;

	if (bootstrap->ranks > RANKS_MAX)
		return fail("too many ranks", 0);
	frl_bootstrap_set_timeout(bootstrap, wait_ms());
	err = bootstrap->allgather(bootstrap->ctx, &bootstrap->rank, sizeof(int), all);
	if (err)
		return fail("allgather", err);
	for (int i = 0; i < bootstrap->ranks; i++)
		if (all[i] != i)
			return fail("ranks are mixed up", 0);
	printf("rank %d of %d has met the others\n", bootstrap->rank, bootstrap->ranks);
	fflush(stdout);
	return EXIT_SUCCESS;
}

static int detect(void)
{
	struct frl_launch launch;
	int err = frl_launch_detect(&launch);

	if (err)
		return fail("detect", err);
	printf("%s: job '%s' at '%s', rank %d of %d, %d of %d here\n", launch.launcher, launch.job,
		launch.host, launch.rank, launch.ranks, launch.local_rank, launch.local_ranks);
	frl_launch_close(&launch);
	return EXIT_SUCCESS;
}

/* With the launch, or NULL: as the environment says. */
static int join(const struct frl_launch *launch, int times)
{
	for (int i = 0; i < times; i++) {
		struct frl_bootstrap bootstrap;
		int status,
			err = launch ? frl_bootstrap_from_launch(launch, wait_ms(), &bootstrap)
				     : frl_bootstrap_from_environment(wait_ms(), &bootstrap);

		if (err)
			return fail("join", err);
		status = meet(&bootstrap);
		bootstrap.close(bootstrap.ctx);
		if (status)
			return status;
	}
	return EXIT_SUCCESS;
}

static int from_launch(int times)
{
	struct frl_launch launch;
	int status, err = frl_launch_detect(&launch);

	if (err)
		return fail("detect", err);
	status = join(&launch, times);
	if (!status)
		status = join(NULL, 1);
	frl_launch_close(&launch);
	return status;
}

/* A program listens there and never answers. */
static int detect_deaf(void)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char uri[64];

	if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) || listen(fd, 1) ||
		getsockname(fd, (struct sockaddr *)&address, &size))
		return fail("no socket", 0);
	snprintf(uri, sizeof(uri), "deaf.0;tcp4://127.0.0.1:%d", ntohs(address.sin_port));
	setenv("PMIX_NAMESPACE", "deaf", 1);
	setenv("PMIX_RANK", "0", 1);
	setenv("PMIX_SERVER_URI4", uri, 1);
	return detect();
}

/* Waits until a rank is gone. */
static int hold(void)
{
	struct frl_bootstrap bootstrap;
	int gone = -1, status, err = frl_bootstrap_from_environment(wait_ms(), &bootstrap);

	if (err)
		return fail("join", err);
	status = meet(&bootstrap);
	printf("process %d holds\n", (int)getpid());
	fflush(stdout);
	while (!status && !(err = bootstrap.check(bootstrap.ctx, &gone)))
		usleep(5000);
	if (!status)
		status = fail("hold", err);
	bootstrap.close(bootstrap.ctx);
	return status;
}

static int make_id(void)
{
	struct frl_unique_id id;
	int err = frl_unique_id_create(&id);

	if (err)
		return fail("id", err);
	puts(id.text);
	return EXIT_SUCCESS;
}

static int make_place(void)
{
	char place[FRL_PLACE_SIZE];
	int err = frl_place_create(place);

	if (err)
		return fail("place", err);
	puts(place);
	return EXIT_SUCCESS;
}

static int find_host(const char *place)
{
	char host[FRL_HOST_MAX + 1];
	int err = frl_host_of_place(place, host);

	if (err)
		return fail("host", err);
	printf("host '%s'\n", host);
	return EXIT_SUCCESS;
}

static int join_by_id(int rank, int ranks)
{
	struct frl_unique_id id = { "" };
	struct frl_bootstrap bootstrap;
	int status, err;

	if (!fgets(id.text, sizeof(id.text), stdin))
		return fail("no id", 0);
	id.text[strcspn(id.text, "\n")] = '\0';
	err = frl_bootstrap_from_unique_id(&id, rank, ranks, wait_ms(), &bootstrap);
	if (err)
		return fail("join", err);
	status = meet(&bootstrap);
	bootstrap.close(bootstrap.ctx);
	return status;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (strcmp(what, "detect") == 0)
		return detect();
	if (strcmp(what, "environment") == 0)
		return join(NULL, argc > 2 ? atoi(argv[2]) : 1);
	if (strcmp(what, "launch") == 0 && argc == 3)
		return from_launch(atoi(argv[2]));
	if (strcmp(what, "deaf") == 0)
		return detect_deaf();
	if (strcmp(what, "hold") == 0)
		return hold();
	if (strcmp(what, "id") == 0)
		return make_id();
	if (strcmp(what, "join") == 0 && argc == 4)
		return join_by_id(atoi(argv[2]), atoi(argv[3]));
	if (strcmp(what, "place") == 0)
		return make_place();
	if (strcmp(what, "host") == 0 && argc == 3)
		return find_host(argv[2]);
	fprintf(stderr,
		"launch-peer detect | environment [TIMES] | launch TIMES | deaf | hold | id | "
		"join RANK RANKS | place | host PLACE\n");
	return 2;
}
