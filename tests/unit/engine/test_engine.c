/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving: dropped frames and their counters, and payload that lies elsewhere. */
#include <stdlib.h>
#include <string.h>

#include "lib/wire/neighbor.h"
#include "tests/unit/engine/engine_host.h"
#include "tests/vectors/frame.h"

enum { LENGTH = 64 };

static struct wire_headers headers(uint8_t opcode, uint32_t psn)
{
	return (struct wire_headers){
		.bth = { .opcode = opcode,
			.ack_request = true,
			.pkey = PKEY_DEFAULT,
			.dest_qpn = host->qps[0].qp.core.qpn,
			.psn = psn_make(HOST_RQ_PSN + psn) },
	};
}

static void arrive(const struct frame *frame)
{
	fake_port_receive(&host->port, 0, frame->bytes, (uint32_t)frame->len);
	host_poll(host);
}

/* Expects the effect of a good frame; so nothing before it has had an effect. */
static void expect_accepted(uint32_t psn)
{
	struct wire_headers h = headers(OP_SEND_ONLY, psn);
	bool has_icrc = !(host->qps[0].qp.core.capabilities & FRL_CAP_NO_ICRC);
	struct frame frame = make_frame(0, &h, LENGTH, has_icrc);

	arrive(&frame);
	ck_assert_int_eq(memcmp(host->memory, frame.bytes + frame.payload, LENGTH), 0);
	ck_assert_uint_eq(host->memory[LENGTH], HOST_FILL);
	ck_assert_uint_eq(host->engine.stats.rx_requests, 1);
	ck_assert_uint_eq(host->port.n_sent, 1);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
}

enum damage {
	CUT,
	EMPTY,
	IP_CHECKSUM,
	IP_VERSION,
	IP_LENGTH,
	FRAGMENT,
	UDP_LENGTH,
	UDP_SHORT,
	UDP_CHECKSUM,
	ODD_LENGTH,
	PAD,
	VERSION,
	OPCODE,
	TRANSPORT,
	PKEY,
	ICRC_PAYLOAD,
	ICRC_HEADER,
	ICRC_ITSELF,
	QP_NUMBER,
	QP_HIGH_BITS,
	QP_MULTICAST,
	SOURCE,
	DESTINATION,
	MAC,
	MAC_GROUP,
	ETHERTYPE,
	UDP_PORT,
	AETH_RESERVED_BIT,
	AETH_RESERVED_TYPE,
	AETH_RESERVED_NAK,
	READ_RESPONSE,
	STATE_RESET,
	STATE_INIT,
	STATE_ERROR,
};

#define COUNTER(member) offsetof(struct frl_stats, member)

static const struct {
	const char *name;
	enum damage damage;
	size_t counter;
} drops[] = {
	{ "cut", CUT, COUNTER(drop_short) },
	{ "empty", EMPTY, COUNTER(drop_short) },
	{ "IP checksum", IP_CHECKSUM, COUNTER(drop_bad_ip) },
	{ "IP version", IP_VERSION, COUNTER(drop_bad_ip) },
	{ "IP length", IP_LENGTH, COUNTER(drop_bad_ip) },
	{ "fragment", FRAGMENT, COUNTER(drop_bad_ip) },
	{ "UDP length", UDP_LENGTH, COUNTER(drop_bad_udp) },
	{ "UDP length 7", UDP_SHORT, COUNTER(drop_bad_udp) },
	{ "UDP checksum", UDP_CHECKSUM, COUNTER(drop_bad_udp) },
	{ "not a multiple of 4", ODD_LENGTH, COUNTER(drop_bad_length) },
	{ "pad", PAD, COUNTER(drop_bad_length) },
	{ "version", VERSION, COUNTER(drop_bad_version) },
	{ "opcode", OPCODE, COUNTER(drop_bad_opcode) },
	{ "transport", TRANSPORT, COUNTER(drop_bad_opcode) },
	{ "P_Key", PKEY, COUNTER(drop_bad_pkey) },
	{ "payload", ICRC_PAYLOAD, COUNTER(drop_bad_icrc) },
	{ "BTH", ICRC_HEADER, COUNTER(drop_bad_icrc) },
	{ "ICRC", ICRC_ITSELF, COUNTER(drop_bad_icrc) },
	{ "QP number", QP_NUMBER, COUNTER(drop_unknown_qp) },
	{ "QP number above the index", QP_HIGH_BITS, COUNTER(drop_unknown_qp) },
	{ "multicast QP", QP_MULTICAST, COUNTER(drop_unknown_qp) },
	{ "source", SOURCE, COUNTER(drop_wrong_peer) },
	{ "destination", DESTINATION, COUNTER(drop_not_for_us) },
	{ "MAC", MAC, COUNTER(drop_not_for_us) },
	{ "group MAC", MAC_GROUP, COUNTER(drop_not_for_us) },
	{ "Ethertype", ETHERTYPE, COUNTER(drop_not_for_us) },
	{ "UDP port", UDP_PORT, COUNTER(drop_not_for_us) },
	{ "AETH bit 7", AETH_RESERVED_BIT, COUNTER(drop_bad_aeth) },
	{ "AETH type", AETH_RESERVED_TYPE, COUNTER(drop_bad_aeth) },
	{ "AETH NAK code", AETH_RESERVED_NAK, COUNTER(drop_bad_aeth) },
	{ "answer to a READ", READ_RESPONSE, COUNTER(drop_bad_aeth) },
	{ "RESET", STATE_RESET, COUNTER(drop_qp_state) },
	{ "INIT", STATE_INIT, COUNTER(drop_qp_state) },
	{ "ERR", STATE_ERROR, COUNTER(drop_qp_state) },
};

