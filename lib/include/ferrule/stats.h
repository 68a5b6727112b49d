/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counters of a device. Names, struct and output come from one list, so they cannot differ.
 *
 * Threads: any thread may call these functions.
 */
#ifndef FERRULE_STATS_H
#define FERRULE_STATS_H

#include <stddef.h>
#include <stdint.h>

#include <ferrule/error.h>

#ifdef __cplusplus
extern "C" {
#endif

struct frl_device;

/* X(name, explanation) */
#define FRL_COUNTERS(X)                                                                        \
	X(rx_packets, "frames received")                                                       \
	X(rx_bytes, "bytes of those, from the Ethernet header")                                \
	X(tx_packets, "frames handed to the port")                                             \
	X(tx_bytes, "bytes of those")                                                          \
	X(rx_requests, "request packets accepted in order")                                    \
	X(rx_acks, "acknowledgements that moved the window")                                   \
	X(tx_acks, "acknowledgements sent")                                                    \
	X(retransmits, "request packets sent again")                                           \
	X(timeouts, "local ACK timeouts")                                                      \
	X(naks_sent_seq, "PSN sequence NAKs sent")                                             \
	X(naks_received_seq, "PSN sequence NAKs received")                                     \
	X(naks_sent_rnr, "receiver-not-ready NAKs sent")                                       \
	X(naks_received_rnr, "receiver-not-ready NAKs received")                               \
	X(naks_sent_fatal, "invalid request, access and operational NAKs sent")                \
	X(naks_received_fatal, "invalid request, access and operational NAKs received")        \
	X(duplicates, "request packets received again")                                        \
	X(out_of_sequence, "request packets ahead of the expected PSN, dropped")               \
	X(stale_acks, "acknowledgements and responses outside the window, dropped")            \
	X(implied_naks, "answers that showed that a READ or atomic response was lost")         \
	X(reads_served, "READ requests accepted")                                              \
	X(atomics_executed, "atomics carried out")                                             \
	X(replays, "READs and atomics answered again for a repeated request")                  \
	X(drop_no_replay, "repeated READs and atomics of which nothing is saved, dropped")     \
	X(drop_no_recv, "UC and UD: no receive request, or one that is too small")             \
	X(drop_message, "UC: packets of messages that lost one, dropped")                      \
	X(drop_bad_qkey, "UD: Q_Key mismatch")                                                 \
	X(drop_datagram, "datagrams dropped because the way to their destination was blocked") \
	X(cnps_received, "congestion notifications received")                                  \
	X(bytes_placed, "payload bytes copied to their destination")                           \
	X(bytes_reduced, "payload bytes reduced into their destination")                       \
	X(offload_placed, "payload bytes moved into GPU memory by way of packet buffers")      \
	X(offload_gathered, "payload bytes moved out of GPU memory into packets")              \
	X(offload_direct, "payload bytes moved from where the NIC put them in GPU memory")     \
	X(offload_fetched, "bytes of frames fetched from where the NIC put them there")        \
	X(offload_forwarded, "payload bytes sent out of the packets that had brought them")    \
	X(offload_fused, "payload bytes sent as a reduction had written them for that")        \
	X(retained_missed, "packets to be forwarded whose payload was no longer retained")     \
	X(offload_waits, "packets dropped for want of room while a GPU was busy: RC repeats")  \
	X(cq_overruns, "completions lost to a full completion queue")                          \
	X(drop_not_for_us, "frames for another MAC or IP address, or another protocol")        \
	X(drop_short, "frames shorter than their headers")                                     \
	X(drop_bad_ip, "IP header malformed, fragmented or with a bad checksum")               \
	X(drop_bad_udp, "UDP length or checksum wrong")                                        \
	X(drop_bad_length, "transport length not a multiple of 4, or pad longer than payload") \
	X(drop_bad_version, "BTH transport version not 0")                                     \
	X(drop_bad_opcode, "opcode unknown, or not of the queue pair's transport")             \
	X(drop_bad_pkey, "P_Key mismatch")                                                     \
	X(drop_bad_icrc, "invariant CRC wrong")                                                \
	X(drop_unknown_qp, "no queue pair of that number")                                     \
	X(drop_wrong_peer, "source is not the peer of the queue pair")                         \
	X(drop_qp_state, "queue pair not in a state that receives")                            \
	X(drop_bad_aeth, "acknowledgement with a reserved syndrome")                           \
	X(drop_port, "frames that the port driver lost or refused")                            \
	X(neighbor_requests, "ARP requests and neighbour solicitations answered")              \
	X(echo_requests, "ICMP echo requests answered")                                        \
	X(loopback_packets, "packets between queue pairs of this device")

struct frl_stats {
#define FRL_COUNTER_FIELD(name, what) uint64_t name;
	FRL_COUNTERS(FRL_COUNTER_FIELD)
#undef FRL_COUNTER_FIELD
};

/* Copies the counters since the device was opened. */
FRL_API void frl_device_stats(struct frl_device *device, struct frl_stats *ret_stats);

/*
 * Returns name, explanation and value of the counter number `index`, in the outputs that are not
 * NULL. Returns -ENOENT past the last counter.
 */
FRL_API int frl_stats_entry(const struct frl_stats *stats, size_t index, const char **ret_name,
	const char **ret_what, uint64_t *ret_value);

#ifdef __cplusplus
}
#endif
#endif
