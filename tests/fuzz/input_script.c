/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/fuzz/input_state.h"

uint32_t take(struct script *script, int bytes)
{
	uint32_t value = 0;

	while (bytes--)
		value = value << 8 | (script->at < script->end ? *script->at++ : 0);
	return value;
}

uint32_t mtu(void)
{
	return s.qp.path_mtu ? s.qp.path_mtu : 256;
}

uint32_t take_length(struct script *script)
{
	uint32_t kind = take(script, 1);

	switch (kind & 7) {
	case 0: return kind >> 3;
	case 1: return mtu();
	case 2: return mtu() + (kind >> 3) - 16;
	case 3: return mtu() * (kind >> 3);
	case 4: return mtu() * (kind >> 6) + (kind >> 3 & 7);
	case 5: return take(script, 2);
	case 6: return take(script, 4);
	default: return 8;
	}
}

uint64_t take_address(struct script *script, unsigned region)
{
	uint32_t at = take(script, 2);
	uint64_t offset = at & 0x4000 ? at & 0x3fff : at & 0x3ff8;

	if (at & 0x8000)
		offset = region_length(region) - offset;
	return region_start(region) + offset;
}

uint32_t take_key(struct script *script, unsigned region)
{
	uint32_t wrong = take(script, 1);

	return wrong < 0xf0 ? s.keys[region] : s.keys[region] ^ 1u << (wrong & 15) * 2;
}
