/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PCI devices of fabrics: their drivers, and the requirements of these. The library decides by the
 * same facts (drivers/dpdk/pci.c), which this program does not include.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ctl/doctor.h"

enum {
	GROUPS = 512,
	CONFIG_SIZE = 1 << 20, /* larger than the kernel's configuration, some 300 KB */
	CAP_SYS_ADMIN_BIT = 21,
};

#define TURN_ON "turn it on in the firmware (VT-d, AMD-Vi); Intel may also need intel_iommu=on"
/* A parameter of modprobe has no effect once the module is loaded. */
#define NOIOMMU_ON "modprobe vfio; echo 1 >/sys/module/vfio/parameters/enable_unsafe_noiommu_mode"
#define UNSAFE     "with huge pages and as root (unsafe: the NIC can write everywhere)"

struct holder {
	char driver[DOCTOR_NAME]; /* of the kernel; "": none */
	char group[DOCTOR_NAME];  /* of the IOMMU; "": none */
	bool shares;              /* the kernel keeps the device; it need not be bound */
	bool by_physical;         /* DPDK uses physical addresses with it */
};

enum support { SUPPORTED, UNSUPPORTED, UNKNOWN };

static bool is_one_of(const char *driver, const char *const names[], size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(driver, names[i]) == 0)
			return true;
	return false;
}

/* Groups of VFIO's noiommu mode have this name. */
static bool is_real_group(const struct doctor *doctor, const char *group)
{
	char name[DOCTOR_NAME] = "";

	root_text(doctor, name, sizeof(name), "/sys/kernel/iommu_groups/%s/name", group);
	return strncmp(name, "vfio-noiommu", strlen("vfio-noiommu")) != 0;
}

static struct holder find_holder(const struct doctor *doctor, const struct doctor_port *port)
{
	static const char *const sharing[] = { "mlx5_core", "mlx4_core", "mana", "nfb" };
	static const char *const uio[] = { "uio_pci_generic", "igb_uio" };
	struct holder holder = { .driver = "" };
	const char *device = port->pci;

	root_link(doctor, holder.driver, sizeof(holder.driver), "/sys/bus/pci/devices/%s/driver",
		device);
	root_link(doctor, holder.group, sizeof(holder.group), "/sys/bus/pci/devices/%s/iommu_group",
		device);
	if (holder.group[0] && !is_real_group(doctor, holder.group))
		holder.group[0] = '\0';
	holder.shares = is_one_of(holder.driver, sharing, 4);
	holder.by_physical = is_one_of(holder.driver, uio, 2) ||
		(strcmp(holder.driver, "vfio-pci") == 0 && !holder.group[0]);
	return holder;
}

unsigned doctor_physical_ports(const struct doctor *doctor)
{
	unsigned n = 0;

	for (size_t i = 0; i < doctor->n_ports; i++)
		if (doctor->ports[i].pci[0] && find_holder(doctor, &doctor->ports[i]).by_physical)
			n++;
	return n;
}

/* ---- one device */

/* Returns false only if /proc shows that the capability is missing. */
static bool may_see_physical(const struct doctor *doctor)
{
	char status[4096];
	const char *line;

	line = root_text(doctor, status, sizeof(status), "/proc/self/status")
		? strstr(status, "CapEff:")
		: NULL;
	return !line || (strtoull(line + strlen("CapEff:"), NULL, 16) >> CAP_SYS_ADMIN_BIT & 1);
}

/* An IOMMU that passes addresses through is of the type "identity". */
static bool is_translated(const struct doctor *doctor, const char *group)
{
	char type[DOCTOR_NAME] = "";

	return group[0] &&
		root_text(doctor, type, sizeof(type), "/sys/kernel/iommu_groups/%s/type", group) &&
		strcmp(type, "identity") != 0;
}

