/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The states of a queue pair: which attributes a transition needs and takes, and what they may be.
 * One table for all devices, so that a refusal names the attribute also where hardware would only
 * say EINVAL. IBTA volume 1, 11.2.5.2 and table 94.
 */
#ifndef FERRULE_BASE_QP_RULES_H
#define FERRULE_BASE_QP_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/queue.h>

/* What the rules look at. */
struct qp_rules_subject {
	enum frl_qp_type type;
	enum frl_qp_state state;
	bool drained; /* in SQD: no request is under way */
};

/* As frl_qp_modify(): NULL, or why not. */
const char *qp_rules_check(
	const struct qp_rules_subject *qp, const struct frl_qp_attr *attr, uint32_t mask);

#endif
