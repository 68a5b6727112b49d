/* SPDX-License-Identifier: BSD-3-Clause */
/* The public interface: memory regions that change, and memory windows. */
#include "lib/device/soft.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "tests/fixtures/api_fixture.h"
#include "tests/fixtures/limited_child.h"
#include "tests/fixtures/program.h"

enum { ROUNDS = 5000, PAGE = 4096 };

/* Whether b's device can change an existing region. */
static bool has_rereg(void)
{
	return frl_rereg_mr(b.mr, FRL_REREG_ACCESS, NULL, NULL, 0, ALL_ACCESS) != -ENOTSUP;
}

/* Called after start(). */
#define NEEDS_REREG()                                                                   \
	do {                                                                            \
		if (test_port() && !has_rereg()) {                                      \
			say_skipped(__func__, _i, "its driver cannot change a region"); \
			finish();                                                       \
			return;                                                         \
		}                                                                       \
	} while (0)

/* A window over part of b's memory: bound by b, used by a, invalidated by either. */
START_LOOP_TEST(window, 2)
{
	bool by_peer = _i;
	struct frl_send_wr wr = { .wr_id = 1, .opcode = FRL_WR_BIND_MW };
	struct frl_mw *mw, *never;
	struct frl_sge sge;
	struct frl_wc wc;
	uint32_t rkey;

	start(false, FRL_PROGRESS_INLINE);
	ok(frl_mw_alloc(b.pd, &never));
	ok(frl_mw_alloc(b.pd, &mw));
	rkey = frl_inc_rkey(frl_mw_rkey(mw));
	wr.flags = FRL_SEND_SIGNALED;
	wr.bind = (struct frl_mw_bind){
		.mw = mw,
		.mr = b.mr,
		.addr = (uintptr_t)b.memory + 4096,
		.length = 4096,
		.rkey = rkey,
		.access = FRL_ACCESS_REMOTE_WRITE,
	};
	post_on(b.qp, &wr);
	wc = expect(&b, 1, FRL_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, FRL_WC_BIND_MW);
	ck_assert_uint_eq(frl_mw_rkey(mw), rkey);
	refused(frl_dereg_mr(b.mr), -EBUSY, "windows");

	sge = sge_of(&a, 0, 4096);
	wr = send_wr(2, FRL_WR_RDMA_WRITE, &sge);
	wr.remote_addr += 4096;
	wr.rkey = rkey;
	post_send(&wr);
	expect(&a, 2, FRL_WC_SUCCESS);
	ck_assert_int_eq(memcmp(b.memory + 4096, a.memory, 4096), 0);

	if (by_peer) {
		post_recv(3, 0, 16, false);
		sge.length = 16;
		wr = send_wr(4, FRL_WR_SEND_WITH_INV, &sge);
		wr.invalidate_rkey = rkey;
		post_send(&wr);
		wc = expect(&b, 3, FRL_WC_SUCCESS);
		ck_assert_uint_eq(wc.flags & FRL_WC_WITH_INV, FRL_WC_WITH_INV);
		ck_assert_uint_eq(wc.invalidated_rkey, rkey);
		expect(&a, 4, FRL_WC_SUCCESS);
	} else {
		wr = (struct frl_send_wr){ .wr_id = 5,
			.opcode = FRL_WR_LOCAL_INV,
			.flags = FRL_SEND_SIGNALED,
			.invalidate_rkey = rkey };
		post_on(b.qp, &wr);
		expect(&b, 5, FRL_WC_SUCCESS);
	}
	sge.length = 16;
	wr = send_wr(6, FRL_WR_RDMA_WRITE, &sge);
	wr.remote_addr += 4096;
	wr.rkey = rkey;
	post_send(&wr);
	expect(&a, 6, FRL_WC_REM_ACCESS_ERR);
	frl_mw_dealloc(mw);
	frl_mw_dealloc(never);
	frl_mw_dealloc(NULL);
}
END_TEST

