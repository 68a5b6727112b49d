/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/engine/groups.h"

#include <errno.h>
#include <string.h>

#define MS_TO_NS(ms) ((ms)*UINT64_C(1000000))

void groups_init(struct groups *g, bool silent)
{
	*g = (struct groups){ .silent = silent, .next_report_ns = UINT64_MAX };
}

static void report_at(struct groups *g, struct group *group, uint64_t at_ns)
{
	group->report_at_ns = at_ns;
	if (at_ns < g->next_report_ns)
		g->next_report_ns = at_ns;
}

static bool in_use(const struct group *group)
{
	return group->users || group->leaving;
}

static struct group *find_slot(struct groups *g, const struct frl_ip *ip)
{
	struct group *room = NULL;

	for (unsigned i = 0; i < GROUPS_MAX; i++) {
		if (in_use(&g->groups[i]) && ip_equal(&g->groups[i].ip, ip))
			return &g->groups[i];
		if (!room && !in_use(&g->groups[i]))
			room = &g->groups[i];
	}
	return room;
}

static void join(struct groups *g, struct group *group, const struct frl_ip *ip, uint64_t now_ns)
{
	if (!in_use(group))
		g->n_used++;
	*group = (struct group){ .ip = *ip, .report_at_ns = UINT64_MAX };
	if (g->silent || !group_is_reported(ip))
		return;
	group->reports = GROUP_REPORTS;
	report_at(g, group, now_ns);
}

static void leave(struct groups *g, struct group *group)
{
	bool is_reported = !g->silent && group_is_reported(&group->ip);

	*group = (struct group){
		.ip = group->ip, .leaving = is_reported, .report_at_ns = UINT64_MAX
	};
	if (is_reported)
		report_at(g, group, 0);
	else
		g->n_used--;
}

static struct attachment *find_attachment(
	struct groups *g, unsigned group, const struct engine_qp *qp)
{
	for (unsigned i = 0; i < GROUP_ATTACHMENTS_MAX; i++)
		if (g->attachments[i].qp == qp && (!qp || g->attachments[i].group == group))
			return &g->attachments[i];
	return NULL;
}

int groups_attach(struct groups *g, const struct frl_ip *ip, struct engine_qp *qp, uint64_t now_ns)
{
	struct group *group = find_slot(g, ip);
	struct attachment *attachment;
	unsigned index;

	if (!group)
		return -ENOMEM;
	index = (unsigned)(group - g->groups);
	if (group->users && find_attachment(g, index, qp))
		return 0;
	attachment = find_attachment(g, index, NULL);
	if (!attachment)
		return -ENOMEM;
	if (!group->users)
		join(g, group, ip, now_ns);
	group->users++;
	*attachment = (struct attachment){ (uint8_t)index, qp };
	return 0;
}

static void drop_attachment(struct groups *g, struct attachment *attachment)
{
	struct group *group = &g->groups[attachment->group];

	attachment->qp = NULL;
	if (--group->users == 0)
		leave(g, group);
}

bool groups_detach(struct groups *g, const struct frl_ip *ip, const struct engine_qp *qp)
{
	int index = groups_find(g, ip);
	struct attachment *attachment = NULL;

	if (index >= 0)
		attachment = find_attachment(g, (unsigned)index, qp);
	if (attachment)
		drop_attachment(g, attachment);
	return attachment != NULL;
}

void groups_detach_all(struct groups *g, const struct engine_qp *qp)
{
	for (unsigned i = 0; g->n_used && i < GROUP_ATTACHMENTS_MAX; i++)
		if (g->attachments[i].qp == qp)
			drop_attachment(g, &g->attachments[i]);
}

int groups_find(const struct groups *g, const struct frl_ip *ip)
{
	for (unsigned i = 0; g->n_used && i < GROUPS_MAX; i++)
		if (g->groups[i].users && ip_equal(&g->groups[i].ip, ip))
			return (int)i;
	return -1;
}

struct engine_qp *groups_next_member(const struct groups *g, int group, unsigned *at)
{
	while (*at < GROUP_ATTACHMENTS_MAX) {
		const struct attachment *attachment = &g->attachments[(*at)++];

		if (attachment->qp && attachment->group == group)
			return attachment->qp;
	}
	return NULL;
}

