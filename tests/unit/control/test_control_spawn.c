/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finding and starting the user's own daemon. The daemon is this program itself, started with
 * --private: it accepts any message, and ends with the last process. Rows that need certain
 * settings run in a child, as settings are read once a process.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ferrule/device.h>
#include <ferrule/launch.h>

#include "lib/base/error.h"
#include "lib/control/client.h"
#include "lib/control/frame.h"
#include "lib/control/spawn.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/run_copy.h"
#include "tests/fixtures/wait_limits.h"

enum {
	STARTERS = 6,
	RESTART_MS = 30000, /* as client_connect.c has it */
	EXIT_OK = 10,       /* nothing else ends so */
};

static char folder[64];
static char program[4096];

/* ---- the daemon */

static int bind_socket(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) || listen(fd, 64)) {
		close(fd);
		return -1;
	}
	return fd;
}

static void say_hello(int fd)
{
	Ctl__Hello hello = CTL__HELLO__INIT;
	Ctl__Envelope envelope;
	uint8_t bytes[64];

	envelope_init(&envelope);
	hello.role = CTL__ROLE__ROLE_DAEMON;
	envelope.body_case = CTL__ENVELOPE__BODY_HELLO;
	envelope.hello = &hello;
	frame_pack(&envelope, bytes);
	if (send(fd, bytes, frame_size(&envelope), MSG_NOSIGNAL) < 0)
		perror("send");
}

/* The daemon's inherited state, for the test to check. */
static void describe_self(const char *path)
{
	char name[200];
	char here[200] = "";
	FILE *file;

	if (!getcwd(here, sizeof(here)))
		return;
	snprintf(name, sizeof(name), "%s.started", path);
	file = fopen(name, "a");
	if (!file)
		return;
	fprintf(file, "%d %d %d %s\n", getsid(0) == getpgid(0), fcntl(50, F_GETFD) >= 0,
		isatty(STDIN_FILENO), here);
	fclose(file);
}

static int run_daemon(const char *path, int listener)
{
	struct pollfd fds[64] = { { .events = POLLIN } };
	bool is_known = false; /* there was a process */
	unsigned n = 1;
	char byte[256];

	describe_self(path);
	fds[0].fd = listener;
	if (listener < 0)
		return 1;
	fprintf(stderr, "started\n");
	while ((n > 1 || !is_known) && poll(fds, n, HANG_MS) > 0) {
		for (unsigned i = 1; i < n; i++)
			if (fds[i].revents && read(fds[i].fd, byte, sizeof(byte)) <= 0) {
				close(fds[i].fd);
				fds[i--] = fds[--n];
			}
		if (fds[0].revents && n < 64) {
			fds[n] = (struct pollfd){ accept(fds[0].fd, NULL, NULL), POLLIN, 0 };
			say_hello(fds[n++].fd);
			is_known = true;
		}
	}
	unlink(path);
	return 0;
}

/* ---- processes with settings of their own */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int outcome; /* 1: up, negative: down for good */
static char outcome_why[400];

static bool on_message(struct control_handler *handler, const Ctl__Envelope *envelope)
{
	return true;
}

static void set_outcome(int value, const char *why)
{
	pthread_mutex_lock(&mutex);
	outcome = value;
	snprintf(outcome_why, sizeof(outcome_why), "%s", why);
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&mutex);
}

static void on_up(struct control_handler *handler, bool again)
{
	set_outcome(1, "");
}

static void on_down(struct control_handler *handler, int error, const char *why)
{
	if (error)
		set_outcome(error, why);
}

static struct control_handler handler = { .message = on_message, .up = on_up, .down = on_down };

static int start_and_wait(void)
{
	int rc = control_register(&handler, CONTROL_START);

	if (rc)
		return rc;
	pthread_mutex_lock(&mutex);
	while (!outcome)
		pthread_cond_wait(&changed, &mutex);
	pthread_mutex_unlock(&mutex);
	return outcome;
}

