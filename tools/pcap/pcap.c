/* SPDX-License-Identifier: BSD-3-Clause */
/* ferrule-pcap: counts and shows the RoCEv2 packets of capture files. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pcap/pcap.h>

#include "tools/pcap/file.h"
#include "tools/pcap/print.h"

enum { EXIT_USAGE = 2, OPCODES = 256, OPT_VERSION = 1000 };

static const char help[] =
	"Counts and decodes the RoCEv2 packets of capture files.\n"
	"\n"
	"  ferrule-pcap [-v] FILE...\n"
	"\n"
	"Prints one line per file:\n"
	"\n"
	"  FILE: roce=N bad_icrc=N NAME=N NAME=N ...\n"
	"\n"
	"  roce=N       packets: UDP to port 4791 with room for a BTH and an ICRC, even if other\n"
	"               fields are wrong\n"
	"  bad_icrc=N   packets with a wrong ICRC\n"
	"  truncated=N  packets that the capture truncated, if there are any; their ICRC is\n"
	"               unknown and not counted as wrong\n"
	"  NAME=N       packets with this opcode, sorted by name, including bad and truncated\n"
	"               ones. Names: RC_, UC_ or UD_ and the operation, such as RC_SEND_ONLY,\n"
	"               UC_WRITE_LAST_IMM and RC_READ_RESP_FIRST; CNP; 0xNN for an unknown\n"
	"               opcode; UNKNOWN if the capture ends before the opcode\n"
	"\n"
	"FILE is a capture in pcap or pcapng format; - is standard input. Frames may be Ethernet,\n"
	"Linux cooked (version 1 and 2), raw IP or BSD loopback. VLAN tags, IPv4 options and IPv6\n"
	"extension headers are skipped; the ICRC covers the latter two.\n"
	"\n"
	"Options:\n"
	"  -v, --verbose   also print one line per packet, with words and name=value pairs:\n"
	"                    #FRAME SECONDS SOURCE:PORT > DESTINATION:PORT [vlan= pcp=]...\n"
	"                    [tos=] [flow=] OPCODE qpn= psn= [A] [SE] [M] [FECN] [BECN] [tver=]\n"
	"                    [pkey=] HEADERS payload= pad= icrc=ok|BAD|unknown\n"
	"                  SECONDS are relative to the first frame of the file. A: AckReq, SE:\n"
	"                  solicited event, M: MigReq. tos=, flow=, tver= and pkey= are shown if\n"
	"                  they differ from 0, 0, 0 and 0xffff. HEADERS are those of the opcode:\n"
	"                  qkey= src_qpn= (DETH), va= rkey= dma_length= (RETH), va= rkey= swap=\n"
	"                  compare= or add= (AtomicETH), syndrome= msn= (AETH), original=\n"
	"                  (AtomicAckETH), imm= (ImmDt), invalidate= (IETH); headers=short: the\n"
	"                  packet ends before they do, headers=truncated: the capture does.\n"
	"  -h, --help      print this text\n"
	"  --version       print the version\n"
	"\n"
	"Exit status: 0 all files were read, 1 a file could not be read to its end (packets\n"
	"before the error are counted, and the other files are read), 2 invalid usage. Damaged\n"
	"packets do not change the status.\n";

struct totals {
	uint64_t frames;
	uint64_t unknown_link; /* frames */
	int unknown_link_type;
	uint64_t roce;
	uint64_t bad_icrc;
	uint64_t truncated;
	uint64_t no_opcode;
	uint64_t opcodes[OPCODES];
};

struct count {
	const char *name;
	uint64_t n;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct count *)a)->name, ((const struct count *)b)->name);
}

static void print_totals(const char *path, const struct totals *totals)
{
	char texts[OPCODES][8];
	struct count counts[OPCODES + 1];
	size_t n = 0;

	for (unsigned i = 0; i < OPCODES; i++)
		if (totals->opcodes[i])
			counts[n++] = (struct count){ pcap_opcode_name((uint8_t)i, texts[i]),
				totals->opcodes[i] };
	if (totals->no_opcode)
		counts[n++] = (struct count){ "UNKNOWN", totals->no_opcode };
	qsort(counts, n, sizeof(counts[0]), by_name);
	printf("%s: roce=%" PRIu64 " bad_icrc=%" PRIu64, path, totals->roce, totals->bad_icrc);
	if (totals->truncated)
		printf(" truncated=%" PRIu64, totals->truncated);
	for (size_t i = 0; i < n; i++)
		printf(" %s=%" PRIu64, counts[i].name, counts[i].n);
	putchar('\n');
}