/* Schedules a report in answer to a query. An earlier report is the answer, too (RFC 2236, 3). */
static void schedule_answer(struct groups *g, struct group *group, uint16_t vlan, uint64_t at_ns)
{
	if (group->reports == 0) {
		group->reports = 1;
		group->one_vlan = true;
		group->vlan = vlan;
	} else if (group->vlan != vlan) {
		group->one_vlan = false;
	}
	if (at_ns < group->report_at_ns)
		report_at(g, group, at_ns);
}

bool groups_input(struct groups *g, const uint8_t *frame, size_t len, struct random_state *random,
	uint64_t now_ns)
{
	struct group_query query;
	uint64_t delay_ns;

	if (!group_decode_query(&query, frame, len))
		return false;
	for (unsigned i = 0; !g->silent && i < GROUPS_MAX; i++) {
		struct group *group = &g->groups[i];

		if (!group->users || !group_is_queried(&query, &group->ip, query.vlan))
			continue;
		delay_ns = random_below(random, MS_TO_NS((uint64_t)query.max_delay_ms) + 1);
		if (delay_ns < MS_TO_NS(GROUP_MIN_DELAY_MS))
			delay_ns = MS_TO_NS(GROUP_MIN_DELAY_MS);
		schedule_answer(g, group, query.vlan, now_ns + delay_ns);
	}
	return true;
}

/* Returns the next GID that is the first of its address family on its VLAN. */
static unsigned next_sender(const struct gid_table *gids, const struct group *group)
{
	bool v4 = ip_is_v4(&group->ip);
	unsigned at;

	for (at = group->next_gid; at < gids->n; at++) {
		const struct frl_gid *gid = &gids->gids[at];
		unsigned k = 0;

		if (group->one_vlan && gid->vlan != group->vlan)
			continue;
		while (k < at &&
			(gids->gids[k].vlan != gid->vlan || ip_is_v4(&gids->gids[k].ip) != v4))
			k++;
		if (k == at && ip_is_v4(&gid->ip) == v4)
			break;
	}
	return at;
}

static void reported(struct groups *g, struct group *group, uint64_t now_ns)
{
	group->next_gid = 0;
	group->one_vlan = false;
	if (group->leaving) {
		group->leaving = false;
		g->n_used--;
		return;
	}
	group->reports--;
	group->report_at_ns = group->reports ? now_ns + MS_TO_NS(GROUP_REPORT_INTERVAL_MS)
					     : UINT64_MAX;
}

/* Encodes the report of the next GID. Returns 0 when all have sent theirs. */
static size_t report(struct groups *g, struct group *group, const struct gid_table *gids,
	const uint8_t mac[6], uint8_t frame[GROUP_MAX_FRAME], uint64_t now_ns)
{
	bool v4 = ip_is_v4(&group->ip);
	unsigned sender = next_sender(gids, group);
	struct group_report out = { .leave = group->leaving, .group = group->ip };

	if (sender == gids->n) {
		reported(g, group, now_ns);
		return 0;
	}
	group->next_gid = (uint8_t)(sender + 1);
	out.src_ip = v4 ? gids->gids[sender].ip : gid_link_local(mac);
	out.vlan = gids->gids[sender].vlan;
	memcpy(out.src_mac, mac, sizeof(out.src_mac));
	return group_encode_report(frame, &out);
}

size_t groups_output(struct groups *g, const struct gid_table *gids, const uint8_t mac[6],
	uint8_t frame[GROUP_MAX_FRAME], uint64_t now_ns)
{
	uint64_t next = UINT64_MAX;

	if (now_ns < g->next_report_ns)
		return 0;
	for (unsigned i = 0; i < GROUPS_MAX; i++) {
		struct group *group = &g->groups[i];
		size_t len;

		if (!in_use(group))
			continue;
		if (group->report_at_ns <= now_ns) {
			len = report(g, group, gids, mac, frame, now_ns);
			if (len)
				return len;
		}
		if (in_use(group) && group->report_at_ns < next)
			next = group->report_at_ns;
	}
	g->next_report_ns = next;
	return 0;
}
