/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ferrulectl doctor`: does this host meet the requirements of its fabrics, and what must change?
 * The checks read /proc, /sys and /dev under a root, which tests create. With a root, neither the
 * daemon nor CUDA is used. CPUs and routes are not checked: the system has tools for them.
 */
#ifndef FERRULE_DAEMON_CTL_DOCTOR_H
#define FERRULE_DAEMON_CTL_DOCTOR_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

enum doctor_status { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL, DOCTOR_SKIP };

struct finding {
	enum doctor_status status;
	char name[24];
	char text[640];
	char advice[640]; /* what to change, or empty */
};

enum {
	DOCTOR_FINDINGS = 256,
	DOCTOR_PORTS = 64,
	DOCTOR_NAME = 64,
	DOCTOR_PATH = 512,
};

/* A port of a fabric, from its devargs. */
struct doctor_port {
	char fabric[DOCTOR_NAME];
	char devargs[256];
	char driver[DOCTOR_NAME];    /* "af_packet", "packet", "pci", ...; "": unknown */
	char interface[DOCTOR_NAME]; /* of the kernel, or "" */
	char pci[16];                /* "0000:17:00.0", or "" */
	uint32_t path_mtu;           /* of the fabric; 0: the largest possible */
};

struct doctor {
	const char *root;    /* "": this machine */
	unsigned daemon_pid; /* 0: no answer, or not asked */
	struct doctor_port ports[DOCTOR_PORTS];
	size_t n_ports;
	struct finding findings[DOCTOR_FINDINGS];
	size_t n_findings;
};

void doctor_say(struct doctor *doctor, enum doctor_status status, const char *name,
	const char *advice, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Parses devargs and adds the port. Returns NULL beyond DOCTOR_PORTS. */
struct doctor_port *doctor_add_port(struct doctor *doctor, const char *fabric, const char *devargs);
/* Adds the ports of a line of DaemonInfo.fabrics: a name and devargs. */
void doctor_add_fabric(struct doctor *doctor, const char *line);

/* ---- doctor_host.c */
void doctor_hugepages(struct doctor *doctor);
void doctor_limits(struct doctor *doctor);
void doctor_rights(struct doctor *doctor);
void doctor_infiniband(struct doctor *doctor);
void doctor_runtime_dir(struct doctor *doctor, const char *folder, uint32_t uid);

/* ---- doctor_pci.c */

/* Checks that IOMMU and VFIO are as the fabrics' PCI devices need them. */
void doctor_iommu(struct doctor *doctor);
/* Checks the driver that the port's PCI device is bound to. */
void doctor_pci(struct doctor *doctor, const struct doctor_port *port);
/* Returns how many ports use physical addresses (IOVA as PA). */
unsigned doctor_physical_ports(const struct doctor *doctor);

/* ---- doctor_gpu.c */
struct frl_gpu_info;
/* `infos`: from frl_gpu_list(). */
void doctor_gpus(struct doctor *doctor, const struct frl_gpu_info *infos, size_t n);

/* ---- doctor_net.c */
void doctor_nics(struct doctor *doctor);

/* ---- doctor_files.c: files below the root; the functions format their paths */

/* The result is valid until the next call. Returns "" if the path is too long. */
const char *root_path(const struct doctor *doctor, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Reads the start of a file, without trailing white space. Returns false if it cannot be read. */
bool file_text(const char *path, char *text, size_t size);
bool file_number(const char *path, long long *ret);
/* Returns the last component of a symbolic link's target. */
bool file_link(const char *path, char *text, size_t size);

#define root_text(doctor, text, size, ...) file_text(root_path(doctor, __VA_ARGS__), text, size)
#define root_number(doctor, ret, ...)      file_number(root_path(doctor, __VA_ARGS__), ret)
#define root_link(doctor, text, size, ...) file_link(root_path(doctor, __VA_ARGS__), text, size)
#define root_exists(doctor, ...)           (access(root_path(doctor, __VA_ARGS__), F_OK) == 0)
/* Returns true if this process has the access `mode` (R_OK | W_OK). */
#define root_access(doctor, mode, ...) \
	(faccessat(AT_FDCWD, root_path(doctor, __VA_ARGS__), mode, AT_EACCESS) == 0)

/* Lists the names in a directory that begin with `prefix`, sorted. Returns their number, at most
 * `max`. */
size_t root_list(const struct doctor *doctor, const char *folder, const char *prefix,
	char names[][DOCTOR_NAME], size_t max);

#endif
