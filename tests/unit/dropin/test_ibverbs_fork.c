/* SPDX-License-Identifier: BSD-3-Clause */
/* The drop-in libibverbs and fork(): parent and child work at the same time. */
#include "tests/unit/dropin/ibverbs_fixture.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "tests/fixtures/child.h"

enum { ROUNDS = 50, EACH = 3000 };

static void transfer(uint8_t seed)
{
	struct ibv_sge sge = sge_of(&a, 0, EACH);
	struct ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, &sge);

	aim(&wr, &b, 0);
	fill(&a, 0, EACH, seed);
	post(&a, &wr);
	expect(&a, 1, IBV_WC_SUCCESS);
	check_filled(&b, 0, EACH, seed);
	sync_ends(&a, &b);
	sync_ends(&b, &a);
}

/* The child's own device: another address, events, and all of its objects can be destroyed. */
static void work_in_child(const union ibv_gid *parent)
{
	struct ibv_context *inherited = a.context;
	struct ibv_async_event event;
	union ibv_gid gid;

	start(&(struct wants){ .has_channel = true, .has_srq = true });
	ok(ibv_query_gid(a.context, 1, 1, &gid));
	ck_assert_mem_ne(gid.raw, parent->raw, 16);
	ck_assert_ptr_ne(a.context, inherited);
	for (uint8_t i = 0; i < ROUNDS; i++)
		transfer(i);
	ok(to_state(b.qp, IBV_QPS_ERR));
	event = next_event(b.context, IBV_EVENT_QP_LAST_WQE_REACHED);
	ibv_ack_async_event(&event);
	finish();
}

START_TEST(both_work)
{
	union ibv_gid gid;
	pid_t pid;

	ok(ibv_fork_init());
	ck_assert_int_eq(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
	start(&(struct wants){ .has_channel = true });
	ok(ibv_query_gid(a.context, 1, 1, &gid));
	transfer(1);
	pid = fork();
	if (pid == 0) {
		work_in_child(&gid);
		_exit(0);
	}
	for (uint8_t i = 0; i < ROUNDS; i++)
		transfer(i);
	child_is_well(pid);
	transfer(2);
	finish();
}
END_TEST

/* A child that opens nothing, and a grandchild that does. */
START_TEST(idle_child)
{
	union ibv_gid gid;
	pid_t pid;

	start(&(struct wants){ 0 });
	ok(ibv_query_gid(a.context, 1, 1, &gid));
	pid = fork();
	if (pid == 0) {
		pid = fork();
		if (pid)
			child_is_well(pid);
		else
			work_in_child(&gid);
		_exit(0);
	}
	child_is_well(pid);
	transfer(2);
	finish();
}
END_TEST

/* Some programs close the contexts that they have inherited. */
START_TEST(closes_inherited_context)
{
	struct ibv_context *inherited;
	union ibv_gid gid;
	pid_t pid;

	start(&(struct wants){ .one_context = true });
	ok(ibv_query_gid(a.context, 1, 1, &gid));
	inherited = open_context();
	pid = fork();
	if (pid == 0) {
		struct ibv_context *own = open_context();

		ok(ibv_close_device(inherited));
		inherited = a.context;
		work_in_child(&gid);
		ok(ibv_close_device(inherited));
		work_in_child(&gid);
		ok(ibv_close_device(own));
		_exit(0);
	}
	child_is_well(pid);
	ok(ibv_close_device(inherited));
	transfer(2);
	finish();
}
END_TEST

TEST_MAIN(ibverbs_fork)
{
	if (!ALLOCATOR_FORKS) {
		printf("SKIP: AddressSanitizer's allocator may stay locked in a child\n");
		return TEST_SKIPPED;
	}
	return run_suite(all_tests(NULL, NULL));
}
