/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames of a stream socket. */
#include "lib/control/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/control/frame.h"

enum { IN_FIRST = 4096, IN_MAX = FRAME_HEADER + FRAME_MAX };

struct outgoing *outgoing_new(const Ctl__Envelope *envelope, int fd)
{
	size_t size = frame_size(envelope);
	struct outgoing *out = malloc(sizeof(*out) + size);

	if (!out)
		return NULL;
	*out = (struct outgoing){ .fd = -1, .size = size };
	list_init(&out->node);
	if (fd >= 0) {
		out->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (out->fd < 0) {
			free(out);
			return NULL;
		}
	}
	frame_pack(envelope, out->bytes);
	return out;
}

void outgoing_free(struct outgoing *out)
{
	list_remove(&out->node);
	if (out->fd >= 0)
		close(out->fd);
	free(out);
}

size_t outgoing_drop(struct list *queue)
{
	size_t bytes = 0;

	while (!list_empty(queue)) {
		struct outgoing *out = container_of(queue->next, struct outgoing, node);

		bytes += out->size;
		outgoing_free(out);
	}
	return bytes;
}

void control_socket_init(struct control_socket *s)
{
	*s = (struct control_socket){ .fd = -1 };
}

int control_socket_take_fd(struct control_socket *s)
{
	int fd;

	if (!s->n_passed)
		return -1;
	fd = s->passed[0];
	s->n_passed--;
	memmove(s->passed, s->passed + 1, s->n_passed * sizeof(s->passed[0]));
	return fd;
}

void control_socket_close(struct control_socket *s)
{
	while (s->n_passed)
		close(control_socket_take_fd(s));
	if (s->fd >= 0)
		close(s->fd);
	free(s->in);
	control_socket_init(s);
}

/* The descriptor is sent with the first byte. */
static ssize_t send_some(int fd, struct outgoing *out)
{
	struct iovec iov = { out->bytes + out->sent, out->size - out->sent };
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (out->fd >= 0 && out->sent == 0) {
		memset(&control, 0, sizeof(control));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &out->fd, sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control.room);
	}
	return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int control_socket_send(struct control_socket *s, struct list *queue, size_t *ret_bytes)
{
	while (!list_empty(queue)) {
		struct outgoing *out = container_of(queue->next, struct outgoing, node);
		ssize_t n = send_some(s->fd, out);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EWOULDBLOCK ? -EAGAIN : -errno;
		out->sent += (size_t)n;
		if (out->sent < out->size)
			continue;
		*ret_bytes += out->size;
		outgoing_free(out);
	}
	return 0;
}

/* Makes room for more input: first by removing the messages that were returned. */
static int make_room(struct control_socket *s)
{
	uint8_t *in;
	size_t room;

	if (s->in_done) {
		memmove(s->in, s->in + s->in_done, s->in_used - s->in_done);
		s->in_used -= s->in_done;
		s->in_done = 0;
	}
	if (s->in_used < s->in_room)
		return 0;
	room = s->in_room ? s->in_room * 2 : IN_FIRST;
	if (room > IN_MAX)
		room = IN_MAX;
	in = s->in_room < room ? realloc(s->in, room) : NULL;
	if (!in)
		return -ENOMEM;
	s->in = in;
	s->in_room = room;
	return 0;
}

/* Stores the descriptors of a message. Returns false if some were truncated or do not fit. */
static bool keep_passed(struct control_socket *s, struct msghdr *message)
{
	bool all = !(message->msg_flags & MSG_CTRUNC);

	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		size_t size = c->cmsg_len - CMSG_LEN(0);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; at < size; at += sizeof(int)) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + at, sizeof(fd));
			if (s->n_passed == CONTROL_PASSED) {
				close(fd);
				all = false;
			} else {
				s->passed[s->n_passed++] = fd;
			}
		}
	}
	return all;
}

int control_socket_receive(struct control_socket *s)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(CONTROL_PASSED * sizeof(int))];
	} control;
	struct iovec iov;
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };
	int rc = make_room(s);
	ssize_t n;

	if (rc)
		return rc;
	do {
		iov = (struct iovec){ s->in + s->in_used, s->in_room - s->in_used };
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		n = recvmsg(s->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	if (!keep_passed(s, &message))
		return -EMFILE;
	if (n == 0)
		return -ECONNRESET;
	s->in_used += (size_t)n;
	return 0;
}

Ctl__Envelope *control_socket_next(struct control_socket *s, const char **ret_why)
{
	const uint8_t *frame = s->in + s->in_done;
	int length;

	*ret_why = NULL;
	if (s->in_done == s->in_used)
		return NULL;
	length = frame_length(frame, s->in_used - s->in_done, FRAME_MAX);
	if (length < 0)
		*ret_why = "a message is longer than the limit";
	if (length <= 0)
		return NULL;
	s->in_done += (size_t)length;
	return frame_unpack(frame, (size_t)length, ret_why);
}
