/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending, links, completion queues, numbers and keys. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/engine/engine_host.h"
#include "tests/vectors/frame.h"

enum {
	LINK_CHECK_NS = 1000000,
	MANY_REGIONS = 1000,
	LATER = 1000, /* queue pairs that come and go before a number may come again */
};

static enum frl_qp_state state_of(unsigned i)
{
	return host->qps[i].qp.core.state;
}

static void modify(unsigned i, enum frl_qp_state state)
{
	struct frl_qp_attr attr = { .state = state };

	ck_assert_int_eq(host_modify(host, i, &attr, FRL_QP_STATE, NULL), 0);
}

/* The PSNs sent to the peer of queue pair `i` are in order and without a gap. */
static uint32_t count_in_order(unsigned i)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < host->port.n_sent; k++) {
		const struct wire_packet *packet = host_sent(host, k, NULL);

		if (packet->h.bth.dest_qpn != HOST_PEER_QPN + i)
			continue;
		ck_assert_uint_eq(host->port.sent[k].link, host->qps[i].qp.path.link);
		ck_assert_uint_eq(packet->h.bth.psn.value, HOST_SQ_PSN + n);
		n++;
	}
	return n;
}

START_TEST(backpressure_keeps_order)
{
	host_add(host, 0, NULL);
	host_add(host, 1, NULL);
	for (unsigned k = 0; k < 100; k++) {
		host_post_send(host, 0, k, 3 * HOST_MTU, 0);
		host_post_send(host, 1, k, HOST_MTU, 0);
	}
	for (unsigned round = 0; count_in_order(0) < 300 || count_in_order(1) < 100; round++) {
		ck_assert_uint_lt(round, 2000);
		host->port.room[0] = round % 3;
		host_poll(host);
	}
	ck_assert_uint_eq(host->port.n_sent, 400);
	ck_assert_uint_eq(host->engine.stats.tx_packets, 400);
	ck_assert_uint_eq(host->engine.stats.retransmits, 0);
}
END_TEST

START_TEST(links_do_not_wait_for_each_other)
{
	static const struct host_config config = { .on_demand = true };
	static const struct host_qp_config second = { .link = 1 }, third = { .link = 2 };

	host_restart(&config);
	host_add(host, 0, NULL);
	host_add(host, 1, &second);
	host_add(host, 2, &third);
	host->port.room[0] = 0;
	for (unsigned k = 0; k < 100; k++)
		for (unsigned i = 0; i < 3; i++)
			host_post_send(host, i, k, HOST_MTU, 0);
	for (unsigned round = 0; round < 50; round++)
		host_poll(host);
	ck_assert_uint_eq(count_in_order(0), 0);
	ck_assert_uint_eq(count_in_order(1), 100);
	ck_assert_uint_eq(count_in_order(2), 100);
	host->port.room[0] = FAKE_UNLIMITED;
	for (unsigned round = 0; round < 50; round++)
		host_poll(host);
	ck_assert_uint_eq(count_in_order(0), 100);
}
END_TEST

/* Waiting requests go, whatever they carry; other packets stay, in their order, also reports to the
 * peer. */
