/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Selects memory that both ends of a link can read, and negotiates it with the peer.
 *
 * Packets of the owner request exports (`requested`). The link thread exchanges messages with the
 * peer, and maps and unmaps memory without a guard. When it publishes, it holds the guard, and adds
 * or removes the negotiated memory in the tables of bursts. Memory is therefore mapped before a
 * burst can see it, and unmapped after a publish has hidden it. The payload of a frame is read only
 * under the guard.
 */
#include "drivers/local/in_place.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "drivers/local/link.h"
#include "drivers/local/ring.h"
#include "lib/base/error.h"
#include "lib/base/memory/memfd.h"

enum {
	MAGIC = 0x46524c74, /* "FRLt" */
	MESSAGES_A_PASS = 16,
	RETRY_NS = 1000 * 1000,
};

enum message_type {
	MESSAGE_EXPORT = 1,
	MESSAGE_READY,
	MESSAGE_REFUSED,
	MESSAGE_WITHDRAW,
	MESSAGE_RELEASED,
	MESSAGE_MAPPED, /* id: 1 if the client can wake the server */
};

struct message {
	uint32_t magic;
	uint16_t type;
	uint16_t id;
	uint64_t size; /* EXPORT: size of the memory */
};

/* References that a publish has released, dropped later without the guard: the last user of a large
 * memory frees its pages. Used by the link thread only. */
static LIST_HEAD(, port_share) dropped = LIST_HEAD_INITIALIZER(dropped);

/* Returns NULL if peers would not map the memory. They refuse huge pages (imports.c): if the owner
 * has released one and none is free, reading it raises SIGBUS. */
static struct share *find_share(const struct local_port *port, const void *addr, size_t len)
{
	struct share *share = port->base.caps.in_place ? share_find(addr, len) : NULL;

	if (share && share->is_huge) {
		share_put(share);
		return NULL;
	}
	return share;
}

int in_place_use(struct local_port *port, void *addr, size_t len, struct port_share **ret_share)
{
	struct share *share = find_share(port, addr, len);
	struct port_share *use;

	*ret_share = NULL;
	if (!share)
		return 0;
	LIST_FOREACH(use, &port->shares, next)
	{
		if (use->share == share) {
			share_put(share);
			use->users++;
			*ret_share = use;
			return 0;
		}
	}
	use = calloc(1, sizeof(*use));
	if (!use) {
		share_put(share);
		return -ENOMEM;
	}
	use->share = share;
	use->users = 1;
	use->id = -1;
	LIST_INSERT_HEAD(&port->shares, use, next);
	*ret_share = use;
	return 0;
}

static void put_use(struct port_share *use)
{
	LIST_REMOVE(use, next);
	share_put(use->share);
	free(use);
}

/* Keeps an export for the next registration of the same memory. */
void in_place_unuse(struct local_port *port, struct port_share *use)
{
	use->users--;
	if (use->users == 0 && use->id < 0)
		put_use(use);
}

void in_place_request(struct local_port *port, struct in_place *in_place, struct port_share *use)
{
	if (use->id >= 0 && (in_place->requested >> use->id & 1))
		return;
	if (!port->epochs || use->leaving ||
		atomic_load_explicit(&use->share->freed, memory_order_relaxed))
		return;
	if (use->id < 0) {
		if (port->exports_used == UINT64_MAX)
			return;
		use->id = __builtin_ctzll(~port->exports_used);
		port->exports_used |= (uint64_t)1 << use->id;
		port->exports[use->id] = use;
	}
	in_place->requested |= (uint64_t)1 << use->id;
	link_thread_notify(port);
}

void in_place_fini(struct local_port *port)
{
	while (!LIST_EMPTY(&port->shares))
		put_use(LIST_FIRST(&port->shares));
	if (!port->epochs)
		return;
	share_free(port->epochs);
	share_put(port->epochs_share);
	port->epochs = NULL;
	port->epochs_share = NULL;
}

/* Withdraws memory that the application has freed. Also withdraws unused memory while other memory
 * needs an id. */
