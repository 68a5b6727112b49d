/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads pcapng files (draft-ietf-opsawg-pcapng): sections of either byte order, any number of
 * interfaces, packets in all three kinds of block. Other blocks are skipped. One thread per file.
 */
#ifndef FERRULE_TOOLS_PCAP_PCAPNG_H
#define FERRULE_TOOLS_PCAP_PCAPNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A recorded frame. */
struct pcap_record {
	int link_type; /* DLT_* of libpcap */
	const uint8_t *frame;
	size_t captured;
	size_t len; /* original length; at least `captured` unless the file is damaged */
	uint64_t time_ns;
};

struct pcap_ng_interface;

struct pcap_ng {
	FILE *stream;
	bool big_endian;
	uint8_t *block; /* body of the latest block */
	size_t block_size;
	struct pcap_ng_interface *interfaces; /* interfaces of the section */
	size_t n_interfaces;
};

/*
 * Starts to read a stream from its beginning. The caller closes the stream. Returns NULL, or what
 * is wrong.
 */
const char *pcap_ng_open(struct pcap_ng *ng, FILE *stream);
void pcap_ng_close(struct pcap_ng *ng);

/* Reads the next frame; see pcap_file_next(). */
int pcap_ng_next(struct pcap_ng *ng, struct pcap_record *record, const char **ret_error);

#endif
