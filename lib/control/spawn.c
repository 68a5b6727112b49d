/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds and starts the control daemon.
 *
 * posix_spawn() copies nothing of a large process and runs no fork handlers. It runs a shell that
 * ends at once, so the daemon is not a child of this process: wait() of the application never
 * returns it, and it leaves no zombie.
 */
#include "lib/control/spawn.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/process/user.h"
#include "lib/base/settings.h"
#include "lib/control/install.h"

#define SYSTEM_FOLDER "/run/ferrule"
#define SOCKET_NAME   "ferruled.sock"

enum {
	PATH_SIZE = 4096,
	LOG_MAX = 1 << 20, /* bytes; a longer log is truncated */
	FILES_MOST = 4096,
	ALIVE_FD = 3, /* in the daemon, which does not use it */
};

extern char **environ;

static bool is_word(const char *text, const char *word)
{
	return strcmp(text, word) == 0;
}

/* Returns false if the path is too long for a socket's address. */
static bool add_place(struct daemon_places *places, bool is_private, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static bool add_place(struct daemon_places *places, bool is_private, const char *format, ...)
{
	struct daemon_place *place = &places->list[places->n];
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(place->path, sizeof(place->path), format, args);
	va_end(args);
	if (length < 0 || (size_t)length >= sizeof(place->path))
		return false;
	place->is_private = is_private;
	places->n++;
	return true;
}

void daemon_find_places(struct daemon_places *places)
{
	const char *control = settings_get()->control;
	const char *runtime = settings_runtime_dir();

	*places = (struct daemon_places){ .start = DAEMON_NO_START };
	if (is_word(control, "off"))
		return;
	if (!is_word(control, "auto")) {
		if (control[0] != '/' || !add_place(places, false, "%s", control))
			places->start = DAEMON_BAD_PATH;
		return;
	}
	add_place(places, false, "%s/%s", SYSTEM_FOLDER, SOCKET_NAME);
	/*
	 * A process with more rights than its user must not use that user's daemon: it could lease
	 * any device to it, and the user could choose any fabric (FRL_FABRIC).
	 */
	if (settings_are_guarded())
		return;
	places->start = (int)places->n;
	/* The first place of the user is where a daemon is started. */
	if (runtime && runtime[0] == '/')
		add_place(places, true, "%s/ferrule/%s", runtime, SOCKET_NAME);
	add_place(places, true, "/tmp/ferrule-%u/%s", (unsigned)geteuid(), SOCKET_NAME);
}

bool daemon_is_configured(void)
{
	return access(DAEMON_CONFIG, F_OK) == 0 || access(SYSTEM_FOLDER, F_OK) == 0;
}

static void folder_of(const struct daemon_place *place, char folder[DAEMON_PATH])
{
	char *slash;

	memcpy(folder, place->path, DAEMON_PATH);
	slash = strrchr(folder, '/');
	if (slash)
		*slash = '\0';
}

/* Do not trust a socket in a folder that another user can change. */
static int check_folder(const struct daemon_place *place, char *why, size_t size)
{
	char folder[DAEMON_PATH];
	struct stat st;

	folder_of(place, folder);
	if (lstat(folder, &st)) {
		int error = errno;

		snprintf(why, size, "%s: %s", folder, frl_strerror(error));
		return -error;
	}
	if (S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 077) == 0)
		return 0;
	snprintf(why, size,
		"%s must be a folder of yours with mode 0700, for the control daemon's socket: "
		"remove it, or name another place with FRL_CONTROL or XDG_RUNTIME_DIR",
		folder);
	return -EPERM;
}

static int check_peer(int fd, const struct daemon_place *place, char *why, size_t size)
{
	uid_t user;
	int rc = user_of_peer(fd, &user);

	if (rc == -EOVERFLOW) {
		snprintf(why, size,
			"the user of the daemon at %s has no id in this user namespace: run as a "
			"user that the namespace maps, or name another daemon with FRL_CONTROL",
			place->path);
		return -EPERM;
	}
	if (rc) {
		snprintf(why, size, "%s: %s", place->path, frl_strerror(rc));
		return -EPERM;
	}
	if (user == geteuid() || user == 0)
		return 0;
	snprintf(why, size,
		"the daemon at %s belongs to user %u, not to you: end it, or name another one with "
		"FRL_CONTROL",
		place->path, (unsigned)user);
	return -EPERM;
}

