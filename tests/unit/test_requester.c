/* SPDX-License-Identifier: BSD-3-Clause */
/* How requests become packets. */
#include "tests/unit/qp_fixture.h"

#include <string.h>

static const uint32_t mtus[] = { 256, 512, 1024, 2048, 4096 };
static const uint32_t psns[] = { 0, 0xfffffe, 0xffffff, 0x7ffffe, 0x123456 };

/* First, middle, last, only; by enum frl_wr_opcode. */
static const uint8_t opcodes[4][4] = {
	{ OP_SEND_FIRST, OP_SEND_MIDDLE, OP_SEND_LAST, OP_SEND_ONLY },
	{ OP_SEND_FIRST, OP_SEND_MIDDLE, OP_SEND_LAST_IMM, OP_SEND_ONLY_IMM },
	{ OP_WRITE_FIRST, OP_WRITE_MIDDLE, OP_WRITE_LAST, OP_WRITE_ONLY },
	{ OP_WRITE_FIRST, OP_WRITE_MIDDLE, OP_WRITE_LAST_IMM, OP_WRITE_ONLY_IMM },
};

static void check_message(
	struct fixture *f, enum frl_wr_opcode opcode, uint32_t psn, uint32_t length, uint64_t wr_id)
{
	uint32_t mtu = f->qp.path_mtu;
	uint32_t packets = length ? (length + mtu - 1) / mtu : 1;

	fixture_send(f, wr_id, opcode, length);
	ck_assert_uint_eq(fixture_output(f), packets);
	for (uint32_t i = 0; i < packets; i++) {
		const struct packet_out *out = &f->out[i];
		bool last = i + 1 == packets;
		unsigned position = packets == 1 ? 3 : last ? 2 : i ? 1 : 0;

		expect_out(f, i, opcodes[opcode][position], psn + i, last ? length - i * mtu : mtu,
			last);
		ck_assert_uint_eq(out->h.bth.dest_qpn, F_PEER_QPN);
		ck_assert_uint_eq(out->h.bth.pkey, 0xffff);
		ck_assert_uint_eq(out->h.bth.version, 0);
		ck_assert(out->h.bth.migrated && !out->h.bth.solicited);
		if (opcode_table[out->h.bth.opcode].headers & HEADER_RETH) {
			ck_assert_uint_eq(out->h.reth.va, 0x700000);
			ck_assert_uint_eq(out->h.reth.rkey, 0x55);
			ck_assert_uint_eq(out->h.reth.dma_length, length);
		}
		if (opcode_table[out->h.bth.opcode].headers & HEADER_IMMDT)
			ck_assert_uint_eq(out->h.imm_data, 0xabcd0000 + (uint32_t)wr_id);
		ck_assert_uint_eq(out->n_pieces, length ? 1 : 0);
		if (length) {
			ck_assert_ptr_eq(out->pieces[0].addr, f->memory + i * mtu);
			ck_assert_uint_eq(out->pieces[0].length, out->payload_len);
			ck_assert_ptr_eq(out->pieces[0].region, &f->local);
		}
	}
	fixture_ack(f, 0x1f, psn + packets - 1);
	expect_wc(&f->send_cq, wr_id, FRL_WC_SUCCESS);
}

START_TEST(segmentation)
{
	uint32_t mtu = mtus[_i];
	const uint32_t sizes[] = { 0, 1, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 777 };

	for (unsigned p = 0; p < 5; p++) {
		struct fixture *f = fixture_new(
			&(struct fixture_config){ .mtu = mtu, .sq_psn = psns[p] });
		uint32_t psn = psns[p];

		for (unsigned i = 0; i < 7; i++)
			for (unsigned op = FRL_WR_SEND; op <= FRL_WR_RDMA_WRITE_WITH_IMM; op++) {
				check_message(f, op, psn, sizes[i], i * 4 + op);
				psn += sizes[i] ? (sizes[i] + mtu - 1) / mtu : 1;
			}
		expect_no_wc(&f->send_cq);
		expect_silence(f);
		ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
		ck_assert_uint_eq(f->stats.retransmits, 0);
	}
}
END_TEST

