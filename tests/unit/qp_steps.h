/* SPDX-License-Identifier: BSD-3-Clause */
/* A reliable connection's way up, for tests whose queue pairs answer each other. */
#ifndef FERRULE_TESTS_UNIT_QP_STEPS_H
#define FERRULE_TESTS_UNIT_QP_STEPS_H

#include "lib/protocol/qp.h"

/* From RESET to RTS. *ret_why is the reason of a failure, and set then alone. */
static inline int qp_steps_up(struct qp *qp, struct frl_qp_attr attr, const char **ret_why)
{
	static const struct {
		enum frl_qp_state state;
		uint32_t mask;
	} steps[] = {
		{ FRL_QPS_INIT, FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_ACCESS_FLAGS },
		{ FRL_QPS_RTR,
			FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN | FRL_QP_RQ_PSN |
				FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_MIN_RNR_TIMER },
		{ FRL_QPS_RTS,
			FRL_QP_SQ_PSN | FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT | FRL_QP_RNR_RETRY |
				FRL_QP_MAX_QP_RD_ATOMIC },
	};
	int err = 0;

	for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]) && !err; i++) {
		attr.state = steps[i].state;
		err = qp_modify(qp, &attr, FRL_QP_STATE | steps[i].mask, ret_why);
	}
	return err;
}

#endif
