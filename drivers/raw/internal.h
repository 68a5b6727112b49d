/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the files of this driver:
 *
 * - parse.c: the port's text
 * - netdev.c: the network interface of the device: MAC, MTU, carrier, from sysfs
 * - open.c: open and close; checks that the port is usable and RoCE is off
 * - queue.c: host memory, queues, the queue pair
 * - far.c: slots in the memory of a GPU
 * - steer.c: flow rules
 * - burst.c: receive and send
 * - mem.c: payload by reference
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
	RAW_SLOTS = 1024,     /* for received frames, unless the text has a number */
	RAW_FAR_SLOTS = 4096, /* with a GPU, where host slots are small */
	RAW_MIN_SLOTS = 128,
	RAW_MAX_SLOTS = 32768,
	RAW_TX_SLOTS = 512,
	RAW_REPOST = 32, /* slots are posted to the NIC in batches of this size */
	/* Offset in a slot that aligns payload after Ethernet, IPv4, UDP and BTH to 64 bytes. */
	RAW_OFFSET = 10,
	RAW_MIN_FRAME = 60, /* shorter frames are padded with zeros */
	RAW_MAX_FLOWS = 4 + FRL_MAX_GIDS,
	RAW_MAX_SGE = PORT_MAX_PIECES + 2,
};

_Static_assert(ETH_HEADER + VLAN_TAG + 40 + 8 + 12 + 28 <= PORT_SPLIT,
	"tag, IPv6, UDP, BTH, AtomicETH: no header is longer");

/* The parsed text of a port. */
struct raw_wanted {
	char device[DEVICE_NAME];
	uint8_t num;
	int gpu;        /* -1: none */
	uint32_t slots; /* 0: the default */
};

int raw_parse(const char *text, struct raw_wanted *ret_wanted);

/* netdev.c */

struct raw_netdev {
	char name[IF_NAMESIZE];
	uint8_t mac[6];
	uint32_t mtu;
	int carrier_fd; /* "operstate" of the interface */
};

/* Finds the interface of port `num` of the device whose sysfs folder is `path`. `name` is the
 * port's. Returns -ENODEV, or -ENOTSUP if there are several, and sets the last error. */
int raw_netdev_open(const char *path, uint8_t num, const char *name, struct raw_netdev *ret_netdev);
void raw_netdev_close(struct raw_netdev *netdev);
bool raw_netdev_is_up(const struct raw_netdev *netdev);

/* A registration with libibverbs, shared by all memory inside it. */
struct raw_region {
	struct list node; /* in raw_port.regions, or in none: not shared any more */
	struct ibv_mr *mr;
	uint8_t *addr;
	size_t len; /* 0: memory of a GPU, in no list */
	unsigned n_mems;
};

struct port_mem {
	struct list node; /* in raw_port.mems */
	struct raw_region *region;
	bool is_first;     /* the region was made for this memory */
	struct ibv_mr *mr; /* of the region */
	unsigned users;    /* pieces of outstanding requests inside it */
};

/* A packet that the NIC has not sent yet. */
struct raw_tx_slot {
	uint8_t n_mems;
	struct port_mem *mems[PORT_MAX_PIECES];
};

/* Slots in the memory of a GPU, one for each receive slot. */
struct raw_far {
	struct gpu *gpu; /* NULL: none */
	uint8_t *memory; /* not accessible to the processor */
	uint32_t room;   /* size of a slot */
	struct ibv_mr *mr;
};

struct raw_port {
	struct port base;
	struct list node; /* in the list of open ports */
	struct raw_wanted wanted;
	char name[DEVICE_NAME + 16]; /* "raw:mlx5_0/2": for messages */
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
	bool is_broken; /* failed permanently: no traffic any more */
	bool has_left;  /* some objects could not be destroyed */
	struct port_stats dropped;

	/* One mapping: receive slots, spares, and the send slots on separate pages. */
	uint8_t *memory;
	size_t rx_len, memory_len;
	struct ibv_mr *mr;

	/* Received frames. Slot numbers from n_slots on are spares. */
	uint32_t n_slots;
	uint32_t near_room;  /* bytes of a frame that go to a host slot */
	uint32_t slot_size;  /* size of a host slot, including RAW_OFFSET and alignment */
	uint32_t spare_size; /* whole frames */
	uint32_t n_spares, n_repost;
	uint32_t *spares;            /* numbers of free spares, of caps.max_kept */
	uint32_t repost[RAW_REPOST]; /* to be posted to the NIC again */
	struct raw_far far;

	/* Memory to send from: all of it, and the host regions that other memory may share. */
	struct list mems, regions;

	/* Packets to send: slots are used in turn. Both counters are free-running. */
	uint64_t tx_head, tx_tail;
	uint32_t tx_size; /* size of a slot: headers, and a whole payload after them */
	uint32_t max_sge;
	struct raw_tx_slot tx[RAW_TX_SLOTS];
};

/* queue.c */

/* Allocates the memory and queues of a port that has its context, and posts all receive slots.
 * raw_queue_close() frees them, also after a failure. */
int raw_queue_open(struct raw_port *port);
void raw_queue_close(struct raw_port *port);
/* Sets the last error for a call of libibverbs, prefixed with the port's name. */
int raw_fail(const struct raw_port *port, int err, const char *what);
/* Logs an object that cannot be destroyed, unless the device has failed. Logs only the first one:
 * objects that it depends on cannot be destroyed either. */
void raw_destroyed(struct raw_port *port, int rc, const char *what);
/* Marks the port as failed and logs it once. `why` completes the message. */
void raw_break(struct raw_port *port, const char *why);

/* far.c: allocates slots of far.room bytes in the memory of GPU wanted.gpu. Returns -ENOTSUP with
 * both reasons, -ENODEV or -ENOMEM. raw_far_close() frees them, also after a failure. */
int raw_far_open(struct raw_port *port);
void raw_far_close(struct raw_port *port);
/* Registers GPU memory with the rights `access`: by the dma-buf, or, if fd is -1, by its address.
 * Returns NULL and sets errno on failure. */
struct ibv_mr *raw_far_region(
	struct raw_port *port, void *addr, size_t len, int fd, uint64_t offset, int access);

/* steer.c: creates the flow rules for frames to these addresses. */
int raw_steer(struct raw_port *port, const struct gid_table *gids);
void raw_steer_stop(struct raw_port *port);

/* burst.c */

uint16_t raw_rx_burst(struct port *port, struct port_frame frames[], uint16_t max);
void raw_rx_free(struct port *port, const struct port_frame frames[], uint16_t n);
bool raw_rx_memory(struct port *port, unsigned index, void **ret_addr, size_t *ret_len);
bool raw_rx_take(struct port *port, struct port_frame *ret_frame);
uint16_t raw_tx_burst(
	struct port *port, uint16_t link, const struct port_packet packets[], uint16_t n);
/* Posts slots [first, first + n) to the NIC, at most RAW_REPOST. Returns an errno. */
int raw_post_slots(struct raw_port *port, const uint32_t slots[], uint32_t n);
/* Polls completions of sent packets. */
void raw_reap(struct raw_port *port);

/* mem.c */

int raw_mem_map(struct port *port, void *addr, size_t len, struct port_mem **ret_mem);
int raw_mem_map_far(struct port *port, void *addr, size_t len, int fd, uint64_t offset,
	struct port_mem **ret_mem);
bool raw_mem_idle(struct port *port, const struct port_mem *mem);
void raw_mem_unmap(struct port *port, struct port_mem *mem);
/* Frees all memory that is still mapped, even if referenced: the queue pair is gone. */
void raw_mem_forget(struct raw_port *port);

#endif