/*
 * Moves the socket to a high descriptor, so that the daemon notices the end of this process at
 * once. The kernel closes the descriptors of a process one after the other, the highest first, and
 * needs 50 ms for an AF_PACKET port.
 */
static int high_descriptor(int fd)
{
	struct rlimit limit;
	int high;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return fd;
	if (limit.rlim_cur > FILES_MOST)
		limit.rlim_cur = FILES_MOST;
	high = fcntl(fd, F_DUPFD_CLOEXEC, (int)(limit.rlim_cur - limit.rlim_cur / 8));
	if (high < 0)
		return fd;
	close(fd);
	return high;
}

int daemon_connect(const struct daemon_place *place, char *why, size_t size)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd, rc = place->is_private ? check_folder(place, why, size) : 0;

	if (rc)
		return rc;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		rc = -errno;
		snprintf(why, size, "cannot make a socket: %s", frl_strerror(rc));
		return rc;
	}
	memcpy(address.sun_path, place->path, sizeof(address.sun_path));
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address))) {
		rc = -errno;
		snprintf(why, size, "no control daemon at %s: %s", place->path, frl_strerror(rc));
	} else if (place->is_private) {
		rc = check_peer(fd, place, why, size);
	}
	if (!rc)
		return high_descriptor(fd);
	close(fd);
	return rc;
}

/* Finds the folder of the file that this code is linked into: libferrule.so or a program. */
static bool own_folder(char folder[PATH_SIZE])
{
	static const char here;
	char *slash;
	Dl_info info;

	if (!dladdr(&here, &info) || !info.dli_fname || strlen(info.dli_fname) >= PATH_SIZE)
		return false;
	memcpy(folder, info.dli_fname, strlen(info.dli_fname) + 1);
	slash = strrchr(folder, '/');
	if (!slash)
		return false;
	*slash = '\0';
	return true;
}

/* Finds the daemon in the prefix of this library or plugin, even if the prefix was moved. */
static bool find_beside(const char *folder, char path[PATH_SIZE])
{
	static const char *const layouts[] = { "/" FERRULE_LIBDIR, "/" FERRULE_LIBDIR "/ferrule" };
	size_t length = strlen(folder), i, rest;

	for (i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
		if (length < strlen(layouts[i]))
			continue;
		rest = length - strlen(layouts[i]);
		if (strcmp(folder + rest, layouts[i]) == 0 &&
			snprintf(path, PATH_SIZE, "%.*s/%s/ferruled", (int)rest, folder,
				FERRULE_BINDIR) < PATH_SIZE &&
			access(path, X_OK) == 0)
			return true;
	}
	return false;
}

/*
 * Order: FRL_DAEMON; the build folder, next to the library; the library's prefix; the installed
 * path.
 */
static bool find_executable(char path[PATH_SIZE], char *why, size_t size)
{
	const char *setting = settings_get()->daemon;
	char folder[PATH_SIZE];

	if (*setting) {
		snprintf(path, PATH_SIZE, "%s", setting);
		if (access(path, X_OK) == 0)
			return true;
		snprintf(why, size, "FRL_DAEMON is %s, which cannot be run: %s", path,
			frl_strerror(errno));
		return false;
	}
	if (own_folder(folder)) {
		if (snprintf(path, PATH_SIZE, "%s/daemon/ferruled", folder) < PATH_SIZE &&
			access(path, X_OK) == 0)
			return true;
		if (find_beside(folder, path))
			return true;
	}
	snprintf(path, PATH_SIZE, "%s/ferruled", FERRULE_PREFIX "/" FERRULE_BINDIR);
	if (access(path, X_OK) == 0)
		return true;
	snprintf(why, size,
		"no control daemon runs, and %s cannot be executed: start ferruled, or set "
		"FRL_DAEMON to the executable",
		path);
	return false;
}

static int open_lock(const struct daemon_place *place, char *why, size_t size)
{
	char path[DAEMON_PATH + 16];
	int fd, error;

	snprintf(path, sizeof(path), "%s.start", place->path);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
		return fd;
	error = errno;
	if (fd >= 0)
		close(fd);
	if (error == EWOULDBLOCK)
		return -EALREADY;
	snprintf(why, size, "%s: %s", path, frl_strerror(error));
	return -error;
}

