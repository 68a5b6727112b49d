/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tools share: numbers and sizes on the command line, device options, error
 * lines, file name patterns, quantiles. One thread.
 */
#ifndef FERRULE_TOOLS_COMMON_COMMON_H
#define FERRULE_TOOLS_COMMON_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/ferrule.h>

enum {
	EXIT_USAGE = 2,
	MAX_RANKS = 64, /* of the tools, not of Ferrule */
	MAX_RAILS = 4,
};

/* Error lines say "rank R" from now on. */
void say_rank(int rank);

/* One line on standard error, in one write so that the lines of several ranks do not mix. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* As say() followed by what the library says about its latest failure; `rc` is its result. */
void say_failure(int rc, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One line about a bad command line; returns EXIT_USAGE. */
int usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Flushes standard output. `status` for the process, or a failure where it could not be written. */
int finish_output(int status);

/* A whole number within [min, max]. */
bool parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value);

/* A whole number with an optional suffix K, M or G (powers of 1024), as in 64M or 64MiB. */
bool parse_size(const char *text, uint64_t *ret_bytes);

/* "332.0 KiB"; returns `text`. */
char *format_bytes(uint64_t bytes, char text[static 16]);

/* Device options, the same in every program. */
struct device_rail {
	const char *fabric; /* or NULL */
	const char *port, *ip, *gateway;
};

struct device_options {
	struct device_rail rails[MAX_RAILS];
	int n_ports, n_ips, n_fabrics; /* how many of the above are given */
	int n_rails;                   /* 0: not given */
	char peer[FRL_HOST_MAX + 1];   /* whom an RDMA NIC is to reach, or "" */
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
/* Of programs that can use several. */
#define RAIL_LONG_OPTIONS                                                                          \
	DEVICE_LONG_OPTIONS,                                                                       \
	{"rails", required_argument, NULL, OPT_RAILS}
/* clang-format on */

#define DEVICE_HELP                                                                              \
	"Device (default: the local fabric, which needs no NIC and no root):\n"                  \
	"  --port DEVARGS      an Ethernet interface: packet:eth0; a DPDK port, as a PCI\n"      \
	"                      address or 'net_af_packet0,iface=eth0';\n"                        \
	"                      an RDMA NIC: verbs:mlx5_0 (ferrule-info lists them), or\n"        \
	"                      verbs, the one that leads to the peer or to the job's host\n"     \
	"  --ip ADDRESS/BITS   the port's own address, which the kernel must not use;\n"         \
	"                      an RDMA NIC may go without, or have one of the kernel's\n"        \
	"  --gateway ADDRESS   next hop to other subnets\n"                                      \
	"  --fabric NAME       instead of these: a port that the daemon leases on that fabric\n" \
	"  --mtu BYTES         path MTU: powers of two, 256 to 16384 (networks: 4096)\n"         \
	"  --progress HOW      auto, inline (who polls drives) or thread (default: auto)\n"

#define RAIL_HELP                                                                                  \
	DEVICE_HELP                                                                                \
	"  --rails N           so many devices of that kind; data is striped over them, and\n"     \
	"                      when one of them dies the others go on (default: 1)\n"              \
	"Rails that differ: up to 4 times --port with --ip (and --gateway), or --fabric, in the\n" \
	"same order on all ranks. %r in a port or its address is the rank.\n"

/* Takes one of the options above: 0, or EXIT_USAGE after saying what is wrong with it. */
int device_option(int code, const char *value, struct device_options *options);

/* With whom this process is going to speak, as far as is known: "host", "host:port", "[::1]:port".
 * Of several RDMA NICs it gets the one that leads there. */
void device_peer(struct device_options *options, const char *host);

/* Checks that they fit together, for a program that uses `most` devices: 0 or EXIT_USAGE. */
int device_options_check(const struct device_options *options, int most);

/* How many devices there are to be. */
int device_count(const struct device_options *options);

/* Is there a port that has the same name on all ranks? */
bool device_is_shared(const struct device_options *options);

/* Opens device `number` of that rank, or of no rank (-1); says why when it cannot. 0 or a negative
 * errno. */
int device_options_open(
	const struct device_options *options, int number, int rank, struct frl_device **ret_device);

uint64_t now_ns(void);

/* The smallest value that at least the share `q` of the values does not exceed. Sorted input. */
double quantile(const double sorted[], size_t n, double q);
void sort_doubles(double values[], size_t n);

/* `pattern` with each "%r" replaced by the rank; to be freed. NULL: no memory. */
char *path_of_rank(const char *pattern, int rank);

/* Makes the folders above the last component of `path`. 0 or a negative errno. */
int make_folders(const char *path);

#endif