static void check_physical(
	struct doctor *doctor, const struct doctor_port *port, const struct holder *holder)
{
	if (is_translated(doctor, holder->group))
		doctor_say(doctor, DOCTOR_WARN, "nic",
			"bind it to vfio-pci, which uses the IOMMU; else boot with iommu=pt",
			"%s: %s, behind an IOMMU, which does not let it use physical addresses",
			port->pci, holder->driver);
	else if (!may_see_physical(doctor))
		doctor_say(doctor, DOCTOR_WARN, "nic",
			"run programs as root, or bind it to vfio-pci on a machine with an IOMMU",
			"%s: %s, which needs physical addresses: this user lacks CAP_SYS_ADMIN",
			port->pci, holder->driver);
	else
		doctor_say(doctor, DOCTOR_OK, "nic", NULL,
			"%s: %s, %s: physical addresses, huge pages", port->pci, holder->driver,
			holder->group[0] ? "behind an IOMMU that passes addresses through"
					 : "without an IOMMU");
}

void doctor_pci(struct doctor *doctor, const struct doctor_port *port)
{
	struct holder holder = find_holder(doctor, port);
	char bind[160];

	snprintf(bind, sizeof(bind),
		"driverctl set-override %s vfio-pci (its kernel interface goes away)", port->pci);

	if (!root_exists(doctor, "/sys/bus/pci/devices/%s", port->pci))
		doctor_say(doctor, DOCTOR_FAIL, "nic",
			"correct the address in the configuration (lspci -D shows them)",
			"there is no PCI device %s (fabric %s)", port->pci, port->fabric);
	else if (!holder.driver[0])
		doctor_say(doctor, DOCTOR_FAIL, "nic", bind, "%s: bound to no driver", port->pci);
	else if (holder.shares)
		doctor_say(doctor, DOCTOR_OK, "nic", NULL, "%s: %s, beside the kernel", port->pci,
			holder.driver);
	else if (holder.by_physical)
		check_physical(doctor, port, &holder);
	else if (strcmp(holder.driver, "vfio-pci") != 0)
		doctor_say(doctor, DOCTOR_FAIL, "nic", bind, "%s: bound to the kernel's %s",
			port->pci, holder.driver);
	else if (!root_exists(doctor, "/sys/module/vfio_iommu_type1"))
		doctor_say(doctor, DOCTOR_FAIL, "nic", "modprobe vfio_iommu_type1",
			"%s: vfio-pci, but vfio_iommu_type1 is not loaded", port->pci);
	else
		doctor_say(doctor, DOCTOR_OK, "nic", NULL,
			"%s: vfio-pci, IOMMU group %s: virtual addresses", port->pci, holder.group);
}

/* ---- the machine */

static void check_vfio_files(struct doctor *doctor)
{
	char names[GROUPS / 32][DOCTOR_NAME];
	size_t count, i, denied = 0;

	if (!root_exists(doctor, "/dev/vfio/vfio")) {
		doctor_say(doctor, DOCTOR_FAIL, "vfio", "modprobe vfio-pci",
			"/dev/vfio/vfio is not there");
		return;
	}
	if (!root_access(doctor, R_OK | W_OK, "/dev/vfio/vfio")) {
		doctor_say(doctor, DOCTOR_FAIL, "vfio",
			"chmod 0666 /dev/vfio/vfio: it only allows creating empty containers",
			"/dev/vfio/vfio cannot be opened by this user");
		return;
	}
	count = root_list(doctor, "/dev/vfio", "", names, GROUPS / 32);
	for (i = 0; i < count; i++) {
		if (strcmp(names[i], "vfio") != 0 &&
			!root_access(doctor, R_OK | W_OK, "/dev/vfio/%s", names[i]))
			denied++;
	}
	if (denied)
		doctor_say(doctor, DOCTOR_WARN, "vfio",
			"give the groups' files in /dev/vfio to the users of the fabric (chown, or "
			"a udev rule)",
			"%zu of the groups in /dev/vfio cannot be opened by this user", denied);
	else
		doctor_say(doctor, DOCTOR_OK, "vfio", NULL, "/dev/vfio: %zu groups can be opened",
			count ? count - 1 : 0);
}

