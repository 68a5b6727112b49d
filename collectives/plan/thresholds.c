/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/plan/thresholds.h"

#include <stdio.h>

struct threshold {
	const char *name, *unit;
	int value;
};

#define ROW(constant, value, name, unit) { name, unit, constant },

static int write_all(const struct threshold thresholds[], int n, char *text, size_t size)
{
	size_t used = 0;

	for (int i = 0; i < n; i++) {
		const struct threshold *t = &thresholds[i];
		size_t room = used < size ? size - used : 0;
		int length = snprintf(room > 0 ? text + used : NULL, room, "%s%s %d%s%s",
			i == 0 ? "thresholds: " : ", ", t->name, t->value, t->unit,
			i == n - 1 ? "\n" : "");

		if (length < 0)
			return length;
		used += (size_t)length;
	}
	return (int)used;
}

int thresholds_of_packets(char *text, size_t size)
{
	static const struct threshold rows[] = { THRESHOLDS_OF_PACKETS(ROW) };

	return write_all(rows, sizeof(rows) / sizeof(rows[0]), text, size);
}

int thresholds_of_shm(char *text, size_t size)
{
	static const struct threshold rows[] = { THRESHOLDS_OF_SHM(ROW) };

	return write_all(rows, sizeof(rows) / sizeof(rows[0]), text, size);
}
