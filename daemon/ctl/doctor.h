/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ferrulectl doctor`: is this host fit for what its fabrics want, and what is to be changed? The
 * checks read /proc, /sys and /dev under a root that tests make themselves. With a root, the daemon
 * and CUDA are not asked. Processors and routes are not checked: the system's own tools show them.
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

/* A port of a fabric, by its devargs. */
struct doctor_port {
	char fabric[DOCTOR_NAME];
	char devargs[256];
	char driver[DOCTOR_NAME];    /* "af_packet", "packet", "pci", ...; "": not known */
	char interface[DOCTOR_NAME]; /* of the kernel, or "" */
	char pci[16];                /* "0000:17:00.0", or "" */
	uint32_t path_mtu;           /* that the fabric wants; 0: what fits */
};

struct doctor {
	const char *root;    /* "": this machine */
	unsigned daemon_pid; /* 0: none answers, or it was not asked */
	struct doctor_port ports[DOCTOR_PORTS];
	size_t n_ports;
	struct finding findings[DOCTOR_FINDINGS];
	size_t n_findings;
};

void doctor_say(struct doctor *doctor, enum doctor_status status, const char *name,
	const char *advice, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Takes the devargs apart; ports beyond DOCTOR_PORTS are left out. The port, or NULL. */
struct doctor_port *doctor_add_port(struct doctor *doctor, const char *fabric, const char *devargs);
/* A line of DaemonInfo.fabrics: a name and devargs. */
void doctor_add_fabric(struct doctor *doctor, const char *line);

/* ---- doctor_host.c */
void doctor_hugepages(struct doctor *doctor);
void doctor_limits(struct doctor *doctor);
void doctor_rights(struct doctor *doctor);
void doctor_infiniband(struct doctor *doctor);
void doctor_runtime_dir(struct doctor *doctor, const char *folder, uint32_t uid);

/* ---- doctor_pci.c */

/* The IOMMU and VFIO, as the fabrics' PCI devices need them. */
void doctor_iommu(struct doctor *doctor);
/* The driver that the port's PCI device is bound to. */
void doctor_pci(struct doctor *doctor, const struct doctor_port *port);
/* How many ports use physical addresses (IOVA as PA). */
unsigned doctor_physical_ports(const struct doctor *doctor);

/* ---- doctor_gpu.c */
struct frl_gpu_info;
/* As frl_gpu_list() has listed them. */
void doctor_gpus(struct doctor *doctor, const struct frl_gpu_info *infos, size_t n);

/* ---- doctor_net.c */
void doctor_nics(struct doctor *doctor);

/* ---- doctor_files.c: below the root; paths are formatted */

/* Good until the next call; "" if it is too long. */
const char *root_path(const struct doctor *doctor, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The file's first bytes, without white space at the end. False: there is none, or no right. */
bool file_text(const char *path, char *text, size_t size);
bool file_number(const char *path, long long *ret);
/* The last part of where a symbolic link leads. */
bool file_link(const char *path, char *text, size_t size);

#define root_text(doctor, text, size, ...) file_text(root_path(doctor, __VA_ARGS__), text, size)
#define root_number(doctor, ret, ...)      file_number(root_path(doctor, __VA_ARGS__), ret)
#define root_link(doctor, text, size, ...) file_link(root_path(doctor, __VA_ARGS__), text, size)
#define root_exists(doctor, ...)           (access(root_path(doctor, __VA_ARGS__), F_OK) == 0)
/* May this process do that (R_OK | W_OK)? */
#define root_access(doctor, mode, ...) \
	(faccessat(AT_FDCWD, root_path(doctor, __VA_ARGS__), mode, AT_EACCESS) == 0)

/* Names in a folder that begin with `prefix`, sorted: how many, up to `max` of them. */
size_t root_list(const struct doctor *doctor, const char *folder, const char *prefix,
	char names[][DOCTOR_NAME], size_t max);

#endif
