/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/pcap/pcapng.h"

#include <stdlib.h>

#include <pcap/dlt.h>

#include "lib/base/bytes.h"

enum {
	BLOCK_INTERFACE = 1,
	BLOCK_OLD_PACKET = 2,
	BLOCK_SIMPLE_PACKET = 3,
	BLOCK_PACKET = 6,
	BLOCK_SECTION = 0x0a0d0d0a, /* the same in both byte orders */
	BLOCK_HEADER_LEN = 8,
	BLOCK_FRAME_LEN = BLOCK_HEADER_LEN + 4, /* with the length after the body */
	MAX_BLOCK_LEN = 16 << 20,
	INTERFACE_LEN = 8,
	PACKET_LEN = 20,
	SIMPLE_PACKET_LEN = 4,
	OPTION_LEN = 4,
	OPTION_END = 0,
	OPTION_TSRESOL = 9,
	OPTION_TSOFFSET = 14,
	TSRESOL_BINARY = 0x80,
	TSRESOL_MICROSECONDS = 6,
	LINKTYPE_RAW =
		101, /* the only relevant type with another number than in libpcap (DLT_RAW) */
};

#define BYTE_ORDER_MAGIC UINT32_C(0x1a2b3c4d)

struct pcap_ng_interface {
	int link_type;
	uint32_t snapshot_len; /* 0: unlimited */
	uint8_t resolution;
	uint64_t offset_s;
};

struct block {
	bool end; /* end of the file, no block */
	uint32_t type;
	size_t len; /* bytes of its body; 0 for a section header, whose rest is not used */
};

static const char cut_off[] = "the file ends within a block";
static const char damaged[] = "a block is damaged";

