/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of this driver share.
 *
 *	parse.c     the port's text
 *	netdev.c    the network interface of the device: MAC, MTU, carrier, by sysfs
 *	open.c      opened and closed; is it a port for this, and is RoCE off
 *	queue.c     host memory, queues, the queue pair
 *	far.c       slots in the memory of a GPU
 *	steer.c     flow rules
 *	burst.c     frames in, packets out
 *	mem.c       payload by reference
 */
#ifndef FERRULE_DRIVERS_RAW_INTERNAL_H
#define FERRULE_DRIVERS_RAW_INTERNAL_H

#include <net/if.h>

#include "drivers/interface.h"
#include "drivers/raw/raw.h"
#include "drivers/verbs/internal.h"
#include "lib/base/list.h"

struct gpu;

enum {
	RAW_SLOTS = 1024,     /* of received frames, unless the text says how many */
	RAW_FAR_SLOTS = 4096, /* with a GPU: what is of the host is small */
	RAW_MIN_SLOTS = 128,
	RAW_MAX_SLOTS = 32768,
	RAW_TX_SLOTS = 512,
	RAW_REPOST = 32, /* slots are given back to the NIC by so many at a time */
	/* In a slot, so that payload behind Ethernet, IPv4, UDP and BTH is aligned to 64 bytes. */
	RAW_OFFSET = 10,
	RAW_MIN_FRAME = 60, /* shorter ones are filled with zeros */
	RAW_MAX_FLOWS = 4 + FRL_MAX_GIDS,
	RAW_MAX_SGE = PORT_MAX_PIECES + 2,
};

_Static_assert(ETH_HEADER + VLAN_TAG + 40 + 8 + 12 + 28 <= PORT_SPLIT,
	"tag, IPv6, UDP, BTH, AtomicETH: no header is longer");

/* The port's text, taken apart. */
struct raw_wanted {
	char device[DEVICE_NAME];
	uint8_t num;
	int gpu;        /* -1: none */
	uint32_t slots; /* 0: as it sees fit */
};

int raw_parse(const char *text, struct raw_wanted *ret_wanted);

/* netdev.c */

struct raw_netdev {
	char name[IF_NAMESIZE];
	uint8_t mac[6];
	uint32_t mtu;
	int carrier_fd; /* of its "operstate" */
};

/* The interface of port `num` of the device whose folder in sysfs is `path`; `name` is the port's.
 * -ENODEV; -ENOTSUP: there are several; with a sentence. */
int raw_netdev_open(const char *path, uint8_t num, const char *name, struct raw_netdev *ret_netdev);
void raw_netdev_close(struct raw_netdev *netdev);
bool raw_netdev_is_up(const struct raw_netdev *netdev);

/* What libibverbs knows, once however many lie in it. */
struct raw_region {
	struct list node; /* in raw_port.regions, or in none: nothing more is to share it */
	struct ibv_mr *mr;
	uint8_t *addr;
	size_t len; /* 0: of a GPU's memory, and in no list */
	unsigned n_mems;
};

struct port_mem {
	struct list node; /* in raw_port.mems */
	struct raw_region *region;
	bool is_first;     /* the region was made for it */
	struct ibv_mr *mr; /* the region's */
	unsigned users;    /* pieces of requests under way that lie in it */
};

/* What the NIC has not sent yet. */
struct raw_tx_slot {
	uint8_t n_mems;
	struct port_mem *mems[PORT_MAX_PIECES];
};

/* Slots in the memory of a GPU, one of each receive slot. */
struct raw_far {
	struct gpu *gpu; /* NULL: none */
	uint8_t *memory; /* not for the processor */
	uint32_t room;   /* bytes of a slot */
	struct ibv_mr *mr;
};

struct raw_port {
	struct port base;
	struct list node; /* in the list of those that are open */
	struct raw_wanted wanted;
	char name[DEVICE_NAME + 16]; /* "raw:mlx5_0/2": in sentences */
	struct raw_netdev netdev;
	int multicast_fd; /* or -1 */
	uint32_t max_payload;
	struct ibv_device_attr attr;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *rx_cq, *tx_cq;
	struct ibv_qp *qp;
	struct ibv_flow *flows[RAW_MAX_FLOWS];
	unsigned n_flows;
	bool is_broken; /* for good: nothing comes and nothing goes */
	bool has_left;  /* something that could not be destroyed */
	struct port_stats dropped;

