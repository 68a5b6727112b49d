/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The states of a queue pair: the attributes that each transition requires and allows, and their
 * valid values. One table serves all devices, so that errors name the attribute even where hardware
 * only returns EINVAL. IBTA volume 1, 11.2.5.2 and table 94.
 */
#ifndef FERRULE_BASE_QP_RULES_H
#define FERRULE_BASE_QP_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/queue.h>

/* The properties of a queue pair that the rules check. */
struct qp_rules_subject {
	enum frl_qp_type type;
	enum frl_qp_state state;
	bool drained; /* in SQD: no request is outstanding */
};

/* Checks the arguments of frl_qp_modify(). Returns NULL, or the reason for a refusal. */
const char *qp_rules_check(
	const struct qp_rules_subject *qp, const struct frl_qp_attr *attr, uint32_t mask);

#endif
