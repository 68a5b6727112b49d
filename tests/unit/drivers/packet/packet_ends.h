/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two ports over packet sockets, joined by a pair of local sockets, which pass frames on as the
 * kernel does without segmentation; and packets to send between them.
 */
#ifndef FERRULE_TESTS_UNIT_DRIVERS_PACKET_PACKET_ENDS_H
#define FERRULE_TESTS_UNIT_DRIVERS_PACKET_PACKET_ENDS_H

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drivers/packet/internal.h"
#include "lib/wire/icrc.h"
#include "lib/wire/packet.h"

enum { PAYLOAD = 4096, MANY = 40, HEADERS = 42 };

/* Their addresses, and the bytes of all payload. */
static const uint8_t macs[2][6] = { { 2, 0, 0, 0, 0, 1 }, { 2, 0, 0, 0, 0, 2 } };
static uint8_t memory[MANY * PAYLOAD];

static inline void fill_memory(void)
{
	for (size_t i = 0; i < sizeof(memory); i++)
		memory[i] = (uint8_t)(i * 7 + i / 251);
}

static inline void make_path(struct wire_path *path, bool v4, uint16_t vlan, uint16_t port)
{
	struct wire_path_config config = { .hop_limit = 64, .udp_src_port = port, .vlan = vlan };

	memcpy(config.src_mac, macs[0], 6);
	memcpy(config.dst_mac, macs[1], 6);
	config.src_ip = v4 ? (struct frl_ip){ { [10] = 0xff, 0xff, 10, 1, 1, 1 } }
			   : (struct frl_ip){ { 0xfd, [15] = 1 } };
	config.dst_ip = v4 ? (struct frl_ip){ { [10] = 0xff, 0xff, 10, 1, 1, 2 } }
			   : (struct frl_ip){ { 0xfd, [15] = 2 } };
	wire_path_init(path, &config);
}

/* Packet `psn` of a WRITE, with an ICRC, of `len` bytes of the memory. */
static inline void make_packet(
	struct port_packet *packet, const struct wire_path *path, uint32_t psn, uint32_t len)
{
	const struct wire_headers h = { .bth = {
						.opcode = OP_WRITE_MIDDLE,
						.pkey = 0xffff,
						.dest_qpn = 17,
						.psn = { psn },
					} };
	const uint8_t *payload = memory + (size_t)psn * PAYLOAD;
	uint32_t crc;

	memset(packet, 0, sizeof(*packet));
	packet->header_len = (uint16_t)wire_encode(
		packet->header, path, &h, len, true, &packet->trailer_len);
	packet->pieces[packet->n_pieces++] = (struct port_piece){ .addr = payload, .len = len };
	crc = icrc_headers(packet->header + path->l3_offset, packet->header_len - path->l3_offset);
	crc = icrc_update(crc, payload, len);
	crc = icrc_update(crc, packet->trailer, packet->trailer_len - ICRC_LEN);
	icrc_store(packet->trailer + packet->trailer_len - ICRC_LEN, crc);
}

/* Each has `len` bytes, and they can be joined. */
static inline void make_packets(struct port_packet packets[], unsigned n, bool v4, uint32_t len)
{
	struct wire_path path;

	make_path(&path, v4, 0, 0xc123);
	for (unsigned i = 0; i < n; i++)
		make_packet(&packets[i], &path, i, len);
}

static inline struct packet_port *open_end(int fd)
{
	struct packet_port *port = calloc(1, sizeof(*port));

	port->fd = fd;
	port->joins = true;
	port->max_payload = PAYLOAD;
	port->base.caps.max_frame = PAYLOAD + MTU_OVERHEAD + ETH_HEADER;
	ck_assert_int_eq(packet_rx_open(port), 0);
	return port;
}

static inline void close_end(struct packet_port *port)
{
	close(port->fd);
	packet_rx_close(port);
	free(port);
}

static inline void open_both(struct packet_port *ret_ports[2])
{
	int fds[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, fds), 0);
	for (int i = 0; i < 2; i++)
		ret_ports[i] = open_end(fds[i]);
}

/* Slots are free, or frames can be received into them: none is retained. */
static inline void count_slots(struct packet_port *port)
{
	uint32_t n = port->n_free;

	for (unsigned i = 0; i < PACKET_RX_FRAMES; i++)
		n += port->rx[i].n_slots;
	ck_assert_uint_eq(n, port->n_slots);
}

static inline void close_both(struct packet_port *ports[2])
{
	for (int i = 0; i < 2; i++) {
		count_slots(ports[i]);
		close_end(ports[i]);
	}
}

#endif
