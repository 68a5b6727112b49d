/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/rendezvous_wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/base/clock.h"

static const uint8_t frame_magic[4] = { 'F', 'R', 'L', 'V' };

enum { INBOX_SMALLEST = 4096 };

void wire_put32(uint8_t *to, uint32_t value)
{
	to[0] = (uint8_t)(value >> 24);
	to[1] = (uint8_t)(value >> 16);
	to[2] = (uint8_t)(value >> 8);
	to[3] = (uint8_t)value;
}

uint32_t wire_get32(const uint8_t *from)
{
	return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

void frame_put_header(uint8_t *to, enum frame_type type, uint32_t length)
{
	memcpy(to, frame_magic, sizeof(frame_magic));
	to[4] = FRAME_VERSION;
	to[5] = (uint8_t)type;
	to[6] = 0;
	to[7] = 0;
	wire_put32(to + 8, length);
}

void inbox_fini(struct inbox *inbox)
{
	free(inbox->bytes);
	*inbox = (struct inbox){ 0 };
}

/* Makes room for the rest of the frame that has begun, whose length inbox_take() has checked. */
static int make_room(struct inbox *inbox)
{
	size_t have = inbox->end - inbox->start;
	size_t want = INBOX_SMALLEST;
	uint8_t *bytes;

	if (inbox->start > 0) {
		memmove(inbox->bytes, inbox->bytes + inbox->start, have);
		inbox->start = 0;
		inbox->end = have;
	}
	if (have >= FRAME_HEADER && FRAME_HEADER + wire_get32(inbox->bytes + 8) > want)
		want = FRAME_HEADER + (size_t)wire_get32(inbox->bytes + 8);
	if (want <= inbox->capacity)
		return 0;
	bytes = realloc(inbox->bytes, want);
	if (!bytes)
		return -ENOMEM;
	inbox->bytes = bytes;
	inbox->capacity = want;
	return 0;
}

int inbox_fill(struct inbox *inbox, int fd)
{
	int err = make_room(inbox);
	ssize_t n;

	if (err)
		return err;
	do {
		n = recv(fd, inbox->bytes + inbox->end, inbox->capacity - inbox->end, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n == 0)
		return -EPIPE;
	if (n < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	inbox->end += (size_t)n;
	return (int)n;
}

int inbox_take(struct inbox *inbox, uint32_t limit, struct frame *ret_frame)
{
	const uint8_t *head;
	size_t have = inbox->end - inbox->start;
	uint32_t length;

	if (have == 0)
		return 0;
	head = inbox->bytes + inbox->start;
	/* A stranger is seen by his first bytes, not only when he has sent a header's worth. */
	if (memcmp(head, frame_magic, have < sizeof(frame_magic) ? have : sizeof(frame_magic)) != 0)
		return -EPROTO;
	if (have < FRAME_HEADER)
		return 0;
	length = wire_get32(head + 8);
	if (head[4] != FRAME_VERSION || length > limit)
		return -EPROTO;
	if (have - FRAME_HEADER < length)
		return 0;
	ret_frame->type = head[5];
	ret_frame->length = length;
	ret_frame->payload = head + FRAME_HEADER;
	inbox->start += FRAME_HEADER + length;
	return 1;
}

uint64_t rendezvous_now_ms(void)
{
	return clock_now_ns() / 1000000;
}
