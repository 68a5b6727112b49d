/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the files of this driver. A port is one ethdev, which is link 0; its state is read and
 * written under the port's guard only.
 */
#ifndef FERRULE_DRIVERS_DPDK_INTERNAL_H
#define FERRULE_DRIVERS_DPDK_INTERNAL_H

/* For device DMA maps, which DPDK 22.11 calls experimental and later releases keep as they are. */
#define ALLOW_EXPERIMENTAL_API

#include <sys/queue.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "drivers/dpdk/dpdk.h"
#include "drivers/interface.h"

enum {
	MAX_REFERENCES = 4, /* payload pieces of a packet; of one with more all are copied */
};

struct dpdk_port {
	struct port base;
	struct rte_mempool *rx_pool; /* whole frames: received ones, and copies to send */
	struct rte_mempool *tx_pool; /* headers, trailers, references to payload */
	bool copies;                 /* payload is always copied */
	bool wants_objects;          /* the PMD's memory is the rx pool's objects themselves */
	/* Packets are built by segments.c: references do not reach all memory, or a segment must
	 * not cross multiples of `page` bytes (0: it may), or there are few to a packet. */
	bool cuts;
	uint32_t page;
	uint16_t max_segments;
	uint16_t ethdev;
	uint16_t batch; /* packets to build for one tx burst: follows what the queue takes */
	struct port_stats dropped;
	/* The first received frame that no buffer holds; 0: none so far. */
	uint32_t refused_len;
	uint32_t max_payload; /* as wanted, then as the MTU allows */
	uint32_t min_payload;

	struct rte_device *device;
	const struct gid_table *gids; /* while it is opened */
	char name[RTE_ETH_NAME_MAX_LEN];
	char interface[IF_NAMESIZE]; /* of the kernel; empty: none */
	bool needs_dma;              /* payload must be mapped for the device */
	bool cpu_reads_payload;      /* packets may refer to any memory of the process */
	bool holds_payload;          /* the PMD has to be asked to give up what is sent */
	uint64_t queued;             /* packets that the PMD has taken */
	uint64_t flushed, restarted; /* the same when mem_flush() did so last */
	bool reported_refusal, reported_errors; /* each is logged once */
	LIST_HEAD(, port_mem) mapped;
	LIST_HEAD(, port_mem) covered; /* that lie in one of these, and use its map */
	int multicast_fd; /* has the interface take all multicast while it is open; or -1 */
};

/* eal.c: starts EAL, once a process; later calls return the first one's result. */
int eal_start(const struct dpdk_port_config *config);

/* log.c: routes EAL's log to frl_log; keeps the first error line since the last clear, a thread. */
int log_open(void);
void log_clear_error(void);
const char *log_error(void);
/* Takes text that was to be printed. */
void log_take(const char *text, size_t len, bool is_error);

/* capture.c: sends what this thread prints to log_take(). -ENOMEM. */
int capture_begin(void);
void capture_end(void);

/* pool.c */
int pool_register_ops(void);
int pool_create(struct dpdk_port *port, uint32_t n_rx, uint32_t n_tx, uint32_t frame_room);
void pool_destroy(struct dpdk_port *port);
bool pool_memory(struct port *port, unsigned index, void **ret_addr, size_t *ret_len);
bool pool_take(struct port *port, struct port_frame *ret_frame);

/* probe.c */
/* Writes the devargs of net_af_packet, with the ring sizes that they leave out. */
void probe_complete(char *text, size_t size, const char *devargs, uint32_t mtu);
/* Has DPDK open the device. Sets the port's name. */
int probe_ethdev(struct dpdk_port *port, const char *devargs, uint16_t *ret_ethdev);

/* ethdev.c: one ethdev by devargs. */
int ethdev_open(struct dpdk_port *port, const struct dpdk_port_config *config);
void ethdev_close(struct dpdk_port *port);
enum port_link_state ethdev_link_state(struct port *port, uint16_t link);
/* Frees all that waits to be sent, and what has come and was not asked for. Guard held. */
void ethdev_restart(struct dpdk_port *port);
void ethdev_stats(struct port *port, struct port_stats *ret_stats);

/* burst.c: the data path. */
uint16_t burst_rx(struct port *port, struct port_frame frames[], uint16_t max);
void burst_rx_free(struct port *port, const struct port_frame frames[], uint16_t n);
uint16_t burst_tx(struct port *port, uint16_t link, const struct port_packet packets[], uint16_t n);

/* segments.c: a packet as the device wants it. NULL: no buffers. */
struct rte_mbuf *segments_build(struct dpdk_port *port, const struct port_packet *packet);

/* mem.c: payload by reference. */
struct port_mem {
	LIST_ENTRY(port_mem) next;
	struct rte_mbuf_ext_shared_info shared; /* 1 and the references of packets */
	uint8_t *addr;
	size_t len;
	struct port_mem *whole; /* the mapping that covers this one: its device map is used */
	rte_iova_t *pages; /* physical addresses of the pages; NULL: the device has `addr` itself */
	bool is_copied;    /* the device does not reach it: packets have copies */
	uint32_t users;    /* of this one's device map, itself included */
};

int mem_map(struct port *port, void *addr, size_t len, struct port_mem **ret_mem);
/* False: packets cannot refer to it. */
bool mem_is_reachable(const struct port_mem *mem);
/* The device's address of `addr` in reachable memory; *len becomes what lies together from there.
 */
rte_iova_t mem_bus_address(const struct port_mem *mem, const uint8_t *addr, uint32_t *len);
bool mem_idle(struct port *port, const struct port_mem *mem);
bool mem_flush(struct port *port, const struct port_mem *mem);
void mem_unmap(struct port *port, struct port_mem *mem);
/* The device is closed: nothing refers to any memory now. */
void mem_forget(struct dpdk_port *port);

#endif
