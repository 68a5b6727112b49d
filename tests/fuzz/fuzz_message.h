/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages of the control protocol out of a fuzzer's bytes: built by the descriptors, with values
 * that mean something to each other (few names, few numbers), so that what is behind the checks of
 * the core is reached.
 */
#ifndef FERRULE_TESTS_FUZZ_FUZZ_MESSAGE_H
#define FERRULE_TESTS_FUZZ_FUZZ_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/config/config.h"
#include "lib/control/frame.h"
#include "tests/fuzz/must.h"

struct script {
	const uint8_t *at;
	const uint8_t *end;
};

/* The next bytes as a number; zeros when there are none left. */
uint32_t script_take(struct script *script, int bytes);

/* A message, or NULL where frame_unpack() refused what became of the bytes; the caller's. */
Ctl__Envelope *message_build(struct script *script);
/* The next bytes as the payload of a frame. */
Ctl__Envelope *message_take(struct script *script);

/* A configuration with a fabric of few addresses, and small limits. */
struct config *message_config(void);

#endif
