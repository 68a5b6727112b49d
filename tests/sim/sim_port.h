/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A port as the engine sees it, at one end of a simulated link. Like a NIC it keeps references to
 * mapped payload and reads it only when the frame goes onto the line. It takes packets only while
 * its ring has room, and sometimes not even then. Frames that it hands out have their exact size
 * and must come back once each.
 *
 * A port that works in place sends headers and a reference: the receiver's engine reads the payload
 * in the sender's memory.
 */
#ifndef FERRULE_SIM_PORT_H
#define FERRULE_SIM_PORT_H

#include "drivers/port.h"
#include "tests/sim/common/link.h"

enum {
	SIM_PORT_TX_RING = 256,
	SIM_PORT_RX_RING = 1024,
	SIM_PORT_HANDLES = 256,
	SIM_PORT_FLOWS = 16,
	SIM_PORT_IN_PLACE_MIN = 64, /* bytes; shorter payload is copied */
	SIM_PORT_AFTER_USE = 0xee,  /* what applications fill memory with that is theirs again */
};

struct port_mem {
	const uint8_t *addr;
	size_t len;
	uint32_t refs; /* packets in the ring that refer to it */
};

struct sim_tx {
	struct port_packet packet;
	uint8_t *copied; /* payload that is not mapped, or is copied at once */
	bool in_place;   /* the piece is not copied but referred to */
	uint32_t epoch;
};

struct sim_flow {
	uint32_t flow;
	uint32_t epoch; /* how often it was revoked */
};

struct sim_port_config {
	uint8_t mac[6];
	uint32_t tx_depth;   /* 1 to SIM_PORT_TX_RING */
	uint32_t refuse_ppm; /* probability that a burst is cut short for no reason */
	bool on_demand;
	bool copies;   /* reads payload in tx_burst, as ports do that are memory */
	bool in_place; /* only those that copy */
	uint32_t max_held;
};

struct sim_port {
	struct port base;
	struct sim_port_config config;
	struct clock *clock;
	struct trace *trace;
	struct random_state random;
	const char *name;
	struct link *out;
	uint64_t *live_frames;
	enum port_link_state state;
	struct sim_tx tx[SIM_PORT_TX_RING];
	uint32_t tx_head, tx_tail;
	bool sending;
	bool refused; /* the engine was told to come again */
	struct frame *rx[SIM_PORT_RX_RING];
	uint32_t rx_head, rx_tail;
	struct frame *handed_out[SIM_PORT_HANDLES];
	uint32_t n_handed_out;
	uint32_t n_mapped;
	uint64_t taken, taken_bytes;
	uint64_t handed, handed_bytes;
	uint64_t rx_dropped;
	/* In place: revoked flows; frames handed out of memory that the sender has changed since;
	 * frames not handed out; frames lost while they were read. */
	struct sim_flow flows[SIM_PORT_FLOWS];
	uint32_t n_flows;
	uint64_t in_place, in_place_late, revoked, lost;
	/* A frame is about to be read, or was read; the sender may fail here. May be NULL. */
	void (*on_read)(void *arg, const struct frame *frame);
	/* The engine was notified that the payload it has read was revoked. */
	void (*on_lost)(void *arg, const struct frame *frame);
	/* The engine receives a frame; the port has taken one, here in one piece. */
	void (*on_receive)(void *arg, const struct frame *frame);
	void (*on_send)(void *arg, const uint8_t *data, uint32_t len);
	void *hook_arg;
};

void sim_port_init(struct sim_port *port, const struct sim_port_config *config);

/* Nothing may be mapped or handed out any more. */
void sim_port_fini(struct sim_port *port);

/* A frame has arrived; the function takes ownership. */
void sim_port_deliver(struct sim_port *port, struct frame *frame);

void sim_port_set_down(struct sim_port *port);
void sim_port_set_up(struct sim_port *port);

static inline bool sim_port_has_rx(const struct sim_port *port)
{
	return port->rx_head != port->rx_tail;
}

#endif
