/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading ferruled.conf, between the files that do it: config.c (files, syntax, defaults),
 * config_text.c (what libconfig would overlook), config_table.c (which setting is read by what),
 * config_values.c and config_fabric.c (values), config_check.c (what settings have to do with each
 * other).
 */
#ifndef FERRULE_DAEMON_CONFIG_READ_H
#define FERRULE_DAEMON_CONFIG_READ_H

#include <libconfig.h>

#include "daemon/config.h"
#include "lib/base/addr.h"
#include "lib/base/ip.h"

/* Where the error goes; there is one at most, for reading ends with it. */
struct config_reader {
	const char *path;
	char *error;
	size_t size;
};

/* "FILE:LINE: SETTING: ..."; false, so that a reader can return it. */
bool refuse(struct config_reader *reader, const config_setting_t *setting, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* "FILE:LINE: ..."; without the line when that is 0. */
bool refuse_line(struct config_reader *reader, unsigned line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* "fabrics[0].ports[1].mac". */
void setting_name(const config_setting_t *setting, char *name, size_t size);
bool no_memory(struct config_reader *reader, const config_setting_t *setting);

/* ---- config_table.c */

/* How a setting gets into its struct. */
struct setting_row {
	const char *name;
	bool (*read)(struct config_reader *reader, const struct setting_row *row,
		const config_setting_t *setting, void *target);
	size_t offset;
	size_t width; /* of a number: 2 or 4 bytes */
	uint32_t value, least, most;
	const char *range;
};

/* Each setting of the group `from` is one of the table, and goes into `target`. */
bool read_settings(
	struct config_reader *reader, const config_setting_t *from, struct config *config);
bool read_fabric(
	struct config_reader *reader, const config_setting_t *from, struct config_fabric *fabric);
bool read_port(
	struct config_reader *reader, const config_setting_t *from, struct config_port *port);
void set_defaults(struct config *config);
/* Rows of other things than numbers are left alone. */
void set_number(const struct setting_row *row, void *target, uint32_t value);

/* ---- config_values.c and config_fabric.c: values of settings, the table's `read` */

typedef bool setting_reader(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target);

setting_reader read_number, read_boolean, read_host, read_socket, read_path, read_address;
setting_reader read_user, read_operators, read_users, read_groups, read_fabrics, read_fabric_name;
setting_reader read_ports, read_addresses, read_gateway, read_mac_pool, read_path_mtu;
setting_reader read_devargs, read_mac;

/* A string of `least` to `most` printable characters; NULL: refused. */
const char *read_text(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, size_t least, size_t most);
/* A copy in *to, in place of what was there. */
bool keep_text(
	struct config_reader *reader, const config_setting_t *setting, const char *text, char **to);
/* How many elements a list or an array has; negative: refused. */
int read_length(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, int least, int most);
/* "10.1.2.3" or "fd00::1". */
bool parse_address(const char *text, struct frl_ip *ret_ip);
/* Are both in one subnet? The prefix as in struct config_range. */
bool same_subnet(const struct frl_ip *a, const struct frl_ip *b, uint8_t prefix_len);

/* ---- config_text.c */

bool check_text(struct config_reader *reader, const char *text);

/* ---- config_check.c */

/* What no setting alone can be blamed for. `root` tells the lines. */
bool check_config(
	struct config_reader *reader, const config_setting_t *root, const struct config *config);

#endif