enum { N_DROPS = sizeof(drops) / sizeof(drops[0]) };

static uint64_t counter(size_t offset)
{
	uint64_t value;

	memcpy(&value, (const char *)&host->engine.stats + offset, sizeof(value));
	return value;
}

/* Damage before the frame is encoded, so that its checksums are right. */
static struct wire_headers damaged_headers(enum damage damage)
{
	struct wire_headers h = headers(OP_SEND_ONLY, 0);

	switch (damage) {
	case TRANSPORT: h.bth.opcode = TRANSPORT_UC | OP_SEND_ONLY; break;
	case PKEY: h.bth.pkey = 0x7ffe; break;
	case QP_NUMBER: h.bth.dest_qpn++; break;
	case QP_HIGH_BITS: h.bth.dest_qpn ^= 1 << ENGINE_QP_INDEX_BITS; break;
	case QP_MULTICAST: h.bth.dest_qpn = QPN_MULTICAST; break;
	case AETH_RESERVED_BIT: h.aeth.syndrome = 0x80; break;
	case AETH_RESERVED_TYPE: h.aeth.syndrome = 0x40; break;
	case AETH_RESERVED_NAK: h.aeth.syndrome = 0x7f; break;
	default: break;
	}
	if (h.aeth.syndrome)
		h.bth.opcode = OP_ACKNOWLEDGE;
	if (damage == READ_RESPONSE)
		h.bth.opcode = OP_READ_RESP_ONLY;
	if (h.bth.opcode == OP_ACKNOWLEDGE || damage == READ_RESPONSE)
		h.bth.psn = psn_make(HOST_SQ_PSN);
	return h;
}

static void damage_ip(struct frame *f, enum damage damage)
{
	uint8_t *ip = f->bytes + f->l3;

	switch (damage) {
	case IP_CHECKSUM: ip[11] ^= 1; return;
	case IP_VERSION: ip[0] = 0x65; break;
	case IP_LENGTH: put_be16(ip + 2, (uint16_t)(f->len - f->l3 + 1)); break;
	case FRAGMENT: put_be16(ip + 6, 0x2000); break;
	case SOURCE: ip[15] ^= 0x40; break;
	case DESTINATION: ip[19] ^= 0x40; break;
	default: return;
	}
	fix_ip_checksum(f);
}

static void damage_frame(struct frame *f, enum damage damage)
{
	uint8_t *udp = f->bytes + f->udp;

	damage_ip(f, damage);
	switch (damage) {
	case CUT: f->len = f->l3 + 10; break;
	case EMPTY: f->len = 0; break;
	case UDP_LENGTH: put_be16(udp + 4, (uint16_t)(f->len - f->udp + 1)); break;
	case UDP_SHORT: put_be16(udp + 4, 7); break;
	case UDP_CHECKSUM: put_be16(udp + 6, 0x1234); break;
	case ODD_LENGTH: set_lengths(f, f->len - f->udp - 2); break;
	case PAD:
		f->bytes[f->bth + 1] |= 3 << 4;
		set_lengths(f, UDP_LEN + BTH_LEN + ICRC_LEN);
		break;
	case VERSION: f->bytes[f->bth + 1] |= 1; break;
	case OPCODE: f->bytes[f->bth] = 0x1f; break;
	case ICRC_PAYLOAD: f->bytes[f->payload + LENGTH / 2] ^= 0x10; break;
	case ICRC_HEADER: f->bytes[f->bth + 11] ^= 1; break;
	case ICRC_ITSELF: f->bytes[f->len - 1] ^= 0x80; break;
	case MAC: f->bytes[5] ^= 0x40; break;
	case MAC_GROUP: memset(f->bytes, 0xff, 6); break;
	case ETHERTYPE: put_be16(f->bytes + 12, 0x88cc); break;
	case UDP_PORT: put_be16(udp + 2, 4790); break;
	default: break;
	}
}

