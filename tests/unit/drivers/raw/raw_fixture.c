/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/drivers/raw/raw_fixture.h"

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

#include "lib/base/bytes.h"
#include "lib/base/error.h"
#include "lib/base/net/ip.h"
#include "tests/fixtures/program.h"

struct port *nic;
uint8_t bytes[9100];

static char root[64];
static char folders[FAKE_VERBS_DEVICES][96]; /* of the devices, which point there */

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
	return remove(path);
}

void raw_setup(void)
{
	fake_verbs_reset();
	snprintf(root, sizeof(root), "%s/XXXXXX", test_folder());
	ck_assert_ptr_nonnull(mkdtemp(root));
}

void raw_teardown(void)
{
	if (nic)
		raw_stop();
	ck_assert_str_eq(fake_verbs_leaks(), "");
	fake_verbs_reset();
	nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void raw_put(unsigned n, const char *name, const char *text)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/device/net/raw%u/%s", folders[n], n, name);
	if (!text) {
		ck_assert_int_eq(unlink(path), 0);
		return;
	}
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	fclose(file);
}

void raw_describe(struct fake_verbs_device *device, unsigned n)
{
	static const char *const below[] = { "", "/device", "/device/net" };
	char name[16], path[256];

	snprintf(name, sizeof(name), "nic%u", n);
	fake_verbs_device_init(device, name, NULL);
	for (int j = 0; j < FAKE_VERBS_PORTS; j++)
		for (int i = 0; i < FAKE_VERBS_GIDS; i++)
			device->ports[j].gids[i].type = -1;
	snprintf(folders[n], sizeof(folders[n]), "%s/%s", root, name);
	for (size_t i = 0; i < sizeof(below) / sizeof(below[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", folders[n], below[i]);
		ck_assert_int_eq(mkdir(path, 0700), 0);
	}
	snprintf(path, sizeof(path), "%s/device/net/raw%u", folders[n], n);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	device->sysfs = folders[n];
	snprintf(path, sizeof(path), "02:00:00:00:00:%02x\n", n);
	raw_put(n, "address", path);
	raw_put(n, "mtu", "4200\n");
	raw_put(n, "operstate", "up\n");
	raw_put(n, "dev_port", "0\n");
}

void raw_plug(unsigned n)
{
	struct fake_verbs_device device;

	raw_describe(&device, n);
	fake_verbs_add(&device);
}

static void must(int rc)
{
	ck_assert_msg(rc == 0, "%d: %s", rc, frl_last_error());
}

/* ---- ports */

void add_address(struct gid_table *gids, const char *text)
{
	must(parse_ip(text, &gids->gids[gids->n].ip, &gids->gids[gids->n].prefix_len));
	gids->n++;
}

int raw_open(const char *text, uint32_t max_kept, struct port **ret_port)
{
	struct gid_table gids = { .n = 1 };
	struct nic_config config = { .text = text,
		.gids = &gids,
		.max_payload = 4096,
		.min_payload = 256,
		.max_kept = max_kept };

	add_address(&gids, "10.0.0.1/24");
	add_address(&gids, "fd00::1/64");
	/* Again, as on another VLAN. */
	add_address(&gids, "10.0.0.1/24");
	return raw_port_open(&config, ret_port);
}

void raw_start(const char *text)
{
	raw_plug(0);
	must(raw_open(text, 0, &nic));
}

void raw_stop(void)
{
	nic->ops->close(nic);
	nic = NULL;
}

/* ---- frames */

/* Ethernet to `mac` (of six), with that type; what is behind it counts up. Its length. */
size_t make_frame(const uint8_t mac[6], uint16_t type, size_t length)
{
	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)(i * 7 + i / 251 + 1);
	memcpy(bytes, mac, 6);
	put_be16(bytes + 12, type);
	return length;
}

const uint8_t own_mac[6] = { 2, 0, 0, 0, 0, 0 };
const uint8_t other_mac[6] = { 2, 0, 0, 0, 0, 9 };
const uint8_t broadcast[6] = { 255, 255, 255, 255, 255, 255 };
const uint8_t all_nodes[6] = { 0x33, 0x33, 0, 0, 0, 1 };

/* To an address of either family, of that protocol, to UDP port `udp`. */
size_t make_ip(const uint8_t mac[6], const char *to, uint8_t protocol, uint16_t udp, size_t length)
{
	struct frl_ip ip;
	uint8_t none;

	must(parse_ip(to, &ip, &none));
	if (ip_is_v4(&ip)) {
		make_frame(mac, 0x0800, length);
		bytes[14] = 0x45;
		bytes[14 + 9] = protocol;
		memcpy(bytes + 14 + 16, ip.bytes + 12, 4);
		put_be16(bytes + 14 + 20 + 2, udp);
		return length;
	}
	make_frame(mac, 0x86dd, length);
	bytes[14] = 0x60;
	bytes[14 + 6] = protocol;
	memcpy(bytes + 14 + 24, ip.bytes, 16);
	put_be16(bytes + 14 + 40 + 2, udp);
	return length;
}

size_t roce(size_t length)
{
	return make_ip(own_mac, "10.0.0.1", 17, 4791, length);
}

/* Whether the kernel sees it, too. */
bool arrive(size_t length)
{
	return fake_verbs_frame("nic0", 1, bytes, length, true);
}

uint16_t receive(struct port_frame frames[], uint16_t max)
{
	return nic->ops->rx_burst(nic, frames, max);
}
