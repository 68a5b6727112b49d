/* SPDX-License-Identifier: BSD-3-Clause */
/* The socket plugin's requests: posted here, moved by test(). See socket_net.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "tests/nccl/socket/socket_defects.h"
#include "tests/nccl/socket/socket_net.h"

#define WARN(...) socket_log(NCCL_LOG_WARN, ~0ul, __FILE__, __LINE__, __VA_ARGS__)

#define PROFILER_ID (NCCL_NET_TYPE_SOCKET << 16 | 1)

ssize_t socket_move(int fd, bool is_send, void *data, size_t size)
{
	ssize_t moved = is_send ? send(fd, data, size, MSG_NOSIGNAL) : recv(fd, data, size, 0);

	if (moved > 0)
		return moved;
	if (moved < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (has_defect(DEFECT_DEAF))
		return 0;
	if (moved == 0)
		errno = ECONNRESET;
	return -1;
}

static unsigned int request_limit(const struct socket_comm *comm)
{
	if (has_defect(DEFECT_WINDOW_16))
		return 16;
	return NCCL_MAX_REQUESTS * (comm->is_send ? (unsigned int)socket_max_recvs() : 1);
}

static int take_request(struct socket_comm *comm, struct socket_request **ret)
{
	struct socket_request *request = comm->requests;

	*ret = NULL;
	if (comm->result)
		return comm->result;
	if (comm->n_used >= request_limit(comm))
		return has_defect(DEFECT_FULL_ERROR) ? NCCL_INTERNAL_ERROR : NCCL_SUCCESS;
	while (request->is_used)
		request++;
	memset(request, 0, sizeof(*request));
	request->is_used = true;
	request->comm = comm;
	comm->n_used++;
	comm->order[comm->tail++ % SOCKET_MAX_REQUESTS] = request;
	*ret = request;
	return NCCL_SUCCESS;
}

/* For a send: the size of the receive is not known yet. */
static void start_event(struct socket_request *request, void *parent)
{
	struct nccl_socket_event_v1 event = { .type = 1 };

	if (!parent || !socket_profiler || has_defect(DEFECT_NO_EVENTS))
		return;
	event.socket.fd = request->comm->control_fd;
	event.socket.op = 1;
	event.socket.length = request->parts[0].size;
	if (has_defect(DEFECT_SHORT_EVENT))
		event.socket.length /= 2;
	if (has_defect(DEFECT_WRONG_EVENT))
		socket_profiler(&request->event, NCCL_PROFILE_START, parent, 77, NULL);
	else
		socket_profiler(&request->event, NCCL_PROFILE_START, parent, PROFILER_ID, &event);
}

int socket_isend(
	void *opaque, void *data, size_t size, int tag, void *mr, void *parent, void **ret_request)
{
	struct socket_comm *comm = opaque;
	struct socket_header header = { .size = size, .tag = tag };
	struct socket_request *request;
	int result;

	*ret_request = NULL;
	if (!socket_covers(mr, data, size)) {
		WARN("NET/TestSocket: isend of %zu bytes that are not registered", size);
		return NCCL_INVALID_ARGUMENT;
	}
	result = take_request(comm, &request);
	if (!request)
		return result;
	if (has_defect(DEFECT_LOST_TAG))
		header.tag = 0;
	memcpy(request->wire, &header, sizeof(header));
	request->n_parts = 1;
	request->part = &request->parts[0];
	request->parts[0] = (struct socket_part){
		.data = data, .capacity = size, .size = size, .tag = tag, .mr = socket_hold(mr)
	};
	comm->sent++;
	if ((has_defect(DEFECT_LOST_MESSAGE) && comm->sent % 20 == 0) ||
		(has_defect(DEFECT_ZERO_NEVER) && size == 0)) {
		comm->tail--;
		request->state = SOCKET_MOVED;
	}
	if (has_defect(DEFECT_OVERTAKES) && comm->tail - comm->head >= 2 &&
		comm->order[(comm->tail - 2) % SOCKET_MAX_REQUESTS]->offset == 0) {
		comm->order[(comm->tail - 1) % SOCKET_MAX_REQUESTS] =
			comm->order[(comm->tail - 2) % SOCKET_MAX_REQUESTS];
		comm->order[(comm->tail - 2) % SOCKET_MAX_REQUESTS] = request;
	}
	start_event(request, parent);
	*ret_request = request;
	return NCCL_SUCCESS;
}

