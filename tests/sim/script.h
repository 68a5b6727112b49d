/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What one end of a connection sends: a list of messages, made from the seed before the run, with
 * how the receiver takes each of them. Payload is a function of flow, message and offset, so both
 * ends and the checks can compute any byte of it.
 */
#ifndef FERRULE_SIM_SCRIPT_H
#define FERRULE_SIM_SCRIPT_H

#include "lib/base/random.h"

#include <ferrule/queue.h>

#include <stdbool.h>
#include <stdint.h>

enum {
	SCRIPT_GAP = 16, /* at most so many bytes between the elements of a request */
	SCRIPT_LONGEST = 40 * 1024,
	SCRIPT_SLACK = 256, /* a receive is at most so much larger than its message */
};

/* How a buffer is cut: elements at offsets inside a slot. */
struct layout {
	uint32_t n;
	uint32_t offset[FRL_MAX_SGE];
	uint32_t length[FRL_MAX_SGE];
};

struct message {
	enum frl_wr_opcode opcode;
	uint32_t length;
	uint32_t flags; /* enum frl_send_flags */
	uint32_t imm_data;
	uint32_t write_offset; /* WRITE: in the receiver's window */
	bool bad; /* WRITE: one byte past the end of the region; must not be accepted */
	struct layout send;
	/* the receive request that it takes */
	bool takes_recv;
	bool reduce;
	bool reduce_src; /* the first operand lies elsewhere */
	uint32_t recv_index;
	uint32_t capacity;
	struct layout recv;
	/* packets, counted from the first one of the flow */
	uint32_t first_packet;
	uint32_t n_packets;
};

struct script {
	uint64_t id; /* of the payload */
	uint32_t mtu;
	uint32_t n_messages;
	uint32_t n_recvs;
	uint32_t n_packets;
	struct message *messages;
	uint32_t *recvs; /* message that takes receive request k */
};

struct script_config {
	uint64_t id;
	uint32_t mtu;
	uint32_t n_messages;
	uint32_t longest;
	uint32_t window_size; /* bytes that RDMA WRITE may go to */
};

void script_init(
	struct script *script, const struct script_config *config, struct random_state *random);
void script_fini(struct script *script);

/* Bytes [offset, offset + len) of a message's payload: whole words of a pattern, or floats. */
void script_payload(
	const struct script *script, uint32_t message, uint32_t offset, uint8_t *out, uint32_t len);

static inline bool message_is_write(const struct message *message)
{
	return message->opcode >= FRL_WR_RDMA_WRITE;
}

static inline bool message_has_imm(const struct message *message)
{
	return message->opcode == FRL_WR_SEND_WITH_IMM ||
		message->opcode == FRL_WR_RDMA_WRITE_WITH_IMM;
}

/* Bytes of a slot that holds any layout of `longest` bytes. */
static inline uint32_t script_slot_size(uint32_t longest)
{
	return (longest + SCRIPT_SLACK + FRL_MAX_SGE * SCRIPT_GAP + 63u) & ~63u;
}

#endif