START_LOOP_TEST(withdraw, 3)
{
	static const uint32_t want[] = { HOST_MTU, HOST_MTU, 16 };
	struct frl_send_wr read = { .opcode = FRL_WR_RDMA_READ };
	struct wire_headers h = { .bth = { .opcode = OP_READ_REQUEST,
					  .pkey = PKEY_DEFAULT,
					  .psn = psn_make(HOST_RQ_PSN) } };
	struct frame request;

	h.bth.dest_qpn = host_add(host, 0, NULL)->core.qpn;
	/* One that is accepted, or one that is refused. */
	if (_i == 1)
		h.bth.opcode = OP_WRITE_ONLY;
	h.bth.ack_request = true;
	h.reth = (struct reth){ 0, 0x12345, _i == 2 };
	request = make_frame(0, &h, 0, true);
	host_add(host, 1, NULL);
	host->port.room[0] = 0;
	host_post_send(host, 0, 1, HOST_MTU, 0);
	host_post_send(host, 0, 2, 16, FRL_SEND_INLINE);
	host_poll(host);
	host_post_send(host, 1, 1, HOST_MTU, 0);
	host_poll(host);
	host_post_send(host, 0, 3, 2 * HOST_MTU, 0);
	host_post_send(host, 0, 4, 0, 0);
	host_post(host, 0, read, 0, 1, NULL);
	host_poll(host);
	host_post_send(host, 1, 2, HOST_MTU, 0);
	host_post_send(host, 1, 3, 16, FRL_SEND_INLINE);
	host_poll(host);
	ck_assert(engine_region_queued(&host->engine, &host->region));
	if (_i > 0) {
		fake_port_receive(&host->port, 0, request.bytes, (uint32_t)request.len);
		host_poll(host);
	}
	if (_i < 2)
		modify(0, FRL_QPS_ERR);
	else
		engine_remove_qp(&host->engine, &host->qps[0].qp);
	host->port.room[0] = FAKE_UNLIMITED;
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, _i ? 4 : 3);
	for (unsigned k = 0; k < 3; k++) {
		const struct wire_packet *packet = host_sent(host, k, NULL);

		ck_assert_uint_eq(packet->h.bth.dest_qpn, HOST_PEER_QPN + 1);
		ck_assert_uint_eq(packet->payload_len, want[k] + ICRC_LEN);
	}
	if (_i)
		ck_assert_uint_eq(host_sent(host, 3, NULL)->h.aeth.syndrome, _i == 1 ? 0x1f : 0x62);
	ck_assert(!engine_region_queued(&host->engine, &host->region));
}
END_TEST

enum ending { TO_ERROR, TO_RESET, REMOVED, RETRIES, N_ENDINGS };

/* Before the call returns, and so before anybody sees a completion. */
START_LOOP_TEST(revoked_when_it_leaves_rts, N_ENDINGS)
{
	static const struct host_config config = { .in_place = true, .on_demand = true };
	static const struct host_qp_config third = { .link = 3 };
	uint32_t qpn;

	host_restart(&config);
	host_add(host, 0, NULL);
	qpn = host_add(host, 1, &third)->core.qpn;
	host_post_send(host, 1, 1, HOST_MTU, 0);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_revoked, 0);
	switch (_i) {
	case TO_ERROR: modify(1, FRL_QPS_ERR); break;
	case TO_RESET: modify(1, FRL_QPS_RESET); break;
	case REMOVED: engine_remove_qp(&host->engine, &host->qps[1].qp); break;
	case RETRIES:
		for (unsigned k = 0; k < 10 && state_of(1) == FRL_QPS_RTS; k++) {
			host->now_ns += UINT64_C(2000000000);
			host_poll(host);
		}
		break;
	default: break;
	}
	ck_assert_uint_eq(host->port.n_revoked, 1);
	ck_assert_uint_eq(host->port.revoked[0].link, 3);
	ck_assert_uint_eq(host->port.revoked[0].flow, qpn);
	if (_i == TO_ERROR || _i == TO_RESET) {
		/* Memory that a peer reads may change at any time: short payload is copied at once.
		 * The rest is not read in place, since its region may go. Neither is taken back
		 * when the queue pair fails: its report comes after it. */
		modify(1, FRL_QPS_RESET);
		engine_remove_qp(&host->engine, &host->qps[1].qp);
	}
	host_poll(host);
	ck_assert_uint_eq(host->port.n_revoked, 1);
	ck_assert_int_eq(state_of(0), FRL_QPS_RTS);
}
END_TEST

static const struct {
	bool in_place;
	uint32_t length;
	bool by_reference;
} responses[] = {
	{ false, 1, false },
	{ false, FRL_MAX_INLINE, false },
	{ false, FRL_MAX_INLINE + 1, true },
	{ true, FRL_MAX_INLINE, false },
	{ true, FRL_MAX_INLINE + 1, true },
};

enum { N_RESPONSES = sizeof(responses) / sizeof(responses[0]) };

/*
 * Memory that a peer reads may change at any time: what is short is copied at once. The rest is not
 * read in place, since its region may go. Neither is taken back when the queue pair fails: what it
 * has to say comes after it.
 */
