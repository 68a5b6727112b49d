/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/vectors/pcap.h"

#include <errno.h>

#include "lib/base/bytes.h"

enum {
	FILE_HEADER_LEN = 24,
	FRAME_HEADER_LEN = 16,
	LINKTYPE_ETHERNET = 1,
};

#define MAGIC_MICROSECONDS UINT32_C(0xa1b2c3d4)
#define MAGIC_NANOSECONDS  UINT32_C(0xa1b23c4d)

static bool is_magic(uint32_t value)
{
	return value == MAGIC_MICROSECONDS || value == MAGIC_NANOSECONDS;
}

static uint32_t get_u32(const struct pcap_file *file, const uint8_t *p)
{
	return file->big_endian ? get_be32(p) : get_le32(p);
}

static bool read_file_header(struct pcap_file *file)
{
	uint8_t header[FILE_HEADER_LEN];

	if (fread(header, sizeof(header), 1, file->stream) != 1)
		return false;
	file->big_endian = is_magic(get_be32(header));
	return is_magic(get_u32(file, header)) && get_u32(file, header + 20) == LINKTYPE_ETHERNET;
}

int pcap_file_open(struct pcap_file *file, const char *path)
{
	file->stream = fopen(path, "rb");
	if (!file->stream)
		return -errno;
	if (!read_file_header(file)) {
		pcap_file_close(file);
		return -EINVAL;
	}
	return 0;
}

void pcap_file_close(struct pcap_file *file)
{
	if (file->stream)
		fclose(file->stream);
	file->stream = NULL;
}

int pcap_file_next(struct pcap_file *file, uint8_t *frame, size_t size, size_t *ret_len)
{
	uint8_t header[FRAME_HEADER_LEN];
	size_t got = fread(header, 1, sizeof(header), file->stream);
	uint32_t len;

	if (got == 0)
		return 0;
	if (got < sizeof(header))
		return -EINVAL;
	len = get_u32(file, header + 8);
	if (len > size || len != get_u32(file, header + 12))
		return -EINVAL;
	if (fread(frame, 1, len, file->stream) != len)
		return -EINVAL;
	*ret_len = len;
	return 1;
}
