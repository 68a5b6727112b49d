/* SPDX-License-Identifier: BSD-3-Clause */
/* The meaning of FERRULE_DEVICES to the NCCL plugin with hardware, and its messages. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl/ports.h"
#include "tests/unit/nccl/nccl_verbs_fixture.h"
#include "tests/fixtures/program.h"

static const struct row {
	const char *wanted;
	const char *names; /* NULL: refused */
	const char *what;  /* of the refusal's sentence, or the last port of the library's */
	int speed, number; /* of the last one */
} rows[] = {
	{ "", "nic0 nic1 two/1 two/2", "verbs:two/2", 0, 2 },
	{ "verbs", "nic0 nic1 two/1 two/2", "verbs:two/2", 0, 2 },
	{ "verbs speed=7", "nic0 nic1 two/1 two/2", "verbs:two/2", 7, 2 },
	{ "verbs:nic0", "nic0", "verbs:nic0", 100000, 1 },
	{ "verbs:nic0/1", "nic0", "verbs:nic0", 100000, 1 },
	{ "verbs:nic0 speed=40000", "nic0", "verbs:nic0", 40000, 1 },
	{ "verbs:nic0 ip=10.0.0.1", "nic0", "verbs:nic0", 100000, 1 },
	{ "verbs:nic0;verbs:nic1", "nic0 nic1", "verbs:nic1", 400000, 1 },
	{ "local;verbs:nic1", "local nic1", "verbs:nic1", 400000, 1 },
	{ "verbs:two", "two/1 two/2", "verbs:two/2", 0, 2 },
	{ "verbs:two/1", "two/1", "verbs:two/1", 0, 1 },
	{ "verbs:nic", NULL, "no RDMA device verbs:nic", 0, 0 },
	{ "verbs:nic0/2", NULL, "no RDMA device verbs:nic0/2", 0, 0 },
	{ "verbs:two/3", NULL, "no RDMA device verbs:two/3", 0, 0 },
	{ "verbs:down", NULL, "verbs:down is not active", 0, 0 },
	{ "verbs ip=10.0.0.1", NULL, "one port of hardware", 0, 0 },
	{ "verbs:two ip=10.0.2.1", NULL, "name the port", 0, 0 },
	{ "verbs:nic0 gateway=10.0.0.9", NULL, "one port of hardware", 0, 0 },
	{ "local ip=10.0.0.1", NULL, "one port of hardware", 0, 0 },
};

START_LOOP_TEST(ports, ROWS(rows))
{
	const struct row *row = &rows[_i];
	static struct port_info found[NET_MAX_PORTS];
	char why[300] = "", names[300] = "";
	int n = 0, err;

	plug_in(64, false);
	err = net_ports_find(row->wanted, false, found, &n, why, sizeof(why));
	ck_assert_str_eq(fake_verbs_leaks(), "");
	fake_verbs_reset();
	if (!row->names) {
		ck_assert_int_lt(err, 0);
		ck_assert_msg(strstr(why, row->what), "'%s' is refused with: %s", row->wanted, why);
		return;
	}
	ck_assert_msg(!err, "'%s' is refused: %s", row->wanted, why);
	for (int i = 0; i < n; i++) {
		strncat(names, i ? " " : "", sizeof(names) - strlen(names) - 1);
		strncat(names, found[i].name, sizeof(names) - strlen(names) - 1);
	}
	ck_assert_str_eq(names, row->names);
	ck_assert_str_eq(found[n - 1].port, row->what);
	ck_assert(found[n - 1].is_hardware);
	ck_assert_int_eq(found[n - 1].speed_mbps, row->speed);
	ck_assert_int_eq(found[n - 1].port_number, row->number);
	if (strstr(row->wanted, "ip="))
		ck_assert_str_eq(found[0].ip, "10.0.0.1");
}
END_TEST

/* Any device on this machine's PCI bus. */
static bool find_pci(char address[16], char path[PATH_MAX])
{
	DIR *dir = opendir("/sys/bus/pci/devices");
	const struct dirent *entry = NULL;
	char link[300];

	while (dir && (entry = readdir(dir)) && entry->d_name[0] == '.')
		;
	if (entry) {
		snprintf(address, 16, "%.15s", entry->d_name);
		snprintf(link, sizeof(link), "/sys/bus/pci/devices/%s", address);
	}
	if (dir)
		closedir(dir);
	return entry && realpath(link, path);
}

/* Both ports of a card are in one place, which NCCL has to know. */
START_TEST(pci)
{
	static struct port_info found[NET_MAX_PORTS];
	const char *folder = test_folder();
	char link[64], to[64], why[300];
	char address[16], path[PATH_MAX];
	struct fake_verbs_device two, other;
	int n = 0;

	if (!find_pci(address, path)) {
		printf("skipped: there is no PCI bus\n");
		return;
	}
	snprintf(link, sizeof(link), "%s/device", folder);
	snprintf(to, sizeof(to), "../../../%s", address);
	ck_assert_int_eq(symlink(to, link), 0);
	fake_verbs_reset();
	fake_verbs_device_init(&two, "two", "10.0.2.1");
	fake_verbs_device_init(&other, "nic", "10.0.0.1");
	plug_add_port(&two, "fe80::2:2", "10.0.3.1");
	two.sysfs = folder;
	fake_verbs_add(&two);
	fake_verbs_add(&other);
	ck_assert_int_eq(net_ports_find("verbs", false, found, &n, why, sizeof(why)), 0);
	unlink(link);
	ck_assert_int_eq(n, 3);
	ck_assert_str_eq(found[0].pci_path, path);
	ck_assert_str_eq(found[1].pci_path, path);
	ck_assert_str_eq(found[2].pci_path, "");
	ck_assert_uint_eq(found[0].guid, found[1].guid);
	ck_assert_uint_ne(found[0].guid, found[2].guid);
	ck_assert_int_eq(found[0].port_number, 1);
	ck_assert_int_eq(found[1].port_number, 2);
	fake_verbs_reset();
}
END_TEST

TEST_FILE(nccl_verbs_ports)
