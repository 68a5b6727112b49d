/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multicast groups that queue pairs are attached to, and the membership that the network is told
 * about: reports when a group is joined and when somebody asks (RFC 2236, RFC 2710). No I/O: frames
 * are returned and taken.
 */
#ifndef FERRULE_ENGINE_GROUPS_H
#define FERRULE_ENGINE_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/random.h"
#include "lib/base/gids.h"
#include "lib/wire/group.h"

struct engine_qp;

enum {
	GROUPS_MAX = 64,
	GROUP_ATTACHMENTS_MAX = 256,      /* of queue pairs, in all groups together */
	GROUP_REPORTS = 2,                /* unsolicited ones; RFC 2236, 3: one may be lost */
	GROUP_REPORT_INTERVAL_MS = 10000, /* between them; RFC 2236, 8.10; RFC 2710, 7.10 */
	GROUP_MIN_DELAY_MS = 10,          /* after a query, so that many of them make few reports */
};

/* A slot is free without users, unless the network is still to be told that they left. */
struct group {
	struct frl_ip ip;
	uint32_t users; /* attachments */
	bool leaving;
	bool one_vlan; /* what is due is for `vlan` alone, which asked */
	uint16_t vlan;
	uint8_t reports;       /* still to send */
	uint8_t next_gid;      /* who sends what is due: those before have done so */
	uint64_t report_at_ns; /* or UINT64_MAX */
};

struct attachment {
	uint8_t group;
	struct engine_qp *qp; /* NULL: the slot is free */
};

struct groups {
	bool silent;     /* nobody is to be told */
	uint32_t n_used; /* slots that are not free */
	uint64_t next_report_ns;
	struct group groups[GROUPS_MAX];
	struct attachment attachments[GROUP_ATTACHMENTS_MAX];
};

void groups_init(struct groups *groups, bool silent);

/* Once is as good as twice. -ENOMEM. */
int groups_attach(
	struct groups *groups, const struct frl_ip *ip, struct engine_qp *qp, uint64_t now_ns);
/* False: it was not attached. */
bool groups_detach(struct groups *groups, const struct frl_ip *ip, const struct engine_qp *qp);
void groups_detach_all(struct groups *groups, const struct engine_qp *qp);

/* The group's index, or -1 when nobody is attached to it. */
int groups_find(const struct groups *groups, const struct frl_ip *ip);

/* Walks the queue pairs of a group, from *at = 0 on; NULL at the end. */
struct engine_qp *groups_next_member(const struct groups *groups, int group, unsigned *at);

/* Takes a frame; false when it is no query. */
bool groups_input(struct groups *groups, const uint8_t *frame, size_t len,
	struct random_state *random, uint64_t now_ns);

/* The next report that is due, 0 for none. Each VLAN that has an address of the group's family is
 * told, or the one that asked. */
size_t groups_output(struct groups *groups, const struct gid_table *gids, const uint8_t mac[6],
	uint8_t frame[GROUP_MAX_FRAME], uint64_t now_ns);

/* When groups_output() may have something, or UINT64_MAX. */
static inline uint64_t groups_next_deadline(const struct groups *groups)
{
	return groups->next_report_ns;
}

#endif