static int open_log(const struct daemon_place *place, char path[DAEMON_PATH + 16])
{
	struct stat st;
	char folder[DAEMON_PATH];
	int fd;

	folder_of(place, folder);
	snprintf(path, DAEMON_PATH + 16, "%s/ferruled.log", folder);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > LOG_MAX && ftruncate(fd, 0))
		st.st_size = 0; /* the log continues to grow */
	return fd;
}

/*
 * Returns the end of a pipe for the daemon, which has it open as long as it lives; our end is in
 * *ret_alive. Returns -1 on failure; an early end of the daemon is then not noticed.
 */
static int make_alive(int *ret_alive)
{
	int ends[2], fd;

	*ret_alive = -1;
	if (pipe2(ends, O_CLOEXEC))
		return -1;
	/* Use a number above those that the daemon gets. */
	fd = fcntl(ends[1], F_DUPFD_CLOEXEC, ALIVE_FD + 1);
	close(ends[1]);
	if (fd >= 0)
		*ret_alive = ends[0];
	else
		close(ends[0]);
	return fd;
}

/*
 * Runs the shell with default signals, in its own session, with the log and the pipe and no other
 * descriptors, in folder "/".
 */
static int run(const char *const argv[], int log_fd, int alive_fd)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int error, status;
	pid_t pid;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(
		&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (log_fd >= 0)
		posix_spawn_file_actions_adddup2(&actions, log_fd, STDOUT_FILENO);
	else
		posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
	posix_spawn_file_actions_addchdir_np(&actions, "/");
	if (alive_fd >= 0)
		posix_spawn_file_actions_adddup2(&actions, alive_fd, ALIVE_FD);
	posix_spawn_file_actions_addclosefrom_np(
		&actions, alive_fd >= 0 ? ALIVE_FD + 1 : STDERR_FILENO + 1);
	error = posix_spawn(&pid, "/bin/sh", &actions, &attr, (char *const *)argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	/* If the application ignores SIGCHLD or waits for any child, this fails, which is fine. */
	while (!error && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return -error;
}

static int spawn(const struct daemon_place *place, int *ret_alive, char *why, size_t size)
{
	char found[PATH_SIZE], executable[PATH_SIZE], log[DAEMON_PATH + 16];
	const char *const argv[] = { "sh", "-c", "\"$0\" \"$@\" &", executable, "--private",
		"--socket", place->path, NULL };
	int rc, log_fd, alive_fd;

	if (!find_executable(found, why, size))
		return -ENOENT;
	if (!realpath(found, executable)) {
		rc = -errno;
		snprintf(why, size, "%s: %s", found, frl_strerror(rc));
		return rc;
	}
	log_fd = open_log(place, log);
	alive_fd = make_alive(ret_alive);
	rc = run(argv, log_fd, alive_fd);
	if (log_fd >= 0)
		close(log_fd);
	if (alive_fd >= 0)
		close(alive_fd);
	if (!rc)
		return 0;
	if (*ret_alive >= 0)
		close(*ret_alive);
	*ret_alive = -1;
	snprintf(why, size, "cannot start %s: %s", executable, frl_strerror(rc));
	return rc;
}

int daemon_start(const struct daemon_place *place, int *ret_alive, char *why, size_t size)
{
	char folder[DAEMON_PATH];
	int rc, fd, other;

	*ret_alive = -1;
	folder_of(place, folder);
	if (mkdir(folder, 0700) && errno != EEXIST) {
		rc = -errno;
		snprintf(why, size, "cannot make %s for the control daemon: %s", folder,
			frl_strerror(rc));
		return rc;
	}
	rc = check_folder(place, why, size);
	if (rc)
		return rc;
	fd = open_lock(place, why, size);
	if (fd < 0)
		return fd;
	/* The previous holder of the lock may have started a daemon. */
	other = daemon_connect(place, why, size);
	if (other >= 0) {
		close(other);
		return fd;
	}
	rc = spawn(place, ret_alive, why, size);
	if (!rc)
		return fd;
	close(fd);
	return rc;
}

bool daemon_has_ended(int alive)
{
	struct pollfd fds = { .fd = alive };

	return alive >= 0 && poll(&fds, 1, 0) == 1 && (fds.revents & POLLHUP);
}
