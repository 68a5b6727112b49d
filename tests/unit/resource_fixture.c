/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/resource_fixture.h"

#include <check.h>
#include <string.h>

struct fixture *fixture_at(uint32_t psn)
{
	return fixture_new(&(struct fixture_config){ .mtu = MTU, .rq_psn = psn });
}

void arrive_read_key(struct fixture *f, uint32_t psn, uint64_t at, uint32_t length, uint32_t key)
{
	fixture_arrive_write(f, OP_READ_REQUEST, psn, 0, at, key, length);
	ck_assert_uint_eq(f->placements.count, 0);
}

void arrive_read(struct fixture *f, uint32_t psn, uint32_t offset, uint32_t length)
{
	arrive_read_key(f, psn, fixture_va(f, offset), length, f->local.key);
}

void arrive_write(struct fixture *f, uint32_t psn, uint32_t offset, uint32_t key)
{
	fixture_arrive_write(f, OP_WRITE_ONLY, psn, 8, fixture_va(f, offset), key, 8);
}

void arrive_atomic(struct fixture *f, uint8_t opcode, uint32_t psn, uint64_t at, uint64_t swap_add,
	uint64_t compare, uint32_t key)
{
	struct wire_packet packet = fixture_packet(f, opcode, psn, 0);

	packet.h.atomic = (struct atomic_eth){ at, key, swap_add, compare };
	fixture_input(f, &packet);
}

void arrive_add(struct fixture *f, uint32_t psn, uint32_t offset, uint64_t value)
{
	arrive_atomic(f, OP_FETCH_ADD, psn, fixture_va(f, offset), value, 0, f->local.key);
	fixture_place(f);
}

uint64_t memory_word(const struct fixture *f, uint32_t offset)
{
	uint64_t value;

	memcpy(&value, f->memory + offset, sizeof(value));
	return value;
}

uint32_t expect_read_response(
	const struct fixture *f, uint32_t i, uint32_t psn, uint32_t offset, uint32_t length)
{
	uint32_t count = packets_for(length, MTU), msn = f->out[i].h.aeth.msn;

	for (uint32_t k = 0; k < count; k++, i++) {
		const struct packet_out *out = &f->out[i];
		uint32_t bytes = k == count - 1 ? length - k * MTU : MTU;
		bool first = k == 0, last = k == count - 1;

		expect_out(f, i,
			first && last   ? OP_READ_RESP_ONLY
				: first ? OP_READ_RESP_FIRST
				: last  ? OP_READ_RESP_LAST
					: OP_READ_RESP_MIDDLE,
			psn + k, bytes, false);
		ck_assert_uint_eq(out->h.bth.dest_qpn, F_PEER_QPN);
		ck_assert_uint_eq(out->h.bth.pkey, 0xffff);
		ck_assert(out->response);
		ck_assert_uint_eq(out->n_pieces, bytes ? 1 : 0);
		if (first || last) {
			ck_assert_uint_eq(out->h.aeth.syndrome, ACK);
			ck_assert_uint_eq(out->h.aeth.msn, msn);
		}
		if (!bytes)
			continue;
		ck_assert_ptr_eq(out->pieces[0].addr, f->memory + offset + k * MTU);
		ck_assert_uint_eq(out->pieces[0].length, bytes);
		ck_assert_ptr_nonnull(out->pieces[0].region);
	}
	return count;
}

void expect_atomic_ack(const struct fixture *f, uint32_t i, uint32_t psn, uint64_t original)
{
	expect_out(f, i, OP_ATOMIC_ACK, psn, 0, false);
	ck_assert_uint_eq(f->out[i].h.aeth.syndrome, ACK);
	ck_assert_uint_eq(f->out[i].h.atomic_original, original);
	ck_assert_uint_eq(f->out[i].n_pieces, 0);
}

void expect_ack(const struct fixture *f, uint32_t i, uint32_t psn, uint8_t syndrome, uint32_t msn)
{
	expect_out(f, i, OP_ACKNOWLEDGE, psn, 0, false);
	ck_assert_uint_eq(f->out[i].h.aeth.syndrome, syndrome);
	ck_assert_uint_eq(f->out[i].h.aeth.msn, msn);
}
