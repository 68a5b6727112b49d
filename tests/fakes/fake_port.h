/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A port that a test controls: the test supplies the incoming frames, outgoing frames are kept, and
 * every call of the engine can be checked. Incoming frames are in blocks of exactly their size.
 * Payload of packets with `copy` is copied when they are taken, and is then one piece. Other
 * payload is read when the test reads it.
 */
#ifndef FERRULE_TESTS_FAKES_FAKE_PORT_H
#define FERRULE_TESTS_FAKES_FAKE_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include "drivers/port.h"

enum {
	FAKE_LINKS = 12,
	FAKE_MAX_FRAME = 9216,
	FAKE_RX = 4096,
	FAKE_SENT = 1024,
	FAKE_REVOKED = 16,
	FAKE_UNLIMITED = 1 << 30,
	FAKE_FAR_SLOTS = 1024,
	FAKE_FAR_SLOT = 4160, /* bytes */
};

struct fake_frame {
	uint8_t *data;
	uint32_t len;
	uint16_t link;
	const uint8_t *payload;
	uint32_t payload_len;
};

struct fake_sent {
	uint16_t link;
	struct port_packet packet;
};

struct fake_revoked {
	uint16_t link;
	uint32_t flow;
};

struct fake_port {
	struct port base;
	enum port_link_state state[FAKE_LINKS];
	uint32_t room[FAKE_LINKS]; /* packets that tx_burst still takes */
	struct fake_frame rx[FAKE_RX];
	uint32_t n_rx;
	uint32_t n_out; /* frames handed out and not freed */
	struct fake_sent sent[FAKE_SENT];
	uint8_t copies[FAKE_SENT][FAKE_MAX_FRAME];
	uint32_t n_sent;
	struct fake_revoked revoked[FAKE_REVOKED];
	uint32_t n_revoked;
	bool has_no_buffer; /* for rx_take() */
	bool lost;          /* what payload_intact() answers, negated */
	uint32_t asked;     /* calls of payload_intact() */
	int map_error;      /* of mem_map() */
	uint32_t n_mapped;
	/* Not NULL: FAKE_FAR_SLOTS slots that the processor does not reach. Frames longer than
	 * PORT_SPLIT continue there, and the test reads the same bytes elsewhere. */
	uint8_t *far_there, *far_view;
	bool far_used[FAKE_FAR_SLOTS];
	bool far_checked; /* port_frame.is_checked of those */
};

/* `caps` but for MAC and sizes. */
void fake_port_init(struct fake_port *port, const uint8_t mac[6], bool on_demand, bool in_place);

/* The caller frees frames that were not taken. */
void fake_port_fini(struct fake_port *port);

/* Copies a whole sent packet. Returns its length. */
size_t fake_port_flatten(const struct port_packet *sent, uint8_t frame[FAKE_MAX_FRAME]);

/* The bytes that fake_port_flatten() reads for packets that refer to `there`, an unreadable
 * address. One memory at a time. */
void fake_port_set_view(const uint8_t *there, const uint8_t *view, size_t size);

/* The frame arrives with the next burst. It is copied. */
void fake_port_receive(struct fake_port *port, uint16_t link, const uint8_t *frame, uint32_t len);

/* Headers with payload in another place; only the headers are copied. */
void fake_port_receive_split(struct fake_port *port, uint16_t link, const uint8_t *headers,
	uint32_t len, const uint8_t *payload, uint32_t payload_len);

#endif
