/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the files of this driver. A port is one ethdev, which is link 0. Its state is accessed
 * only under the port's guard.
 */
#ifndef FERRULE_DRIVERS_DPDK_INTERNAL_H
#define FERRULE_DRIVERS_DPDK_INTERNAL_H

/* For DMA maps of devices, which DPDK 22.11 declares experimental. Later releases keep them
 * unchanged. */
#define ALLOW_EXPERIMENTAL_API

#include <sys/queue.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "drivers/dpdk/dpdk.h"
#include "drivers/interface.h"

enum {
	MAX_REFERENCES =
		4, /* payload pieces of a packet sent by reference; with more, all are copied */
};

struct dpdk_port {
	struct port base;
	struct rte_mempool *rx_pool; /* whole frames: received ones, and copies to send */
	struct rte_mempool *tx_pool; /* headers, trailers, references to payload */
	bool copies;                 /* payload is always copied */
	bool needs_objects;          /* the PMD's memory is the rx pool's objects themselves */
	/* Packets are built by segments.c: references do not reach all memory, a segment must not
	 * cross multiples of `page` bytes (0: it may), or a packet may have few segments. */
	bool cuts;
	uint32_t page;
	uint16_t max_segments;
	uint16_t ethdev;
	uint16_t batch; /* packets to build for one tx burst: adapts to what the queue takes */
	struct port_stats dropped;
	/* Length of the first received frame that no buffer can hold; 0: none so far. */
	uint32_t refused_len;
	uint32_t max_payload; /* as requested, then as the MTU allows */
	uint32_t min_payload;

	struct rte_device *device;
	const struct gid_table *gids; /* valid during the open */
	char name[RTE_ETH_NAME_MAX_LEN];
	char interface[IF_NAMESIZE]; /* kernel interface; empty: none */
	bool needs_dma;              /* payload must be mapped for the device */
	bool cpu_reads_payload;      /* packets may refer to any memory of the process */
	bool holds_payload;          /* sent packets are released only on request to the PMD */
	uint64_t queued;             /* packets that the PMD has taken */
	uint64_t flushed, restarted; /* value of `queued` at the last such mem_flush() */
	bool reported_refusal, reported_errors; /* each is logged once */
	LIST_HEAD(, port_mem) mapped;
	LIST_HEAD(, port_mem) covered; /* memory inside one of these, which uses its map */
	int multicast_fd; /* makes the interface take all multicast while open; or -1 */
};

/* eal.c: starts EAL once per process. Later calls return the first call's result. */
int eal_start(const struct dpdk_port_config *config);

/* log.c: routes EAL's log to frl_log. Keeps, per thread, the first error line since the last
 * clear. */
int log_open(void);
void log_clear_error(void);
const char *log_error(void);
/* Takes text that would be printed. */
void log_take(const char *text, size_t len, bool is_error);

/* capture.c: sends text printed by this thread to log_take(). Returns -ENOMEM on failure. */
int capture_begin(void);
void capture_end(void);

/* pool.c */
int pool_register_ops(void);
int pool_create(struct dpdk_port *port, uint32_t n_rx, uint32_t n_tx, uint32_t frame_room);
void pool_destroy(struct dpdk_port *port);
bool pool_memory(struct port *port, unsigned index, void **ret_addr, size_t *ret_len);
bool pool_take(struct port *port, struct port_frame *ret_frame);

/* probe.c */
/* Writes the devargs for net_af_packet, with missing ring sizes added. */
void probe_complete(char *text, size_t size, const char *devargs, uint32_t mtu);
/* Makes DPDK open the device. Sets the port's name. */
int probe_ethdev(struct dpdk_port *port, const char *devargs, uint16_t *ret_ethdev);

/* ethdev.c: one ethdev by devargs. */
int ethdev_open(struct dpdk_port *port, const struct dpdk_port_config *config);
void ethdev_close(struct dpdk_port *port);
enum port_link_state ethdev_link_state(struct port *port, uint16_t link);
/* Frees all packets waiting to be sent, and all received frames in the device. Guard held. */
void ethdev_restart(struct dpdk_port *port);
void ethdev_stats(struct port *port, struct port_stats *ret_stats);

/* burst.c: the data path. */
uint16_t burst_rx(struct port *port, struct port_frame frames[], uint16_t max);
void burst_rx_free(struct port *port, const struct port_frame frames[], uint16_t n);
uint16_t burst_tx(struct port *port, uint16_t link, const struct port_packet packets[], uint16_t n);

/* segments.c: builds a packet in the form that the device needs. Returns NULL without buffers. */
struct rte_mbuf *segments_build(struct dpdk_port *port, const struct port_packet *packet);

/* mem.c: payload by reference. */
struct port_mem {
	LIST_ENTRY(port_mem) next;
	struct rte_mbuf_ext_shared_info shared; /* 1, plus the references of packets */
	uint8_t *addr;
	size_t len;
	struct port_mem *whole; /* the mapping that contains this one and provides the device map */
	rte_iova_t *pages; /* physical addresses of the pages; NULL: the device has `addr` itself */
	bool is_copied;    /* the device does not reach it: packets contain copies */
	uint32_t users;    /* users of this device map, itself included */
};

int mem_map(struct port *port, void *addr, size_t len, struct port_mem **ret_mem);
/* Returns true if packets can refer to the memory. */
bool mem_is_reachable(const struct port_mem *mem);
/* Returns true if payload of the packet can be unmapped while something that this driver cannot
 * guard reads it. Copy it. */
bool mem_may_vanish(const struct dpdk_port *port, const struct port_packet *packet);
/* Returns the device's address of `addr` in reachable memory, and limits *len to the contiguous
 * part. */
rte_iova_t mem_bus_address(const struct port_mem *mem, const uint8_t *addr, uint32_t *len);
bool mem_idle(struct port *port, const struct port_mem *mem);
bool mem_flush(struct port *port, const struct port_mem *mem);
void mem_unmap(struct port *port, struct port_mem *mem);
/* Call after the device is closed, when nothing refers to memory any more. */
void mem_forget(struct dpdk_port *port);

#endif