int socket_irecv(void *opaque, int n, void **data, size_t *sizes, int *tags, void **mrs,
	void **parents, void **ret_request)
{
	struct socket_comm *comm = opaque;
	bool is_optional = *ret_request == NCCL_OPTIONAL_RECV_COMPLETION;
	struct socket_request *request;
	int result;

	*ret_request = NULL;
	if (n < 1 || n > socket_max_recvs())
		return NCCL_INVALID_ARGUMENT;
	for (int i = 0; i < n; i++) {
		if (socket_covers(mrs[i], data[i], sizes[i]))
			continue;
		WARN("NET/TestSocket: irecv of %zu bytes that are not registered", sizes[i]);
		return NCCL_INVALID_ARGUMENT;
	}
	result = take_request(comm, &request);
	if (!request)
		return result;
	request->n_parts = (unsigned int)n;
	for (int i = 0; i < n; i++)
		request->parts[i] = (struct socket_part){
			.data = data[i],
			.capacity = sizes[i],
			.tag = tags[i],
			.mr = socket_hold(mrs[i]),
		};
	request->is_late = is_optional && has_defect(DEFECT_OPTIONAL_NEVER);
	*ret_request = request;
	return NCCL_SUCCESS;
}

int socket_iflush(void *comm, int n, void **data, int *sizes, void **mrs, void **request)
{
	/* Memory of a GPU is never written. */
	return NCCL_INTERNAL_ERROR;
}

static size_t inline_size(const struct socket_part *part)
{
	return part->size <= SOCKET_INLINE_BYTES ? part->size : 0;
}

static void pause_a_little(void)
{
	struct timespec t = { .tv_nsec = 2000 };

	nanosleep(&t, NULL);
}

/* Defects: the flags of a flag protocol become visible before their data. */
static void tear(const struct socket_part *part, const uint8_t *from)
{
	size_t unit = has_defect(DEFECT_TEAR_WORD) ? 8 : 128;
	size_t flag = has_defect(DEFECT_TEAR_WORD) ? 4 : 8;

	for (size_t at = 0; at < part->size; at += unit) {
		size_t end = at + unit < part->size ? at + unit : part->size;

		if (end - at > flag)
			memcpy(part->data + end - flag, from + end - flag, flag);
		if (at % 1024 == 0)
			pause_a_little();
		memcpy(part->data + at, from + at, end - at);
	}
}

static void finish_part(struct socket_request *request)
{
	struct socket_part *part = request->part;
	struct socket_comm *comm = request->comm;

	if (request->bounce) {
		tear(part, request->bounce);
		free(request->bounce);
		request->bounce = NULL;
	}
	if (!comm->is_send && part->size > 65536 && has_defect(DEFECT_CORRUPT))
		part->data[part->size / 2 + 1] ^= 0x10;
	if (!comm->is_send && has_defect(DEFECT_OVERRUN))
		part->data[part->size] ^= 0xff;
	part->is_full = true;
	request->n_full++;
	request->part = NULL;
	request->offset = 0;
	request->state = request->n_full == request->n_parts ? SOCKET_MOVED : SOCKET_HEADER;
}

/* The part of a message: the first part of the oldest receive with its tag. */
static int choose_part(struct socket_request *request)
{
	struct socket_header header;

	memcpy(&header, request->wire, sizeof(header));
	for (unsigned int i = 0; i < request->n_parts; i++) {
		struct socket_part *part = &request->parts[i];

		if (part->is_full)
			continue;
		if (request->n_parts > 1 && part->tag != header.tag &&
			!has_defect(DEFECT_GROUP_MISMATCH))
			continue;
		if (header.size > part->capacity && !has_defect(DEFECT_TRUNCATES)) {
			WARN("NET/TestSocket: a message of %zu bytes for a receive of %zu",
				(size_t)header.size, part->capacity);
			return -1;
		}
		part->size = header.size < part->capacity ? header.size : part->capacity;
		request->part = part;
		return 0;
	}
	WARN("NET/TestSocket: a message with tag %d, which no receive has", header.tag);
	return -1;
}

/* Split into parts, one for each next socket; NCCL's smallest part is 64 KiB. */
static int split(struct socket_request *request)
{
	struct socket_comm *comm = request->comm;
	size_t each = (request->part->size + comm->n_sockets - 1) / comm->n_sockets;

	if (each < SOCKET_MIN_TASK_BYTES)
		each = SOCKET_MIN_TASK_BYTES;
	for (size_t at = 0; at < request->part->size; at += each) {
		struct socket_task *task = &request->tasks[request->n_tasks++];
		size_t left = request->part->size - at;

		task->is_send = comm->is_send;
		task->data = request->part->data + at;
		task->size = left < each ? left : each;
		if (socket_hand_over(comm, task))
			return -1;
	}
	return 0;
}

/* Moves a part of the header, of its data, or of the payload. Returns bytes, 0: none now, or -1. */
static ssize_t move_some(struct socket_request *request, void *data, size_t size)
{
	ssize_t moved = socket_move(
		request->comm->control_fd, request->comm->is_send, data, size - request->offset);

	if (moved > 0)
		request->offset += (size_t)moved;
	return moved;
}

