/* SPDX-License-Identifier: BSD-3-Clause */
/* The host of each case, for files whose cases have one. */
#ifndef FERRULE_TESTS_UNIT_ENGINE_ENGINE_HOST_H
#define FERRULE_TESTS_UNIT_ENGINE_ENGINE_HOST_H

#include "tests/unit/engine/engine_fixture.h"
#include "tests/fixtures/program.h"

static struct host *host;

static inline void host_setup(void)
{
	host = host_new(NULL);
}

static inline void host_teardown(void)
{
	host_free(host);
}

/* Another one in its place. */
static inline void host_restart(const struct host_config *config)
{
	host_free(host);
	host = host_new(config);
}

#define HOST_TEST_FILE(file)                                            \
	TEST_MAIN(file)                                                 \
	{                                                               \
		return run_suite(all_tests(host_setup, host_teardown)); \
	}

#endif
