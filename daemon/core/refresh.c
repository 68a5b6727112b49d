/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Metrics that are read now and then: processes are told to publish shortly before. Nobody waits
 * for the answers, so one that is stopped delays nothing; its pages are then as they last were.
 */
#include "daemon/core/internal.h"

#define OLD_NS    UINT64_C(1000000000)
#define ANSWER_NS UINT64_C(1000000000)

static bool has_old_page(const struct session *session, uint64_t now_ns)
{
	LIST_EACH(const struct port, port, &session->ports, of_session) {
		uint64_t published_ns;

		if (!port->page.close)
			continue;
		published_ns = page_published_ns(&port->page);
		/* Of a time to come, a mistake or a trick, the difference is large as well. */
		if (now_ns - published_ns > OLD_NS)
			return true;
	}
	return false;
}

void core_refresh(struct core *core, uint64_t now_ns)
{
	struct session *session, *next;

	HASH_ITER(hh, core->sessions, session, next)
	{
		Ctl__Publish body = CTL__PUBLISH__INIT;

		if (session->kind != CORE_LOCAL || session->lost || session->publish_seq ||
			!has_old_page(session, now_ns))
			continue;
		session->publish_seq = ++core->next_seq;
		session->publish_by_ns = now_ns + ANSWER_NS;
		session_send(
			core, session, &ENVELOPE(session->publish_seq, PUBLISH, publish, &body));
	}
}