/* A bound window ends with its queue pair, and holds its region until then. */
START_LOOP_TEST(window_of_a_destroyed_queue_pair, 2)
{
	struct frl_send_wr wr = { .opcode = FRL_WR_BIND_MW, .flags = FRL_SEND_SIGNALED };
	struct frl_mw *mw;

	SOFTWARE_ONLY_IF(is_rxe(), "rxe waits 50 s for windows of a queue pair that is destroyed");
	start(false, FRL_PROGRESS_INLINE);
	ok(frl_mw_alloc(b.pd, &mw));
	wr.bind = (struct frl_mw_bind){ mw, b.mr, (uintptr_t)b.memory, 64,
		frl_inc_rkey(frl_mw_rkey(mw)), FRL_ACCESS_REMOTE_WRITE };
	post_on(b.qp, &wr);
	expect(&b, 0, FRL_WC_SUCCESS);
	refused(frl_dereg_mr(b.mr), -EBUSY, "windows");
	refused(frl_pd_destroy(b.pd), -EBUSY, "objects");
	frl_qp_destroy(b.qp);
	b.qp = NULL;
	if (_i)
		frl_mw_dealloc(mw);
	deregister(&b);
	if (!_i)
		frl_mw_dealloc(mw);
	ok(frl_reg_mr(b.pd, b.memory, MEMORY, 0, &b.mr));
}
END_TEST

START_TEST(reregistration_under_a_window)
{
	struct frl_send_wr wr = { .opcode = FRL_WR_BIND_MW, .flags = FRL_SEND_SIGNALED };
	struct frl_mw *mw;

	start(false, FRL_PROGRESS_INLINE);
	NEEDS_REREG();
	ok(frl_mw_alloc(b.pd, &mw));
	wr.bind = (struct frl_mw_bind){ mw, b.mr, (uintptr_t)b.memory, 64,
		frl_inc_rkey(frl_mw_rkey(mw)), FRL_ACCESS_REMOTE_WRITE };
	post_on(b.qp, &wr);
	expect(&b, 0, FRL_WC_SUCCESS);
	refused(frl_rereg_mr(b.mr, FRL_REREG_ACCESS, NULL, NULL, 0, 0), -EBUSY, "windows");
	frl_mw_dealloc(mw);
}
END_TEST

/* A region whose addresses in requests differ from those in memory. The second time a request with
 * an address outside of it is refused. */
START_LOOP_TEST(iova, 2)
{
	uint64_t base, low;
	struct frl_mr *mine, *theirs, *none = NULL;
	struct frl_send_wr wr;
	struct frl_sge sge;

	SOFTWARE_ONLY_IF(_i, "hardware looks at keys when it uses them");
	start(false, FRL_PROGRESS_INLINE);
	refused(frl_reg_mr_iova(a.pd, a.memory, 16, UINT64_MAX - 10, 0, &none), -EINVAL, "iova");
	refused(frl_reg_mr_iova(a.pd, a.memory, 64, (uintptr_t)a.memory + 4,
			FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_ATOMIC, &none),
		-EINVAL, "multiple of 8");
	refused(frl_reg_mr(a.pd, a.memory, 64, FRL_ACCESS_REMOTE_ATOMIC, &none), -EINVAL,
		"LOCAL_WRITE");
	ck_assert_ptr_null(none);
	/* At the memory's offset in its page: hardware requires it. */
	low = (uintptr_t)a.memory % PAGE;
	base = UINT64_C(0x7000000000000000) + (uintptr_t)b.memory % PAGE;
	ok(frl_reg_mr_iova(a.pd, a.memory, 8192, low, FRL_ACCESS_LOCAL_WRITE, &mine));
	ok(frl_reg_mr_iova(b.pd, b.memory, 8192, base, ALL_ACCESS, &theirs));
	sge = (struct frl_sge){ (void *)(uintptr_t)(low + 16), 8000, frl_mr_lkey(mine) };
	wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);
	wr.remote_addr = base + 100;
	wr.rkey = frl_mr_rkey(theirs);
	post_send(&wr);
	expect(&a, 1, FRL_WC_SUCCESS);
	ck_assert_int_eq(memcmp(b.memory + 100, a.memory + 16, 8000), 0);
	if (_i) {
		sge.addr = a.memory;
		refused(frl_post_send(a.qp, &wr, 1, NULL), -EINVAL, "memory region");
		sge.addr = (void *)(uintptr_t)(low + 16);
	}
	wr.remote_addr = base + 193;
	post_send(&wr);
	expect(&a, 1, FRL_WC_REM_ACCESS_ERR);
	ok(frl_dereg_mr(mine));
	ok(frl_dereg_mr(theirs));
}
END_TEST

