/* SPDX-License-Identifier: BSD-3-Clause */
/* SEND and RECV from a rank to itself, matched in the order of their start. */
#include "collectives/communicator/communicator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/net/channel.h"
#include "collectives/net/steps.h"
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

static void append(struct self_list *list, struct run *run)
{
	run->next_self = NULL;
	if (list->first)
		list->last->next_self = run;
	else
		list->first = run;
	list->last = run;
}

/* Rounds elements as a wire type would, so that results do not depend on the rank of the sender. */
static void round_as_sent(float *elements, size_t count, enum frl_wire wire)
{
	enum { AT_A_TIME = 8 * FRL_WIRE_BLOCK };
	uint8_t encoded[AT_A_TIME * sizeof(float)];

	for (size_t i = 0; i < count; i += AT_A_TIME) {
		size_t n = count - i < AT_A_TIME ? count - i : AT_A_TIME;

		frl_wire_encode(encoded, elements + i, n, wire);
		frl_wire_decode(elements + i, encoded, n, wire);
	}
}

static int match(struct frl_comm *comm)
{
	struct run *from = comm->self_sends.first, *to = comm->self_receives.first;

	comm->self_sends.first = from->next_self;
	comm->self_receives.first = to->next_self;
	if (memcmp(&from->signature, &to->signature, sizeof(from->signature)) != 0)
		return comm_fail_mismatch(comm, comm->rank, &from->signature, &to->signature);
	if (from->base[PLAN_SEND] != to->base[PLAN_RECV])
		memmove(to->base[PLAN_RECV], from->base[PLAN_SEND], from->bytes[PLAN_SEND]);
	if (to->signature.wire != FRL_WIRE_SAME)
		round_as_sent((float *)(void *)to->base[PLAN_RECV],
			to->bytes[PLAN_RECV] / sizeof(float), (enum frl_wire)to->signature.wire);
	from->left = to->left = 0;
	run_complete(from);
	run_complete(to);
	return 0;
}

int self_advance(struct frl_comm *comm)
{
	int err = 0;

	comm->has_self_runs = false;
	while (comm->self_sends.first && comm->self_receives.first && !err &&
		!comm->self_sends.first->is_blocked && !comm->self_receives.first->is_blocked)
		err = match(comm);
	return err;
}

/* Returns the matching operation if it has been started; it may be behind blocked ones. */
static const struct run *find_partner(const struct run *run, const struct self_list *others)
{
	const struct run *other = others->first;

	while (other && other->signature.root != run->signature.root)
		other = other->next_self;
	return other;
}

/* Completes an operation without elements at once. Fails if the matching one has elements, since
 * it would wait forever. */
static int pass_empty(struct run *run, const struct self_list *others)
{
	const struct run *other = find_partner(run, others);

	if (other)
		return comm_fail_mismatch(
			run->comm, run->comm->rank, &run->signature, &other->signature);
	run->left = 0;
	request_run_done(run->request);
	return 0;
}

int self_enqueue(struct run *run)
{
	struct frl_comm *comm = run->comm;
	bool is_send = run->coll == FRL_SEND;
	struct self_list *mine = is_send ? &comm->self_sends : &comm->self_receives;
	struct self_list *others = is_send ? &comm->self_receives : &comm->self_sends;
	struct signature none;

	/* The root is the index, as between two ranks. */
	run->signature.root = mine->started++;
	if (run->signature.count == 0)
		return pass_empty(run, others);
	append(mine, run);
	if (find_partner(run, others))
		return self_advance(comm);
	/* The matching operation has already completed: it was empty. */
	if ((int32_t)(others->started - mine->started) >= 0) {
		none = run->signature;
		none.count = 0;
		return comm_fail_mismatch(comm, comm->rank, &none, &run->signature);
	}
	return 0;
}