/* Runs `fn` in a child that has the settings of a user without a daemon. */
static pid_t run_child(int (*fn)(void))
{
	pid_t pid = fork();

	if (pid)
		return pid;
	setenv("XDG_RUNTIME_DIR", folder, 1);
	setenv("FRL_DAEMON", program, 1);
	unsetenv("FRL_CONTROL");
	alarm(HANG_S);
	_exit(fn());
}

static void ends_well(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_OK, "status %x", status);
}

static void in_folder(char *to, size_t size, const char *name)
{
	snprintf(to, size, "%s/ferrule/%s", folder, name);
}

/* Every daemon that was started has left a line. */
static unsigned count_started(const char *want)
{
	char path[200], line[100];
	unsigned n = 0;
	FILE *file;

	in_folder(path, sizeof(path), "ferruled.sock.started");
	file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file)) {
		ck_assert_msg(strcmp(line, want) == 0, "the daemon says %s", line);
		n++;
	}
	if (file)
		fclose(file);
	return n;
}

static void wait_gone(const char *path)
{
	for (int i = 0; i < HANG_MS / 10 && access(path, F_OK) == 0; i++)
		poll(NULL, 0, 10);
	ck_assert_int_ne(access(path, F_OK), 0);
}

void __real_daemon_find_places(struct daemon_places *places);
void __wrap_daemon_find_places(struct daemon_places *places);

static bool has_system;

static void system_path(char path[DAEMON_PATH])
{
	snprintf(path, DAEMON_PATH, "%s/system.sock", folder);
}

/* Without the places of the system and in /tmp, where daemons may run that are not the test's. */
void __wrap_daemon_find_places(struct daemon_places *places)
{
	unsigned n = has_system;

	__real_daemon_find_places(places);
	if (has_system)
		system_path(places->list[0].path);
	for (unsigned i = n; i < places->n; i++)
		if (strncmp(places->list[i].path, folder, strlen(folder)) == 0)
			places->list[n++] = places->list[i];
	places->n = n;
	if (places->start > 0)
		places->start = has_system;
}

static int start_one(void)
{
	int ends[2];
	char byte;

	/* The daemon must not inherit descriptor 50. */
	if (pipe(ends) || dup2(ends[1], 50) != 50 || start_and_wait() != 1)
		return 1;
	if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)
		return 2;
	close(50);
	close(ends[1]);
	if (read(ends[0], &byte, 1) != 0)
		return 3;
	control_unregister(&handler);
	return EXIT_OK;
}

START_TEST(started)
{
	char path[200], text[100] = "";
	struct stat st;
	FILE *log;

	ends_well(run_child(start_one));
	/* A session of its own, not our descriptors, no terminal, no folder. */
	ck_assert_uint_eq(count_started("1 0 0 /\n"), 1);
	in_folder(path, sizeof(path), "");
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0700);
	in_folder(path, sizeof(path), "ferruled.log");
	log = fopen(path, "r");
	ck_assert_ptr_nonnull(log);
	ck_assert_ptr_nonnull(fgets(text, sizeof(text), log));
	ck_assert_str_eq(text, "started\n");
	fclose(log);
	in_folder(path, sizeof(path), "ferruled.sock");
	wait_gone(path);
}
END_TEST

static int ready[2], go[2];

/* All of them hold it until the last one has it. */
static int start_with_others(void)
{
	int rc = start_and_wait();
	char byte = 0;

	close(go[1]);
	if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 0)
		return 2;
	control_unregister(&handler);
	return rc == 1 ? EXIT_OK : 1;
}

START_TEST(started_once)
{
	pid_t pids[STARTERS];
	char path[200], byte;

	ck_assert_int_eq(pipe(ready) | pipe(go), 0);
	for (int i = 0; i < STARTERS; i++)
		pids[i] = run_child(start_with_others);
	for (int i = 0; i < STARTERS; i++)
		ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	for (int i = 0; i < 2; i++) {
		close(ready[i]);
		close(go[i]);
	}
	for (int i = 0; i < STARTERS; i++)
		ends_well(pids[i]);
	ck_assert_uint_eq(count_started("1 0 0 /\n"), 1);
	in_folder(path, sizeof(path), "ferruled.sock");
	wait_gone(path);
}
END_TEST

