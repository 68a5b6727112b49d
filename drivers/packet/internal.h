/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of this driver share.
 *
 *	parse.c     the port's text
 *	open.c      opened and closed; the interface
 *	filter.c    what the socket lets in
 *	socket.c    a socket for another process, with its filter
 *	join.c      which packets become one frame, and its headers; pure
 *	split.c     which packets a frame stands for, and their headers; pure
 *	send.c      packets out
 *	receive.c   frames in
 *
 * What is behind the Ethernet header is looked at here only to join and to split.
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
	/* Of an IP packet, with its headers: IPv6 does not count its own. */
	PACKET_FRAME_MAX = 65535 + 40 + ETH_HEADER + VLAN_TAG,
	PACKET_JOIN_MAX = 64, /* packets in one frame that is sent */
	/* Bytes in it behind UDP's header, also with IPv6. */
	PACKET_TRAIN_MAX = 65535 - 40 - 8,
	/* Longest headers up to UDP's: Ethernet, tag, IPv6. */
	PACKET_HEADERS_MAX = ETH_HEADER + VLAN_TAG + 40 + 8,
	PACKET_ICRC_LEN = 4,
	PACKET_VNET_LEN = 10,       /* of the header that the kernel puts before every frame */
	PACKET_GSO_UDP = 5,         /* VIRTIO_NET_HDR_GSO_UDP_L4, which older headers lack */
	PACKET_EVERYTHING = 0x0003, /* ETH_P_ALL */

	/* In a slot, so that payload behind Ethernet, IPv4, UDP and BTH is aligned to 64 bytes; a
	 * tag is put back into the room in front. */
	PACKET_SLOT_OFFSET = 10,
	PACKET_SLOTS = 1024,
	PACKET_RX_FRAMES = 4, /* taken from the kernel at once */
	PACKET_RX_SLOTS = 64, /* that a frame may be scattered over */
	PACKET_PENDING = PACKET_RX_FRAMES * 256,
	PACKET_TX_FRAMES = 64, /* given to the kernel at once */
	PACKET_TX_PIECES = 512,
	/* A frame that the kernel throws away so often is lost: whatever is in its way must not
	 * hold up all others for ever. */
	PACKET_REFUSALS_MAX = 4,
};

/* The port's text, taken apart. */
struct packet_wanted {
	char interface[IF_NAMESIZE];
	bool no_gso;
};

/* -EINVAL, with a sentence. */
int packet_parse(const char *text, struct packet_wanted *ret_wanted);

/* ---- pure: join.c, split.c; any thread */

/* Where the headers of a UDP packet are in its frame. */
struct packet_layout {
	uint8_t l3;   /* IP's, bytes from the frame's start */
	uint8_t udp;  /* UDP's */
	uint8_t body; /* what is behind UDP's */
	bool ipv4;
};

/* Finds them. False: no RoCE over UDP, or one with IP options, extension headers, two tags, or a
 * fragment; or `len` bytes do not hold the headers. */
bool packet_look(const uint8_t *frame, size_t len, struct packet_layout *ret_layout);

/* Consecutive packets that become one frame. */
struct packet_train {
	struct packet_layout layout;
	uint16_t n;    /* 1: it goes alone */
	uint16_t body; /* bytes behind UDP's header of all but the last one, which may be shorter */
	uint32_t body_sum; /* of all */
};

/* How many of the first `n` packets (at least one) can be one frame. */
void packet_join(const struct port_packet packets[], uint16_t n, struct packet_train *ret_train);

/*
 * The headers of the frame: Ethernet to UDP, and what the kernel is to be told. The kernel gives
 * packet k of it the IPv4 identification of the first plus k.
 */
void packet_train_headers(const struct packet_train *train, const struct port_packet *first,
	uint8_t headers[PACKET_HEADERS_MAX], struct virtio_net_hdr *ret_vnet);

/* What packet k's identification changes in its ICRC: operand of an exclusive or. `power` is a
 * cache between calls, zeroed at first. */
struct packet_power {
	uint32_t bytes;
	uint32_t value;
};
uint32_t packet_icrc_change(struct packet_power *power, uint16_t id_change, uint32_t bytes_behind);

