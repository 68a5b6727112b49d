/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads capture files, pcap and pcapng, frame by frame. pcap goes through libpcap; pcapng does not,
 * since that refuses files whose interfaces differ, as those of merged captures do. One thread a
 * file.
 */
#ifndef FERRULE_TOOLS_PCAP_FILE_H
#define FERRULE_TOOLS_PCAP_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/pcap/pcapng.h"

struct pcap;

struct pcap_file {
	FILE *stream;
	struct pcap *pcap; /* NULL: it is pcapng */
	struct pcap_ng ng;
};

/*
 * "-" is standard input. NULL, or why it cannot be read: a text that stays until the next call.
 * There is nothing to close then.
 */
const char *pcap_file_open(struct pcap_file *file, const char *path);
void pcap_file_close(struct pcap_file *file);

/*
 * The next frame, which stays until the next call. 1, 0 at the end, -1 when the rest cannot be read
 * and *ret_error says why.
 */
int pcap_file_next(struct pcap_file *file, struct pcap_record *record, const char **ret_error);

#endif
