/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/limit.h"

uint64_t limit_after_ms(uint64_t now_ns, unsigned ms)
{
	return now_ns + ms * UINT64_C(1000000);
}