START_TEST(completions_say_what_was_done)
{
	static const struct {
		enum frl_wr_opcode opcode;
		enum frl_wc_opcode wc;
	} rows[] = {
		{ FRL_WR_SEND, FRL_WC_SEND },
		{ FRL_WR_SEND_WITH_IMM, FRL_WC_SEND },
		{ FRL_WR_RDMA_WRITE, FRL_WC_RDMA_WRITE },
		{ FRL_WR_RDMA_WRITE_WITH_IMM, FRL_WC_RDMA_WRITE },
	};
	struct fixture *f = fixture_new(NULL);
	struct frl_wc wc;

	for (uint32_t i = 0; i < 4; i++) {
		fixture_send(f, 70 + i, rows[i].opcode, 100 + i);
		fixture_output(f);
		fixture_ack(f, 0x1f, i);
		ck_assert(cq_pop(&f->send_cq, &wc));
		ck_assert_uint_eq(wc.wr_id, 70 + i);
		ck_assert_int_eq(wc.opcode, rows[i].wc);
		ck_assert_uint_eq(wc.byte_len, 100 + i);
		ck_assert_uint_eq(wc.qp_num, F_QPN);
		ck_assert_uint_eq(wc.flags, 0);
	}
}
END_TEST

/* Inside a long message an acknowledgement is asked for every 32 packets, and where the window
 * ends; otherwise only with the last packet. */
START_TEST(ack_request_in_long_messages)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = 256, .window = 50 });
	uint32_t seen = 0;

	fixture_send(f, 1, FRL_WR_SEND, 200 * 256);
	while (seen < 200) {
		uint32_t n = fixture_output(f);

		ck_assert_uint_eq(n, 200 - seen < 50 ? 200 - seen : 50);
		for (uint32_t i = 0; i < n; i++) {
			uint32_t k = seen + i;
			bool last = k == 199;

			expect_out(f, i,
				!k             ? OP_SEND_FIRST
					: last ? OP_SEND_LAST
					       : OP_SEND_MIDDLE,
				k, 256, last || k % 32 == 31 || i == 49);
		}
		seen += n;
		fixture_ack(f, 0x1f, seen - 1);
	}
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
}
END_TEST

/* The window opens by as much as is acknowledged, and output in small bursts is the same. */
START_TEST(window_edges)
{
	static const uint32_t windows[] = { 1, 2, 3, 7 };
	uint32_t window = windows[_i];
	struct fixture *f = fixture_new(
		&(struct fixture_config){ .mtu = 256, .window = window, .sq_psn = 0xfffffd });

	fixture_send(f, 1, FRL_WR_SEND, 20 * 256);
	ck_assert_uint_eq(fixture_output(f), window);
	ck_assert(f->out[window - 1].h.bth.ack_request);
	for (uint32_t acked = 0; acked < 20; acked++) {
		fixture_ack(f, 0x1f, 0xfffffd + acked);
		/* max 0 gives none, and one at a time the rest. */
		ck_assert_uint_eq(qp_output(&f->qp, f->out, 0, f->now_ns), 0);
		if (acked + window < 20) {
			ck_assert_uint_eq(fixture_output(f), 1);
			expect_out(f, 0, acked + window == 19 ? OP_SEND_LAST : OP_SEND_MIDDLE,
				0xfffffd + acked + window, 256, true);
		} else {
			expect_silence(f);
		}
	}
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
}
END_TEST

