/* SPDX-License-Identifier: BSD-3-Clause */
/* A host with fabric "eth" and a process whose user may use it: for tests of ports and leases. */
#ifndef FERRULE_TESTS_PORTS_FIXTURE_H
#define FERRULE_TESTS_PORTS_FIXTURE_H

#include "daemon/core/internal.h"
#include "tests/unit/core_world.h"

enum { UID = 1000, OTHER_UID = 2000, GROUP = 50, PORTS = 3, ADDRESSES = 4, MACS = 4, QPNS = 1000 };

struct town {
	struct config *config;
	struct world *world;
	struct process *process;
};

/* Fabric "eth" of user UID: three devices, four addresses of each family, four MACs. */
struct town town_new(void);
void town_free(struct town *town);
/* The fabric has only the first `n` of its ports. */
void town_limit_ports(struct town *town, uint32_t n);

/* Opens a port, with the lease that the process has had or NULL; the answer is the caller's. */
Ctl__Envelope *open_port(
	struct process *process, uint32_t number, const char *fabric, Ctl__Lease *lease);
/* On "eth", and it is granted. */
Ctl__Envelope *must_open(struct process *process, uint32_t number);
void close_port(struct process *process, uint32_t number);
Ctl__Envelope *describe(struct process *process, uint32_t number, const char *address,
	const uint8_t mac[6], const uint8_t nonce[16]);

/* Checks an answer, and frees it. */
void drop(Ctl__Envelope *answer);
void check_opened(Ctl__Envelope *answer);
void check_failure(Ctl__Envelope *answer, int error, const char *part);

#endif
