/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A RoCEv2 frame, from the Ethernet header to the ICRC. Frames are decoded into host order and
 * encoded from it; no code above this header sees raw header bytes. No state, I/O or allocation;
 * any thread. Annex A17; IBTA volume 1, chapter 9.
 *
 *    Eth 14 (+4 VLAN) | IPv4 20 or IPv6 40 | UDP 8 | BTH 12 | extended | payload | pad 0-3 | ICRC 4
 */
#ifndef FERRULE_WIRE_PACKET_H
#define FERRULE_WIRE_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/net/addr.h"
#include "lib/wire/opcode.h"
#include "lib/wire/psn.h"

enum {
	ROCE_UDP_PORT = 4791,
	ETHERTYPE_IPV4 = 0x0800,
	ETHERTYPE_ARP = 0x0806,
	ETHERTYPE_VLAN = 0x8100,
	ETHERTYPE_SERVICE_VLAN = 0x88a8,
	ETHERTYPE_IPV6 = 0x86dd,
	ETH_LEN = 14,
	VLAN_LEN = 4,
	IPV4_LEN = 20,
	IPV6_LEN = 40,
	UDP_LEN = 8,
	BTH_LEN = 12,
	DETH_LEN = 8,
	RETH_LEN = 16,
	ATOMICETH_LEN = 28,
	AETH_LEN = 4,
	ATOMICACKETH_LEN = 8,
	IMMDT_LEN = 4,
	IETH_LEN = 4,
	ICRC_LEN = 4,
	WIRE_IBTA_MTU = 4096, /* largest path MTU of networks; IBTA volume 1, 9.4 */
	WIRE_MAX_MTU = 16384, /* largest path MTU between Ferrule devices on the local fabric */
	WIRE_MAX_HEADERS = 112,
	WIRE_GRH_LEN = 40, /* bytes before the payload in a receive of a datagram */
	/* Maximum length of a frame without payload: WRITE_ONLY_IMM over IPv6 with a VLAN tag. */
	WIRE_MAX_OVERHEAD = ETH_LEN + VLAN_LEN + IPV6_LEN + UDP_LEN + BTH_LEN + RETH_LEN +
		IMMDT_LEN + 3 + ICRC_LEN,
	WIRE_MAX_MESSAGE = 1u << 31, /* bytes; IBTA C9-91 */
	PKEY_DEFAULT = 0xffff,
	QPN_GSI = 1,
	QPN_MULTICAST = 0xffffff,
};

/* The Q_Key of QP1. IBTA volume 1, 3.5.3. */
#define QKEY_GSI UINT32_C(0x80010000)

enum {
	BTH_CONGESTION_BITS = 0xc0, /* of struct bth.congestion: FECN and BECN */
	BTH_ACK_REQUEST = 0x80,     /* of struct bth.ack_bits */
};

/* Bits are at their positions on the wire, so that bytes are copied whole. */
struct bth {
	uint8_t opcode;
	union {
		struct {
			uint8_t version : 4;
			uint8_t pad : 2; /* 0 to 3 */
			bool migrated : 1;
			bool solicited : 1;
		};
		uint8_t flags;
	};
	uint16_t pkey;
	uint32_t dest_qpn;
	struct psn psn;
	union {
		struct {
			uint8_t : 6;
			bool becn : 1;
			bool fecn : 1;
		};
		uint8_t congestion;
	};
	union {
		struct {
			uint8_t : 7;
			bool ack_request : 1;
		};
		uint8_t ack_bits;
	};
};

_Static_assert(sizeof(struct bth) == 16 && offsetof(struct bth, flags) == 1 &&
		offsetof(struct bth, congestion) == 12 && offsetof(struct bth, ack_bits) == 13,
	"no bit field has spilled into a byte of its own");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bit fields start at the lowest bit");

struct reth {
	uint64_t va;
	uint32_t rkey;
	uint32_t dma_length;
};

struct aeth {
	uint8_t syndrome;
	uint32_t msn; /* 24 bits */
};

