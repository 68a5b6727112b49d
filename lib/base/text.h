/* SPDX-License-Identifier: BSD-3-Clause */
/* Text that others wrote, before it is shown: UTF-8 that is printable. Any thread. */
#ifndef FERRULE_BASE_TEXT_H
#define FERRULE_BASE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* The bytes of the character at `at`, of a string that ends with NUL, with the character in
 * *ret_code; 0: none that is UTF-8. */
unsigned text_character(const uint8_t *at, uint32_t *ret_code);

/* Would show itself and nothing else: no control characters of a terminal, line ends, or marks that
 * turn the direction of the text around. */
bool text_is_printable(uint32_t code);

/* Puts '?' for every byte that is not of a printable character. */
void text_clean(char *text);

#endif
