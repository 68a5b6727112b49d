/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/replay.h"

/* The request that starts with this packet; `length` is what its packets add up to. */
static void post_like(const struct wire_packet *first, const struct wire_packet *last,
	uint32_t length, uint32_t slot)
{
	static const uint8_t opcodes[] = {
		[OPERATION_SEND] = FRL_WR_SEND,
		[OPERATION_WRITE] = FRL_WR_RDMA_WRITE,
		[OPERATION_READ] = FRL_WR_RDMA_READ,
		[OPERATION_ATOMIC] = FRL_WR_ATOMIC_CMP_AND_SWP,
	};
	struct frl_sge sge = { end.memory + (size_t)slot * SLOT, length, end.local.key };
	struct frl_send_wr wr = {
		.wr_id = slot,
		.opcode = (enum frl_wr_opcode)opcodes[first->op->operation],
		.flags = FRL_SEND_SIGNALED | (last->h.bth.solicited ? FRL_SEND_SOLICITED : 0),
		.sge = &sge,
		.n_sge = 1,
		.imm_data = last->h.imm_data,
	};
	const struct wr_objects none = { 0 };
	const char *why = "";

	if (first->op->headers & HEADER_RETH) {
		wr.remote_addr = first->h.reth.va;
		wr.rkey = first->h.reth.rkey;
	}
	if (last->op->headers & HEADER_IMMDT)
		wr.opcode = wr.opcode == FRL_WR_SEND ? FRL_WR_SEND_WITH_IMM
						     : FRL_WR_RDMA_WRITE_WITH_IMM;
	if (last->op->headers & HEADER_IETH)
		wr.opcode = FRL_WR_SEND_WITH_INV;
	if (first->op->operation == OPERATION_ATOMIC) {
		wr.remote_addr = first->h.atomic.va;
		wr.rkey = first->h.atomic.rkey;
		wr.compare_add = first->h.atomic.compare;
		wr.swap = first->h.atomic.swap_add;
		if ((first->h.bth.opcode & 0x1f) == OP_FETCH_ADD) {
			wr.opcode = FRL_WR_ATOMIC_FETCH_AND_ADD;
			wr.compare_add = first->h.atomic.swap_add;
		}
	}
	ck_assert_msg(qp_post_send(&end.qp, &wr, &none, &why) == 0, "%s", why);
}

/* Posts what the requests add up to, each PSN once. Payload is as recorded. */
static uint32_t post_requests(const struct flow *flow)
{
	const struct wire_packet *first = NULL;
	struct psn expected = flow->first;
	uint32_t n = 0, length = 0;

	for (uint32_t i = 0; i < flow->n_requests; i++) {
		const struct wire_packet *packet = &flow->requests[i].packet;
		uint32_t bytes = packet->payload_len;

		if (!psn_equal(packet->h.bth.psn, expected))
			continue;
		expected = psn_add(expected, flow_psns(flow, packet));
		if (packet->op->flags & OPCODE_FIRST) {
			first = packet;
			length = 0;
		}
		ck_assert(first && n < REQUESTS);
		memcpy(end.memory + (size_t)n * SLOT + length, packet->payload, bytes);
		length += bytes;
		if (packet->op->operation == OPERATION_READ)
			length = packet->h.reth.dma_length;
		if (packet->op->operation == OPERATION_ATOMIC)
			length = 8;
		ck_assert_uint_le(length, SLOT);
		if (packet->op->flags & OPCODE_LAST)
			post_like(first, packet, length, n++);
	}
	return n;
}

static const struct wire_packet *request_at(const struct flow *flow, struct psn psn)
{
	for (uint32_t i = 0; i < flow->n_requests; i++)
		if (psn_equal(flow->requests[i].packet.h.bth.psn, psn))
			return &flow->requests[i].packet;
	return NULL;
}

/* The packets equal the recorded ones, except for bits that each end chooses itself. */
static void check_sent(const char *file, const struct flow *flow)
{
	for (uint32_t i = 0; i < end.n_out; i++) {
		const struct packet_out *out = &end.out[i];
		const struct wire_packet *packet = request_at(flow, out->h.bth.psn);
		bool same;

		/* Again, and from inside a READ. */
		if (!packet)
			continue;
		same = out->h.bth.opcode == packet->h.bth.opcode &&
			out->h.bth.solicited == packet->h.bth.solicited;
		if (same && (packet->op->headers & HEADER_RETH))
			same = out->h.reth.va == packet->h.reth.va &&
				out->h.reth.rkey == packet->h.reth.rkey &&
				out->h.reth.dma_length == packet->h.reth.dma_length;
		if (same && (packet->op->headers & HEADER_ATOMICETH))
			same = out->h.atomic.va == packet->h.atomic.va &&
				out->h.atomic.rkey == packet->h.atomic.rkey &&
				out->h.atomic.swap_add == packet->h.atomic.swap_add &&
				out->h.atomic.compare == packet->h.atomic.compare;
		if (same && (packet->op->headers & (HEADER_IMMDT | HEADER_IETH)))
			same = out->h.imm_data == packet->h.imm_data;
		ck_assert_msg(same && payload_is(out, packet),
			"%s: PSN 0x%06x: sent as opcode 0x%02x, recorded is %s", file,
			out->h.bth.psn.value, out->h.bth.opcode, packet->op->name);
		if (packet->op->flags & OPCODE_LAST)
			ck_assert(out->h.bth.ack_request);
	}
}

