/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions that the tools share: numbers and sizes on the command line, device options, error
 * lines, file name patterns, quantiles. For one thread.
 */
#ifndef FERRULE_TOOLS_COMMON_COMMON_H
#define FERRULE_TOOLS_COMMON_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/ferrule.h>

enum {
	EXIT_USAGE = 2,
	MAX_RANKS = 64, /* a limit of the tools, not of Ferrule */
	MAX_RAILS = 4,
};

/* Makes all later error lines contain "rank R". */
void say_rank(int rank);

/*
 * Prints one line on standard error with one write(), so that the lines of several ranks do not
 * mix.
 */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints as say() does, followed by frl_last_error(), or by the text of `rc` if that is empty. */
void say_failure(int rc, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints one line about an invalid command line. Returns EXIT_USAGE. */
int usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Flushes standard output. Returns `status`, or EXIT_FAILURE if standard output could not be
 * written.
 */
int finish_output(int status);

/* Parses a whole number within [min, max]. Returns false if `text` is not one. */
bool parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value);

/*
 * Parses a whole number with an optional suffix K, M or G (powers of 1024), as in 64M or 64MiB.
 * Returns false if `text` is not one.
 */
bool parse_size(const char *text, uint64_t *ret_bytes);

/* Writes a number of bytes as "332.0 KiB". Returns `text`. */
char *format_bytes(uint64_t bytes, char text[static 16]);

/* Device options, the same in every tool. */
struct device_rail {
	const char *fabric; /* or NULL */
	const char *port, *ip, *gateway;
};

struct device_options {
	struct device_rail rails[MAX_RAILS];
	int n_ports, n_ips, n_fabrics; /* how many of each are given */
	int n_rails;                   /* 0: not given */
	char peer[FRL_HOST_MAX + 1];   /* the host that an RDMA NIC must reach, or "" */
	uint64_t mtu;
	enum frl_progress progress;
};

enum {
	OPT_PORT = 1000,
	OPT_IP,
	OPT_GATEWAY,
	OPT_FABRIC,
	OPT_MTU,
	OPT_PROGRESS,
	OPT_RAILS,
	OPT_OWN
};

/* clang-format off */
#define DEVICE_LONG_OPTIONS                                                                        \
	{"port", required_argument, NULL, OPT_PORT},                                               \
	{"ip", required_argument, NULL, OPT_IP},                                                   \
	{"gateway", required_argument, NULL, OPT_GATEWAY},                                         \
	{"fabric", required_argument, NULL, OPT_FABRIC},                                           \
	{"mtu", required_argument, NULL, OPT_MTU},                                                 \
	{"progress", required_argument, NULL, OPT_PROGRESS}
/* Options of tools that can use several devices. */
#define RAIL_LONG_OPTIONS                                                                          \
	DEVICE_LONG_OPTIONS,                                                                       \
	{"rails", required_argument, NULL, OPT_RAILS}
/* clang-format on */

#define DEVICE_HELP                                                                               \
	"Device (default: the local fabric, which needs no NIC and no root):\n"                   \
	"  --port PORT         packet:eth0: an Ethernet interface of the kernel\n"                \
	"                      a PCI address, or 'net_af_packet0,iface=eth0': a port of DPDK\n"   \
	"                      verbs:mlx5_0: an RDMA NIC (ferrule-info lists them)\n"             \
	"                      verbs: the RDMA NIC on the route to the peer or the job's host\n"  \
	"  --ip ADDRESS/BITS   the port's address, which the kernel must not use\n"               \
	"                      (optional for an RDMA NIC: one of the kernel's addresses)\n"       \
	"  --gateway ADDRESS   next hop to other subnets\n"                                       \
	"  --fabric NAME       instead of a port: lease one on this fabric from the daemon\n"     \
	"  --mtu BYTES         path MTU: a power of two, 256 to 16384 (on networks up to 4096)\n" \
	"  --progress HOW      auto, inline (the polling thread) or thread (default: auto)\n"

#define RAIL_HELP                                                                                  \
	DEVICE_HELP                                                                                \
	"  --rails N           number of such devices (default: 1); data is striped over\n"        \
	"                      them, and if one fails the others continue\n"                       \
	"Different rails: give --port with --ip (and --gateway), or --fabric, up to 4 times, in\n" \
	"the same order on all ranks. %r in a port or its address is replaced by the rank.\n"

/* Takes one of the options above. Returns 0, or EXIT_USAGE after printing what is wrong with it. */
int device_option(int code, const char *value, struct device_options *options);

/*
 * Sets the host that this process will connect to: "host", "host:port" or "[::1]:port". If there
 * are several RDMA NICs, the process gets the one on the route to that host.
 */
void device_peer(struct device_options *options, const char *host);

/*
 * Checks that the options fit together, for a tool that uses at most `most` devices. Returns 0 or
 * EXIT_USAGE.
 */
int device_options_check(const struct device_options *options, int most);

/* Returns the number of devices to open. */
int device_count(const struct device_options *options);

/* Returns whether a port has the same name on all ranks. */
bool device_is_shared(const struct device_options *options);

/*
 * Opens device `number` of rank `rank` (-1: no rank). Prints the reason of a failure. Returns 0 or
 * a negative errno.
 */
int device_options_open(
	const struct device_options *options, int number, int rank, struct frl_device **ret_device);

uint64_t now_ns(void);

/*
 * Returns the smallest value that at least the share `q` of the values does not exceed. The values
 * must be sorted.
 */
double quantile(const double sorted[], size_t n, double q);
void sort_doubles(double values[], size_t n);

/*
 * Returns `pattern` with each "%r" replaced by the rank; the caller frees it. Returns NULL if there
 * is no memory.
 */
char *path_of_rank(const char *pattern, int rank);

/* Creates the folders above the last component of `path`. Returns 0 or a negative errno. */
int make_folders(const char *path);

#endif
