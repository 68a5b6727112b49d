/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/limits.h"

#include <stdatomic.h>
#include <stdint.h>

#include "lib/base/limit.h"

#define FAR_NS UINT64_C(3600000000000)

static atomic_uint expiring_ms;

uint64_t __wrap_limit_after_ms(uint64_t now_ns, unsigned ms);

uint64_t __wrap_limit_after_ms(uint64_t now_ns, unsigned ms)
{
	return ms && ms == atomic_load(&expiring_ms) ? now_ns : now_ns + FAR_NS;
}

void limits_expire(unsigned ms)
{
	atomic_store(&expiring_ms, ms);
}
