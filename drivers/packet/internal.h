/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the files of this driver:
 *
 * - parse.c: the port's text
 * - open.c: open and close; the interface
 * - filter.c: the socket's filter
 * - socket.c: a socket for another process, with its filter
 * - join.c: joins packets into one frame, and builds its headers; pure
 * - split.c: splits a frame into packets, and builds their headers; pure
 * - send.c: sends packets
 * - receive.c: receives frames
 *
 * Headers after Ethernet's are examined only to join and to split.
 */
#ifndef FERRULE_DRIVERS_PACKET_INTERNAL_H
#define FERRULE_DRIVERS_PACKET_INTERNAL_H

#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <sys/socket.h>

#include "drivers/interface.h"
#include "drivers/packet/packet.h"

enum {
	/* An IP packet with its headers. The IPv6 length excludes its own header. */
	PACKET_FRAME_MAX = 65535 + 40 + ETH_HEADER + VLAN_TAG,
	PACKET_JOIN_MAX = 64, /* packets in one frame that is sent */
	/* Bytes after the UDP header in such a frame, also with IPv6. */
	PACKET_BATCH_MAX = 65535 - 40 - 8,
	/* Longest headers up to UDP: Ethernet, tag, IPv6. */
	PACKET_HEADERS_MAX = ETH_HEADER + VLAN_TAG + 40 + 8,
	PACKET_ICRC_LEN = 4,
	PACKET_VNET_LEN = 10,       /* header that the kernel puts before every frame */
	PACKET_GSO_UDP = 5,         /* VIRTIO_NET_HDR_GSO_UDP_L4, which older headers lack */
	PACKET_EVERYTHING = 0x0003, /* ETH_P_ALL */

	/* Offset in a slot that aligns payload after Ethernet, IPv4, UDP and BTH to 64 bytes. A
	 * stripped tag is restored into the room before it. */
	PACKET_SLOT_OFFSET = 10,
	PACKET_SLOTS = 1024,
	PACKET_RX_FRAMES = 4, /* taken from the kernel at once */
	PACKET_RX_SLOTS = 64, /* slots that a frame may be scattered over */
	PACKET_PENDING = PACKET_RX_FRAMES * 256,
	PACKET_TX_FRAMES = 64, /* given to the kernel at once */
	PACKET_TX_PIECES = 512,
	/* After this many refusals by the kernel a frame is dropped, so that it cannot block all
	 * others for ever. */
	PACKET_REFUSALS_MAX = 4,
};

/* The parsed text of a port. */
struct packet_wanted {
	char interface[IF_NAMESIZE];
	bool no_gso;
};

/* Returns -EINVAL and sets the last error. */
int packet_parse(const char *text, struct packet_wanted *ret_wanted);

/* ---- pure: join.c, split.c; any thread */

/* Offsets of the headers of a UDP packet in its frame. */
struct packet_layout {
	uint8_t l3;   /* IP header, from the frame's start */
	uint8_t udp;  /* UDP header */
	uint8_t body; /* data after the UDP header */
	bool ipv4;
};

/* Finds the headers. Returns false unless it is RoCE over UDP without IP options, extension
 * headers, two tags, or fragmentation, and the headers fit in `len` bytes. */
bool packet_look(const uint8_t *frame, size_t len, struct packet_layout *ret_layout);

/* Consecutive packets that become one frame: the segments of the kernel's UDP segmentation
 * (GSO). */
struct packet_batch {
	struct packet_layout layout;
	uint16_t n;        /* 1: it is sent alone */
	uint16_t body;     /* bytes after the UDP header in each packet; the last may be shorter */
	uint32_t body_sum; /* sum over all packets */
};

/* Returns how many of the first `n` packets (at least one) can be one frame. */
void packet_join(const struct port_packet packets[], uint16_t n, struct packet_batch *ret_batch);

/*
 * Builds the headers of the frame, Ethernet to UDP, and the kernel's virtio header. The kernel
 * numbers packet k with the IPv4 identification of the first plus k.
 */
void packet_batch_headers(const struct packet_batch *batch, const struct port_packet *first,
	uint8_t headers[PACKET_HEADERS_MAX], struct virtio_net_hdr *ret_vnet);

/* Computes how packet k's identification changes its ICRC: the operand of an exclusive or. `power`
 * caches values between calls, and is zeroed first. */
struct packet_power {
	uint32_t bytes;
	uint32_t value;
};
uint32_t packet_icrc_change(struct packet_power *power, uint16_t id_change, uint32_t bytes_behind);

/* A received frame that consists of several packets. */
struct packet_cut {
	struct packet_layout layout;
	uint32_t body; /* bytes after the UDP header in each packet but the last */
	uint32_t last; /* bytes in the last packet */
	uint32_t n;
};