/* The system's daemon ends for good: no private one takes its place, as that would know nothing of
 * its leases and of other hosts. */
static int lose_system(void)
{
	char path[DAEMON_PATH];
	pid_t daemon;
	int listener;

	has_system = true;
	limits_expire(RESTART_MS);
	system_path(path);
	/* It accepts connections from now on. */
	listener = bind_socket(path);
	daemon = fork();
	if (daemon == 0)
		_exit(run_daemon(path, listener));
	close(listener);
	if (start_and_wait() != 1)
		return 1;
	set_outcome(0, "");
	kill(daemon, SIGKILL);
	waitpid(daemon, NULL, 0);
	if (start_and_wait() != -ENOTCONN)
		return 2;
	if (!strstr(outcome_why, "systemctl start ferruled"))
		return 3;
	control_unregister(&handler);
	return EXIT_OK;
}

START_TEST(no_private_one_after_the_system)
{
	ends_well(run_child(lose_system));
	ck_assert_uint_eq(count_started("1 0 0 /\n"), 0);
}
END_TEST

static int start_nothing(void)
{
	setenv("FRL_DAEMON", "/nonexistent/ferruled", 1);
	if (start_and_wait() != -ENOTCONN)
		return 1;
	return strstr(outcome_why, "/nonexistent/ferruled") ? EXIT_OK : 2;
}

static int start_false(void)
{
	setenv("FRL_DAEMON", "/bin/false", 1);
	if (start_and_wait() != -ENOTCONN)
		return 1;
	return strstr(outcome_why, "has ended") && strstr(outcome_why, "ferruled.log") ? EXIT_OK
										       : 2;
}

static int refuse_off(void)
{
	setenv("FRL_CONTROL", "off", 1);
	return start_and_wait() == -ENOTCONN && strstr(frl_last_error(), "off") ? EXIT_OK : 1;
}

static int refuse_path(void)
{
	setenv("FRL_CONTROL", "relative", 1);
	return start_and_wait() == -EINVAL ? EXIT_OK : 1;
}

static int refuse_long_path(void)
{
	char path[200] = "/";

	memset(path + 1, 'x', sizeof(path) - 2);
	setenv("FRL_CONTROL", path, 1);
	return start_and_wait() == -EINVAL ? EXIT_OK : 1;
}

static int (*const refusals[])(
	void) = { start_nothing, start_false, refuse_off, refuse_path, refuse_long_path };

START_LOOP_TEST(refusal, ROWS(refusals))
{
	ends_well(run_child(refusals[_i]));
}
END_TEST

/* ---- whom to trust */

static struct daemon_place private_place(void)
{
	struct daemon_place place = { .is_private = true };

	in_folder(place.path, sizeof(place.path), "ferruled.sock");
	return place;
}

START_TEST(open_folder)
{
	struct daemon_place place = private_place();
	char path[200], why[400] = "";
	int fd, rc, alive;

	in_folder(path, sizeof(path), "");
	ck_assert_int_eq(mkdir(path, 0700), 0);
	fd = bind_socket(place.path);
	ck_assert_int_ge(fd, 0);
	rc = daemon_connect(&place, why, sizeof(why));
	ck_assert_int_ge(rc, 0);
	close(rc);
	ck_assert_int_eq(chmod(path, 0755), 0);
	ck_assert_int_eq(daemon_connect(&place, why, sizeof(why)), -EPERM);
	ck_assert_ptr_nonnull(strstr(why, "0700"));
	ck_assert_int_eq(daemon_start(&place, &alive, why, sizeof(why)), -EPERM);
	close(fd);
}
END_TEST

START_TEST(link_to_folder)
{
	struct daemon_place place = private_place();
	char path[200], why[400] = "";
	int alive;

	snprintf(path, sizeof(path), "%s/ferrule", folder);
	ck_assert_int_eq(symlink("/tmp", path), 0);
	ck_assert_int_eq(daemon_connect(&place, why, sizeof(why)), -EPERM);
	ck_assert_int_eq(daemon_start(&place, &alive, why, sizeof(why)), -EPERM);
}
END_TEST

