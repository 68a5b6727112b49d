/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Files that are not replayed with the defaults. */
static const struct special specials[] = {
	{ .file = "rc_err_badrkey_w.pcap", .no_regions = true, .status = FRL_WC_REM_ACCESS_ERR },
	{ .file = "rc_err_badrkey_r.pcap", .no_regions = true, .status = FRL_WC_REM_ACCESS_ERR },
	{ .file = "rc_err_perm_w.pcap",
		.deny_region = FRL_ACCESS_REMOTE_WRITE,
		.status = FRL_WC_REM_ACCESS_ERR },
	{ .file = "rc_err_perm_a.pcap",
		.deny_region = FRL_ACCESS_REMOTE_ATOMIC,
		.status = FRL_WC_REM_ACCESS_ERR },
	{ .file = "rc_err_qp_no_remote_write.pcap",
		.deny = FRL_ACCESS_REMOTE_WRITE,
		.status = FRL_WC_REM_INV_REQ_ERR },
	{ .file = "rc_err_qp_no_remote_read.pcap",
		.deny = FRL_ACCESS_REMOTE_READ,
		.status = FRL_WC_REM_INV_REQ_ERR },
	{ .file = "rc_err_qp_no_remote_atomic.pcap",
		.deny = FRL_ACCESS_REMOTE_ATOMIC,
		.status = FRL_WC_REM_INV_REQ_ERR },
	{ .file = "rc_err_max_dest_rd_atomic_0.pcap",
		.no_rd_atomic = true,
		.status = FRL_WC_REM_INV_REQ_ERR },
	/* rxe: NAK 3 where the specification wants NAK 1. */
	{ .file = "rc_err_toolong.pcap", .rule = DIFFERENT, .status = FRL_WC_REM_OP_ERR },
	{ .file = "rc_rnr_retry_exceeded.pcap", .status = FRL_WC_RNR_RETRY_EXC_ERR },
	{ .file = "rc_timeout_retry_exceeded.pcap",
		.rule = DIFFERENT,
		.status = FRL_WC_RETRY_EXC_ERR },
	{ .file = "peer_resp_write_short.pcap", .mtu = 1024 },
	{ .file = "cm_rping_ipv4.pcap", .memory_changes = true },
	/* Inside long messages ours acknowledges also what does not ask for it. */
	{ .file = "rc_bigwrite_ackreq_mtu256.pcap", .rule = SOME_LOST },
	/* Acknowledgements that the sender's own network lost are not in the file. */
	{ .file = "rc_loss_responder_acks.pcap", .rule = SOME_LOST },
	/* The scripted peer does not send all that rxe asked for, or sends what nobody sends. */
	{ .file = "peer_ack_credits.pcap", .rule = DIFFERENT },
	{ .file = "peer_bad_icrc_ack.pcap", .rule = DIFFERENT },
	{ .file = "peer_cnp_and_coalesced_ack.pcap", .rule = DIFFERENT },
	{ .file = "peer_partial_read_retry_rxe_MIDDLE.pcap", .rule = DIFFERENT },
	/* rxe takes packets that break the rules of segmentation; ours refuses the first one. */
	{ .file = "peer_resp_lengths.pcap", .rule = DIFFERENT },
	/* rxe answers the tail of a READ with MIDDLE, we with FIRST or ONLY. */
	{ .file = "peer_resp_reads.pcap", .rule = DIFFERENT },
};

const struct special replay_defaults;

