/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A port sends and receives the frames of the software device. A driver fills one const ops table.
 * Differences between ports are data (struct port_caps), read once after open.
 *
 * A port keeps no protocol state. It looks behind the Ethernet header only to pass frames in fewer
 * pieces (offloads of a kernel or a NIC), or to filter the port's own frames. One thread at a time
 * uses it: the owner of the engine, under the engine's guard (see struct port_guard). Only open and
 * close are called without the guard.
 *
 * A port may have several links (local fabric: one link per peer). A NIC has one, link 0.
 */
#ifndef FERRULE_DRIVERS_PORT_H
#define FERRULE_DRIVERS_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/memory/copy.h"
#include "lib/base/memory/fault.h"
#include "lib/base/net/ip.h"

struct port;
struct port_mem;

enum {
	PORT_HEADER_ROOM = 368, /* all headers, and a small payload copied behind them */
	PORT_TRAILER_ROOM = 8,  /* pad (0 to 3) and ICRC */
	PORT_MAX_PIECES = 16,   /* payload pieces of one packet */
	PORT_MAX_LINKS = 4096,
	PORT_FLOWS = 1 << 14, /* at a time, on all links: distinguished by their lowest bits */
	PORT_BURST = 32,      /* the most frames requested from one rx_burst */
	PORT_SPLIT = 118,     /* all headers of any packet, so that GPU memory need not be parsed */
	PORT_NONCE_SIZE = 16,
};

/*
 * A received frame, from the first byte of the Ethernet header, without FCS. Its payload may lie
 * elsewhere, in memory that the sender shares with this process. Then `data` ends with the last
 * header, and `payload` is the rest of the frame. Read such payload once, then call
 * payload_intact().
 */
struct port_frame {
	uint8_t *data;
	uint32_t len; /* bytes at `data` */
	uint16_t link;
	const uint8_t *payload; /* NULL: all of the frame is at `data` */
	uint32_t payload_len;
	/* The rest of the frame, if it lies in the memory of a GPU (caps.far_gpu): its address
	 * there and its length. This process cannot access it. far_len 0: none. */
	uint32_t far_len;
	uint64_t far;
	bool is_checked; /* the NIC has verified the IP and UDP checksums */
	void *handle;    /* of the driver; returned through rx_free */
};

/* Payload by reference. `mem` was returned by mem_map for the memory that contains it. */
struct port_piece {
	const uint8_t *addr;
	uint32_t len;
	bool may_fault; /* the memory may be unmapped: read it with port_copy_piece() */
	struct port_mem *mem;
};

/* A frame to send: header bytes, payload pieces and trailer bytes, in this order on the wire. The
 * long arrays are last here, so that a packet with one piece touches few cache lines. */
struct port_packet {
	/* The queue pair that sent the payload, or 0: see revoke. Flows in use at the same time
	 * differ modulo PORT_FLOWS. */
	uint32_t flow;
	uint16_t header_len;
	uint8_t trailer_len;
	uint8_t n_pieces;
	bool copy;  /* copy the payload: the application may reuse it once the packet was taken */
	bool alone; /* send it as a frame of its own, even if the port has caps.max_batch */
	uint8_t trailer[PORT_TRAILER_ROOM];
	uint32_t sender; /* the queue pair that made the packet, or 0; for the engine alone */
	struct port_piece pieces[PORT_MAX_PIECES];
	uint8_t header[PORT_HEADER_ROOM];
};

enum port_link_state {
	PORT_LINK_CLOSED,     /* no such link */
	PORT_LINK_CONNECTING, /* opened, waiting for the peer */
	PORT_LINK_UP,
	PORT_LINK_DOWN, /* was up; the peer or the carrier is lost */
};

/* How a link of the local fabric is made. Both ends exchange this when they set up a connection. */
struct port_link_request {
	uint8_t peer_mac[6];
	char name[64];   /* name of the link on this machine; equal at both ends, printable */
	char secret[24]; /* equal at both ends, printable, NUL-terminated */
	bool server;     /* exactly one end is the server */
	/* Time within which the link must come up, or it is DOWN; 0: no limit. */
	uint64_t limit_ns;
};

/* The data of a device of the local fabric from which another one makes a link to it. */
struct port_identity {
	struct frl_ip ip;
	uint8_t mac[6];
	uint8_t nonce[PORT_NONCE_SIZE]; /* random: two devices never have the same one */
};

