/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/protocol/cq.h"
#include "tests/unit/qp_fixture.h"

static void fill_and_drain(uint32_t count, uint32_t start)
{
	struct frl_wc entries[16], wc;
	struct cq cq;

	cq_init(&cq, entries, count);
	cq.head = cq.tail = start;
	ck_assert(!cq_pop(&cq, &wc));
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < count; i++)
			ck_assert(cq_push(&cq, &(struct frl_wc){ .wr_id = i }));
		for (uint32_t i = 0; i < count; i++) {
			ck_assert(cq_pop(&cq, &wc));
			ck_assert_uint_eq(wc.wr_id, i);
		}
		ck_assert(!cq_pop(&cq, &wc));
	}
	ck_assert(!cq.overrun);
	for (uint32_t i = 0; i < count; i++)
		ck_assert(cq_push(&cq, &(struct frl_wc){ .wr_id = i }));
	ck_assert(!cq_push(&cq, &(struct frl_wc){ .wr_id = 99 }));
	ck_assert(cq.overrun);
	/* What fitted can be read; nothing is written any more. */
	for (uint32_t i = 0; i < count; i++) {
		ck_assert(cq_pop(&cq, &wc));
		ck_assert_uint_eq(wc.wr_id, i);
		ck_assert(!cq_push(&cq, &(struct frl_wc){ .wr_id = 99 }));
	}
	ck_assert(!cq_pop(&cq, &wc));
}

START_TEST(fifo_until_overrun)
{
	static const uint32_t starts[] = { 0, 5, UINT32_MAX, UINT32_MAX - 7 };

	for (unsigned i = 0; i < 4; i++)
		fill_and_drain(1u << _i, starts[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cq");
	TCase *tc = tcase_create("cq");

	tcase_add_loop_test(tc, fifo_until_overrun, 0, 5);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