const char *const replay_files[REPLAY_FILES] = {
	"ibv_rc_pingpong.pcap",
	"ibv_srq_pingpong.pcap",
	"cm_rping_ipv4.pcap",
	"cm_ucmatose.pcap",
	"cm_rdma_client.pcap",
	"cm_perf_send_rdmacm.pcap",
	"jumbo_rc_read_mtu4096.pcap",
	"jumbo_rc_send_mtu4096.pcap",
	"jumbo_rc_write_mtu2048.pcap",
	"peer_ack_credits.pcap",
	"peer_bad_icrc_ack.pcap",
	"peer_cnp_and_coalesced_ack.pcap",
	"peer_partial_read_retry_rxe_MIDDLE.pcap",
	"peer_resp_atomic_misaligned.pcap",
	"peer_resp_basic.pcap",
	"peer_resp_lengths.pcap",
	"peer_resp_middle_first.pcap",
	"peer_resp_noackreq.pcap",
	"peer_resp_reads.pcap",
	"peer_resp_write_short.pcap",
	"perf_ib_atomic_bw_faa.pcap",
	"perf_ib_atomic_lat_faa.pcap",
	"perf_ib_read_bw.pcap",
	"perf_ib_read_lat.pcap",
	"perf_ib_send_bw_rxdepth1.pcap",
	"perf_ib_send_lat.pcap",
	"perf_ib_write_bw.pcap",
	"perf_ib_write_lat.pcap",
	"rc_atomic.pcap",
	"rc_atomic_ipv6.pcap",
	"rc_bigwrite_ackreq_mtu256.pcap",
	"rc_duplicate_packets.pcap",
	"rc_err_badrkey_r.pcap",
	"rc_err_badrkey_w.pcap",
	"rc_err_max_dest_rd_atomic_0.pcap",
	"rc_err_perm_a.pcap",
	"rc_err_perm_w.pcap",
	"rc_err_qp_no_remote_atomic.pcap",
	"rc_err_qp_no_remote_read.pcap",
	"rc_err_qp_no_remote_write.pcap",
	"rc_err_toolong.pcap",
	"rc_loss_requester_burst.pcap",
	"rc_loss_responder_acks.pcap",
	"rc_misc_mw_inline_fence_sendinv.pcap",
	"rc_psn_wrap_send.pcap",
	"rc_read_ipv6.pcap",
	"rc_read_mtu1024.pcap",
	"rc_rnr.pcap",
	"rc_rnr_retry_exceeded.pcap",
	"rc_send_ipv4_tclass6a.pcap",
	"rc_send_ipv6.pcap",
	"rc_send_ipv6_tclass6a_flow12345.pcap",
	"rc_send_mtu1024.pcap",
	"rc_send_mtu256.pcap",
	"rc_send_mtu512.pcap",
	"rc_timeout_retry_exceeded.pcap",
	"rc_write_mtu1024.pcap",
	"vlan10_rc_send.pcap",
};

struct end end;
static int pd;

const struct special *special_of(const char *file)
{
	for (size_t i = 0; i < sizeof(specials) / sizeof(specials[0]); i++)
		if (strcmp(specials[i].file, file) == 0)
			return &specials[i];
	return &replay_defaults;
}

/* A key that the other implementation chose. */
void end_add_region(struct region *region, uint32_t key)
{
	region->pd = &pd;
	region->key = key;
	end.table.slots[key >> REGION_TAG_BITS & (REGION_MAX - 1)] = region;
}

void end_open(const struct flow *flow, const struct special *special, bool responder)
{
	struct frl_qp_attr attr = {
		.state = FRL_QPS_INIT,
		.port_num = 1,
		.access_flags = (FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_READ |
					FRL_ACCESS_REMOTE_ATOMIC) &
			~special->deny,
		.ah.dgid = responder ? flow->requester : flow->responder,
		.path_mtu = flow->mtu,
		.dest_qpn = flow->responder_qpn,
		.rq_psn = flow->first.value,
		.sq_psn = flow->first.value,
		.max_rd_atomic = 16,
		.max_dest_rd_atomic = special->no_rd_atomic ? 0 : 16,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = special->status == FRL_WC_RNR_RETRY_EXC_ERR ? 2 : 7,
	};
	struct qp_config config = {
		.type = FRL_QPT_RC,
		.qpn = flow->responder_qpn,
		.pkey = PKEY_DEFAULT,
		.pd = &pd,
		.send_cq = &end.cq,
		.recv_cq = &end.cq,
		.regions = &end.table,
		.stats = &end.stats,
		.queues = &end.queues,
		.max_send_wr = REQUESTS,
		.max_recv_wr = REQUESTS,
		.max_send_sge = 1,
		.max_recv_sge = 1,
		.max_inline = 64,
		.window = 1 << 16,
	};
	const char *why;

	memset(&end, 0, sizeof(end));
	event_queues_init(&end.queues);
	cq_init(&end.cq, end.wc, CQ_DEPTH, &end.queues);
	end.table.slots = end.slots;
	end.table.capacity = REGION_MAX;
	end.memory = calloc(REQUESTS, SLOT);
	config.storage = calloc(1, qp_storage_size(&config));
	ck_assert_ptr_nonnull(end.memory);
	ck_assert_ptr_nonnull(config.storage);
	end.local = (struct region){
		.addr = end.memory,
		.iova = (uintptr_t)end.memory,
		.length = (uint64_t)REQUESTS * SLOT,
		.access = FRL_ACCESS_LOCAL_WRITE,
	};
	end_add_region(&end.local, 0xfffffeff);
	qp_init(&end.qp, &config);
	ck_assert_int_eq(qp_modify(&end.qp, &attr,
				 FRL_QP_STATE | fixture_mask(FRL_QPT_RC, FRL_QPS_INIT), &why),
		0);
	attr.state = FRL_QPS_RTR;
	ck_assert_int_eq(qp_modify(&end.qp, &attr,
				 FRL_QP_STATE | fixture_mask(FRL_QPT_RC, FRL_QPS_RTR), &why),
		0);
	attr.state = FRL_QPS_RTS;
	ck_assert_int_eq(qp_modify(&end.qp, &attr,
				 FRL_QP_STATE | fixture_mask(FRL_QPT_RC, FRL_QPS_RTS), &why),
		0);
}

