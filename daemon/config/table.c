/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tables of settings, made from daemon/config/settings.h: for reading, for defaults and for
 * documentation.
 */
#include "daemon/config/read.h"

#include <string.h>

#include "daemon/config/settings.h"

#define NUMBER_ROW(type, member, value, least, most)                                               \
	{ #member, read_number, offsetof(struct type, member), sizeof(((struct type *)0)->member), \
		value, least, most, #least " to " #most },
#define VALUE_ROW(type, name, member, reader, range) \
	{ #name, read_##reader, offsetof(struct type, member), 0, 0, 0, 0, range },
#define NUMBER_DOC(prefix, member, value, least, most, help) \
	{ prefix #member, #value, #least " to " #most, help },
#define VALUE_DOC(prefix, name, text, range, help) { prefix #name, text, range, help },

#define TOP_NUMBER(member, value, least, most, help) NUMBER_ROW(config, member, value, least, most)
#define TOP_VALUE(name, member, reader, text, range, help) \
	VALUE_ROW(config, name, member, reader, range)
static const struct setting_row settings[] = { CONFIG_SETTINGS(TOP_NUMBER, TOP_VALUE) };

#define FABRIC_NUMBER(member, value, least, most, help) \
	NUMBER_ROW(config_fabric, member, value, least, most)
#define FABRIC_VALUE(name, member, reader, text, range, help) \
	VALUE_ROW(config_fabric, name, member, reader, range)
static const struct setting_row fabric_settings[] = { CONFIG_FABRIC_SETTINGS(
	FABRIC_NUMBER, FABRIC_VALUE) };

#define PORT_VALUE(name, member, reader, text, range, help) \
	VALUE_ROW(config_port, name, member, reader, range)
static const struct setting_row port_settings[] = { CONFIG_PORT_SETTINGS(, PORT_VALUE) };

#define TOP_NUMBER_DOC(member, value, least, most, help) \
	NUMBER_DOC("", member, value, least, most, help)
#define TOP_VALUE_DOC(name, member, reader, text, range, help) \
	VALUE_DOC("", name, text, range, help)
#define FABRIC_NUMBER_DOC(member, value, least, most, help) \
	NUMBER_DOC("fabrics.", member, value, least, most, help)
#define FABRIC_VALUE_DOC(name, member, reader, text, range, help) \
	VALUE_DOC("fabrics.", name, text, range, help)
#define PORT_VALUE_DOC(name, member, reader, text, range, help) \
	VALUE_DOC("fabrics.ports.", name, text, range, help)
static const struct config_row docs[] = { CONFIG_SETTINGS(TOP_NUMBER_DOC, TOP_VALUE_DOC)
		CONFIG_FABRIC_SETTINGS(FABRIC_NUMBER_DOC, FABRIC_VALUE_DOC)
			CONFIG_PORT_SETTINGS(, PORT_VALUE_DOC) };

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

const struct config_row *config_rows(size_t *ret_count)
{
	*ret_count = COUNT(docs);
	return docs;
}

static const struct setting_row *find_row(
	const struct setting_row *rows, size_t count, const char *name)
{
	size_t i;

	for (i = 0; i < count; i++) {
		if (strcmp(rows[i].name, name) == 0)
			return &rows[i];
	}
	return NULL;
}

/* Returns the setting with the longest common prefix, of three letters at least. */
static const struct setting_row *nearest_row(
	const struct setting_row *rows, size_t count, const char *name)
{
	const struct setting_row *best = NULL;
	size_t best_length = 2;
	size_t i;

	for (i = 0; i < count; i++) {
		size_t length = 0;

		while (name[length] && name[length] == rows[i].name[length])
			length++;
		if (length > best_length) {
			best_length = length;
			best = &rows[i];
		}
	}
	return best;
}

static bool refuse_unknown(struct config_reader *reader, const config_setting_t *setting,
	const struct setting_row *nearest)
{
	if (nearest)
		return refuse(reader, setting, "no such setting; is %s meant?", nearest->name);
	return refuse(reader, setting, "no such setting; man ferruled.conf lists them");
}

static bool read_rows(struct config_reader *reader, const config_setting_t *from,
	const struct setting_row *rows, size_t count, void *target)
{
	int length = config_setting_length(from);
	int i;

	for (i = 0; i < length; i++) {
		const config_setting_t *setting = config_setting_get_elem(from, (unsigned)i);
		const char *name = config_setting_name(setting);
		const struct setting_row *row = find_row(rows, count, name);

		if (!row)
			return refuse_unknown(reader, setting, nearest_row(rows, count, name));
		if (!row->read(reader, row, setting, target))
			return false;
	}
	return true;
}

bool read_settings(
	struct config_reader *reader, const config_setting_t *from, struct config *config)
{
	return read_rows(reader, from, settings, COUNT(settings), config);
}

bool read_fabric(
	struct config_reader *reader, const config_setting_t *from, struct config_fabric *fabric)
{
	return read_rows(reader, from, fabric_settings, COUNT(fabric_settings), fabric);
}

bool read_port(struct config_reader *reader, const config_setting_t *from, struct config_port *port)
{
	return read_rows(reader, from, port_settings, COUNT(port_settings), port);
}

void set_number(const struct setting_row *row, void *target, uint32_t value)
{
	char *place = (char *)target + row->offset;
	uint16_t narrow = (uint16_t)value;

	if (row->width == sizeof(narrow))
		memcpy(place, &narrow, sizeof(narrow));
	else if (row->width == sizeof(value))
		memcpy(place, &value, sizeof(value));
}

void set_defaults(struct config *config)
{
	size_t i;

	/* Numbers of a fabric are zero by default. */
	for (i = 0; i < COUNT(settings); i++)
		set_number(&settings[i], config, settings[i].value);
}
