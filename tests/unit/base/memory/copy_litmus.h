/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread reads memory while another one copies there by copy_in_order(). Without Check, so that
 * it also runs where there are only a compiler and a C library. Each function returns how often the
 * reader has found a forbidden state.
 */
#ifndef FERRULE_TESTS_UNIT_BASE_COPY_LITMUS_H
#define FERRULE_TESTS_UNIT_BASE_COPY_LITMUS_H

/* Aligned words of 2, 4 and 8 bytes have a value that was sent. */
unsigned litmus_words(unsigned rounds);

/* When the last word is new, so are all bytes before it, in the same copy or in an earlier one. */
unsigned litmus_message(unsigned rounds);

/* When the last 8 bytes of a line of 128 are new, so is the line. */
unsigned litmus_lines(unsigned rounds);

#endif
