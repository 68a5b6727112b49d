/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/engine/offload/loan.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/base/error.h"

size_t loan_size(const struct transfers *t, uint32_t n)
{
	return (size_t)(n + LOANED_BUFFERS + RETAINED_BUFFERS) * t->slab_size;
}

int loan_init(struct transfers *t, uint32_t n, uint8_t *memory)
{
	t->n_buffers = n + LOANED_BUFFERS + RETAINED_BUFFERS;
	t->buffers = calloc(t->n_buffers, sizeof(t->buffers[0]));
	if (!t->buffers)
		return -ENOMEM;
	for (uint32_t i = 0; i < t->n_buffers; i++) {
		t->buffers[i].bytes = memory + i * t->slab_size;
		if (i >= n)
			loan_put_spare(t, &t->buffers[i]);
	}
	return 0;
}

/*
 * Registers the memory for sending by reference. All of it is registered first: buffers within an
 * earlier registration cost a NIC nothing more. Not used on the local fabric, where peers read
 * only the application's own memory in place and copy the rest.
 */
static int map_all(struct engine *e)
{
	struct transfers *t = transfers_of(e);
	const struct port_ops *ops = e->port->ops;
	int rc = ops->mem_map(e->port, t->memory, t->memory_size, &t->port_mem);

	for (uint32_t i = 0; !rc && i < t->n_buffers; i++) {
		rc = ops->mem_map(e->port, t->buffers[i].bytes, t->slab_size, &t->buffers[i].mem);
		if (rc)
			t->buffers[i].mem = NULL;
	}
	return rc;
}

/* A failure is only logged: packets are copied then. */
void loan_map(struct engine *e)
{
	char before[ERROR_TEXT_MAX];

	if (e->port->caps.in_place || e->port->caps.on_demand)
		return;
	error_save(before);
	if (map_all(e))
		frl_log(FRL_LOG_INFO,
			"packets with GPU data are copied, because the port cannot send "
			"them by reference: %s",
			frl_last_error());
	error_restore(before);
}

bool loan_unmap(struct engine *e)
{
	struct transfers *t = transfers_of(e);
	const struct port_ops *ops = e->port->ops;
	bool is_idle = true;

	for (uint32_t i = 0; i < t->n_buffers; i++) {
		struct side_buffer *buffer = &t->buffers[i];

		if (!buffer->mem)
			continue;
		if (!port_mem_flush(e->port, buffer->mem)) {
			is_idle = false;
			continue;
		}
		ops->mem_unmap(e->port, buffer->mem);
		buffer->mem = NULL;
	}
	if (is_idle && t->port_mem) {
		ops->mem_unmap(e->port, t->port_mem);
		t->port_mem = NULL;
	}
	return is_idle;
}

void loan_fini(struct transfers *t)
{
	free(t->buffers);
}

struct side_buffer *loan_take_spare(struct transfers *t)
{
	struct side_buffer *buffer = t->spare;

	t->spare = buffer->next;
	return buffer;
}

void loan_put_spare(struct transfers *t, struct side_buffer *buffer)
{
	buffer->next = t->spare;
	t->spare = buffer;
}

/* There is one link, so loans return in the order in which they were sent. */
static void take_back(struct engine *e)
{
	struct transfers *t = transfers_of(e);

	while (t->loaned && e->port->ops->mem_idle(e->port, t->loaned->mem)) {
		struct side_buffer *buffer = t->loaned;

		t->loaned = buffer->next;
		t->n_loaned--;
		loan_put_spare(t, buffer);
	}
}

void loan_offer(struct engine *e, struct side_packet *side)
{
	struct transfers *t = transfers_of(e);

	if (!side->buffer->mem || side->link == ENGINE_LOOP_LINK)
		return;
	if (t->n_loaned == LOANED_BUFFERS)
		take_back(e);
	if (t->n_loaned == LOANED_BUFFERS)
		return;
	t->n_loaned++;
	side->spare = loan_take_spare(t);
	side->packet.pieces[0].mem = side->buffer->mem;
	side->packet.copy = false;
}

void loan_settle(struct engine *e, struct side_packet *side, bool taken)
{
	struct transfers *t = transfers_of(e);
	struct side_buffer *buffer = side->buffer;

	if (!side->spare)
		return;
	if (taken) {
		buffer->next = NULL;
		if (t->loaned)
			t->loaned_last->next = buffer;
		else
			t->loaned = buffer;
		t->loaned_last = buffer;
		side->buffer = side->spare;
	} else {
		loan_put_spare(t, side->spare);
		t->n_loaned--;
	}
	side->spare = NULL;
}