/* Needs root: the folder, and then the daemon, belong to another user. */
START_TEST(of_another_user)
{
	struct daemon_place place = private_place();
	char path[200], why[400] = "";
	int fd;

	if (geteuid() != 0)
		return;
	in_folder(path, sizeof(path), "");
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(chown(path, 12345, 12345), 0);
	ck_assert_int_eq(chmod(test_folder(), 0711) | chmod(folder, 0711), 0);
	ck_assert_int_eq(seteuid(12345), 0);
	fd = bind_socket(place.path);
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(daemon_connect(&place, why, sizeof(why)), -EPERM);
	ck_assert_int_eq(chown(path, 0, 0), 0);
	ck_assert_int_eq(daemon_connect(&place, why, sizeof(why)), -EPERM);
	ck_assert_ptr_nonnull(strstr(why, "12345"));
	close(fd);
}
END_TEST

static int connect_as_nobody(void)
{
	struct daemon_place place = private_place();
	char why[400] = "";

	/* Not everybody may make a user namespace. */
	if (unshare(CLONE_NEWUSER))
		return EXIT_OK;
	return daemon_connect(&place, why, sizeof(why)) == -EPERM && strstr(why, "user namespace")
		? EXIT_OK
		: EXIT_FAILURE;
}

/* In a user namespace that maps no user, all have the same id, and this process, too. */
START_TEST(of_an_unknown_user)
{
	struct daemon_place place = private_place();
	char path[200];
	int fd;

	in_folder(path, sizeof(path), "");
	ck_assert_int_eq(mkdir(path, 0700), 0);
	fd = bind_socket(place.path);
	ck_assert_int_ge(fd, 0);
	ends_well(run_child(connect_as_nobody));
	close(fd);
}
END_TEST

/* ---- a program with more rights than its user */

enum { SYSTEMS_ALONE = 1, SAYS_WHAT_IS_IGNORED = 2, REFUSES_PMIX = 4 };

static void look_for_ignored(enum frl_log_level level, const char *line, void *said)
{
	*(bool *)said |= level == FRL_LOG_WARNING && strstr(line, "FRL_EAL_ARGS");
}

static int guarded(void)
{
	struct frl_device *device = NULL;
	struct daemon_places places;
	struct frl_launch launch;
	bool said = false;

	__real_daemon_find_places(&places);
	frl_set_log(look_for_ignored, FRL_LOG_WARNING, &said);
	/* Only its output matters. */
	frl_device_open(NULL, &device);
	return (places.n == 1 && !places.list[0].is_private && places.start == DAEMON_NO_START
			       ? SYSTEMS_ALONE
			       : 0) |
		(said ? SAYS_WHAT_IS_IGNORED : 0) |
		(frl_launch_detect(&launch) == -EPERM ? REFUSES_PMIX : 0);
}

/* The user's own daemon could lease any device to it, and PMIx load any module. */
START_TEST(more_rights)
{
	int found;

	setenv("FRL_EAL_ARGS", "-m 1", 1);
	setenv("PMIX_NAMESPACE", "n", 1);
	ck_assert_int_eq(run_copy("control_spawn", false), 0);
	found = run_copy("control_spawn", true);
	ck_assert(found == -1 || found == (SYSTEMS_ALONE | SAYS_WHAT_IS_IGNORED | REFUSES_PMIX));
}
END_TEST

static void setup(void)
{
	snprintf(folder, sizeof(folder), "%s/XXXXXX", test_folder());
	ck_assert_ptr_nonnull(mkdtemp(folder));
}

TEST_MAIN(control_spawn)
{
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);

	if (argc == 4 && strcmp(argv[1], "--private") == 0 && strcmp(argv[2], "--socket") == 0)
		return run_daemon(argv[3], bind_socket(argv[3]));
	if (n < 0)
		return EXIT_FAILURE;
	/* With more rights the leak checker cannot run. */
	if (argc == 2 && strcmp(argv[1], "copy") == 0)
		_exit(guarded());
	return run_suite(all_tests(setup, NULL));
}