/* Returns whether the kernel's VFIO has a mode without IOMMU. Distributions disable it. */
static enum support noiommu_mode(const struct doctor *doctor)
{
	static char config[CONFIG_SIZE];
	char release[DOCTOR_NAME];

	if (root_exists(doctor, "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode"))
		return SUPPORTED;
	if (root_exists(doctor, "/sys/module/vfio"))
		return UNSUPPORTED;
	if (!root_text(doctor, release, sizeof(release), "/proc/sys/kernel/osrelease") ||
		!root_text(doctor, config, sizeof(config), "/boot/config-%s", release))
		return UNKNOWN;
	return strstr(config, "\nCONFIG_VFIO_NOIOMMU=y") ? SUPPORTED : UNSUPPORTED;
}

static void check_no_iommu(struct doctor *doctor, bool is_bound)
{
	static const char *const advice[] = {
		[SUPPORTED] = TURN_ON "; without one: " NOIOMMU_ON ", " UNSAFE,
		[UNSUPPORTED] = TURN_ON "; without one: bind it to uio_pci_generic, " UNSAFE,
		[UNKNOWN] = TURN_ON "; without one: " NOIOMMU_ON " if the kernel has "
				    "CONFIG_VFIO_NOIOMMU, else uio_pci_generic; " UNSAFE,
	};
	char unsafe[8] = "";

	root_text(doctor, unsafe, sizeof(unsafe),
		"/sys/module/vfio/parameters/enable_unsafe_noiommu_mode");
	if (unsafe[0] == 'Y' || unsafe[0] == '1')
		doctor_say(doctor, DOCTOR_WARN, "iommu", TURN_ON,
			"none, and VFIO is in its unsafe mode without IOMMU: devices can write "
			"everywhere");
	else if (is_bound)
		doctor_say(doctor, DOCTOR_WARN, "iommu", "if the machine has one, " TURN_ON,
			"none, and the fabrics' PCI devices are bound to UIO: they can write "
			"everywhere");
	else
		doctor_say(doctor, DOCTOR_FAIL, "iommu", advice[noiommu_mode(doctor)],
			"there is none, so VFIO provides no device");
}

/* Counts the groups of IOMMUs. */
static size_t count_groups(const struct doctor *doctor)
{
	static char names[GROUPS][DOCTOR_NAME];
	size_t count = root_list(doctor, "/sys/kernel/iommu_groups", "", names, GROUPS), n = 0;

	for (size_t i = 0; i < count; i++)
		n += is_real_group(doctor, names[i]);
	return n;
}

void doctor_iommu(struct doctor *doctor)
{
	static char names[GROUPS][DOCTOR_NAME];
	size_t units = root_list(doctor, "/sys/class/iommu", "", names, GROUPS);
	size_t groups = count_groups(doctor), n_need_binding = 0, n_bound_to_uio = 0;

	for (size_t i = 0; i < doctor->n_ports; i++) {
		struct holder holder;

		if (!doctor->ports[i].pci[0])
			continue;
		holder = find_holder(doctor, &doctor->ports[i]);
		n_need_binding += !holder.shares;
		n_bound_to_uio += holder.by_physical && strcmp(holder.driver, "vfio-pci") != 0;
	}
	if (!n_need_binding) {
		doctor_say(doctor, DOCTOR_SKIP, "iommu", NULL,
			"no fabric has a PCI device that must be bound (%zu IOMMUs, %zu groups are "
			"there)",
			units, groups);
		return;
	}
	if (groups)
		doctor_say(
			doctor, DOCTOR_OK, "iommu", NULL, "%zu IOMMUs, %zu groups", units, groups);
	else
		check_no_iommu(doctor, n_bound_to_uio == n_need_binding);
	if (n_bound_to_uio == n_need_binding)
		return;
	if (!root_exists(doctor, "/sys/module/vfio_pci"))
		doctor_say(doctor, DOCTOR_WARN, "vfio", "modprobe vfio-pci",
			"the module vfio-pci is not loaded");
	else
		check_vfio_files(doctor);
}
