/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A mount namespace for the program and its children. Only its processes see the mounts, which end
 * with the last of them.
 *
 * A user without CAP_SYS_ADMIN needs a user namespace around it. Its user and group are mapped to
 * themselves, so the program is the same user and no root. Setuid programs get no rights in it:
 * the ids of their owners are not mapped. The capabilities that the kernel grants in the new
 * namespace end with execve(), except for root.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <linux/securebits.h>

#include "tools/run/run.h"

/* Before the user namespace: capabilities that a program can get, one bit each, and how root gets
 * them. */
static uint64_t bounding_set;
static int securebits;
static bool has_user_namespace;

static const char *remedy(int err)
{
	switch (err) {
	case EPERM:
	case EACCES:
		return "run as root, or allow user namespaces "
		       "(kernel.unprivileged_userns_clone, "
		       "kernel.apparmor_restrict_unprivileged_userns, the container's seccomp)";
	case ENOSPC:
	case EUSERS:
		return "raise user.max_user_namespaces, user.max_mnt_namespaces or fs.mount-max";
	case ENOENT: return "it must exist: make it, or mount /proc, /dev and /sys";
	case EINVAL:
		return "the kernel lacks namespaces, or the root folder is no mount point (chroot)";
	default: return "ferrule-run(1) lists what it needs";
	}
}

int refused(const char *what, const char *path)
{
	int err = errno;

	fprintf(stderr, "ferrule-run: %s %s: %s: %s\n", what, path, strerror(err), remedy(err));
	return EXIT_USAGE;
}

static int write_text(const char *path, const char *text)
{
	ssize_t length = (ssize_t)strlen(text), n;
	int fd = open(path, O_WRONLY | O_CLOEXEC), err;

	if (fd < 0)
		return refused("opening", path);
	n = write(fd, text, (size_t)length);
	err = n < 0 ? errno : EIO;
	close(fd);
	if (n == length)
		return 0;
	errno = err;
	return refused("writing", path);
}

static int map_id(const char *path, unsigned id)
{
	char text[64];

	snprintf(text, sizeof(text), "%u %u 1", id, id);
	return write_text(path, text);
}

static void note_capabilities(void)
{
	for (int i = 0; i < 64; i++)
		if (prctl(PR_CAPBSET_READ, i, 0, 0, 0) == 1)
			bounding_set |= UINT64_C(1) << i;
	securebits = prctl(PR_GET_SECUREBITS, 0, 0, 0, 0);
}

static int enter_user_namespace(void)
{
	const uid_t user = geteuid();
	const gid_t group = getegid();
	int rc;

	note_capabilities();
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return refused("making", "a user namespace");
	has_user_namespace = true;
	rc = map_id("/proc/self/uid_map", user);
	/* Otherwise a group that is denied something could be left. */
	if (!rc)
		rc = write_text("/proc/self/setgroups", "deny");
	if (!rc)
		rc = map_id("/proc/self/gid_map", group);
	return rc;
}

int enter_namespace(void)
{
	int rc = 0;

	if (unshare(CLONE_NEWNS)) {
		if (errno != EPERM)
			return refused("making", "a mount namespace");
		rc = enter_user_namespace();
	}
	if (rc)
		return rc;
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL))
		return refused("keeping mounts apart from", "/");
	return 0;
}

void leave_capabilities(void)
{
	/* The namespace began with the defaults. Root keeps what it was denied before. */
	if (!has_user_namespace)
		return;
	for (int i = 0; i < 64; i++)
		if (!(bounding_set & UINT64_C(1) << i) && prctl(PR_CAPBSET_READ, i, 0, 0, 0) == 1)
			prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
	if (securebits > SECUREBITS_DEFAULT)
		prctl(PR_SET_SECUREBITS, securebits, 0, 0, 0);
}
