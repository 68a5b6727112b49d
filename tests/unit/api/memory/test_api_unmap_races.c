/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that goes at any moment of the requests that use it (FRL_ACCESS_MAY_UNMAP). */
#include "tests/unit/api/memory/unmap_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ROUNDS = 60 };

#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__has_feature)
#define THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#define THREAD_SANITIZER 0
#endif

static atomic_int go;

/* Unmaps the target some time after it was told to. */
static void *unmap_later(void *arg)
{
	unsigned spins = *(unsigned *)arg;

	while (!atomic_load(&go))
		;
	for (unsigned i = 0; i < spins; i++)
		__asm__ volatile("" ::: "memory");
	unmap_target();
	/* The memory of another region, which must not matter. */
	munmap(map_at(NULL), SIZE);
	return NULL;
}

static void connect_again(void)
{
	struct end *ends[] = { &a, &b };

	for (int i = 0; i < 2; i++) {
		frl_qp_destroy(ends[i]->qp);
		ends[i]->qp = add_qp(ends[i]);
		ok(frl_qp_endpoint(ends[i]->qp, &ends[i]->mine));
	}
	connect_both();
}

static void drain(struct end *end)
{
	struct frl_wc wc;

	while (frl_poll_cq(end->cq, 1, &wc) > 0)
		ck_assert_int_eq(wc.status, FRL_WC_WR_FLUSH_ERR);
}

/* Requests without end use the memory until it goes, at any moment. */
static void race(struct end *owner, enum frl_wr_opcode opcode, enum frl_wc_status want,
	enum watching watching, unsigned spins)
{
	bool is_remote = owner == &b;
	struct frl_send_wr wr;
	struct frl_wc wc = { 0 };
	pthread_t thread;
	struct frl_sge sge;
	int rc = 0;

	make_target(owner, watching);
	sge = is_remote ? sge_of(&a, 0, SIZE) : target_sge(SIZE);
	wr = send_wr(1, opcode, &sge);
	if (is_remote) {
		wr.remote_addr = (uintptr_t)target.memory;
		wr.rkey = frl_mr_rkey(target.mr);
	}
	atomic_store(&go, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, unmap_later, &spins), 0);
	for (int n = 0; wc.status == FRL_WC_SUCCESS && rc != -EINVAL; n++) {
		rc = frl_post_send(a.qp, &wr, 1, NULL);
		if (n == 1)
			atomic_store(&go, 1);
		frl_progress(b.device);
		frl_poll_cq(a.cq, 1, &wc);
	}
	pthread_join(thread, NULL);
	/* A request that is posted too late is refused. */
	ck_assert_msg(wc.status == want || (wc.status == FRL_WC_SUCCESS && !is_remote),
		"opcode %d of %s: %s", opcode, is_remote ? "b" : "a", frl_wc_status_str(wc.status));
	connect_again();
	if (wc.status == want)
		drain(&a);
	else
		while (frl_poll_cq(a.cq, 1, &wc) > 0)
			;
	end_target();
}

START_LOOP_TEST(races, N_WATCHING)
{
	unsigned seed = 12345;

	start(false, FRL_PROGRESS_INLINE);
	for (int i = 0; i < ROUNDS; i++) {
		seed = seed * 1103515245 + 12345;
		race(&b, FRL_WR_RDMA_WRITE, FRL_WC_REM_ACCESS_ERR, _i, seed >> 8 & 0xffff);
		race(&b, FRL_WR_RDMA_READ, FRL_WC_REM_ACCESS_ERR, _i, seed >> 9 & 0xffff);
		race(&a, FRL_WR_RDMA_WRITE, FRL_WC_LOC_PROT_ERR, _i, seed >> 7 & 0xffff);
		race(&a, FRL_WR_RDMA_READ, FRL_WC_LOC_PROT_ERR, _i, seed >> 6 & 0xffff);
	}
}
END_TEST

TEST_MAIN(api_unmap_races)
{
	if (test_port()) {
		printf("skipped: a NIC pins the memory\n");
		return TEST_SKIPPED;
	}
	if (THREAD_SANITIZER) {
		printf("skipped: a failing access would keep locks of ThreadSanitizer\n");
		return TEST_SKIPPED;
	}
	return run_rows(all_tests(NULL, close_ends));
}