struct deth {
	uint32_t qkey;
	uint32_t src_qpn; /* 24 bits */
};

struct atomic_eth {
	uint64_t va;
	uint32_t rkey;
	uint64_t swap_add;
	uint64_t compare; /* FETCH_ADD: ignored, 0 when sent */
};

/*
 * Headers of a packet. The opcode table says which extended headers are valid; the others are
 * undefined. A packet has one of DETH, RETH and AtomicETH, and one of ImmDt and IETH.
 */
struct wire_headers {
	struct bth bth;
	union {
		struct reth reth;
		struct atomic_eth atomic;
		struct deth deth;
		uint64_t atomic_original; /* AtomicAckETH */
	};
	struct aeth aeth;
	union {
		uint32_t imm_data; /* in network byte order */
		uint32_t invalidate_rkey;
	};
};

/* A decoded packet. Points into the frame, which must outlive it. */
struct wire_packet {
	struct wire_headers h;
	const struct opcode_info *op;
	struct frl_ip src_ip;
	struct frl_ip dst_ip;
	uint16_t vlan;         /* VLAN identifier of the outer tag; 0 if untagged or priority only
			        */
	uint8_t n_tags;        /* VLAN tags, 0 to 2 */
	uint8_t priority;      /* PCP of the outer tag; 0 if untagged */
	uint8_t traffic_class; /* DSCP and ECN */
	const uint8_t *l3;     /* IP header, where the ICRC starts */
	uint32_t headers_len;  /* bytes from l3 to the payload */
	const uint8_t *payload;
	uint32_t payload_len; /* after wire_decode() with pad and ICRC; after wire_trim() without */
};

/* Reason why a frame is not a valid RoCE packet. Matches the counters of struct frl_stats. */
enum wire_verdict {
	WIRE_OK,
	WIRE_ARP,        /* not RoCE: see neighbor.h */
	WIRE_ICMP,       /* IPv4 or IPv6: see neighbor.h and icmp.h */
	WIRE_IGMP,       /* see group.h */
	WIRE_NOT_ROCE,   /* another protocol or port */
	WIRE_SHORT,      /* ends before its headers */
	WIRE_BAD_IP,     /* version, options, checksum, fragment, length beyond the frame,
		        * IPv4-mapped address in IPv6 */
	WIRE_BAD_UDP,    /* UDP length beyond the IP length or below 8 */
	WIRE_BAD_LENGTH, /* BTH to ICRC not a multiple of 4, or pad longer than the payload */
	WIRE_BAD_VERSION,
	WIRE_BAD_OPCODE, /* not in the table */
};

/* Returns the name of a verdict, for tests and traces. */
const char *wire_verdict_name(enum wire_verdict verdict);

/*
 * Decodes the headers of a frame of `len` bytes. The UDP length determines the end of the packet,
 * since short frames are padded. A non-zero UDP checksum is verified. Every length is checked
 * before use. *packet is undefined unless the result is WIRE_OK. payload_len includes pad and
 * ICRC, because the connection determines whether there is an ICRC; see wire_trim().
 * OPCODE_NO_PAYLOAD is not checked here.
 */
enum wire_verdict wire_decode(struct wire_packet *packet, const uint8_t *frame, size_t len);

/*
 * The same for a frame with payload in other memory: `frame` holds only the headers. Such packets
 * have no pad or ICRC and are trimmed already.
 */
enum wire_verdict wire_decode_split(struct wire_packet *packet, const uint8_t *frame, size_t len,
	const uint8_t *payload, size_t payload_len);

/*
 * The same for a frame of which only the first `len` bytes are readable; `rest_len` bytes follow.
 * The UDP checksum of a packet that extends into these is not verified. The payload at
 * packet->payload is readable up to frame + len; wire_icrc_ok() must not be called if it is
 * longer.
 */
enum wire_verdict wire_decode_part(
	struct wire_packet *packet, const uint8_t *frame, size_t len, size_t rest_len);

