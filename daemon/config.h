/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What ferruled is told by its configuration file (man ferruled.conf). A plain value: read once,
 * then handed over; SIGHUP makes a new one.
 */
#ifndef FERRULE_DAEMON_CONFIG_H
#define FERRULE_DAEMON_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <ferrule/address.h>

/* A port that is leased: of DPDK and others to one process at a time. */
struct config_port {
	char *devargs; /* "packet:roce0", or a PCI address */
	bool has_mac;  /* else from the fabric's pool, if it has one, else the device's own */
	uint8_t mac[6];
};

/* Addresses first to last, both included. */
struct config_range {
	struct frl_ip first;
	struct frl_ip last;
	uint8_t prefix_len;
};

struct config_fabric {
	char *name; /* not "local" */
	struct config_port *ports;
	size_t n_ports;
	struct config_range *addresses; /* a lease gets one of each */
	size_t n_addresses;
	uint16_t vlan; /* 0: none */
	char *gateway; /* or NULL */
	bool has_macs; /* leases get MACs from here */
	uint8_t mac_first[6];
	uint32_t n_macs;
	uint32_t path_mtu; /* 0: what the port carries */
	uint32_t qpns;     /* queue pair numbers of a lease; 0: any */
	uid_t *users;      /* who may use it; none of both: only root and the daemon's own user */
	size_t n_users;
	gid_t *groups;
	size_t n_groups;
	bool any_user;
};

struct config {
	char *path; /* of the file, or NULL: defaults */
	char *host; /* the name that peers are told; default: gethostname() */
	char *socket;
	char *listen_address; /* "0.0.0.0", "::1"; NULL: no TCP */
	uint16_t listen_port;
	bool insecure;         /* TCP without TLS */
	char *tls_certificate; /* all three or none */
	char *tls_key;
	char *tls_ca;
	char *metrics_address; /* NULL: none */
	uint16_t metrics_port;
	bool metrics_by_default; /* nobody has asked for them: they may fail to be there */
	char *user;              /* to become after start, or NULL */
	gid_t *operators;        /* groups whose members see and steer everything, as root does */
	size_t n_operators;
	uint32_t hold_ms;      /* a lease's addresses rest so long */
	uint32_t keepalive_ms; /* a peer's host that is silent for so long is gone */
	uint32_t relearn_ms;   /* after a crash: processes have so long to come back */
	uint32_t idle_exit_ms; /* private: ends when nobody was there for so long; 0: never */
	uint32_t max_sessions; /* of all; local ones */
	uint32_t max_sessions_per_user;
	uint32_t max_ports_per_user;
	uint32_t max_listeners_per_user;
	uint32_t max_connections_per_user;
	uint32_t max_qps_per_user;
	uint32_t max_groups_per_user;
	uint32_t max_peers;
	uint32_t hello_ms; /* a stranger says who it is within this, and no message takes longer */
	struct config_fabric *fabrics;
	size_t n_fabrics;
};

/* The defaults. NULL: no memory. */
struct config *config_new(void);

/*
 * Reads a file. NULL with "FILE:LINE: SETTING: what is wrong, what would be right" in `error`.
 * (Not config_read(): libconfig has a function of that name.)
 */
struct config *config_load(const char *path, char *error, size_t size);

/* Calls `say` with a sentence for each thing that is allowed but unwise: a key that others can
 * read, metrics for the whole network. For the log, at start and after SIGHUP. */
void config_warnings(
	const struct config *config, void (*say)(void *arg, const char *line), void *arg);

/* The port is an interface of the kernel, whose packet socket the daemon opens: "packet:eth0". */
bool config_is_packet(const char *devargs);
/* Any number of leases may have the port at a time: the addresses are the limit. */
bool config_is_shared(const struct config_port *port);
/* A fabric has a port for which config_is_packet() holds. */
bool config_has_packet(const struct config *config);

/* Returns true if listen_address is set with neither TLS nor insecure = true. */
bool config_lacks_tls(const struct config *config);

/* Returns the number of addresses in the range, at most UINT64_MAX. */
uint64_t config_range_size(const struct config_range *range);

/* Returns the name of a setting that differs and cannot change while the daemon runs, or NULL. */
const char *config_fixed_difference(const struct config *now, const struct config *wanted);

void config_free(struct config *config);

/* One row a setting for documentation, --help and the sample file. Those of a fabric and of its
 * ports are named "fabrics.vlan", "fabrics.ports.mac". */
struct config_row {
	const char *name;
	const char *default_text;
	const char *range;
	const char *help;
};
const struct config_row *config_rows(size_t *ret_count);

#endif
