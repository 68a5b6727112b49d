/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports of processes: opened, leased, described, closed; and the check that an endpoint belongs to
 * one of them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/leases/leases.h"
#include "lib/base/bytes.h"
#include "lib/base/net/ip.h"
#include "lib/control/endpoint.h"

/* An OpenPort that waits while processes of the previous daemon may come back. */
struct open_wait {
	struct list node; /* core.open_waits */
	uint64_t session;
	uid_t uid;
	uint64_t seq;
	uint32_t port;
	char fabric[CORE_NAME];
};

struct port *port_find(const struct session *session, uint32_t number)
{
	LIST_EACH(struct port, port, &session->ports, of_session) {
		if (port->number == number)
			return port;
	}
	return NULL;
}

/* ---- opening */

static void answer_opened(struct core *core, const struct session *session, uint64_t seq,
	const struct port *port, bool has_socket)
{
	Ctl__PortOpened opened = CTL__PORT_OPENED__INIT;
	struct lease *lease = port->lease;
	Ctl__Lease message = CTL__LEASE__INIT;
	char ip[LEASE_TEXT];

	message.fabric = (char *)(uintptr_t)port->fabric;
	if (lease) {
		lease_print_ip(lease, ip);
		message.id = lease->id;
		message.devargs = lease->devargs;
		message.ip = ip;
		message.gateway = lease->gateway;
		message.path_mtu = lease->path_mtu;
		message.qpn_first = lease->qpn_first;
		message.qpn_count = lease->qpn_count;
		if (lease->has_mac)
			message.mac = (ProtobufCBinaryData){ sizeof(lease->mac), lease->mac };
	}
	opened.port = port->number;
	opened.has_socket = has_socket;
	opened.lease = &message;
	session_send(core, session, &ENVELOPE(seq, PORT_OPENED, port_opened, &opened));
}

static void no_fabric(const struct core *core, const char *name, char *why, size_t size)
{
	if (!core->facts.is_private || core->config->n_fabrics)
		snprintf(why, size,
			"there is no fabric \"%s\": see fabrics in the configuration of ferruled",
			name);
	else if (core->facts.has_system)
		snprintf(why, size,
			"this user's private daemon has no fabric \"%s\": the system's ferruled "
			"does "
			"not run; systemctl start ferruled",
			name);
	else
		snprintf(why, size,
			"this user's private daemon has no fabric \"%s\": set up the system's "
			"ferruled (man ferruled)",
			name);
}

/* Returns the fabric if the user may lease from it now, else NULL with a sentence in `why`. */
static const struct config_fabric *may_lease(const struct core *core, const struct session *session,
	const char *name, bool again, int *ret_error, char *why, size_t size)
{
	const struct config_fabric *fabric = fabric_find(core, name);

	*ret_error = ENOENT;
	no_fabric(core, name, why, size);
	if (!fabric)
		return NULL;
	*ret_error = EACCES;
	snprintf(why, size,
		"user %u may not use fabric %s: see its users, groups and any_user in the "
		"configuration of ferruled",
		session->uid, name);
	if (!may_use_fabric(core, session, fabric))
		return NULL;
	*ret_error = EBUSY;
	snprintf(why, size, "the host is draining: %s", core->draining);
	return core->draining[0] && !again ? NULL : fabric;
}

/* Returns true if the process may have had a lease that it continues: from the previous daemon, or
 * one that rests. A draining host still grants those. */
static bool may_have_had(const struct core *core, const struct session *session, uint64_t now_ns)
{
	if (now_ns < core->started_ns + core->config->relearn_ms * UINT64_C(1000000))
		return true;
	LIST_EACH(const struct lease, lease, &core->leases, node) {
		if (!lease->port && lease->uid == session->uid)
			return true;
	}
	return false;
}

static void log_lease(struct core *core, const struct port *port, const char *does)
{
	const struct who *who = &port->session->who;
	char ip[LEASE_TEXT];

	lease_print_ip(port->lease, ip);
	core_say(core, CORE_LOG_INFO, "process %u (%s) of user %u %s %s of fabric %s, %s", who->pid,
		who->program, who->uid, does, port->lease->devargs, port->fabric,
		ip[0] ? ip : "without addresses");
}

