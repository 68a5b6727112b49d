/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/wait_limits.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "lib/base/limit.h"

#define FAR_NS UINT64_C(3600000000000)

static atomic_uint expiring_ms;
static bool is_on_hardware;

uint64_t __real_limit_after_ms(uint64_t now_ns, unsigned ms);
uint64_t __wrap_limit_after_ms(uint64_t now_ns, unsigned ms);

__attribute__((constructor)) static void look_for_hardware(void)
{
	is_on_hardware = getenv("FRL_TEST_PORT");
}

uint64_t __wrap_limit_after_ms(uint64_t now_ns, unsigned ms)
{
	if (ms && ms == atomic_load(&expiring_ms))
		return now_ns;
	return is_on_hardware ? __real_limit_after_ms(now_ns, ms) : now_ns + FAR_NS;
}

void limits_expire(unsigned ms)
{
	atomic_store(&expiring_ms, ms);
}
