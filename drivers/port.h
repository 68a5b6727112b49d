/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A port: where the software device's frames go out and come in. A driver fills one const ops
 * table; what differs between ports is data (struct port_caps), asked once after open.
 *
 * A port keeps no protocol state, and looks at what is behind the Ethernet header only to hand
 * frames over in fewer pieces (a kernel's or a NIC's offloads), or to let in what is the port's.
 * One thread at a time uses it: the owner of the engine, under the engine's guard (see struct
 * port_guard). Only open and close are called without the guard held.
 *
 * One port may have several links (the local fabric: one link a peer). A NIC has one, link 0.
 */
#ifndef FERRULE_DRIVERS_PORT_H
#define FERRULE_DRIVERS_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct port;
struct port_mem;

enum {
	PORT_HEADER_ROOM = 368, /* all headers, and a small payload that is copied behind them */
	PORT_TRAILER_ROOM = 8,  /* pad (0 to 3) and ICRC */
	PORT_MAX_PIECES = 16,   /* payload pieces of one packet */
	PORT_MAX_LINKS = 4096,
	PORT_FLOWS = 1 << 14, /* at a time, on all links: told apart by their lowest bits */
	PORT_BURST = 32,      /* the most frames one rx_burst is asked for */
	PORT_SPLIT = 118,     /* all headers of any packet, so that GPU memory need not be parsed */
};

/*
 * A received frame, from the first byte of the Ethernet header; without FCS. Its payload may lie
 * elsewhere, in memory of the sender that is shared with this process: then `data` ends with the
 * last header, and `payload` is what follows on the wire. Such payload is to be read once, and
 * payload_intact() asked after that.
 */
struct port_frame {
	uint8_t *data;
	uint32_t len; /* bytes at `data` */
	uint16_t link;
	const uint8_t *payload; /* NULL: all of the frame is at `data` */
	uint32_t payload_len;
	/* What follows `data` on the wire lies in the memory of a GPU (caps.far_gpu): its address
	 * there, which is not this process's to look at, and length. 0: nothing does. */
	uint32_t far_len;
	uint64_t far;
	bool is_checked; /* the NIC has verified the checksums of IP and UDP */
	void *handle;    /* the driver's; goes back through rx_free */
};

/* Payload by reference. `mem` is what mem_map returned for the memory that holds it. */
struct port_piece {
	const uint8_t *addr;
	uint32_t len;
	struct port_mem *mem;
};

/* A frame to send: header bytes, payload pieces, trailer bytes, in this order on the wire. Here the
 * long arrays are last, so that a packet with one piece touches few cache lines. */
struct port_packet {
	/* The queue pair whose payload it is, or 0: see revoke. No two that are in use at the same
	 * time are equal modulo PORT_FLOWS. */
	uint32_t flow;
	uint16_t header_len;
	uint8_t trailer_len;
	uint8_t n_pieces;
	bool copy;  /* the payload is the application's again once the packet was taken: copy it */
	bool alone; /* it leaves as a frame of its own, with ports that have caps.max_batch too */
	uint8_t trailer[PORT_TRAILER_ROOM];
	struct port_piece pieces[PORT_MAX_PIECES];
	uint8_t header[PORT_HEADER_ROOM];
};

enum port_link_state {
	PORT_LINK_CLOSED,     /* no such link */
	PORT_LINK_CONNECTING, /* opened, the peer is not there yet */
	PORT_LINK_UP,
	PORT_LINK_DOWN, /* was up; the peer is gone or the carrier is lost */
};

/* How a link of the local fabric is made; exchanged by both ends when they set up a connection. */
struct port_link_request {
	uint8_t peer_mac[6];
	char name[64];   /* names the link on this machine; equal at both ends, printable */
	char secret[24]; /* equal at both ends, printable, NUL-terminated */
	bool server;     /* exactly one end is the server */
};

struct port_caps {
	uint8_t mac[6];
	uint32_t max_frame; /* bytes, Ethernet header to ICRC, without FCS */
	bool lossless;      /* frames are never lost, reordered or corrupted between the ends */
	bool in_place;      /* payload may be read where the sender keeps it, after tx_burst */
	bool on_demand;     /* links are made with link_open (local fabric) */
	/* Consecutive packets of a flow that are equally long, of which the last may be shorter,
	 * leave together and cost hardly more than one: so many bytes behind UDP's header at most.
	 * 0: each leaves on its own. */
	uint32_t max_batch;
	/* So many frames may be kept longer than until the next rx_burst, and come back one by one;
	 * and so many more for as long as anybody likes, rx_take's among them. Both 0: none, and
	 * there is no rx_memory. */
	uint32_t max_held;
	uint32_t max_kept;
	/* The GPU, as CUDA counts, in whose memory frames longer than PORT_SPLIT go on: their first
	 * PORT_SPLIT bytes are at `data`. Only where has_far is set. */
	bool has_far;
	int far_gpu;
	uint32_t speed_mbps; /* of the link, once it is up; 0: not known, or none */
	const char *kind;    /* "ring" (local), "net_af_packet", ...: for logs, tables */
};

