/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/replay.h"

static void widen(uint32_t rkey, uint64_t va, uint64_t length)
{
	struct region *region = end.regions;
	uint64_t low, high;

	while (region < end.regions + end.n_regions && region->key != rkey)
		region++;
	if (region == end.regions + end.n_regions) {
		ck_assert_uint_lt(end.n_regions, REGIONS);
		end.n_regions++;
		*region = (struct region){ .key = rkey, .iova = va, .length = length };
		return;
	}
	low = va < region->iova ? va : region->iova;
	high = va + length > region->iova + region->length ? va + length
							   : region->iova + region->length;
	region->iova = low;
	region->length = high - low;
}

/* The memory that the requests name. The key in SEND with Invalidate is a window's. */
static void make_regions(const struct flow *flow, const struct special *special)
{
	for (uint32_t i = 0; i < flow->n_requests; i++) {
		const struct wire_packet *packet = &flow->requests[i].packet;

		if (packet->op->headers & HEADER_RETH && packet->h.reth.dma_length)
			widen(packet->h.reth.rkey, packet->h.reth.va, packet->h.reth.dma_length);
		if (packet->op->headers & HEADER_ATOMICETH)
			widen(packet->h.atomic.rkey, packet->h.atomic.va & ~UINT64_C(7), 16);
	}
	for (uint32_t i = 0; i < end.n_regions; i++) {
		struct region *region = &end.regions[i];

		/* As aligned as the address that stands for it. */
		region->addr = end.memories[i] = calloc(1, region->length + 16);
		ck_assert_ptr_nonnull(region->addr);
		region->length += region->iova & 7;
		region->iova &= ~UINT64_C(7);
		region->access = (FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE |
					 FRL_ACCESS_REMOTE_READ | FRL_ACCESS_REMOTE_ATOMIC) &
			~special->deny_region;
		if (!special->no_regions)
			end_add_region(region, region->key);
	}
	for (uint32_t i = 0; i < flow->n_requests; i++) {
		const struct wire_packet *packet = &flow->requests[i].packet;
		struct region *region;

		if (!(packet->op->headers & HEADER_IETH))
			continue;
		region = region_find(&end.table, packet->h.invalidate_rkey);
		ck_assert_ptr_nonnull(region);
		region->is_window = true;
		region->parent = &end.parent;
		region->qp = &end.qp;
		end.parent.windows++;
	}
}

static uint8_t *memory_of(uint32_t rkey, uint64_t va)
{
	struct region *region = region_find(&end.table, rkey);

	return region ? region_memory(region, va) : NULL;
}

/* Memory as it was before: what was read from it, unless something was written first. */
static void fill_memory(const struct flow *flow)
{
	for (uint32_t i = flow->n_requests; i-- > 0;) {
		const struct wire_packet *packet = &flow->requests[i].packet;
		uint32_t psns = flow_psns(flow, packet);

		for (uint32_t k = 0; packet->op->operation == OPERATION_READ && k < psns; k++) {
			const struct wire_packet *response = answer_to(
				flow, psn_add(packet->h.bth.psn, k), OPERATION_READ_RESPONSE);
			uint8_t *at = memory_of(
				packet->h.reth.rkey, packet->h.reth.va + (uint64_t)k * flow->mtu);

			if (response && at)
				memcpy(at, response->payload, response->payload_len);
		}
		if (packet->op->operation == OPERATION_ATOMIC) {
			const struct wire_packet *response = answer_to(
				flow, packet->h.bth.psn, OPERATION_ATOMIC_ACK);
			uint8_t *at = memory_of(packet->h.atomic.rkey, packet->h.atomic.va);

			if (response && at)
				memcpy(at, &response->h.atomic_original, 8);
		}
	}
}

/* rxe found no receive request for it at that time. */
static bool was_refused(const struct flow *flow, const struct flow_packet *request)
{
	for (uint32_t i = 0; i < flow->n_answers; i++) {
		const struct flow_packet *answer = &flow->answers[i];

		if (answer->position > request->position &&
			psn_equal(answer->packet.h.bth.psn, request->packet.h.bth.psn) &&
			answer->packet.op->operation == OPERATION_ACK)
			return (answer->packet.h.aeth.syndrome & AETH_TYPE_MASK) == AETH_RNR_NAK;
	}
	return false;
}