/* Analyses a frame of `len` bytes whose first `near_len` are at `frame`. Returns false if it is
 * invalid. */
bool packet_cut(const struct virtio_net_hdr *vnet, const uint8_t *frame, size_t near_len,
	size_t len, struct packet_cut *ret_cut);
/* Writes the headers of packet k, layout.body bytes, to `headers`, derived from those of the frame.
 * Both may be the same memory. The UDP checksum is 0, because the frame's value does not apply to a
 * packet. */
void packet_cut_headers(
	const struct packet_cut *cut, const uint8_t *frame, uint32_t k, uint8_t *headers);

/* ---- */

/* A frame to receive: into slots, and into `rest` if these have no room. */
struct packet_rx_frame {
	uint8_t vnet[PACKET_VNET_LEN];
	bool is_posted;
	uint16_t n_slots;
	uint32_t first; /* bytes in the first slot */
	uint32_t next;  /* bytes in each other slot */
	uint32_t slots[PACKET_RX_SLOTS];
	struct iovec pieces[PACKET_RX_SLOTS + 2];
	uint8_t *rest; /* buffer of PACKET_FRAME_MAX bytes */
	union {
		char bytes[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
		struct cmsghdr align;
	} control;
};

struct packet_tx_frame {
	uint8_t vnet[PACKET_VNET_LEN];
	uint16_t n; /* number of packets */
	uint8_t headers[PACKET_HEADERS_MAX];
};

/* The frame refused last by the kernel, identified by its first packet, and the number of
 * refusals. */
struct packet_refusals {
	unsigned n;
	uint32_t flow;
	uint32_t psn;
};

struct packet_port {
	struct port base;
	char name[IF_NAMESIZE + 16]; /* "packet:eth0": for messages */
	struct packet_wanted wanted;
	int ifindex;
	int foreign_ifindex; /* interface with this name but another MAC: logged once */
	int fd;
	bool has_mac; /* has a MAC of its own, other than the interface's */
	bool joins;   /* false: one packet per frame */
	uint32_t max_payload;
	struct port_stats dropped;

	/* Packet buffers: one mapping, and the numbers of free ones. */
	uint8_t *memory;
	size_t memory_len;
	uint32_t n_slots, slot_size, n_free;
	uint32_t *free;

	/* Received frames: the expected layout, the layout of the last frame that differed, and
	 * packets to hand out. */
	uint32_t expect_headers, expect_body;
	uint32_t other_headers, other_body;
	struct packet_rx_frame rx[PACKET_RX_FRAMES];
	struct mmsghdr rx_messages[PACKET_RX_FRAMES];
	uint8_t *rests, *linear; /* used by rx[], and room for one more frame */
	uint16_t pending_at, n_pending;
	struct port_frame pending[PACKET_PENDING];

	/* Packets to send. */
	struct packet_refusals refusals;
	struct packet_power power;
	struct packet_tx_frame tx[PACKET_TX_FRAMES];
	struct mmsghdr tx_messages[PACKET_TX_FRAMES];
	struct iovec tx_pieces[PACKET_TX_PIECES];
	/* The trailer of a packet, followed by the next packet's headers after UDP. */
	uint8_t between[PACKET_TX_FRAMES][PORT_TRAILER_ROOM + PORT_HEADER_ROOM];
};

/* The frames that a socket accepts. */
struct packet_scope {
	const struct gid_table *gids; /* addresses, from index 1 on */
	const uint8_t *mac;           /* accept its link-local address; NULL: there is none */
	/* Accept only frames on `vlan` (0: untagged), including frames sent through the same
	 * interface. */
	bool is_lease;
	uint16_t vlan;
};

/* filter.c: limits the socket to frames that the device may need. Returns a negative errno on
 * failure. */
int packet_filter(int fd, const struct packet_scope *scope);

/* socket.c: returns -EADDRINUSE, and sets the last error, if the kernel has one of the
 * addresses. */
int packet_refuse_kernels(const char *port, const struct gid_table *gids);
/* Starts reception from the interface. Returns a negative errno on failure. */
int packet_bind(int fd, int ifindex);

/* receive.c: allocates slots and receive frames. Returns -ENOMEM on failure. Close also frees an
 * incomplete set. */
int packet_rx_open(struct packet_port *port);
void packet_rx_close(struct packet_port *port);
uint16_t packet_rx_burst(struct port *port, struct port_frame frames[], uint16_t max);
void packet_rx_free(struct port *port, const struct port_frame frames[], uint16_t n);
bool packet_rx_memory(struct port *port, unsigned index, void **ret_addr, size_t *ret_len);
bool packet_rx_take(struct port *port, struct port_frame *ret_frame);
int packet_rx_arm(struct port *port);

/* send.c */
uint16_t packet_tx_burst(
	struct port *port, uint16_t link, const struct port_packet packets[], uint16_t n);

#endif