static uint16_t get_u16(const struct pcap_ng *ng, const uint8_t *p)
{
	return ng->big_endian ? get_be16(p) : (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t get_u32(const struct pcap_ng *ng, const uint8_t *p)
{
	return ng->big_endian ? get_be32(p) : get_le32(p);
}

static uint64_t get_time(const struct pcap_ng *ng, const uint8_t *high_and_low)
{
	return (uint64_t)get_u32(ng, high_and_low) << 32 | get_u32(ng, high_and_low + 4);
}

/* Converts a timestamp to nanoseconds. Values that are too large wrap around. */
static uint64_t to_ns(const struct pcap_ng_interface *interface, uint64_t time)
{
	unsigned digits = interface->resolution & ~(unsigned)TSRESOL_BINARY;
	uint64_t ns = time;

	if (interface->resolution & TSRESOL_BINARY) {
		ns = (uint64_t)((unsigned __int128)time * 1000000000 >> digits);
	} else {
		for (; digits < 9; digits++)
			ns *= 10;
		for (; digits > 9 && ns; digits--)
			ns /= 10;
	}
	return ns + interface->offset_s * 1000000000;
}

static void read_options(const struct pcap_ng *ng, struct pcap_ng_interface *interface,
	const uint8_t *p, size_t left)
{
	while (left >= OPTION_LEN) {
		uint16_t code = get_u16(ng, p);
		size_t len = get_u16(ng, p + 2);
		size_t padded = (len + 3) / 4 * 4;
		const uint8_t *value = p + OPTION_LEN;

		left -= OPTION_LEN;
		if (code == OPTION_END || padded > left)
			return;
		if (code == OPTION_TSRESOL && len == 1)
			interface->resolution = value[0];
		if (code == OPTION_TSOFFSET && len == 8)
			interface->offset_s = ng->big_endian
				? get_be64(value)
				: (uint64_t)get_le32(value + 4) << 32 | get_le32(value);
		p = value + padded;
		left -= padded;
	}
}

static const char *add_interface(struct pcap_ng *ng, size_t len)
{
	size_t size = (ng->n_interfaces + 1) * sizeof(ng->interfaces[0]);
	struct pcap_ng_interface *interface;
	uint16_t link_type;

	if (len < INTERFACE_LEN)
		return damaged;
	interface = realloc(ng->interfaces, size);
	if (!interface)
		return "not enough memory";
	ng->interfaces = interface;
	interface += ng->n_interfaces++;
	link_type = get_u16(ng, ng->block);
	*interface = (struct pcap_ng_interface){
		.link_type = link_type == LINKTYPE_RAW ? DLT_RAW : link_type,
		.snapshot_len = get_u32(ng, ng->block + 4),
		.resolution = TSRESOL_MICROSECONDS,
	};
	read_options(ng, interface, ng->block + INTERFACE_LEN, len - INTERFACE_LEN);
	return NULL;
}

static const char *read_body(struct pcap_ng *ng, size_t len)
{
	uint8_t *block;

	if (len > ng->block_size) {
		block = realloc(ng->block, len);
		if (!block)
			return "not enough memory";
		ng->block = block;
		ng->block_size = len;
	}
	return fread(ng->block, 1, len, ng->stream) == len ? NULL : cut_off;
}

/*
 * Reads the byte order of a section from the first word of its header's body. The length before it
 * has the same byte order.
 */
static const char *read_byte_order(struct pcap_ng *ng)
{
	uint8_t magic[4];

	if (fread(magic, 1, sizeof(magic), ng->stream) != sizeof(magic))
		return cut_off;
	ng->big_endian = get_be32(magic) == BYTE_ORDER_MAGIC;
	ng->n_interfaces = 0;
	return get_u32(ng, magic) == BYTE_ORDER_MAGIC ? NULL : damaged;
}

static const char *read_block(struct pcap_ng *ng, struct block *block)
{
	uint8_t header[BLOCK_HEADER_LEN];
	size_t got = fread(header, 1, sizeof(header), ng->stream);
	const char *error = NULL;
	size_t taken = 0;
	uint32_t len;

	*block = (struct block){ .end = got == 0 };
	if (got == 0)
		return ferror(ng->stream) ? "it cannot be read" : NULL;
	if (got < sizeof(header))
		return cut_off;
	if (get_le32(header) == BLOCK_SECTION) {
		error = read_byte_order(ng);
		taken = sizeof(uint32_t);
	}
	if (error)
		return error;
	len = get_u32(ng, header + 4);
	if (len % 4 || len < BLOCK_FRAME_LEN + taken || len > MAX_BLOCK_LEN)
		return damaged;
	error = read_body(ng, len - BLOCK_HEADER_LEN - taken);
	if (error)
		return error;
	if (get_u32(ng, ng->block + len - BLOCK_FRAME_LEN - taken) != len)
		return damaged;
	block->type = get_u32(ng, header);
	block->len = taken ? 0 : len - BLOCK_FRAME_LEN;
	return NULL;
}

/* Reads a packet block of either kind. Their layouts differ only in the interface number. */
static const char *read_packet(
	struct pcap_ng *ng, uint32_t type, size_t len, struct pcap_record *record)
{
	const uint8_t *block = ng->block;
	uint32_t interface;

	if (len < PACKET_LEN)
		return damaged;
	interface = type == BLOCK_PACKET ? get_u32(ng, block) : get_u16(ng, block);
	if (interface >= ng->n_interfaces)
		return "a packet is of an interface that the file does not describe";
	*record = (struct pcap_record){
		.link_type = ng->interfaces[interface].link_type,
		.frame = block + PACKET_LEN,
		.captured = get_u32(ng, block + 12),
		.len = get_u32(ng, block + 16),
		.time_ns = to_ns(&ng->interfaces[interface], get_time(ng, block + 4)),
	};
	return record->captured <= len - PACKET_LEN ? NULL : damaged;
}

/*
 * Reads a simple packet block. It has no time and no recorded length; the length follows from the
 * first interface.
 */
static const char *read_simple_packet(struct pcap_ng *ng, size_t len, struct pcap_record *record)
{
	const uint8_t *block = ng->block;
	uint32_t limit;

	if (len < SIMPLE_PACKET_LEN)
		return damaged;
	if (!ng->n_interfaces)
		return "a packet is of an interface that the file does not describe";
	limit = ng->interfaces[0].snapshot_len;
	*record = (struct pcap_record){
		.link_type = ng->interfaces[0].link_type,
		.frame = block + SIMPLE_PACKET_LEN,
		.len = get_u32(ng, block),
	};
	record->captured = limit && record->len > limit ? limit : record->len;
	return record->captured <= len - SIMPLE_PACKET_LEN ? NULL : damaged;
}

/* Handles a block. *ret_is_packet: the block was a packet. */
static const char *take_block(struct pcap_ng *ng, const struct block *block,
	struct pcap_record *record, bool *ret_is_packet)
{
	*ret_is_packet = true;
	switch (block->type) {
	case BLOCK_PACKET:
	case BLOCK_OLD_PACKET: return read_packet(ng, block->type, block->len, record);
	case BLOCK_SIMPLE_PACKET: return read_simple_packet(ng, block->len, record);
	default: *ret_is_packet = false;
	}
	return block->type == BLOCK_INTERFACE ? add_interface(ng, block->len) : NULL;
}

const char *pcap_ng_open(struct pcap_ng *ng, FILE *stream)
{
	struct block block;
	const char *error;

	*ng = (struct pcap_ng){ .stream = stream };
	error = read_block(ng, &block);
	if (!error && block.type != BLOCK_SECTION)
		error = "unknown file format";
	if (error)
		pcap_ng_close(ng);
	return error;
}

void pcap_ng_close(struct pcap_ng *ng)
{
	free(ng->block);
	free(ng->interfaces);
}

int pcap_ng_next(struct pcap_ng *ng, struct pcap_record *record, const char **ret_error)
{
	bool is_packet = false;
	struct block block;
	const char *error;

	while (!is_packet) {
		error = read_block(ng, &block);
		if (!error && block.end)
			return 0;
		if (!error)
			error = take_block(ng, &block, record, &is_packet);
		if (error) {
			*ret_error = error;
			return -1;
		}
	}
	return 1;
}
