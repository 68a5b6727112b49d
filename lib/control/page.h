/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The page that a process publishes for each of its ports: counters of the port and the state of
 * its queue pairs, in shared memory that the daemon reads. The process writes it when it is asked
 * to (Publish), a few queue pairs at a time, so that the data path never waits for it.
 *
 * The memory is a memfd, sealed against shrinking, growing and writing by others, of
 * page_size(slots) bytes. One writer; each slot has a sequence number that is odd while it is being
 * written. The reader copies a slot and looks at the number before and after, some times, and then
 * believes nothing of it but that it is a struct page_qp: every text may lack its end, every number
 * may be anything.
 *
 * The reader copies by pread(2) and maps nothing. The process could make mmap() and munmap() wait
 * for seconds, by calls that lock the mappings of the file, and the first touch of a page that is
 * not there raises SIGBUS where memory is accounted for strictly. pread() does neither.
 */
#ifndef FERRULE_CONTROL_PAGE_H
#define FERRULE_CONTROL_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	PAGE_MAGIC = 0x46525047, /* "FRPG" */
	PAGE_VERSION = 2,
	PAGE_COUNTERS = 64,
	PAGE_COUNTER_NAME = 32,
	PAGE_REASON = 120,
	PAGE_HOST = 60,
	PAGE_SLOTS = 16384, /* as many as queue pairs: sparse, touched as they are used */
};

/* What a queue pair waits for, the first of these that is true. */
#define PAGE_WAITS(X)                                                                              \
	X(NOTHING, "nothing", "it has nothing to do")                                              \
	X(ERROR, "nothing: it is in ERR", "reset it, or look at its last error")                   \
	X(NOT_CONNECTED, "being connected", "no peer yet")                                         \
	X(DRAINING, "leave SQD", "its owner has paused it")                                        \
	X(NEIGHBOR, "MAC address of the next hop", "ARP or ND has no answer")                      \
	X(RNR, "receiver not ready", "the peer has posted no receive")                             \
	X(PORT, "its port", "the port takes no frames, or the link to the peer is being made")     \
	X(RETRY, "acknowledgement of packets sent again", "packets are lost, or the peer is slow") \
	X(FENCE, "READs and atomics before a fence, or room for one more", "max_rd_atomic")        \
	X(READ, "READ or atomic response", "the peer's responder owes an answer")                  \
	X(ACK, "acknowledgement", "packets are on their way")                                      \
	X(PROGRESS, "its owner to drive the device", "nobody polls: it has something to send")

enum page_wait {
#define PAGE_WAIT_ENUM(name, what, hint) PAGE_WAIT_##name,
	PAGE_WAITS(PAGE_WAIT_ENUM)
#undef PAGE_WAIT_ENUM
};

/* One queue pair; times are CLOCK_MONOTONIC in ns, 0: never. */
struct page_qp {
	_Atomic uint32_t sequence; /* odd: being written */
	uint32_t qpn;              /* 0: no queue pair */
	uint8_t type;              /* enum frl_qp_type */
	uint8_t state;             /* enum frl_qp_state */
	uint8_t wait;              /* enum page_wait */
	uint8_t retries_left;
	uint8_t rnr_retries_left;
	uint8_t lossless; /* it never gives up on time alone */
	uint8_t remote_ip[16];
	uint32_t dest_qpn;
	uint32_t path_mtu;
	uint32_t send_psn;  /* the next new one */
	uint32_t acked_psn; /* the oldest not acknowledged */
	uint32_t recv_psn;  /* the next expected */
	uint32_t send_queue;
	uint32_t recv_queue;
	uint64_t tx_packets, tx_bytes, rx_packets, rx_bytes; /* bytes: of payload */
	uint64_t retransmits, timeouts, rnr_received, rnr_sent;
	uint64_t rtt_ns; /* smoothed; 0: not measured */
	uint64_t waiting_since_ns;
	uint64_t deadline_ns;
	uint64_t give_up_ns; /* how long it tries in all; 0: for ever */
	uint64_t last_rx_ns, last_tx_ns;
	uint64_t error_ns;
	char error[PAGE_REASON];   /* a sentence, or empty */
	char peer_host[PAGE_HOST]; /* of a peer that is a rank; or empty */
	uint32_t peer_rank;        /* of the same job, plus 1; 0: it is none */
};

struct page_counter {
	char name[PAGE_COUNTER_NAME];
	uint64_t value;
};

struct page {
	uint32_t magic;
	uint32_t version;
	uint32_t slots;                /* that follow */
	_Atomic uint32_t used_slots;   /* none at this index or above has a queue pair */
	_Atomic uint64_t published_ns; /* when all of it was last brought up to date */
	uint32_t counters;             /* used ones */
	uint32_t reserved;
	struct page_counter counter[PAGE_COUNTERS]; /* struct frl_stats; each is written at once */
	struct page_qp qp[];
};

static inline size_t page_size(uint32_t slots)
{
	return sizeof(struct page) + slots * sizeof(struct page_qp);
}

/* The reader's. */
struct page_view {
	int fd;
	uint32_t slots; /* that may be read: the header may change */
	/* Gives the view back. NULL: there is none. */
	void (*close)(const struct page_view *view);
};

/* Checks a descriptor that a process sent: seals, size, header. Returns NULL, and the view has the
 * descriptor; or a sentence that says what is wrong, and the caller keeps it. */
const char *page_open(int fd, struct page_view *ret_view);

/* Copies the header. Each number in it was so at some moment. False: it cannot be read. */
bool page_read_head(const struct page_view *view, struct page *ret);

/* When all of it was last brought up to date; 0: not yet, or it cannot be read. */
uint64_t page_published_ns(const struct page_view *view);

/* No slot at this index or above has a queue pair; at most view->slots. */
uint32_t page_used_slots(const struct page_view *view);

/* Copies a slot as it was at one moment; false: it could not be had, or has no queue pair. Texts
 * end in the copy. */
bool page_read_qp(const struct page_view *view, uint32_t slot, struct page_qp *ret);

/* For the writer: what is between them is seen as a whole or not at all. */
void page_write_begin(struct page_qp *qp);
void page_write_end(struct page_qp *qp);

/* A new page in shared memory, sealed; the descriptor is the caller's in *ret_fd. NULL: errno. */
struct page *page_create(uint32_t slots, int *ret_fd);

#endif
