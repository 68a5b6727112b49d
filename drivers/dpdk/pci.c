/* SPDX-License-Identifier: BSD-3-Clause */
#include "drivers/dpdk/pci.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/capability.h>

bool pci_address(const char *devargs, char ret_address[PCI_ADDRESS])
{
	unsigned int domain, bus, device, function;

	if (!devargs)
		return false;
	if (sscanf(devargs, "%8x:%2x:%2x.%1x", &domain, &bus, &device, &function) != 4) {
		domain = 0;
		if (sscanf(devargs, "%2x:%2x.%1x", &bus, &device, &function) != 3)
			return false;
	}
	snprintf(ret_address, PCI_ADDRESS, "%04x:%02x:%02x.%x", domain, bus & 0xff, device & 0xff,
		function & 0xf);
	return true;
}

void pci_complete(const char *devargs, char *ret_devargs, unsigned size)
{
	char address[PCI_ADDRESS];

	if (pci_address(devargs, address))
		snprintf(ret_devargs, size, "%s%s", address, devargs + strcspn(devargs, ","));
	else
		snprintf(ret_devargs, size, "%s", devargs);
}

static bool exists(const char *root, const char *path)
{
	char whole[PATH_MAX];

	snprintf(whole, sizeof(whole), "%s%s", root, path);
	return access(whole, F_OK) == 0;
}

/* Writes the last component of a link's target, or "" if there is no such link. */
static void link_name(
	const char *root, const char *address, const char *link, char *name, size_t size)
{
	char path[PATH_MAX], target[PATH_MAX];
	const char *last;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/%s", root, address, link);
	n = readlink(path, target, sizeof(target) - 1);
	target[n > 0 ? n : 0] = '\0';
	last = strrchr(target, '/');
	snprintf(name, size, "%.*s", (int)size - 1, last ? last + 1 : target);
}

/* Reads a file of an IOMMU group. Writes "" if there is none. */
static void group_text(const char *root, const char *group, const char *name, char text[PCI_WORD])
{
	char path[PATH_MAX];
	FILE *file;

	snprintf(path, sizeof(path), "%s/sys/kernel/iommu_groups/%s/%s", root, group, name);
	file = fopen(path, "re");
	if (!file || !fgets(text, PCI_WORD, file))
		text[0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (file)
		fclose(file);
}

/* Groups of VFIO's noiommu mode have this name. */
static bool is_real_group(const char *root, const char *group)
{
	char name[PCI_WORD];

	group_text(root, group, "name", name);
	return group[0] && strncmp(name, "vfio-noiommu", strlen("vfio-noiommu")) != 0;
}

/* An IOMMU without translation has the type "identity". */
static bool is_translated(const char *root, const char *group)
{
	char type[PCI_WORD];

	group_text(root, group, "type", type);
	return is_real_group(root, group) && type[0] && strcmp(type, "identity") != 0;
}

/* Returns false for drivers that hand the device to DPDK or share it. */
static bool is_kernels(const char *driver)
{
	static const char *const others[] = { "", "vfio-pci", "uio_pci_generic", "igb_uio",
		"mlx4_core", "mlx5_core", "mana", "nfb" };

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (strcmp(driver, others[i]) == 0)
			return false;
	return true;
}

/* Returns false only if /proc says so. */
static bool may_see_physical(const char *root)
{
	char path[PATH_MAX], line[128];
	unsigned long long effective = ~0ULL;
	FILE *file;

	snprintf(path, sizeof(path), "%s/proc/self/status", root);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file) &&
		sscanf(line, "CapEff: %llx", &effective) != 1)
		;
	if (file)
		fclose(file);
	return effective >> CAP_SYS_ADMIN & 1;
}

void pci_look(const char *root, const char *address, struct pci_device *ret_device)
{
	char path[PATH_MAX], group[PCI_WORD];
	bool is_uio;

	*ret_device = (struct pci_device){ 0 };
	snprintf(ret_device->address, sizeof(ret_device->address), "%s", address);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", address);
	ret_device->exists = exists(root, path);
	link_name(root, address, "driver", ret_device->driver, sizeof(ret_device->driver));
	link_name(root, address, "iommu_group", group, sizeof(group));
	is_uio = strcmp(ret_device->driver, "uio_pci_generic") == 0 ||
		strcmp(ret_device->driver, "igb_uio") == 0;
	ret_device->by_physical = is_uio ||
		(strcmp(ret_device->driver, "vfio-pci") == 0 && !is_real_group(root, group));
	ret_device->is_translated = is_uio && is_translated(root, group);
	ret_device->is_kernels = is_kernels(ret_device->driver);
}

void pci_explain(const char *root, const struct pci_device *device, char *ret_text, unsigned size)
{
	const char *address = device->address;
	bool is_vfio = strcmp(device->driver, "vfio-pci") == 0;

	ret_text[0] = '\0';
	if (!device->exists)
		snprintf(ret_text, size, "no PCI device %s: `lspci -D` lists them", address);
	else if (!device->driver[0])
		snprintf(ret_text, size,
			"%s is bound to no driver: bind it to vfio-pci (`driverctl set-override %s "
			"vfio-pci`)",
			address, address);
	else if (is_vfio && !device->by_physical && !exists(root, "/sys/module/vfio_iommu_type1"))
		snprintf(ret_text, size,
			"the kernel's part of VFIO for IOMMUs is not loaded: `modprobe "
			"vfio_iommu_type1`");
	else if (device->is_translated)
		snprintf(ret_text, size,
			"%s is bound to %s behind an IOMMU: bind it to vfio-pci, or boot with "
			"iommu=pt",
			address, device->driver);
	else if (device->by_physical && !pci_free_huge_pages(root))
		snprintf(ret_text, size,
			"%s is bound to %s and uses physical addresses (IOVA as PA), which need "
			"huge pages; none is free: `sysctl vm.nr_hugepages=128`",
			address, device->driver);
	else if (device->by_physical && !may_see_physical(root))
		snprintf(ret_text, size,
			"%s is bound to %s and uses physical addresses (IOVA as PA), which need "
			"CAP_SYS_ADMIN: run as root, or use vfio-pci with an IOMMU",
			address, device->driver);
	else if (device->is_kernels)
		snprintf(ret_text, size,
			"%s is bound to the kernel's %s: bind it to vfio-pci (`driverctl "
			"set-override %s vfio-pci`), which takes it from the kernel, or use "
			"`packet:INTERFACE`",
			address, device->driver, address);
}

long pci_free_huge_pages(const char *root)
{
	char path[PATH_MAX], file_path[PATH_MAX + 300];
	struct dirent *entry;
	long sum = 0;
	DIR *folder;

	snprintf(path, sizeof(path), "%s/sys/kernel/mm/hugepages", root);
	folder = opendir(path);
	while (folder && (entry = readdir(folder))) {
		long n = 0;
		FILE *file;

		snprintf(file_path, sizeof(file_path), "%s/%s/free_hugepages", path, entry->d_name);
		file = fopen(file_path, "re");
		if (file && fscanf(file, "%ld", &n) == 1)
			sum += n;
		if (file)
			fclose(file);
	}
	if (folder)
		closedir(folder);
	return sum;
}
