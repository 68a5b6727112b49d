/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/server/local.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/control/frame.h"
#include "lib/control/spawn.h"

enum {
	BACKLOG = 1024,
	SOCKET_PATH = sizeof(((struct sockaddr_un *)0)->sun_path),
	PATH_SIZE = SOCKET_PATH + 16, /* with ".lock" appended */
	BOOT_ID = 40,
	WAIT_MS = 3000, /* for a daemon that is ending */
	STEP_MS = 20,
};

struct local {
	char path[SOCKET_PATH], lock_path[PATH_SIZE];
	int socket;
	int lock;
	bool activated; /* the socket belongs to systemd */
	bool crashed;
};

/* ---- the directory */

static bool folder_of(const char *path, char folder[PATH_SIZE])
{
	char *slash;

	snprintf(folder, PATH_SIZE, "%s", path);
	slash = strrchr(folder, '/');
	if (slash)
		slash[slash == folder] = '\0';
	return slash;
}

/* Sets up the new directory of a system daemon. All users can reach the socket, whatever the umask,
 * and `user` can remove socket and lock at the end. */
static bool give_folder(const char *folder, const char *user, char *error, size_t size)
{
	const struct passwd *entry = user && geteuid() == 0 ? getpwnam(user) : NULL;

	/* By descriptor: the owner of the parent directory could put a link in its place. */
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	bool done = fd >= 0 && fchmod(fd, 0755) == 0 &&
		(!entry || fchown(fd, entry->pw_uid, entry->pw_gid) == 0);

	if (!done)
		snprintf(error, size, "cannot make the directory %s accessible: %s", folder,
			strerror(errno));
	if (fd >= 0)
		close(fd);
	return done;
}

static bool make_folder(
	const char *path, bool is_private, const char *user, char *error, size_t size)
{
	char folder[PATH_SIZE];
	struct stat status;

	if (!folder_of(path, folder)) {
		snprintf(error, size, "the socket's path must be absolute, not %s", path);
		return false;
	}
	if (mkdir(folder, is_private ? 0700 : 0755) == 0)
		return is_private || give_folder(folder, user, error, size);
	if (errno != EEXIST) {
		snprintf(
			error, size, "cannot create the directory %s: %s", folder, strerror(errno));
		return false;
	}
	if (!is_private)
		return true;
	/* A user who may write there could replace this socket by his own. */
	if (lstat(folder, &status) < 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid() ||
		status.st_mode & 077) {
		snprintf(error, size,
			"%s must be a directory of user %u with mode 0700: remove it, or choose "
			"another path",
			folder, (unsigned)geteuid());
		return false;
	}
	return true;
}

/* ---- the lock */

static bool is_served(const char path[SOCKET_PATH])
{
	struct daemon_place place = { .is_private = false };
	char why[256];
	int fd;

	memcpy(place.path, path, SOCKET_PATH);
	fd = daemon_connect(&place, why, sizeof(why));
	if (fd >= 0)
		close(fd);
	return fd >= 0 || fd == -EAGAIN; /* its backlog is full */
}

/* Locks the file that is at that path now. Returns -1 with errno. */
static int try_lock(const char *path)
{
	struct stat locked, there;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	int error;

	if (fd < 0)
		return -1;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &locked) == 0) {
		if (stat(path, &there) == 0 && there.st_ino == locked.st_ino &&
			there.st_dev == locked.st_dev)
			return fd;
		errno = EWOULDBLOCK; /* its last owner has removed it: retry */
	}
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

static enum local_result lock_place(struct local *local, char *error, size_t size)
{
	uint64_t until_ns = clock_now_ns() + WAIT_MS * UINT64_C(1000000);
	struct timespec step = { 0, STEP_MS * 1000000 };

	for (;;) {
		local->lock = try_lock(local->lock_path);
		if (local->lock >= 0)
			return LOCAL_TAKEN;
		if (errno != EWOULDBLOCK) {
			snprintf(error, size, "cannot lock %s: %s", local->lock_path,
				strerror(errno));
			return LOCAL_FAILED;
		}
		/* A daemon that is ending holds the lock until it has cleaned up. systemd's socket
		 * accepts connections even while no daemon serves it. */
		if ((!local->activated && is_served(local->path)) || clock_now_ns() > until_ns) {
			snprintf(error, size, "another ferruled serves %s already", local->path);
			return LOCAL_BUSY;
		}
		nanosleep(&step, NULL);
	}
}

/* ---- the boot ID in the lock file */

static void boot_id(char id[BOOT_ID])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t got = fd >= 0 ? read(fd, id, BOOT_ID - 1) : 0;

	id[got > 0 ? got : 0] = '\0';
	if (fd >= 0)
		close(fd);
}

/* A daemon of an earlier boot has no processes that could come back. */
static void look_for_crash(struct local *local, const char *now)
{
	char then[BOOT_ID] = "";
	ssize_t got = pread(local->lock, then, sizeof(then) - 1, 0);

	local->crashed = got > 0 && strcmp(then, now) == 0;
}

