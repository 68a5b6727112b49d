/* SPDX-License-Identifier: BSD-3-Clause */
/* How requests become packets. */
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

#include <string.h>

static const uint32_t mtus[] = { 256, 512, 1024, 2048, 4096 };
static const uint32_t psns[] = { 0, 0xfffffe, 0xffffff, 0x7ffffe, 0x123456 };

/* First, middle, last, only; of RC. */
static const struct message_row {
	enum frl_wr_opcode opcode;
	uint8_t opcodes[4];
	bool unreliable; /* UC has it too */
} messages[] = {
	{ FRL_WR_SEND, { OP_SEND_FIRST, OP_SEND_MIDDLE, OP_SEND_LAST, OP_SEND_ONLY }, true },
	{ FRL_WR_SEND_WITH_IMM,
		{ OP_SEND_FIRST, OP_SEND_MIDDLE, OP_SEND_LAST_IMM, OP_SEND_ONLY_IMM }, true },
	{ FRL_WR_SEND_WITH_INV,
		{ OP_SEND_FIRST, OP_SEND_MIDDLE, OP_SEND_LAST_INV, OP_SEND_ONLY_INV }, false },
	{ FRL_WR_RDMA_WRITE, { OP_WRITE_FIRST, OP_WRITE_MIDDLE, OP_WRITE_LAST, OP_WRITE_ONLY },
		true },
	{ FRL_WR_RDMA_WRITE_WITH_IMM,
		{ OP_WRITE_FIRST, OP_WRITE_MIDDLE, OP_WRITE_LAST_IMM, OP_WRITE_ONLY_IMM }, true },
};

enum { N_MESSAGES = sizeof(messages) / sizeof(messages[0]) };

static void check_headers(const struct packet_out *out, uint32_t length, uint64_t wr_id)
{
	uint8_t headers = opcode_table[out->h.bth.opcode].headers;

	ck_assert_uint_eq(out->h.bth.dest_qpn, F_PEER_QPN);
	ck_assert_uint_eq(out->h.bth.pkey, 0xffff);
	ck_assert_uint_eq(out->h.bth.version, 0);
	ck_assert(out->h.bth.migrated && !out->h.bth.solicited);
	ck_assert(!out->response);
	ck_assert_ptr_null(out->target);
	if (headers & HEADER_RETH) {
		ck_assert_uint_eq(out->h.reth.va, 0x700000);
		ck_assert_uint_eq(out->h.reth.rkey, 0x55);
		ck_assert_uint_eq(out->h.reth.dma_length, length);
	}
	if (headers & (HEADER_IMMDT | HEADER_IETH))
		ck_assert_uint_eq(out->h.imm_data, 0xabcd0000 + (uint32_t)wr_id);
}

static void check_message(struct fixture *f, const struct message_row *row, uint32_t psn,
	uint32_t length, uint64_t wr_id)
{
	bool rc = f->qp.type == FRL_QPT_RC;
	uint32_t mtu = f->qp.path_mtu;
	uint32_t packets = length ? (length + mtu - 1) / mtu : 1;

	fixture_send(f, wr_id, row->opcode, length);
	ck_assert_uint_eq(fixture_output(f), packets);
	for (uint32_t i = 0; i < packets; i++) {
		const struct packet_out *out = &f->out[i];
		bool last = i + 1 == packets;
		unsigned position = packets == 1 ? 3 : last ? 2 : i ? 1 : 0;

		expect_out(f, i, row->opcodes[position] | (rc ? 0 : TRANSPORT_UC), psn + i,
			last ? length - i * mtu : mtu, rc && last);
		check_headers(out, length, wr_id);
		ck_assert_uint_eq(out->n_pieces, length ? 1 : 0);
		if (length) {
			ck_assert_ptr_eq(out->pieces[0].addr, f->memory + i * mtu);
			ck_assert_uint_eq(out->pieces[0].length, out->payload_len);
			ck_assert_ptr_eq(out->pieces[0].region, &f->local);
		}
	}
	if (rc)
		fixture_ack(f, 0x1f, psn + packets - 1);
	else
		fixture_transmitted(f, packets);
	expect_wc(&f->send_cq, wr_id, FRL_WC_SUCCESS);
}

