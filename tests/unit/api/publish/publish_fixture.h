/* SPDX-License-Identifier: BSD-3-Clause */
/* The test is the daemon that gets information about devices: helpers to read it. */
#ifndef FERRULE_TESTS_UNIT_API_PUBLISH_PUBLISH_FIXTURE_H
#define FERRULE_TESTS_UNIT_API_PUBLISH_PUBLISH_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/control/page.h"
#include "tests/fakes/fake_daemon.h"

extern struct fake_daemon daemon_fake;

/* A port as the daemon knows it. */
struct known {
	uint32_t number;
	uint64_t open_seq;
	char fabric[64];
	bool has_lease;
	uint64_t lease_id;
	struct page_view page;
	char device[64];
	char address[64];
	uint32_t path_mtu;
};

void answer_open(uint64_t seq, const Ctl__Lease *lease);
/* The message announces a socket, and none comes. */
void answer_without_its_socket(uint64_t seq, const Ctl__Lease *lease);
void read_open(struct known *known);
void read_description(struct known *known);
void forget(struct known *known);
void read_port(struct known *known);
void read_close(struct known *known);
/* Updates the pages. */
void publish_now(void);
bool find_qp(const struct known *known, uint32_t qpn, struct page_qp *ret);
unsigned count_qps(const struct known *known);
uint64_t counter(const struct known *known, const char *name);
void publish_setup(void);
void publish_teardown(void);

#endif
