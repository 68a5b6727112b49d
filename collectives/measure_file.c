/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What was measured is kept in a file, so that the next job need not measure, and chooses the same.
 * One file for each key, in a folder of the user's own:
 *
 *	ferrule costs 1
 *	key memif 4096 1 ...
 *	made 1763720000
 *	costs latency=2048,byte=0.25,...
 */
#include "collectives/measure.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "collectives/communicator.h"
#include "collectives/version.h"

enum {
	FILE_MOST = 1024, /* bytes */
	NAME_MOST = 64,
	PATH_MOST = 4096,
	AGE_MOST_S = 7 * 24 * 3600,
};

static const char first_line[] = "ferrule costs 1";

/* ---- keys and names */

/* "net_tap" of "net_tap0,iface=...": which port of a kind it is changes from job to job. */
static size_t kind_length(const char *port)
{
	size_t length = strcspn(port, ",:0123456789");

	return length > 0 ? length : strspn(port, ".:0123456789abcdef");
}

void measure_key(const struct frl_comm *comm, char key[MEASURE_KEY])
{
	const struct frl_device_attr *attr = &comm->rails[0].attr;
	struct utsname machine;
	bool is_pci = attr->port[0] >= '0' && attr->port[0] <= '9';

	if (uname(&machine) != 0)
		machine.nodename[0] = '\0';
	snprintf(key, MEASURE_KEY, "%s %.*s fabric %s mtu %u lossless %d rails %u on %.64s",
		FERRULE_VERSION, is_pci ? 3 : (int)kind_length(attr->port),
		is_pci ? "pci" : attr->port, attr->fabric[0] ? attr->fabric : "-", attr->path_mtu,
		attr->lossless, comm->n_rails, machine.nodename);
	for (char *c = key; *c; c++) {
		if (*c < ' ' || *c > '~')
			*c = '?';
	}
}

/* FNV-1a. */
static void name_of(const char *key, char name[NAME_MOST])
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (; *key; key++)
		hash = (hash ^ (uint8_t)*key) * UINT64_C(0x100000001b3);
	snprintf(name, NAME_MOST, "costs-%016" PRIx64, hash);
}

/* ---- the folder */

/* Of this user, and nobody else may write into it. */
static bool is_own(int fd, mode_t kind)
{
	struct stat info;

	return fstat(fd, &info) == 0 && (info.st_mode & S_IFMT) == kind &&
		info.st_uid == geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

static int open_folder(const char *folder)
{
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (is_own(fd, S_IFDIR))
		return fd;
	close(fd);
	return -EPERM;
}

/* And the one that it is in, ~/.cache, which may not be there either. */
static int make_folder(const char *folder)
{
	char parent[PATH_MOST];
	char *slash;

	if (mkdir(folder, 0700) == 0 || errno != ENOENT)
		return open_folder(folder);
	if (snprintf(parent, sizeof(parent), "%s", folder) >= (int)sizeof(parent))
		return -ENAMETOOLONG;
	slash = strrchr(parent, '/');
	if (!slash || slash == parent)
		return -ENOENT;
	*slash = '\0';
	if (mkdir(parent, 0700) != 0 || mkdir(folder, 0700) != 0)
		return -errno;
	return open_folder(folder);
}

/* ---- reading */

/* What is behind `name` and a blank on the next line of *text; NULL: another line. */
static char *line_of(char **text, const char *name)
{
	size_t length = strlen(name);
	char *line = *text, *end = strchr(line, '\n');

	if (!end || strncmp(line, name, length) != 0 || line[length] != ' ')
		return NULL;
	*end = '\0';
	*text = end + 1;
	return line + length + 1;
}

static int parse(char *text, const char *key, int64_t now_s, struct tuner_costs *ret_costs,
	int64_t *ret_made_s)
{
	char *value = line_of(&text, "ferrule"), *end;

	if (!value || strcmp(value, first_line + strlen("ferrule ")) != 0)
		return -ENOENT;
	value = line_of(&text, "key");
	if (!value || strcmp(value, key) != 0)
		return -ENOENT;
	value = line_of(&text, "made");
	if (!value)
		return -ENOENT;
	*ret_made_s = strtoll(value, &end, 10);
	if (end == value || *end != '\0' || *ret_made_s < 0 || *ret_made_s > now_s ||
		now_s - *ret_made_s > AGE_MOST_S)
		return -ENOENT;
	value = line_of(&text, "costs");
	if (!value || *text != '\0' || tuner_read_costs(value, ret_costs) < 0)
		return -ENOENT;
	return 0;
}

int measure_file_read(const char *folder, const char *key, int64_t now_s,
	struct tuner_costs *ret_costs, int64_t *ret_made_s)
{
	char name[NAME_MOST], text[FILE_MOST];
	int at = open_folder(folder), fd;
	ssize_t size = -1;

	if (at < 0)
		return -ENOENT;
	name_of(key, name);
	fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	close(at);
	if (fd < 0)
		return -ENOENT;
	if (is_own(fd, S_IFREG))
		size = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (size < 0 || memchr(text, '\0', (size_t)size))
		return -ENOENT;
	text[size] = '\0';
	return parse(text, key, now_s, ret_costs, ret_made_s);
}

/* ---- writing */

static int write_text(int at, const char *name, const char *text)
{
	size_t size = strlen(text);
	int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int err = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, size) != (ssize_t)size)
		err = -EIO;
	if (close(fd) != 0)
		err = -EIO;
	return err;
}

int measure_file_write(
	const char *folder, const char *key, const struct tuner_costs *costs, int64_t made_s)
{
	char name[NAME_MOST], fresh[NAME_MOST + 32], words[TUNER_TEXT], text[FILE_MOST];
	uint64_t random;
	int at, err;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return -EIO;
	at = make_folder(folder);
	if (at < 0)
		return at;
	name_of(key, name);
	snprintf(fresh, sizeof(fresh), ".%s-%016" PRIx64, name, random);
	tuner_write_costs(costs, words);
	snprintf(text, sizeof(text), "%s\nkey %s\nmade %" PRId64 "\ncosts %s\n", first_line, key,
		made_s, words);
	err = write_text(at, fresh, text);
	if (!err && renameat(at, fresh, at, name) != 0)
		err = -errno;
	if (err)
		unlinkat(at, fresh, 0);
	close(at);
	return err;
}
