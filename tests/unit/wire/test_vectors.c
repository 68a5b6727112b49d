/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every recorded packet: decoded, ICRC checked, encoded again to the same bytes, and counted.
 * expected.txt has the counts that ferrule-pcap prints; they come from another implementation.
 */
#include <check.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/wire/checksum.h"
#include "lib/wire/icrc.h"
#include "lib/wire/neighbor.h"
#include "lib/wire/packet.h"
#include "tests/fixtures/program.h"
#include "tests/vectors/pcap.h"

enum {
	FILES = 73,
	ROCE_PACKETS = 2653,
	NEIGHBOR_FRAMES = 16, /* ARP and neighbour discovery that are decoded */
	VERDICTS = WIRE_BAD_OPCODE + 1,
	MAX_LINE = 1024,
};

struct totals {
	unsigned int verdicts[VERDICTS];
	unsigned int opcodes[256];
	unsigned int bad_icrc;
	unsigned int neighbors;
};

/*
 * RoCE packets that wire_decode() refuses, and so tells nothing of. They are in expected.txt, which
 * counts every packet to the port.
 */
static const struct refused {
	const char *file;
	enum wire_verdict verdict;
	uint8_t opcode;
	unsigned int packets;
	bool bad_icrc;
} refused_rows[] = {
	/* A bit of the IPv4 header is flipped, and not one that the ICRC leaves out. */
	{ "rc_corrupt_bad_icrc.pcap", WIRE_BAD_IP, OP_SEND_ONLY, 1, true },
	{ "rc_corrupt_bad_icrc.pcap", WIRE_BAD_IP, OP_SEND_LAST, 1, true },
	{ "peer_resp_keys.pcap", WIRE_BAD_VERSION, OP_SEND_ONLY, 1, false },
	{ "peer_resp_keys.pcap", WIRE_BAD_OPCODE, 0x15, 1, false },
};

static const char *vectors_dir(void)
{
	const char *dir = getenv("FRL_VECTORS");

#ifdef FRL_VECTORS_DIR
	if (!dir)
		dir = FRL_VECTORS_DIR;
#endif
	return dir ? dir : "tests/vectors";
}

/* A path that leads where the packet went. */
static struct wire_path path_like(const uint8_t *frame, const struct wire_packet *packet)
{
	const uint8_t *l3 = packet->l3;
	bool ipv4 = ip_is_v4(&packet->src_ip);
	struct wire_path_config config = {
		.src_ip = packet->src_ip,
		.dst_ip = packet->dst_ip,
		.vlan = packet->vlan,
		.priority = packet->priority,
		.traffic_class = packet->traffic_class,
		.hop_limit = ipv4 ? l3[8] : l3[7],
		.flow_label = ipv4 ? 0 : get_be32(l3) & 0xfffff,
		.udp_src_port = get_be16(l3 + (ipv4 ? IPV4_LEN : IPV6_LEN)),
	};
	struct wire_path path;

	memcpy(config.dst_mac, frame, 6);
	memcpy(config.src_mac, frame + 6, 6);
	wire_path_init(&path, &config);
	return path;
}

/* Our encoding of the packet, from the Ethernet header to the ICRC. */
static size_t encode_like(uint8_t *out, const uint8_t *frame, const struct wire_packet *packet)
{
	struct wire_path path = path_like(frame, packet);
	const uint8_t *ip = packet->l3;
	uint8_t trailer;
	size_t headers = wire_encode(out, &path, &packet->h, packet->payload_len, true, &trailer);
	size_t end = headers + packet->payload_len;
	uint32_t crc;

	if (ip_is_v4(&packet->src_ip)) {
		/* Linux counts the identification; ours is 0. The checksum follows it. */
		uint8_t *ours = out + path.l3_offset;
		uint64_t sum;

		memcpy(ours + 4, ip + 4, 2);
		memset(ours + 10, 0, 2);
		sum = checksum_add(0, ours, IPV4_LEN);
		memcpy(ours + 10, &(uint16_t){ (uint16_t)~checksum_fold(sum) }, 2);
	}
	memcpy(out + headers, packet->payload, packet->payload_len);
	memset(out + end, 0, trailer);
	end += trailer - (size_t)ICRC_LEN;
	crc = icrc_headers(out + path.l3_offset, headers - path.l3_offset);
	icrc_store(out + end, icrc_update(crc, out + headers, end - headers));
	return end + ICRC_LEN;
}

/* Everything is the same; where the recorded ICRC is wrong, everything else. */
static void compare_encoded(
	const char *where, const uint8_t *frame, const struct wire_packet *packet, bool icrc_ok)
{
	static uint8_t out[PCAP_MAX_FRAME];
	size_t headers_end = (size_t)(packet->l3 - frame) + packet->headers_len;
	size_t want = headers_end + packet->payload_len + packet->h.bth.pad + ICRC_LEN;
	size_t len = encode_like(out, frame, packet);

	ck_assert_msg(len == want, "%s: %zu bytes, not %zu", where, len, want);
	if (!icrc_ok)
		len -= ICRC_LEN;
	for (size_t i = 0; i < len; i++)
		ck_assert_msg(out[i] == frame[i], "%s: byte %zu of %zu is %02x, not %02x", where, i,
			len, out[i], frame[i]);
}

