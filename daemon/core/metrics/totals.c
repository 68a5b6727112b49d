/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/core/metrics/totals.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/core/leases/leases.h"
#include "daemon/core/query/query.h"

static const char *const counter_names[TOTAL_COUNTERS] = {
#define COUNTER_NAME(name, what) #name,
	FRL_COUNTERS(COUNTER_NAME)
#undef COUNTER_NAME
};

_Static_assert((int)TOTAL_COUNTERS <= (int)PAGE_COUNTERS, "a page has room for all counters");

static struct total *total_find(struct core *core, const struct total_key *key)
{
	struct total *total;

	HASH_FIND(hh, core->totals, key, sizeof(*key), total);
	return total;
}

/* Returns NULL without memory. */
static struct total *total_get(struct core *core, struct total_key *key)
{
	struct total *total = total_find(core, key);

	if (!total && HASH_COUNT(core->totals) >= TOTALS_MAX) {
		key->uid = TOTAL_OTHERS;
		total = total_find(core, key);
	}
	if (total)
		return total;
	total = calloc(1, sizeof(*total));
	if (!total)
		return NULL;
	total->key = *key;
	HASH_ADD(hh, core->totals, key, sizeof(total->key), total);
	if (hash_added(&total->hh))
		return total;
	free(total);
	return NULL;
}

static struct total *total_of_port(struct core *core, const struct port *port)
{
	struct total_key key;

	memset(&key, 0, sizeof(key));
	copy_text(key.fabric, sizeof(key.fabric), port->lease ? port->lease->fabric : "local");
	if (port->lease && port->lease->devargs)
		copy_text(key.device, sizeof(key.device), port->lease->devargs);
	key.uid = port->session->uid;
	return total_get(core, &key);
}

/* Adds the current counters of a page; unknown names are ignored. */
static void add_counters(uint64_t *sums, const struct page_view *page)
{
	uint32_t i, count, hint = 0;
	struct page head;

	if (!page_read_head(page, &head))
		return;
	count = head.counters;
	if (count > PAGE_COUNTERS)
		count = PAGE_COUNTERS;
	for (i = 0; i < count; i++) {
		char name[PAGE_COUNTER_NAME];
		uint32_t k;

		memcpy(name, head.counter[i].name, sizeof(name));
		name[sizeof(name) - 1] = '\0';
		/* The order is the same as long as library and daemon are of one release. */
		for (k = 0; k < TOTAL_COUNTERS; k++) {
			uint32_t at = (hint + k) % TOTAL_COUNTERS;

			if (strcmp(name, counter_names[at]) != 0)
				continue;
			sums[at] += head.counter[i].value;
			hint = at + 1;
			break;
		}
	}
}

static void add_qps(struct core *core, struct total *total, struct port *port)
{
	uint32_t slots = qp_slots(core, port);
	struct page_qp qp;
	uint32_t i;

	for (i = 0; i < slots; i++) {
		if (!page_read_qp(&port->page, i, &qp))
			continue;
		if (qp.type >= TOTAL_TYPES || qp.state >= TOTAL_STATES || qp.wait >= TOTAL_WAITS)
			continue;
		total->qps[qp.type][qp.state]++;
		total->waits[qp.wait]++;
	}
}

static void add_port(struct core *core, struct port *port)
{
	struct total *total = total_of_port(core, port);

	if (!total)
		return;
	total->ports++;
	if (!port->page.close)
		return;
	add_counters(total->counters, &port->page);
	add_qps(core, total, port);
}

void totals_update(struct core *core)
{
	struct session *session, *next_session;
	struct total *total, *next_total;

	HASH_ITER(hh, core->totals, total, next_total)
	{
		memcpy(total->counters, total->gone, sizeof(total->counters));
		memset(total->qps, 0, sizeof(total->qps));
		memset(total->waits, 0, sizeof(total->waits));
		total->ports = 0;
	}
	HASH_ITER(hh, core->sessions, session, next_session)
	{
		if (session->kind != CORE_LOCAL)
			continue;
		LIST_EACH(struct port, port, &session->ports, of_session) {
			add_port(core, port);
		}
	}
}

void metrics_port_lost(struct core *core, struct port *port)
{
	struct total *total = port->page.close ? total_of_port(core, port) : NULL;

	if (total)
		add_counters(total->gone, &port->page);
}

void metrics_destroy(struct core *core)
{
	struct total *total, *next;

	HASH_ITER(hh, core->totals, total, next)
	{
		HASH_DEL(core->totals, total);
		free(total);
	}
}