/*
 * Introductions of the local fabric: a device that knows only the address of another one asks it
 * for its identity, and gives its own. Both then make the link. The two processes must have the
 * same effective user. Both functions are called with the guard held, by a thread of the driver.
 */
struct port_introductions {
	struct port_identity own;
	/* Socket of local_listen(). The port owns it once introductions_open() has succeeded. */
	int listener;
	/* Another device has asked. Returns the number of the link to it, or a negative errno:
	 * -EAGAIN lets it ask again. */
	int (*accept)(void *arg, const struct port_identity *peer);
	/* The other device has answered introduce(), or cannot (`peer` is NULL, and `err` negative;
	 * -EAGAIN: it may if asked again). Called once for each successful introduce(). */
	void (*answered)(
		void *arg, const struct frl_ip *ip, const struct port_identity *peer, int err);
	void *arg;
};

struct port_caps {
	uint8_t mac[6];
	uint32_t max_frame; /* bytes, Ethernet header to ICRC, without FCS */
	bool lossless;      /* frames are never lost, reordered or corrupted between the ends */
	bool in_place;      /* payload may be read from the sender's memory, after tx_burst */
	bool on_demand;     /* links are made with link_open (local fabric) */
	/* The most bytes after the UDP header that one batch of consecutive packets of a flow may
	 * have. The packets are equally long, except that the last may be shorter. A batch costs
	 * hardly more than one packet. 0: no batches. */
	uint32_t max_batch;
	/* Frames that may be held beyond the next rx_burst, and are returned one by one; and
	 * further frames that may be kept without limit, including those of rx_take. Both 0: none,
	 * and there is no rx_memory. */
	uint32_t max_held;
	uint32_t max_kept;
	/* The GPU (CUDA ordinal) whose memory holds frames beyond PORT_SPLIT bytes. Their first
	 * PORT_SPLIT bytes are at `data`. Valid if has_far is set. */
	bool has_far;
	int far_gpu;
	uint32_t speed_mbps; /* of the link, once it is up; 0: unknown, or none */
	const char *kind;    /* "ring" (local), "net_af_packet", ...: for logs and tables */
};

/*
 * Excludes the driver's background activity (a thread that maps and unmaps shared memory) from
 * bursts. The engine's owner holds the guard around every ops call except close. The driver takes
 * it around its background activity. A port is closed by a thread that does not hold it. `lock`
 * must succeed soon even while the owner takes and releases the guard in a tight loop, which a
 * plain mutex does not guarantee.
 */
struct port_guard {
	void (*lock)(void *arg);
	void (*unlock)(void *arg);
	void *arg;
};

struct port_stats {
	uint64_t rx_dropped; /* frames lost or refused by the driver: no buffer, or too long */
	uint64_t tx_dropped;
};

struct port_ops {
	const char *name;

	/* Receives up to `max` frames, which stay valid until rx_free. Returns their number. */
	uint16_t (*rx_burst)(struct port *port, struct port_frame frames[], uint16_t max);
	void (*rx_free)(struct port *port, const struct port_frame frames[], uint16_t n);
	/*
	 * Prepares to sleep until frames come. Returns a descriptor that becomes readable when
	 * rx_burst has frames, or a link comes or goes. The port owns it, and it stays the same.
	 * Returns -EAGAIN if something is pending already, or -ENOTSUP if wake-ups are not
	 * available at the moment. In effect until disarm; may be called again before that. NULL:
	 * the port must be polled.
	 */
	int (*arm)(struct port *port);
	/* Call when no thread sleeps any more. May be NULL. */
	void (*disarm)(struct port *port);
	/* Returns the regions of memory that contain frames, numbered from 0. They stay as long as
	 * the port is open. Returns false if there is no such region. Does not need the guard. */
	bool (*rx_memory)(struct port *port, unsigned index, void **ret_addr, size_t *ret_len);
	/* Takes an empty packet buffer from the memory that contains frames, as large as the
	 * largest frame. It counts as a received frame, and is returned through rx_free.
	 * ret_frame->len is 0. Returns false if none is free. Not called if caps.max_kept is 0. */
	bool (*rx_take)(struct port *port, struct port_frame *ret_frame);

	/*
	 * Sends the first packets of `packets` on `link`, in order. Returns how many were taken;
	 * the caller offers the rest again later (queue full). Headers, trailers, and payload of
	 * packets with `copy` are copied. Other payload may be read until mem_idle returns true.
	 * Stops before a packet with payload that the processor cannot read, because it was
	 * unmapped, and sets port->is_unreadable. That is possible only if a piece has may_fault.
	 */
	uint16_t (*tx_burst)(
		struct port *port, uint16_t link, const struct port_packet packets[], uint16_t n);

