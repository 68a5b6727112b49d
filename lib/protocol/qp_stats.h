/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * State of a queue pair for operators. Counters are updated where events occur; the rest is
 * computed on request. No I/O, like all of lib/protocol.
 */
#ifndef FERRULE_PROTOCOL_QP_STATS_H
#define FERRULE_PROTOCOL_QP_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/work.h>

#include "lib/wire/psn.h"

struct qp;

/* Counters since RESET. Times are those passed with the packets, in ns; 0: never. */
struct qp_counts {
	uint64_t tx_packets, tx_bytes; /* handed to the engine; bytes of payload */
	uint64_t rx_packets, rx_bytes; /* from the peer, including dropped ones */
	uint64_t last_tx_ns, last_rx_ns;
	uint64_t progress_ns; /* when the window last moved or opened */
	uint64_t retransmits, timeouts, rnr_received, rnr_sent;
	/* Smoothed as in RFC 6298. Samples come from one packet at a time that was sent only once
	 * (Karn). */
	uint64_t rtt_ns;
	uint64_t timed_ns; /* when the packet before `timed_psn` was sent; 0: none is timed */
	struct psn timed_psn;
};

/* Why the queue pair waits: the first value that applies. Causes outside the protocol (MAC address
 * of the next hop, port) are not included. */
enum qp_wait {
	QP_WAIT_NOTHING,
	QP_WAIT_ERROR,
	QP_WAIT_NOT_CONNECTED,
	QP_WAIT_DRAINING, /* SQD: waits to leave that state */
	QP_WAIT_RNR,
	QP_WAIT_RETRY, /* for the ACK of retransmitted packets */
	QP_WAIT_FENCE, /* for READs and atomics, before the next request may start */
	QP_WAIT_READ,  /* for a READ or atomic response */
	QP_WAIT_ACK,
	QP_WAIT_PROGRESS, /* has packets to send */
};

struct qp_stats {
	struct qp_counts counts;
	enum qp_wait wait;
	uint64_t waiting_since_ns; /* 0: does not wait, or has made no progress yet */
	uint8_t retries_left;
	uint8_t rnr_retries_left;
	bool lossless; /* never gives up because of time alone */
	uint32_t send_psn;
	uint32_t acked_psn;
	uint32_t recv_psn;
	uint32_t send_queue;
	uint32_t recv_queue;  /* own queue; receives of an SRQ are not included */
	uint64_t deadline_ns; /* of the timeout or the RNR wait; 0: none */
	uint64_t give_up_ns;  /* total time of all retries; 0: unlimited */
	/* Reason of the failure, or NULL; then the status of the oldest request applies. */
	const char *error;
	enum frl_wc_status error_status;
};

/* Returns the payload bytes of the oldest unacknowledged packet, or of the response that it
 * requests; 0 if there is none. */
uint32_t qp_awaited_length(const struct qp *qp);

void qp_describe(const struct qp *qp, struct qp_stats *ret);

#endif
