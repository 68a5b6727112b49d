/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measured costs are kept in a file, so that the next job makes the same choices without measuring.
 * There is one file per key, in a folder of the user:
 *
 *	ferrule costs 2
 *	key ring 4096 1 ...
 *	made 1763720000
 *	checked 1763723600
 *	costs latency=2048,byte=0.25,...
 */
#include "collectives/api/measure.h"

#include <dirent.h>
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

#include "collectives/api/internal.h"
#include "lib/base/process/file_limit.h"

enum {
	FILE_MOST = 1024, /* bytes */
	NAME_MOST = 64,
	PATH_MOST = 4096,
	AGE_MOST_S = 7 * 24 * 3600,
	CHECK_AFTER_S = 3600,
	WRITING_MOST_S = 3600, /* temporary files older than this are abandoned */
};

static const char first_line[] = "ferrule costs 2", fresh_prefix[] = ".costs-";

/* ---- keys and names */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Returns the length of "verbs:mlx5" in "verbs:mlx5_0/2". */
static size_t verbs_length(const char *port)
{
	size_t length = strcspn(port, "/");

	while (length > 0 && (is_digit(port[length - 1])))
		length--;
	return length > 0 && port[length - 1] == '_' ? length - 1 : length;
}

/* Returns the length of "net_tap" in "net_tap0,iface=...": the number of a port may change from
 * job to job. */
static size_t kind_length(const char *port)
{
	size_t length = strcspn(port, ",:0123456789");

	if (strncmp(port, "verbs:", strlen("verbs:")) == 0)
		return verbs_length(port);
	return length > 0 ? length : strspn(port, ".:0123456789abcdef");
}

static void kind_of(const struct rail *rail, char *kind, size_t size)
{
	const char *port = rail->attr.port;

	if (is_digit(port[0]))
		snprintf(kind, size, "pci");
	else
		snprintf(kind, size, "%.*s", (int)kind_length(port), port);
}

/* Consecutive rails of one kind are named once. */
void measure_kinds(const struct frl_comm *comm, char kinds[MEASURE_KINDS])
{
	char kind[sizeof(comm->rails[0].attr.port)], before[sizeof(kind)] = "";
	size_t used = 0;

	kinds[0] = '\0';
	for (unsigned i = 0; i < comm->n_rails && used < MEASURE_KINDS; i++) {
		kind_of(&comm->rails[i], kind, sizeof(kind));
		if (strcmp(kind, before) == 0)
			continue;
		used += (size_t)snprintf(
			kinds + used, MEASURE_KINDS - used, "%s%s", i > 0 ? "+" : "", kind);
		memcpy(before, kind, sizeof(before));
	}
}

void measure_key(const struct frl_comm *comm, char key[MEASURE_KEY])
{
	const struct frl_device_attr *attr = &comm->rails[0].attr;
	char kinds[MEASURE_KINDS];
	struct utsname machine;

	measure_kinds(comm, kinds);
	if (uname(&machine) != 0)
		machine.nodename[0] = '\0';
	snprintf(key, MEASURE_KEY, "%s %s fabric %s mtu %u lossless %d staged %d rails %u on %.64s",
		FERRULE_VERSION, kinds, attr->fabric[0] ? attr->fabric : "-", attr->path_mtu,
		attr->lossless, comm->staging.is_needed, comm->n_rails, machine.nodename);
	for (char *c = key; *c; c++) {
		if (*c < ' ' || *c > '~')
			*c = '?';
	}
}

/* Writes the name of the file: FNV-1a of the key. */
static void name_of(const char *key, char name[NAME_MOST])
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (; *key; key++)
		hash = (hash ^ (uint8_t)*key) * UINT64_C(0x100000001b3);
	snprintf(name, NAME_MOST, "costs-%016" PRIx64, hash);
}

/* ---- the folder */

/* Returns whether the file belongs to this user and nobody else may write to it. */
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

/* Creates the folder, and its parent if that does not exist (~/.cache). */
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

/* Returns what follows `name` and a blank on the next line of *text; NULL if the line has
 * another name. */
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

/* The same for a number of seconds since 1970 from `least` to `most`; returns -1 if there is
 * none. */
static int64_t time_of(char **text, const char *name, int64_t least, int64_t most)
{
	const char *value = line_of(text, name);
	long long seconds;
	char *end;

	if (!value)
		return -1;
	seconds = strtoll(value, &end, 10);
	if (end == value || *end != '\0' || seconds < least || seconds > most)
		return -1;
	return seconds;
}

static int parse(char *text, const char *key, int64_t now_s, struct measure_kept *ret_kept)
{
	int64_t oldest_s = now_s > AGE_MOST_S ? now_s - AGE_MOST_S : 0;
	struct measure_kept kept;
	const char *value = line_of(&text, "ferrule");

	if (!value || strcmp(value, first_line + strlen("ferrule ")) != 0)
		return -ENOENT;
	value = line_of(&text, "key");
	if (!value || strcmp(value, key) != 0)
		return -ENOENT;
	kept.made_s = time_of(&text, "made", oldest_s, now_s);
	if (kept.made_s < 0)
		return -ENOENT;
	kept.checked_s = time_of(&text, "checked", kept.made_s, now_s);
	if (kept.checked_s < 0)
		return -ENOENT;
	value = line_of(&text, "costs");
	if (!value || *text != '\0' || tuner_read_costs(value, &kept.costs) < 0)
		return -ENOENT;
	*ret_kept = kept;
	return 0;
}

int measure_file_read(
	const char *folder, const char *key, int64_t now_s, struct measure_kept *ret_kept)
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
	return parse(text, key, now_s, ret_kept);
}

bool measure_is_due(const struct measure_kept *kept, int64_t now_s)
{
	return now_s - kept->checked_s > CHECK_AFTER_S;
}

/* ---- writing */

static int write_text(int at, const char *name, const char *text)
{
	size_t size = strlen(text);
	int fd, err = 0;

	if (!file_limit_allows(size))
		return -EFBIG;
	fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (write(fd, text, size) != (ssize_t)size)
		err = -EIO;
	if (close(fd) != 0)
		err = -EIO;
	return err;
}

/*
 * Removes temporary files of processes that were killed while writing. O_TMPFILE would leave none,
 * but does not work on NFS, where home folders may be.
 */
static void remove_left(int at, int64_t now_s)
{
	int fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;
	struct stat info;

	if (!folder) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(folder)) != NULL) {
		if (strncmp(entry->d_name, fresh_prefix, strlen(fresh_prefix)) == 0 &&
			fstatat(at, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
			now_s - (int64_t)info.st_mtime > WRITING_MOST_S)
			unlinkat(at, entry->d_name, 0);
	}
	closedir(folder);
}

int measure_file_write(const char *folder, const char *key, const struct measure_kept *kept)
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
	tuner_write_costs(&kept->costs, words);
	snprintf(text, sizeof(text),
		"%s\nkey %s\nmade %" PRId64 "\nchecked %" PRId64 "\ncosts %s\n", first_line, key,
		kept->made_s, kept->checked_s, words);
	err = write_text(at, fresh, text);
	if (!err && renameat(at, fresh, at, name) != 0)
		err = -errno;
	if (err)
		unlinkat(at, fresh, 0);
	remove_left(at, kept->checked_s);
	close(at);
	return err;
}
