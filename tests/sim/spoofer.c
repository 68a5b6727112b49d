/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/spoofer.h"

#include "lib/wire/icrc.h"
#include "tests/sim/world.h"

#include <string.h>

enum {
	PAUSE_NS = 20000,
	SPOOFS = 300,
	FLOOD = 24,    /* packets of one kind, at most */
	FAR = 1 << 21, /* PSNs: no flow gets there */
	PAYLOAD = WIRE_MAX_MTU,
	RESERVED_KEY = 0x5a5a,
};

const char *const lie_names[N_LIES] = {
	[LIE_QPN] = "qpn",
	[LIE_SOURCE] = "source",
	[LIE_DESTINATION] = "destination",
	[LIE_PKEY] = "pkey",
	[LIE_ICRC] = "icrc",
	[LIE_VERSION] = "version",
	[LIE_OPCODE] = "opcode",
	[LIE_TRANSPORT] = "transport",
	[LIE_SHORT] = "short",
	[LIE_OLD_REQUEST] = "old_request",
	[LIE_FAR_REQUEST] = "far_request",
	[LIE_OLD_ANSWER] = "old_answer",
	[LIE_FAR_ANSWER] = "far_answer",
	[LIE_QKEY] = "qkey",
	[LIE_CNP] = "cnp",
	[LIE_NONE] = "none",
};

struct spoof {
	struct world *world;
	const struct endpoint *to;
	enum lie lie;
	struct wire_path path;
	struct wire_headers h;
	uint32_t payload_len;
};

static uint64_t below(struct world *world, uint64_t n)
{
	return random_below(&world->random, n);
}

static uint32_t transport_of(const struct endpoint *endpoint)
{
	switch (endpoint->type) {
	case FRL_QPT_UC: return TRANSPORT_UC;
	case FRL_QPT_UD: return TRANSPORT_UD;
	default: return TRANSPORT_RC;
	}
}

/* Returns an opcode of that kind, of the transport. */
static uint8_t choose_opcode(struct spoof *spoof, uint32_t transport, bool answer)
{
	for (;;) {
		uint8_t opcode = (uint8_t)(transport | below(spoof->world, 32));
		const struct opcode_info *info = &opcode_table[opcode];

		if (opcode_known(opcode) && ((info->flags & OPCODE_RESPONSE) != 0) == answer)
			return opcode;
	}
}

static bool wants_answers(enum lie lie)
{
	return lie == LIE_OLD_ANSWER || lie == LIE_FAR_ANSWER;
}

static void choose_psn(struct spoof *spoof, bool answer)
{
	struct world *world = spoof->world;
	const struct qp *qp = &spoof->to->qp->core;
	struct psn psn = answer ? qp->requester.una : qp->responder.epsn;
	uint32_t near = 1 + (uint32_t)below(world, 64), far = FAR + (uint32_t)below(world, FAR);

	switch (spoof->lie) {
	case LIE_OLD_REQUEST:
	case LIE_OLD_ANSWER: psn = psn_add(psn, 0 - (below(world, 2) ? near : far)); break;
	case LIE_FAR_REQUEST:
	case LIE_FAR_ANSWER: psn = psn_add(psn, far); break;
	default: psn = psn_add(psn, (uint32_t)below(world, 4) - 1); break;
	}
	spoof->h.bth.psn = psn;
}

/* Keys and addresses: right ones, near ones and any. */
static void choose_target(struct spoof *spoof)
{
	struct world *world = spoof->world;
	const struct sim_memory *memory = below(world, 4) ? &spoof->to->target : &spoof->to->source;
	struct memory_name name = memory_name(
		memory, (uint32_t)below(world, memory->size), &world->random);
	uint32_t length = below(world, 2) ? spoof->payload_len : (uint32_t)below(world, 1 << 20);

	if (below(world, 4) == 0)
		name.key += 1u << below(world, 32);
	if (below(world, 8) == 0)
		length = (uint32_t)random_u64(&world->random);
	if (spoof->lie != LIE_NONE) {
		name.key = (uint32_t)random_u64(&world->random);
		length |= 1; /* a READ of nothing needs no key */
	}
	if (opcode_table[spoof->h.bth.opcode].headers & HEADER_ATOMICETH)
		spoof->h.atomic = (struct atomic_eth){ name.va &
				~(below(world, 8) ? UINT64_C(7) : 0),
			name.key, random_u64(&world->random), random_u64(&world->random) };
	else if (opcode_table[spoof->h.bth.opcode].headers & HEADER_RETH)
		spoof->h.reth = (struct reth){ name.va, name.key, length };
	else
		spoof->h.deth = (struct deth){ world->qkey + (spoof->lie == LIE_QKEY),
			spoof->to->peer->qpn };
}