START_LOOP_TEST(reregistration, 3)
{
	struct frl_pd *other;
	uint32_t lkey, rkey;
	struct frl_send_wr wr;
	struct frl_sge sge;

	start(false, FRL_PROGRESS_INLINE);
	NEEDS_REREG();
	ok(frl_pd_create(b.device, &other));
	lkey = frl_mr_lkey(b.mr);
	rkey = frl_mr_rkey(b.mr);
	refused(frl_rereg_mr(b.mr, 0, NULL, NULL, 0, 0), -EINVAL, "flags");
	refused(frl_rereg_mr(b.mr, 0x80, NULL, NULL, 0, 0), -EINVAL, "0x80");
	refused(frl_rereg_mr(b.mr, FRL_REREG_PD, NULL, NULL, 0, 0), -EINVAL, "domain");
	refused(frl_rereg_mr(b.mr, FRL_REREG_PD, a.pd, NULL, 0, 0), -EINVAL, "same device");
	refused(frl_rereg_mr(b.mr, FRL_REREG_TRANSLATION, NULL, b.memory, 0, 0), -EINVAL, "length");
	refused(frl_rereg_mr(b.mr, FRL_REREG_ACCESS, NULL, NULL, 0, FRL_ACCESS_REMOTE_WRITE),
		-EINVAL, "LOCAL_WRITE");
	/* The second half alone: its own address is where it starts. */
	ok(frl_rereg_mr(b.mr, FRL_REREG_TRANSLATION, NULL, b.memory + MEMORY / 2, MEMORY / 2, 0));
	ck_assert_uint_eq(frl_mr_lkey(b.mr), lkey);
	ck_assert_uint_eq(frl_mr_rkey(b.mr), rkey);
	sge = sge_of(&a, 0, 1000);
	wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);
	wr.remote_addr += MEMORY / 2;
	post_send(&wr);
	expect(&a, 1, FRL_WC_SUCCESS);
	ck_assert_int_eq(memcmp(b.memory + MEMORY / 2, a.memory, 1000), 0);
	if (_i == 0)
		ok(frl_rereg_mr(b.mr, FRL_REREG_ACCESS, NULL, NULL, 0, FRL_ACCESS_LOCAL_WRITE));
	if (_i == 1)
		ok(frl_rereg_mr(b.mr, FRL_REREG_PD, other, NULL, 0, 0));
	if (_i == 2)
		wr.remote_addr -= 1;
	post_send(&wr);
	expect(&a, 1, FRL_WC_REM_ACCESS_ERR);
	if (_i == 1) {
		refused(frl_pd_destroy(other), -EBUSY, "1 queue pairs");
		ok(frl_rereg_mr(b.mr, FRL_REREG_PD, b.pd, NULL, 0, 0));
	}
	ok(frl_pd_destroy(other));
}
END_TEST

/* The work of a second thread on b's region until it is stopped. */
enum change { ACCESS, TRANSLATION, DOMAIN, N_CHANGES };

static struct frl_pd *other_pd;
static atomic_bool stop;

static int change_region(enum change change, int round)
{
	uint8_t *half = b.memory + (round & 1 ? MEMORY / 2 : 0);
	struct frl_pd *pd = round & 1 ? other_pd : b.pd;

	if (change == ACCESS)
		return frl_rereg_mr(b.mr, FRL_REREG_ACCESS, NULL, NULL, 0, ALL_ACCESS);
	if (change == DOMAIN)
		return frl_rereg_mr(b.mr, FRL_REREG_PD, pd, NULL, 0, 0);
	return frl_rereg_mr(b.mr, FRL_REREG_TRANSLATION, NULL, half, MEMORY / 2, 0);
}

static void *keep_changing(void *arg)
{
	for (int i = 0; !atomic_load(&stop); i++) {
		int rc = change_region(*(const enum change *)arg, i);

		ck_assert_msg(rc == 0 || rc == -EBUSY, "%d: %s", rc, frl_last_error());
	}
	return NULL;
}