/* Returns true if a decoded packet has a UDP checksum. Not for wire_decode_split(). */
bool wire_has_udp_checksum(const struct wire_packet *packet);

/*
 * Decodes the BTH and its extended headers without checks; all bytes must be present. For an
 * opcode that is not in the table, decodes the BTH alone. For tools that show invalid packets.
 */
void wire_decode_headers(struct wire_headers *h, const uint8_t *bth);

/*
 * Removes the pad and, with `has_icrc`, the ICRC from payload_len. Returns WIRE_BAD_LENGTH if they
 * are missing.
 */
static inline enum wire_verdict wire_trim(struct wire_packet *packet, bool has_icrc)
{
	uint32_t trailer = packet->h.bth.pad + (has_icrc ? (uint32_t)ICRC_LEN : 0);

	if (packet->payload_len < trailer)
		return WIRE_BAD_LENGTH;
	packet->payload_len -= trailer;
	return WIRE_OK;
}

/* Returns true if the ICRC of a trimmed packet is correct. */
bool wire_icrc_ok(const struct wire_packet *packet);

/*
 * The constant part of a connection's headers, built once. `headers` is Ethernet to UDP, with
 * lengths and checksums zero.
 */
struct wire_path {
	uint8_t headers[ETH_LEN + VLAN_LEN + IPV6_LEN + UDP_LEN];
	uint8_t headers_len;
	uint8_t l3_offset;
	bool ipv4;
	/* IPv4: folded one's complement sum of the header, in memory order. */
	uint32_t checksum;
};

struct wire_path_config {
	uint8_t src_mac[6];
	uint8_t dst_mac[6];
	struct frl_ip src_ip; /* both of one family */
	struct frl_ip dst_ip;
	uint16_t vlan;    /* identifier; 0 with priority 0: no tag */
	uint8_t priority; /* PCP of the tag, 0 to 7 */
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint32_t flow_label; /* 20 bits, on the wire over IPv6 */
	uint16_t udp_src_port;
};

void wire_path_init(struct wire_path *path, const struct wire_path_config *config);

/* Change the UDP source port, or the destination MAC address. */
void wire_path_set_src_port(struct wire_path *path, uint16_t udp_src_port);
void wire_path_set_dst_mac(struct wire_path *path, const uint8_t mac[6]);

/* Returns the largest path MTU whose packets fit untagged frames of `max_frame` bytes with any
 * headers; 0 if there is none. A port that takes such a frame takes the four bytes of a tag as
 * well. */
static inline uint32_t wire_largest_mtu(uint32_t max_frame)
{
	/* A payload of a full MTU has no pad. */
	const uint32_t overhead = WIRE_MAX_OVERHEAD - VLAN_LEN - 3;
	uint32_t mtu = WIRE_MAX_MTU;

	while (mtu >= 256 && mtu + overhead > max_frame)
		mtu /= 2;
	return mtu >= 256 ? mtu : 0;
}

/*
 * Returns the UDP source port that Linux would choose, as entropy for ECMP: from a nonzero flow
 * label, or else from the pair of QPNs (the same for both directions). Within 0xC000 to 0xFFFF.
 */
uint16_t wire_udp_src_port(uint32_t flow_label, uint32_t local_qpn, uint32_t remote_qpn);

/* Gets the Ethernet address of an IP multicast group (RFC 1112, RFC 2464). Returns false if `ip`
 * is no group. */
bool wire_multicast_mac(const struct frl_ip *ip, uint8_t ret_mac[6]);

/*
 * Writes the headers of a packet with `payload_len` bytes of payload without pad; h->bth.pad is
 * ignored and computed. Returns the bytes written to `out` (at most WIRE_MAX_HEADERS).
 * *ret_trailer_len is the pad plus ICRC_LEN if there is an ICRC.
 */
size_t wire_encode(uint8_t *out, const struct wire_path *path, const struct wire_headers *h,
	uint32_t payload_len, bool has_icrc, uint8_t *ret_trailer_len);

#endif
