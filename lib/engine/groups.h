/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multicast groups: attached queue pairs, and IGMP and MLD membership reports. Reports are sent
 * when a group is joined and in answer to queries (RFC 2236, RFC 2710). No I/O: frames are
 * arguments and results.
 */
#ifndef FERRULE_ENGINE_GROUPS_H
#define FERRULE_ENGINE_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/random.h"
#include "lib/base/net/gids.h"
#include "lib/wire/group.h"

struct engine_qp;

enum {
	GROUPS_MAX = 64,
	GROUP_ATTACHMENTS_MAX = 256,      /* of queue pairs, over all groups */
	GROUP_REPORTS = 2,                /* unsolicited ones, as one may be lost (RFC 2236, 3) */
	GROUP_REPORT_INTERVAL_MS = 10000, /* between reports (RFC 2236, 8.10; RFC 2710, 7.10) */
	GROUP_MIN_DELAY_MS = 10,          /* after a query, so that many queries cause few reports
					   */
};

/* A group. The slot is free without users, once the leave report was sent. */
struct group {
	struct frl_ip ip;
	uint32_t users; /* attachments */
	bool leaving;
	bool one_vlan; /* the pending report goes to `vlan` alone, which has queried */
	uint16_t vlan;
	uint8_t reports;       /* left to send */
	uint8_t next_gid;      /* next GID to send the pending report */
	uint64_t report_at_ns; /* or UINT64_MAX */
};

struct attachment {
	uint8_t group;
	struct engine_qp *qp; /* NULL: the slot is free */
};

struct groups {
	bool silent;     /* no reports are sent */
	uint32_t n_used; /* slots that are not free */
	uint64_t next_report_ns;
	struct group groups[GROUPS_MAX];
	struct attachment attachments[GROUP_ATTACHMENTS_MAX];
};

void groups_init(struct groups *groups, bool silent);

/* Attaching twice has no effect. -ENOMEM. */
int groups_attach(
	struct groups *groups, const struct frl_ip *ip, struct engine_qp *qp, uint64_t now_ns);
/* Returns false if the queue pair was not attached. */
bool groups_detach(struct groups *groups, const struct frl_ip *ip, const struct engine_qp *qp);
void groups_detach_all(struct groups *groups, const struct engine_qp *qp);

/* Returns the index of the group, or -1 if no queue pair is attached. */
int groups_find(const struct groups *groups, const struct frl_ip *ip);

/* Iterates over the queue pairs of a group, from *at = 0. Returns NULL at the end. */
struct engine_qp *groups_next_member(const struct groups *groups, int group, unsigned *at);

/* Handles a received frame. Returns false if it is no membership query. */
bool groups_input(struct groups *groups, const uint8_t *frame, size_t len,
	struct random_state *random, uint64_t now_ns);

/* Encodes the next pending report; returns 0 if there is none. A report goes to each VLAN with an
 * address of the group's family, or only to the VLAN that queried. */
size_t groups_output(struct groups *groups, const struct gid_table *gids, const uint8_t mac[6],
	uint8_t frame[GROUP_MAX_FRAME], uint64_t now_ns);

/* Returns when groups_output() has a report next, or UINT64_MAX. */
static inline uint64_t groups_next_deadline(const struct groups *groups)
{
	return groups->next_report_ns;
}

#endif
