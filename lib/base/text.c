/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/text.h"

#include <string.h>

unsigned text_character(const uint8_t *at, uint32_t *ret_code)
{
	static const uint32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
	unsigned length = at[0] < 0x80   ? 1
		: (at[0] & 0xe0) == 0xc0 ? 2
		: (at[0] & 0xf0) == 0xe0 ? 3
		: (at[0] & 0xf8) == 0xf0 ? 4
					 : 0;
	uint32_t code = length > 1 ? at[0] & (0x7fu >> length) : at[0];

	for (unsigned i = 1; i < length; i++) {
		if ((at[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (at[i] & 0x3f);
	}
	if (length && (code < smallest[length] || code > 0x10ffff || (code >> 11) == 0x1b))
		return 0;
	*ret_code = code;
	return length;
}

bool text_is_printable(uint32_t code)
{
	return code >= 0x20 && (code < 0x7f || code >= 0xa0) && code != 0x2028 && code != 0x2029 &&
		(code < 0x202a || code > 0x202e) && (code < 0x2066 || code > 0x2069);
}

void text_clean(char *text)
{
	uint8_t *at = (uint8_t *)text;

	while (*at) {
		uint32_t code = 0;
		unsigned length = text_character(at, &code);

		if (length && text_is_printable(code)) {
			at += length;
			continue;
		}
		memset(at, '?', length ? length : 1);
		at += length ? length : 1;
	}
}