static enum pcap_icrc count_packet(struct totals *totals, const struct pcap_packet *packet)
{
	totals->roce++;
	if (packet->captured > packet->bth)
		totals->opcodes[packet->l3[packet->bth]]++;
	else
		totals->no_opcode++;
	if (packet->captured < packet->end) {
		totals->truncated++;
		return PCAP_ICRC_UNKNOWN;
	}
	if (pcap_icrc_ok(packet))
		return PCAP_ICRC_OK;
	totals->bad_icrc++;
	return PCAP_ICRC_BAD;
}

static void take_frame(
	struct totals *totals, const struct pcap_record *record, uint64_t first_ns, bool verbose)
{
	struct pcap_packet packet;
	enum pcap_icrc icrc;

	totals->frames++;
	if (!pcap_knows_link(record->link_type)) {
		totals->unknown_link++;
		totals->unknown_link_type = record->link_type;
		return;
	}
	if (!pcap_find(&packet, record->link_type, record->frame, record->captured, record->len))
		return;
	icrc = count_packet(totals, &packet);
	if (verbose)
		pcap_print(&packet, totals->frames, (int64_t)(record->time_ns - first_ns), icrc);
}

static int print_error(const char *path, const char *reason)
{
	fflush(stdout);
	fprintf(stderr, "ferrule-pcap: %s: %s\n", path, reason);
	return EXIT_FAILURE;
}

static int print_unknown_link(const char *path, const struct totals *totals)
{
	const char *name = pcap_datalink_val_to_name(totals->unknown_link_type);
	char reason[256];

	snprintf(reason, sizeof(reason),
		"%" PRIu64 " frames were not looked at: link type %d (%s) is none that is known "
		"here; record Ethernet, Linux cooked, raw IP or BSD loopback frames",
		totals->unknown_link, totals->unknown_link_type, name ? name : "unknown");
	return print_error(path, reason);
}

static int count_file(const char *path, bool verbose)
{
	struct totals totals = { 0 };
	struct pcap_record record;
	int status = EXIT_SUCCESS;
	struct pcap_file file;
	const char *error;
	uint64_t first_ns = 0;
	int result;

	error = pcap_file_open(&file, path);
	if (error)
		return print_error(path, error);
	while ((result = pcap_file_next(&file, &record, &error)) == 1) {
		if (!totals.frames)
			first_ns = record.time_ns;
		take_frame(&totals, &record, first_ns, verbose);
	}
	if (!totals.unknown_link || totals.unknown_link < totals.frames)
		print_totals(path, &totals);
	if (totals.unknown_link)
		status = print_unknown_link(path, &totals);
	if (result < 0)
		status = print_error(path, error);
	pcap_file_close(&file);
	return status;
}

static int usage_error(const char *what)
{
	fprintf(stderr, "ferrule-pcap: %s; --help says more\n", what);
	return EXIT_USAGE;
}

static int finish_output(int status)
{
	if (fflush(stdout) != 0 || ferror(stdout))
		return print_error("standard output", strerror(errno));
	return status;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "verbose", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, OPT_VERSION },
		{ NULL, 0, NULL, 0 },
	};
	bool verbose = false;
	int status = EXIT_SUCCESS;
	int option;

	while ((option = getopt_long(argc, argv, "vh", options, NULL)) != -1) {
		switch (option) {
		case 'v': verbose = true; break;
		case 'h': fputs(help, stdout); return finish_output(EXIT_SUCCESS);
		case OPT_VERSION:
			puts("ferrule-pcap " FERRULE_VERSION);
			return finish_output(EXIT_SUCCESS);
		default: return usage_error("bad option");
		}
	}
	if (optind == argc)
		return usage_error("no file given");
	for (; optind < argc; optind++)
		if (count_file(argv[optind], verbose) != EXIT_SUCCESS)
			status = EXIT_FAILURE;
	return finish_output(status);
}
