/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames of the local fabric whose payload stays in the ring: which ones, for how long, and that
 * the sender goes on when they are freed.
 */
#include <check.h>
#include <string.h>

#include "drivers/local/in_place.h"
#include "drivers/local/local.h"
#include "drivers/local/ring.h"
#include "tests/unit/drivers/local/fabric_fixture.h"
#include "tests/fixtures/program.h"

enum { HEADER = 54, PAYLOAD = 4096, BUFFERS = 128, MANY = 3 * RING_BYTES / PAYLOAD };

static uint8_t payload[MANY + PAYLOAD];

static void set_up(void)
{
	fabric_setup();
	come_together();
	step(&client);
	fabric_publish(&client.link);
	step(&server);
	fabric_publish(&server.link);
	ck_assert_int_eq(client.port.links[0].state, PORT_LINK_UP);
	ck_assert_int_eq(server.port.links[0].state, PORT_LINK_UP);
	ck_assert_int_eq(packet_pool_create(&server.port.pool, BUFFERS, MAX_FRAME), 0);
	for (size_t i = 0; i < sizeof(payload); i++)
		payload[i] = (uint8_t)(i * 41 >> 3);
}

static void tear_down(void)
{
	fabric_teardown();
	packet_pool_destroy(&server.port.pool);
}

/* Packet number `n` has payload from byte `n` on. */
static uint16_t send_packet(uint32_t n, uint32_t payload_len, uint8_t trailer_len)
{
	struct port_packet packet = {
		.header_len = HEADER,
		.trailer_len = trailer_len,
		.n_pieces = 1,
		.copy = true,
		.pieces = { { .addr = payload + n, .len = payload_len } },
	};

	memset(packet.header, (int)n, HEADER);
	return local_tx_burst(&client.port.base, 0, &packet, 1);
}

static void expect_packet(const struct port_frame *frame, uint32_t n, uint32_t payload_len)
{
	ck_assert_ptr_nonnull(frame->payload);
	ck_assert_uint_eq(frame->len, HEADER);
	ck_assert_uint_eq(frame->data[HEADER - 1], (uint8_t)n);
	ck_assert_uint_eq(frame->payload_len, payload_len);
	ck_assert_mem_eq(frame->payload, payload + n, payload_len);
	ck_assert(in_place_intact(&server.port.base, frame));
}

static const struct {
	uint32_t payload_len;
	uint8_t trailer_len;
	bool is_split;
} lengths[] = {
	{ 1, 0, false },
	{ 1023, 0, false },
	{ 1024, 0, true },
	{ PAYLOAD, 0, true },
	/* A pad or an ICRC is part of the frame. */
	{ 1021, 3, false },
	{ PAYLOAD, 4, false },
};

START_LOOP_TEST(long_payload_stays, ROWS(lengths))
{
	uint32_t payload_len = lengths[_i].payload_len;
	struct port_frame frame;

	ck_assert_uint_eq(send_packet(7, payload_len, lengths[_i].trailer_len), 1);
	ck_assert_uint_eq(local_rx_burst(&server.port.base, &frame, 1), 1);
	if (lengths[_i].is_split) {
		expect_packet(&frame, 7, payload_len);
	} else {
		ck_assert_ptr_null(frame.payload);
		ck_assert_uint_eq(frame.payload_len, 0);
		ck_assert_uint_eq(frame.len, HEADER + payload_len + lengths[_i].trailer_len);
		ck_assert_mem_eq(frame.data + HEADER, payload + 7, payload_len);
	}
	local_rx_free(&server.port.base, &frame, 1);
}
END_TEST

/* All packets arrive, although the ring has room for a third of them. A burst ends before its
 * payload takes the ring from the sender. */
START_TEST(sender_goes_on)
{
	struct port_frame frames[PORT_BURST];
	uint32_t sent = 0, received = 0;

	while (received < MANY) {
		uint16_t n;

		while (sent < MANY && send_packet(sent, PAYLOAD, 0) == 1)
			sent++;
		n = local_rx_burst(&server.port.base, frames, PORT_BURST);
		ck_assert_uint_gt(n, 0);
		ck_assert_uint_le(n, RING_BYTES / 4 / PAYLOAD + 1);
		for (uint16_t i = 0; i < n; i++)
			expect_packet(&frames[i], received++, PAYLOAD);
		local_rx_free(&server.port.base, frames, n);
	}
	ck_assert_uint_eq(sent, MANY);
}
END_TEST

/* The sender cannot overwrite payload in use, however much it sends. */
START_TEST(payload_in_use_stays)
{
	struct port_frame frames[BUFFERS];
	uint32_t sent = 0, filled;
	uint16_t n = 0, got;

	while (send_packet(sent, PAYLOAD, 0) == 1)
		sent++;
	/* A quarter of the ring, and no more frames until these are freed. */
	while ((got = local_rx_burst(&server.port.base, frames + n, PORT_BURST)) > 0) {
		n += got;
		ck_assert_uint_le(n + PORT_BURST, BUFFERS);
	}
	ck_assert_uint_ge(n * (PAYLOAD + HEADER + RING_LINE), RING_BYTES / 4);
	filled = sent;
	while (send_packet(sent, PAYLOAD, 0) == 1)
		sent++;
	ck_assert_uint_eq(sent, filled);
	for (uint16_t i = 0; i < n; i++)
		expect_packet(&frames[i], i, PAYLOAD);
	local_rx_free(&server.port.base, frames, n);
	ck_assert_uint_eq(send_packet(sent, PAYLOAD, 0), 1);
}
END_TEST

/* Frames are freed when their link has gone. */
START_TEST(link_that_is_gone)
{
	struct port_frame frame;

	ck_assert_uint_eq(send_packet(1, PAYLOAD, 0), 1);
	ck_assert_uint_eq(local_rx_burst(&server.port.base, &frame, 1), 1);
	local_hide_ring(&server.port, 0);
	local_rx_free(&server.port.base, &frame, 1);
	ck_assert_uint_eq(server.port.pool.n_free, BUFFERS);
}
END_TEST

TEST_MAIN(fabric_split)
{
	return run_suite_forked(all_tests(set_up, tear_down));
}
