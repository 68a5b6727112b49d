/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/nccl/nccl_verbs_fixture.h"

enum { HURRY = 200 };

static struct fake_verbs_device make(const char *name, const char *address)
{
	struct fake_verbs_device device;

	fake_verbs_device_init(&device, name, address);
	return device;
}

void plug_add_port(struct fake_verbs_device *device, const char *link_local, const char *address)
{
	device->attr.phys_port_cnt = 2;
	device->ports[1] = device->ports[0];
	for (int i = 0; i < 4; i++)
		fake_verbs_gid_set(&device->ports[1].gids[i], i < 2 ? link_local : address,
			device->ports[0].gids[i].type);
}

void plug_in(uint32_t max_inline, bool flushes_late)
{
	struct fake_verbs_device nic0 = make("nic0", "10.0.0.1"), nic1 = make("nic1", "10.0.1.1");
	struct fake_verbs_device two = make("two", "10.0.2.1"), down = make("down", "10.0.4.1");

	fake_verbs_reset();
	nic0.max_inline = nic1.max_inline = max_inline;
	nic0.flushes_late = nic1.flushes_late = flushes_late;
	nic0.ports[0].active_width = nic1.ports[0].active_width = 2; /* four lanes */
	nic0.ports[0].active_speed = 32;                             /* of 25 Gbit/s */
	nic1.ports[0].active_speed = 128;                            /* of 100 */
	two.ports[0].active_width = two.ports[0].active_speed = 0;
	plug_add_port(&two, "fe80::2:2", "10.0.3.1");
	down.ports[0].state = IBV_PORT_DOWN;
	fake_verbs_add(&nic0);
	fake_verbs_add(&nic1);
	fake_verbs_add(&two);
	fake_verbs_add(&down);
	fake_verbs_hurry(HURRY);
}