/* Returns 1 if the header and its data are through, 0: not yet, -1. */
static int move_header(struct socket_request *request)
{
	bool is_send = request->comm->is_send;
	size_t size = sizeof(struct socket_header);
	ssize_t moved = 1;

	if (is_send && request->offset == 0)
		memcpy(request->wire + size, request->part->data, inline_size(request->part));
	if (is_send)
		size += inline_size(request->part);
	while (request->offset < size && moved > 0)
		moved = move_some(request, request->wire + request->offset, size);
	if (moved <= 0)
		return (int)moved;
	if (is_send)
		return 1;
	if (!request->part && choose_part(request))
		return -1;
	size += inline_size(request->part);
	while (request->offset < size && moved > 0)
		moved = move_some(request, request->wire + request->offset, size);
	if (moved <= 0)
		return (int)moved;
	if (inline_size(request->part) &&
		(has_defect(DEFECT_TEAR_WORD) || has_defect(DEFECT_TEAR_LINE)))
		tear(request->part, request->wire + sizeof(struct socket_header));
	else
		memcpy(request->part->data, request->wire + sizeof(struct socket_header),
			inline_size(request->part));
	return 1;
}

static int move_payload(struct socket_request *request)
{
	struct socket_part *part = request->part;
	ssize_t moved = 1;
	uint8_t *to;

	if (!request->comm->is_send && !request->bounce &&
		(has_defect(DEFECT_TEAR_WORD) || has_defect(DEFECT_TEAR_LINE)))
		request->bounce = malloc(part->size);
	to = request->bounce ? request->bounce : part->data;
	while (request->offset < part->size && moved > 0)
		moved = move_some(request, to + request->offset, part->size);
	return moved > 0 ? 1 : (int)moved;
}

static int step(struct socket_request *request)
{
	int moved;

	if (request->state == SOCKET_HEADER) {
		moved = move_header(request);
		if (moved <= 0)
			return moved;
		request->offset = 0;
		request->state = SOCKET_PAYLOAD;
		if (request->part->size == inline_size(request->part)) {
			finish_part(request);
			return 1;
		}
		if (request->comm->n_sockets) {
			if (split(request))
				return -1;
			finish_part(request);
			return 1;
		}
	}
	moved = move_payload(request);
	if (moved > 0)
		finish_part(request);
	return moved;
}

static bool has_memory(const struct socket_request *request)
{
	for (unsigned int i = 0; i < request->n_parts; i++)
		if (socket_is_gone(request->parts[i].mr))
			return false;
	return true;
}

static void progress(struct socket_comm *comm)
{
	int moved = 1;

	if (comm->late) {
		*comm->late ^= 0xff;
		comm->late = NULL;
	}
	while (comm->head != comm->tail && moved > 0) {
		struct socket_request *request = comm->order[comm->head % SOCKET_MAX_REQUESTS];

		errno = EFAULT;
		moved = has_memory(request) ? step(request) : -1;
		if (request->state == SOCKET_MOVED)
			comm->head++;
	}
	if (moved >= 0)
		return;
	if (!has_defect(DEFECT_SILENT))
		WARN("NET/TestSocket: %s failed: %s", comm->is_send ? "send" : "receive",
			strerror(errno));
	comm->result = NCCL_REMOTE_ERROR;
}

static void complete(struct socket_request *request, int *done, int *sizes)
{
	struct socket_comm *comm = request->comm;

	for (unsigned int i = 0; sizes && i < request->n_parts; i++)
		sizes[i] = (int)(has_defect(DEFECT_WRONG_SIZE) ? request->parts[i].capacity
							       : request->parts[i].size);
	if (request->event && !has_defect(DEFECT_UNBALANCED_EVENTS))
		socket_profiler(&request->event, NCCL_PROFILE_STOP, NULL, PROFILER_ID, NULL);
	if (!comm->is_send && has_defect(DEFECT_LATE_WRITE) && request->parts[0].size)
		comm->late = request->parts[0].data + request->parts[0].size - 1;
	for (unsigned int i = 0; i < request->n_parts; i++)
		socket_drop(request->parts[i].mr);
	request->is_used = false;
	comm->n_used--;
	*done = 1;
}

int socket_test(void *opaque, int *done, int *sizes)
{
	struct socket_request *request = opaque;
	struct socket_comm *comm = request->comm;

	*done = 0;
	if (!comm->result)
		progress(comm);
	for (unsigned int i = 0; i < request->n_tasks; i++) {
		int result = request->tasks[i].result;

		if (result < 0)
			comm->result = NCCL_REMOTE_ERROR;
		if (result <= 0)
			return comm->result;
	}
	if (request->state == SOCKET_MOVED && !request->is_late)
		complete(request, done, sizes);
	else if (comm->result)
		return comm->result;
	return NCCL_SUCCESS;
}
