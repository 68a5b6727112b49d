/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A folder of devices or of sysfs takes no further entries. A tmpfs that covers it does, and shows
 * the entries of the folder below. Bound entries stay the kernel's: devices open, terminals and
 * shared memory are those of the machine.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/run/run.h"

/* Room for the path of an entry. */
enum { ROOM = NAME_MAX + 64 };

/* The tmpfs is filled here, while the folder is still visible, and then moved. */
#define SCRATCH "/tmp"
/* The covered folder, for /dev/ptmx. */
#define BELOW ".ferrule"

static bool is_ours(const char *name, const char *ours)
{
	size_t n = ours ? strlen(ours) : 0;

	return ours && strncmp(name, ours, n) == 0 && name[n] &&
		name[n + strspn(name + n, "0123456789")] == '\0';
}

static int entry_type(const char *path, const struct dirent *entry)
{
	struct stat st;

	if (entry->d_type != DT_UNKNOWN)
		return entry->d_type;
	return lstat(path, &st) ? DT_UNKNOWN : IFTODT(st.st_mode);
}

static int copy_link(const char *from, const char *to)
{
	char target[PATH_MAX];
	ssize_t n = readlink(from, target, sizeof(target) - 1);

	if (n < 0)
		return errno == ENOENT ? 0 : refused("reading the link", from);
	target[n] = '\0';
	return symlink(target, to) ? refused("copying the link", from) : 0;
}

static int bind_entry(const char *from, bool is_folder, const char *to)
{
	struct stat st;
	int err;

	if (is_folder ? mkdir(to, 0755) : mknod(to, S_IFREG | 0600, 0))
		return refused("making a mount point for", from);
	if (mount(from, to, NULL, MS_BIND | MS_REC, NULL) == 0)
		return 0;
	err = errno;
	/* A device that was removed meanwhile. */
	if (err == ENOENT && lstat(from, &st) && errno == ENOENT) {
		remove(to);
		return 0;
	}
	errno = err;
	return refused("binding", from);
}

/* The kernel looks for the terminals of a ptmx device in "pts" beside it, on the same mount, and
 * finds nothing beside a device that is bound alone. In the whole folder it does. */
static int link_ptmx(const char *folder)
{
	int rc = bind_entry(folder, true, SCRATCH "/" BELOW);

	if (!rc && symlink(BELOW "/ptmx", SCRATCH "/ptmx"))
		rc = refused("linking to", folder);
	return rc;
}

static int copy_entries(DIR *dir, const char *folder, const char *ours)
{
	struct dirent *entry;
	char from[ROOM], to[ROOM];
	int rc = 0;

	while (!rc && (errno = 0, (entry = readdir(dir)))) {
		const char *name = entry->d_name;
		int type;

		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || is_ours(name, ours))
			continue;
		snprintf(from, sizeof(from), "%s/%s", folder, name);
		snprintf(to, sizeof(to), SCRATCH "/%s", name);
		type = entry_type(from, entry);
		if (type == DT_LNK)
			rc = copy_link(from, to);
		else if (type == DT_CHR && strcmp(name, "ptmx") == 0)
			rc = link_ptmx(folder);
		else
			rc = bind_entry(from, type == DT_DIR, to);
	}
	return !rc && errno ? refused("reading", folder) : rc;
}

int cover_folder(const char *path, const char *ours)
{
	DIR *dir = opendir(path);
	char options[32];
	struct stat st;
	int rc;

	if (!dir)
		return refused("reading", path);
	if (fstat(dirfd(dir), &st)) {
		rc = refused("reading", path);
	} else {
		snprintf(options, sizeof(options), "mode=%o", st.st_mode & 07777);
		rc = mount("ferrule-run", SCRATCH, "tmpfs", MS_NOSUID | MS_NOEXEC, options)
			? refused("mounting a tmpfs on", SCRATCH)
			: copy_entries(dir, path, ours);
	}
	closedir(dir);
	if (!rc && mount(SCRATCH, path, NULL, MS_MOVE, NULL))
		rc = refused("covering", path);
	return rc;
}

int seal_folder(const char *path)
{
	const unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC;

	return mount(NULL, path, NULL, flags, NULL) ? refused("remounting", path) : 0;
}