static void check_segmentation(enum frl_qp_type type, uint32_t mtu)
{
	const uint32_t sizes[] = { 0, 1, 3, 63, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 777 };

	for (unsigned p = 0; p < 5; p++) {
		struct fixture *f = fixture_new(
			&(struct fixture_config){ .type = type, .mtu = mtu, .sq_psn = psns[p] });
		uint32_t psn = psns[p];

		for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			for (unsigned m = 0; m < N_MESSAGES; m++) {
				if (type == FRL_QPT_UC && !messages[m].unreliable)
					continue;
				check_message(f, &messages[m], psn, sizes[i], i * 8 + m);
				psn += sizes[i] ? (sizes[i] + mtu - 1) / mtu : 1;
			}
		expect_no_wc(&f->send_cq);
		expect_silence(f);
		ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
		ck_assert_uint_eq(f->stats.retransmits, 0);
	}
}

START_LOOP_TEST(segmentation, 5)
{
	check_segmentation(FRL_QPT_RC, mtus[_i]);
}
END_TEST

START_LOOP_TEST(segmentation_unreliable, 5)
{
	check_segmentation(FRL_QPT_UC, mtus[_i]);
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
		{ FRL_WR_SEND_WITH_INV, FRL_WC_SEND },
		{ FRL_WR_RDMA_WRITE, FRL_WC_RDMA_WRITE },
		{ FRL_WR_RDMA_WRITE_WITH_IMM, FRL_WC_RDMA_WRITE },
	};
	struct fixture *f = fixture_new(NULL);
	struct frl_wc wc;

	for (uint32_t i = 0; i < 5; i++) {
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
START_LOOP_TEST(window_edges, 4)
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
	struct frl_send_wr wr = { .opcode = FRL_WR_SEND, .sge = sge, .n_sge = 4 };
	static const struct {
		uint32_t packet, piece, at, length;
	} rows[] = { { 0, 0, 0, 100 }, { 0, 1, 2000, 156 }, { 1, 0, 2156, 144 },
		{ 1, 1, 3000, 112 }, { 2, 0, 3112, 88 } };

	fixture_post(f, &wr, NULL);
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
	struct frl_send_wr wr = {
		.opcode = FRL_WR_SEND, .flags = FRL_SEND_INLINE, .sge = sge, .n_sge = 3
	};

	memset(a, 0xaa, sizeof(a));
	memset(b, 0xbb, sizeof(b));
	fixture_post(f, &wr, NULL);
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

/* An element's address is one of its region's own address space. */
START_TEST(elements_of_a_moved_region)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = 256 });
	struct frl_sge sge = { (void *)(uintptr_t)(F_IOVA + 100), 300, f->moved.key };
	struct frl_send_wr wr = { .opcode = FRL_WR_SEND, .sge = &sge, .n_sge = 1 };

	fixture_post(f, &wr, NULL);
	ck_assert_uint_eq(fixture_output(f), 2);
	ck_assert_ptr_eq(f->out[0].pieces[0].addr, f->memory + 100);
	ck_assert_ptr_eq(f->out[1].pieces[0].addr, f->memory + 356);
	ck_assert_ptr_eq(f->out[1].pieces[0].region, &f->moved);
}
END_TEST

