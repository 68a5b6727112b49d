/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The configuration of ferruled, from its file (man ferruled.conf). A plain value: it is read once
 * and then passed on. SIGHUP makes a new one.
 */
#ifndef FERRULE_DAEMON_CONFIG_CONFIG_H
#define FERRULE_DAEMON_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <ferrule/address.h>

/* A port that can be leased. Ports of DPDK, among others, have one lease at a time. */
struct config_port {
	char *devargs; /* "packet:roce0", or a PCI address */
	bool has_mac;  /* else from the fabric's pool, else the device's own */
	uint8_t mac[6];
};

/* Addresses from first to last, inclusive. */
struct config_range {
	struct frl_ip first;
	struct frl_ip last;
	uint8_t prefix_len;
};

struct config_fabric {
	char *name; /* not "local" */
	struct config_port *ports;
	size_t n_ports;
	struct config_range *addresses; /* a lease gets one address of each */
	size_t n_addresses;
	uint16_t vlan; /* 0: none */
	char *gateway; /* or NULL */
	bool has_macs; /* leases get MAC addresses from this pool */
	uint8_t mac_first[6];
	uint32_t n_macs;
	uint32_t path_mtu; /* 0: the port's own limit */
	uint32_t qpns;     /* queue pair numbers of a lease; 0: any */
	uid_t *users;      /* who may lease; without users and groups: root and the daemon's user */
	size_t n_users;
	gid_t *groups;
	size_t n_groups;
	bool any_user;
};

struct config {
	char *path; /* of the file; NULL: defaults */
	char *host; /* the name that peers get; default: gethostname() */
	char *socket;
	char *listen_address; /* "0.0.0.0", "::1"; NULL: no TCP */
	uint16_t listen_port;
	bool insecure;         /* TCP without TLS */
	char *tls_certificate; /* all three or none */
	char *tls_key;
	char *tls_ca;
	char *metrics_address; /* NULL: none */
	uint16_t metrics_port;
	bool metrics_by_default; /* not in the file: no metrics is then no error */
	char *user;              /* of the running daemon; NULL: unchanged */
	gid_t *operators;        /* groups that may see and control everything, like root */
	size_t n_operators;
	uint32_t hold_ms;      /* a lease's addresses rest this long */
	uint32_t keepalive_ms; /* a peer's host is gone after 1.5 times this */
	uint32_t relearn_ms;   /* time for processes to come back after a crash */
	uint32_t idle_exit_ms; /* a private daemon ends after this time unused; 0: never */
	uint32_t max_sessions; /* local sessions */
	uint32_t max_sessions_per_user;
	uint32_t max_ports_per_user;
	uint32_t max_listeners_per_user;
	uint32_t max_connections_per_user;
	uint32_t max_qps_per_user;
	uint32_t max_groups_per_user;
	uint32_t max_peers;
	uint32_t hello_ms; /* time limit for a Hello and for each message */
	struct config_fabric *fabrics;
	size_t n_fabrics;
};

/* Returns the defaults; NULL without memory. */
struct config *config_new(void);

/*
 * Reads a file. Returns NULL with "FILE:LINE: SETTING: the error, and what is valid" in `error`.
 * (The name config_read() belongs to libconfig.)
 */
struct config *config_load(const char *path, char *error, size_t size);

/* Calls `say` with a sentence for each thing that is valid but unwise, such as a key that others
 * can read, or metrics for the whole network. For the log, at start and after SIGHUP. */
void config_warnings(
	const struct config *config, void (*say)(void *arg, const char *line), void *arg);

/* Returns true for an interface of the kernel, whose packet sockets the daemon opens:
 * "packet:eth0". */
bool config_is_packet(const char *devargs);
/* Returns true if any number of leases may have the port at a time, limited by the addresses. */
bool config_is_shared(const struct config_port *port);
/* Returns true if a fabric has a port for which config_is_packet() is true. */
bool config_has_packet(const struct config *config);

/* Returns true if listen_address is set with neither TLS nor insecure = true. */
bool config_lacks_tls(const struct config *config);

/* Returns the number of addresses in the range, at most UINT64_MAX. */
uint64_t config_range_size(const struct config_range *range);

/* Returns the name of a setting that differs and cannot change while the daemon runs, or NULL. */
const char *config_fixed_difference(const struct config *now, const struct config *wanted);

void config_free(struct config *config);

/* One row for each setting, for the documentation, --help and the sample file. Settings of a fabric
 * and of its ports are named "fabrics.vlan" and "fabrics.ports.mac". */
struct config_row {
	const char *name;
	const char *default_text;
	const char *range;
	const char *help;
};
const struct config_row *config_rows(size_t *ret_count);

#endif
