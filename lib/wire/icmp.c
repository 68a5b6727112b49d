/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/wire/icmp.h"

#include "lib/base/bytes.h"
#include "lib/wire/checksum.h"
#include "lib/wire/ether.h"
#include "lib/wire/packet.h"

enum {
	PROTOCOL_ICMP = 1,
	PROTOCOL_ICMPV6 = 58,
	ECHO_LEN = 8, /* type, code, checksum, identifier, sequence number */
	ICMP_ECHO_REPLY = 0,
	ICMP_ECHO_REQUEST = 8,
	ICMPV6_ECHO_REQUEST = 128,
	ICMPV6_ECHO_REPLY = 129,
	IPV4_VERSION_IHL = 0x45,
	IPV4_DONT_FRAGMENT = 0x4000,
	ECHO_HOP_LIMIT = 64,
	DSCP_MASK = 0xfc, /* of a traffic class, without ECN */
};

/* Returns true for the address of a single other station (RFC 1122, 3.2.1.3). */
static bool is_station_v4(const uint8_t ip[4])
{
	return ip[0] != 0 && ip[0] != 127 && ip[0] < 224;
}

static bool is_station_v6(const struct frl_ip *ip)
{
	static const struct frl_ip unspecified, loopback = { { [15] = 1 } };

	return !ip_is_multicast(ip) && !ip_is_v4(ip) && !ip_equal(ip, &unspecified) &&
		!ip_equal(ip, &loopback);
}

static bool decode_v4(struct icmp_echo *echo, const uint8_t *ip, size_t len, uint8_t type)
{
	uint16_t total;

	if (len < IPV4_LEN || ip[0] != IPV4_VERSION_IHL || ip[9] != PROTOCOL_ICMP)
		return false;
	total = get_be16(ip + 2);
	if (total > len || total < IPV4_LEN + ECHO_LEN)
		return false;
	/* Fragments, and the reserved bit. */
	if (get_be16(ip + 6) & ~(unsigned)IPV4_DONT_FRAGMENT)
		return false;
	if (checksum_fold(checksum_add(0, ip, IPV4_LEN)) != 0xffff)
		return false;
	if (!is_station_v4(ip + 12) || !is_station_v4(ip + 16))
		return false;
	echo->src_ip = ip_from_v4(ip + 12);
	echo->dst_ip = ip_from_v4(ip + 16);
	echo->traffic_class = ip[1];
	echo->message = ip + IPV4_LEN;
	echo->message_len = total - (size_t)IPV4_LEN;
	if (echo->message[0] != type || echo->message[1] != 0)
		return false;
	return checksum_fold(checksum_add(0, echo->message, echo->message_len)) == 0xffff;
}

static bool decode_v6(struct icmp_echo *echo, const uint8_t *ip, size_t len, uint8_t type)
{
	uint16_t payload;
	uint64_t sum;

	if (len < IPV6_LEN || ip[0] >> 4 != 6 || ip[6] != PROTOCOL_ICMPV6)
		return false;
	payload = get_be16(ip + 4);
	if (payload > len - IPV6_LEN || payload < ECHO_LEN)
		return false;
	memcpy(echo->src_ip.bytes, ip + 8, 16);
	memcpy(echo->dst_ip.bytes, ip + 24, 16);
	if (!is_station_v6(&echo->src_ip) || !is_station_v6(&echo->dst_ip))
		return false;
	echo->traffic_class = (uint8_t)(get_be16(ip) >> 4);
	echo->message = ip + IPV6_LEN;
	echo->message_len = payload;
	if (echo->message[0] != type || echo->message[1] != 0)
		return false;
	sum = checksum_pseudo(&echo->src_ip, &echo->dst_ip, PROTOCOL_ICMPV6, payload);
	return checksum_fold(checksum_add(sum, echo->message, payload)) == 0xffff;
}

static bool decode(
	struct icmp_echo *echo, const uint8_t *frame, size_t len, uint8_t type_v4, uint8_t type_v6)
{
	struct ether ether;

	if (!ether_decode(&ether, frame, len))
		return false;
	memcpy(echo->dst_mac, frame, 6);
	memcpy(echo->src_mac, frame + 6, 6);
	echo->vlan = ether.vlan;
	if (!mac_is_station(echo->src_mac) || !mac_is_station(echo->dst_mac))
		return false;
	if (ether.ethertype == ETHERTYPE_IPV4)
		return decode_v4(echo, ether.l3, ether.l3_len, type_v4);
	if (ether.ethertype == ETHERTYPE_IPV6)
		return decode_v6(echo, ether.l3, ether.l3_len, type_v6);
	return false;
}

bool icmp_echo_decode(struct icmp_echo *echo, const uint8_t *frame, size_t len)
{
	return decode(echo, frame, len, ICMP_ECHO_REQUEST, ICMPV6_ECHO_REQUEST);
}