void in_place_publish_begin(struct local_port *port)
{
	bool full = port->exports_used == UINT64_MAX;

	port->exports_wait = full;
	port->exports_busy = 0;
	for (uint64_t left = port->exports_used; left; left &= left - 1) {
		struct port_share *use = port->exports[__builtin_ctzll(left)];

		if (atomic_load(&use->share->freed) || (full && use->users == 0))
			use->leaving = true;
	}
}

void in_place_publish_end(struct local_port *port)
{
	for (uint64_t left = port->exports_used & ~port->exports_busy; left; left &= left - 1) {
		int id = __builtin_ctzll(left);
		struct port_share *use = port->exports[id];

		if (!use->leaving)
			continue;
		port->exports_used &= ~((uint64_t)1 << id);
		port->exports[id] = NULL;
		use->id = -1;
		use->leaving = false;
		if (use->users == 0) {
			LIST_REMOVE(use, next);
			LIST_INSERT_HEAD(&dropped, use, next);
		}
	}
}

void in_place_put_dropped(void)
{
	while (!LIST_EMPTY(&dropped))
		put_use(LIST_FIRST(&dropped));
}

/* Returns true if a peer would accept the memory, see imports.c. A refusal would last as long as
 * the memory. */
static bool is_filled(const struct share *share)
{
	struct stat st;

	return fstat(share->fd, &st) ||
		(uint64_t)st.st_blocks * 512 + import_limits.link.holes >= share->size;
}

static void publish_export(struct local_port *port, struct in_place *in_place, int id)
{
	struct port_share *use = port->exports[id];
	enum export_state *state = &in_place->exports[id];
	uint64_t bit = (uint64_t)1 << id;

	if (use->leaving) {
		in_place->ready &= ~bit;
		if (*state == EXPORT_READY)
			*state = EXPORT_TO_WITHDRAW;
		else if (*state == EXPORT_TO_SEND || *state == EXPORT_REFUSED)
			*state = EXPORT_NONE;
		if (*state == EXPORT_NONE) {
			in_place->requested &= ~bit;
			return;
		}
	} else if (*state == EXPORT_NONE && !is_filled(use->share)) {
		port->exports_wait = true; /* still wanted: the next publish retries */
		return;
	} else if (*state == EXPORT_NONE) {
		in_place->shares[id] = use->share;
		*state = EXPORT_TO_SEND;
	} else if (*state == EXPORT_READY && in_place->exports[IN_PLACE_CONTROL] == EXPORT_READY) {
		in_place->ready |= bit;
	}
	port->exports_busy |= bit;
}

static bool publish_import(struct in_place *in_place, int id)
{
	struct import *import = &in_place->imports[id];
	bool show = import->state == IMPORT_TO_PUBLISH;

	if (!show && import->state != IMPORT_TO_HIDE)
		return false;
	if (id == IN_PLACE_CONTROL) {
		in_place->peer_epochs = show ? import->addr : NULL;
	} else {
		in_place->imported[id].addr = show ? import->addr : NULL;
		in_place->imported[id].size = import->size;
	}
	import->state = show ? IMPORT_TO_ANSWER : IMPORT_TO_UNMAP;
	return true;
}

bool in_place_publish(struct local_port *port, struct in_place *in_place)
{
	bool has_changed = false;

	if (in_place->detached)
		return false;
	for (uint64_t left = in_place->requested; left; left &= left - 1) {
		int id = __builtin_ctzll(left);
		enum export_state before = in_place->exports[id];

		publish_export(port, in_place, id);
		has_changed |= in_place->exports[id] != before;
	}
	for (int id = 0; id < IN_PLACE_IDS; id++)
		has_changed |= publish_import(in_place, id);
	return has_changed;
}

void in_place_hide(struct local_port *port, uint16_t link)
{
	struct burst_link *seen = &port->links[link];

	if (!seen->in_place)
		return;
	seen->in_place = NULL;
	ring_void(&seen->ring->tx);
}

