/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The messages that one end of a connection sends: a list made from the seed before the run, with
 * how the receiver takes each of them. Payload is a function of flow, message and offset, so both
 * ends and the checks can compute any byte of it.
 *
 * Values that depend on the other end's progress (keys of windows, whether a fence is needed) are
 * decided when a message is posted, by workload_send.c, and stored in the message.
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
	SCRIPT_SLACK = 256,  /* a receive is at most so much larger than its message */
	SCRIPT_COUNTERS = 8, /* of eight bytes, behind the window: for the flow's atomics */
	SCRIPT_ATOMIC = 8,
};

/* The layout of a buffer: elements at offsets inside a slot. */
struct layout {
	uint32_t n;
	uint32_t offset[FRL_MAX_SGE];
	uint32_t length[FRL_MAX_SGE];
};

/* A message that must be refused, by its kind. */
enum vice {
	VICE_NONE,
	VICE_PAST_END,     /* one byte, or one counter, past the end of the region */
	VICE_FOREIGN_KEY,  /* a region of another protection domain */
	VICE_NO_RIGHT,     /* a region that gives peers no rights */
	VICE_STALE_WINDOW, /* a window that is not bound */
	N_VICES
};

struct window;

struct message {
	enum frl_wr_opcode opcode;
	uint32_t length; /* READ, atomics: of the result */
	uint32_t flags;  /* enum frl_send_flags */
	uint32_t imm_data;
	uint32_t remote_offset; /* WRITE, READ, atomics: from the start of the window */
	uint64_t compare_add;
	uint64_t swap;
	bool shared; /* FETCH_ADD: of the counter that everybody on the receiver's node changes */
	bool group;  /* UD: to the multicast group */
	bool wrong_qkey;
	bool own_qkey; /* UD: "as my queue pair has it" */
	enum vice vice;
	struct layout local;
	/* The receive request that it takes, if that is made for it: RC without an SRQ. */
	bool reduce;
	bool reduce_src; /* the first operand lies elsewhere */
	uint32_t recv_index;
	uint32_t capacity;
	struct layout recv;
	/* PSNs, counted from the first one of the flow; none for local requests */
	uint32_t first_packet;
	uint32_t n_packets;
	/* Set during the run: */
	struct window *window; /* whose key it has */
	uint32_t window_key;
	uint8_t *result; /* READ, atomics: what the responder answers, once it has executed it */
};

struct script {
	uint64_t id; /* of the payload */
	uint32_t mtu;
	uint32_t n_messages;
	uint32_t n_recvs;
	uint32_t n_packets;
	uint32_t n_local;
	struct message *messages;
	uint32_t *recvs; /* message that takes receive request k */
};

struct script_config {
	uint64_t id;
	enum frl_qp_type type;
	uint32_t mtu;
	uint32_t n_messages;
	uint32_t longest;
	uint32_t window_size; /* bytes that WRITE may go to, and READ come from */
	bool may_reduce;      /* the receiver has a queue of its own */
	bool no_atomics;
	bool windows; /* memory windows are bound, used and invalidated */
	bool shared_counter;
	bool group;
};

void script_init(
	struct script *script, const struct script_config *config, struct random_state *random);
void script_fini(struct script *script);

/* Cuts `length` bytes into elements, some of them empty, with gaps; all multiples of `unit`. */
void layout_choose(
	struct layout *layout, uint32_t length, uint32_t unit, struct random_state *random);

/* Bytes [offset, offset + len) of a message's payload: whole words of a pattern, or floats. */
void script_payload(
	const struct script *script, uint32_t message, uint32_t offset, uint8_t *out, uint32_t len);

/* Returns the message of this packet, which must be one of the script. */
uint32_t script_message_of(const struct script *script, uint32_t packet);

static inline bool message_is_write(const struct message *message)
{
	return message->opcode <= FRL_WR_RDMA_WRITE_WITH_IMM;
}

static inline bool message_is_send(const struct message *message)
{
	return message->opcode == FRL_WR_SEND || message->opcode == FRL_WR_SEND_WITH_IMM ||
		message->opcode == FRL_WR_SEND_WITH_INV;
}

static inline bool message_has_imm(const struct message *message)
{
	return message->opcode == FRL_WR_SEND_WITH_IMM ||
		message->opcode == FRL_WR_RDMA_WRITE_WITH_IMM;
}

static inline bool message_takes_recv(const struct message *message)
{
	return message_is_send(message) || message_has_imm(message);
}

static inline bool message_is_atomic(const struct message *message)
{
	return message->opcode == FRL_WR_ATOMIC_CMP_AND_SWP ||
		message->opcode == FRL_WR_ATOMIC_FETCH_AND_ADD;
}

static inline bool message_has_result(const struct message *message)
{
	return message->opcode == FRL_WR_RDMA_READ || message_is_atomic(message);
}

static inline bool message_is_local(const struct message *message)
{
	return message->opcode == FRL_WR_LOCAL_INV || message->opcode == FRL_WR_BIND_MW;
}

static inline uint32_t message_end(const struct message *message)
{
	return message->first_packet + message->n_packets;
}

/* The bytes of a slot for any layout of `longest` bytes. */
static inline uint32_t script_slot_size(uint32_t longest)
{
	return (longest + SCRIPT_SLACK + FRL_MAX_SGE * SCRIPT_GAP + 63u) & ~63u;
}

#endif
