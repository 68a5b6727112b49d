/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/communicator/thread.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/base/process/thread.h"

struct start {
	void (*run)(void *arg);
	void *arg;
};

static void *thread_main(void *arg)
{
	struct start start = *(struct start *)arg;

	free(arg);
	start.run(start.arg);
	return NULL;
}

int comm_thread_start(void (*run)(void *arg), void *arg)
{
	struct start *start = malloc(sizeof(*start));
	int err;

	if (!start)
		return -ENOMEM;
	*start = (struct start){ .run = run, .arg = arg };
	err = thread_start(thread_main, start, 0, NULL);
	if (err)
		free(start);
	return err;
}
