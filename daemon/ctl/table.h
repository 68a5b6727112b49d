/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * JSON objects as rows of a table: columns name members, numbers are right-aligned with units, and
 * what does not fit the width leaves by importance, the least important column first.
 */
#ifndef FERRULE_DAEMON_CTL_TABLE_H
#define FERRULE_DAEMON_CTL_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

enum cell {
	CELL_TEXT,   /* as it is; a list: with commas between */
	CELL_NUMBER, /* as it is */
	CELL_PSN,    /* 0x00beef */
	CELL_COUNT,  /* 12.3k */
	CELL_BYTES,  /* 1.5 GiB */
	CELL_AGE,    /* seconds: 4.2s, 12m, 3h, 8d; null: - */
	CELL_MICROS, /* microseconds: 12.1us, 3.4ms */
	CELL_YES,    /* yes, or nothing */
};

enum {
	KEEP_ALWAYS = 100,
	COLUMNS_MAX = 40,
	CELL_SIZE = 160,
};

struct column {
	const char *title;
	const char *field; /* of the object */
	enum cell cell;
	uint8_t keep; /* the smaller, the sooner it leaves; 0: only with --wide */
	bool counts;  /* a counter: its rate per second where there was a row before */
};

struct table {
	const struct column *columns;
	size_t n_columns;
	const json_t *rows; /* array of objects */
	/* The same things some time ago, null where one is new; or NULL: no rates. */
	const json_t *before;
	double seconds;
	unsigned width; /* 0: everything fits */
	unsigned lines; /* at most, of rows; 0: all */
	bool wide;      /* also what only --wide shows */
};

void table_print(FILE *out, const struct table *table);

/* Writes the text of a cell. Never fails: a row without such a member has an empty one. */
void table_cell(
	const struct table *table, size_t row, const struct column *column, char text[CELL_SIZE]);

/* Numbers with units, as in cells. */
void text_count(char *text, size_t size, double value);
void text_bytes(char *text, size_t size, double value);
void text_age(char *text, size_t size, double seconds);

/* Columns of a terminal that a text takes. */
unsigned text_width(const char *text);

#endif
