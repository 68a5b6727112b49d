/* SPDX-License-Identifier: BSD-3-Clause */
/* Forwarded data leaves from the received frame, and not by way of the GPU. */
#include "tests/unit/collectives/gpu/comm_gpu_passed.h"

#include "collectives/communicator/communicator.h"
#include "tests/unit/collectives/gpu/comm_gpu_fixture.h"

static void run_passed(struct rank *rank)
{
	static const enum frl_coll colls[] = { FRL_ALLREDUCE, FRL_ALLGATHER, FRL_BROADCAST };
	struct frl_device *device = rank->comm->rails[0].device;
	bool is_inside = rank->number > 0 && rank->number < rank->ranks - 1;

	expect(rank, tuner_init(&rank->comm->tuner, "ring", 16384) == 0);
	for (unsigned i = 0; i < 6 && !rank->failure[0]; i++) {
		struct trial trial = {
			.c = { .coll = colls[i / 2], .count = 20000, .dtype = FRL_FLOAT32 },
			.where = i % 2 && rank->number % 2 ? 0 : ALL_ON_GPU,
			.shift = i * 4,
			.seed = i
		};
		struct frl_stats before, after;
		uint64_t forwarded, fused;
		bool passes;

		frl_device_stats(device, &before);
		trial_run(rank, &trial);
		frl_device_stats(device, &after);
		forwarded = after.offload_forwarded - before.offload_forwarded;
		fused = after.offload_fused - before.offload_fused;
		passes = trial.where &&
			(trial.c.coll == FRL_BROADCAST ? is_inside : rank->ranks > 2);
		if ((forwarded > 0) != passes ||
			(fused > 0) != (trial.where && trial.c.coll == FRL_ALLREDUCE) ||
			after.retained_missed != before.retained_missed)
			complain(rank, "%s: %zu bytes forwarded, %zu fused, %zu packets missed",
				frl_coll_name(trial.c.coll), (size_t)forwarded, (size_t)fused,
				(size_t)(after.retained_missed - before.retained_missed));
	}
}

JOB_TEST(passed_on, 3, job_run, .ranks = 2 + _i, .main = run_passed);

/* Nothing is requested that cannot be found: of another device, or out of a ring. */
static void run_otherwise(struct rank *rank)
{
	struct trial trial = {
		.c = { .coll = FRL_ALLREDUCE, .count = 30000, .dtype = FRL_FLOAT32 },
		.where = ALL_ON_GPU,
	};
	bool keeps = rank->comm->n_rails == 1, is_poor = rank->job->poor >> rank->number & 1;

	expect(rank, tuner_init(&rank->comm->tuner, "ring", 16384) == 0);
	trial_run(rank, &trial);
	for (unsigned i = 0; i < rank->comm->n_rails; i++) {
		struct frl_stats stats;

		frl_device_stats(rank->comm->rails[i].device, &stats);
		if (stats.retained_missed || (stats.offload_fused > 0) != (keeps && !is_poor) ||
			(stats.offload_forwarded > 0) != keeps)
			complain(rank,
				"rail %u: %zu bytes forwarded, %zu fused, %zu packets missed", i,
				(size_t)stats.offload_forwarded, (size_t)stats.offload_fused,
				(size_t)stats.retained_missed);
	}
}

JOB_TEST(otherwise, 2, job_run, .ranks = 3, .main = run_otherwise, .rails = 1 + _i,
	.poor = _i ? 0 : 2);

/* Packets are forwarded as received only if both connections have one path MTU, whatever that of
 * the device is: here between ranks 3, 0 and 1, and 1, 2 and 3. */
static void run_mixed(struct rank *rank)
{
	struct trial trial = {
		.c = { .coll = FRL_ALLREDUCE, .count = 30000, .dtype = FRL_FLOAT32 },
		.where = ALL_ON_GPU,
	};
	struct frl_stats stats;

	expect(rank, tuner_init(&rank->comm->tuner, "ring", 16384) == 0);
	trial_run(rank, &trial);
	frl_device_stats(rank->comm->rails[0].device, &stats);
	if (stats.retained_missed || (stats.offload_forwarded > 0) != (rank->number % 2 == 0))
		complain(rank, "%zu bytes forwarded, %zu packets missed",
			(size_t)stats.offload_forwarded, (size_t)stats.retained_missed);
}

JOB_TEST(mixed_mtu, 1, job_run, .ranks = 4, .main = run_mixed, .short_mtu = 1);

/* Far more is on its way at one time than a device retains: all retained frames are found, and they
 * are a good part of the forwarded data. */
static void run_long(struct rank *rank)
{
	enum { COUNT = 9 << 20 };
	uint8_t *memory = test_gpu_alloc(COUNT * sizeof(float));
	struct frl_stats before, after;
	uint64_t sent, missed;

	expect(rank, tuner_init(&rank->comm->tuner, "ring", 131072) == 0);
	frl_device_stats(rank->comm->rails[0].device, &before);
	expect(rank, frl_allreduce(rank->comm, memory, memory, COUNT, FRL_FLOAT32, FRL_SUM) == 0);
	frl_device_stats(rank->comm->rails[0].device, &after);
	sent = after.offload_forwarded + after.offload_fused - before.offload_forwarded -
		before.offload_fused;
	missed = after.retained_missed - before.retained_missed;
	if (sent < (rank->job->short_mtu ? COUNT / 16 : COUNT) || missed > 1000)
		complain(rank, "%zu bytes were passed on, %zu packets missed", (size_t)sent,
			(size_t)missed);
	test_gpu_free(memory);
}

JOB_TEST(long_ones, JOB_SHARE == 1 ? 2 : 0, job_run, .ranks = 3, .main = run_long,
	.short_mtu = _i ? 6 : 0);

void comm_gpu_add_passed(Suite *suite)
{
	add_tests(suite, NULL, NULL);
}