/* Creates the revocation counters, shared by all links of the port. */
static void make_epochs(struct local_port *port)
{
	size_t size = PORT_FLOWS * sizeof(*port->epochs);

	port->epochs = share_alloc(size);
	if (port->epochs)
		port->epochs_share = share_find(port->epochs, size);
	else
		frl_log(FRL_LOG_WARNING,
			"payload is copied for peers on this machine: no memory to share with them "
			"(%s)",
			memfd_strerror(errno));
}

struct in_place *in_place_create(struct local_port *port)
{
	struct in_place *in_place = calloc(1, sizeof(*in_place));

	if (!in_place)
		return NULL;
	if (!port->epochs)
		make_epochs(port);
	if (!port->epochs)
		return in_place;
	in_place->shares[IN_PLACE_CONTROL] = port->epochs_share;
	in_place->exports[IN_PLACE_CONTROL] = EXPORT_TO_SEND;
	return in_place;
}

bool in_place_destroy(struct in_place **ref)
{
	struct in_place *in_place = *ref;

	if (!in_place)
		return true;
	if (in_place->visible && !in_place->detached)
		return false;
	for (int id = 0; id < IN_PLACE_IDS; id++)
		import_unmap(in_place, &in_place->imports[id]);
	free(in_place);
	*ref = NULL;
	return true;
}

static int send_message(int peer_fd, enum message_type type, int id, const struct share *share)
{
	struct message message = {
		.magic = MAGIC,
		.type = (uint16_t)type,
		.id = (uint16_t)id,
		.size = share ? share->size : 0,
	};

	return handshake_send_fd(peer_fd, &message, sizeof(message), share ? share->fd : -1);
}

/* Returns 0, -EAGAIN, or a negative errno if the peer is gone. */
static int advance_export(struct in_place *in_place, int id, int peer_fd)
{
	enum export_state *state = &in_place->exports[id];
	int err = 0;

	if (*state == EXPORT_TO_SEND) {
		err = share_seal(in_place->shares[id]);
		if (!err)
			err = send_message(peer_fd, MESSAGE_EXPORT, id, in_place->shares[id]);
		if (!err)
			*state = EXPORT_SENT;
		else if (err != -EAGAIN && err != -EPIPE)
			*state = EXPORT_REFUSED; /* refused by the system: keep copying */
	} else if (*state == EXPORT_TO_WITHDRAW) {
		err = send_message(peer_fd, MESSAGE_WITHDRAW, id, NULL);
		if (!err)
			*state = EXPORT_WITHDRAWN;
	}
	return *state == EXPORT_REFUSED ? 0 : err;
}

static int advance_import(struct in_place *in_place, int id, int peer_fd)
{
	struct import *import = &in_place->imports[id];
	int err = 0;

	if (import->state == IMPORT_TO_UNMAP) {
		import_unmap(in_place, import);
		import->state = IMPORT_TO_SEND_RELEASED;
	}
	if (import->state == IMPORT_TO_ANSWER) {
		err = send_message(peer_fd, MESSAGE_READY, id, NULL);
		if (!err)
			import->state = IMPORT_READY;
	} else if (import->state == IMPORT_TO_REFUSE || import->state == IMPORT_TO_SEND_RELEASED) {
		err = send_message(peer_fd,
			import->state == IMPORT_TO_REFUSE ? MESSAGE_REFUSED : MESSAGE_RELEASED, id,
			NULL);
		if (!err)
			import->state = IMPORT_NONE;
	}
	return err;
}

static void handle_export(struct in_place *in_place, const struct message *message, int *fd,
	int peer_fd, struct fabric_pass *pass)
{
	struct import *import = &in_place->imports[message->id];

	if (import->state != IMPORT_NONE) {
		send_message(peer_fd, MESSAGE_REFUSED, message->id, NULL);
	} else if (*fd < 0 || import_map(in_place, import, *fd, message->size)) {
		import->state = IMPORT_TO_REFUSE;
	} else if (message->id == IN_PLACE_CONTROL &&
		message->size < PORT_FLOWS * sizeof(uint64_t)) {
		import_unmap(in_place, import);
		import->state = IMPORT_TO_REFUSE;
	} else {
		import->state = IMPORT_TO_PUBLISH;
		pass->publish = true;
		handshake_close_passed(*fd, true);
		*fd = -1;
	}
}