/*
 * Excludes the driver's own background activity (a thread that maps and unmaps shared memory) from
 * bursts: the engine's owner holds the guard around every ops call but close, and the driver takes
 * it around such activity. A port is closed by a thread that does not hold it. `lock` must get in
 * soon even while the owner takes and releases the guard in a tight loop, which a plain mutex does
 * not promise.
 */
struct port_guard {
	void (*lock)(void *arg);
	void (*unlock)(void *arg);
	void *arg;
};

struct port_stats {
	uint64_t rx_dropped; /* frames that the driver lost or refused: no buffer, too long */
	uint64_t tx_dropped;
};

struct port_ops {
	const char *name;

	/* Up to `max` frames; they stay valid until rx_free. Returns how many. */
	uint16_t (*rx_burst)(struct port *port, struct port_frame frames[], uint16_t max);
	void (*rx_free)(struct port *port, const struct port_frame frames[], uint16_t n);
	/*
	 * Somebody is going to sleep until frames come: returns a descriptor that poll() says to be
	 * readable when there is something for rx_burst, or when a link has come or gone. It stays
	 * the port's, and the same. -EAGAIN: there is something already; -ENOTSUP: nobody would
	 * tell, at the moment. Holds until disarm, may be called again before that. NULL: a port
	 * that has to be asked.
	 */
	int (*arm)(struct port *port);
	/* Nobody sleeps any more, or all are awake. May be NULL. */
	void (*disarm)(struct port *port);
	/* The pieces of memory that frames lie in, from 0 on: they stay as long as the port is
	 * open. False: there is no such piece. The device's guard need not be held. */
	bool (*rx_memory)(struct port *port, unsigned index, void **ret_addr, size_t *ret_len);
	/* An empty packet buffer of the memory that frames lie in, as large as the largest frame,
	 * which counts as one that came and goes back through rx_free; ret_frame->len is 0. False:
	 * there is none. Not called where caps.max_kept is 0. */
	bool (*rx_take)(struct port *port, struct port_frame *ret_frame);

	/*
	 * Takes the first packets of `packets` for transmission on `link`, in order, and returns
	 * how many it took; the rest is to be offered again later (queue full). Headers and
	 * trailers are copied, and payload of packets with `copy`; other payload may be read until
	 * mem_idle says otherwise.
	 */
	uint16_t (*tx_burst)(
		struct port *port, uint16_t link, const struct port_packet packets[], uint16_t n);

	/*
	 * For ports that pass payload on in place (caps.in_place), else NULL. The memory that the
	 * packets of `flow` on `link` refer to is the application's again: the peer must not take
	 * what it has not read yet, and must know if it was reading just now. Other flows
	 * keep theirs. */
	void (*revoke)(struct port *port, uint16_t link, uint32_t flow);
	/* True when the payload of the frame was not revoked until now. */
	bool (*payload_intact)(struct port *port, const struct port_frame *frame);

	/* Makes memory known to the port. -ENOTSUP and the like with the reason in frl_last_error.
	 */
	int (*mem_map)(struct port *port, void *addr, size_t len, struct port_mem **ret_mem);
	/* The same for memory of a GPU, which only a NIC looks at: by the dma-buf `fd`, from
	 * `offset` in it, which stays the caller's; or, fd -1, by its address (nvidia_peermem).
	 * No processor reads what pieces refer to in it, however short a packet is. NULL: the port
	 * sends none of that. */
	int (*mem_map_far)(struct port *port, void *addr, size_t len, int fd, uint64_t offset,
		struct port_mem **ret_mem);
	/* True when no packet in the driver's hands refers to the memory any more. */
	bool (*mem_idle)(struct port *port, const struct port_mem *mem);
	/* The same, once the driver was made to give up what it has sent, or cannot send: by a
	 * frame that says nothing, or a restart. Not for the data path. NULL: mem_idle does. */
	bool (*mem_flush)(struct port *port, const struct port_mem *mem);
	/* Only when idle. */
	void (*mem_unmap)(struct port *port, struct port_mem *mem);

	/* Opens a link; returns its number at once, it then connects on its own. -ENOTSUP when the
	 * port has no links on demand; -ENOSPC: there are as many as can be. */
	int (*link_open)(struct port *port, const struct port_link_request *request);
	void (*link_close)(struct port *port, uint16_t link);
	enum port_link_state (*link_state)(struct port *port, uint16_t link);
	/* Bytes of the longest frame that both ends of a link take; 0: not known before it is UP.
	 * NULL: there are no links on demand. */
	uint32_t (*link_frame)(struct port *port, uint16_t link);

	void (*stats)(struct port *port, struct port_stats *ret_stats);
	/* Memory that is still mapped, as packets refer to it, goes with the port. */
	void (*close)(struct port *port);
};

/* Drivers embed this as their first member and fill it on open. */
struct port {
	const struct port_ops *ops;
	struct port_caps caps;
};

static inline bool port_mem_flush(struct port *port, const struct port_mem *mem)
{
	return port->ops->mem_flush ? port->ops->mem_flush(port, mem)
				    : port->ops->mem_idle(port, mem);
}

#endif
