/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/pcap/file.h"

#include <errno.h>
#include <string.h>

#include <pcap/pcap.h>

enum {
	PCAP_NG_FIRST_BYTE = 0x0a
}; /* first byte of a section header; no pcap file starts with it */

static const char *open_pcap(struct pcap_file *file)
{
	static char error[PCAP_ERRBUF_SIZE];

	file->pcap = pcap_fopen_offline_with_tstamp_precision(
		file->stream, PCAP_TSTAMP_PRECISION_NANO, error);
	return file->pcap ? NULL : error;
}

const char *pcap_file_open(struct pcap_file *file, const char *path)
{
	const char *error;
	int first;

	*file = (struct pcap_file){ 0 };
	file->stream = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
	if (!file->stream)
		return strerror(errno);
	errno = 0;
	first = getc(file->stream);
	if (first == EOF) {
		error = errno ? strerror(errno) : "the file is empty";
	} else {
		ungetc(first, file->stream);
		error = first == PCAP_NG_FIRST_BYTE ? pcap_ng_open(&file->ng, file->stream)
						    : open_pcap(file);
	}
	if (error && file->stream != stdin)
		fclose(file->stream);
	return error;
}

void pcap_file_close(struct pcap_file *file)
{
	if (file->pcap) {
		pcap_close(file->pcap);
		return;
	}
	pcap_ng_close(&file->ng);
	if (file->stream != stdin)
		fclose(file->stream);
}

int pcap_file_next(struct pcap_file *file, struct pcap_record *record, const char **ret_error)
{
	struct pcap_pkthdr *header;
	const uint8_t *frame;
	int result;

	if (!file->pcap)
		return pcap_ng_next(&file->ng, record, ret_error);
	result = pcap_next_ex(file->pcap, &header, &frame);
	if (result == PCAP_ERROR_BREAK)
		return 0;
	if (result != 1) {
		*ret_error = pcap_geterr(file->pcap);
		return -1;
	}
	/* The file was opened for nanoseconds. Damaged times wrap around. */
	*record = (struct pcap_record){
		.link_type = pcap_datalink(file->pcap),
		.frame = frame,
		.captured = header->caplen,
		.len = header->len,
		.time_ns = (uint64_t)header->ts.tv_sec * 1000000000 + (uint64_t)header->ts.tv_usec,
	};
	return 1;
}