/* Sixteen elements of one byte make one packet of sixteen pieces. */
START_TEST(sixteen_elements)
{
	struct fixture *f = fixture_new(NULL);
	struct frl_sge sge[FRL_MAX_SGE];
	struct frl_send_wr wr = { .opcode = FRL_WR_SEND, .sge = sge, .n_sge = FRL_MAX_SGE };

	for (int i = 0; i < FRL_MAX_SGE; i++)
		sge[i] = (struct frl_sge){ f->memory + 100 * i, 1, f->local.key };
	fixture_post(f, &wr, NULL);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_out(f, 0, OP_SEND_ONLY, 0, FRL_MAX_SGE, true);
	ck_assert_uint_eq(f->out[0].n_pieces, FRL_MAX_SGE);
	for (int i = 0; i < FRL_MAX_SGE; i++)
		ck_assert_ptr_eq(f->out[0].pieces[i].addr, f->memory + 100 * i);
}
END_TEST

/* SE on the last packet of SEND and WRITE with immediate, nowhere else. */
START_LOOP_TEST(solicited_event, N_MESSAGES)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = 256 });
	struct frl_sge sge = { f->memory, 600, f->local.key };
	struct frl_send_wr wr = {
		.opcode = messages[_i].opcode, .flags = FRL_SEND_SOLICITED, .sge = &sge, .n_sge = 1
	};

	fixture_post(f, &wr, NULL);
	ck_assert_uint_eq(fixture_output(f), 3);
	ck_assert(!f->out[0].h.bth.solicited && !f->out[1].h.bth.solicited);
	ck_assert_int_eq(f->out[2].h.bth.solicited, messages[_i].opcode != FRL_WR_RDMA_WRITE);
}
END_TEST

START_TEST(every_request_signaled)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .sq_sig_all = true });

	fixture_send_flags(f, 1, 10, 0);
	fixture_output(f);
	fixture_ack(f, 0x1f, 0);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
}
END_TEST

/* A region that goes while its request waits: those before it are finished, it fails, later ones
 * are flushed, and no timer is left. */
START_TEST(region_gone)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .retry_cnt = 1 });
	struct frl_sge sge = { f->memory, 100, f->read_only.key };
	struct frl_send_wr wr = { .wr_id = 2, .opcode = FRL_WR_SEND, .sge = &sge, .n_sge = 1 };

	fixture_send(f, 1, FRL_WR_SEND, 100);
	fixture_post(f, &wr, NULL);
	fixture_send_flags(f, 3, 100, 0);
	fixture_recv(f, 4, 0, 100);
	region_remove(&f->table, &f->read_only);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_out(f, 0, OP_SEND_ONLY, 0, 100, true);
	expect_no_wc(&f->send_cq);
	expect_silence(f);
	fixture_deadline(f); /* the answer was lost: the first is sent again, and nothing else */
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_out(f, 0, OP_SEND_ONLY, 0, 100, true);
	expect_silence(f);
	fixture_ack(f, 0x1f, 0);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	ck_assert_uint_eq(fixture_output(f), 0);
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
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

/* Messages whose completion was not asked for need no acknowledgement each; but the last one that
 * leaves asks, for what is behind it may have to wait for that. */
START_TEST(unsignaled_messages_are_acknowledged_together)
{
	struct fixture *f = fixture_new(NULL);

	fixture_send_flags(f, 1, 10, 0);
	fixture_send_flags(f, 2, 10, 0);
	ck_assert_uint_eq(fixture_output(f), 2);
	expect_out(f, 0, OP_SEND_ONLY, 0, 10, false);
	expect_out(f, 1, OP_SEND_ONLY, 1, 10, true);
	/* One that asks in between, and one that ends in the middle of the next one. */
	fixture_send_flags(f, 3, 10, 0);
	fixture_send_flags(f, 4, 10, FRL_SEND_SIGNALED);
	fixture_send_flags(f, 5, 10, 0);
	fixture_send_flags(f, 6, 10, FRL_SEND_INLINE);
	fixture_send_flags(f, 7, 3000, 0);
	ck_assert_uint_eq(qp_output(&f->qp, f->out, 5, 0), 5);
	f->n_out = 5;
	expect_out(f, 0, OP_SEND_ONLY, 2, 10, false);
	expect_out(f, 1, OP_SEND_ONLY, 3, 10, true);
	expect_out(f, 2, OP_SEND_ONLY, 4, 10, false);
	expect_out(f, 3, OP_SEND_ONLY, 5, 10, false);
	expect_out(f, 4, OP_SEND_FIRST, 6, 1024, true);
	ck_assert_uint_eq(fixture_output(f), 2);
	expect_out(f, 0, OP_SEND_MIDDLE, 7, 1024, false);
	expect_out(f, 1, OP_SEND_LAST, 8, 952, true);
}
END_TEST