static uint8_t choose_syndrome(struct world *world)
{
	static const uint8_t naks[] = { 0x60, 0x60, 0x61, 0x62, 0x63, 0x64, 0x1f, 0x1f, 0x00, 0x21,
		0x3f };

	return below(world, 8) ? naks[below(world, sizeof(naks))] : (uint8_t)below(world, 256);
}

static void choose_headers(struct spoof *spoof)
{
	struct world *world = spoof->world;
	uint32_t transport = transport_of(spoof->to);
	bool answer = wants_answers(spoof->lie) || (spoof->lie == LIE_NONE && below(world, 2) == 0);

	if (spoof->lie == LIE_TRANSPORT)
		transport = transport == TRANSPORT_RC ? TRANSPORT_UC : TRANSPORT_RC;
	spoof->h.bth.opcode = choose_opcode(spoof, transport, answer);
	if (spoof->lie == LIE_CNP)
		spoof->h.bth.opcode = TRANSPORT_CNP | 1;
	spoof->h.bth.ack_request = below(world, 2);
	spoof->h.bth.solicited = below(world, 2);
	spoof->h.bth.pkey = spoof->lie == LIE_PKEY ? RESERVED_KEY : PKEY_DEFAULT;
	spoof->h.bth.version = spoof->lie == LIE_VERSION;
	spoof->h.bth.dest_qpn = spoof->to->qpn;
	if (spoof->lie == LIE_QPN)
		spoof->h.bth.dest_qpn = (spoof->to->qpn +
						0x4000 * (1 + (uint32_t)below(world, 8))) &
			PSN_MASK;
	choose_psn(spoof, answer);
	spoof->h.aeth = (struct aeth){ choose_syndrome(world), (uint32_t)below(world, 1 << 24) };
	spoof->payload_len = (uint32_t)below(world, 2 * spoof->to->attr.path_mtu);
	if (below(world, 2))
		spoof->payload_len = spoof->to->attr.path_mtu;
	if (spoof->payload_len > PAYLOAD)
		spoof->payload_len = PAYLOAD;
	if (opcode_table[spoof->h.bth.opcode].flags & OPCODE_NO_PAYLOAD && below(world, 8))
		spoof->payload_len = 0;
	choose_target(spoof);
	if (spoof->lie == LIE_CNP)
		spoof->payload_len = 16;
}

static void choose_path(struct spoof *spoof)
{
	const struct endpoint *peer = spoof->to->peer;
	const struct frl_gid *src = &peer->node->gids.gids[peer->attr.ah.sgid_index];
	struct wire_path_config config = {
		.src_ip = src->ip,
		.dst_ip = peer->attr.ah.dgid,
		.vlan = src->vlan,
		.hop_limit = 64,
		.udp_src_port = (uint16_t)random_u64(&spoof->world->random),
	};

	memcpy(config.src_mac, peer->node->port.config.mac, 6);
	memcpy(config.dst_mac, spoof->to->node->port.config.mac, 6);
	if (spoof->lie == LIE_SOURCE)
		config.src_ip.bytes[15] = 0x77;
	if (spoof->lie == LIE_DESTINATION)
		config.dst_ip.bytes[15] = 0x78;
	wire_path_init(&spoof->path, &config);
}

