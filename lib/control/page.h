/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The page that a process publishes for each of its ports: the port's counters and the state of its
 * queue pairs, in shared memory that the daemon reads. The process updates it on request (Publish),
 * a few queue pairs at a time, so that the data path never waits for the update.
 *
 * The memory is a memfd of page_size(slots) bytes, sealed against shrinking, growing and writing by
 * other processes. It has one writer. Each slot has a sequence number that is odd while the slot is
 * being written. The reader copies a slot, and compares the number before and after; after some
 * failed attempts it gives up. It trusts nothing in the copy: each text may lack its end, each
 * number may have any value.
 *
 * The reader uses pread(2) and maps nothing. The process could delay mmap() and munmap() by
 * seconds, by calls that lock the mappings of the file. The first access to a missing page raises
 * SIGBUS where memory is accounted for strictly. pread() has neither problem.
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
	PAGE_SLOTS = 16384, /* one for each queue pair: sparse, memory is used on first write */
};

/* Reasons why a queue pair waits: the first row that applies. */
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
	X(READ, "READ or atomic response", "the peer's responder has not answered")                \
	X(ACK, "acknowledgement", "packets are on their way")                                      \
	X(PROGRESS, "its owner to drive the device", "no thread polls: it has packets to send")

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
	uint8_t lossless; /* a lossless link: time alone never moves it to ERR */
	uint8_t remote_ip[16];
	uint32_t dest_qpn;
	uint32_t path_mtu;
	uint32_t send_psn;  /* the next new packet */
	uint32_t acked_psn; /* the oldest unacknowledged packet */
	uint32_t recv_psn;  /* the next expected packet */
	uint32_t send_queue;
	uint32_t recv_queue;
	uint64_t tx_packets, tx_bytes, rx_packets, rx_bytes; /* bytes: payload only */
	uint64_t retransmits, timeouts, rnr_received, rnr_sent;
	uint64_t rtt_ns; /* smoothed; 0: not measured */
	uint64_t waiting_since_ns;
	uint64_t deadline_ns;
	uint64_t give_up_ns; /* total time of all retries; 0: unlimited */
	uint64_t last_rx_ns, last_tx_ns;
	uint64_t error_ns;
	char error[PAGE_REASON];   /* text of the last error, or empty */
	char peer_host[PAGE_HOST]; /* the peer's host if the peer is a rank, or empty */
	uint32_t peer_rank;        /* the peer's rank in the same job, plus 1; 0: it is no rank */
};

struct page_counter {
	char name[PAGE_COUNTER_NAME];
	uint64_t value;
};

struct page {
	uint32_t magic;
	uint32_t version;
	uint32_t slots;                /* number of slots that follow */
	_Atomic uint32_t used_slots;   /* slots at this index and above have no queue pair */
	_Atomic uint64_t published_ns; /* time of the last complete update */
	uint32_t counters;             /* number of used entries */
	uint32_t reserved;
	struct page_counter counter[PAGE_COUNTERS]; /* struct frl_stats; each value is written
						     * atomically */
	struct page_qp qp[];
};

static inline size_t page_size(uint32_t slots)
{
	return sizeof(struct page) + slots * sizeof(struct page_qp);
}

/* The reader's view of a page. */
struct page_view {
	int fd;
	uint32_t slots; /* readable slots; not reread, because the header may change */
	/* Releases the view. NULL: nothing to release. */
	void (*close)(const struct page_view *view);
};

/*
 * Checks a descriptor that a process sent: seals, size, header. Returns NULL if it is valid, and
 * the view then owns the descriptor. Otherwise returns the reason, and the caller keeps the
 * descriptor.
 */
const char *page_open(int fd, struct page_view *ret_view);

/*
 * Copies the header. Each number in the copy was valid at some moment. Returns false if it cannot
 * be read.
 */
bool page_read_head(const struct page_view *view, struct page *ret);

/* Returns the time of the last complete update; 0: none yet, or it cannot be read. */
uint64_t page_published_ns(const struct page_view *view);

/* Returns an index such that slots at it and above have no queue pair; at most view->slots. */
uint32_t page_used_slots(const struct page_view *view);

/*
 * Copies a slot, consistently. Returns false if it has no queue pair or no consistent copy was
 * possible. All texts in the copy are terminated.
 */
bool page_read_qp(const struct page_view *view, uint32_t slot, struct page_qp *ret);

/* For the writer: readers see the writes between the two calls all or not at all. */
void page_write_begin(struct page_qp *qp);
void page_write_end(struct page_qp *qp);

/*
 * Creates a sealed page in shared memory; the caller owns *ret_fd. Returns NULL, with errno, on
 * failure.
 */
struct page *page_create(uint32_t slots, int *ret_fd);

#endif