/* A process that comes back has its socket already. */
static struct lease *new_lease(struct core *core, const struct session *session,
	const struct config_fabric *fabric, const Ctl__Lease *wanted, uint64_t now_ns,
	bool *ret_has_socket, int *ret_error, char *why, size_t size)
{
	struct lease *lease = lease_new(
		core, session, fabric, wanted, now_ns, ret_error, why, size);

	if (!lease || wanted ||
		lease_open_socket(core, session, lease, ret_has_socket, ret_error, why, size))
		return lease;
	lease_drop(core, lease);
	return NULL;
}

/* Resting addresses will be free soon: report when. Ports of other processes may never be. */
static void refuse_lease(struct core *core, const struct session *session, uint64_t seq,
	const char *fabric, int error, const char *why, uint64_t now_ns)
{
	bool rests = error == EAGAIN;

	session_fail_for(core, session, seq, rests ? EBUSY : error,
		rests ? lease_rest_ms(core, fabric, now_ns) : 0, why);
}

static void open_port(struct core *core, struct session *session, uint64_t seq, uint32_t number,
	const char *name, const Ctl__Lease *wanted, uint64_t now_ns)
{
	bool is_local = !name[0] || strcmp(name, "local") == 0;
	const struct config_fabric *fabric = NULL;
	char why[CORE_REASON + CORE_HOST];
	struct port *port;
	bool has_socket = false;
	int error;

	if (!is_local) {
		fabric = may_lease(core, session, name,
			wanted && may_have_had(core, session, now_ns), &error, why, sizeof(why));
		if (!fabric) {
			core->counters.leases_refused++;
			session_fail(core, session, seq, error, "%s", why);
			return;
		}
	}
	port = calloc(1, sizeof(*port));
	if (!port) {
		session_fail(core, session, seq, ENOMEM, "ferruled has no memory left");
		return;
	}
	port->session = session;
	port->number = number;
	port->since_ns = now_ns;
	copy_text(port->fabric, sizeof(port->fabric), is_local ? "local" : name);
	if (fabric) {
		port->lease = new_lease(core, session, fabric, wanted, now_ns, &has_socket, &error,
			why, sizeof(why));
		if (!port->lease) {
			core->counters.leases_refused++;
			refuse_lease(core, session, seq, name, error, why, now_ns);
			free(port);
			return;
		}
		port->lease->port = port;
		core->counters.leases++;
		log_lease(core, port, wanted ? "has again" : "leases");
	}
	list_add_tail(&session->ports, &port->of_session);
	session->user->usage.ports++;
	answer_opened(core, session, seq, port, has_socket);
}

static uint32_t count_waits(const struct core *core, uid_t uid)
{
	uint32_t n = 0;

	LIST_EACH(const struct open_wait, wait, &core->open_waits, node) {
		n += wait->uid == uid;
	}
	return n;
}

static struct open_wait *find_wait(
	const struct core *core, const struct session *session, uint32_t number)
{
	LIST_EACH(struct open_wait, wait, &core->open_waits, node) {
		if (wait->session == session->id && wait->port == number)
			return wait;
	}
	return NULL;
}

/* Checks max_ports_per_user. Returns false after a Failure. */
static bool has_room(struct core *core, const struct session *session, uint64_t seq,
	const char *fabric, const Ctl__Lease *wanted)
{
	uint32_t limit = core->config->max_ports_per_user;
	uint32_t open = core_usage(core, session->uid).ports + count_waits(core, session->uid);
	uint32_t kept = leases_with_sockets(core, session->uid, fabric, wanted);

	if (open + kept < limit)
		return true;
	if (kept)
		session_fail(core, session, seq, EDQUOT,
			"user %u has %u ports and the sockets of %u closed ones; the limit is %u "
			"(max_ports_per_user): see ferrulectl ports",
			session->uid, open, kept, limit);
	else
		session_fail(core, session, seq, EDQUOT,
			"user %u has %u ports already (max_ports_per_user)", session->uid, limit);
	return false;
}