START_LOOP_TEST(read_response, N_RESPONSES)
{
	const struct host_config config = {
		.on_demand = responses[_i].in_place,
		.in_place = responses[_i].in_place,
	};
	const struct host_qp_config qp = { .path_mtu = 1024 };
	struct wire_headers h = { .bth = { .opcode = OP_READ_REQUEST,
					  .pkey = PKEY_DEFAULT,
					  .psn = psn_make(HOST_RQ_PSN) } };
	uint32_t length = responses[_i].length;
	struct wire_packet packet;
	struct frame frame;

	host_restart(&config);
	host_add(host, 0, &qp);
	h.bth.dest_qpn = host->qps[0].qp.core.qpn;
	h.reth = (struct reth){ (uintptr_t)host->memory, host->region.key, length };
	frame = make_frame(0, &h, 0, true);
	host->port.room[0] = 0;
	fake_port_receive(&host->port, 0, frame.bytes, (uint32_t)frame.len);
	host_poll(host);
	ck_assert(engine_region_queued(&host->engine, &host->region) == responses[_i].by_reference);
	modify(0, FRL_QPS_ERR);
	host->port.room[0] = FAKE_UNLIMITED;
	if (!responses[_i].by_reference)
		memset(host->memory, 0, length);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 1);
	ck_assert_uint_eq(host->port.sent[0].packet.n_pieces, responses[_i].by_reference);
	ck_assert_uint_eq(host->port.sent[0].packet.flow, 0);
	ck_assert_uint_eq(host->port.sent[0].packet.copy, responses[_i].in_place);
	packet = *host_sent(host, 0, NULL);
	ck_assert_int_eq(wire_trim(&packet, true), WIRE_OK);
	ck_assert(wire_icrc_ok(&packet));
	ck_assert_uint_eq(packet.h.bth.opcode, OP_READ_RESP_ONLY);
	ck_assert_uint_eq(packet.payload_len, length);
	ck_assert_uint_eq(packet.payload[length - 1], HOST_FILL);
}
END_TEST

/* A queue pair that is removed where nobody gives up is reported, to its peer's process alone. */
START_TEST(gone)
{
	static const struct host_config config = { .on_demand = true };
	static const struct host_qp_config qp = { .link = 1, .unlimited_retry = true };
	struct wire_headers h = { .bth = { .opcode = OP_SEND_ONLY,
					  .pkey = PKEY_DEFAULT,
					  .psn = psn_make(HOST_RQ_PSN) } };
	struct frame frame;

	host_restart(&config);
	host_add(host, 0, NULL);
	h.bth.dest_qpn = host_add(host, 1, &qp)->core.qpn;
	engine_remove_qp(&host->engine, &host->qps[1].qp);
	frame = make_frame(0, &h, 16, true);
	set_sender(&frame, HOST_PEER_QPN + 1);
	fake_port_receive(&host->port, 0, frame.bytes, (uint32_t)frame.len);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 0);
	fake_port_receive(&host->port, 1, frame.bytes, (uint32_t)frame.len);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 1);
	ck_assert_uint_eq(host->port.sent[0].link, 1);
	ck_assert_uint_eq(host_sent(host, 0, NULL)->h.aeth.syndrome, 0x63);
	ck_assert_uint_eq(host_sent(host, 0, NULL)->h.bth.dest_qpn, HOST_PEER_QPN + 1);
}
END_TEST

START_TEST(link_down)
{
	static const struct host_config config = { .on_demand = true };
	static const struct host_qp_config second = { .link = 1 };

	host_restart(&config);
	host_add(host, 0, NULL);
	host_add(host, 1, &second);
	host_add(host, 2, &second);
	host->port.room[1] = 0;
	for (unsigned i = 0; i < 3; i++) {
		host_post_recv(host, i, 1, 0, 64);
		host_post_send(host, i, 2, HOST_MTU, 0);
		host_post_send(host, i, 3, 16, FRL_SEND_INLINE);
	}
	host_poll(host);
	ck_assert(engine_region_queued(&host->engine, &host->region));
	host->port.state[1] = PORT_LINK_DOWN;
	host->port.room[1] = FAKE_UNLIMITED;
	host->now_ns += LINK_CHECK_NS;
	host_poll(host);
	host->port.n_sent = 0;
	for (unsigned i = 1; i < 3; i++) {
		ck_assert_int_eq(state_of(i), FRL_QPS_ERR);
		host_expect_wc(&host->cqs[i], 2, FRL_WC_REM_ABORT_ERR);
		host_expect_wc(&host->cqs[i], 3, FRL_WC_WR_FLUSH_ERR);
		host_expect_wc(&host->cqs[i], 1, FRL_WC_WR_FLUSH_ERR);
		host_expect_no_wc(&host->cqs[i]);
	}
	ck_assert_int_eq(state_of(0), FRL_QPS_RTS);
	host_expect_no_wc(&host->cqs[0]);
	host->now_ns += LINK_CHECK_NS;
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 0);
}
END_TEST

