/* SPDX-License-Identifier: BSD-3-Clause */
/* The public interface in processes that fork: devices of the local fabric. */
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fixtures/api_fixture.h"
#include "tests/fixtures/child.h"
#include "tests/fixtures/program.h"

enum { FORKS = 50 };

static void write_one(void)
{
	struct frl_sge sge = { a.memory, MESSAGE, frl_mr_lkey(a.mr) };
	struct frl_send_wr wr = {
		.wr_id = 5,
		.opcode = FRL_WR_RDMA_WRITE,
		.flags = FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = 1,
		.remote_addr = (uintptr_t)b.memory,
		.rkey = frl_mr_rkey(b.mr),
	};
	struct frl_wc wc;

	memset(b.memory, 0, MESSAGE);
	ck_assert_int_eq(frl_post_send(a.qp, &wr, 1, NULL), 1);
	ck_assert_int_eq(poll_both(&a, &wc), 1);
	ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
	ck_assert_mem_eq(a.memory, b.memory, MESSAGE);
}

/* Ends of the child's own, beside the parent's, which it does not touch. */
static void live_as_child(bool shared)
{
	start(shared, FRL_PROGRESS_THREAD);
	write_one();
	finish();
	_exit(0);
}

/* The parent has opened nothing yet, or uses a link, by copies or by memory that both ends read. It
 * continues while the child lives, and after that. */
START_LOOP_TEST(child_opens_devices, 4)
{
	bool shared = _i & 1, has_link = _i & 2;
	pid_t pid;

	if (has_link) {
		start(shared, FRL_PROGRESS_INLINE);
		write_one();
	}
	pid = start_child();
	if (pid == 0)
		live_as_child(shared);
	if (has_link)
		write_one();
	child_is_well(pid);
	if (!has_link)
		start(shared, FRL_PROGRESS_INLINE);
	write_one();
	finish();
}
END_TEST

/* One generation after the other. */
START_TEST(grandchildren)
{
	pid_t pid;

	start(true, FRL_PROGRESS_INLINE);
	pid = start_child();
	if (pid == 0) {
		start(true, FRL_PROGRESS_INLINE);
		pid = start_child();
		if (pid == 0)
			live_as_child(true);
		child_is_well(pid);
		write_one();
		_exit(0);
	}
	child_is_well(pid);
	write_one();
	finish();
}
END_TEST

static void *make_links(void *arg)
{
	atomic_bool *is_over = arg;

	do {
		start(true, FRL_PROGRESS_THREAD);
		write_one();
		finish();
	} while (!atomic_load(is_over));
	return NULL;
}

/* All locks are free in the child whatever other threads do, and no fork waits for a lock whose
 * owner waits for the fork. */
START_TEST_IF(forks_while_links_are_made, ALLOCATOR_FORKS)
{
	struct frl_device_config config;
	struct frl_device *device;
	atomic_bool is_over = false;
	pthread_t thread;

	frl_device_config_init(&config);
	ck_assert_int_eq(pthread_create(&thread, NULL, make_links, &is_over), 0);
	for (int i = 0; i < FORKS; i++) {
		pid_t pid = start_child();

		if (pid == 0) {
			ok(frl_device_open(&config, &device));
			ok(frl_device_close(device));
			_exit(0);
		}
		child_is_well(pid);
	}
	atomic_store(&is_over, true);
	pthread_join(thread, NULL);
}
END_TEST

/* The child finds its parent's links down. It takes none of the parent's frames and sends none. */
START_TEST(parents_link_in_child)
{
	struct frl_sge sge;
	struct frl_send_wr wr = { .wr_id = 1,
		.opcode = FRL_WR_SEND,
		.sge = &sge,
		.n_sge = 1,
		.flags = FRL_SEND_SIGNALED };
	struct frl_wc wc;
	pid_t pid;

	start(false, FRL_PROGRESS_INLINE);
	sge = (struct frl_sge){ a.memory, 100, frl_mr_lkey(a.mr) };
	pid = start_child();
	if (pid == 0) {
		(void)frl_post_send(a.qp, &wr, 1, NULL);
		ck_assert_int_eq(poll_both(&a, &wc), 1);
		ck_assert_int_ne(wc.status, FRL_WC_SUCCESS);
		_exit(0);
	}
	child_is_well(pid);
	write_one();
	finish();
}
END_TEST

struct pipes {
	int to[2], from[2], keep[2];
};

static void must_write(int fd, const void *bytes, size_t size)
{
	ck_assert_int_eq(write(fd, bytes, size), size);
}

static void must_read(int fd, void *bytes, size_t size)
{
	for (size_t got = 0; got < size;) {
		ssize_t n = read(fd, (char *)bytes + got, size - got);

		ck_assert_int_gt(n, 0);
		got += (size_t)n;
	}
}

/* Leaves a child that has copies of all of its sockets, and lives for as long as `keep` is open. */
static void connect_fork_and_die(const struct pipes *pipes)
{
	char byte;

	close(pipes->keep[1]);
	open_end(&b, false, FRL_PROGRESS_THREAD);
	must_write(pipes->from[1], &b.mine, sizeof(b.mine));
	must_read(pipes->to[0], &b.theirs, sizeof(b.theirs));
	connect_end(&b);
	ok(b.rc);
	/* The other end may still be on its way. */
	must_read(pipes->to[0], &byte, 1);
	if (start_child() == 0)
		(void)!read(pipes->keep[0], &byte, 1);
	_exit(0);
}

START_TEST(peer_sees_that_the_parent_is_gone)
{
	uint64_t limit_ns = hang_limit_ns();
	struct frl_qp_attr attr;
	struct pipes pipes;
	pid_t pid;

	ck_assert(!pipe(pipes.to) && !pipe(pipes.from) && !pipe(pipes.keep));
	pid = start_child();
	if (pid == 0)
		connect_fork_and_die(&pipes);
	open_end(&a, false, FRL_PROGRESS_INLINE);
	must_read(pipes.from[0], &a.theirs, sizeof(a.theirs));
	must_write(pipes.to[1], &a.mine, sizeof(a.mine));
	connect_end(&a);
	ok(a.rc);
	must_write(pipes.to[1], "", 1);
	child_is_well(pid);
	do {
		frl_progress(a.device);
		frl_qp_query(a.qp, &attr);
	} while (attr.state == FRL_QPS_RTS && may_wait(limit_ns));
	ck_assert_int_eq(attr.state, FRL_QPS_ERR);
	close(pipes.keep[1]);
	close_end(&a);
}
END_TEST

TEST_MAIN(api_fork)
{
	if (test_port()) {
		say_skipped("all_fn", 0, "a child cannot use its parent's hardware");
		return 0;
	}
	return run_suite_forked(all_tests(NULL, NULL));
}