/* In this order a crash is not forgotten if writing fails. */
static bool mark_running(const struct local *local, const char *now, char *error, size_t size)
{
	if (pwrite(local->lock, now, strlen(now), 0) == (ssize_t)strlen(now) &&
		ftruncate(local->lock, (off_t)strlen(now)) == 0)
		return true;
	snprintf(error, size, "cannot write %s: %s", local->lock_path, strerror(errno));
	return false;
}

/* ---- the socket */

static bool bind_socket(struct local *local, bool is_private, char *error, size_t size)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	struct stat status;

	if (lstat(local->path, &status) == 0 && !S_ISSOCK(status.st_mode)) {
		snprintf(error, size,
			"%s exists and is not a socket: remove it, or choose another path",
			local->path);
		return false;
	}
	memcpy(address.sun_path, local->path, SOCKET_PATH);
	local->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	unlink(local->path);
	/* Any user may connect to the system daemon; rights depend on the user. */
	if (local->socket < 0 ||
		bind(local->socket, (struct sockaddr *)&address, sizeof(address)) < 0 ||
		chmod(local->path, is_private ? 0600 : 0666) < 0 ||
		listen(local->socket, BACKLOG) < 0) {
		snprintf(error, size, "cannot listen on %s: %s", local->path, strerror(errno));
		if (local->socket >= 0)
			close(local->socket);
		local->socket = -1;
		return false;
	}
	return true;
}

static void forget(struct local *local)
{
	if (local->lock >= 0)
		close(local->lock);
	free(local);
}

enum local_result local_take(const char *path, bool is_private, const char *user, int fd,
	struct local **ret_local, char *error, size_t size)
{
	struct local *local = calloc(1, sizeof(*local));
	enum local_result result;
	char now[BOOT_ID];

	if (!local) {
		snprintf(error, size, "no memory");
		return LOCAL_FAILED;
	}
	local->socket = fd;
	local->activated = fd >= 0;
	local->lock = -1;
	if (snprintf(local->path, sizeof(local->path), "%s", path) >= SOCKET_PATH) {
		snprintf(error, size, "the socket's path is longer than %d characters: %s",
			SOCKET_PATH - 1, path);
		result = LOCAL_FAILED;
	} else if (!make_folder(path, is_private, user, error, size)) {
		result = LOCAL_FAILED;
	} else {
		snprintf(local->lock_path, PATH_SIZE, "%s.lock", local->path);
		result = lock_place(local, error, size);
	}
	if (result != LOCAL_TAKEN) {
		forget(local);
		return result;
	}
	boot_id(now);
	look_for_crash(local, now);
	if ((fd < 0 && !bind_socket(local, is_private, error, size)) ||
		!mark_running(local, now, error, size)) {
		if (fd < 0 && local->socket >= 0) {
			close(local->socket);
			unlink(local->path);
		}
		if (!local->crashed)
			unlink(local->lock_path);
		forget(local);
		return LOCAL_FAILED;
	}
	*ret_local = local;
	return LOCAL_TAKEN;
}

int local_socket(const struct local *local)
{
	return local->socket;
}

bool local_crashed(const struct local *local)
{
	return local->crashed;
}

bool local_can_leave(const struct local *local, char folder[LOCAL_FOLDER])
{
	char own[PATH_SIZE];

	if (!folder_of(local->path, own))
		return true;
	snprintf(folder, LOCAL_FOLDER, "%s", own);
	return local->activated || faccessat(AT_FDCWD, own, W_OK, AT_EACCESS) == 0;
}

void local_leave(struct local *local, bool held)
{
	if (!local)
		return;
	if (!local->activated)
		unlink(local->path);
	/* Truncate as well: this user may be unable to remove files there. */
	if (!held && (ftruncate(local->lock, 0) < 0 || unlink(local->lock_path) < 0))
		errno = 0;
	forget(local);
}

/* ---- credentials of a process */

static bool peer_groups(int fd, struct core_session_info *info)
{
	size_t room = sizeof(info->gids) / sizeof(info->gids[0]) - 1;
	socklen_t length = 0;
	gid_t *groups;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &length) == 0)
		return true;
	if (errno != ERANGE)
		return false;
	groups = malloc(length);
	if (!groups || getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &length) < 0) {
		free(groups);
		return false;
	}
	for (size_t i = 0; i < length / sizeof(gid_t) && i < room; i++)
		info->gids[info->n_gids++] = groups[i];
	free(groups);
	return true;
}

static void program_of(pid_t pid, char *program, size_t size)
{
	char path[64];
	ssize_t got = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		got = read(fd, program, size - 1);
		close(fd);
	}
	program[got > 0 ? got : 0] = '\0';
	program[strcspn(program, "\n")] = '\0';
	frame_clean_text(program);
}

bool local_peer(int fd, struct core_session_info *info, char *program, size_t size)
{
	struct ucred peer;
	socklen_t length = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
		return false;
	info->kind = CORE_LOCAL;
	info->uid = peer.uid;
	info->pid = peer.pid;
	info->gids[0] = peer.gid;
	info->n_gids = 1;
	program_of(peer.pid, program, size);
	info->program = program;
	return peer_groups(fd, info);
}
