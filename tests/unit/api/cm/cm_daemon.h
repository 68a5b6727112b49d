/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A control daemon in a thread of the test, for this one process: both ends of every connection
 * belong to it. It forwards messages from one end to the other as a daemon does, unless the test
 * holds them.
 */
#ifndef FERRULE_TESTS_UNIT_API_CM_CM_DAEMON_H
#define FERRULE_TESTS_UNIT_API_CM_CM_DAEMON_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/control/frame.h"

#define STUB_HOST    "host-of-test"
#define STUB_PROGRAM "program of test"

/* Bodies, as bits: for `hold`. */
#define STUB_BIT(body) (UINT64_C(1) << (CTL__ENVELOPE__BODY_##body))

/* Sets FRL_CONTROL to a socket in test_folder(). */
void stub_prepare(void);

/* Listens at the socket. */
void stub_start(void);
/* Ends and discards all state; refusals end, too. */
void stub_stop(void);

/* Holds messages of these kinds from now on. Held messages of other kinds go on. */
void stub_hold(uint64_t bits);

/* Refuses every Listen from now on, with this errno; 0: none. Also before stub_start(), as the
 * process may be back before that returns. */
void stub_refuse_listens(int error);

/* Waits until the process has sent `n` of these since stub_start(). Returns false after HANG_S. */
bool stub_wait(Ctl__Envelope__BodyCase body, unsigned n);
unsigned stub_count(Ctl__Envelope__BodyCase body);

/* Returns the last one that came, a copy to be freed. */
Ctl__Envelope *stub_last(Ctl__Envelope__BodyCase body);

/* Sends a message to the process. */
void stub_send(const Ctl__Envelope *envelope);

#endif
