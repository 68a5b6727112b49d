/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/collectives/comm_verbs_fixture.h"

#include <check.h>
#include <stdio.h>

enum { HURRY = 200, NAME = 16 };

static bool is_one_device, is_mixed;

const char *plug_device(int rank, int rail)
{
	static char names[PLUG_RANKS][PLUG_RAILS][NAME];
	char *name = names[rank][rail];

	snprintf(name, NAME, "%s%d%d", is_mixed && rank == 1 ? "rxe" : "nic", rank,
		is_one_device ? 0 : rail);
	return name;
}

uint8_t plug_port_number(int rail)
{
	return is_one_device ? (uint8_t)(rail + 1) : 1;
}

const char *plug_port(int rank, int rail)
{
	static char names[PLUG_RANKS][PLUG_RAILS][2 * NAME];
	char *name = names[rank][rail];

	snprintf(name, 2 * NAME, "verbs:%s%s", plug_device(rank, rail),
		!is_one_device ? ""
			: rail ? "/2"
			       : "/1");
	return name;
}

static void add_second_port(struct fake_verbs_device *device, int rank)
{
	char ip[32];

	device->attr.phys_port_cnt = 2;
	device->ports[1] = device->ports[0];
	snprintf(ip, sizeof(ip), "fe80::%d:2", rank + 1);
	for (int i = 0; i < 2; i++)
		fake_verbs_gid_set(&device->ports[1].gids[i], ip, device->ports[0].gids[i].type);
	snprintf(ip, sizeof(ip), "10.0.1.%d", rank + 1);
	for (int i = 2; i < 4; i++)
		fake_verbs_gid_set(&device->ports[1].gids[i], ip, device->ports[0].gids[i].type);
}

void plug_in(const struct plug *plug)
{
	fake_verbs_reset();
	is_one_device = plug->is_one_device;
	is_mixed = plug->is_mixed;
	for (int rank = 0; rank < PLUG_RANKS; rank++) {
		for (int rail = 0; rail < (is_one_device ? 1 : PLUG_RAILS); rail++) {
			struct fake_verbs_device device;
			char ip[32];

			snprintf(ip, sizeof(ip), "10.0.%d.%d", rail, rank + 1);
			fake_verbs_device_init(&device, plug_device(rank, rail), ip);
			device.keeps_completions = device.flushes_late = plug->tells_late;
			if (plug->memlock)
				device.memlock = plug->memlock;
			if (plug->has_few_inline)
				device.max_inline = plug->max_inline;
			if (is_one_device)
				add_second_port(&device, rank);
			fake_verbs_add(&device);
		}
	}
	fake_verbs_hurry(HURRY);
}

void plug_out(void)
{
	ck_assert_str_eq(fake_verbs_leaks(), "");
	fake_verbs_reset();
}

int plug_start(struct rank *rank, int32_t *values, size_t count, struct frl_request **ret_request)
{
	for (size_t i = 0; i < count; i++)
		values[i] = job_input(rank->number, i);
	return frl_allreduce_start(
		rank->comm, values, values, count, FRL_INT32, FRL_SUM, ret_request);
}

bool plug_sums_are_right(struct rank *rank, const int32_t *values, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		int32_t sum = job_sum(rank->ranks, i);

		if (values[i] != sum)
			return complain(
				rank, "%zu of %zu: %d instead of %d", i, count, values[i], sum);
	}
	return true;
}

int plug_allreduce(struct rank *rank, int32_t *values, size_t count)
{
	struct frl_request *request;
	int err = plug_start(rank, values, count, &request);

	if (!err)
		err = frl_request_wait(request);
	if (!err)
		plug_sums_are_right(rank, values, count);
	return err;
}
