/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gives the harness RDMA devices that do not exist: the libibverbs in memory
 * (tests/fakes/verbs/fake_verbs.h) is part of the program, and the plugin finds its functions
 * before the real ones. All devices are on a wire of this process, so both sides of a row are
 * threads. "nic0" and "nic1" have one port each, "nic2" has two. FAKE_DEVICES=old in the
 * environment makes them as old as devices and drivers can be.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/verbs/fake_verbs.h"

enum { HURRY = 200 };

static void add_as_wanted(struct fake_verbs_device *device)
{
	const char *wanted = getenv("FAKE_DEVICES");

	if (wanted && strcmp(wanted, "old") == 0) {
		device->has_verbs_context = device->has_cq_ex = device->has_qp_ex = false;
		device->has_query_device_ex = device->has_iova2 = false;
		device->has_dmabuf = device->has_mw = false;
		device->keeps_completions = device->flushes_late = true;
		device->max_inline = 0;
	}
	fake_verbs_add(device);
}

static void add(const char *name, const char *address)
{
	struct fake_verbs_device device;

	fake_verbs_device_init(&device, name, address);
	add_as_wanted(&device);
}

static void add_of_two_ports(const char *name, const char *first, const char *second)
{
	struct fake_verbs_device device;

	fake_verbs_device_init(&device, name, first);
	device.attr.phys_port_cnt = 2;
	device.ports[1] = device.ports[0];
	for (unsigned int i = 0; i < FAKE_VERBS_GIDS; i++) {
		struct fake_verbs_gid *entry = &device.ports[1].gids[i];

		if (entry->type >= 0)
			fake_verbs_gid_set(entry, i < 2 ? "fe80::2:2" : second, entry->type);
	}
	add_as_wanted(&device);
}

__attribute__((constructor)) static void plug_in(void)
{
	fake_verbs_reset();
	add("nic0", "10.0.0.1");
	add("nic1", "10.0.1.1");
	add_of_two_ports("nic2", "10.0.2.1", "10.0.3.1");
	fake_verbs_hurry(HURRY);
}