/* Packets that wait for a link that is gone are not kept for the next one of that number. */
START_TEST(link_down_drops_what_waits)
{
	static const struct host_config config = { .on_demand = true };

	host_restart(&config);
	host_add(host, 0, NULL);
	host->port.room[0] = 0;
	host_post_send(host, 0, 1, 16, FRL_SEND_INLINE);
	host_poll(host);
	host->port.state[0] = PORT_LINK_DOWN;
	host->now_ns += LINK_CHECK_NS;
	host_poll(host);
	host->port.state[0] = PORT_LINK_UP;
	host->port.room[0] = FAKE_UNLIMITED;
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 0);
}
END_TEST

/* A carrier comes back, and the addresses are the same then. */
START_TEST(carrier_lost)
{
	host_add(host, 0, NULL);
	host->port.state[0] = PORT_LINK_DOWN;
	host->now_ns += LINK_CHECK_NS;
	host_poll(host);
	ck_assert_int_eq(state_of(0), FRL_QPS_RTS);
}
END_TEST

static void overrun(unsigned i, struct cq *cq)
{
	cq_init(cq, host->wcs[7], 1, &host->engine.events);
	for (unsigned k = 0; k < 2; k++)
		host_post_send(host, i, k, 16, FRL_SEND_INLINE);
	host_poll(host);
	host_acknowledge(host, i, 1, true);
	host_poll(host);
	ck_assert(cq->overrun);
}

START_TEST(cq_overrun)
{
	struct host_qp_config on_small = { 0 }, sends = { 0 }, receives = { 0 };

	on_small.send_cq = on_small.recv_cq = &host->cqs[7];
	sends.send_cq = receives.recv_cq = &host->cqs[7];
	host_add(host, 0, &sends);
	host_add(host, 1, &on_small);
	host_add(host, 2, &receives);
	host_add(host, 3, NULL);
	overrun(1, &host->cqs[7]);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_msg(state_of(i) == FRL_QPS_ERR, "queue pair %u lives on", i);
	ck_assert_int_eq(state_of(3), FRL_QPS_RTS);
	ck_assert_uint_gt(host->engine.stats.cq_overruns, 0);
}
END_TEST

/* Flushing a queue pair overruns another queue, which somebody uses that was looked at before. */
START_TEST(cq_overrun_spreads)
{
	struct host_qp_config bystander = { 0 }, culprit = { 0 }, between = { 0 };

	bystander.send_cq = bystander.recv_cq = &host->cqs[6];
	culprit.send_cq = culprit.recv_cq = &host->cqs[7];
	between.send_cq = &host->cqs[7];
	between.recv_cq = &host->cqs[6];
	cq_init(&host->cqs[6], host->wcs[6], 1, &host->engine.events);
	host_add(host, 0, &bystander);
	host_add(host, 1, &culprit);
	host_add(host, 2, &between);
	for (unsigned k = 0; k < 3; k++)
		host_post_recv(host, 2, k, 0, 64);
	overrun(1, &host->cqs[7]);
	host_poll(host);
	host_poll(host);
	ck_assert(host->cqs[6].overrun);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_msg(state_of(i) == FRL_QPS_ERR, "queue pair %u lives on", i);
}
END_TEST

/* NULL when there is no number left. */
static struct engine_qp *add_bare(struct engine_qp *qp)
{
	int rc = host_add_small(host, qp, FRL_QPT_RC);

	if (rc) {
		ck_assert_int_eq(rc, -ENOSPC);
		return NULL;
	}
	return qp;
}