static void check_frame(struct totals *totals, const char *where, const uint8_t *frame, size_t len)
{
	struct wire_packet packet;
	struct neighbor_message message;
	enum wire_verdict verdict = wire_decode(&packet, frame, len);
	bool icrc_ok;

	totals->verdicts[verdict]++;
	if (verdict == WIRE_ARP || verdict == WIRE_ICMP) {
		totals->neighbors += neighbor_decode(&message, frame, len);
		return;
	}
	if (verdict != WIRE_OK)
		return;
	ck_assert_msg(wire_trim(&packet, true) == WIRE_OK, "%s: trailer", where);
	totals->opcodes[packet.h.bth.opcode]++;
	icrc_ok = wire_icrc_ok(&packet);
	totals->bad_icrc += !icrc_ok;
	compare_encoded(where, frame, &packet, icrc_ok);
}

/* Each frame goes into a block of its size, so that the address sanitizer sees its end. */
static void check_file(struct totals *totals, const char *dir, const char *name)
{
	static uint8_t buffer[PCAP_MAX_FRAME];
	struct pcap_file file;
	char path[4096];
	char where[512];
	size_t len;
	int number = 0;
	int result;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	ck_assert_msg(pcap_file_open(&file, path) == 0, "%s", path);
	while ((result = pcap_file_next(&file, buffer, sizeof(buffer), &len)) == 1) {
		uint8_t *frame = malloc(len);

		ck_assert_ptr_nonnull(frame);
		memcpy(frame, buffer, len);
		snprintf(where, sizeof(where), "%s #%d", name, ++number);
		check_frame(totals, where, frame, len);
		free(frame);
	}
	ck_assert_msg(result == 0, "%s is cut behind frame %d", path, number);
	pcap_file_close(&file);
}

/* Refused packets are those of the table; they are counted with the others from here on. */
static void add_refused(struct totals *totals, const char *name)
{
	unsigned int expected[VERDICTS] = { 0 };

	for (int i = 0; i < ROWS(refused_rows); i++) {
		const struct refused *row = &refused_rows[i];

		if (strcmp(row->file, name) != 0)
			continue;
		expected[row->verdict] += row->packets;
		totals->opcodes[row->opcode] += row->packets;
		totals->bad_icrc += row->bad_icrc ? row->packets : 0;
	}
	for (int verdict = WIRE_SHORT; verdict < VERDICTS; verdict++)
		ck_assert_msg(totals->verdicts[verdict] == expected[verdict], "%s: %u %s, not %u",
			name, totals->verdicts[verdict],
			wire_verdict_name((enum wire_verdict)verdict), expected[verdict]);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* The counts in the form of expected.txt. Returns how many RoCE packets there are. */
static unsigned int format_totals(
	char line[MAX_LINE], const char *name, const struct totals *totals)
{
	char counts[256][40];
	unsigned int roce = 0;
	size_t n = 0;
	int at;

	for (int i = 0; i < 256; i++) {
		if (!totals->opcodes[i])
			continue;
		roce += totals->opcodes[i];
		if (opcode_known((uint8_t)i))
			snprintf(counts[n++], sizeof(counts[0]), " %s=%u", opcode_table[i].name,
				totals->opcodes[i]);
		else
			snprintf(counts[n++], sizeof(counts[0]), " 0x%02x=%u", i,
				totals->opcodes[i]);
	}
	qsort(counts, n, sizeof(counts[0]), by_text);
	at = snprintf(line, MAX_LINE, "%s: roce=%u bad_icrc=%u", name, roce, totals->bad_icrc);
	for (size_t i = 0; i < n; i++)
		at += snprintf(line + at, (size_t)(MAX_LINE - at), "%s", counts[i]);
	ck_assert_int_lt(at, MAX_LINE);
	return roce;
}

START_TEST(every_recorded_packet)
{
	const char *dir = vectors_dir();
	unsigned int files = 0, packets = 0, neighbors = 0;
	char expected[MAX_LINE], line[MAX_LINE];
	char path[4096];
	FILE *stream;

	snprintf(path, sizeof(path), "%s/expected.txt", dir);
	stream = fopen(path, "r");
	ck_assert_msg(stream != NULL, "no file %s: set FRL_VECTORS", path);
	while (fgets(expected, sizeof(expected), stream)) {
		struct totals totals = { 0 };
		char name[256];

		ck_assert_int_eq(sscanf(expected, "%255[^:]", name), 1);
		expected[strcspn(expected, "\n")] = '\0';
		check_file(&totals, dir, name);
		add_refused(&totals, name);
		packets += format_totals(line, name, &totals);
		ck_assert_str_eq(line, expected);
		files++;
		neighbors += totals.neighbors;
	}
	fclose(stream);
	ck_assert_uint_eq(files, FILES);
	ck_assert_uint_eq(packets, ROCE_PACKETS);
	ck_assert_uint_eq(neighbors, NEIGHBOR_FRAMES);
}
END_TEST

/* No capture is forgotten in expected.txt. */
START_TEST(every_file_is_expected)
{
	DIR *stream = opendir(vectors_dir());
	struct dirent *entry;
	int files = 0;

	ck_assert_msg(stream != NULL, "no folder %s: set FRL_VECTORS", vectors_dir());
	while ((entry = readdir(stream))) {
		size_t len = strlen(entry->d_name);

		files += len > 5 && strcmp(entry->d_name + len - 5, ".pcap") == 0;
	}
	closedir(stream);
	ck_assert_int_eq(files, FILES);
}
END_TEST

TEST_FILE(vectors)