/* Whether the region is at this address. The second element is bad, so nothing is ever posted. */
static void check_half(int round)
{
	struct frl_sge sge[2] = { sge_of(&b, round & 1 ? MEMORY / 2 : 0, MEMORY / 2) };
	struct frl_recv_wr wr = { .sge = sge, .n_sge = 2 };

	sge[1] = (struct frl_sge){ b.memory, 1, frl_mr_lkey(b.mr) ^ 1 << 20 };
	refused(frl_post_recv(b.qp, &wr, 1, NULL), -EINVAL, "names no");
}

static void *change_rights(void *arg)
{
	ok(frl_rereg_mr(b.mr, FRL_REREG_ACCESS, NULL, NULL, 0, FRL_ACCESS_LOCAL_WRITE));
	return NULL;
}

/* A change that waits for its turn finds the state after the one before it. */
START_TEST(reregistration_after_another)
{
	const struct timespec pause = { .tv_nsec = SHORT_MS * 1000000 };
	pthread_t thread;

	SOFTWARE_ONLY("it looks into the software device");
	open_end(&b, false, FRL_PROGRESS_INLINE);
	device_enter(b.device);
	ck_assert_int_eq(pthread_create(&thread, NULL, change_rights, NULL), 0);
	nanosleep(&pause, NULL);
	soft_mr(b.mr)->region.length = MEMORY / 2;
	device_leave(b.device);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(soft_mr(b.mr)->region.length, MEMORY / 2);
	ck_assert_uint_eq(soft_mr(b.mr)->region.access, FRL_ACCESS_LOCAL_WRITE);
}
END_TEST

/* One thread's changes do not undo the other one's. */
START_LOOP_TEST(reregistration_in_two_threads, N_CHANGES)
{
	enum change theirs = (enum change)_i;
	pthread_t thread;

	SOFTWARE_ONLY("hardware looks at keys when it uses them");
	start(false, FRL_PROGRESS_INLINE);
	ok(frl_pd_create(b.device, &other_pd));
	atomic_store(&stop, false);
	ck_assert_int_eq(pthread_create(&thread, NULL, keep_changing, &theirs), 0);
	for (int i = 0; i < ROUNDS; i++) {
		ok(change_region(theirs == DOMAIN ? DOMAIN : TRANSLATION, i));
		if (theirs == ACCESS)
			check_half(i);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	ok(frl_rereg_mr(b.mr, FRL_REREG_PD, b.pd, NULL, 0, 0));
	ok(frl_pd_destroy(other_pd));
}
END_TEST

/* A region counts the windows that are bound to it, also when it is changed at the same time. */
START_TEST(windows_while_reregistering)
{
	struct frl_send_wr bind = { .wr_id = 1, .opcode = FRL_WR_BIND_MW };
	struct frl_send_wr invalidate = { .wr_id = 2, .opcode = FRL_WR_LOCAL_INV };
	enum change theirs = ACCESS;
	struct frl_mw *mw;
	pthread_t thread;

	start(false, FRL_PROGRESS_INLINE);
	NEEDS_REREG();
	ok(frl_mw_alloc(b.pd, &mw));
	bind.flags = invalidate.flags = FRL_SEND_SIGNALED;
	bind.bind = (struct frl_mw_bind){ mw, b.mr, (uintptr_t)b.memory, 64, 0,
		FRL_ACCESS_REMOTE_READ };
	atomic_store(&stop, false);
	ck_assert_int_eq(pthread_create(&thread, NULL, keep_changing, &theirs), 0);
	for (int i = 0; i < ROUNDS; i++) {
		bind.bind.rkey = invalidate.invalidate_rkey = frl_inc_rkey(frl_mw_rkey(mw));
		post_on(b.qp, &bind);
		expect(&b, 1, FRL_WC_SUCCESS);
		post_on(b.qp, &invalidate);
		expect(&b, 2, FRL_WC_SUCCESS);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	ok(change_region(ACCESS, 0));
	frl_mw_dealloc(mw);
}
END_TEST

static bool is_refused(void)
{
	return !frl_mem_alloc(1 << 20) && strstr(frl_last_error(), "ulimit -f");
}

/* As a shell's `ulimit -f` sets it. */
START_TEST(limit_of_file_sizes)
{
	check_in_limited_child(4096, is_refused);
}
END_TEST

TEST_MAIN(api_memory)
{
	return run_rows(all_tests(NULL, close_ends));
}
