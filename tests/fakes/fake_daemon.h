/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A control daemon that sends the replies of the test. It has a socket in a folder of the test's
 * own and reads and writes frames. Each call waits up to HANG_MS. The client has a thread of its
 * own, so the test's thread can be the daemon.
 */
#ifndef FERRULE_TESTS_FAKES_FAKE_DAEMON_H
#define FERRULE_TESTS_FAKES_FAKE_DAEMON_H

#include <stddef.h>
#include <stdint.h>

#include "lib/control/frame.h"

struct fake_daemon {
	int listen_fd; /* -1: none */
	int fd;        /* the client, or -1 */
	uint8_t *in;
	size_t used, room;
	int passed_fd; /* that came last, or -1; the test's */
};

/* Sets FRL_CONTROL to a socket in test_folder(), before anything reads settings. Returns the
 * folder. */
const char *fake_folder(void);

void fake_listen(struct fake_daemon *fake);
void fake_stop_listening(struct fake_daemon *fake);
/* Waits for a client and closes the connection of the previous one. */
void fake_accept(struct fake_daemon *fake);
void fake_hang_up(struct fake_daemon *fake);
void fake_close(struct fake_daemon *fake);

/* Returns the next message, to be freed by ctl__envelope__free_unpacked(). */
Ctl__Envelope *fake_read(struct fake_daemon *fake);
/* The same; the message must be of this kind. */
Ctl__Envelope *fake_expect(struct fake_daemon *fake, Ctl__Envelope__BodyCase body);
/* Waits for the client to close the connection without sending anything more. */
void fake_expect_end(struct fake_daemon *fake);
/* Shows that the client has sent nothing: its next message is the answer to an unknown request. */
void fake_expect_silence(struct fake_daemon *fake);

void fake_write(struct fake_daemon *fake, const Ctl__Envelope *envelope);
void fake_write_bytes(struct fake_daemon *fake, const void *bytes, size_t size);
void fake_hello(struct fake_daemon *fake);
void fake_done(struct fake_daemon *fake, uint64_t seq);
void fake_failure(struct fake_daemon *fake, uint64_t seq, int error, const char *text);
/* Accepts, reads the client's Hello and answers it. */
void fake_greet(struct fake_daemon *fake);

#endif
