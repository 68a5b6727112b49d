/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Simple values of ferruled.conf: numbers, names, paths, addresses, users.
 */
#include "daemon/config/read.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <netinet/in.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

enum {
	PATH_LONGEST = 4095,
	NAME_LONGEST = 255,
	ADDRESS_LONGEST = INET6_ADDRSTRLEN,
	OPERATORS_MOST = 64,
	IDS_MOST = 256,
};

/* Returns true for a whole number. libconfig would convert other values. */
static bool integer_of(const config_setting_t *setting, long long *ret_value)
{
	int type = config_setting_type(setting);

	if (type != CONFIG_TYPE_INT && type != CONFIG_TYPE_INT64)
		return false;
	*ret_value = config_setting_get_int64(setting);
	return true;
}

bool read_number(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target)
{
	long long value;

	if (!integer_of(setting, &value))
		return refuse(reader, setting, "must be a whole number, %s", row->range);
	if (value < (long long)row->least || value > (long long)row->most)
		return refuse(reader, setting, "is %lld; must be %s", value, row->range);
	set_number(row, target, (uint32_t)value);
	return true;
}

bool read_boolean(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target)
{
	if (config_setting_type(setting) != CONFIG_TYPE_BOOL)
		return refuse(reader, setting, "must be true or false, without quotes");
	*(bool *)((char *)target + row->offset) = config_setting_get_bool(setting);
	return true;
}

const char *read_text(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, size_t least, size_t most)
{
	const char *text = NULL;
	size_t length, i;

	if (config_setting_type(setting) == CONFIG_TYPE_STRING)
		text = config_setting_get_string(setting);
	if (!text) {
		refuse(reader, setting, "must be a string in quotes: %s", row->range);
		return NULL;
	}
	length = strlen(text);
	for (i = 0; i < length; i++) {
		if (text[i] < ' ' || text[i] > '~') {
			refuse(reader, setting,
				"has a character that is not printable ASCII; must be %s",
				row->range);
			return NULL;
		}
	}
	if (length < least || length > most) {
		refuse(reader, setting, "has %zu characters; must be %s", length, row->range);
		return NULL;
	}
	return text;
}

bool keep_text(
	struct config_reader *reader, const config_setting_t *setting, const char *text, char **to)
{
	char *copy = strdup(text);

	if (!copy)
		return no_memory(reader, setting);
	free(*to);
	*to = copy;
	return true;
}

/* Like keep_text(), but stores NULL for an empty text. */
static bool keep_or_none(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target, const char *text)
{
	char **to = (char **)(void *)((char *)target + row->offset);

	if (text[0])
		return keep_text(reader, setting, text, to);
	free(*to);
	*to = NULL;
	return true;
}

int read_length(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, int least, int most)
{
	int type = config_setting_type(setting);
	int length;

	if (type != CONFIG_TYPE_ARRAY && type != CONFIG_TYPE_LIST) {
		refuse(reader, setting, "must be a list in ( ) or [ ]: %s", row->range);
		return -1;
	}
	length = config_setting_length(setting);
	if (length < least || length > most) {
		refuse(reader, setting, "has %d entries; must be %s", length, row->range);
		return -1;
	}
	return length;
}

bool read_host(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target)
{
	const char *text = read_text(reader, row, setting, 1, NAME_LONGEST);
	const char *p;

	if (!text)
		return false;
	for (p = text; *p; p++) {
		if (!isalnum((unsigned char)*p) && !strchr("._-", *p))
			return refuse(reader, setting, "is \"%s\"; must be %s", text, row->range);
	}
	return keep_or_none(reader, row, setting, target, text);
}

bool read_socket(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target)
{
	size_t most = sizeof(((struct sockaddr_un *)0)->sun_path) - 1;
	const char *text = read_text(reader, row, setting, 2, most);

	if (!text)
		return false;
	if (text[0] != '/')
		return refuse(reader, setting, "is \"%s\"; must be %s", text, row->range);
	return keep_or_none(reader, row, setting, target, text);
}

