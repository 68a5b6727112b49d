/* SPDX-License-Identifier: BSD-3-Clause */
/* The role "multicast" of verbs-peer: processes in a group. */
#include "tests/system/dropin/verbs_peer.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum {
	GRH = 40,
	QKEY = 0x1234,
	MULTICAST_QPN = 0xffffff,
	GROUP_MESSAGE = 1000,
};

struct member {
	struct peer peer;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
};

static void set_state(struct ibv_qp *qp, enum ibv_qp_state state, int mask)
{
	struct ibv_qp_attr attr = { .qp_state = state, .port_num = 1, .qkey = QKEY };

	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask))
		die("no state %d: %s", (int)state, strerror(errno));
}

static void post_group_recv(const struct member *m, int slot)
{
	struct ibv_sge sge = { .addr = (uintptr_t)incoming(&m->peer, slot),
		.length = GRH + GROUP_MESSAGE,
		.lkey = m->peer.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = (uint64_t)slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_recv(m->qp, &wr, &bad))
		die("rank %d: cannot post", m->peer.rank);
}

/* With a receive for a message of each rank. */
static void open_member(struct member *m, int rank, int n)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 4,
			.max_recv_wr = 64,
			.max_send_sge = 1,
			.max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD,
	};

	open_peer(&m->peer, rank, n);
	init.send_cq = init.recv_cq = m->peer.cq;
	m->qp = ibv_create_qp(m->peer.pd, &init);
	if (!m->qp)
		die("rank %d: no queue pair: %s", rank, strerror(errno));
	set_state(m->qp, IBV_QPS_INIT, IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY);
	set_state(m->qp, IBV_QPS_RTR, 0);
	set_state(m->qp, IBV_QPS_RTS, IBV_QP_SQ_PSN);
	for (int i = 0; i < n; i++)
		post_group_recv(m, i);
}

static void attach_member(const struct member *m)
{
	int err = ibv_attach_mcast(m->qp, &shared->group, 0);

	if (err)
		die("rank %d: cannot join: %s", m->peer.rank, strerror(err));
}

static void send_to_group(struct member *m)
{
	struct ibv_ah_attr path = { .is_global = 1,
		.port_num = 1,
		.grh = { .dgid = shared->group, .sgid_index = 1, .hop_limit = 1 } };
	struct ibv_sge sge = { .addr = (uintptr_t)outgoing(&m->peer, 0),
		.length = GROUP_MESSAGE,
		.lkey = m->peer.mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = MAX_RANKS,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	if (!m->ah)
		m->ah = ibv_create_ah(m->peer.pd, &path);
	if (!m->ah)
		die("rank %d: no address handle: %s", m->peer.rank, strerror(errno));
	wr.wr.ud.ah = m->ah;
	wr.wr.ud.remote_qpn = MULTICAST_QPN;
	wr.wr.ud.remote_qkey = QKEY;
	memset(outgoing(&m->peer, 0), m->peer.rank + 1, GROUP_MESSAGE);
	if (ibv_post_send(m->qp, &wr, &bad))
		die("rank %d: cannot send", m->peer.rank);
}

/* Receives one message of each of the first ranks. `is_sender`: and a completion. */
static void receive_from(const struct member *m, int n, bool is_sender)
{
	uint64_t ranks = 0;

	for (int left = n + is_sender; left; left--) {
		struct ibv_wc wc = wait_completion(&m->peer);
		const uint8_t *message;

		if (wc.status)
			die("rank %d: multicast: %s", m->peer.rank, ibv_wc_status_str(wc.status));
		if (wc.wr_id == MAX_RANKS)
			continue;
		message = incoming(&m->peer, (int)wc.wr_id) + GRH;
		if (wc.byte_len != GRH + GROUP_MESSAGE ||
			memcmp(message, message + 1, GROUP_MESSAGE - 1) || message[0] > n)
			die("rank %d: wrong message of group", m->peer.rank);
		ranks |= UINT64_C(1) << (message[0] - 1);
		post_group_recv(m, (int)wc.wr_id);
	}
	if (ranks != (UINT64_C(2) << (n - 1)) - 1)
		die("rank %d: messages of ranks 0x%llx", m->peer.rank, (unsigned long long)ranks);
}

static void close_member(struct member *m)
{
	if (ibv_destroy_ah(m->ah) || ibv_destroy_qp(m->qp))
		die("rank %d: cannot close", m->peer.rank);
	close_peer(&m->peer);
}

/* Rank 0 sends before it joins. The last rank opens its device after that. */
static void be_member(int rank, int n)
{
	struct member m = { .qp = NULL };

	if (rank < n - 1)
		open_member(&m, rank, n);
	if (rank > 0 && rank < n - 1)
		attach_member(&m);
	barrier(n, 1);
	if (rank == 0) {
		send_to_group(&m);
		wait_completion(&m.peer);
	} else if (rank < n - 1) {
		receive_from(&m, 1, false);
	}
	barrier(n, 2);
	if (rank == n - 1) {
		open_member(&m, rank, n);
		attach_member(&m);
	}
	barrier(n, 3);
	if (rank == 0)
		send_to_group(&m);
	if (rank == 0)
		wait_completion(&m.peer);
	else
		receive_from(&m, 1, false);
	if (rank == 0)
		attach_member(&m);
	barrier(n, 4);
	send_to_group(&m);
	receive_from(&m, n, true);
	barrier(n, 5);
	close_member(&m);
}

void multicast(int n)
{
	const pid_t pid = getpid();
	pid_t pids[MAX_RANKS];

	shared->group = (union ibv_gid){
		.raw = { [10] = 0xff, 0xff, 239, 3, (uint8_t)(pid >> 8), (uint8_t)pid },
	};
	for (int i = 0; i < n; i++)
		pids[i] = start(be_member, i, n);
	for (int i = 0; i < n; i++)
		expect_success(pids[i]);
}
