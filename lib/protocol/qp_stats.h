/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a queue pair tells about itself to who operates it: counted where it happens, put together
 * only when somebody asks. Pure, as all of lib/protocol.
 */
#ifndef FERRULE_PROTOCOL_QP_STATS_H
#define FERRULE_PROTOCOL_QP_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/work.h>

#include "lib/wire/psn.h"

struct qp;

/* Times are those that came with the packets, in ns; 0: never. Those since RESET. */
struct qp_counts {
	uint64_t tx_packets, tx_bytes; /* handed to the engine; bytes: of payload */
	uint64_t rx_packets, rx_bytes; /* of the peer, whatever became of them */
	uint64_t last_tx_ns, last_rx_ns;
	uint64_t progress_ns; /* the window moved, or opened: what is missing is so since then */
	uint64_t retransmits, timeouts, rnr_received, rnr_sent;
	/* Smoothed as in RFC 6298, from one packet at a time that was sent once only (Karn). */
	uint64_t rtt_ns;
	uint64_t timed_ns; /* when the packet before `timed_psn` was sent; 0: none is timed */
	struct psn timed_psn;
};

/* What it waits for, the first of these that is true. What lies outside of the protocol (the next
 * hop's MAC, the port) is not among them. */
enum qp_wait {
	QP_WAIT_NOTHING,
	QP_WAIT_ERROR,
	QP_WAIT_NOT_CONNECTED,
	QP_WAIT_DRAINING, /* SQD: to be taken out of it */
	QP_WAIT_RNR,
	QP_WAIT_RETRY, /* acknowledgement of packets sent again */
	QP_WAIT_FENCE, /* READs and atomics, before the next request may start */
	QP_WAIT_READ,  /* a READ or atomic response */
	QP_WAIT_ACK,
	QP_WAIT_PROGRESS, /* it has something to send: to be asked for it */
};

struct qp_stats {
	struct qp_counts counts;
	enum qp_wait wait;
	uint64_t waiting_since_ns; /* 0: it does not wait, or since it never got anywhere */
	uint8_t retries_left;
	uint8_t rnr_retries_left;
	bool lossless; /* it never gives up on time alone */
	uint32_t send_psn;
	uint32_t acked_psn;
	uint32_t recv_psn;
	uint32_t send_queue;
	uint32_t recv_queue;  /* its own; receives of an SRQ are nobody's yet */
	uint64_t deadline_ns; /* of the timeout or the wait for the receiver; 0: none */
	uint64_t give_up_ns;  /* how long it tries in all; 0: for ever */
	/* Why it failed: a sentence, or NULL; else the status that its oldest request got. */
	const char *error;
	enum frl_wc_status error_status;
};

void qp_describe(const struct qp *qp, struct qp_stats *ret);

#endif
