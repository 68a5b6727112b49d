/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes text from a file or a peer safe for a terminal. Any thread. */
#ifndef FERRULE_TOOLS_COMMON_PRINTABLE_H
#define FERRULE_TOOLS_COMMON_PRINTABLE_H

#include <stddef.h>

/* Replaces control characters, of ASCII and the C1 characters of UTF-8, by question marks. */
void make_printable(char *text, size_t length);

#endif
