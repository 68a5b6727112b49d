/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/common/link.h"

#include "lib/wire/packet.h"
#include "tests/sim/common/fail.h"

#include <stdlib.h>
#include <string.h>

enum {
	ETHERNET_MIN = 60, /* bytes of a frame without its FCS */
	/* A CRC of 32 bits detects up to three wrong bits in frames of this size. */
	MAX_FLIPS = 3,
	PPM = 1000000,
};

struct frame *frame_create(uint64_t *live, uint32_t len)
{
	struct frame *frame = sim_alloc(1, sizeof(*frame));

	frame->data = sim_alloc(len, 1);
	frame->len = len;
	frame->live = live;
	++*live;
	return frame;
}

void frame_refer(struct frame *frame, const struct frame *to)
{
	frame->payload = to->payload;
	frame->payload_len = to->payload_len;
	frame->owner = to->owner;
	frame->flow = to->flow;
	frame->epoch = to->epoch;
}

void frame_destroy(struct frame *frame)
{
	--*frame->live;
	free(frame->data);
	free(frame);
}

static bool chance(struct link *link, uint32_t ppm)
{
	return ppm && random_below(&link->random, PPM) < ppm;
}

static void dequeue(void *owner, void *arg)
{
	struct link *link = owner;

	link->queued--;
}

static void arrive(void *owner, void *arg)
{
	struct link *link = owner;
	struct frame *frame = arg;

	link->stats.delivered++;
	trace_frame(
		link->trace, link->name, "arrives", frame->data, frame->len, frame->payload_len);
	link->deliver(link->arg, frame);
}

static void lose(struct link *link, struct frame *frame, const char *how)
{
	trace_frame(link->trace, link->name, how, frame->data, frame->len, frame->payload_len);
	frame_destroy(frame);
}

static struct frame *pad(struct link *link, struct frame *frame)
{
	struct frame *padded = frame_create(frame->live, ETHERNET_MIN);

	memcpy(padded->data, frame->data, frame->len);
	frame_refer(padded, frame);
	for (uint32_t i = frame->len; i < padded->len; i++)
		padded->data[i] = (uint8_t)random_u64(&link->random);
	frame_destroy(frame);
	return padded;
}

/* ARP and ND have no strong checksum: the FCS drops damaged ones. */
static bool protects_itself(const struct frame *frame)
{
	struct wire_packet packet;

	return wire_decode(&packet, frame->data, frame->len) == WIRE_OK;
}

/* Returns the offset of the BTH. */
static uint32_t bth_offset(const struct frame *frame)
{
	bool tagged = frame->data[ETH_LEN - 2] == ETHERTYPE_VLAN >> 8;
	uint32_t l3 = ETH_LEN + (tagged ? VLAN_LEN : 0);
	bool ipv4 = frame->data[l3] >> 4 == 4;

	return l3 + (ipv4 ? IPV4_LEN : IPV6_LEN) + UDP_LEN;
}

/* Returns the damaged bit. */
static uint64_t flip_bit(struct link *link, struct frame *frame)
{
	uint64_t first = 0, bit;

	/* Byte 4 of the BTH is masked. */
	if (link->config.corrupt_covered)
		first = (bth_offset(frame) + 5) * UINT64_C(8);
	bit = first + random_below(&link->random, frame->len * UINT64_C(8) - first);
	frame->data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	return bit;
}

static void damage(struct link *link, struct frame *frame)
{
	uint64_t flips = 1 + random_below(&link->random, MAX_FLIPS);
	uint64_t bits[MAX_FLIPS] = { 0 };

	for (uint64_t i = 0; i < flips; i++)
		bits[i] = flip_bit(link, frame);
	/* Flipping the same bit twice would change nothing. */
	if (flips != 2 || bits[0] != bits[1])
		frame->ignored = true;
}

static void schedule(struct link *link, struct frame *frame, uint64_t at_ns)
{
	if (chance(link, link->config.reorder_ppm))
		at_ns += random_below(&link->random, link->config.reorder_ns + 1);
	if (at_ns < link->last_arrival_ns)
		link->stats.reordered++;
	else
		link->last_arrival_ns = at_ns;
	clock_at(link->clock, at_ns, arrive, link, frame);
}

static bool is_lost(struct link *link)
{
	uint64_t number = link->stats.sent++;

	if (link->cut || (number < 64 && link->config.loss_mask >> number & 1))
		return true;
	return chance(link, link->config.loss_ppm);
}

uint64_t link_send(struct link *link, struct frame *frame)
{
	const struct link_config *config = &link->config;
	uint64_t now_ns = link->clock->now_ns;

	if (link->free_at_ns < now_ns)
		link->free_at_ns = now_ns;
	if (link->queued >= config->queue_frames) {
		link->stats.overflowed++;
		lose(link, frame, "overflows");
		return link->free_at_ns;
	}
	if (config->pad_short && frame->len < ETHERNET_MIN)
		frame = pad(link, frame);
	link->free_at_ns += (frame->len + frame->payload_len) * UINT64_C(8000000000) /
			config->rate_bps +
		1;
	link->queued++;
	clock_at(link->clock, link->free_at_ns, dequeue, link, NULL);
	if (is_lost(link)) {
		link->stats.lost++;
		lose(link, frame, "loses");
		return link->free_at_ns;
	}
	if (chance(link, config->duplicate_ppm)) {
		struct frame *copy = frame_create(frame->live, frame->len);

		memcpy(copy->data, frame->data, frame->len);
		copy->ignored = frame->ignored;
		link->stats.duplicated++;
		schedule(link, copy, link->free_at_ns + config->delay_ns);
	}
	if (chance(link, config->corrupt_ppm)) {
		link->stats.corrupted++;
		if (!protects_itself(frame)) {
			lose(link, frame, "corrupts");
			return link->free_at_ns;
		}
		damage(link, frame);
		trace_frame(link->trace, link->name, "corrupts", frame->data, frame->len,
			frame->payload_len);
	}
	schedule(link, frame, link->free_at_ns + config->delay_ns);
	return link->free_at_ns;
}
