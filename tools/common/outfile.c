/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/common/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_LINKS = 40 }; /* as in the kernel */

static int write_all(int fd, const char *bytes, size_t size)
{
	while (size > 0) {
		ssize_t n = write(fd, bytes, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		bytes += n;
		size -= (size_t)n;
	}
	return 0;
}

static int write_parts(int fd, const struct outfile_part parts[], int n)
{
	int rc = 0;

	for (int i = 0; i < n && !rc; i++)
		rc = write_all(fd, parts[i].bytes, parts[i].size);
	return rc;
}

/* Returns the mode that open() would give: temporary files are private to their owner. */
static mode_t usual_mode(void)
{
	mode_t mask = umask(0);

	umask(mask);
	return 0666 & ~mask;
}

/* Returns the length of the folder's name, with the slash; 0: the working directory. */
static int folder_length(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (int)(slash + 1 - path) : 0;
}

/* Makes the rename durable. Some file systems do not support this, which is no failure. */
static void sync_folder(const char *path)
{
	int folder = folder_length(path);
	char *name = folder ? strndup(path, (size_t)folder) : strdup(".");
	int fd = name ? open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	if (fd >= 0) {
		fsync(fd);
		close(fd);
	}
	free(name);
}

/* Follows symbolic links from `path`. The target need not exist. The caller frees *ret_target. */
static int follow_links(const char *path, char **ret_target)
{
	char *at = strdup(path), link[PATH_MAX];

	for (int i = 0; at && i < MAX_LINKS; i++) {
		ssize_t n = readlink(at, link, sizeof(link) - 1);
		char *next = NULL;

		if (n < 0) { /* not a link, or no such file */
			*ret_target = at;
			return 0;
		}
		link[n] = '\0';
		if (asprintf(&next, "%.*s%s", link[0] == '/' ? 0 : folder_length(at), at, link) < 0)
			next = NULL;
		free(at);
		at = next;
	}
	if (!at)
		return -ENOMEM;
	free(at);
	return -ELOOP;
}

/* Returns whether standard output goes to this file. It must then not be replaced. */
static bool is_stdout(const struct stat *st)
{
	struct stat out;

	return !fstat(STDOUT_FILENO, &out) && out.st_dev == st->st_dev && out.st_ino == st->st_ino;
}

/*
 * Opens a file that is written directly. Returns -ENOENT if `path` is a regular file, or does not
 * exist.
 */
static int open_special(const char *path)
{
	struct stat st;
	int fd;

	if (stat(path, &st))
		return -ENOENT; /* creating the file reports other reasons */
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	if (is_stdout(&st)) {
		fflush(stdout);
		fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
	} else if (S_ISREG(st.st_mode)) {
		return -ENOENT;
	} else {
		fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	}
	return fd < 0 ? -errno : fd;
}

static int make_temporary(struct outfile *file, const char *path)
{
	int rc = follow_links(path, &file->target), folder, fd;

	if (rc)
		return rc;
	folder = folder_length(file->target);
	if (asprintf(&file->temporary, "%.*s.%s.XXXXXX", folder, file->target,
		    file->target + folder) < 0) {
		file->temporary = NULL;
		return -ENOMEM;
	}
	fd = mkostemp(file->temporary, O_CLOEXEC);
	if (fd < 0) {
		rc = -errno;
		free(file->temporary);
		file->temporary = NULL;
	}
	return fd < 0 ? rc : fd;
}

static int write_temporary(
	struct outfile *file, const char *path, const struct outfile_part parts[], int n)
{
	int fd = make_temporary(file, path), rc;

	if (fd < 0)
		return fd;
	rc = write_parts(fd, parts, n);
	if (!rc && (fchmod(fd, usual_mode()) || fsync(fd)))
		rc = -errno;
	if (close(fd) && !rc)
		rc = -errno;
	return rc;
}

int outfile_prepare(
	struct outfile *file, const char *path, const struct outfile_part parts[], int n)
{
	int fd = open_special(path), rc;
	sigset_t all;

	*file = (struct outfile){ 0 };
	if (fd >= 0) {
		rc = write_parts(fd, parts, n);
		if (close(fd) && !rc)
			rc = -errno;
		return rc;
	}
	if (fd != -ENOENT)
		return fd;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &file->signals);
	file->pending = true;
	rc = write_temporary(file, path, parts, n);
	if (rc)
		outfile_discard(file);
	return rc;
}

int outfile_commit(struct outfile *file)
{
	int rc = 0;

	if (!file->pending)
		return 0;
	if (rename(file->temporary, file->target)) {
		rc = -errno;
	} else {
		sync_folder(file->target);
		free(file->temporary);
		file->temporary = NULL;
	}
	outfile_discard(file);
	return rc;
}

void outfile_discard(struct outfile *file)
{
	if (!file->pending)
		return;
	if (file->temporary)
		unlink(file->temporary);
	free(file->temporary);
	free(file->target);
	pthread_sigmask(SIG_SETMASK, &file->signals, NULL);
	*file = (struct outfile){ 0 };
}

int outfile_write(const char *path, const struct outfile_part parts[], int n)
{
	struct outfile file;
	int rc = outfile_prepare(&file, path, parts, n);

	return rc ? rc : outfile_commit(&file);
}

int outfile_check(const char *path)
{
	struct outfile file = { 0 };
	struct stat st;
	sigset_t all;
	int fd;

	if (!stat(path, &st) && !S_ISREG(st.st_mode)) {
		if (S_ISDIR(st.st_mode))
			return -EISDIR;
		return access(path, W_OK) ? -errno : 0;
	}
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &file.signals);
	file.pending = true;
	fd = make_temporary(&file, path);
	if (fd >= 0)
		close(fd);
	outfile_discard(&file);
	return fd < 0 ? fd : 0;
}
