/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading of ferruled.conf: the interface between its files. config.c: file, syntax, defaults;
 * text.c: errors that libconfig would overlook; table.c: table of the settings; values.c and
 * fabric.c: values; check.c: checks across settings.
 */
#ifndef FERRULE_DAEMON_CONFIG_READ_H
#define FERRULE_DAEMON_CONFIG_READ_H

#include <libconfig.h>

#include "daemon/config/config.h"
#include "lib/base/net/addr.h"
#include "lib/base/net/ip.h"

/* Receives the error. There is at most one, since reading ends with it. */
struct config_reader {
	const char *path;
	char *error;
	size_t size;
};

/* Writes "FILE:LINE: SETTING: ..." and returns false, for a reader to return. */
bool refuse(struct config_reader *reader, const config_setting_t *setting, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Writes "FILE:LINE: ...", without the line if that is 0, and returns false. */
bool refuse_line(struct config_reader *reader, unsigned line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Writes a name such as "fabrics[0].ports[1].mac". */
void setting_name(const config_setting_t *setting, char *name, size_t size);
bool no_memory(struct config_reader *reader, const config_setting_t *setting);

/* ---- table.c */

/* How a setting is stored in its struct. */
struct setting_row {
	const char *name;
	bool (*read)(struct config_reader *reader, const struct setting_row *row,
		const config_setting_t *setting, void *target);
	size_t offset;
	size_t width; /* of a number: 2 or 4 bytes */
	uint32_t value, least, most;
	const char *range;
};

/* Reads every setting of the group `from` into the struct. Settings that are not in the table are
 * errors. */
bool read_settings(
	struct config_reader *reader, const config_setting_t *from, struct config *config);
bool read_fabric(
	struct config_reader *reader, const config_setting_t *from, struct config_fabric *fabric);
bool read_port(
	struct config_reader *reader, const config_setting_t *from, struct config_port *port);
void set_defaults(struct config *config);
/* Does nothing if the setting is not a number. */
void set_number(const struct setting_row *row, void *target, uint32_t value);

/* ---- values.c and fabric.c: readers of values, for the table */

typedef bool setting_reader(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target);

setting_reader read_number, read_boolean, read_host, read_socket, read_path, read_address;
setting_reader read_user, read_operators, read_users, read_groups, read_fabrics, read_fabric_name;
setting_reader read_ports, read_addresses, read_gateway, read_mac_pool, read_path_mtu;
setting_reader read_devargs, read_mac;

/* Returns a string of `least` to `most` printable characters, or NULL after an error. */
const char *read_text(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, size_t least, size_t most);
/* Stores a copy in *to and frees the previous text. */
bool keep_text(
	struct config_reader *reader, const config_setting_t *setting, const char *text, char **to);
/* Returns the length of a list or an array; negative after an error. */
int read_length(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, int least, int most);
/* Parses "10.1.2.3" or "fd00::1". */
bool parse_address(const char *text, struct frl_ip *ret_ip);
/* Returns true if both are in one subnet. The prefix is as in struct config_range. */
bool same_subnet(const struct frl_ip *a, const struct frl_ip *b, uint8_t prefix_len);

/* ---- text.c */

bool check_text(struct config_reader *reader, const char *text);

/* ---- check.c */

/* Checks across settings. `root` provides the lines for errors. */
bool check_config(
	struct config_reader *reader, const config_setting_t *root, const struct config *config);

#endif