START_TEST(several_elements)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = 256 });
	uint8_t *m = f->memory;
	struct frl_sge sge[4] = { { m, 100, f->local.key }, { m + 1000, 0, 0xdead },
		{ m + 2000, 300, f->read_only.key }, { m + 3000, 200, f->local.key } };
	struct frl_send_wr wr = { .sge = sge, .n_sge = 4 };
	const char *why;
	static const struct {
		uint32_t packet, piece, at, length;
	} rows[] = { { 0, 0, 0, 100 }, { 0, 1, 2000, 156 }, { 1, 0, 2156, 144 },
		{ 1, 1, 3000, 112 }, { 2, 0, 3112, 88 } };

	ck_assert_int_eq(qp_post_send(&f->qp, &wr, &why), 0);
	ck_assert_uint_eq(fixture_output(f), 3);
	ck_assert_uint_eq(f->out[0].n_pieces, 2);
	ck_assert_uint_eq(f->out[1].n_pieces, 2);
	ck_assert_uint_eq(f->out[2].n_pieces, 1);
	for (unsigned i = 0; i < 5; i++) {
		const struct packet_piece *piece = &f->out[rows[i].packet].pieces[rows[i].piece];

		ck_assert_ptr_eq(piece->addr, m + rows[i].at);
		ck_assert_uint_eq(piece->length, rows[i].length);
		ck_assert_ptr_eq(piece->region, rows[i].at / 1000 == 2 ? &f->read_only : &f->local);
	}
}
END_TEST

START_TEST(inline_payload_is_copied)
{
	struct fixture *f = fixture_new(NULL);
	uint8_t a[40], b[24];
	struct frl_sge sge[4] = { { a, 40, 0 }, { NULL, 0, 0 }, { b, 24, 0xdead } };
	struct frl_send_wr wr = { .flags = FRL_SEND_INLINE, .sge = sge, .n_sge = 3 };
	const char *why;

	memset(a, 0xaa, sizeof(a));
	memset(b, 0xbb, sizeof(b));
	ck_assert_int_eq(qp_post_send(&f->qp, &wr, &why), 0);
	memset(a, 0, sizeof(a));
	memset(b, 0, sizeof(b));
	for (int round = 0; round < 2; round++) { /* the second time after a timeout */
		ck_assert_uint_eq(fixture_output(f), 1);
		expect_out(f, 0, OP_SEND_ONLY, 0, 64, true);
		ck_assert_uint_eq(f->out[0].n_pieces, 1);
		ck_assert_ptr_null(f->out[0].pieces[0].region);
		ck_assert_uint_eq(f->out[0].pieces[0].length, 64);
		ck_assert_uint_eq(f->out[0].pieces[0].addr[39], 0xaa);
		ck_assert_uint_eq(f->out[0].pieces[0].addr[40], 0xbb);
		f->qp.unlimited_retry = true;
		fixture_deadline(f);
	}
}
END_TEST

/* SE on the last packet of SEND and WRITE with immediate, nowhere else. */
START_TEST(solicited_event)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = 256 });
	struct frl_sge sge = { f->memory, 600, f->local.key };
	struct frl_send_wr wr = { .opcode = (enum frl_wr_opcode)_i,
		.flags = FRL_SEND_SOLICITED,
		.sge = &sge,
		.n_sge = 1 };
	const char *why;

	ck_assert_int_eq(qp_post_send(&f->qp, &wr, &why), 0);
	ck_assert_uint_eq(fixture_output(f), 3);
	ck_assert(!f->out[0].h.bth.solicited && !f->out[1].h.bth.solicited);
	ck_assert_int_eq(f->out[2].h.bth.solicited, _i != FRL_WR_RDMA_WRITE);
}
END_TEST

/* A region that goes while its request waits: that request fails, earlier and later are flushed,
 * and no timer is left although packets went out in the same call. */
