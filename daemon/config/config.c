/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The configuration as a whole: defaults, reading of the file, destruction.
 */
#include "daemon/config/read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config/settings.h"

enum {
	FILE_LARGEST = 256 << 10, /* libconfig's time grows with the square of the size */
	NAME_SIZE = 160,
};

/* ---- errors */

/* Known settings are nested at most four deep. Reading ends at the first unknown one. */
void setting_name(const config_setting_t *setting, char *name, size_t size)
{
	const config_setting_t *parent = config_setting_parent(setting);
	char before[NAME_SIZE] = "";

	if (!parent)
		return;
	setting_name(parent, before, sizeof(before));
	if (config_setting_name(setting))
		snprintf(name, size, "%s%s%s", before, before[0] ? "." : "",
			config_setting_name(setting));
	else
		snprintf(name, size, "%s[%d]", before, config_setting_index(setting));
}

static void explain(struct config_reader *reader, const char *place, const char *format,
	va_list args) __attribute__((format(printf, 3, 0)));

static void explain(
	struct config_reader *reader, const char *place, const char *format, va_list args)
{
	int length = snprintf(reader->error, reader->size, "%s:%s ", reader->path, place);

	if (length >= 0 && (size_t)length < reader->size)
		vsnprintf(reader->error + length, reader->size - (size_t)length, format, args);
}

bool refuse(struct config_reader *reader, const config_setting_t *setting, const char *format, ...)
{
	char name[NAME_SIZE] = "", place[NAME_SIZE + 16];
	va_list args;

	setting_name(setting, name, sizeof(name));
	snprintf(place, sizeof(place), "%u: %s:", (unsigned)config_setting_source_line(setting),
		name);
	va_start(args, format);
	explain(reader, place, format, args);
	va_end(args);
	return false;
}

bool refuse_line(struct config_reader *reader, unsigned line, const char *format, ...)
{
	char place[16] = "";
	va_list args;

	if (line)
		snprintf(place, sizeof(place), "%u:", line);
	va_start(args, format);
	explain(reader, place, format, args);
	va_end(args);
	return false;
}

bool no_memory(struct config_reader *reader, const config_setting_t *setting)
{
	return refuse(reader, setting, "out of memory");
}

/* ---- the file */

/* Refuses files by which other users could control a daemon with privileges. */
static bool may_trust(struct config_reader *reader, int fd)
{
	struct stat stat;

	if (fstat(fd, &stat) < 0)
		return refuse_line(reader, 0, "cannot be checked: %s", strerror(errno));
	if (!S_ISREG(stat.st_mode))
		return refuse_line(reader, 0, "is not a regular file; must be one");
	if (geteuid() == 0 && (stat.st_mode & S_IWOTH))
		return refuse_line(reader, 0,
			"is writable for all users, and the daemon runs as root; must not be: "
			"chmod o-w");
	return true;
}

/* Returns the whole file with a zero byte at the end, to be freed. */
static char *read_all(struct config_reader *reader, int fd)
{
	char *text = malloc(FILE_LARGEST + 1);
	size_t length = 0;
	ssize_t count;

	if (!text) {
		refuse_line(reader, 0, "out of memory");
		return NULL;
	}
	do {
		count = read(fd, text + length, FILE_LARGEST + 1 - length);
		if (count > 0)
			length += (size_t)count;
	} while (count > 0 && length <= FILE_LARGEST);
	if (count < 0)
		refuse_line(reader, 0, "cannot be read: %s", strerror(errno));
	else if (length > FILE_LARGEST)
		refuse_line(reader, 0, "is too large; must have at most %d bytes", FILE_LARGEST);
	else if (memchr(text, '\0', length))
		refuse_line(reader, 0, "has zero bytes; must be text");
	else {
		text[length] = '\0';
		return text;
	}
	free(text);
	return NULL;
}