/* A datagram is one packet, with a target of its own; the address handle may go at once. */
START_LOOP_TEST(datagrams, 2)
{
	static const enum frl_qp_type types[] = { FRL_QPT_UD, FRL_QPT_GSI };
	const enum frl_qp_type type = types[_i];
	struct fixture *f = fixture_new(
		&(struct fixture_config){ .type = type, .sq_psn = 0xffffff });
	uint32_t qpn = type == FRL_QPT_GSI ? QPN_GSI : F_QPN;
	const struct datagram_target *target;
	struct wire_path path = f->ah.path;
	const uint8_t *port;

	fixture_send(f, 1, FRL_WR_SEND, 1024);
	fixture_send(f, 2, FRL_WR_SEND_WITH_IMM, 0);
	memset(&f->ah, 0, sizeof(f->ah));
	target = qp_next_target(&f->qp);
	ck_assert_ptr_nonnull(target);
	ck_assert_uint_eq(fixture_output(f), 2);
	ck_assert_ptr_null(qp_next_target(&f->qp));
	expect_out(f, 0, TRANSPORT_UD | OP_SEND_ONLY, 0xffffff, 1024, false);
	expect_out(f, 1, TRANSPORT_UD | OP_SEND_ONLY_IMM, 0, 0, false);
	ck_assert_uint_eq(f->out[1].h.imm_data, 0xabcd0002);
	ck_assert_ptr_eq(f->out[0].target, target);
	ck_assert_ptr_ne(f->out[1].target, target);
	for (int i = 0; i < 2; i++) {
		const struct packet_out *out = &f->out[i];

		ck_assert_uint_eq(out->h.bth.dest_qpn, F_PEER_QPN);
		ck_assert(out->h.bth.migrated);
		ck_assert_uint_eq(out->h.deth.qkey, F_QKEY);
		ck_assert_uint_eq(out->h.deth.src_qpn, qpn);
		ck_assert_uint_eq(out->target->link, F_AH_LINK);
		ck_assert_uint_eq(out->target->path.headers_len, path.headers_len);
		port = out->target->path.headers + path.headers_len - UDP_LEN;
		ck_assert_uint_eq(port[0] << 8 | port[1], wire_udp_src_port(0, qpn, F_PEER_QPN));
		ck_assert_mem_eq(out->target->path.headers, path.headers,
			path.headers_len - (unsigned)UDP_LEN);
	}
	expect_no_wc(&f->send_cq);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
	fixture_transmitted(f, 1);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	fixture_transmitted(f, 1);
	expect_wc(&f->send_cq, 2, FRL_WC_SUCCESS);
}
END_TEST

/* Where packets leave together, what has begun goes on behind the window: also if a message has two
 * elements. The last one asks, unless one of those before it has. */
