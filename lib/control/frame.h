/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames of the control protocol: a length of four bytes, big-endian, and one Envelope
 * (control.proto) of that length. The library, ferrulectl and ferruled use this code. A descriptor
 * (SCM_RIGHTS) is sent with the first byte of its frame.
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
	/* Limits of the payload. A peer that has not sent its Hello yet has the smaller one. */
	FRAME_MAX_STRANGER = 4096,
	FRAME_MAX = (1 << 20) + 4096,
	UUID_SIZE = 16,
	ENDPOINT_BYTES = 128, /* FRL_ENDPOINT_SIZE */
	PRIVATE_BYTES = 196,  /* FRL_PRIVATE_DATA_MAX */
	MAIL_BYTES = 2048,    /* FRL_MAIL_MAX */
};

/* Returns the size of a message's frame, header included. */
size_t frame_size(const Ctl__Envelope *envelope);

/* Writes the frame of a message; `to` has frame_size() bytes. */
void frame_pack(const Ctl__Envelope *envelope, uint8_t *to);

/*
 * Returns the length of the frame at the start of a stream, header included; 0: `size` bytes do not
 * contain all of it yet. Returns -EMSGSIZE if its payload is longer than `limit`.
 */
int frame_length(const uint8_t *bytes, size_t size, size_t limit);

/*
 * Unpacks a frame of frame_length() bytes, and checks what all receivers rely on:
 * - there is a body;
 * - uuids, members, endpoints, MACs, nonces, mail and private data have their sizes;
 * - an errno is in 1 to 4095; an enum has a known value other than 0;
 * - requests and replies have params, a PortOpened has a lease, a Report has a daemon;
 * - strings are printable UTF-8 without control characters, of at most 1024 bytes (names: 64;
 *   hosts, and the name in a Hello: 255).
 *
 * Returns NULL, with the reason in *ret_why, if the message is invalid; the text is valid until
 * this thread's next call. Free the message by ctl__envelope__free_unpacked(). If this release does
 * not know the body, it is CTL__ENVELOPE__BODY__NOT_SET: answer EOPNOTSUPP. Other unknown fields
 * are dropped. A Hello or a Failure may have another version than CONTROL_VERSION: the caller must
 * check it.
 */
Ctl__Envelope *frame_unpack(const uint8_t *frame, size_t size, const char **ret_why);

/*
 * Replaces bytes that are not printable UTF-8 by '?', in text from another source (a page, the name
 * of a process), so that frame_unpack() accepts it. Does not limit the length.
 */
void frame_clean_text(char *text);

/* Returns an envelope with CONTROL_VERSION, `seq_` and a body: `name` is the suffix of
 * CTL__ENVELOPE__BODY_, `member` its field. */
#define ENVELOPE(seq_, name, member, value)                                            \
	((Ctl__Envelope){ .base = PROTOBUF_C_MESSAGE_INIT(&ctl__envelope__descriptor), \
		.version = CONTROL_VERSION,                                            \
		.seq = (seq_),                                                         \
		.body_case = CTL__ENVELOPE__BODY_##name,                               \
		.member = (value) })

/* Initialises an envelope without a body. */
static inline void envelope_init(Ctl__Envelope *envelope)
{
	ctl__envelope__init(envelope);
	envelope->version = CONTROL_VERSION;
}

#endif