START_TEST(region_gone)
{
	struct fixture *f = fixture_new(NULL);
	struct frl_sge sge = { f->memory, 100, f->read_only.key };
	struct frl_send_wr wr = { .wr_id = 2, .sge = &sge, .n_sge = 1 };
	const char *why;

	fixture_send(f, 1, FRL_WR_SEND, 100);
	ck_assert_int_eq(qp_post_send(&f->qp, &wr, &why), 0);
	fixture_send_flags(f, 3, 100, 0);
	fixture_recv(f, 4, 0, 100);
	region_remove(&f->table, &f->read_only);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_out(f, 0, OP_SEND_ONLY, 0, 100, true);
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
	expect_wc(&f->send_cq, 1, FRL_WC_WR_FLUSH_ERR);
	expect_wc(&f->send_cq, 2, FRL_WC_LOC_PROT_ERR);
	expect_wc(&f->send_cq, 3, FRL_WC_WR_FLUSH_ERR);
	expect_no_wc(&f->send_cq);
	expect_wc(&f->recv_cq, 4, FRL_WC_WR_FLUSH_ERR);
}
END_TEST

/* Going back to any packet of several messages gives the same packets again. */
START_TEST(sent_again_as_before)
{
	static struct packet_out before[F_OUT];
	struct fixture *f = fixture_new(&(struct fixture_config){
		.mtu = 256, .sq_psn = 0xfffffc, .unlimited_retry = true });
	uint32_t n;

	fixture_send(f, 1, FRL_WR_RDMA_WRITE_WITH_IMM, 3 * 256 + 7);
	fixture_send(f, 2, FRL_WR_SEND, 0);
	fixture_send(f, 3, FRL_WR_RDMA_WRITE, 2 * 256);
	n = fixture_output(f);
	ck_assert_uint_eq(n, 7);
	memcpy(before, f->out, sizeof(before));
	for (uint32_t k = 0; k < n; k++) {
		fixture_ack(f, 0x60, 0xfffffc + k);
		ck_assert_uint_eq(fixture_output(f), n - k);
		for (uint32_t i = k; i < n; i++)
			ck_assert_mem_eq(&f->out[i - k].h, &before[i].h, sizeof(before[i].h));
	}
	ck_assert_uint_eq(f->stats.retransmits, 7 + 6 + 5 + 4 + 3 + 2 + 1);
	fixture_ack(f, 0x1f, 0xfffffc + 6);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	expect_wc(&f->send_cq, 2, FRL_WC_SUCCESS);
	expect_wc(&f->send_cq, 3, FRL_WC_SUCCESS);
}
END_TEST

/* Section 15: rc_write_mtu1024 and rc_send_mtu1024. */
START_TEST(as_linux_does)
{
	struct fixture *f = fixture_new(NULL);

	fixture_send(f, 1, FRL_WR_RDMA_WRITE_WITH_IMM, 3849);
	fixture_send(f, 2, FRL_WR_SEND, 2048);
	fixture_send(f, 3, FRL_WR_SEND, 0);
	ck_assert_uint_eq(fixture_output(f), 7);
	expect_out(f, 0, OP_WRITE_FIRST, 0, 1024, false);
	expect_out(f, 1, OP_WRITE_MIDDLE, 1, 1024, false);
	expect_out(f, 2, OP_WRITE_MIDDLE, 2, 1024, false);
	expect_out(f, 3, OP_WRITE_LAST_IMM, 3, 777, true);
	expect_out(f, 4, OP_SEND_FIRST, 4, 1024, false);
	expect_out(f, 5, OP_SEND_LAST, 5, 1024, true);
	expect_out(f, 6, OP_SEND_ONLY, 6, 0, true);
	ck_assert_uint_eq(f->out[0].h.reth.dma_length, 3849);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("requester");
	TCase *tc = tcase_create("requester");

	tcase_add_loop_test(tc, segmentation, 0, 5);
	tcase_add_test(tc, completions_say_what_was_done);
	tcase_add_test(tc, ack_request_in_long_messages);
	tcase_add_loop_test(tc, window_edges, 0, 4);
	tcase_add_test(tc, several_elements);
	tcase_add_test(tc, inline_payload_is_copied);
	tcase_add_loop_test(tc, solicited_event, 0, 4);
	tcase_add_test(tc, region_gone);
	tcase_add_test(tc, sent_again_as_before);
	tcase_add_test(tc, as_linux_does);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
