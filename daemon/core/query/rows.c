/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports of any length, sent in parts, and their memory. */
#include "daemon/core/query/query.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16 << 10, ALIGN = 16 };

struct rows_block {
	struct rows_block *next;
	size_t used, size;
	_Alignas(ALIGN) uint8_t bytes[];
};

void rows_init(struct rows *rows, struct core *core, struct request *request, uint64_t now_ns)
{
	*rows = (struct rows){ .core = core, .request = request, .now_ns = now_ns };
}

static void free_blocks(struct rows *rows)
{
	while (rows->blocks) {
		struct rows_block *next = rows->blocks->next;

		free(rows->blocks);
		rows->blocks = next;
	}
}

void rows_fini(struct rows *rows)
{
	free_blocks(rows);
	free(rows->list);
	rows->list = NULL;
}

void *rows_alloc(struct rows *rows, size_t size)
{
	struct rows_block *block = rows->blocks;
	size_t taken = (size + ALIGN - 1) / ALIGN * ALIGN;

	if (!block || block->size - block->used < taken) {
		size_t room = taken > BLOCK ? taken : BLOCK;

		block = malloc(sizeof(*block) + room);
		if (!block) {
			rows->no_memory = true;
			return NULL;
		}
		block->size = room;
		block->used = 0;
		block->next = rows->blocks;
		rows->blocks = block;
	}
	block->used += taken;
	return memset(block->bytes + block->used - taken, 0, size);
}

char *rows_text(struct rows *rows, const char *format, ...)
{
	static char nothing[1];
	va_list args;
	char *text;
	int length;

	va_start(args, format);
	length = vsnprintf(NULL, 0, format, args);
	va_end(args);
	text = length < 0 ? NULL : rows_alloc(rows, (size_t)length + 1);
	if (!text)
		return nothing;
	va_start(args, format);
	vsnprintf(text, (size_t)length + 1, format, args);
	va_end(args);
	frame_clean_text(text); /* it may come from a page, or have been cut */
	return text;
}

double rows_age_s(const struct rows *rows, uint64_t then_ns)
{
	if (!then_ns)
		return -1;
	return then_ns > rows->now_ns ? 0 : (double)(rows->now_ns - then_ns) / 1e9;
}

/* Sends the list as rows of this kind. */
static void send_part(struct rows *rows, enum _Ctl__QueryKind kind)
{
	Ctl__Report report = CTL__REPORT__INIT;

	report.more = true;
	report.daemon = report_daemon(rows, false);
	if (!report.daemon)
		return;
	switch ((int)kind) {
	case CTL__QUERY_KIND__QUERY_PORTS:
		report.n_ports = rows->n_list;
		report.ports = (Ctl__PortInfo **)rows->list;
		break;
	case CTL__QUERY_KIND__QUERY_QPS:
		report.n_qps = rows->n_list;
		report.qps = (Ctl__QpInfo **)rows->list;
		break;
	case CTL__QUERY_KIND__QUERY_CONNECTIONS:
		report.n_connections = rows->n_list;
		report.connections = (Ctl__ConnInfo **)rows->list;
		break;
	case CTL__QUERY_KIND__QUERY_PEERS:
		report.n_peers = rows->n_list;
		report.peers = (Ctl__PeerInfo **)rows->list;
		break;
	}
	session_send(rows->core, rows->request->session,
		&ENVELOPE(rows->request->seq, REPORT, report, &report));
}

void rows_flush(struct rows *rows, enum _Ctl__QueryKind kind)
{
	if (rows->n_list && !rows->no_memory)
		send_part(rows, kind);
	rows->n_list = 0;
	rows->bytes = 0;
	free_blocks(rows);
}

void rows_count(struct rows *rows, uint32_t slots)
{
	rows->slots += slots;
	if (rows->slots >= REPORT_SLOTS)
		rows->is_full = true;
}

void rows_add(struct rows *rows, ProtobufCMessage *row)
{
	if (rows->no_memory)
		return;
	if (rows->n_list == rows->room) {
		size_t room = rows->room ? 2 * rows->room : 64;
		void **list = realloc(rows->list, room * sizeof(*list));

		if (!list) {
			rows->no_memory = true;
			return;
		}
		rows->list = list;
		rows->room = room;
	}
	rows->list[rows->n_list++] = row;
	rows->bytes += protobuf_c_message_get_packed_size(row) + 8;
	if (rows->bytes >= REPORT_PART)
		rows->is_full = true;
}
