/* SPDX-License-Identifier: BSD-3-Clause */
/* The socket plugin's helper threads, each with sockets of its own. See socket_net.h. */
#include <sched.h>

#include "tests/nccl/socket/socket_net.h"

/* Whether an earlier task uses the same socket: bytes go in the order of tasks. */
static bool waits(const struct socket_worker *worker, const struct socket_task *task)
{
	for (const struct socket_task *i = worker->first; i != task; i = i->next)
		if (i->fd == task->fd)
			return true;
	return false;
}

/* One round over all tasks. Returns whether there was anything to move. Called under the worker's
 * lock. */
static bool pass(struct socket_worker *worker)
{
	struct socket_task **link = &worker->first;
	bool is_busy = false;

	while (*link) {
		struct socket_task *task = *link;
		ssize_t moved = 0;

		if (!waits(worker, task))
			moved = socket_move(task->fd, task->is_send, task->data + task->offset,
				task->size - task->offset);
		if (moved > 0) {
			task->offset += (size_t)moved;
			is_busy = true;
		}
		if (moved >= 0 && task->offset < task->size) {
			link = &task->next;
			continue;
		}
		*link = task->next;
		task->result = moved < 0 ? -1 : 1;
	}
	return is_busy;
}

static void *work(void *argument)
{
	struct socket_worker *worker = argument;

	pthread_mutex_lock(&worker->lock);
	while (!worker->is_stopped) {
		if (!worker->first) {
			pthread_cond_wait(&worker->wake, &worker->lock);
			continue;
		}
		if (!pass(worker)) {
			pthread_mutex_unlock(&worker->lock);
			sched_yield();
			pthread_mutex_lock(&worker->lock);
		}
	}
	pthread_mutex_unlock(&worker->lock);
	return NULL;
}

int socket_hand_over(struct socket_comm *comm, struct socket_task *task)
{
	struct socket_worker *worker = &comm->workers[comm->next_socket % comm->n_threads];
	struct socket_task **link = &worker->first;

	if (!worker->is_started) {
		pthread_mutex_init(&worker->lock, NULL);
		pthread_cond_init(&worker->wake, NULL);
		if (pthread_create(&worker->thread, NULL, work, worker))
			return -1;
		worker->is_started = true;
	}
	task->fd = comm->fds[comm->next_socket];
	comm->next_socket = (comm->next_socket + 1) % comm->n_sockets;
	pthread_mutex_lock(&worker->lock);
	while (*link)
		link = &(*link)->next;
	*link = task;
	pthread_cond_signal(&worker->wake);
	pthread_mutex_unlock(&worker->lock);
	return 0;
}

void socket_stop_workers(struct socket_comm *comm)
{
	for (unsigned int i = 0; i < SOCKET_MAX_THREADS; i++) {
		struct socket_worker *worker = &comm->workers[i];

		if (!worker->is_started)
			continue;
		pthread_mutex_lock(&worker->lock);
		worker->is_stopped = true;
		pthread_cond_signal(&worker->wake);
		pthread_mutex_unlock(&worker->lock);
		pthread_join(worker->thread, NULL);
		pthread_mutex_destroy(&worker->lock);
		pthread_cond_destroy(&worker->wake);
		worker->is_started = false;
	}
}
