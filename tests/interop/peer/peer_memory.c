/* SPDX-License-Identifier: BSD-3-Clause */
/* The peer program's commands about memory: patterns are written and verified in place. */
#include "tests/interop/peer/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint8_t *arena;

/* Byte `i` of a pattern. Offsets that differ by a path MTU or a power of two have different
 * bytes. */
static uint8_t pattern(uint32_t seed, uint64_t i)
{
	return (uint8_t)(seed + i * 7 + (i >> 8) * 13 + (i >> 16) * 29);
}

/* Returns arena[off] if `len` bytes are there. */
static uint8_t *span(const struct line *line, uint64_t *ret_len)
{
	uint64_t off = arg_number(line, "off", 0), len = arg_number(line, "len", 0);

	if (off > ARENA_SIZE || len > ARENA_SIZE - off)
		return NULL;
	*ret_len = len;
	return arena + off;
}

/* `from`: the index of the pattern's first byte. */
static int fill(uint8_t *at, uint64_t len, uint32_t seed, uint64_t from)
{
	for (uint64_t i = 0; i < len; i++)
		at[i] = pattern(seed, from + i);
	return 0;
}

/* Returns where it first differs; -1: nowhere. */
static int check(const uint8_t *at, uint64_t len, uint32_t seed, uint64_t from)
{
	long long bad = -1;

	for (uint64_t i = 0; i < len && bad < 0; i++)
		if (at[i] != pattern(seed, from + i))
			bad = (long long)i;
	answer(" bad=%lld", bad);
	return 0;
}

static int same(const uint8_t *at, uint64_t len, uint8_t value)
{
	long long bad = -1;

	for (uint64_t i = 0; i < len && bad < 0; i++)
		if (at[i] != value)
			bad = (long long)i;
	answer(" bad=%lld", bad);
	return 0;
}

static int get(const uint8_t *at, uint64_t len)
{
	if (len > 4096)
		return -EINVAL;
	answer(" hex=");
	for (uint64_t i = 0; i < len; i++)
		answer("%02x", at[i]);
	return 0;
}

static int get64(const uint8_t *at, uint64_t len)
{
	uint64_t value;

	if (len != sizeof(value))
		return -EINVAL;
	memcpy(&value, at, sizeof(value));
	answer(" value=%llu", (unsigned long long)value);
	return 0;
}

static int put64(uint8_t *at, uint64_t len, uint64_t value)
{
	if (len != sizeof(value))
		return -EINVAL;
	memcpy(at, &value, sizeof(value));
	return 0;
}

int memory_command(const struct line *line)
{
	uint64_t len = 0;
	uint8_t *at = span(line, &len);
	uint32_t seed = (uint32_t)arg_number(line, "seed", 0);

	if (!at)
		return -EFAULT;
	if (!strcmp(line->command, "fill"))
		return fill(at, len, seed, arg_number(line, "from", 0));
	if (!strcmp(line->command, "check"))
		return check(at, len, seed, arg_number(line, "from", 0));
	if (!strcmp(line->command, "set"))
		return memset(at, (int)arg_number(line, "value", 0), len) ? 0 : -EFAULT;
	if (!strcmp(line->command, "same"))
		return same(at, len, (uint8_t)arg_number(line, "value", 0));
	if (!strcmp(line->command, "get"))
		return get(at, len);
	if (!strcmp(line->command, "get64"))
		return get64(at, len);
	if (!strcmp(line->command, "put64"))
		return put64(at, len, arg_number(line, "value", 0));
	return UNKNOWN_COMMAND;
}