void ports_open(struct core *core, struct session *session, uint64_t seq,
	const Ctl__OpenPort *message, uint64_t now_ns)
{
	const Ctl__Lease *wanted = message->lease && message->lease->devargs[0] ? message->lease
										: NULL;
	bool relearns = now_ns < core->relearn_until_ns;
	struct open_wait *wait;

	if (message->port == 0 || port_find(session, message->port) ||
		find_wait(core, session, message->port)) {
		session_fail(core, session, seq, EEXIST, "ports are numbered from 1, each once: %u",
			message->port);
		return;
	}
	if (session->uid != 0 && !has_room(core, session, seq, message->fabric, wanted))
		return;
	/* fabric_find(): NULL for the local fabric or an unknown one. No lease to wait for. */
	if (wanted || !relearns || !fabric_find(core, message->fabric)) {
		open_port(core, session, seq, message->port, message->fabric, wanted, now_ns);
		return;
	}
	wait = calloc(1, sizeof(*wait));
	if (!wait) {
		session_fail(core, session, seq, ENOMEM, "ferruled has no memory left");
		return;
	}
	wait->session = session->id;
	wait->uid = session->uid;
	wait->seq = seq;
	wait->port = message->port;
	copy_text(wait->fabric, sizeof(wait->fabric), message->fabric);
	list_add_tail(&core->open_waits, &wait->node);
}

static uint64_t answer_waits(struct core *core, uint64_t now_ns)
{
	if (list_empty(&core->open_waits))
		return CORE_NEVER;
	if (now_ns < core->relearn_until_ns)
		return core->relearn_until_ns;
	LIST_EACH(struct open_wait, wait, &core->open_waits, node) {
		struct session *session = session_find(core, wait->session);

		list_remove(&wait->node);
		if (session)
			open_port(core, session, wait->seq, wait->port, wait->fabric, NULL, now_ns);
		free(wait);
	}
	return CORE_NEVER;
}

/* ---- description */

/* Returns true if another process has the same device. Its name has 16 random bytes: this is an
 * attack. */
static bool is_anothers(const struct core *core, const struct port *port, const uint8_t *nonce)
{
	const struct session *session;

	for (session = core->sessions; session; session = session->hh.next) {
		LIST_EACH(const struct port, other, &session->ports, of_session) {
			if (other != port && other->described &&
				memcmp(other->nonce, nonce, sizeof(other->nonce)) == 0)
				return true;
		}
	}
	return false;
}

/* A leased port may use the leased addresses only; other ports may choose theirs. */
static bool may_have_address(const struct port *port, const struct frl_ip *ip)
{
	const struct lease *lease = port->lease;

	for (uint32_t i = 0; lease && i < lease->n_addresses; i++) {
		if (memcmp(&lease->addresses[i], ip, sizeof(*ip)) == 0)
			return true;
	}
	return !lease;
}

static const char *read_description(struct port *port, const Ctl__DescribePort *message)
{
	const struct lease *lease = port->lease;

	if (message->mac.len != sizeof(port->mac) || message->nonce.len != sizeof(port->nonce))
		return "it has no MAC address or no nonce";
	if (lease && lease->has_mac &&
		memcmp(message->mac.data, lease->mac, sizeof(lease->mac)) != 0)
		return "its MAC address is not the leased one";
	for (size_t i = 0; i < message->n_addresses && i < PORT_ADDRESSES; i++) {
		if (parse_ip(message->addresses[i], &port->ips[i], NULL))
			return "one of its addresses cannot be read";
		if (!may_have_address(port, &port->ips[i]))
			return "one of its addresses is not a leased one";
		copy_text(port->addresses[i], sizeof(port->addresses[i]), message->addresses[i]);
		port->n_addresses = (uint32_t)i + 1;
	}
	if (port->n_addresses == 0)
		return "it has no address";
	copy_text(port->device, sizeof(port->device), message->device);
	memcpy(port->mac, message->mac.data, sizeof(port->mac));
	memcpy(port->nonce, message->nonce.data, sizeof(port->nonce));
	port->path_mtu = message->path_mtu;
	return NULL;
}

