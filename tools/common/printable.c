/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/common/printable.h"

#include <stdbool.h>

static bool is_c0(unsigned char c)
{
	return c < ' ' || c == 0x7f;
}

/* U+0080 to U+009F: some terminals start an escape sequence with them, as with ESC [. */
static bool is_c1(unsigned char first, unsigned char second)
{
	return first == 0xc2 && second >= 0x80 && second <= 0x9f;
}

void make_printable(char *text, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)text[i];

		if (is_c0(c)) {
			text[i] = '?';
		} else if (i + 1 < length && is_c1(c, (unsigned char)text[i + 1])) {
			text[i] = '?';
			text[++i] = '?';
		}
	}
}