static char *read_file(struct config_reader *reader)
{
	/* Without O_NONBLOCK open() would block on a FIFO of that name. */
	int fd = open(reader->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char *text = NULL;

	if (fd < 0) {
		refuse_line(reader, 0, "cannot be opened: %s", strerror(errno));
		return NULL;
	}
	if (may_trust(reader, fd))
		text = read_all(reader, fd);
	close(fd);
	return text;
}

/* ---- the configuration */

static bool read_tree(
	struct config_reader *reader, const config_setting_t *root, struct config *config)
{
	if (!read_settings(reader, root, config))
		return false;
	if (config_setting_get_member(root, "metrics_port") ||
		config_setting_get_member(root, "metrics_address"))
		config->metrics_by_default = false;
	return check_config(reader, root, config);
}

static bool read_config(struct config_reader *reader, const char *text, struct config *config)
{
	config_t tree;
	bool ok;

	config_init(&tree);
	if (config_read_string(&tree, text) == CONFIG_TRUE)
		ok = read_tree(reader, config_root_setting(&tree), config);
	else
		ok = refuse_line(reader, (unsigned)config_error_line(&tree),
			"%s; a setting is NAME = VALUE; with words in quotes",
			config_error_text(&tree) ? config_error_text(&tree) : "out of memory");
	config_destroy(&tree);
	return ok;
}

struct config *config_load(const char *path, char *error, size_t size)
{
	struct config_reader reader = { .path = path, .error = error, .size = size };
	struct config *config = NULL;
	char *text = read_file(&reader);

	if (!text)
		return NULL;
	if (check_text(&reader, text)) {
		config = config_new();
		if (!config || !(config->path = strdup(path)))
			refuse_line(&reader, 0, "out of memory");
		else if (read_config(&reader, text, config))
			goto done;
		config_free(config);
		config = NULL;
	}
done:
	free(text);
	return config;
}

struct config *config_new(void)
{
	struct config *config = calloc(1, sizeof(*config));
	char host[256] = "";

	if (!config)
		return NULL;
	set_defaults(config);
	if (gethostname(host, sizeof(host) - 1) < 0 || !host[0])
		snprintf(host, sizeof(host), "localhost");
	config->host = strdup(host);
	config->socket = strdup(CONFIG_DEFAULT_SOCKET);
	config->metrics_address = strdup(CONFIG_LOOPBACK);
	config->metrics_by_default = true;
	if (!config->host || !config->socket || !config->metrics_address) {
		config_free(config);
		return NULL;
	}
	return config;
}

static void free_fabric(struct config_fabric *fabric)
{
	size_t i;

	for (i = 0; i < fabric->n_ports; i++)
		free(fabric->ports[i].devargs);
	free(fabric->name);
	free(fabric->ports);
	free(fabric->addresses);
	free(fabric->gateway);
	free(fabric->users);
	free(fabric->groups);
}

void config_free(struct config *config)
{
	size_t i;

	if (!config)
		return;
	for (i = 0; i < config->n_fabrics; i++)
		free_fabric(&config->fabrics[i]);
	free(config->fabrics);
	free(config->path);
	free(config->host);
	free(config->socket);
	free(config->listen_address);
	free(config->tls_certificate);
	free(config->tls_key);
	free(config->tls_ca);
	free(config->metrics_address);
	free(config->user);
	free(config->operators);
	free(config);
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

bool config_is_packet(const char *devargs)
{
	return strncmp(devargs, "packet:", strlen("packet:")) == 0;
}

bool config_is_shared(const struct config_port *port)
{
	return config_is_packet(port->devargs) && !port->has_mac;
}

bool config_has_packet(const struct config *config)
{
	for (size_t i = 0; i < config->n_fabrics; i++)
		for (size_t k = 0; k < config->fabrics[i].n_ports; k++)
			if (config_is_packet(config->fabrics[i].ports[k].devargs))
				return true;
	return false;
}

const char *config_fixed_difference(const struct config *now, const struct config *wanted)
{
	if (!same_text(now->socket, wanted->socket))
		return "socket";
	if (!same_text(now->user, wanted->user))
		return "user";
	if (!same_text(now->listen_address, wanted->listen_address))
		return "listen_address";
	if (now->listen_port != wanted->listen_port)
		return "listen_port";
	if (!same_text(now->metrics_address, wanted->metrics_address))
		return "metrics_address";
	if (now->metrics_port != wanted->metrics_port)
		return "metrics_port";
	return NULL;
}