bool read_path(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target)
{
	const char *text = read_text(reader, row, setting, 0, PATH_LONGEST);

	if (!text)
		return false;
	if (text[0] && text[0] != '/')
		return refuse(reader, setting, "is \"%s\"; must be %s", text, row->range);
	return keep_or_none(reader, row, setting, target, text);
}

bool parse_address(const char *text, struct frl_ip *ret_ip)
{
	return !strchr(text, '/') && parse_ip(text, ret_ip, NULL) == 0;
}

bool read_address(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target)
{
	const char *text = read_text(reader, row, setting, 0, ADDRESS_LONGEST);
	struct frl_ip ip;

	if (!text)
		return false;
	if (text[0] && !parse_address(text, &ip))
		return refuse(
			reader, setting, "is \"%s\"; must be %s, without a port", text, row->range);
	return keep_or_none(reader, row, setting, target, text);
}

bool read_user(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target)
{
	const char *text = read_text(reader, row, setting, 0, NAME_LONGEST);

	if (!text)
		return false;
	if (text[0] && !getpwnam(text))
		return refuse(
			reader, setting, "there is no user \"%s\"; must be %s", text, row->range);
	return keep_or_none(reader, row, setting, target, text);
}

/* ---- users and groups */

static bool user_of_name(const char *name, uint32_t *ret_id)
{
	const struct passwd *entry = getpwnam(name);

	if (entry)
		*ret_id = entry->pw_uid;
	return entry;
}

static bool group_of_name(const char *name, uint32_t *ret_id)
{
	const struct group *entry = getgrnam(name);

	if (entry)
		*ret_id = entry->gr_gid;
	return entry;
}

static bool read_id(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, bool find(const char *name, uint32_t *ret_id),
	uint32_t *ret_id)
{
	long long number;
	const char *text;
	char *end;

	if (!integer_of(setting, &number)) {
		text = read_text(reader, row, setting, 1, NAME_LONGEST);
		if (!text)
			return false;
		if (find(text, ret_id))
			return true;
		errno = 0;
		number = strtoll(text, &end, 10);
		if (!isdigit((unsigned char)text[0]) || errno || *end)
			return refuse(reader, setting,
				"\"%s\" does not exist on this host; must be %s", text, row->range);
	}
	/* System calls use the last number for "none". */
	if (number < 0 || number >= UINT32_MAX)
		return refuse(reader, setting, "is %lld; a number must be 0 to %u", number,
			UINT32_MAX - 1);
	*ret_id = (uint32_t)number;
	return true;
}

_Static_assert(sizeof(uid_t) == sizeof(uint32_t) && sizeof(gid_t) == sizeof(uint32_t),
	"both are read as uint32_t");

static bool read_ids(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, bool find(const char *name, uint32_t *ret_id), int most,
	uint32_t **to, size_t *to_count)
{
	int length = read_length(reader, row, setting, 0, most);
	int i;

	if (length < 0)
		return false;
	*to = calloc((size_t)length + 1, sizeof(**to));
	if (!*to)
		return no_memory(reader, setting);
	for (i = 0; i < length; i++) {
		if (!read_id(reader, row, config_setting_get_elem(setting, (unsigned)i), find,
			    &(*to)[i]))
			return false;
	}
	*to_count = (size_t)length;
	return true;
}

bool read_operators(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target)
{
	struct config *config = target;

	return read_ids(reader, row, setting, group_of_name, OPERATORS_MOST, &config->operators,
		&config->n_operators);
}

bool read_users(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target)
{
	struct config_fabric *fabric = target;

	return read_ids(
		reader, row, setting, user_of_name, IDS_MOST, &fabric->users, &fabric->n_users);
}

bool read_groups(struct config_reader *reader, const struct setting_row *row,
	const config_setting_t *setting, void *target)
{
	struct config_fabric *fabric = target;

	return read_ids(
		reader, row, setting, group_of_name, IDS_MOST, &fabric->groups, &fabric->n_groups);
}
