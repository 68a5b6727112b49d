/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints one line per packet on standard output. One thread. */
#ifndef FERRULE_TOOLS_PCAP_PRINT_H
#define FERRULE_TOOLS_PCAP_PRINT_H

#include <stdint.h>

#include "tools/pcap/frame.h"

/* Returns the name of an opcode, or 0xNN in `text`. */
const char *pcap_opcode_name(uint8_t opcode, char text[static 8]);

enum pcap_icrc { PCAP_ICRC_OK, PCAP_ICRC_BAD, PCAP_ICRC_UNKNOWN };

/*
 * Prints a packet. `number` counts the frames of the file from 1. The time is relative to the first
 * frame.
 */
void pcap_print(const struct pcap_packet *packet, uint64_t number, int64_t since_first_ns,
	enum pcap_icrc icrc);

#endif