/* The ICRC covers addresses too. */
static void fix_icrc(struct frame *f)
{
	uint32_t crc = icrc_headers(f->bytes + f->l3, f->payload - f->l3);

	crc = icrc_update(crc, f->bytes + f->payload, f->len - ICRC_LEN - f->payload);
	icrc_store(f->bytes + f->len - ICRC_LEN, crc);
}

static void to_state(enum frl_qp_state state)
{
	struct frl_qp_attr attr = host_attr(0, NULL);

	attr.state = state == FRL_QPS_INIT ? FRL_QPS_RESET : state;
	ck_assert_int_eq(host_modify(host, 0, &attr, FRL_QP_STATE, NULL), 0);
	if (state != FRL_QPS_INIT)
		return;
	attr.state = state;
	ck_assert_int_eq(host_modify(host, 0, &attr, host_mask(FRL_QPT_RC, FRL_QPS_INIT), NULL), 0);
}

static uint64_t all_drops(void)
{
	uint64_t value, sum = 0;
	const char *name;

	for (size_t i = 0; !frl_stats_entry(&host->engine.stats, i, &name, NULL, &value); i++)
		if (strncmp(name, "drop_", 5) == 0)
			sum += value;
	return sum;
}

START_LOOP_TEST(drop, N_DROPS)
{
	enum damage damage = drops[_i].damage;
	enum frl_qp_state state = FRL_QPS_RTS;
	struct wire_headers h;
	struct frame frame;

	host_add(host, 0, NULL);
	host_post_recv(host, 0, 1, 0, 1024);
	/* Something that an acknowledgement could be for. */
	host_post_send(host, 0, 10, 16, FRL_SEND_INLINE);
	host_poll(host);
	host->port.n_sent = 0;
	h = damaged_headers(damage);
	frame = make_frame(0, &h, h.bth.opcode == OP_ACKNOWLEDGE ? 0 : LENGTH, true);
	damage_frame(&frame, damage);
	if (damage == SOURCE)
		fix_icrc(&frame);
	if (damage >= STATE_RESET) {
		state = damage == STATE_RESET  ? FRL_QPS_RESET
			: damage == STATE_INIT ? FRL_QPS_INIT
					       : FRL_QPS_ERR;
		to_state(state);
		host->cqs[0].head = host->cqs[0].tail;
	}
	arrive(&frame);
	ck_assert_msg(counter(drops[_i].counter) == 1, "%s was not counted", drops[_i].name);
	ck_assert_uint_eq(all_drops(), 1);
	ck_assert_uint_eq(host->engine.stats.rx_packets, 1);
	ck_assert_uint_eq(host->engine.stats.rx_bytes, frame.len);
	ck_assert_uint_eq(host->engine.stats.rx_requests, 0);
	ck_assert_uint_eq(host->port.n_sent, 0);
	ck_assert_uint_eq(host->memory[0], HOST_FILL);
	ck_assert_int_eq(host->qps[0].qp.core.state, state);
	host_expect_no_wc(&host->cqs[0]);
	if (state == FRL_QPS_RTS)
		expect_accepted(0);
}
END_TEST

static const uint8_t cut_opcodes[] = { OP_SEND_ONLY, OP_SEND_ONLY_IMM, OP_WRITE_ONLY,
	OP_WRITE_ONLY_IMM, OP_ACKNOWLEDGE };

enum { N_CUT = sizeof(cut_opcodes) / sizeof(cut_opcodes[0]) };

/* With lengths that still speak of the whole, and with lengths that are right for what is left. */
START_LOOP_TEST(cut_frames, N_CUT)
{
	uint8_t opcode = cut_opcodes[_i];
	struct wire_headers h;
	struct frame frame;
	uint64_t n = 0;

	host_add(host, 0, NULL);
	host_post_recv(host, 0, 1, 0, 1024);
	h = headers(opcode, 0);
	h.aeth.syndrome = 0x1f;
	for (int variant = 0; variant < VARIANTS; variant += 2) {
		frame = make_frame(variant, &h, opcode == OP_ACKNOWLEDGE ? 0 : LENGTH, true);
		for (size_t len = 0; len < frame.len; len++, n++) {
			struct frame cut = frame;

			cut.len = len;
			arrive(&cut);
			if (len < frame.udp)
				continue;
			set_lengths(&cut, len - frame.udp);
			arrive(&cut);
			n++;
		}
	}
	ck_assert_uint_eq(host->engine.stats.rx_packets, n);
	ck_assert_uint_eq(all_drops(), n);
	ck_assert_uint_eq(host->port.n_sent, 0);
	expect_accepted(0);
}
END_TEST