START_TEST(qp_numbers)
{
	struct engine_qp *qps = calloc(ENGINE_MAX_QPS, sizeof(*qps)), *one = &qps[0];
	uint32_t recent[LATER];
	unsigned n = 0, early = 0;

	ck_assert_ptr_nonnull(qps);
	for (unsigned k = 0; k < 3 * ENGINE_MAX_QPS; k++) {
		uint32_t qpn = add_bare(one)->core.qpn;

		ck_assert_uint_gt(qpn, 1);
		ck_assert_uint_lt(qpn, QPN_MULTICAST);
		for (unsigned i = 0; i < LATER && i < k; i++)
			early += recent[i] == qpn;
		recent[k % LATER] = qpn;
		engine_remove_qp(&host->engine, one);
	}
	ck_assert_uint_eq(early, 0);
	while (n < ENGINE_MAX_QPS && add_bare(&qps[n]))
		n++;
	ck_assert_uint_eq(n, ENGINE_MAX_QPS - 2);
	/* One goes, one comes. */
	engine_remove_qp(&host->engine, &qps[4711]);
	ck_assert_ptr_nonnull(add_bare(&qps[4711]));
	ck_assert_ptr_null(add_bare(&qps[n]));
	for (unsigned k = 0; k < n; k++)
		engine_remove_qp(&host->engine, &qps[k]);
	ck_assert_uint_eq(host->engine.n_qps, 0);
	free(qps);
}
END_TEST

START_TEST(region_keys)
{
	struct region *regions = calloc(MANY_REGIONS, sizeof(*regions)), one = { 0 };
	struct region_table *table;
	uint32_t stale;

	ck_assert_ptr_nonnull(regions);
	table = &host->engine.regions;
	for (unsigned i = 0; i < MANY_REGIONS; i++) {
		ck_assert_int_eq(engine_add_region(&host->engine, &regions[i]), 0);
		ck_assert_uint_ne(regions[i].key, 0);
		ck_assert_uint_ne(regions[i].key >> REGION_INDEX_BITS, 0);
	}
	ck_assert_ptr_eq(region_find(table, host->region.key), &host->region);
	for (unsigned i = 0; i < MANY_REGIONS; i++)
		ck_assert_ptr_eq(region_find(table, regions[i].key), &regions[i]);
	ck_assert_ptr_null(region_find(table, 0));
	for (unsigned i = 0; i < MANY_REGIONS; i++) {
		stale = regions[i].key;
		engine_remove_region(&host->engine, &regions[i]);
		ck_assert_ptr_null(region_find(table, stale));
	}
	/* Also when the slot is used again. */
	ck_assert_int_eq(engine_add_region(&host->engine, &one), 0);
	stale = one.key;
	engine_remove_region(&host->engine, &one);
	for (unsigned k = 0; k < 4 * MANY_REGIONS; k++) {
		ck_assert_int_eq(engine_add_region(&host->engine, &one), 0);
		ck_assert_uint_ne(one.key, stale);
		engine_remove_region(&host->engine, &one);
	}
	free(regions);
}
END_TEST

START_TEST(region_table_full)
{
	struct region *regions = calloc(REGION_MAX, sizeof(*regions));
	unsigned n = 0;

	ck_assert_ptr_nonnull(regions);
	while (n < REGION_MAX && engine_add_region(&host->engine, &regions[n]) == 0)
		n++;
	ck_assert_uint_eq(n, REGION_MAX - 1); /* one is the fixture's */
	ck_assert_int_eq(engine_add_region(&host->engine, &regions[n]), -ENOSPC);
	engine_remove_region(&host->engine, &regions[5]);
	ck_assert_int_eq(engine_add_region(&host->engine, &regions[5]), 0);
	free(regions);
}
END_TEST

/* A request whose memory is no region any more, and a peer that uses the key of one. */
START_TEST(stale_keys)
{
	struct wire_headers h = { .bth = { .opcode = OP_WRITE_ONLY,
					  .pkey = PKEY_DEFAULT,
					  .psn = psn_make(HOST_RQ_PSN),
					  .ack_request = true } };
	struct frame frame;

	host_add(host, 0, NULL);
	host_add(host, 1, NULL);
	h.bth.dest_qpn = host->qps[1].qp.core.qpn;
	h.reth = (struct reth){ (uintptr_t)host->memory, host->region.key, 16 };
	frame = make_frame(0, &h, 16, true);
	host_post_send(host, 0, 1, HOST_MTU, 0);
	engine_remove_region(&host->engine, &host->region);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 0);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_LOC_PROT_ERR);
	fake_port_receive(&host->port, 0, frame.bytes, (uint32_t)frame.len);
	host_poll(host);
	ck_assert_int_eq(state_of(1), FRL_QPS_ERR);
	ck_assert_uint_eq(host->memory[0], HOST_FILL);
	ck_assert_uint_eq(host->port.n_sent, 1);
	ck_assert_uint_eq(host_sent(host, 0, NULL)->h.aeth.syndrome, 0x62);
}
END_TEST

HOST_TEST_FILE(engine_queues)