void end_close(void)
{
	for (uint32_t i = 0; i < end.n_regions; i++)
		free(end.memories[i]);
	free(end.memory);
	free(end.qp.requester.wqes);
}

/* Places payload as the engine does. */
static void place(const struct placements *placements)
{
	const struct atomic_op *atomic = &placements->atomic;

	for (uint32_t i = 0; i < placements->count; i++)
		memcpy(placements->list[i].dst, placements->list[i].payload,
			placements->list[i].length);
	if (!atomic->addr)
		return;
	*atomic->ret_original = *atomic->addr;
	if (!atomic->compare_swap)
		*atomic->addr += atomic->swap_add;
	else if (*atomic->addr == atomic->compare)
		*atomic->addr = atomic->swap_add;
}

void end_feed(const struct wire_packet *packet)
{
	struct placements placements;

	qp_input(&end.qp, packet, &placements, end.now_ns);
	place(&placements);
	if (placements.completes)
		qp_placed(&end.qp, packet, &placements, end.now_ns);
	end.n_out = qp_output(&end.qp, end.out, BURST, end.now_ns);
	ck_assert_uint_lt(end.n_out, BURST);
}

struct flows *replay_load(const char *file)
{
	const char *dir = getenv("FRL_VECTORS");
	const struct special *special = special_of(file);
	struct flows *flows;
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", dir ? dir : "tests/vectors", file);
	flows = flows_load(path);
	ck_assert_msg(flows && flows->n, "%s: no flows", path);
	for (uint32_t i = 0; i < flows->n; i++)
		if (special->mtu)
			flows->flows[i].mtu = special->mtu;
	return flows;
}

const struct wire_packet *answer_to(const struct flow *flow, struct psn psn, uint8_t operation)
{
	for (uint32_t i = 0; i < flow->n_answers; i++) {
		const struct wire_packet *packet = &flow->answers[i].packet;

		if (packet->op->operation == operation && psn_equal(packet->h.bth.psn, psn))
			return packet;
	}
	return NULL;
}

/* The payload of a packet of ours, byte by byte. */
bool payload_is(const struct packet_out *out, const struct wire_packet *packet)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < out->n_pieces; i++) {
		if (memcmp(out->pieces[i].addr, packet->payload + at, out->pieces[i].length) != 0)
			return false;
		at += out->pieces[i].length;
	}
	return at == packet->payload_len;
}

/* rxe refuses what follows a packet that found no receive request a second time. */
bool is_second_refusal(const struct flow *flow, uint32_t i)
{
	const struct wire_packet *packet = &flow->answers[i].packet;

	if (packet->op->operation != OPERATION_ACK ||
		packet->h.aeth.syndrome != (AETH_NAK | NAK_SEQUENCE))
		return false;
	for (uint32_t k = i; k-- > 0;) {
		const struct wire_packet *before = &flow->answers[k].packet;

		if (before->op->operation == OPERATION_ACK &&
			psn_equal(before->h.bth.psn, packet->h.bth.psn))
			return (before->h.aeth.syndrome & AETH_TYPE_MASK) == AETH_RNR_NAK;
	}
	return false;
}
