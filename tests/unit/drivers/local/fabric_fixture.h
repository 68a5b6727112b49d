/* SPDX-License-Identifier: BSD-3-Clause */
/* A link of the local fabric, both ends in one process and a step at a time. */
#ifndef FERRULE_TESTS_UNIT_DRIVERS_LOCAL_FABRIC_FIXTURE_H
#define FERRULE_TESTS_UNIT_DRIVERS_LOCAL_FABRIC_FIXTURE_H

#include "drivers/local/link.h"

enum { MAX_FRAME = 5000, FRAME = 100 };

struct side {
	struct local_port port;
	struct fabric_link link;
};

extern struct side server, client;
extern struct fabric_pass pass; /* of the last step */
extern uint64_t now_ns;

/* The server listens. */
void fabric_setup(void);
void fabric_teardown(void);

void open_side(struct side *side, bool is_server);
/* The owner closes the link, and the link thread has published. */
void close_side(struct side *side);
/* One step of the link. */
void step(struct side *side);
/* Steps until the server has answered and the client has read the answer. */
void come_together(void);

#endif
