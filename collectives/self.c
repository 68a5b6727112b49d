/* SPDX-License-Identifier: BSD-3-Clause */
/* SEND and RECV of a rank to and from itself: they meet in the order of starting. */
#include "collectives/communicator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"

int self_get(struct frl_comm *comm, struct run **ret_run)
{
	struct run *run = calloc(1, sizeof(*run));

	if (!run)
		return frl_fail(-ENOMEM, "no memory for an operation");
	run->comm = comm;
	run->left = 1;
	*ret_run = run;
	return 0;
}

static void append(struct run **list, struct run *run)
{
	while (*list)
		list = &(*list)->next_self;
	*list = run;
}

static int meet(struct frl_comm *comm)
{
	struct run *from = comm->self_sends, *to = comm->self_receives;

	comm->self_sends = from->next_self;
	comm->self_receives = to->next_self;
	if (memcmp(&from->signature, &to->signature, sizeof(from->signature)) != 0)
		return comm_fail_mismatch(comm, comm->rank, &from->signature, &to->signature);
	if (from->base[PLAN_SEND] != to->base[PLAN_RECV])
		memmove(to->base[PLAN_RECV], from->base[PLAN_SEND], from->bytes[PLAN_SEND]);
	from->left = to->left = 0;
	request_run_done(from->request);
	request_run_done(to->request);
	return 0;
}

int self_enqueue(struct run *run)
{
	struct frl_comm *comm = run->comm;

	run->next_self = NULL;
	append(run->bytes[PLAN_SEND] > 0 ? &comm->self_sends : &comm->self_receives, run);
	return comm->self_sends && comm->self_receives ? meet(comm) : 0;
}
