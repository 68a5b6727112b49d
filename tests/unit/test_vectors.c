/* SPDX-License-Identifier: BSD-3-Clause */
/* Every recorded packet: decoded, ICRC checked, encoded again and compared. */
#include <check.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "lib/wire/icrc.h"
#include "lib/wire/neighbor.h"
#include "lib/wire/packet.h"
#include "tests/vectors/pcap.h"

enum {
	MIN_FILES = 46,
	MIN_PACKETS = 2099,
	MIN_REENCODED = 2020,
	MIN_NEIGHBORS = 9,
	VERDICTS = WIRE_BAD_OPCODE + 1,
};

struct totals {
	unsigned int verdicts[VERDICTS];
	unsigned int bad_icrc;
	unsigned int reencoded;
	unsigned int neighbors;
};

/* The packets that are wrong on purpose; every other file has none. */
static const struct {
	const char *file;
	unsigned int bad_ip, bad_version, bad_opcode, bad_icrc;
} wrong_rows[] = {
	{ "rc_corrupt_bad_icrc.pcap", .bad_ip = 2, .bad_icrc = 17 },
	{ "peer_bad_icrc_ack.pcap", .bad_icrc = 1 },
	{ "peer_resp_keys.pcap", .bad_version = 1, .bad_opcode = 1, .bad_icrc = 1 },
};

enum { N_WRONG = sizeof(wrong_rows) / sizeof(wrong_rows[0]) };

static const char *vectors_dir(void)
{
	const char *dir = getenv("FRL_VECTORS");

#ifdef FRL_VECTORS_DIR
	if (!dir)
		dir = FRL_VECTORS_DIR;
#endif
	return dir ? dir : "tests/vectors";
}

/* What our encoder makes of the packet, in one piece with pad and ICRC. */
static size_t encode_like(
	uint8_t *out, const uint8_t *frame, const struct wire_packet *packet, uint8_t *ret_trailer)
{
	const uint8_t *l3 = packet->l3;
	bool ipv4 = ip_is_v4(&packet->src_ip);
	const uint8_t *udp = l3 + (ipv4 ? IPV4_LEN : IPV6_LEN);
	struct wire_path_config config = {
		.src_ip = packet->src_ip,
		.dst_ip = packet->dst_ip,
		.traffic_class = packet->traffic_class,
		.hop_limit = ipv4 ? l3[8] : l3[7],
		.udp_src_port = (uint16_t)(udp[0] << 8 | udp[1]),
	};
	struct wire_path path;

	memcpy(config.dst_mac, frame, 6);
	memcpy(config.src_mac, frame + 6, 6);
	wire_path_init(&path, &config);
	return wire_encode(out, &path, &packet->h, packet->payload_len, true, ret_trailer);
}

static void compare_encoded(
	const char *where, const uint8_t *frame, const struct wire_packet *packet)
{
	uint8_t out[WIRE_MAX_HEADERS];
	uint8_t icrc[ICRC_LEN];
	uint8_t trailer;
	size_t len = encode_like(out, frame, packet, &trailer);
	size_t payload_len = (size_t)packet->payload_len + packet->h.bth.pad;
	uint32_t crc;

	ck_assert_msg(len == ETH_LEN + packet->headers_len, "%s: %zu bytes", where, len);
	ck_assert_msg(trailer == packet->h.bth.pad + ICRC_LEN, "%s: trailer %u", where, trailer);
	ck_assert_msg(memcmp(out, frame, 12) == 0, "%s: MAC addresses", where);
	if (ip_is_v4(&packet->src_ip)) {
		/* Linux counts the identification; the header checksum follows it. */
		memcpy(out + ETH_LEN + 4, packet->l3 + 4, 2);
		memcpy(out + ETH_LEN + 10, packet->l3 + 10, 2);
	}
	for (size_t i = 0; i < packet->headers_len; i++)
		ck_assert_msg(out[ETH_LEN + i] == packet->l3[i], "%s: byte %zu is %02x, not %02x",
			where, i, out[ETH_LEN + i], packet->l3[i]);

	crc = icrc_headers(out + ETH_LEN, packet->headers_len);
	icrc_store(icrc, icrc_update(crc, packet->payload, payload_len));
	ck_assert_msg(
		memcmp(icrc, packet->payload + payload_len, ICRC_LEN) == 0, "%s: ICRC", where);
}

