/* SPDX-License-Identifier: BSD-3-Clause */
/* Text from a file or a peer, before it reaches a terminal. Any thread. */
#ifndef FERRULE_TOOLS_COMMON_PRINTABLE_H
#define FERRULE_TOOLS_COMMON_PRINTABLE_H

#include <stddef.h>

/* Replaces control characters, those of ASCII and in UTF-8 the C1 ones too, by question marks. */
void make_printable(char *text, size_t length);

#endif
