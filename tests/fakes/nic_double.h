/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A NIC driven by DPDK, as ethdev.c sees it: DPDK's functions for ports are defined here. The rest
 * of DPDK (pools, mbufs) is real. One NIC at a time, one thread; DPDK's own one may close it.
 */
#ifndef FERRULE_TESTS_FAKES_NIC_DOUBLE_H
#define FERRULE_TESTS_FAKES_NIC_DOUBLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "drivers/dpdk/internal.h"

enum { NIC_RING = 64, NIC_FRAME = 8192 };

/* A packet that the driver has taken. */
struct nic_sent {
	struct rte_mbuf *mbuf; /* until the driver gives it up */
	uint32_t len;
	uint16_t segments;
	uint8_t bytes[NIC_FRAME];
};

/* Set before the port is opened, and read later. Zeros describe a common NIC. */
struct nic_double {
	const char *driver; /* NULL: "net_ice" */
	bool is_vdev;
	bool has_no_chains;  /* no MULTI_SEGS */
	bool has_no_cleanup; /* no tx_done_cleanup */
	bool filters_vlans;
	uint16_t segments; /* of a packet at most; 0: it does not say */
	uint32_t min_buffer;
	uint32_t max_mtu;
	uint32_t set_mtu; /* by the call for it */
	bool has_no_set_mtu;
	unsigned interface;  /* the kernel's, by its number; 0: none */
	uint32_t buffer;     /* what the NIC puts into one; 0: as much as there is */
	uint32_t page;       /* asserts that no segment crosses a multiple; 0: it may */
	uint32_t holds;      /* what it says that it puts into one; 0: it does not say */
	bool scatters;       /* it says that it fills several with a frame */
	uint64_t bad_frames; /* its own count of those that it dropped */
	bool is_down;
	bool takes_nothing; /* its queue is full */
	bool is_stuck;      /* nothing leaves */
	/* tx_done_cleanup leaves the packet at the tail of the ring until another one is sent. */
	bool keeps_tail;
	const char *raises; /* the function that raises SIGPIPE */
	const char *fails;  /* the function that fails, with -EIO */
	const char *says;   /* what the driver then logs as an error; NULL: nothing */

	char devargs[64];         /* that it was probed by */
	struct rte_mempool *pool; /* of the receive queue */
	uint32_t mtu;
	uint64_t rx_offloads, tx_offloads;
	unsigned starts, vlans[4], n_vlans, mapped;
	unsigned cleanups; /* calls of tx_done_cleanup */
	pthread_t closer;  /* the thread that closed it last */
	struct nic_sent sent[NIC_RING];
	unsigned n_sent;
	struct nic_sent *tail;
	struct rte_mbuf *arrived[NIC_RING];
	unsigned n_arrived;
};

extern struct nic_double nic;

/* A frame arrives, in as many buffers as it needs. */
void nic_receive(const uint8_t *frame, uint32_t len);
/* Releases the packets that have left. */
void nic_let_go(void);

/* From here on EAL uses physical addresses: memory lies in pages of 2 MiB, each below the one
 * before it. */
void nic_go_physical(bool is_physical);
/* From here on EAL reports that its memory is of huge pages. */
void nic_say_huge(bool has_huge);

#endif
