/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/data/profile.h"

void net_profile_start(const struct comm *comm, const struct path *path,
	const struct frl_send_wr *wr, size_t length, void *parent, void **ret_event)
{
	struct nccl_event_v1 event = { .type = NCCL_EVENT_QP };

	if (!comm->profiler)
		return;
	event.qp.device = comm->dev;
	event.qp.wr_id = wr->wr_id;
	event.qp.opcode = (int)wr->opcode;
	event.qp.qp_num = (int)frl_qp_num(path->qp);
	event.qp.length = length;
	/* A failing profiler must not fail the message. */
	(void)comm->profiler(ret_event, NCCL_EVENT_START, parent, NCCL_EVENT_PLUGIN_IB, &event);
}

void net_profile_stop(const struct comm *comm, void **event)
{
	if (comm->profiler)
		(void)comm->profiler(event, NCCL_EVENT_STOP, NULL, NCCL_EVENT_PLUGIN_IB, NULL);
}