static void check_read_data(const struct flow *flow)
{
	struct psn expected = flow->first;
	uint32_t k = 0;

	for (uint32_t i = 0; i < flow->n_requests; i++) {
		const struct wire_packet *packet = &flow->requests[i].packet;
		uint32_t psns = flow_psns(flow, packet);

		if (!psn_equal(packet->h.bth.psn, expected))
			continue;
		expected = psn_add(expected, psns);
		for (uint32_t j = 0; packet->op->operation == OPERATION_READ && j < psns; j++) {
			const struct wire_packet *response = answer_to(
				flow, psn_add(packet->h.bth.psn, j), OPERATION_READ_RESPONSE);

			ck_assert_ptr_nonnull(response);
			ck_assert_mem_eq(end.memory + (size_t)k * SLOT + (size_t)j * flow->mtu,
				response->payload, response->payload_len);
		}
		k += !!(packet->op->flags & OPCODE_LAST);
	}
}

static void check_completions(const char *file, const struct special *special, uint32_t n)
{
	bool failed = false;
	struct frl_wc wc;

	for (uint32_t i = 0; i < n; i++) {
		enum frl_wc_status expected = failed ? FRL_WC_WR_FLUSH_ERR : FRL_WC_SUCCESS;

		ck_assert_msg(cq_pop(&end.cq, &wc), "%s: %u of %u requests completed", file, i, n);
		ck_assert_uint_eq(wc.wr_id, i);
		if (!failed && wc.status != FRL_WC_SUCCESS) {
			expected = special->status;
			failed = true;
		}
		ck_assert_msg(wc.status == expected, "%s: request %u completed with status %d",
			file, i, wc.status);
	}
	ck_assert_msg(failed == (special->status != FRL_WC_SUCCESS), "%s: failed %d", file, failed);
	ck_assert(!cq_pop(&end.cq, &wc));
}

static void replay_answers(const char *file, const struct flow *flow, const struct special *special)
{
	uint32_t n, fired = 0;

	end_open(flow, special, false);
	n = post_requests(flow);
	end.n_out = qp_output(&end.qp, end.out, BURST, end.now_ns);
	check_sent(file, flow);
	for (uint32_t i = 0; i < flow->n_answers; i++) {
		/* While it waits for a receiver, there is nothing to be answered. */
		while (end.qp.recovery.rnr_deadline_ns != DEADLINE_NONE &&
			!is_second_refusal(flow, i)) {
			end.now_ns = qp_next_deadline(&end.qp);
			qp_on_deadline(&end.qp, end.now_ns);
			end.n_out = qp_output(&end.qp, end.out, BURST, end.now_ns);
			check_sent(file, flow);
		}
		end_feed(&flow->answers[i].packet);
		check_sent(file, flow);
	}
	/* The rest is silence. */
	while (special->status == FRL_WC_RETRY_EXC_ERR &&
		qp_next_deadline(&end.qp) != DEADLINE_NONE) {
		ck_assert_uint_lt(fired++, 10);
		end.now_ns = qp_next_deadline(&end.qp);
		qp_on_deadline(&end.qp, end.now_ns);
		end.n_out = qp_output(&end.qp, end.out, BURST, end.now_ns);
	}
	check_completions(file, special, n);
	if (special->status == FRL_WC_SUCCESS)
		check_read_data(flow);
	end_close();
}

/* The scripted peer's requests break rules that a requester of ours keeps. */
static bool breaks_rules(const char *file)
{
	return strncmp(file, "peer_resp_", strlen("peer_resp_")) == 0;
}

START_LOOP_TEST(requester, REPLAY_FILES)
{
	struct flows *flows = replay_load(replay_files[_i]);

	for (uint32_t i = 0; i < flows->n && !breaks_rules(replay_files[_i]); i++)
		replay_answers(replay_files[_i], &flows->flows[i], special_of(replay_files[_i]));
}
END_TEST

TEST_FILE(replay_requester)
