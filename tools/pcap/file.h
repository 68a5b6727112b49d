/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads capture files, pcap and pcapng, frame by frame. pcap is read by libpcap. pcapng is not,
 * because libpcap refuses files whose interfaces differ, such as merged captures. One thread per
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
	struct pcap *pcap; /* NULL: the file is pcapng */
	struct pcap_ng ng;
};

/*
 * Opens a file; "-" is standard input. Returns NULL, or the reason of the failure, a text that is
 * valid until the next call. After a failure there is nothing to close.
 */
const char *pcap_file_open(struct pcap_file *file, const char *path);
void pcap_file_close(struct pcap_file *file);

/*
 * Reads the next frame, which is valid until the next call. Returns 1, 0 at the end, or -1 if the
 * rest cannot be read; *ret_error then says why.
 */
int pcap_file_next(struct pcap_file *file, struct pcap_record *record, const char **ret_error);

#endif
