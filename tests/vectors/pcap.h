/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads classic pcap files of Ethernet frames, in either byte order; nothing else of the format.
 * A file belongs to one thread.
 */
#ifndef FERRULE_TESTS_VECTORS_PCAP_H
#define FERRULE_TESTS_VECTORS_PCAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { PCAP_MAX_FRAME = 65536 };

struct pcap_file {
	FILE *stream;
	bool big_endian;
};

/* -ENOENT and the like; -EINVAL for another format. */
int pcap_file_open(struct pcap_file *file, const char *path);
void pcap_file_close(struct pcap_file *file);

/*
 * Reads the next frame. Returns 1, 0 at the end of the file, -EINVAL when the file is cut or the
 * frame is longer than `size` or was not recorded whole.
 */
int pcap_file_next(struct pcap_file *file, uint8_t *frame, size_t size, size_t *ret_len);

#endif
