/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libFuzzer entry for frames of the control protocol: any bytes as a stream of them. A frame
 * that is accepted is packed, and must be accepted again unchanged; so must any cleaned text.
 * The corpus is replayed by tests/unit/fuzz/test_fuzz_corpus.c. To build, with the protocol
 * from a build folder:
 *   clang -std=gnu17 -D_GNU_SOURCE -O1 -g -fsanitize=fuzzer,address,undefined \
 *       -fno-sanitize-recover=all -I. -Ilib/include -Ibuild tests/fuzz/fuzz_frame.c \
 *       lib/control/frame.c build/lib/control/control.pb-c.c -lprotobuf-c
 */
#include "tests/fuzz/fuzz_frame.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/control/frame.h"
#include "tests/fuzz/must.h"

enum { TEXT_MAX = 1024 };

static uint8_t *pack(const Ctl__Envelope *envelope, size_t *ret_size)
{
	uint8_t *frame;

	*ret_size = frame_size(envelope);
	frame = malloc(*ret_size);
	MUST(frame);
	frame_pack(envelope, frame);
	return frame;
}

static void must_come_again(const Ctl__Envelope *envelope)
{
	const char *why = "";
	size_t size, again_size;
	uint8_t *frame = pack(envelope, &size), *again_frame;
	Ctl__Envelope *again;

	/* Numbers may have been written longer than they need to be, never shorter. */
	MUST(frame_length(frame, size, FRAME_MAX) == (int)size);
	again = frame_unpack(frame, size, &why);
	MUST(again && again->body_case == envelope->body_case);
	again_frame = pack(again, &again_size);
	MUST(again_size == size && memcmp(frame, again_frame, size) == 0);
	ctl__envelope__free_unpacked(again, NULL);
	free(again_frame);
	free(frame);
}

static void try_frames(const uint8_t *data, size_t size, size_t limit)
{
	int length;

	while ((length = frame_length(data, size, limit)) > 0) {
		/* From a block of exactly its size, so that the address sanitizer sees its end. */
		uint8_t *frame = malloc((size_t)length);
		const char *why = NULL;
		Ctl__Envelope *envelope;

		MUST(frame && (size_t)length <= size && (size_t)length <= FRAME_HEADER + limit);
		memcpy(frame, data, (size_t)length);
		envelope = frame_unpack(frame, (size_t)length, &why);
		MUST(envelope || (why && *why));
		free(frame);
		if (envelope && envelope->body_case != CTL__ENVELOPE__BODY__NOT_SET)
			must_come_again(envelope);
		ctl__envelope__free_unpacked(envelope, NULL);
		data += length;
		size -= (size_t)length;
	}
	MUST(length == 0 || length == -EMSGSIZE);
}

static void try_text(const uint8_t *data, size_t size)
{
	Ctl__Failure failure = CTL__FAILURE__INIT;
	char text[TEXT_MAX + 1] = "";
	Ctl__Envelope envelope;

	memcpy(text, data, size < TEXT_MAX ? size : TEXT_MAX);
	size = strlen(text);
	frame_clean_text(text);
	MUST(strlen(text) == size);
	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_FAILURE;
	envelope.failure = &failure;
	failure.error = EINVAL;
	failure.text = text;
	must_come_again(&envelope);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	try_frames(data, size, FRAME_MAX_STRANGER);
	try_frames(data, size, FRAME_MAX);
	try_text(data, size);
	return 0;
}
