/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/script.h"

#include "tests/sim/common/fail.h"

#include <stdlib.h>
#include <string.h>

static bool one_in(struct random_state *random, uint64_t n)
{
	return random_below(random, n) == 0;
}

static uint32_t choose_length(const struct script_config *config, struct random_state *random)
{
	uint32_t longest = config->longest;
	uint64_t length;

	if (config->type == FRL_QPT_UD && longest > config->mtu)
		longest = config->mtu;
	switch (random_below(random, 8)) {
	case 0: length = random_below(random, 4); break;
	case 1: length = random_below(random, FRL_MAX_INLINE + 1); break;
	case 2:
	case 3:
	case 4:
		length = config->mtu * (1 + random_below(random, 4)) + random_below(random, 7) - 3;
		break;
	case 5: length = random_below(random, config->mtu); break;
	default: length = random_below(random, longest + UINT64_C(1)); break;
	}
	return (uint32_t)(length > longest ? longest : length);
}

void layout_choose(
	struct layout *layout, uint32_t length, uint32_t unit, struct random_state *random)
{
	uint32_t at = (uint32_t)random_below(random, SCRIPT_GAP);
	uint32_t left = length;

	*layout = (struct layout){ .n = 1 + (uint32_t)random_below(random, FRL_MAX_SGE) };
	if (one_in(random, 2))
		layout->n = 1 + (uint32_t)random_below(random, 3);
	if (length == 0 && one_in(random, 2))
		layout->n = 0;
	for (uint32_t i = 0; i < layout->n; i++) {
		uint32_t part = (uint32_t)random_below(random, left / unit + UINT64_C(1)) * unit;

		if (i + 1 == layout->n)
			part = left;
		layout->offset[i] = at;
		layout->length[i] = part;
		at += part + (uint32_t)random_below(random, SCRIPT_GAP);
		left -= part;
	}
}

static void choose_receive(struct message *message, struct random_state *random)
{
	uint32_t unit = message->reduce ? (uint32_t)frl_dtype_size(FRL_FLOAT32) : 1;

	message->capacity = message->length;
	if (message_is_write(message))
		message->capacity = (uint32_t)random_below(random, 64) * unit;
	else if (one_in(random, 3))
		message->capacity += (uint32_t)random_below(random, SCRIPT_SLACK / unit) * unit;
	layout_choose(&message->recv, message->capacity, unit, random);
}

static enum frl_wr_opcode choose_opcode(
	const struct script_config *config, struct random_state *random)
{
	static const enum frl_wr_opcode of_rc[] = { FRL_WR_SEND, FRL_WR_SEND, FRL_WR_SEND_WITH_IMM,
		FRL_WR_SEND_WITH_INV, FRL_WR_RDMA_WRITE, FRL_WR_RDMA_WRITE,
		FRL_WR_RDMA_WRITE_WITH_IMM, FRL_WR_RDMA_READ, FRL_WR_RDMA_READ, FRL_WR_RDMA_READ,
		FRL_WR_ATOMIC_CMP_AND_SWP, FRL_WR_ATOMIC_FETCH_AND_ADD, FRL_WR_ATOMIC_FETCH_AND_ADD,
		FRL_WR_BIND_MW, FRL_WR_BIND_MW };
	static const enum frl_wr_opcode of_uc[] = { FRL_WR_SEND, FRL_WR_SEND_WITH_IMM,
		FRL_WR_RDMA_WRITE, FRL_WR_RDMA_WRITE_WITH_IMM };
	enum frl_wr_opcode opcode;

	switch (config->type) {
	case FRL_QPT_UC: return of_uc[random_below(random, sizeof(of_uc) / sizeof(of_uc[0]))];
	case FRL_QPT_UD: return of_uc[random_below(random, 2)];
	default: break;
	}
	opcode = of_rc[random_below(random, sizeof(of_rc) / sizeof(of_rc[0]))];
	if (!config->windows && (opcode == FRL_WR_SEND_WITH_INV || opcode == FRL_WR_BIND_MW))
		return FRL_WR_RDMA_READ;
	if (config->no_atomics &&
		(opcode == FRL_WR_ATOMIC_CMP_AND_SWP || opcode == FRL_WR_ATOMIC_FETCH_AND_ADD))
		return FRL_WR_RDMA_WRITE;
	return opcode;
}

/* Only the flow changes its counters, so their values are known ahead: half of the swaps match. */
static void choose_atomic(struct message *message, const struct script_config *config,
	uint64_t counters[SCRIPT_COUNTERS], struct random_state *random)
{
	uint32_t i = (uint32_t)random_below(random, SCRIPT_COUNTERS);

	message->length = SCRIPT_ATOMIC;
	message->compare_add = random_u64(random);
	message->swap = random_u64(random);
	message->remote_offset = config->window_size + i * SCRIPT_ATOMIC;
	if (message->opcode == FRL_WR_ATOMIC_FETCH_AND_ADD) {
		message->shared = config->shared_counter && one_in(random, 2);
		if (!message->shared)
			counters[i] += message->compare_add;
		return;
	}
	if (one_in(random, 3))
		return;
	message->compare_add = counters[i];
	counters[i] = message->swap;
}

