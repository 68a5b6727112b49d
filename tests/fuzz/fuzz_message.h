/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Builds messages of the control protocol from a fuzzer's bytes, by the descriptors. Values relate
 * to each other (few names, few numbers), so that code behind the checks of the core is reached.
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

/* Returns the next bytes as a number; zeros after the end. */
uint32_t script_take(struct script *script, int bytes);

/* Returns a message that the caller owns, or NULL if frame_unpack() refused the bytes. */
Ctl__Envelope *message_build(struct script *script);
/* The next bytes as the payload of a frame. */
Ctl__Envelope *message_take(struct script *script);

/* A configuration with a fabric of few addresses, and small limits. */
struct config *message_config(void);

#endif
