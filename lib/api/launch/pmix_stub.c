/* SPDX-License-Identifier: BSD-3-Clause */
/* A build without PMIx: detects the launcher, and returns an error. */
#include <errno.h>

#include "lib/api/launch/launch.h"
#include "lib/base/error.h"

static int fail(void)
{
	return frl_fail(-ENOTSUP,
		"this process was started with PMIx (PMIX_NAMESPACE is set), but the library was "
		"built without it: build it with libpmix-dev, or set FRL_RANK, FRL_RANKS, FRL_JOB");
}

int pmix_open(struct frl_launch *launch)
{
	return fail();
}

void pmix_get(void)
{
}

void pmix_put(void)
{
}

int pmix_publish(const char *key, const char *text)
{
	return fail();
}

int pmix_fetch(const char *key, int timeout_ms, char *text, size_t size)
{
	return fail();
}