void ports_describe(struct core *core, struct session *session, uint64_t seq,
	const Ctl__DescribePort *message, uint64_t now_ns)
{
	struct port *port = port_find(session, message->port);
	const char *why;

	if (!port || port->described) {
		session_fail(core, session, seq, EINVAL,
			port ? "port %u is described already"
			     : "there is no port %u: open it first",
			message->port);
		return;
	}
	if (message->nonce.len == sizeof(port->nonce) &&
		is_anothers(core, port, message->nonce.data)) {
		session_fail(core, session, seq, EADDRINUSE,
			"port %u has the identity of another process", message->port);
		return;
	}
	why = read_description(port, message);
	if (why) {
		port->n_addresses = 0;
		session_fail(core, session, seq, EINVAL, "port %u: %s", message->port, why);
		return;
	}
	port->described = true;
	port->page = session->page;
	session->page = (struct page_view){ 0 };
	session_done(core, session, seq);
}

/* ---- closing */

static void close_port(struct core *core, struct port *port, uint64_t now_ns)
{
	conns_port_lost(core, port, now_ns);
	if (port->described)
		metrics_port_lost(core, port);
	if (port->page.close)
		port->page.close(&port->page);
	if (port->lease) {
		log_lease(core, port, "gives back");
		lease_end(core, port->lease, now_ns);
	}
	list_remove(&port->of_session);
	port->session->user->usage.slots -= port->slots;
	port->session->user->usage.ports--;
	free(port);
}

void ports_close(struct core *core, struct session *session, uint32_t number, uint64_t now_ns)
{
	struct port *port = port_find(session, number);
	struct open_wait *wait = find_wait(core, session, number);

	if (port)
		close_port(core, port, now_ns);
	if (!wait)
		return;
	session_fail(core, session, wait->seq, ECANCELED, "port %u was closed meanwhile", number);
	list_remove(&wait->node);
	free(wait);
}

void ports_session_lost(struct core *core, struct session *session, uint64_t now_ns)
{
	LIST_EACH(struct port, port, &session->ports, of_session) {
		close_port(core, port, now_ns);
	}
	LIST_EACH(struct open_wait, wait, &core->open_waits, node) {
		if (wait->session != session->id)
			continue;
		list_remove(&wait->node);
		free(wait);
	}
}

uint64_t ports_tick(struct core *core, uint64_t now_ns)
{
	uint64_t waits_ns = answer_waits(core, now_ns);
	uint64_t leases_ns = leases_tick(core, now_ns);

	return waits_ns < leases_ns ? waits_ns : leases_ns;
}

void ports_destroy(struct core *core)
{
	LIST_EACH(struct open_wait, wait, &core->open_waits, node) {
		list_remove(&wait->node);
		free(wait);
	}
	leases_destroy(core);
}

/* ---- endpoints */

static bool has_address(const struct port *port, const uint8_t *bytes)
{
	for (uint32_t i = 0; i < port->n_addresses; i++) {
		if (memcmp(port->ips[i].bytes, bytes, sizeof(port->ips[i].bytes)) == 0)
			return true;
	}
	return false;
}

bool port_owns_endpoint(const struct port *port, const uint8_t *endpoint, uint32_t *ret_qpn)
{
	uint32_t qpn = get_be32(endpoint + ENDPOINT_AT_QPN);
	const struct lease *lease = port->lease;
	uint8_t n = endpoint[ENDPOINT_AT_ADDRESSES];

	if (!port->described || get_be32(endpoint + ENDPOINT_AT_MAGIC) != ENDPOINT_MAGIC ||
		memcmp(endpoint + ENDPOINT_AT_MAC, port->mac, sizeof(port->mac)) != 0 ||
		memcmp(endpoint + ENDPOINT_AT_NONCE, port->nonce, sizeof(port->nonce)) != 0 ||
		n < 1 || n > PORT_ADDRESSES)
		return false;
	for (unsigned i = 0; i < n; i++) {
		if (!has_address(port, endpoint + endpoint_ip_at(i)))
			return false;
	}
	if (qpn == 0 || qpn >= ENDPOINT_QPN_END)
		return false;
	if (lease && lease->qpn_count &&
		(qpn < lease->qpn_first || qpn >= lease->qpn_first + lease->qpn_count))
		return false;
	*ret_qpn = qpn;
	return true;
}
