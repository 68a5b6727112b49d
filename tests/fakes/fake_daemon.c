/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/fakes/fake_daemon.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/fixtures/program.h"

enum { IN_ROOM = FRAME_HEADER + FRAME_MAX };

static char path[100];

const char *fake_folder(void)
{
	const char *folder = test_folder();

	snprintf(path, sizeof(path), "%s/daemon.sock", folder);
	setenv("FRL_CONTROL", path, 1);
	return folder;
}

void fake_listen(struct fake_daemon *fake)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	*fake = (struct fake_daemon){ .fd = -1, .passed_fd = -1 };
	unlink(path);
	memcpy(address.sun_path, path, sizeof(path));
	fake->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(fake->listen_fd, 0);
	ck_assert_int_eq(
		bind(fake->listen_fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fake->listen_fd, 16), 0);
	fake->in = malloc(IN_ROOM);
	fake->room = IN_ROOM;
	ck_assert_ptr_nonnull(fake->in);
}

void fake_stop_listening(struct fake_daemon *fake)
{
	if (fake->listen_fd >= 0)
		close(fake->listen_fd);
	fake->listen_fd = -1;
	unlink(path);
}

static void wait_readable(int fd)
{
	struct pollfd event = { .fd = fd, .events = POLLIN };

	ck_assert_msg(poll(&event, 1, HANG_MS) == 1, "the client does nothing");
}

void fake_accept(struct fake_daemon *fake)
{
	fake_hang_up(fake);
	wait_readable(fake->listen_fd);
	fake->fd = accept4(fake->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	ck_assert_int_ge(fake->fd, 0);
}

void fake_hang_up(struct fake_daemon *fake)
{
	if (fake->fd >= 0)
		close(fake->fd);
	fake->fd = -1;
	fake->used = 0;
}

void fake_close(struct fake_daemon *fake)
{
	fake_hang_up(fake);
	fake_stop_listening(fake);
	free(fake->in);
}

static ssize_t receive(struct fake_daemon *fake)
{
	struct iovec iov = { fake->in + fake->used, fake->room - fake->used };
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n;

	wait_readable(fake->fd);
	n = recvmsg(fake->fd, &message, MSG_CMSG_CLOEXEC);
	if (n > 0 && message.msg_controllen >= CMSG_LEN(sizeof(int)))
		memcpy(&fake->passed_fd, CMSG_DATA(&control.header), sizeof(int));
	if (n > 0)
		fake->used += (size_t)n;
	return n;
}

Ctl__Envelope *fake_read(struct fake_daemon *fake)
{
	Ctl__Envelope *envelope;
	const char *why = "";
	int length;

	while ((length = frame_length(fake->in, fake->used, FRAME_MAX)) == 0)
		ck_assert_msg(receive(fake) > 0, "the client has ended: %s", strerror(errno));
	ck_assert_int_gt(length, 0);
	envelope = frame_unpack(fake->in, (size_t)length, &why);
	ck_assert_msg(envelope != NULL, "%s", why);
	fake->used -= (size_t)length;
	memmove(fake->in, fake->in + length, fake->used);
	return envelope;
}

Ctl__Envelope *fake_expect(struct fake_daemon *fake, Ctl__Envelope__BodyCase body)
{
	Ctl__Envelope *envelope = fake_read(fake);

	ck_assert_msg(envelope->body_case == body, "message %d instead of %d",
		(int)envelope->body_case, (int)body);
	return envelope;
}

void fake_expect_end(struct fake_daemon *fake)
{
	ssize_t n;

	ck_assert_uint_eq(fake->used, 0);
	n = receive(fake);
	/* ECONNRESET: the client has closed before it has read all that was sent to it. */
	ck_assert_msg(n == 0 || (n < 0 && errno == ECONNRESET), "%zd: %s", n, strerror(errno));
}

void fake_expect_silence(struct fake_daemon *fake)
{
	Ctl__Ping ping = CTL__PING__INIT;
	Ctl__Envelope envelope, *answer;

	envelope_init(&envelope);
	envelope.seq = 12345;
	envelope.body_case = CTL__ENVELOPE__BODY_PING;
	envelope.ping = &ping;
	fake_write(fake, &envelope);
	answer = fake_expect(fake, CTL__ENVELOPE__BODY_FAILURE);
	ck_assert_uint_eq(answer->seq, 12345);
	ctl__envelope__free_unpacked(answer, NULL);
}

void fake_write_bytes(struct fake_daemon *fake, const void *bytes, size_t size)
{
	ck_assert_int_eq(send(fake->fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
}

void fake_write(struct fake_daemon *fake, const Ctl__Envelope *envelope)
{
	size_t size = frame_size(envelope);
	uint8_t *frame = malloc(size);

	ck_assert_ptr_nonnull(frame);
	frame_pack(envelope, frame);
	fake_write_bytes(fake, frame, size);
	free(frame);
}

void fake_hello(struct fake_daemon *fake)
{
	Ctl__Hello hello = CTL__HELLO__INIT;
	Ctl__Envelope envelope;
	char name[] = "host", release[] = "0.1.0";

	envelope_init(&envelope);
	hello.role = CTL__ROLE__ROLE_DAEMON;
	hello.name = name;
	hello.release = release;
	envelope.body_case = CTL__ENVELOPE__BODY_HELLO;
	envelope.hello = &hello;
	fake_write(fake, &envelope);
}

void fake_done(struct fake_daemon *fake, uint64_t seq)
{
	Ctl__Done done = CTL__DONE__INIT;
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.seq = seq;
	envelope.body_case = CTL__ENVELOPE__BODY_DONE;
	envelope.done = &done;
	fake_write(fake, &envelope);
}

void fake_failure(struct fake_daemon *fake, uint64_t seq, int error, const char *text)
{
	Ctl__Failure failure = CTL__FAILURE__INIT;
	Ctl__Envelope envelope;
	char copy[200];

	snprintf(copy, sizeof(copy), "%s", text);
	envelope_init(&envelope);
	envelope.seq = seq;
	failure.error = (uint32_t)error;
	failure.text = copy;
	envelope.body_case = CTL__ENVELOPE__BODY_FAILURE;
	envelope.failure = &failure;
	fake_write(fake, &envelope);
}

void fake_greet(struct fake_daemon *fake)
{
	fake_accept(fake);
	ctl__envelope__free_unpacked(fake_expect(fake, CTL__ENVELOPE__BODY_HELLO), NULL);
	fake_hello(fake);
}
