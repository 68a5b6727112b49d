/* SPDX-License-Identifier: BSD-3-Clause */
/* The properties of a PCI device, from a folder that stands for /. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drivers/dpdk/pci.h"
#include "tests/fixtures/program.h"

#define ADDRESS "0000:3b:00.1"

struct machine {
	const char *driver; /* NULL: none has the device */
	const char *group;  /* its name, "" without one; NULL: there is no group */
	bool has_type1;
	const char *huge_pages; /* free; NULL: there are no such */
	bool is_absent;
	const char *group_type; /* NULL: the kernel has no such file */
	const char *status;     /* of this process; NULL: there is no such file */
};

static char root[PATH_MAX];

static void make_folder(const char *path)
{
	char whole[2 * PATH_MAX];

	snprintf(whole, sizeof(whole), "%s%s", root, path);
	for (char *at = strchr(whole + strlen(root) + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = '\0';
		mkdir(whole, 0700);
		*at = '/';
	}
	mkdir(whole, 0700);
}

static void make_file(const char *folder, const char *name, const char *text)
{
	char path[2 * PATH_MAX];
	FILE *file;

	make_folder(folder);
	snprintf(path, sizeof(path), "%s%s/%s", root, folder, name);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	fclose(file);
}

static void make_link(const char *folder, const char *name, const char *target)
{
	char path[2 * PATH_MAX], to[PATH_MAX];

	snprintf(path, sizeof(path), "%s%s/%s", root, folder, name);
	snprintf(to, sizeof(to), "../../../../%s", target);
	ck_assert_int_eq(symlink(to, path), 0);
}

static void make_machine(const struct machine *machine)
{
	static unsigned number;

	snprintf(root, sizeof(root), "%s/%u-%u", test_folder(), (unsigned)getpid(), number++);
	mkdir(root, 0700);
	if (!machine->is_absent)
		make_folder("/sys/bus/pci/devices/" ADDRESS);
	if (machine->driver)
		make_link("/sys/bus/pci/devices/" ADDRESS, "driver", machine->driver);
	if (machine->group) {
		make_link("/sys/bus/pci/devices/" ADDRESS, "iommu_group", "groups/12");
		make_file("/sys/kernel/iommu_groups/12", "name", machine->group);
	}
	if (machine->group_type)
		make_file("/sys/kernel/iommu_groups/12", "type", machine->group_type);
	if (machine->status)
		make_file("/proc/self", "status", machine->status);
	if (machine->has_type1)
		make_folder("/sys/module/vfio_iommu_type1");
	if (machine->huge_pages)
		make_file("/sys/kernel/mm/hugepages/hugepages-2048kB", "free_hugepages",
			machine->huge_pages);
}

static const struct {
	struct machine machine;
	bool by_physical;
	const char *says; /* "": nothing is wrong */
} rows[] = {
	{ { .driver = "vfio-pci", .group = "", .has_type1 = true }, false, "" },
	{ { .driver = "vfio-pci", .group = "" }, false, "modprobe vfio_iommu_type1" },
	{ { .driver = "vfio-pci", .group = "vfio-noiommu\n", .huge_pages = "9\n" }, true, "" },
	{ { .driver = "vfio-pci", .group = "vfio-noiommu\n", .huge_pages = "0\n" }, true,
		"sysctl vm.nr_hugepages" },
	{ { .driver = "uio_pci_generic" }, true, "sysctl vm.nr_hugepages" },
	{ { .driver = "igb_uio", .huge_pages = "1\n" }, true, "" },
	{ { .driver = "igb_uio", .huge_pages = "1\n", .status = "CapEff:\t0000000000200000\n" },
		true, "" },
	{ { .driver = "igb_uio", .huge_pages = "1\n", .status = "CapEff:\t000001ffffdfffff\n" },
		true, "CAP_SYS_ADMIN" },
	{ { .driver = "uio_pci_generic",
		  .group = "",
		  .group_type = "DMA-FQ\n",
		  .huge_pages = "1\n" },
		true, "behind an IOMMU: bind it to vfio-pci, or boot with iommu=pt" },
	{ { .driver = "uio_pci_generic",
		  .group = "",
		  .group_type = "identity\n",
		  .huge_pages = "1\n" },
		true, "" },
	{ { .driver = "vfio-pci", .group = "", .group_type = "DMA\n", .has_type1 = true }, false,
		"" },
	{ { .driver = "ixgbe" }, false, ADDRESS " is bound to the kernel's ixgbe" },
	{ { .driver = "mlx5_core", .group = "" }, false, "" },
	{ { .driver = "nfb", .group = "" }, false, "" },
	{ { .driver = NULL }, false, ADDRESS " is bound to no driver" },
	{ { .is_absent = true }, false, "no PCI device " ADDRESS },
};

START_LOOP_TEST(bindings, (int)(sizeof(rows) / sizeof(rows[0])))
{
	struct pci_device device;
	char text[300];

	make_machine(&rows[_i].machine);
	pci_look(root, ADDRESS, &device);
	ck_assert_str_eq(device.address, ADDRESS);
	ck_assert_int_eq(device.exists, !rows[_i].machine.is_absent);
	ck_assert_str_eq(device.driver, rows[_i].machine.driver ? rows[_i].machine.driver : "");
	ck_assert_int_eq(device.by_physical, rows[_i].by_physical);
	pci_explain(root, &device, text, sizeof(text));
	if (rows[_i].says[0])
		ck_assert_msg(strstr(text, rows[_i].says) != NULL, "%s", text);
	else
		ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(addresses)
{
	char address[PCI_ADDRESS];

	ck_assert(pci_address("3b:00.1", address));
	ck_assert_str_eq(address, ADDRESS);
	ck_assert(pci_address("0000:3b:00.1,arg=1", address));
	ck_assert_str_eq(address, ADDRESS);
	ck_assert(pci_address("10000:e1:1f.7", address));
	ck_assert_str_eq(address, "10000:e1:1f.7");
	ck_assert(!pci_address("net_af_packet0,iface=eth0", address));
	ck_assert(!pci_address("", address));
	ck_assert(!pci_address(NULL, address));
}
END_TEST

static const char *const complete_rows[][2] = {
	{ "3b:00.1", ADDRESS },
	{ "3b:00.1,arg=1,b=2", ADDRESS ",arg=1,b=2" },
	{ "0000:3B:00.1,arg=1", ADDRESS ",arg=1" },
	{ "net_af_packet0,iface=eth0", "net_af_packet0,iface=eth0" },
};

START_LOOP_TEST(whole_addresses, ROWS(complete_rows))
{
	char devargs[64];

	pci_complete(complete_rows[_i][0], devargs, sizeof(devargs));
	ck_assert_str_eq(devargs, complete_rows[_i][1]);
}
END_TEST

TEST_FILE(pci)
