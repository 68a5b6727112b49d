/* SPDX-License-Identifier: BSD-3-Clause */
/* A port over the double of a NIC, memory that it sends from, and its packets. */
#ifndef FERRULE_TESTS_UNIT_DRIVERS_DPDK_NIC_FIXTURE_H
#define FERRULE_TESTS_UNIT_DRIVERS_DPDK_NIC_FIXTURE_H

#include <ferrule/error.h>

#include "drivers/dpdk/pci.h"
#include "tests/fakes/nic_double.h"

enum {
	PAGE = 4096,
	PAYLOAD = 4096,
	HEADER = 54,
	TRAILER = 4,
	MEMORY = 64 << 10,
};

struct nic_logged {
	unsigned lines; /* warnings and errors */
	char last[256];
};

extern struct port *nic_port;
extern struct port_mem *nic_mem;
extern uint8_t *nic_memory; /* MEMORY bytes */
extern struct nic_logged nic_logged;

/* Set before the port is opened. */
extern const char *nic_devargs;
extern const struct gid_table *nic_gids;
extern bool nic_is_huge; /* physical_pages() finds the memory's pages to stay */
/* The PCI device in /sys; `exists`: it is looked up here. */
extern struct pci_device nic_pci;

/* Begins a case. */
void nic_setup(void);
int nic_open_port(void);
void nic_must_open(void);
void nic_map_memory(void);
/* Nothing refers to the memory, and all buffers of the port are in its pools. */
void nic_close_port(unsigned free_buffers);

unsigned nic_free_buffers(void);
/* Bytes of a receive buffer. */
uint32_t nic_room_of(void);
/* For frl_set_log(): counts lines in nic_logged. */
void nic_keep_line(enum frl_log_level level, const char *line, void *arg);
/* A warning that contains all of `text`, and no other one. */
void nic_check_logged(const char *text);

struct port_packet nic_packet_of(uint32_t at, uint32_t len);
/* The n-th packet that the driver has taken equals that of nic_packet_of(). */
void nic_check_sent(unsigned n, uint32_t at, uint32_t len);
/* Sends such a packet. Returns how many segments it has. */
unsigned nic_segments_of(uint32_t at, uint32_t len);
/* Payloads of all kinds of lengths and places; the double checks the NIC's rules. */
void nic_send_all_kinds(void);

#endif