START_LOOP_TEST(slack_is_for_all_messages, 2)
{
	struct fixture *f = fixture_new(
		&(struct fixture_config){ .mtu = 256, .window = 8, .slack = 4 });
	const struct frl_sge sges[] = { { f->memory, (uint32_t)(20 - 5 * _i) * 256, f->local.key },
		{ f->memory, 5 * 256, f->local.key } };

	fixture_post(f,
		&(struct frl_send_wr){ .opcode = FRL_WR_SEND,
			.flags = FRL_SEND_SIGNALED,
			.sge = sges,
			.n_sge = 1 + _i },
		NULL);
	ck_assert_uint_eq(fixture_output(f), 12);
	for (uint32_t i = 0; i < 12; i++)
		expect_out(f, i, i ? OP_SEND_MIDDLE : OP_SEND_FIRST, i, 256, i == 11);
	fixture_ack(f, AETH_ACK | AETH_CREDITS_NONE, 2); /* nine are in flight */
	expect_silence(f);
	fixture_ack(f, AETH_ACK | AETH_CREDITS_NONE, 4);
	ck_assert_uint_eq(fixture_output(f), 5);
	expect_out(f, 4, OP_SEND_MIDDLE, 16, 256, true);
	fixture_ack(f, AETH_ACK | AETH_CREDITS_NONE, 16);
	ck_assert_uint_eq(fixture_output(f), 3);
	expect_out(f, 2, OP_SEND_LAST, 19, 256, true);
}
END_TEST

/* UC and UD: done when the port has taken the last packet; no window, no timer, no answer. */
START_TEST(unreliable_requests_complete_when_transmitted)
{
	struct fixture *f = fixture_new(&(struct fixture_config){
		.type = FRL_QPT_UC, .mtu = 256, .sq_psn = 0xfffffe, .window = 2 });

	fixture_send(f, 1, FRL_WR_SEND, 3 * 256);
	fixture_send_flags(f, 2, 1, 0);
	fixture_send(f, 3, FRL_WR_RDMA_WRITE_WITH_IMM, 2 * 256);
	ck_assert_uint_eq(fixture_output(f), 6);
	fixture_transmitted(f, 2);
	expect_no_wc(&f->send_cq);
	fixture_arrive(f, OP_ACKNOWLEDGE, 5, 0); /* of another transport */
	ck_assert_uint_eq(f->stats.drop_bad_opcode, 1);
	fixture_transmitted(f, 2);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	expect_no_wc(&f->send_cq);
	fixture_transmitted(f, 0);
	fixture_transmitted(f, 9); /* more than there are */
	expect_wc(&f->send_cq, 3, FRL_WC_SUCCESS);
	expect_no_wc(&f->send_cq);
	ck_assert_uint_eq(f->stats.retransmits, 0);
}
END_TEST

/* The send queue stops in SQE, and goes on when it is told to; the receive queue works on. */
START_TEST(unreliable_region_gone)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .type = FRL_QPT_UC });
	struct frl_sge sge = { f->memory, 100, f->read_only.key };
	struct frl_send_wr wr = { .wr_id = 2, .opcode = FRL_WR_SEND, .sge = &sge, .n_sge = 1 };

	fixture_send(f, 1, FRL_WR_SEND, 100);
	ck_assert_uint_eq(fixture_output(f), 1);
	fixture_transmitted(f, 1);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	fixture_post(f, &wr, NULL);
	fixture_send_flags(f, 3, 100, 0);
	region_remove(&f->table, &f->read_only);
	ck_assert_uint_eq(fixture_output(f), 0);
	ck_assert_int_eq(f->qp.state, FRL_QPS_SQE);
	expect_wc(&f->send_cq, 2, FRL_WC_LOC_PROT_ERR);
	expect_wc(&f->send_cq, 3, FRL_WC_WR_FLUSH_ERR);
	fixture_transmitted(f, 1); /* there is none */
	fixture_send(f, 4, FRL_WR_SEND, 1);
	expect_wc(&f->send_cq, 4, FRL_WC_WR_FLUSH_ERR);
	fixture_recv(f, 5, 0, 100);
	fixture_arrive(f, TRANSPORT_UC | OP_SEND_ONLY, 0, 100);
	expect_wc(&f->recv_cq, 5, FRL_WC_SUCCESS);
	fixture_move(f, FRL_QPS_RTS);
	fixture_send(f, 6, FRL_WR_SEND, 1);
	ck_assert_uint_eq(fixture_output(f), 1);
	fixture_transmitted(f, 1);
	expect_wc(&f->send_cq, 6, FRL_WC_SUCCESS);
}
END_TEST

TEST_FILE(requester)
