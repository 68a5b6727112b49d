/* SPDX-License-Identifier: BSD-3-Clause */
/* NICs for raw packets on a libibverbs in memory: "nic0", "nic1" ..., with RoCE off and a network
 * interface in a sysfs of the test's own, which is a folder. */
#ifndef FERRULE_TESTS_UNIT_DRIVERS_RAW_RAW_FIXTURE_H
#define FERRULE_TESTS_UNIT_DRIVERS_RAW_RAW_FIXTURE_H

#include <stddef.h>

#include "drivers/raw/raw.h"
#include "tests/fakes/verbs/fake_verbs.h"

enum {
	SLOTS = 128,
	FRAME = 4194, /* the longest, but for a tag */
};

extern struct port *nic;    /* of "nic0" */
extern uint8_t bytes[9100]; /* of a frame that the test makes */

extern const uint8_t own_mac[6], other_mac[6], broadcast[6], all_nodes[6];

/* Setup and teardown of each test, for raw_stop(). */
void raw_setup(void);
void raw_teardown(void);

/* The device for fake_verbs_add(): number `n`, whose interface "rawN" has the MAC address
 * 02:00:00:00:00:0N and MTU 4200. It may be changed before that. */
void raw_describe(struct fake_verbs_device *device, unsigned n);
/* Both at once, unchanged. */
void raw_plug(unsigned n);
/* Another content of a file of its interface: "operstate", "mtu", "address", "dev_port". NULL: the
 * file is removed. */
void raw_put(unsigned n, const char *file, const char *text);

/* With the addresses 10.0.0.1 and fd00::1; as raw_port_open(). */
int raw_open(const char *text, uint32_t max_kept, struct port **ret_port);
/* "nic0" is plugged in and becomes `nic`. */
void raw_start(const char *text);
void raw_stop(void);

/* In `bytes`, whose length they return. Ethernet to `mac` of that type; what is behind it counts
 * up. */
size_t make_frame(const uint8_t mac[6], uint16_t type, size_t length);
/* To an address of either family, of that protocol, to UDP port `udp`. */
size_t make_ip(const uint8_t mac[6], const char *to, uint8_t protocol, uint16_t udp, size_t length);
/* To port 4791 of 10.0.0.1. */
size_t roce(size_t length);
/* Delivers it to "nic0". Returns whether the kernel sees it, too. */
bool arrive(size_t length);
uint16_t receive(struct port_frame frames[], uint16_t max);
void add_address(struct gid_table *gids, const char *text);

#endif
