/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A link in one direction. Frames go in at one end and come out at the other after delay and
 * serialisation, unless the seeded generator loses, reorders, doubles or damages them.
 */
#ifndef FERRULE_SIM_LINK_H
#define FERRULE_SIM_LINK_H

#include "lib/base/random.h"
#include "tests/sim/common/clock.h"
#include "tests/sim/common/trace.h"

#include <stdbool.h>
#include <stdint.h>

struct sim_port;

/*
 * Exactly `len` bytes on the heap, so that the address sanitizer finds reads past them. Payload may
 * be a reference to memory of the sender, valid as long as `epoch` is that of the flow.
 */
struct frame {
	uint8_t *data;
	uint32_t len;
	uint64_t *live; /* how many frames there are */
	const uint8_t *payload;
	uint32_t payload_len;
	const struct sim_port *owner; /* of the payload */
	uint32_t flow;
	uint32_t epoch;
	bool ignored; /* damaged, or made up: it must not be taken for what it seems to be */
};

struct frame *frame_create(uint64_t *live, uint32_t len);
/* Copies the reference to payload of `to`. */
void frame_refer(struct frame *frame, const struct frame *to);
void frame_destroy(struct frame *frame);

/* Probabilities are in parts per million. */
struct link_config {
	uint64_t delay_ns;
	uint64_t rate_bps;
	uint32_t queue_frames; /* frames beyond that find no room and are lost */
	uint32_t loss_ppm;
	uint64_t loss_mask; /* bit n: frame n is lost */
	uint32_t reorder_ppm;
	uint64_t reorder_ns; /* at most this much later */
	uint32_t duplicate_ppm;
	uint32_t corrupt_ppm;
	bool corrupt_covered; /* only what the ICRC covers: whether it is taken is certain then */
	bool pad_short;       /* frames below 60 bytes are filled up, as Ethernet does */
};

struct link_stats {
	uint64_t sent;
	uint64_t delivered;
	uint64_t lost;
	uint64_t overflowed;
	uint64_t reordered; /* frames that overtook another */
	uint64_t duplicated;
	uint64_t corrupted;
};

struct link {
	struct link_config config;
	const char *name;
	struct clock *clock;
	struct trace *trace;
	struct random_state random;
	void (*deliver)(void *arg, struct frame *frame);
	void *arg;
	uint64_t free_at_ns;
	uint64_t last_arrival_ns;
	uint32_t queued;
	bool cut; /* everything is lost */
	struct link_stats stats;
};

/* Sends the frame. Returns when the line is free for the next one. */
uint64_t link_send(struct link *link, struct frame *frame);

#endif