static void check_frame(struct totals *totals, const char *where, const uint8_t *frame, size_t len)
{
	const uint8_t held = HEADER_RETH | HEADER_AETH | HEADER_IMMDT;
	struct wire_packet packet;
	struct neighbor_message message;
	enum wire_verdict verdict = wire_decode(&packet, frame, len);

	totals->verdicts[verdict]++;
	if (verdict == WIRE_ARP || verdict == WIRE_ICMPV6) {
		totals->neighbors += neighbor_decode(&message, frame, len);
		return;
	}
	if (verdict != WIRE_OK)
		return;
	ck_assert_msg(wire_trim(&packet, true) == WIRE_OK, "%s: trailer", where);
	if (!wire_icrc_ok(&packet)) {
		totals->bad_icrc++;
		return;
	}
	if (opcode_transport(packet.h.bth.opcode) == TRANSPORT_RC &&
		!(packet.op->headers & ~held)) {
		compare_encoded(where, frame, &packet);
		totals->reencoded++;
	}
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

static void check_refused(const struct totals *totals, const char *name)
{
	unsigned int bad_ip = 0, bad_version = 0, bad_opcode = 0, bad_icrc = 0;

	for (int i = 0; i < N_WRONG; i++) {
		if (strcmp(wrong_rows[i].file, name) != 0)
			continue;
		bad_ip = wrong_rows[i].bad_ip;
		bad_version = wrong_rows[i].bad_version;
		bad_opcode = wrong_rows[i].bad_opcode;
		bad_icrc = wrong_rows[i].bad_icrc;
	}
	ck_assert_msg(totals->bad_icrc == bad_icrc, "%s: %u bad ICRCs, not %u", name,
		totals->bad_icrc, bad_icrc);
	ck_assert_msg(totals->verdicts[WIRE_BAD_IP] == bad_ip, "%s: bad IP", name);
	ck_assert_msg(totals->verdicts[WIRE_BAD_VERSION] == bad_version, "%s: bad version", name);
	ck_assert_msg(totals->verdicts[WIRE_BAD_OPCODE] == bad_opcode, "%s: bad opcode", name);
	ck_assert_msg(totals->verdicts[WIRE_SHORT] == 0, "%s: short", name);
	ck_assert_msg(totals->verdicts[WIRE_BAD_UDP] == 0, "%s: bad UDP", name);
	ck_assert_msg(totals->verdicts[WIRE_BAD_LENGTH] == 0, "%s: bad length", name);
}

static bool is_capture(const char *name)
{
	size_t len = strlen(name);

	return len > 5 && strcmp(name + len - 5, ".pcap") == 0;
}

START_TEST(every_recorded_packet)
{
	const char *dir = vectors_dir();
	unsigned int files = 0, packets = 0, reencoded = 0, neighbors = 0;
	unsigned int wrong_seen = 0;
	struct dirent *entry;
	DIR *stream = opendir(dir);

	ck_assert_msg(stream != NULL, "no folder %s: set FRL_VECTORS", dir);
	while ((entry = readdir(stream))) {
		struct totals totals = { 0 };

		if (!is_capture(entry->d_name))
			continue;
		check_file(&totals, dir, entry->d_name);
		check_refused(&totals, entry->d_name);
		for (int i = 0; i < N_WRONG; i++)
			wrong_seen += strcmp(wrong_rows[i].file, entry->d_name) == 0;
		files++;
		packets += totals.verdicts[WIRE_OK];
		reencoded += totals.reencoded;
		neighbors += totals.neighbors;
	}
	closedir(stream);
	ck_assert_uint_eq(wrong_seen, N_WRONG);
	ck_assert_uint_ge(files, MIN_FILES);
	ck_assert_uint_ge(packets, MIN_PACKETS);
	ck_assert_uint_ge(reencoded, MIN_REENCODED);
	ck_assert_uint_ge(neighbors, MIN_NEIGHBORS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("vectors");
	TCase *tcase = tcase_create("vectors");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_add_test(tcase, every_recorded_packet);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
