/* SPDX-License-Identifier: BSD-3-Clause */
/* The cache of registrations: regions that cannot be deregistered, or not yet, and callers who take
 * its regions for their own. */
#include <check.h>
#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sys/mman.h>

#include "lib/device/device.h"
#include "lib/base/error.h"
#include "tests/unit/api/memory/mr_cache_fixture.h"
#include "tests/fixtures/program.h"

/* ---- a device that refuses */

static const struct device_ops *real_ops;
static struct device_ops ops;
static atomic_int dereg_fails; /* so often */
static int dereg_error;
static atomic_int regs, deregs;
static bool has_no_room;

static int try_dereg(struct frl_mr *mr)
{
	atomic_fetch_add(&deregs, 1);
	if (atomic_load(&dereg_fails) <= 0)
		return real_ops->mr_dereg(mr);
	atomic_fetch_sub(&dereg_fails, 1);
	/* After any other error the region is not tried again. */
	if (dereg_error != -EBUSY)
		real_ops->mr_dereg(mr);
	return frl_fail(dereg_error, "the device refuses");
}

static int try_reg(struct frl_mr *mr)
{
	atomic_fetch_add(&regs, 1);
	return has_no_room ? frl_fail(-ENOMEM, "the device is full") : real_ops->mr_reg(mr);
}

static void setup(void)
{
	cache_setup();
	real_ops = device->ops;
	ops = *real_ops;
	ops.mr_dereg = try_dereg;
	ops.mr_reg = try_reg;
	device->ops = &ops;
	atomic_store(&dereg_fails, 0);
	atomic_store(&deregs, 0);
	atomic_store(&regs, 0);
	has_no_room = false;
}

/* Its region is dead, and cannot be deregistered yet. */
static void bury_one(int fails, int error)
{
	atomic_store(&dereg_fails, fails);
	dereg_error = error;
	key_of(memory, PAGE);
	frl_mr_cache_trim(cache);
}

START_TEST(busy_ones_go_later)
{
	struct frl_mr *mr;

	if (!is_kept())
		return;
	bury_one(2, -EBUSY);
	ck_assert_uint_eq(stats().deregistered, 0);
	ck_assert_int_eq(frl_mr_cache_destroy(cache), -EBUSY);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "1 regions"));
	/* The cache continues, and keeps watching. A call that succeeds leaves no error. */
	frl_fail(-EINVAL, "of before");
	atomic_store(&dereg_fails, 1);
	mr = get(memory, PAGE);
	ck_assert_str_eq(frl_last_error(), "of before");
	frl_mr_cache_put(cache, mr);
	ck_assert_str_eq(frl_last_error(), "of before");
	ck_assert_ptr_eq(get(memory, PAGE), mr);
	frl_mr_cache_put(cache, mr);
	ck_assert_uint_eq(stats().deregistered, 1);
}
END_TEST

/* Any other error would recur: once is enough. */
START_TEST(failed_ones_are_forgotten)
{
	if (!is_kept())
		return;
	bury_one(1, -EINVAL);
	ck_assert_int_eq(atomic_load(&deregs), 1);
	ck_assert_uint_eq(stats().deregistered, 1);
	key_of(memory + 8 * PAGE, PAGE);
	ck_assert_int_eq(atomic_load(&deregs), 1);
}
END_TEST

START_TEST(tries_again_once)
{
	struct frl_mr *mr;

	if (!is_kept())
		return;
	has_no_room = true;
	atomic_store(&dereg_fails, 1);
	dereg_error = -EBUSY;
	atomic_store(&regs, 0);
	ck_assert_int_eq(frl_mr_cache_get(cache, memory + 8 * PAGE, PAGE, LOCAL, &mr), -ENOMEM);
	ck_assert_int_eq(atomic_load(&regs), 2);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "is full"));
	has_no_room = false;
}
END_TEST

/* ---- the thread that cleans up is at it */

static sem_t has_begun;
static pthread_t destroyer;

/* Takes its time, and fails, unless the cache is destroyed. */
static int dereg_slowly(struct frl_mr *mr)
{
	const struct timespec pause = { .tv_nsec = 30000000 };

	if (pthread_equal(pthread_self(), destroyer))
		return real_ops->mr_dereg(mr);
	sem_post(&has_begun);
	nanosleep(&pause, NULL);
	return frl_fail(-EBUSY, "not yet");
}

START_TEST(destroyed_while_it_is_cleaned)
{
	sem_init(&has_begun, 0, 0);
	destroyer = pthread_self();
	ops.mr_dereg = dereg_slowly;
	if (!is_kept())
		return;
	munmap(memory, SIZE);
	while (sem_wait(&has_begun))
		;
	/* The region is in no list, and still not forgotten. */
	cache_again(NULL);
	ck_assert_uint_eq(pd->objects, 1);
	sem_destroy(&has_begun);
	map(memory);
}
END_TEST

/* ---- callers' mistakes */

START_TEST(not_the_callers_to_change)
{
	struct frl_mr *mr = get(memory, PAGE), *other;

	ck_assert_int_eq(
		frl_rereg_mr(mr, FRL_REREG_TRANSLATION, NULL, memory + PAGE, PAGE, 0), -EINVAL);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "cache"));
	ck_assert_int_eq(frl_dereg_mr(mr), -EINVAL);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "frl_mr_cache_put"));
	frl_mr_cache_put(cache, mr);
	other = get(memory, PAGE);
	frl_mr_cache_put(cache, other);
}
END_TEST

START_TEST(put_by_mistake)
{
	struct frl_mr_cache *second;
	struct frl_mr *own, *mr;

	if (!is_kept())
		return;
	ck_assert_int_eq(frl_mr_cache_create(pd, NULL, &second), 0);
	ck_assert_int_eq(frl_reg_mr(pd, memory, PAGE, LOCAL, &own), 0);
	frl_mr_cache_put(cache, own);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "not one of this cache"));
	ck_assert_int_eq(frl_dereg_mr(own), 0);
	mr = get(memory, PAGE);
	frl_mr_cache_put(second, mr);
	ck_assert_int_eq(frl_mr_cache_destroy(cache), -EBUSY);
	frl_mr_cache_put(cache, mr);
	/* Twice: nobody has it. */
	frl_mr_cache_put(cache, mr);
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "put back before"));
	ck_assert_ptr_eq(get(memory, PAGE), mr);
	ck_assert_int_eq(frl_mr_cache_destroy(cache), -EBUSY);
	frl_mr_cache_put(cache, mr);
	ck_assert_int_eq(frl_mr_cache_destroy(second), 0);
}
END_TEST

TEST_MAIN(mr_cache_faults)
{
	return run_suite(all_tests(setup, cache_teardown));
}