START_LOOP_TEST(arp, 2)
{
	struct host_config config = { .on_demand = _i };
	struct neighbor_message message = {
		.request = true,
		.sender_ip = ip_from_v4((const uint8_t[]){ 10, 9, 0, 1 }),
		.target_ip = ip_from_v4((const uint8_t[]){ 10, 9, 0, 2 }),
	};
	uint8_t frame[NEIGHBOR_MAX_FRAME];
	size_t len;

	host_restart(&config);
	memcpy(message.sender_mac, mac_a, 6);
	len = neighbor_encode(frame, &message);
	fake_port_receive(&host->port, 0, frame, (uint32_t)len);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, _i ? 0 : 1);
	ck_assert_uint_eq(host->engine.stats.neighbor_requests, _i ? 0 : 1);
	ck_assert_uint_eq(host->engine.stats.drop_not_for_us, _i ? 1 : 0);
	if (!_i) {
		const struct port_packet *answer = &host->port.sent[0].packet;

		ck_assert(neighbor_decode(&message, answer->header, answer->header_len));
		ck_assert(!message.request);
		ck_assert(mac_equal(message.sender_mac, mac_b));
	}
}
END_TEST

START_TEST(asks_for_neighbors)
{
	struct frl_ip peer = ip_from_v4((const uint8_t[]){ 10, 9, 0, 7 });

	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 0);
	ck_assert_int_ge(
		neighbors_get(&host->engine.neighbors, &peer, HOST_GID_V4, host->now_ns), 0);
	ck_assert_uint_le(engine_next_deadline(&host->engine), host->now_ns);
	host_poll(host);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 1);
	ck_assert_uint_eq(engine_next_deadline(&host->engine),
		host->now_ns - 1000 + NEIGHBOR_REQUEST_INTERVAL_MS * UINT64_C(1000000));
	host->now_ns = engine_next_deadline(&host->engine);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 2);
}
END_TEST

/* ---- payload in place ---- */

static const uint8_t elsewhere[2 * HOST_MTU] = { 7, 6, 5, [LENGTH - 1] = 9 };

static void start_in_place(uint32_t capabilities)
{
	static const struct host_config config = { .on_demand = true, .in_place = true };
	struct host_qp_config qp = { .capabilities = capabilities };

	host_restart(&config);
	host_add(host, 0, &qp);
	host_post_recv(host, 0, 1, 0, 1024);
	host_post_recv(host, 0, 2, 1024, 1024);
}

static struct frame split(uint8_t opcode, uint32_t psn, uint32_t length)
{
	struct wire_headers h = headers(opcode, psn);
	struct frame frame;

	if (opcode_table[opcode].headers & HEADER_RETH)
		h.reth = (struct reth){ (uintptr_t)host->memory + 4096, host->region.key, length };
	frame = make_frame(0, &h, length, false);
	frame.len = frame.payload;
	return frame;
}

static void arrive_split(const struct frame *frame, uint32_t length)
{
	fake_port_receive_split(
		&host->port, 0, frame->bytes, (uint32_t)frame->len, elsewhere, length);
	host_poll(host);
}

START_TEST(in_place)
{
	struct frame frame;

	start_in_place(FRL_CAP_NO_ICRC);
	frame = split(OP_SEND_ONLY, 0, LENGTH);
	arrive_split(&frame, LENGTH);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
	ck_assert_int_eq(memcmp(host->memory, elsewhere, LENGTH), 0);
	ck_assert_uint_eq(host->memory[LENGTH], HOST_FILL);
	ck_assert_uint_eq(host->port.asked, 1);
	ck_assert_uint_eq(host->port.n_sent, 1);
	ck_assert_uint_eq(host->engine.stats.rx_bytes, frame.len + LENGTH);
	frame = split(OP_WRITE_ONLY, 1, LENGTH);
	arrive_split(&frame, LENGTH);
	ck_assert_int_eq(memcmp(host->memory + 4096, elsewhere, LENGTH), 0);
	ck_assert_uint_eq(host->port.asked, 2);
	host_expect_no_wc(&host->cqs[0]);
}
END_TEST

