/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counters of a port from sysfs, since this device was opened. They count the traffic of all
 * programs that use the hardware. Counters that a driver lacks are 0.
 */
#include "drivers/verbs/internal.h"

#include <stdio.h>

static const struct source {
	const char *file; /* below ports/N/ */
	size_t offset;    /* offset in struct frl_stats */
	uint32_t unit;
} sources[] = {
/* clang-format off */
#define COUNTER(file, name, unit) { file, offsetof(struct frl_stats, name), unit },
	COUNTER("counters/port_rcv_packets", rx_packets, 1)
	COUNTER("counters/port_rcv_data", rx_bytes, 4)
	COUNTER("counters/port_xmit_packets", tx_packets, 1)
	COUNTER("counters/port_xmit_data", tx_bytes, 4)
	COUNTER("counters/port_rcv_errors", drop_port, 1)
	COUNTER("counters/port_xmit_discards", drop_port, 1)
	/* mlx5 */
	COUNTER("hw_counters/duplicate_request", duplicates, 1)
	COUNTER("hw_counters/out_of_sequence", out_of_sequence, 1)
	COUNTER("hw_counters/packet_seq_err", naks_received_seq, 1)
	COUNTER("hw_counters/rnr_nak_retry_err", naks_received_rnr, 1)
	COUNTER("hw_counters/local_ack_timeout_err", timeouts, 1)
	COUNTER("hw_counters/implied_nak_seq_err", implied_naks, 1)
	COUNTER("hw_counters/rx_read_requests", reads_served, 1)
	COUNTER("hw_counters/rx_atomic_requests", atomics_executed, 1)
	COUNTER("hw_counters/rp_cnp_handled", cnps_received, 1)
	COUNTER("hw_counters/rx_icrc_encapsulated", drop_bad_icrc, 1)
	/* bnxt_re */
	COUNTER("hw_counters/to_retransmits", timeouts, 1)
	COUNTER("hw_counters/seq_err_naks_rcvd", naks_received_seq, 1)
	COUNTER("hw_counters/rnr_naks_rcvd", naks_received_rnr, 1)
	COUNTER("hw_counters/dup_req", duplicates, 1)
	COUNTER("hw_counters/rx_cnp_pkts", cnps_received, 1)
	/* rxe */
	COUNTER("hw_counters/rcvd_pkts", rx_packets, 1)
	COUNTER("hw_counters/sent_pkts", tx_packets, 1)
	COUNTER("hw_counters/out_of_seq_request", out_of_sequence, 1)
	COUNTER("hw_counters/rcvd_seq_err", naks_received_seq, 1)
	COUNTER("hw_counters/rcvd_rnr_err", naks_received_rnr, 1)
	COUNTER("hw_counters/send_rnr_err", naks_sent_rnr, 1)
	COUNTER("hw_counters/completer_retry_err", retransmits, 1)
#undef COUNTER
	/* clang-format on */
};

#define ONE(name, what) +1
_Static_assert(sizeof(struct frl_stats) == (0 FRL_COUNTERS(ONE)) * sizeof(uint64_t),
	"counters of 64 bits, and nothing else");
#undef ONE

static uint64_t read_number(const char *path)
{
	unsigned long long value = 0;
	FILE *file = fopen(path, "re");

	if (!file)
		return 0;
	if (fscanf(file, "%llu", &value) != 1)
		value = 0;
	fclose(file);
	return value;
}

static uint64_t *counter_at(struct frl_stats *stats, size_t offset)
{
	return (uint64_t *)(void *)((char *)stats + offset);
}

void verbs_read_stats(struct verbs_device *device, struct frl_stats *ret_stats)
{
	char path[IBV_SYSFS_PATH_MAX + 64];

	*ret_stats = (struct frl_stats){ 0 };
	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
		snprintf(path, sizeof(path), "%s/ports/%d/%s", device->path, device->port,
			sources[i].file);
		*counter_at(ret_stats, sources[i].offset) += read_number(path) * sources[i].unit;
	}
}

void verbs_stats(struct frl_device *base, struct frl_stats *ret_stats)
{
	struct verbs_device *device = verbs_device(base);

	verbs_read_stats(device, ret_stats);
	for (size_t at = 0; at < sizeof(*ret_stats); at += sizeof(uint64_t)) {
		uint64_t first = *counter_at(&device->first, at);

		/* The counter may have been reset. */
		*counter_at(ret_stats, at) -= first <= *counter_at(ret_stats, at) ? first : 0;
	}
}
