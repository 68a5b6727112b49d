/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/ctl/table.h"

#include <string.h>

enum { GAP = 2 };

unsigned text_width(const char *text)
{
	unsigned width = 0;

	for (; *text; text++) {
		if (((unsigned char)*text & 0xc0) != 0x80)
			width++;
	}
	return width;
}

/* ---- numbers */

static void with_unit(char *text, size_t size, double value, double step, const char *const *units,
	size_t n_units)
{
	size_t i = 0;

	while (i + 1 < n_units && value >= step * 0.9995) {
		value /= step;
		i++;
	}
	if (i == 0 && value == (double)(uint64_t)value)
		snprintf(text, size, "%.0f%s", value, units[0]);
	else
		snprintf(text, size, "%.*f%s", value < 99.95 ? 1 : 0, value, units[i]);
}

void text_count(char *text, size_t size, double value)
{
	static const char *const units[] = { "", "k", "M", "G", "T", "P", "E" };

	if (value >= 0 && value < 10000 && value == (double)(uint64_t)value)
		snprintf(text, size, "%.0f", value);
	else
		with_unit(text, size, value, 1000, units, 7);
}

void text_bytes(char *text, size_t size, double value)
{
	static const char *const units[] = { " B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB" };

	with_unit(text, size, value, 1024, units, 7);
}

void text_age(char *text, size_t size, double seconds)
{
	if (seconds < 0)
		snprintf(text, size, "-");
	else if (seconds < 0.9995)
		snprintf(text, size, "%.0fms", seconds * 1e3);
	else if (seconds < 60)
		snprintf(text, size, "%.1fs", seconds);
	else if (seconds < 3600)
		snprintf(text, size, "%um%02us", (unsigned)seconds / 60, (unsigned)seconds % 60);
	else if (seconds < 86400)
		snprintf(text, size, "%uh%02um", (unsigned)seconds / 3600,
			(unsigned)seconds / 60 % 60);
	else
		snprintf(text, size, "%.0fd%02.0fh", seconds / 86400 - 0.5,
			(double)((uint64_t)seconds / 3600 % 24));
}

static void text_micros(char *text, size_t size, double micros)
{
	if (micros <= 0)
		snprintf(text, size, "-");
	else if (micros < 999.5)
		snprintf(text, size, "%.1fus", micros);
	else if (micros < 999500)
		snprintf(text, size, "%.1fms", micros / 1e3);
	else
		snprintf(text, size, "%.1fs", micros / 1e6);
}

/* ---- cells */

static double number_of(const json_t *value)
{
	return json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
}

static void text_of(const json_t *value, char *text, size_t size)
{
	size_t length = 0, i;
	json_t *word;

	if (json_is_string(value))
		snprintf(text, size, "%s", json_string_value(value));
	json_array_foreach(value, i, word)
	{
		if (length < size)
			length += (size_t)snprintf(text + length, size - length, "%s%s",
				i ? "," : "", json_string_value(word));
	}
}

static void format_number(enum cell cell, double value, char *text, size_t size)
{
	switch (cell) {
	case CELL_TEXT:
	case CELL_NUMBER: snprintf(text, size, "%.0f", value); break;
	case CELL_PSN: snprintf(text, size, "0x%06x", (unsigned)value); break;
	case CELL_COUNT: text_count(text, size, value); break;
	case CELL_BYTES: text_bytes(text, size, value); break;
	case CELL_AGE: text_age(text, size, value); break;
	case CELL_MICROS: text_micros(text, size, value); break;
	case CELL_YES: snprintf(text, size, "%s", value != 0 ? "yes" : ""); break;
	}
}

void table_cell(
	const struct table *table, size_t row, const struct column *column, char text[CELL_SIZE])
{
	const json_t *field = json_object_get(json_array_get(table->rows, row), column->field);
	const json_t *before = json_array_get(table->before, row);
	double value = number_of(field);

	text[0] = '\0';
	if (json_is_null(field))
		value = -1;
	if (!field || json_is_string(field) || json_is_array(field)) {
		text_of(field, text, CELL_SIZE);
		return;
	}
	if (column->counts && table->before) {
		double then = json_is_object(before)
			? number_of(json_object_get(before, column->field))
			: value;

		value = table->seconds > 0 && value > then ? (value - then) / table->seconds : 0;
		if (value > 0 && value < 1)
			value = 1; /* above zero, if slow */
		value = (double)(uint64_t)(value + 0.5);
	}
	format_number(column->cell, value, text, CELL_SIZE);
}

/* ---- the table */

static void title_of(
	const struct table *table, const struct column *column, char *text, size_t size)
{
	snprintf(text, size, "%s%s", column->title, column->counts && table->before ? "/s" : "");
}

static void measure(const struct table *table, unsigned widths[COLUMNS_MAX])
{
	char text[CELL_SIZE];
	size_t i, row;

	for (i = 0; i < table->n_columns; i++) {
		const struct column *column = &table->columns[i];

		title_of(table, column, text, sizeof(text));
		widths[i] = column->keep || table->wide ? text_width(text) : 0;
		for (row = 0; widths[i] && row < json_array_size(table->rows); row++) {
			unsigned width;

			table_cell(table, row, column, text);
			width = text_width(text);
			if (width > widths[i])
				widths[i] = width;
		}
	}
}

/* Removes columns (sets their width to 0) until the rest fits. */
static void fit(const struct table *table, unsigned widths[COLUMNS_MAX])
{
	for (;;) {
		size_t least = table->n_columns, i;
		unsigned total = 0;

		for (i = 0; i < table->n_columns; i++) {
			if (!widths[i])
				continue;
			total += widths[i] + (total ? GAP : 0);
			if (table->columns[i].keep < KEEP_ALWAYS &&
				(least == table->n_columns ||
					table->columns[i].keep <= table->columns[least].keep))
				least = i;
		}
		if (!table->width || total <= table->width || least == table->n_columns)
			return;
		widths[least] = 0;
	}
}

/* Prints a row of the table, or the titles, within the width. */
static void print_line(FILE *out, const struct table *table, const unsigned widths[COLUMNS_MAX],
	size_t row, bool titles)
{
	size_t i, last = 0;
	bool first = true;
	char text[CELL_SIZE];

	for (i = 0; i < table->n_columns; i++) {
		if (widths[i])
			last = i;
	}
	for (i = 0; i < table->n_columns; i++) {
		const struct column *column = &table->columns[i];
		unsigned pad;

		if (!widths[i])
			continue;
		if (titles)
			title_of(table, column, text, sizeof(text));
		else
			table_cell(table, row, column, text);
		pad = widths[i] - text_width(text);
		if (!first)
			fprintf(out, "%*s", GAP, "");
		first = false;
		if (column->cell != CELL_TEXT && column->cell != CELL_YES)
			fprintf(out, "%*s%s", (int)pad, "", text);
		else if (i == last)
			fputs(text, out);
		else
			fprintf(out, "%s%*s", text, (int)pad, "");
	}
	fputc('\n', out);
}

void table_print(FILE *out, const struct table *table)
{
	unsigned widths[COLUMNS_MAX];
	size_t n_rows = json_array_size(table->rows), rows = n_rows, row;

	measure(table, widths);
	fit(table, widths);
	print_line(out, table, widths, 0, true);
	if (table->lines && rows > table->lines)
		rows = table->lines > 1 ? table->lines - 1 : 1;
	for (row = 0; row < rows; row++)
		print_line(out, table, widths, row, false);
	if (rows < n_rows)
		fprintf(out, "... %zu more\n", n_rows - rows);
}