START_TEST(in_place_needs_no_icrc)
{
	struct frame frame;

	start_in_place(0);
	frame = split(OP_SEND_ONLY, 0, LENGTH);
	arrive_split(&frame, LENGTH);
	ck_assert_uint_eq(host->engine.stats.drop_bad_length, 1);
	ck_assert_uint_eq(host->memory[0], HOST_FILL);
	ck_assert_uint_eq(host->port.asked, 0);
	ck_assert_uint_eq(host->port.n_sent, 0);
	expect_accepted(0);
}
END_TEST

START_TEST(in_place_cut)
{
	struct frame frame;

	start_in_place(FRL_CAP_NO_ICRC);
	frame = split(OP_WRITE_ONLY, 0, LENGTH);
	for (size_t len = 0; len < frame.payload; len++) {
		frame.len = len;
		arrive_split(&frame, LENGTH);
	}
	ck_assert_uint_eq(all_drops(), frame.payload);
	ck_assert_uint_eq(host->port.asked, 0);
	ck_assert_uint_eq(host->port.n_sent, 0);
	expect_accepted(0);
}
END_TEST

static const struct {
	uint8_t opcode;
	uint32_t length;
	bool completes;
} losses[] = {
	{ OP_SEND_ONLY, LENGTH, true },
	{ OP_SEND_FIRST, HOST_MTU, true },
	{ OP_WRITE_ONLY, LENGTH, false },
	{ OP_WRITE_ONLY_IMM, LENGTH, true },
};

enum { N_LOSSES = sizeof(losses) / sizeof(losses[0]) };

START_LOOP_TEST(payload_lost, N_LOSSES)
{
	struct frame frame;

	start_in_place(FRL_CAP_NO_ICRC);
	host_post_send(host, 0, 10, 16, FRL_SEND_INLINE);
	host_post_send(host, 0, 11, 16, FRL_SEND_INLINE);
	host_poll(host);
	host->port.n_sent = 0;
	host->port.lost = true;
	frame = split(losses[_i].opcode, 0, losses[_i].length);
	arrive_split(&frame, losses[_i].length);
	ck_assert_uint_eq(host->port.asked, 1);
	ck_assert_int_eq(host->qps[0].qp.core.state, FRL_QPS_ERR);
	/* Nothing says that it has arrived; and what we sent is taken back. */
	ck_assert_uint_eq(host->port.n_sent, 0);
	ck_assert_uint_eq(host->port.n_revoked, 1);
	if (losses[_i].completes)
		host_expect_wc(&host->cqs[0], 1, FRL_WC_REM_ABORT_ERR);
	host_expect_wc(&host->cqs[0], 10, FRL_WC_REM_ABORT_ERR);
	host_expect_wc(&host->cqs[0], 11, FRL_WC_WR_FLUSH_ERR);
	if (!losses[_i].completes)
		host_expect_wc(&host->cqs[0], 1, FRL_WC_WR_FLUSH_ERR);
	host_expect_wc(&host->cqs[0], 2, FRL_WC_WR_FLUSH_ERR);
	host_expect_no_wc(&host->cqs[0]);
}
END_TEST

/* Payload of packets that are not accepted is not read: it does not matter whether it is there. */
START_TEST(payload_not_read)
{
	struct frame frame;

	start_in_place(FRL_CAP_NO_ICRC);
	frame = split(OP_SEND_ONLY, 0, LENGTH);
	arrive_split(&frame, LENGTH);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
	memset(host->memory, HOST_FILL, LENGTH);
	host->port.lost = true;
	host->port.asked = 0;
	arrive_split(&frame, LENGTH); /* a repetition */
	ck_assert_uint_eq(host->engine.stats.duplicates, 1);
	frame = split(OP_SEND_ONLY, 3, LENGTH); /* ahead */
	arrive_split(&frame, LENGTH);
	frame = split(OP_SEND_ONLY, 1, LENGTH); /* of somebody else */
	frame.bytes[frame.l3 + 15] ^= 0x40;
	fix_ip_checksum(&frame);
	arrive_split(&frame, LENGTH);
	ck_assert_uint_eq(host->engine.stats.drop_wrong_peer, 1);
	ck_assert_int_eq(host->qps[0].qp.core.state, FRL_QPS_RTS);
	ck_assert_uint_eq(host->port.asked, 0);
	ck_assert_uint_eq(host->memory[0], HOST_FILL);
	host_expect_no_wc(&host->cqs[0]);
}
END_TEST

HOST_TEST_FILE(engine)
