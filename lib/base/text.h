/* SPDX-License-Identifier: BSD-3-Clause */
/* Sanitizes text from other sources before it is shown: printable UTF-8. Any thread. */
#ifndef FERRULE_BASE_TEXT_H
#define FERRULE_BASE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* Returns the length in bytes of the character at `at`, with its code point in *ret_code. Returns 0
 * if it is not UTF-8. The string ends with NUL. */
unsigned text_character(const uint8_t *at, uint32_t *ret_code);

/* Returns true if the character displays only itself. Terminal control characters, line ends and
 * marks that change the text direction do not. */
bool text_is_printable(uint32_t code);

/* Replaces each byte that is not part of a printable character by '?'. */
void text_clean(char *text);

#endif
