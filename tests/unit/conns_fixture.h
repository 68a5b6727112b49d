/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What processes of core_world.h say about connections, in short words. Each process has port 1,
 * and a connection is named by a number.
 */
#ifndef FERRULE_TESTS_CONNS_FIXTURE_H
#define FERRULE_TESTS_CONNS_FIXTURE_H

#include "daemon/core/internal.h"
#include "tests/unit/core_world.h"

enum { PORT = 1, TIMEOUT_MS = 10000, UID = 1000, OTHER_UID = 2000 };

/* The hosts of the two ends. */
enum where { ONE_PROCESS, ONE_HOST, TWO_HOSTS, WHERES };

/* Two processes of a user, on host "a" or on "a" and "b"; the passive one offers "echo". */
struct ends {
	struct world *world;
	struct process *active, *passive;
	int passive_host;
	const char *host; /* as the active end names it */
};

struct ends ends_new(enum where where);
/* Both have no connection any more and have heard nothing that the test does not know. */
void ends_free(struct ends *ends);
unsigned conns_of(struct world *world, int host);

struct uuid {
	uint8_t bytes[UUID_SIZE];
};

struct uuid uuid_of(uint32_t number);
/* Its number, of a message about connections; 0: it is none. */
uint32_t uuid_number(const Ctl__Envelope *envelope);

/* A process with its port. */
struct process *conns_process(struct world *world, int host, uint32_t uid, uint32_t pid);

/* Fails the test unless the service comes to be offered. */
void offer(struct process *process, const char *service, uint32_t listener, bool any_user);
/* The same, whatever comes of it: 0, or the errno of the Failure. */
int try_offer(struct process *process, const char *service, uint32_t listener);
void unlisten(struct process *process, uint32_t listener);

void request_of(struct process *process, uint32_t number, const char *host, const char *service,
	bool any_user);
void request(struct process *process, uint32_t number, const char *host, const char *service);
void reply(struct process *process, uint32_t number, uint32_t qpn);
void ready(struct process *process, uint32_t number);
void end(struct process *process, uint32_t number, bool to_passive, int error, const char *reason);
void resume(struct process *process, uint32_t number, bool passive, uint32_t qpn, const char *host,
	bool established);

/* The queue pair of the active end of a connection, unless it is said otherwise. */
uint32_t qpn_of(uint32_t number);

/* The next message of that kind, which must be there. To be freed. */
Ctl__Envelope *expect(struct process *process, Ctl__Envelope__BodyCase body);
/* ... and be about this connection; is freed. */
void expect_about(struct process *process, Ctl__Envelope__BodyCase body, uint32_t number);
/* An end of this connection with this errno, the reason having `words` in it. */
void expect_end(struct process *process, uint32_t number, int error, const char *words);
void expect_nothing(struct process *process);

/* From request to established; both must hear what they should. */
void establish(struct process *active, struct process *passive, uint32_t number, const char *host,
	const char *service);

#endif