/* A received frame that stands for several packets. */
struct packet_cut {
	struct packet_layout layout;
	uint32_t body; /* bytes behind UDP's header of each but the last one */
	uint32_t last; /* of that one */
	uint32_t n;
};

/* Of a frame of `len` bytes whose first `near_len` are at `frame`. False: it makes no sense. */
bool packet_cut(const struct virtio_net_hdr *vnet, const uint8_t *frame, size_t near_len,
	size_t len, struct packet_cut *ret_cut);
/* Headers, layout.body bytes, of packet k at `headers`, from those of the frame. They may be the
 * same. UDP's checksum is 0: what the frame has there is of no packet. */
void packet_cut_headers(
	const struct packet_cut *cut, const uint8_t *frame, uint32_t k, uint8_t *headers);

/* ---- */

/* A frame that is to be received: into slots, and what they have no room for. */
struct packet_rx_frame {
	uint8_t vnet[PACKET_VNET_LEN];
	bool is_posted;
	uint16_t n_slots;
	uint32_t first; /* bytes of the first slot */
	uint32_t next;  /* of the others */
	uint32_t slots[PACKET_RX_SLOTS];
	struct iovec pieces[PACKET_RX_SLOTS + 2];
	uint8_t *rest; /* PACKET_FRAME_MAX bytes */
	union {
		char bytes[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
		struct cmsghdr align;
	} control;
};

struct packet_tx_frame {
	uint8_t vnet[PACKET_VNET_LEN];
	uint16_t n; /* packets */
	uint8_t headers[PACKET_HEADERS_MAX];
};

/* The frame that the kernel threw away last, by its first packet, and how often. */
struct packet_refusals {
	unsigned n;
	uint32_t flow;
	uint32_t psn;
};

struct packet_port {
	struct port base;
	char name[IF_NAMESIZE + 16]; /* "packet:eth0": in sentences */
	struct packet_wanted wanted;
	int ifindex;
	int foreign_ifindex; /* of another MAC, under the same name: told once */
	int fd;
	bool has_mac; /* of its own: the interface has another one */
	bool joins;   /* false: one packet a frame */
	uint32_t max_payload;
	struct port_stats dropped;

	/* Packet buffers: one mapping, of which the numbers of free ones. */
	uint8_t *memory;
	size_t memory_len;
	uint32_t n_slots, slot_size, n_free;
	uint32_t *free;

	/* Frames in: how they are expected to be cut, how the last one was that was cut otherwise,
	 * and packets still to be handed out. */
	uint32_t expect_headers, expect_body;
	uint32_t other_headers, other_body;
	struct packet_rx_frame rx[PACKET_RX_FRAMES];
	struct mmsghdr rx_messages[PACKET_RX_FRAMES];
	uint8_t *rests, *linear; /* of rx[], and room for one more frame */
	uint16_t pending_at, n_pending;
	struct port_frame pending[PACKET_PENDING];

	/* Packets out. */
	struct packet_refusals refusals;
	struct packet_power power;
	struct packet_tx_frame tx[PACKET_TX_FRAMES];
	struct mmsghdr tx_messages[PACKET_TX_FRAMES];
	struct iovec tx_pieces[PACKET_TX_PIECES];
	/* Of one packet its trailer, with the next one's headers behind UDP's. */
	uint8_t between[PACKET_TX_FRAMES][PORT_TRAILER_ROOM + PORT_HEADER_ROOM];
};

/* What a socket lets in. */
struct packet_scope {
	const struct gid_table *gids; /* addresses, from number 1 on */
	const uint8_t *mac;           /* its link-local address, too; NULL: no such address */
	/* Only what is on `vlan` (0: untagged); what is sent through the same interface, too. */
	bool is_lease;
	uint16_t vlan;
};

/* filter.c: has the socket let in what the device may want, no more. A negative errno. */
int packet_filter(int fd, const struct packet_scope *scope);

/* socket.c. -EADDRINUSE, with a sentence, if one of the addresses is the kernel's. */
int packet_refuse_kernels(const char *port, const struct gid_table *gids);
/* Frames come from that interface from now on. A negative errno. */
int packet_bind(int fd, int ifindex);

/* receive.c. Slots and what is to be received; -ENOMEM. The second also of a part. */
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
