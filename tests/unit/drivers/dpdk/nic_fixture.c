/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/drivers/dpdk/nic_fixture.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferrule/error.h>

struct port *nic_port;
struct port_mem *nic_mem;
uint8_t *nic_memory;
bool nic_is_huge;
const struct gid_table *nic_gids;
const char *nic_devargs;
struct pci_device nic_pci;
struct nic_logged nic_logged;

void nic_keep_line(enum frl_log_level level, const char *line, void *arg)
{
	nic_logged.lines++;
	snprintf(nic_logged.last, sizeof(nic_logged.last), "%s", line);
}

void nic_check_logged(const char *text)
{
	ck_assert_uint_eq(nic_logged.lines, 1);
	ck_assert_msg(strstr(nic_logged.last, text), "%s", nic_logged.last);
}

/* Each page is below the one before it. */
rte_iova_t *__wrap_physical_pages(const uint8_t *addr, size_t len);
rte_iova_t *__wrap_physical_pages(const uint8_t *addr, size_t len)
{
	rte_iova_t *pages = nic_is_huge ? malloc(len / PAGE * sizeof(pages[0])) : NULL;

	for (size_t i = 0; pages && i < len / PAGE; i++)
		pages[i] = (UINT64_C(1) << 40) - i * PAGE;
	return pages;
}

void __wrap_pci_look(const char *root, const char *address, struct pci_device *ret_device);
void __wrap_pci_look(const char *root, const char *address, struct pci_device *ret_device)
{
	*ret_device = nic_pci;
	snprintf(ret_device->address, sizeof(ret_device->address), "%s", address);
}

void __wrap_pci_explain(
	const char *root, const struct pci_device *device, char *ret_text, unsigned size);
void __wrap_pci_explain(
	const char *root, const struct pci_device *device, char *ret_text, unsigned size)
{
	snprintf(ret_text, size, "%s has a cause", device->address);
}

int nic_open_port(void)
{
	const struct dpdk_port_config config = {
		.devargs = nic_devargs,
		.gids = nic_gids,
		.max_payload = PAYLOAD,
		.min_payload = 256,
	};

	return dpdk_driver_open(&config, &nic_port);
}

void nic_must_open(void)
{
	int rc = nic_open_port();

	ck_assert_msg(rc == 0, "%s", frl_last_error());
}

void nic_map_memory(void)
{
	ck_assert_int_eq(nic_port->ops->mem_map(nic_port, nic_memory, MEMORY, &nic_mem), 0);
}

void nic_setup(void)
{
	nic = (struct nic_double){ 0 };
	nic_go_physical(false);
	nic_say_huge(false);
	nic_is_huge = false;
	nic_gids = NULL;
	nic_devargs = "nic_double0";
	nic_pci = (struct pci_device){ 0 };
	nic_logged.lines = 0;
	frl_set_log(nic_keep_line, FRL_LOG_WARNING, NULL);
	nic_memory = aligned_alloc(PAGE, MEMORY);
	ck_assert_ptr_nonnull(nic_memory);
	for (size_t i = 0; i < MEMORY; i++)
		nic_memory[i] = (uint8_t)(i * 7 + i / 251);
}

void nic_close_port(unsigned free_buffers)
{
	nic_let_go();
	ck_assert_uint_eq(rte_mempool_avail_count(nic.pool), free_buffers);
	if (nic_mem) {
		ck_assert(nic_port->ops->mem_idle(nic_port, nic_mem));
		nic_port->ops->mem_unmap(nic_port, nic_mem);
		nic_mem = NULL;
	}
	nic_port->ops->close(nic_port);
	ck_assert_uint_eq(nic.mapped, 0);
	free(nic_memory);
}

unsigned nic_free_buffers(void)
{
	return rte_mempool_avail_count(nic.pool);
}

struct port_packet nic_packet_of(uint32_t at, uint32_t len)
{
	struct port_packet packet = {
		.header_len = HEADER,
		.trailer_len = TRAILER,
		.n_pieces = len ? 1 : 0,
		.pieces[0] = { .addr = nic_memory + at, .len = len, .mem = nic_mem },
	};

	memset(packet.header, 0x11, HEADER);
	memset(packet.trailer, 0x22, TRAILER);
	return packet;
}

void nic_check_sent(unsigned n, uint32_t at, uint32_t len)
{
	const struct nic_sent *sent = &nic.sent[n];
	uint8_t header[HEADER], trailer[TRAILER];

	memset(header, 0x11, HEADER);
	memset(trailer, 0x22, TRAILER);
	ck_assert_uint_eq(sent->len, len ? HEADER + len + TRAILER : 60);
	ck_assert_mem_eq(sent->bytes, header, HEADER);
	ck_assert_mem_eq(sent->bytes + HEADER, nic_memory + at, len);
	ck_assert_mem_eq(sent->bytes + HEADER + len, trailer, TRAILER);
}

unsigned nic_segments_of(uint32_t at, uint32_t len)
{
	struct port_packet packet = nic_packet_of(at, len);
	unsigned n = nic.n_sent;

	ck_assert_uint_eq(nic_port->ops->tx_burst(nic_port, 0, &packet, 1), 1);
	nic_check_sent(n, at, len);
	return nic.sent[n].segments;
}

void nic_send_all_kinds(void)
{
	static const uint32_t lens[] = { 1, 3, 255, 256, 1024, PAYLOAD - 1, PAYLOAD };

	for (uint32_t at = 0; at < 3 * PAGE; at += 509) {
		for (size_t i = 0; i < RTE_DIM(lens); i++) {
			nic_segments_of(at, lens[i]);
			nic_let_go();
		}
	}
	nic_segments_of(0, 0);
}

uint32_t nic_room_of(void)
{
	return rte_pktmbuf_data_room_size(nic.pool) - RTE_PKTMBUF_HEADROOM;
}