	/*
	 * For ports that pass payload in place (caps.in_place), else NULL. Returns to the
	 * application the memory that packets of `flow` on `link` refer to. The peer must not use
	 * payload that it has not read yet, and must detect a revocation during a read. Other flows
	 * are not affected.
	 */
	void (*revoke)(struct port *port, uint16_t link, uint32_t flow);
	/* Returns true if the payload of the frame has not been revoked. */
	bool (*payload_intact)(struct port *port, const struct port_frame *frame);

	/* Registers memory with the port. Returns -ENOTSUP or another errno with the reason in
	 * frl_last_error(). */
	int (*mem_map)(struct port *port, void *addr, size_t len, struct port_mem **ret_mem);
	/* Registers memory of a GPU, which only a NIC reads: by the dma-buf `fd`, from `offset`,
	 * which the caller keeps; or, if fd is -1, by its address (nvidia_peermem). No processor
	 * reads pieces in it, even of short packets. NULL: the port cannot send from GPU memory. */
	int (*mem_map_far)(struct port *port, void *addr, size_t len, int fd, uint64_t offset,
		struct port_mem **ret_mem);
	/* Returns true if no packet in the driver refers to the memory any more. */
	bool (*mem_idle)(struct port *port, const struct port_mem *mem);
	/* Like mem_idle, after making the driver release packets that it has sent, or cannot send:
	 * by a frame without effect, or a restart. Not for the data path. NULL: use mem_idle. */
	bool (*mem_flush)(struct port *port, const struct port_mem *mem);
	/* Call only if the memory is idle. */
	void (*mem_unmap)(struct port *port, struct port_mem *mem);

	/* Opens a link and returns its number at once; the link then connects in the background.
	 * Returns -ENOTSUP if the port has no links on demand, -ENOSPC if all are in use. */
	int (*link_open)(struct port *port, const struct port_link_request *request);
	void (*link_close)(struct port *port, uint16_t link);
	/* Removes the time limit of a link that is connecting. NULL as link_frame. */
	void (*link_keep)(struct port *port, uint16_t link);
	enum port_link_state (*link_state)(struct port *port, uint16_t link);
	/* Returns the length of the longest frame that both ends of a link accept, or 0 before the
	 * link is UP. NULL: there are no links on demand. */
	uint32_t (*link_frame)(struct port *port, uint16_t link);
	/* Returns the features (struct local_port_config) that both ends of a link have, or 0
	 * before the link is UP. NULL as link_frame. */
	uint32_t (*link_features)(struct port *port, uint16_t link);

	/* Takes part in introductions, until introductions_close(). Returns a negative errno with
	 * frl_last_error(). All three NULL: there are no introductions. */
	int (*introductions_open)(
		struct port *port, const struct port_introductions *introductions);
	/* Called without the guard. Neither function of the introductions is called any more. */
	void (*introductions_close)(struct port *port);
	/*
	 * Asks the device with the address, an address of the local fabric, and returns at once;
	 * `answered` has the result. Returns -EHOSTUNREACH if no device has the address, -EACCES if
	 * its process has another user, -EAGAIN if it has too many clients at the moment, or
	 * another errno. All but -EAGAIN set frl_last_error().
	 */
	int (*introduce)(struct port *port, const struct frl_ip *ip);

	void (*stats)(struct port *port, struct port_stats *ret_stats);
	/* Also releases memory that is still mapped because packets refer to it. */
	void (*close)(struct port *port);
};

/* Drivers embed this as their first member and fill it when they open a port. */
struct port {
	const struct port_ops *ops;
	struct port_caps caps;
	bool is_unreadable; /* set by tx_burst, reset by its caller */
};

/* Copies payload. Returns false if it cannot be read; a part may be copied then. */
static inline bool port_copy_piece(void *to, const struct port_piece *piece)
{
	if (piece->may_fault)
		return fault_copy(to, piece->addr, piece->len);
	copy_bulk(to, piece->addr, piece->len);
	return true;
}

static inline bool port_mem_flush(struct port *port, const struct port_mem *mem)
{
	return port->ops->mem_flush ? port->ops->mem_flush(port, mem)
				    : port->ops->mem_idle(port, mem);
}

#endif
