/* SPDX-License-Identifier: BSD-3-Clause */
/* lib/base/process/peer_memory.c: memory of a child, and each reason why it cannot be read. */
#include "lib/base/process/peer_memory.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "lib/base/error.h"
#include "tests/fixtures/program.h"

enum { BYTES = 3 * 4096, NOBODY = 65534 };

static const uint64_t secret = UINT64_C(0x0123456789abcdef);
static uint8_t bytes[BYTES];
static struct peer_memory peer;

/* The child has these bytes at the same addresses, with other values. */
static void set_up(uid_t user)
{
	int ready[2];
	char byte;

	ck_assert_int_eq(pipe(ready), 0);
	peer = (struct peer_memory){
		.secret = secret, .secret_at = (uint64_t)(uintptr_t)&secret, .pid = fork()
	};
	ck_assert_int_ge(peer.pid, 0);
	if (peer.pid == 0) {
		if (user && (setgid(user) || setuid(user)))
			_exit(1);
		prctl(PR_SET_DUMPABLE, 1);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int i = 0; i < BYTES; i++)
			bytes[i] = (uint8_t)(i * 7 + 1);
		if (write(ready[1], "", 1) == 1)
			pause();
		_exit(0);
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
}

static void end_peer(void)
{
	kill(peer.pid, SIGKILL);
	ck_assert_int_eq(waitpid(peer.pid, NULL, 0), peer.pid);
}

static int read_peer(void *to, const void *from, size_t n)
{
	return peer_memory_read(&peer, to, (uint64_t)(uintptr_t)from, n);
}

START_TEST(bytes_of_a_peer)
{
	static const size_t lengths[] = { 0, 1, 100, 4096, BYTES - 5 };
	static uint8_t to[BYTES];

	set_up(0);
	for (size_t i = 0; i < ROWS(lengths); i++) {
		memset(to, 0xee, sizeof(to));
		ck_assert_int_eq(read_peer(to, bytes + 5, lengths[i]), 0);
		for (size_t k = 0; k < BYTES; k++)
			ck_assert_uint_eq(
				to[k], k < lengths[i] ? (uint8_t)((k + 5) * 7 + 1) : 0xee);
	}
	end_peer();
}
END_TEST

START_TEST(another_process)
{
	uint8_t to[16];

	set_up(0);
	peer.secret++;
	ck_assert_int_eq(read_peer(to, bytes, sizeof(to)), -ESTALE);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "another process has that number"));
	end_peer();
}
END_TEST

/* Also if only its end is not there. */
START_LOOP_TEST(no_memory, 2)
{
	uint8_t *there = mmap(NULL, 2 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static uint8_t to[2 * 4096];

	ck_assert_ptr_ne(there, MAP_FAILED);
	ck_assert_int_eq(munmap(there + 4096, 4096), 0);
	set_up(0);
	ck_assert_int_eq(read_peer(to, there + 4096 * !_i, 4096 + 4096 * (size_t)_i), -EFAULT);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "the memory is not there"));
	end_peer();
}
END_TEST

START_TEST(ended_process)
{
	uint8_t to[16];

	set_up(0);
	end_peer();
	ck_assert_int_eq(read_peer(to, bytes, sizeof(to)), -ESRCH);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "it has ended"));
}
END_TEST

/* A process without privileges, and a peer of root. */
START_TEST(other_user)
{
	uint8_t to[16];
	int status;
	pid_t reader;

	if (getuid() != 0)
		return; /* needs root to become another user */
	set_up(0);
	reader = fork();
	ck_assert_int_ge(reader, 0);
	if (reader == 0) {
		if (setgid(NOBODY) || setuid(NOBODY))
			_exit(2);
		_exit(read_peer(to, bytes, sizeof(to)) != -EPERM ||
			!strstr(frl_last_error(), "the kernel forbids it"));
	}
	ck_assert_int_eq(waitpid(reader, &status, 0), reader);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	end_peer();
}
END_TEST

/* A process of root does not read another user's, though it could. */
START_LOOP_TEST(own_user, 2)
{
	uint8_t to[16];

	if (getuid() != 0)
		return; /* needs root to become another user */
	set_up(_i ? NOBODY : 0);
	ck_assert_int_eq(read_peer(to, bytes, sizeof(to)), 0);
	ck_assert_int_eq(peer_memory_check(&peer), _i ? -EPERM : 0);
	if (_i)
		ck_assert_ptr_nonnull(strstr(frl_last_error(), "is of another user"));
	end_peer();
	ck_assert_int_eq(peer_memory_check(&peer), -ESRCH);
}
END_TEST

TEST_MAIN(peer_memory)
{
	return run_suite(all_tests(NULL, NULL));
}