static void choose_flags(struct message *message, struct random_state *random)
{
	if (!one_in(random, 3))
		message->flags |= FRL_SEND_SIGNALED;
	if (message_takes_recv(message) && one_in(random, 4))
		message->flags |= FRL_SEND_SOLICITED;
	if ((message_is_send(message) || message_is_write(message)) &&
		message->length <= FRL_MAX_INLINE && one_in(random, 2))
		message->flags |= FRL_SEND_INLINE;
	if (one_in(random, 8))
		message->flags |= FRL_SEND_FENCE;
}

static void choose_message(struct message *message, const struct script_config *config,
	uint64_t counters[SCRIPT_COUNTERS], struct random_state *random)
{
	message->opcode = choose_opcode(config, random);
	if (message_is_atomic(message))
		choose_atomic(message, config, counters, random);
	else if (!message_is_local(message))
		message->length = choose_length(config, random);
	message->reduce = config->may_reduce && message_takes_recv(message) && one_in(random, 3);
	message->reduce_src = message->reduce && one_in(random, 2);
	if (message->reduce)
		message->length &= ~3u;
	message->imm_data = (uint32_t)random_u64(random);
	choose_flags(message, random);
	if (message_is_write(message) || message->opcode == FRL_WR_RDMA_READ)
		message->remote_offset = (uint32_t)random_below(
			random, config->window_size - message->length + UINT64_C(1));
	if (config->type == FRL_QPT_UD) {
		message->group = config->group && one_in(random, 3);
		message->wrong_qkey = one_in(random, 16);
		message->own_qkey = !message->wrong_qkey && one_in(random, 3);
		message->flags &= ~(uint32_t)FRL_SEND_FENCE;
	}
	if (!message_is_local(message))
		layout_choose(&message->local, message->length, 1, random);
	if (message_takes_recv(message))
		choose_receive(message, random);
}

void script_init(
	struct script *script, const struct script_config *config, struct random_state *random)
{
	uint64_t counters[SCRIPT_COUNTERS] = { 0 };

	*script = (struct script){
		.id = config->id,
		.mtu = config->mtu,
		.n_messages = config->n_messages,
		.messages = sim_alloc(config->n_messages, sizeof(struct message)),
		.recvs = sim_alloc(config->n_messages, sizeof(uint32_t)),
	};
	for (uint32_t i = 0; i < script->n_messages; i++) {
		struct message *message = &script->messages[i];

		choose_message(message, config, counters, random);
		message->first_packet = script->n_packets;
		script->n_local += message_is_local(message);
		if (!message_is_local(message)) {
			message->n_packets = (message->length + config->mtu - 1) / config->mtu;
			if (message->n_packets == 0)
				message->n_packets = 1;
		}
		script->n_packets += message->n_packets;
		if (message_takes_recv(message)) {
			message->recv_index = script->n_recvs;
			script->recvs[script->n_recvs++] = i;
		}
	}
}

void script_fini(struct script *script)
{
	for (uint32_t i = 0; i < script->n_messages; i++)
		free(script->messages[i].result);
	free(script->messages);
	free(script->recvs);
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

/* Eight bytes: two small floats, which stay numbers however often they are summed. */
static uint64_t word_of(uint64_t key, uint64_t index, bool floats)
{
	uint64_t word = mix(key + index * UINT64_C(0x9e3779b97f4a7c15));
	float pair[2];

	if (!floats)
		return word;
	pair[0] = (float)(int16_t)word / 64;
	pair[1] = (float)(int16_t)(word >> 16) / 64;
	memcpy(&word, pair, sizeof(word));
	return word;
}

void script_payload(
	const struct script *script, uint32_t message, uint32_t offset, uint8_t *out, uint32_t len)
{
	uint64_t key = mix(script->id << 32 ^ message);
	bool floats = script->messages[message].reduce;
	uint32_t end = offset + len;

	while (offset < end) {
		uint64_t word = word_of(key, offset / 8, floats);
		uint32_t skip = offset % 8;
		uint32_t n = 8 - skip < end - offset ? 8 - skip : end - offset;

		memcpy(out, (uint8_t *)&word + skip, n);
		out += n;
		offset += n;
	}
}

uint32_t script_message_of(const struct script *script, uint32_t packet)
{
	uint32_t low = 0, high = script->n_messages;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (script->messages[middle].first_packet <= packet)
			low = middle;
		else
			high = middle;
	}
	return low;
}
