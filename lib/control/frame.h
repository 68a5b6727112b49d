/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames of the control protocol: four bytes of length, big-endian, and that many bytes of one
 * Envelope (control.proto). The library, ferrulectl and ferruled use the same code. A descriptor
 * that comes with a frame (SCM_RIGHTS) comes with its first byte.
 */
#ifndef FERRULE_CONTROL_FRAME_H
#define FERRULE_CONTROL_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "lib/control/control.pb-c.h"

enum {
	CONTROL_VERSION = 1,
	CONTROL_PORT = 7476, /* TCP, between daemons */
	FRAME_HEADER = 4,
	/* Of the payload. A stranger, who has not said Hello, may send little. */
	FRAME_MAX_STRANGER = 4096,
	FRAME_MAX = (1 << 20) + 4096,
	UUID_SIZE = 16,
	ENDPOINT_BYTES = 128, /* FRL_ENDPOINT_SIZE */
	PRIVATE_BYTES = 196,  /* FRL_PRIVATE_DATA_MAX */
	MAIL_BYTES = 2048,    /* FRL_MAIL_MAX */
};

/* Bytes of the frame of this message, header included. */
size_t frame_size(const Ctl__Envelope *envelope);

/* Writes it; `to` has frame_size() bytes. */
void frame_pack(const Ctl__Envelope *envelope, uint8_t *to);

/*
 * Looks at `size` bytes of a stream. Returns the length of the whole frame at its start, header
 * included, when all of it is there; 0 when more is needed; -EMSGSIZE: its payload is longer than
 * `limit`.
 */
int frame_length(const uint8_t *bytes, size_t size, size_t limit);

/*
 * Unpacks a whole frame of frame_length() bytes and checks what every receiver relies on: a body,
 * and in it the sizes of uuids, members, endpoints, MACs, nonces, mail and private data, ranges of
 * errno (1 to 4095) and enums (known, and not 0), the params of requests and replies, the lease of
 * a PortOpened and the daemon of a Report, strings that are printable UTF-8 without control
 * characters and at most 1024 bytes (names: 64, hosts and the name in a Hello: 255). NULL with a
 * sentence in *ret_why, good until this thread's next call. To be freed by
 * ctl__envelope__free_unpacked(). A body that this release does not know is
 * CTL__ENVELOPE__BODY__NOT_SET, to be answered by EOPNOTSUPP; other fields that it does not know
 * are dropped. Its version may be another one than ours only in a Hello, a Failure: the caller
 * looks at it.
 */
Ctl__Envelope *frame_unpack(const uint8_t *frame, size_t size, const char **ret_why);

/* Makes a text from elsewhere (a page, the name of a process) one that frame_unpack() takes, length
 * apart: puts '?' for what is not printable UTF-8. */
void frame_clean_text(char *text);

/* Returns an envelope with CONTROL_VERSION, `seq_` and a body: `name` is the suffix of
 * CTL__ENVELOPE__BODY_, `member` its field. */
#define ENVELOPE(seq_, name, member, value)                                            \
	((Ctl__Envelope){ .base = PROTOBUF_C_MESSAGE_INIT(&ctl__envelope__descriptor), \
		.version = CONTROL_VERSION,                                            \
		.seq = (seq_),                                                         \
		.body_case = CTL__ENVELOPE__BODY_##name,                               \
		.member = (value) })

/* The same to be filled in: without a body. */
static inline void envelope_init(Ctl__Envelope *envelope)
{
	ctl__envelope__init(envelope);
	envelope->version = CONTROL_VERSION;
}

#endif
