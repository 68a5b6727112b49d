/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * JSON objects as rows of a table. Columns name members. Numbers are right-aligned with units. If
 * the width is too small, the least important columns are omitted.
 */
#ifndef FERRULE_DAEMON_CTL_TABLE_H
#define FERRULE_DAEMON_CTL_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

enum cell {
	CELL_TEXT,   /* unchanged; a list: separated by commas */
	CELL_NUMBER, /* unchanged */
	CELL_PSN,    /* 0x00beef */
	CELL_COUNT,  /* 12.3k */
	CELL_BYTES,  /* 1.5 GiB */
	CELL_AGE,    /* seconds: 4.2s, 12m, 3h, 8d; null: - */
	CELL_MICROS, /* microseconds: 12.1us, 3.4ms */
	CELL_YES,    /* yes, or empty */
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
	uint8_t keep; /* importance; 0: only with --wide */
	bool counts;  /* a counter: shown as rate per second if there is an earlier row */
};

struct table {
	const struct column *columns;
	size_t n_columns;
	const json_t *rows; /* array of objects */
	/* The same objects some time ago, null for a new one; or NULL: no rates. */
	const json_t *before;
	double seconds;
	unsigned width; /* 0: unlimited */
	unsigned lines; /* limit of rows; 0: all */
	bool wide;      /* includes columns for --wide only */
};

void table_print(FILE *out, const struct table *table);

/* Writes the text of a cell: empty if the row has no such member. */
void table_cell(
	const struct table *table, size_t row, const struct column *column, char text[CELL_SIZE]);

/* Numbers with units, as in cells. */
void text_count(char *text, size_t size, double value);
void text_bytes(char *text, size_t size, double value);
void text_age(char *text, size_t size, double seconds);

/* Returns how many terminal columns a text takes. */
unsigned text_width(const char *text);

#endif