static void inject(struct spoof *spoof)
{
	struct world *world = spoof->world;
	uint8_t headers[WIRE_MAX_HEADERS], trailer_len;
	bool has_icrc = !(spoof->to->qp->core.capabilities & FRL_CAP_NO_ICRC);
	uint32_t len = (uint32_t)wire_encode(
		headers, &spoof->path, &spoof->h, spoof->payload_len, has_icrc, &trailer_len);
	struct frame *frame = frame_create(
		&world->live_frames, len + spoof->payload_len + trailer_len);
	uint32_t end = frame->len - ICRC_LEN;

	memcpy(frame->data, headers, len);
	for (uint32_t i = 0; i < spoof->payload_len; i++)
		frame->data[len + i] = (uint8_t)random_u64(&world->random);
	if (spoof->lie == LIE_OPCODE)
		frame->data[spoof->path.headers_len] = (uint8_t)(below(world, 2) ? 0xe3 : 0x1f);
	if (has_icrc)
		icrc_store(frame->data + end,
			icrc_update(icrc_headers(frame->data + spoof->path.l3_offset,
					    len - spoof->path.l3_offset),
				frame->data + len, end - len));
	if (spoof->lie == LIE_ICRC)
		frame->data[end + below(world, ICRC_LEN)] ^= (uint8_t)(1 + below(world, 255));
	if (spoof->lie == LIE_SHORT)
		frame->len -= 1 + (uint32_t)below(world, ICRC_LEN);
	frame->ignored = true;
	trace_frame(&world->trace, "spoofer", "injects", frame->data, frame->len, 0);
	sim_port_deliver(&spoof->to->node->port, frame);
	world->tally->spoofs[spoof->lie]++;
}

/* Makes a packet that must have no effect on this endpoint; LIE_NONE: none is possible now. */
static enum lie choose_lie(struct world *world, const struct endpoint *to)
{
	enum lie lie = (enum lie)below(world, LIE_NONE);
	bool has_icrc = !(to->qp->core.capabilities & FRL_CAP_NO_ICRC);

	if (to->lawless && below(world, 4))
		return LIE_NONE;
	if ((lie == LIE_ICRC || lie == LIE_SHORT) && !has_icrc)
		return LIE_PKEY;
	if (lie == LIE_QKEY && to->type != FRL_QPT_UD)
		return LIE_QPN;
	if (lie >= LIE_OLD_REQUEST && lie <= LIE_FAR_ANSWER && !endpoint_is_reliable(to))
		return LIE_TRANSPORT;
	/* Datagrams may come from anywhere. */
	if (lie == LIE_SOURCE && to->type == FRL_QPT_UD)
		return LIE_QKEY;
	return lie;
}

static void spoof_some(struct world *world)
{
	uint32_t i = (uint32_t)below(world, world->n_endpoints);
	struct spoof spoof = { .world = world, .to = &world->endpoints[i] };
	uint64_t n = below(world, 4) ? 1 : 1 + below(world, FLOOD);

	if (world->config.fault == FAULT_SPOOFED && below(world, 2))
		spoof.to = &world->endpoints[i & 1];
	if (spoof.to->removed || spoof.to->node->frozen)
		return;
	spoof.lie = choose_lie(world, spoof.to);
	choose_path(&spoof);
	choose_headers(&spoof);
	while (n--) {
		inject(&spoof);
		/* An old packet must stay old. */
		if (below(world, 2) && spoof.lie != LIE_OLD_REQUEST && spoof.lie != LIE_OLD_ANSWER)
			spoof.h.bth.psn = psn_add(spoof.h.bth.psn, 1);
	}
	world_poll_at(spoof.to->node, world->clock.now_ns);
}

static void act(void *owner, void *arg)
{
	struct world *world = owner;

	if (world->closing || world->spoofs == SPOOFS)
		return;
	world->spoofs++;
	spoof_some(world);
	clock_at(&world->clock, world->clock.now_ns + 1 + below(world, 2 * PAUSE_NS), act, world,
		NULL);
}

void spoofer_start(struct world *world)
{
	clock_at(&world->clock, world->clock.now_ns, act, world, NULL);
}
