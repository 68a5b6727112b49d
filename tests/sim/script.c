/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/script.h"

#include "tests/sim/fail.h"

#include <stdlib.h>
#include <string.h>

static bool one_in(struct random_state *random, uint64_t n)
{
	return random_below(random, n) == 0;
}

static uint32_t choose_length(const struct script_config *config, struct random_state *random)
{
	uint64_t length;

	switch (random_below(random, 8)) {
	case 0: length = random_below(random, 4); break;
	case 1: length = random_below(random, FRL_MAX_INLINE + 1); break;
	case 2:
	case 3:
	case 4:
		length = config->mtu * (1 + random_below(random, 4)) + random_below(random, 7) - 3;
		break;
	case 5: length = random_below(random, config->mtu); break;
	default: length = random_below(random, config->longest + UINT64_C(1)); break;
	}
	return (uint32_t)(length > config->longest ? config->longest : length);
}

/* Cuts `length` bytes into elements, some of them empty, with gaps; all multiples of `unit`. */
static void choose_layout(
	struct layout *layout, uint32_t length, uint32_t unit, struct random_state *random)
{
	uint32_t at = (uint32_t)random_below(random, SCRIPT_GAP);
	uint32_t left = length;

	layout->n = 1 + (uint32_t)random_below(random, FRL_MAX_SGE);
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

static void choose_receive(
	struct message *message, const struct script_config *config, struct random_state *random)
{
	uint32_t unit = message->reduce ? (uint32_t)frl_dtype_size(FRL_FLOAT32) : 1;

	message->takes_recv = !message_is_write(message) || message_has_imm(message);
	if (!message->takes_recv)
		return;
	message->capacity = message->length;
	if (message_is_write(message))
		message->capacity = (uint32_t)random_below(random, 64) * unit;
	else if (one_in(random, 3))
		message->capacity += (uint32_t)random_below(random, SCRIPT_SLACK / unit) * unit;
	choose_layout(&message->recv, message->capacity, unit, random);
}

static void choose_message(
	struct message *message, const struct script_config *config, struct random_state *random)
{
	message->opcode = (enum frl_wr_opcode)random_below(random, FRL_WR_RDMA_WRITE_WITH_IMM + 1);
	message->length = choose_length(config, random);
	message->reduce = one_in(random, 3);
	message->reduce_src = message->reduce && one_in(random, 2);
	if (message->reduce)
		message->length &= ~3u;
	message->imm_data = (uint32_t)random_u64(random);
	if (!one_in(random, 3))
		message->flags |= FRL_SEND_SIGNALED;
	if (one_in(random, 4))
		message->flags |= FRL_SEND_SOLICITED;
	if (message->length <= FRL_MAX_INLINE && one_in(random, 2))
		message->flags |= FRL_SEND_INLINE;
	if (message_is_write(message))
		message->write_offset = (uint32_t)random_below(
			random, config->window_size - message->length + UINT64_C(1));
	choose_layout(&message->send, message->length, 1, random);
	choose_receive(message, config, random);
}

void script_init(
	struct script *script, const struct script_config *config, struct random_state *random)
{
	*script = (struct script){
		.id = config->id,
		.mtu = config->mtu,
		.n_messages = config->n_messages,
		.messages = sim_alloc(config->n_messages, sizeof(struct message)),
		.recvs = sim_alloc(config->n_messages, sizeof(uint32_t)),
	};
	for (uint32_t i = 0; i < script->n_messages; i++) {
		struct message *message = &script->messages[i];

		choose_message(message, config, random);
		message->first_packet = script->n_packets;
		message->n_packets = (message->length + config->mtu - 1) / config->mtu;
		if (message->n_packets == 0)
			message->n_packets = 1;
		script->n_packets += message->n_packets;
		if (message->takes_recv) {
			message->recv_index = script->n_recvs;
			script->recvs[script->n_recvs++] = i;
		}
	}
}

void script_fini(struct script *script)
{
	free(script->messages);
	free(script->recvs);
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

/* Eight bytes: two floats that are small, and so stay numbers however often they are summed. */
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
