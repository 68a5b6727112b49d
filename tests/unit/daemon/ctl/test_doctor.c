/* SPDX-License-Identifier: BSD-3-Clause */
/* ferrulectl doctor, on machines that are folders. */
#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ferrule/gpu.h>

#include "daemon/ctl/doctor.h"

#include "tests/fixtures/program.h"

static char root[64];
static struct doctor doctor;

/* ---- the machine */

static void make_folders(char *path)
{
	char *slash = path + strlen(root) + 1;

	while ((slash = strchr(slash, '/'))) {
		*slash = '\0';
		ck_assert(mkdir(path, 0755) == 0 || errno == EEXIST);
		*slash++ = '/';
	}
}

/* A file below the root. */
static void put(const char *name, const char *text)
{
	char path[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s%s", root, name);
	make_folders(path);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	fclose(file);
}

static void put_link(const char *name, const char *target)
{
	char path[512];

	snprintf(path, sizeof(path), "%s%s", root, name);
	make_folders(path);
	ck_assert_int_eq(symlink(target, path), 0);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
	return remove(path);
}

static void set_up(void)
{
	snprintf(root, sizeof(root), "%s/XXXXXX", test_folder());
	ck_assert_ptr_nonnull(mkdtemp(root));
	memset(&doctor, 0, sizeof(doctor));
	doctor.root = root;
}

static void tear_down(void)
{
	nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* The only finding of this name, or one of several with this text. */
static void check_found(enum doctor_status status, const char *name, const char *text)
{
	size_t i;

	for (i = 0; i < doctor.n_findings; i++) {
		const struct finding *finding = &doctor.findings[i];

		if (strcmp(finding->name, name) == 0 && strstr(finding->text, text)) {
			ck_assert_msg(finding->status == status, "%s: status %d: %s", name,
				(int)finding->status, finding->text);
			if (status == DOCTOR_FAIL || status == DOCTOR_WARN)
				ck_assert_msg(finding->advice[0], "%s: no advice", finding->text);
			return;
		}
	}
	ck_abort_msg("no finding of %s says \"%s\"; the last one: %s", name, text,
		doctor.n_findings ? doctor.findings[doctor.n_findings - 1].text : "none");
}

/* Some finding of this name has this advice. */
static void check_advice(const char *name, const char *advice)
{
	for (size_t i = 0; i < doctor.n_findings; i++)
		if (strcmp(doctor.findings[i].name, name) == 0 &&
			strstr(doctor.findings[i].advice, advice))
			return;
	ck_abort_msg("no finding of %s advises \"%s\"; the last one: %s", name, advice,
		doctor.n_findings ? doctor.findings[doctor.n_findings - 1].advice : "none");
}

/* ---- devargs */

static const struct {
	const char *devargs, *driver, *interface, *pci;
} devargs_rows[] = {
	{ "net_af_packet0,iface=roce0", "af_packet", "roce0", "" },
	{ "net_af_packet12,blocksz=4096,iface=eth0.7,qpairs=1", "af_packet", "eth0.7", "" },
	{ "packet:roce0", "packet", "roce0", "" },
	{ "packet:eth0.7,gso=off", "packet", "eth0.7", "" },
	{ "net_af_xdp,iface=ens1", "af_xdp", "ens1", "" },
	{ "net_vhost0,iface=vhost.sock", "vhost", "", "" },
	{ "net_tap0,iface=tap0,remote=ens1", "tap", "ens1", "" },
	{ "net_memif3,role=client", "memif", "", "" },
	{ "0000:17:00.0", "pci", "", "0000:17:00.0" },
	{ "17:00.1", "pci", "", "0000:17:00.1" },
	{ "0001:af:1f.7,mprq_en=1", "pci", "", "0001:af:1f.7" },
	{ "pci:0000:17:00.0", "pci", "", "0000:17:00.0" },
	{ "0000:17:00.9", "", "", "" },
	{ "0000:17:00.0x", "", "", "" },
	{ "auxiliary:mlx5_core.sf.1", "", "", "" },
	{ "", "", "", "" },
};

START_LOOP_TEST(devargs_are_taken_apart, ROWS(devargs_rows))
{
	const struct doctor_port *port = doctor_add_port(&doctor, "f", devargs_rows[_i].devargs);

	ck_assert_ptr_nonnull(port);
	ck_assert_str_eq(port->driver, devargs_rows[_i].driver);
	ck_assert_str_eq(port->interface, devargs_rows[_i].interface);
	ck_assert_str_eq(port->pci, devargs_rows[_i].pci);
}
END_TEST

START_TEST(fabrics_of_reports)
{
	char line[1024] = "many";
	int i;

	doctor_add_fabric(&doctor, "roce 0000:17:00.0 net_af_packet0,iface=a");
	doctor_add_fabric(&doctor, "none");
	doctor_add_fabric(&doctor, "");
	ck_assert_uint_eq(doctor.n_ports, 2);
	ck_assert_str_eq(doctor.ports[1].fabric, "roce");
	ck_assert_str_eq(doctor.ports[1].interface, "a");
	for (i = 0; i < 100; i++)
		strcat(line, " net_x0");
	doctor_add_fabric(&doctor, line);
	ck_assert_uint_eq(doctor.n_ports, DOCTOR_PORTS);
}
END_TEST

/* ---- a host without anything */

START_TEST(an_empty_machine)
{
	doctor_hugepages(&doctor);
	doctor_iommu(&doctor);
	doctor_limits(&doctor);
	doctor_rights(&doctor);
	doctor_infiniband(&doctor);
	doctor_nics(&doctor);
	check_found(DOCTOR_OK, "hugepages", "none are needed");
	check_found(DOCTOR_SKIP, "iommu", "no fabric has a PCI device that must be bound");
	check_found(DOCTOR_SKIP, "limits", "not there");
	check_found(DOCTOR_SKIP, "packet sockets", "no fabric");
	check_found(DOCTOR_SKIP, "infiniband", "none are needed");
	check_found(DOCTOR_SKIP, "nic", "no fabric is configured");
}
END_TEST

/* ---- one thing after the other */

START_TEST(hugepages)
{
	put("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n");
	put("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "100\n");
	put("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "4\n");
	put("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "0\n");
	doctor_hugepages(&doctor);
	check_found(DOCTOR_OK, "hugepages", "100 of 512 pages of 2048kB");
	check_found(DOCTOR_WARN, "hugepages", "0 of 4 pages of 1048576kB");
}
END_TEST

/* Ports by physical addresses, free pages of 2 MiB and of 1 GiB. */
static const struct {
	unsigned n_ports, free, free_large;
	enum doctor_status status;
	const char *text;
} hugepage_rows[] = {
	{ 1, 0, 0, DOCTOR_FAIL, "0 MiB are free, 32 are needed for 1 port that uses" },
	{ 1, 15, 0, DOCTOR_FAIL, "30 MiB are free, 32 are needed for 1 port that uses" },
	{ 1, 16, 0, DOCTOR_OK, "32 MiB are free" },
	{ 3, 47, 0, DOCTOR_FAIL, "94 MiB are free, 96 are needed for 3 ports that use" },
	{ 3, 48, 0, DOCTOR_OK, "96 MiB are free" },
	{ 3, 0, 1, DOCTOR_OK, "1024 MiB are free" },
};

START_LOOP_TEST(hugepages_of_ports, ROWS(hugepage_rows))
{
	char text[128];

	for (unsigned i = 0; i < hugepage_rows[_i].n_ports; i++) {
		snprintf(text, sizeof(text), "0000:%02x:00.0", i);
		doctor_add_port(&doctor, "f", text);
		snprintf(text, sizeof(text), "/sys/bus/pci/devices/0000:%02x:00.0/driver", i);
		put_link(text, "../drivers/uio_pci_generic");
	}
	/* This one needs none. */
	doctor_add_port(&doctor, "g", "0000:17:00.0");
	put_link("/sys/bus/pci/devices/0000:17:00.0/driver", "../drivers/mlx5_core");
	put("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "64\n");
	snprintf(text, sizeof(text), "%u\n", hugepage_rows[_i].free);
	put("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", text);
	snprintf(text, sizeof(text), "%u\n", hugepage_rows[_i].free_large);
	put("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "1\n");
	put("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", text);
	doctor_hugepages(&doctor);
	check_found(hugepage_rows[_i].status, "hugepages", hugepage_rows[_i].text);
}
END_TEST

#define LIMITS(memlock, files)                                                                 \
	"Limit                     Soft Limit           Hard Limit           Units     \n"     \
	"Max cpu time              unlimited            unlimited            seconds   \n"     \
	"Max locked memory         " memlock "              8388608              bytes     \n" \
	"Max open files            1024                 " files "               files     \n"

START_TEST(limits)
{
	put("/proc/self/limits", LIMITS("65536", "1024"));
	doctor_limits(&doctor);
	check_found(DOCTOR_OK, "memlock", "64 KiB may be locked");
	check_found(DOCTOR_WARN, "nofile", "only 1024 files");
	doctor_add_port(&doctor, "f", "0000:17:00.0");
	doctor.n_findings = 0;
	doctor_limits(&doctor);
	check_found(DOCTOR_FAIL, "memlock", "only 64 KiB may be locked");
	/* EAL's memory alone is as large. */
	put("/proc/self/limits", LIMITS("134217728", "1024"));
	doctor.n_findings = 0;
	doctor_limits(&doctor);
	check_found(DOCTOR_FAIL, "memlock", "only 131072 KiB may be locked");
	put("/proc/self/limits", LIMITS("unlimited", "unlimited"));
	doctor.n_findings = 0;
	doctor_limits(&doctor);
	check_found(DOCTOR_OK, "memlock", "no limit");
	check_found(DOCTOR_OK, "nofile", "more than 1048576");
	put("/proc/self/limits", LIMITS("399999999", "65536"));
	doctor.n_findings = 0;
	doctor_limits(&doctor);
	check_found(DOCTOR_OK, "memlock", "381 MiB");
	check_found(DOCTOR_OK, "nofile", "65536 files");
}
END_TEST

START_TEST(iommu_and_vfio)
{
	doctor_add_port(&doctor, "f", "0000:17:00.0");
	doctor_iommu(&doctor);
	check_found(DOCTOR_FAIL, "iommu", "there is none");
	check_found(DOCTOR_WARN, "vfio", "vfio-pci is not loaded");
	doctor.n_findings = 0;
	put("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n");
	put("/sys/module/vfio_pci/refcnt", "0\n");
	put("/sys/kernel/iommu_groups/0/name", "vfio-noiommu\n");
	doctor_iommu(&doctor);
	check_found(DOCTOR_WARN, "iommu", "unsafe");
	check_found(DOCTOR_FAIL, "vfio", "/dev/vfio/vfio is not there");
	doctor.n_findings = 0;
	put("/sys/class/iommu/dmar0/x", "");
	put("/sys/kernel/iommu_groups/1/type", "DMA\n");
	put("/sys/kernel/iommu_groups/2/type", "DMA\n");
	put("/dev/vfio/vfio", "");
	put("/dev/vfio/1", "");
	doctor_iommu(&doctor);
	check_found(DOCTOR_OK, "iommu", "1 IOMMUs, 2 groups");
	check_found(DOCTOR_OK, "vfio", "1 groups can be opened");
}
END_TEST

/* Without an IOMMU: the advice depends on the kernel's configuration, and on the NIC's driver. */
static const struct {
	const char *file, *text; /* of the machine; NULL: none */
	const char *driver;      /* of the NIC */
	enum doctor_status status;
	const char *advice;
} noiommu_rows[] = {
	{ "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N\n", "ice", DOCTOR_FAIL,
		"modprobe vfio; echo 1 "
		">/sys/module/vfio/parameters/enable_unsafe_noiommu_mode" },
	{ "/sys/module/vfio/refcnt", "1\n", "ice", DOCTOR_FAIL, "bind it to uio_pci_generic" },
	{ "/boot/config-6.1.0-56-amd64", "CONFIG_VFIO=m\nCONFIG_VFIO_NOIOMMU=y\n", "ice",
		DOCTOR_FAIL,
		"modprobe vfio; echo 1 "
		">/sys/module/vfio/parameters/enable_unsafe_noiommu_mode" },
	{ "/boot/config-6.1.0-56-amd64", "CONFIG_VFIO=m\n# CONFIG_VFIO_NOIOMMU is not set\n", "ice",
		DOCTOR_FAIL, "bind it to uio_pci_generic" },
	{ "/boot/config-5.10.0-1-amd64", "CONFIG_VFIO_NOIOMMU=y\n", "ice", DOCTOR_FAIL,
		"if the kernel has CONFIG_VFIO_NOIOMMU" },
	{ NULL, NULL, "ice", DOCTOR_FAIL, "if the kernel has CONFIG_VFIO_NOIOMMU" },
	{ NULL, NULL, "uio_pci_generic", DOCTOR_WARN,
		"turn it on in the firmware (VT-d, AMD-Vi); Intel may also need intel_iommu=on" },
	{ NULL, NULL, "mlx5_core", DOCTOR_SKIP, "" },
};

START_LOOP_TEST(no_iommu, ROWS(noiommu_rows))
{
	char driver[64];

	snprintf(driver, sizeof(driver), "../drivers/%s", noiommu_rows[_i].driver);
	put("/proc/sys/kernel/osrelease", "6.1.0-56-amd64\n");
	doctor_add_port(&doctor, "f", "0000:17:00.0");
	put_link("/sys/bus/pci/devices/0000:17:00.0/driver", driver);
	if (noiommu_rows[_i].file)
		put(noiommu_rows[_i].file, noiommu_rows[_i].text);
	doctor_iommu(&doctor);
	check_found(noiommu_rows[_i].status, "iommu", "");
	check_advice("iommu", noiommu_rows[_i].advice);
	/* VFIO does not matter to NICs of other drivers. */
	ck_assert_uint_eq(doctor.n_findings, strcmp(noiommu_rows[_i].driver, "ice") == 0 ? 2 : 1);
}
END_TEST

static const struct {
	const char *port;
	const char *own;     /* capabilities */
	const char *daemons; /* NULL: none answers */
	enum doctor_status status;
	const char *text, *advice;
} rights_rows[] = {
	{ "net_af_packet0,iface=a", "ffffffffffffdfff", NULL, DOCTOR_WARN, "lacks CAP_NET_RAW",
		"packet:INTERFACE" },
	{ "net_af_packet0,iface=a", "2000", "2000", DOCTOR_WARN, "lacks", "CAP_NET_ADMIN" },
	{ "net_af_packet0,iface=a", "3000", NULL, DOCTOR_OK, "and CAP_NET_ADMIN", "" },
	{ "packet:a", "0", NULL, DOCTOR_WARN, "neither ferruled nor", "start ferruled with" },
	{ "packet:a", "0", "1000", DOCTOR_WARN, "neither ferruled nor", "start ferruled with" },
	{ "packet:a", "2000", NULL, DOCTOR_OK, "this user has CAP_NET_RAW", "" },
	{ "packet:a", "0", "2000", DOCTOR_OK, "programs need no capability", "" },
};

static void put_status(const char *path, const char *capabilities)
{
	char status[100];

	snprintf(status, sizeof(status), "Name:\tx\nCapInh:\t0\nCapEff:\t%s\n", capabilities);
	put(path, status);
}

START_LOOP_TEST(rights_to_packet_sockets, ROWS(rights_rows))
{
	doctor_add_port(&doctor, "f", rights_rows[_i].port);
	doctor_rights(&doctor);
	check_found(DOCTOR_SKIP, "packet sockets", "does not show");
	put_status("/proc/self/status", rights_rows[_i].own);
	if (rights_rows[_i].daemons) {
		put_status("/proc/77/status", rights_rows[_i].daemons);
		doctor.daemon_pid = 77;
	}
	put("/proc/sys/net/core/rmem_max", "8388608\n");
	doctor_rights(&doctor);
	check_found(rights_rows[_i].status, "packet sockets", rights_rows[_i].text);
	check_advice("packet sockets", rights_rows[_i].advice);
}
END_TEST

START_TEST(room_of_packet_sockets)
{
	doctor_add_port(&doctor, "f", "packet:a");
	put_status("/proc/self/status", "2000");
	put("/proc/sys/net/core/rmem_max", "212992\n");
	doctor_rights(&doctor);
	check_found(DOCTOR_WARN, "packet sockets", "212992");
	check_advice("packet sockets", "net.core.rmem_max=8388608");
}
END_TEST

static const struct frl_gpu_info a_gpu = { .ordinal = 1,
	.name = "NVIDIA H100",
	.pci = "0000:3b:00.0",
	.memory_bytes = UINT64_C(79) << 30,
	.compute_major = 9,
	.driver_version = 12040 };

/* The driver's view of GPUs. */
START_TEST(gpus_by_the_driver)
{
	static const struct frl_gpu_info none = { .ordinal = -1,
		.reason = "no CUDA here: because" };
	static const struct frl_gpu_info off = { .ordinal = -1,
		.reason = "FRL_GPU_TIER is off: because" };
	struct frl_gpu_info infos[2] = { a_gpu, a_gpu };

	doctor_gpus(&doctor, &none, 1);
	check_found(DOCTOR_SKIP, "gpu", "no CUDA here: because");
	doctor.n_findings = 0;
	put("/sys/module/nvidia/refcnt", "1\n"); /* then somebody wants one */
	doctor_gpus(&doctor, &none, 1);
	check_found(DOCTOR_WARN, "gpu", "CUDA shows this user no usable GPU");
	ck_assert_str_eq(doctor.findings[0].advice, none.reason);
	doctor.n_findings = 0;
	doctor_gpus(&doctor, &off, 1); /* whatever CUDA would say */
	check_found(DOCTOR_SKIP, "gpu", "FRL_GPU_TIER is off: because");
	doctor.n_findings = 0;
	infos[0].usable = infos[0].exports_dmabuf = infos[0].has_kernels = true;
	strcpy(infos[1].reason, "its fan has stopped: clean it");
	doctor_gpus(&doctor, infos, 2);
	ck_assert_uint_eq(doctor.n_findings, 2);
	check_found(DOCTOR_OK, "gpu",
		"1: NVIDIA H100, 0000:3b:00.0, 79 GiB, compute capability 9.0, driver of CUDA "
		"12.4: "
		"usable: NICs by dma-buf, kernels");
	check_found(DOCTOR_WARN, "gpu", "CUDA 12.4: cannot be used");
	ck_assert_str_eq(doctor.findings[1].advice, infos[1].reason);
	doctor.n_findings = 0;
	infos[1].usable = infos[1].has_peermem = true;
	doctor_gpus(&doctor, infos + 1, 1);
	check_found(DOCTOR_OK, "gpu", "usable: NICs by nvidia-peermem");
	ck_assert_str_eq(doctor.findings[0].advice, infos[1].reason);
	doctor.n_findings = 0;
	infos[0].loads_lazily = infos[1].loads_lazily = true;
	doctor_gpus(&doctor, infos, 2);
	ck_assert_uint_eq(doctor.n_findings, 3);
	check_found(DOCTOR_OK, "gpu", "CUDA loads modules lazily: NCCL with FERRULE_GPU=1 needs");
}
END_TEST

/* Names and reasons of maximum length, and more GPUs than there is room for findings. */
START_TEST(too_many_gpus)
{
	static struct frl_gpu_info infos[DOCTOR_FINDINGS + 1];

	for (size_t i = 0; i <= DOCTOR_FINDINGS; i++) {
		infos[i] = a_gpu;
		infos[i].ordinal = (int)i;
		memset(infos[i].name, 'n', sizeof(infos[i].name) - 1);
		memset(infos[i].pci, 'p', sizeof(infos[i].pci) - 1);
		memset(infos[i].reason, 'r', sizeof(infos[i].reason) - 1);
	}
	doctor_gpus(&doctor, infos, DOCTOR_FINDINGS + 1);
	ck_assert_uint_eq(doctor.n_findings, DOCTOR_FINDINGS);
	ck_assert_uint_eq(strlen(doctor.findings[0].advice), sizeof(infos[0].reason) - 1);
	doctor_gpus(&doctor, infos, 0);
	ck_assert_uint_eq(doctor.n_findings, DOCTOR_FINDINGS);
}
END_TEST

START_TEST(interfaces)
{
	struct doctor_port *port = doctor_add_port(&doctor, "f", "net_af_packet0,iface=roce0");

	doctor_nics(&doctor);
	check_found(DOCTOR_FAIL, "nic", "interface roce0 of fabric f is not there");
	put("/sys/class/net/roce0/operstate", "up\n");
	put("/sys/class/net/roce0/speed", "100000\n");
	put("/sys/class/net/roce0/mtu", "1500\n");
	put("/sys/bus/pci/drivers/mlx5_core/x", "");
	put_link("/sys/class/net/roce0/device/driver", "../../../bus/pci/drivers/mlx5_core");
	doctor_nics(&doctor);
	check_found(DOCTOR_OK, "nic", "roce0 (mlx5_core): link up, 100000 Mb/s");
	check_found(DOCTOR_WARN, "mtu", "MTU 1500 carries a path MTU of 1024");
	port->path_mtu = 4096;
	doctor.n_findings = 0;
	doctor_nics(&doctor);
	check_found(DOCTOR_FAIL, "mtu", "fabric f needs 4096");
	put("/sys/class/net/roce0/mtu", "4180\n"); /* 84 bytes besides the payload */
	doctor_nics(&doctor);
	check_found(DOCTOR_OK, "mtu", "MTU 4180 carries a path MTU of 4096");
	put("/sys/class/net/roce0/mtu", "4179\n");
	doctor_nics(&doctor);
	check_found(DOCTOR_FAIL, "mtu", "MTU 4179 carries a path MTU of 2048");
	put("/sys/class/net/roce0/operstate", "down\n");
	doctor_nics(&doctor);
	check_found(DOCTOR_FAIL, "nic", "the link is down");
}
END_TEST

START_LOOP_TEST(forwards, 3)
{
	put("/sys/class/net/roce0/operstate", "up\n");
	put("/proc/sys/net/ipv4/conf/roce0/forwarding", _i ? "1\n" : "0\n");
	doctor_add_port(&doctor, "f", _i == 2 ? "net_af_packet0,iface=roce0" : "packet:roce0");
	doctor_nics(&doctor);
	ck_assert_uint_eq(doctor.n_findings, _i == 1 ? 2 : 1);
	if (_i == 1)
		check_found(DOCTOR_WARN, "nic", "roce0: the kernel forwards ipv4");
}
END_TEST

START_TEST(missing_pci_devices)
{
	doctor_add_port(&doctor, "f", "0000:17:00.0");
	doctor_nics(&doctor);
	check_found(DOCTOR_FAIL, "nic", "there is no PCI device 0000:17:00.0");
	put("/sys/bus/pci/devices/0000:17:00.0/vendor", "0x8086\n");
	doctor_nics(&doctor);
	check_found(DOCTOR_FAIL, "nic", "bound to no driver");
}
END_TEST

#define TYPE1 "/sys/module/vfio_iommu_type1/refcnt"

/* The driver of a PCI device, its group, and a file of the machine. */
static const struct {
	const char *driver, *group_file, *group_text, *file, *file_text;
	enum doctor_status status;
	const char *text;
} pci_rows[] = {
	{ "ice", "type", "DMA\n", TYPE1, "0\n", DOCTOR_FAIL, "bound to the kernel's ice" },
	{ "mlx5_core", "type", "DMA\n", NULL, NULL, DOCTOR_OK, "mlx5_core, beside the kernel" },
	{ "nfb", "type", "DMA\n", NULL, NULL, DOCTOR_OK, "nfb, beside the kernel" },
	{ "vfio-pci", "type", "DMA\n", TYPE1, "0\n", DOCTOR_OK,
		"vfio-pci, IOMMU group 7: virtual addresses" },
	{ "vfio-pci", "type", "DMA\n", NULL, NULL, DOCTOR_FAIL, "vfio_iommu_type1 is not loaded" },
	{ "vfio-pci", "name", "vfio-noiommu\n", NULL, NULL, DOCTOR_OK,
		"vfio-pci, without an IOMMU: physical addresses" },
	{ "vfio-pci", NULL, NULL, NULL, NULL, DOCTOR_OK,
		"vfio-pci, without an IOMMU: physical addresses" },
	{ "igb_uio", NULL, NULL, NULL, NULL, DOCTOR_OK,
		"igb_uio, without an IOMMU: physical addresses" },
	{ "uio_pci_generic", "type", "identity\n", NULL, NULL, DOCTOR_OK,
		"uio_pci_generic, behind an IOMMU that passes addresses through: physical" },
	{ "uio_pci_generic", "type", "DMA-FQ\n", NULL, NULL, DOCTOR_WARN,
		"uio_pci_generic, behind an IOMMU" },
	{ "uio_pci_generic", NULL, NULL, "/proc/self/status", "CapEff:\t00000000001fffff\n",
		DOCTOR_WARN, "this user lacks CAP_SYS_ADMIN" },
	{ "uio_pci_generic", NULL, NULL, "/proc/self/status", "CapEff:\t0000000000200000\n",
		DOCTOR_OK, "physical addresses" },
};

START_LOOP_TEST(pci_devices, ROWS(pci_rows))
{
	char text[128];

	doctor_add_port(&doctor, "f", "17:00.0");
	snprintf(text, sizeof(text), "../drivers/%s", pci_rows[_i].driver);
	put_link("/sys/bus/pci/devices/0000:17:00.0/driver", text);
	if (pci_rows[_i].group_file) {
		put_link("/sys/bus/pci/devices/0000:17:00.0/iommu_group",
			"../../kernel/iommu_groups/7");
		snprintf(text, sizeof(text), "/sys/kernel/iommu_groups/7/%s",
			pci_rows[_i].group_file);
		put(text, pci_rows[_i].group_text);
	}
	if (pci_rows[_i].file)
		put(pci_rows[_i].file, pci_rows[_i].file_text);
	doctor_nics(&doctor);
	check_found(pci_rows[_i].status, "nic", pci_rows[_i].text);
	ck_assert_uint_eq(doctor.n_findings, 1);
}
END_TEST

#define ROUTES                                                                                  \
	"Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n" \
	"eth0\t00000000\t0102000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"                          \
	"eth0\t0002000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"

#define NEIGHBOURS                                                                         \
	"IP address       HW type     Flags       HW address            Mask     Device\n" \
	"10.0.2.1         0x1         0x2         52:54:00:12:35:02     *        eth0\n"   \
	"10.0.2.9         0x1         0x0         00:00:00:00:00:00     *        eth0\n"

START_TEST(runtime_folders)
{
	char folder[128];

	doctor_runtime_dir(&doctor, NULL, 1000);
	check_found(DOCTOR_OK, "runtime folder", "/tmp/ferrule-1000");
	doctor_runtime_dir(&doctor, "/nowhere/at/all", 1000);
	check_found(DOCTOR_WARN, "runtime folder", "is not a directory");
	snprintf(folder, sizeof(folder), "%s/run", root);
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	doctor_runtime_dir(&doctor, folder, getuid() + 1);
	check_found(DOCTOR_WARN, "runtime folder", "mode 700");
	doctor.n_findings = 0;
	doctor_runtime_dir(&doctor, folder, getuid());
	check_found(DOCTOR_OK, "runtime folder", folder);
}
END_TEST

TEST_MAIN(doctor)
{
	return run_suite(all_tests(set_up, tear_down));
}