/* Ignores unexpected answers. */
static int handle_memory_message(struct in_place *in_place, const struct message *message, int *fd,
	int peer_fd, struct fabric_pass *pass)
{
	enum export_state *export;
	struct import *import;

	if (message->magic != MAGIC)
		return -EPROTO;
	if (message->id >= IN_PLACE_IDS) {
		if (message->type == MESSAGE_EXPORT)
			send_message(peer_fd, MESSAGE_REFUSED, message->id, NULL);
		return 0;
	}
	export = &in_place->exports[message->id];
	import = &in_place->imports[message->id];
	switch (message->type) {
	case MESSAGE_EXPORT: handle_export(in_place, message, fd, peer_fd, pass); break;
	case MESSAGE_READY:
	case MESSAGE_REFUSED:
		if (*export == EXPORT_SENT) {
			*export = message->type == MESSAGE_READY ? EXPORT_READY : EXPORT_REFUSED;
			pass->publish = true;
		}
		break;
	case MESSAGE_WITHDRAW:
		if (import->state == IMPORT_READY && message->id != IN_PLACE_CONTROL) {
			import->state = IMPORT_TO_HIDE;
			pass->publish = true;
		}
		break;
	case MESSAGE_RELEASED:
		if (*export == EXPORT_WITHDRAWN) {
			*export = EXPORT_NONE;
			pass->publish = true;
		}
		break;
	default: break;
	}
	return 0;
}

/* If the client cannot wake the server, the server must not wake the client. Neither may rely on
 * wake-ups. */
static void handle_mapped(struct fabric_link *link, bool wakes, struct fabric_pass *pass)
{
	if (link->mapped || !link->ring)
		return;
	fabric_check_proof(link);
	if (!wakes)
		link->peer_wake = 0;
	link->mapped = true;
	pass->publish = true;
}

/* An end that is closing the link does not need the rest. */
static int handle_message(
	struct fabric_link *link, const struct message *message, int *fd, struct fabric_pass *pass)
{
	if (message->magic == MAGIC && message->type == MESSAGE_MAPPED)
		handle_mapped(link, message->id == 1, pass);
	else if (!link->closing && !link->in_place)
		return -EPROTO;
	else if (!link->closing)
		return handle_memory_message(link->in_place, message, fd, link->peer_fd, pass);
	return 0;
}

int in_place_receive(struct fabric_link *link, struct fabric_pass *pass)
{
	/* Limit the messages per step: a peer that sends without end must not block the link
	 * thread. */
	for (int i = 0; i < MESSAGES_A_PASS; i++) {
		struct message message;
		int fd = -1;
		int err = handshake_receive_fd(link->peer_fd, &message, sizeof(message), &fd);

		if (err)
			return err == -EAGAIN ? 0 : err;
		err = handle_message(link, &message, &fd, pass);
		handshake_close_passed(fd, false);
		if (err)
			return err;
	}
	pass->wake_ns = pass->now_ns;
	return 0;
}

int in_place_send_mapped(struct fabric_link *link)
{
	return send_message(link->peer_fd, MESSAGE_MAPPED, link->peer_wake != 0, NULL);
}

int in_place_step(struct fabric_link *link, struct fabric_pass *pass)
{
	struct in_place *in_place = link->in_place;
	int err = in_place_receive(link, pass);

	if (err || !in_place)
		return err;
	/* Export the epochs first: no reference is valid without them. */
	for (int id = IN_PLACE_IDS - 1; id >= 0 && !err; id--) {
		err = advance_export(in_place, id, link->peer_fd);
		if (!err)
			err = advance_import(in_place, id, link->peer_fd);
	}
	if (err != -EAGAIN)
		return err;
	pass->wake_ns = least(pass->wake_ns, pass->now_ns + RETRY_NS);
	return 0;
}
