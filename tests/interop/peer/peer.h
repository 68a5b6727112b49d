/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The peer program: one end of an interop test, controlled line by line. A line is a command and
 * its arguments ("post_send qp=0 op=2 sge=0:64:1"). The answer is one line, "ok NAME=VALUE..." or
 * "error ERRNO TEXT". The driver holds the scenarios and the expected answers of both ends.
 */
#ifndef INTEROP_PEER_H
#define INTEROP_PEER_H

#include <stddef.h>
#include <stdint.h>

#include "tests/interop/peer/nic.h"

enum {
	ARENA_SIZE = 8 << 20, /* the memory that offsets in commands are in */
	MAX_LINE = 65536,
};

/* A parsed line: the command and its arguments. */
struct line {
	const char *command;
	struct {
		const char *name, *value;
	} arg[64];
	int n_args;
};

/* Returns the value of an argument, or the default if it is missing. */
uint64_t arg_number(const struct line *line, const char *name, uint64_t otherwise);
const char *arg_text(const struct line *line, const char *name);

/* The kinds of objects, in an order in which they can be destroyed. */
enum kind {
	KIND_QP,
	KIND_AH,
	KIND_SRQ,
	KIND_MW,
	KIND_MR,
	KIND_CQ,
	KINDS,
};

/* Appends to the answer. */
void answer(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Memory: fill, check, get and put. Objects: all other commands. Each returns 0 or -errno, or
 * UNKNOWN_COMMAND. */
enum { UNKNOWN_COMMAND = 1 };

extern uint8_t *arena;

int memory_command(const struct line *line);
int object_command(const struct line *line);
int work_command(const struct line *line);

/* Returns the object that an argument names, or NULL. */
void *object_from(const struct line *line, const char *name, enum kind kind);
/* Returns the memory region `number` and the address, in its address space, of arena[offset]. */
void *region(unsigned number, uint64_t offset, uint64_t *ret_addr);

#endif