	/* One mapping: receive slots, spares, and on pages of their own the slots to send from. */
	uint8_t *memory;
	size_t rx_len, memory_len;
	struct ibv_mr *mr;

	/* Received frames. Slot numbers from n_slots on are those of spares. */
	uint32_t n_slots;
	uint32_t near_room;  /* bytes of a frame that come to a slot of the host */
	uint32_t slot_size;  /* of the host, RAW_OFFSET and alignment included */
	uint32_t spare_size; /* whole frames */
	uint32_t n_spares, n_repost;
	uint32_t *spares;            /* free ones, of caps.max_kept */
	uint32_t repost[RAW_REPOST]; /* to be given back to the NIC */
	struct raw_far far;

	/* Memory to send from: all of it, and what of the host's others may lie in. */
	struct list mems, regions;

	/* Packets to send: slots in turn; both count up for ever. */
	uint64_t tx_head, tx_tail;
	uint32_t tx_size; /* bytes of a slot: headers, and a whole payload behind them */
	uint32_t max_sge;
	struct raw_tx_slot tx[RAW_TX_SLOTS];
};

/* queue.c */

/* Memory and queues of a port that has its context, and all receive slots posted; what was made
 * goes with raw_queue_close(), also of a part. */
int raw_queue_open(struct raw_port *port);
void raw_queue_close(struct raw_port *port);
/* A sentence about a call of libibverbs, behind the port's name. */
int raw_fail(const struct raw_port *port, int err, const char *what);
/* What cannot be destroyed is told in the log, unless the device has failed; and once, as what it
 * was made of cannot be destroyed either. */
void raw_destroyed(struct raw_port *port, int rc, const char *what);
/* Of no use any more: tells it once. `why` is a sentence's end. */
void raw_break(struct raw_port *port, const char *why);

/* far.c: slots in the memory of GPU wanted.gpu, of far.room bytes. -ENOTSUP with both reasons,
 * -ENODEV, -ENOMEM. The second takes back what the first has made, also of a part. */
int raw_far_open(struct raw_port *port);
void raw_far_close(struct raw_port *port);
/* A region of a GPU's memory, for the rights `access`: by the dma-buf, or, fd -1, by its address.
 * NULL, and errno. */
struct ibv_mr *raw_far_region(
	struct raw_port *port, void *addr, size_t len, int fd, uint64_t offset, int access);

/* steer.c: the rules by which the NIC hands over frames for these addresses. */
int raw_steer(struct raw_port *port, const struct gid_table *gids);
void raw_steer_stop(struct raw_port *port);

/* burst.c */

uint16_t raw_rx_burst(struct port *port, struct port_frame frames[], uint16_t max);
void raw_rx_free(struct port *port, const struct port_frame frames[], uint16_t n);
bool raw_rx_memory(struct port *port, unsigned index, void **ret_addr, size_t *ret_len);
bool raw_rx_take(struct port *port, struct port_frame *ret_frame);
uint16_t raw_tx_burst(
	struct port *port, uint16_t link, const struct port_packet packets[], uint16_t n);
/* Gives slots [first, first + n), at most RAW_REPOST, to the NIC. An errno. */
int raw_post_slots(struct raw_port *port, const uint32_t slots[], uint32_t n);
/* Takes note of what was sent. */
void raw_reap(struct raw_port *port);

/* mem.c */

int raw_mem_map(struct port *port, void *addr, size_t len, struct port_mem **ret_mem);
int raw_mem_map_far(struct port *port, void *addr, size_t len, int fd, uint64_t offset,
	struct port_mem **ret_mem);
bool raw_mem_idle(struct port *port, const struct port_mem *mem);
void raw_mem_unmap(struct port *port, struct port_mem *mem);
/* All that is still mapped, whoever refers to it: the queue pair is gone. */
void raw_mem_forget(struct raw_port *port);

#endif