bool icmp_reply_decode(
	struct icmp_echo *reply, struct icmp_label *ret_label, const uint8_t *frame, size_t len)
{
	if (!decode(reply, frame, len, ICMP_ECHO_REPLY, ICMPV6_ECHO_REPLY))
		return false;
	ret_label->id = get_be16(reply->message + 4);
	ret_label->sequence = get_be16(reply->message + 6);
	ret_label->ip_len = (uint32_t)reply->message_len +
		(ip_is_v4(&reply->src_ip) ? IPV4_LEN : IPV6_LEN);
	return true;
}

static void encode_v4(uint8_t *ip, const struct icmp_echo *echo, size_t message_len)
{
	memset(ip, 0, IPV4_LEN);
	ip[0] = IPV4_VERSION_IHL;
	ip[1] = echo->traffic_class & DSCP_MASK; /* RFC 1122, 3.2.2.6 */
	put_be16(ip + 2, (uint16_t)(IPV4_LEN + message_len));
	put_be16(ip + 6, IPV4_DONT_FRAGMENT);
	ip[8] = ECHO_HOP_LIMIT;
	ip[9] = PROTOCOL_ICMP;
	memcpy(ip + 12, echo->dst_ip.bytes + 12, 4);
	memcpy(ip + 16, echo->src_ip.bytes + 12, 4);
	checksum_store(ip + 10, checksum_add(0, ip, IPV4_LEN));
}

static void encode_v6(uint8_t *ip, const struct icmp_echo *echo, size_t message_len)
{
	put_be32(ip, 6u << 28 | (uint32_t)(echo->traffic_class & DSCP_MASK) << 20);
	put_be16(ip + 4, (uint16_t)message_len);
	ip[6] = PROTOCOL_ICMPV6;
	ip[7] = ECHO_HOP_LIMIT;
	memcpy(ip + 8, echo->dst_ip.bytes, 16);
	memcpy(ip + 24, echo->src_ip.bytes, 16);
}

/* Writes the headers of a frame to the source of `echo`. Returns where the message starts, or NULL
 * if a message of that length does not fit. */
static uint8_t *encode(uint8_t *out, size_t room, const struct icmp_echo *echo, size_t message_len)
{
	bool v4 = ip_is_v4(&echo->src_ip);
	size_t header_len = ETH_LEN + (echo->vlan ? (size_t)VLAN_LEN : 0);

	header_len += v4 ? IPV4_LEN : IPV6_LEN;
	if (room < header_len || room - header_len < message_len)
		return NULL;
	out += ether_encode(out, echo->src_mac, echo->dst_mac, echo->vlan,
		v4 ? ETHERTYPE_IPV4 : ETHERTYPE_IPV6);
	if (v4) {
		encode_v4(out, echo, message_len);
		return out + IPV4_LEN;
	}
	encode_v6(out, echo, message_len);
	return out + IPV6_LEN;
}

/* Adds the checksum of a complete message. Returns the length of the frame. */
static size_t finish(
	const uint8_t *out, uint8_t *message, size_t message_len, const struct icmp_echo *echo)
{
	uint64_t sum = 0;

	if (!ip_is_v4(&echo->src_ip))
		sum = checksum_pseudo(
			&echo->dst_ip, &echo->src_ip, PROTOCOL_ICMPV6, (uint16_t)message_len);
	memset(message + 2, 0, 2);
	checksum_store(message + 2, checksum_add(sum, message, message_len));
	return (size_t)(message - out) + message_len;
}

size_t icmp_echo_reply(uint8_t *out, size_t room, const struct icmp_echo *echo)
{
	uint8_t *message = encode(out, room, echo, echo->message_len);

	if (!message)
		return 0;
	memcpy(message, echo->message, echo->message_len);
	message[0] = ip_is_v4(&echo->src_ip) ? ICMP_ECHO_REPLY : ICMPV6_ECHO_REPLY;
	return finish(out, message, echo->message_len, echo);
}

size_t icmp_echo_request(
	uint8_t *out, size_t room, const struct icmp_echo *peer, const struct icmp_label *label)
{
	bool v4 = ip_is_v4(&peer->src_ip);
	size_t message_len = label->ip_len - (size_t)(v4 ? IPV4_LEN : IPV6_LEN);
	uint8_t *message = encode(out, room, peer, message_len);

	if (!message)
		return 0;
	memset(message, 0, message_len);
	message[0] = v4 ? ICMP_ECHO_REQUEST : ICMPV6_ECHO_REQUEST;
	put_be16(message + 4, label->id);
	put_be16(message + 6, label->sequence);
	return finish(out, message, message_len, peer);
}
