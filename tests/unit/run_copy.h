/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs a copy of this test program, also as one that has more rights than its user. */
#ifndef FERRULE_TESTS_RUN_COPY_H
#define FERRULE_TESTS_RUN_COPY_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <check.h>

/* Returns the exit status of `FILE copy`, whose environment is the caller's; -1: `guarded`, setuid
 * to another user, cannot be had here. */
static inline int run_copy(const char *file, bool guarded)
{
	char path[] = "/tmp/ferrule-copy-XXXXXX";
	int from = open("/proc/self/exe", O_RDONLY), to = mkstemp(path), status = -1;
	struct statvfs fs;
	struct stat st;
	pid_t pid;

	ck_assert(from >= 0 && to >= 0 && fstat(from, &st) == 0 && fstatvfs(to, &fs) == 0);
	ck_assert_int_eq(sendfile(to, from, NULL, (size_t)st.st_size), st.st_size);
	close(from);
	ck_assert_int_eq(fchmod(to, 0755), 0);
	if (!guarded ||
		(geteuid() == 0 && !(fs.f_flag & ST_NOSUID) && fchown(to, 65534, 65534) == 0 &&
			fchmod(to, 04755) == 0)) {
		close(to);
		pid = fork();
		if (pid == 0) {
			execl(path, path, file, "copy", NULL);
			_exit(127);
		}
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert(WIFEXITED(status));
		status = WEXITSTATUS(status);
	} else {
		close(to);
	}
	unlink(path);
	return status;
}

#endif