static void post_receive(void)
{
	struct frl_sge sge = { end.memory, SLOT, end.local.key };
	const struct frl_recv_wr wr = { .sge = &sge, .n_sge = 1 };
	const char *why;

	ck_assert_int_eq(qp_post_recv(&end.qp, &wr, &why), 0);
}

static bool same_answer(const struct special *special, const struct packet_out *out,
	const struct wire_packet *packet)
{
	const struct wire_headers *a = &out->h, *b = &packet->h;

	if (a->bth.opcode != b->bth.opcode || !psn_equal(a->bth.psn, b->bth.psn) ||
		out->payload_len != packet->payload_len)
		return false;
	if ((packet->op->headers & HEADER_AETH) && a->aeth.syndrome != b->aeth.syndrome &&
		(a->aeth.syndrome & AETH_TYPE_MASK) != AETH_RNR_NAK)
		return false;
	if ((packet->op->headers & HEADER_AETH) &&
		(a->aeth.syndrome & AETH_TYPE_MASK) != (b->aeth.syndrome & AETH_TYPE_MASK))
		return false;
	if ((packet->op->headers & HEADER_ATOMICACKETH) && a->atomic_original != b->atomic_original)
		return false;
	return special->memory_changes || payload_is(out, packet);
}

static uint32_t skip_quirks(const struct flow *flow, uint32_t next)
{
	while (next < flow->n_answers && is_second_refusal(flow, next))
		next++;
	return next;
}

/* Feeds the requests; every answer must be the next recorded one. */
static void replay_requests(
	const char *file, const struct flow *flow, const struct special *special)
{
	uint32_t next = 0;

	end_open(flow, special, true);
	make_regions(flow, special);
	fill_memory(flow);
	for (uint32_t i = 0; i < flow->n_requests; i++) {
		const struct flow_packet *request = &flow->requests[i];
		bool fresh = psn_equal(request->packet.h.bth.psn, end.qp.responder.epsn);

		if (fresh && (request->packet.op->flags & OPCODE_TAKES_RECV) &&
			!was_refused(flow, request))
			post_receive();
		end_feed(&request->packet);
		for (uint32_t k = 0; k < end.n_out; k++) {
			next = skip_quirks(flow, next);
			if (special->rule == DIFFERENT)
				continue;
			if (next < flow->n_answers &&
				same_answer(special, &end.out[k], &flow->answers[next].packet)) {
				next++;
				continue;
			}
			ck_assert_msg(special->rule == SOME_LOST,
				"%s: request %u of QP 0x%x, PSN 0x%06x: answered with opcode "
				"0x%02x, PSN "
				"0x%06x, syndrome 0x%02x; recorded is %s PSN 0x%06x, syndrome "
				"0x%02x",
				file, request->position, flow->responder_qpn,
				request->packet.h.bth.psn.value, end.out[k].h.bth.opcode,
				end.out[k].h.bth.psn.value, end.out[k].h.aeth.syndrome,
				next < flow->n_answers ? flow->answers[next].packet.op->name
						       : "nothing",
				next < flow->n_answers ? flow->answers[next].packet.h.bth.psn.value
						       : 0,
				next < flow->n_answers ? flow->answers[next].packet.h.aeth.syndrome
						       : 0);
		}
	}
	next = skip_quirks(flow, next);
	if (special->rule != DIFFERENT)
		ck_assert_msg(next == flow->n_answers, "%s: %u of %u recorded answers were given",
			file, next, flow->n_answers);
	end_close();
}

START_LOOP_TEST(responder, REPLAY_FILES)
{
	struct flows *flows = replay_load(replay_files[_i]);

	for (uint32_t i = 0; i < flows->n; i++)
		replay_requests(replay_files[_i], &flows->flows[i], special_of(replay_files[_i]));
}
END_TEST

TEST_FILE(replay_responder)
