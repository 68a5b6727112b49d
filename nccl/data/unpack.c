/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/data/unpack.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/mman.h>

#include <ferrule/fragments.h>

#include "nccl/data/bounce.h"
#include "nccl/failure.h"
#include "nccl/log.h"
#include "nccl/settings.h"
#include "nccl/api/tuner.h"

enum {
	MOST_SLICES = 4, /* of NCCL's buffer, in use at the same time */
	FAST = 16,       /* kernels load 16 bytes at a time if the data is aligned */
	WHY = 512,
};

enum slot_state {
	SLOT_FREE,
	SLOT_ARMED,
	SLOT_PUBLISHED, /* the kernel may be reading */
	SLOT_LOST,      /* its memory was deregistered */
};

struct slot {
	enum slot_state state;
	const struct registration *registration;
	struct frl_fragment *lists[NET_MAX_RAILS];
	uint32_t tokens[NET_MAX_RAILS];
	int n_armed; /* rails with an armed buffer */
};

struct unpack {
	struct nccl_device_handle_v7 device;
	atomic_uint holders; /* the connection, and each registration */
	const struct net_device *ports;
	struct frl_fragments *shares[NET_MAX_RAILS];
	uint32_t least;  /* frames for NCCL's largest receive, on any rail */
	uint32_t frames; /* of each share: `least`, twice that, or MOST_SLICES times that */
	bool is_refused;
	char refused[WHY];     /* the reason of the last refused receive, or "" */
	struct bounce *bounce; /* NULL: undecided or refused */
	struct bounce_block *block;
	bool is_in_doubt; /* an aborted kernel may still use the block */
	struct frl_fragment *lists;
	unsigned next;
	pthread_mutex_t lock; /* protects the following fields */
	struct comm *comm;    /* NULL: the connection has ended */
	struct slot slots[NCCL_UNPACK_SLOTS];
};

static size_t list_bytes(const struct unpack *unpack)
{
	return sizeof(struct frl_fragment) * NCCL_UNPACK_SLOTS * NCCL_UNPACK_PIECES *
		(size_t)unpack->ports->n_rails;
}

static uint32_t path_mtu(const struct comm *comm)
{
	uint32_t smallest = UINT32_MAX;

	for (int i = 0; i < comm->n_paths; i++) {
		struct frl_qp_attr attr;

		frl_qp_query(comm->paths[i].qp, &attr);
		smallest = attr.path_mtu < smallest ? attr.path_mtu : smallest;
	}
	return smallest;
}

struct nccl_device_handle_v7 *net_unpack_offer(struct comm *comm)
{
	struct unpack *unpack;

	if (!net_device_unpacks(comm->device))
		return NULL;
	unpack = calloc(1, sizeof(*unpack));
	if (!unpack)
		return NULL;
	/* Until GPU memory is registered, the connection has no device part. */
	unpack->device = (struct nccl_device_handle_v7){
		.type = NCCL_DEVICE_HOST,
		.version = NCCL_DEVICE_UNPACK_VERSION,
		.size = sizeof(struct nccl_unpack_handle),
		.needs_proxy_progress = 1,
	};
	atomic_init(&unpack->holders, 1);
	pthread_mutex_init(&unpack->lock, NULL);
	unpack->ports = comm->device;
	unpack->comm = comm;
	comm->unpack = unpack;
	comm->path_mtu = path_mtu(comm);
	return &unpack->device;
}

/* ---- whether the connection can unpack */

static void give_shares_back(struct unpack *unpack)
{
	for (int i = 0; i < unpack->ports->n_rails; i++) {
		struct net_port *port = net_port_at(unpack->ports, i);

		if (!unpack->shares[i])
			continue;
		if (frl_fragments_destroy(unpack->shares[i]))
			net_log_warning("packet buffers of %s stay in use: %s", port->info.name,
				frl_last_error());
		else
			atomic_fetch_sub(&port->held_frames, unpack->frames);
		unpack->shares[i] = NULL;
	}
}

static int take_shares(struct unpack *unpack, uint32_t frames)
{
	int err = 0;

	unpack->frames = frames;
	for (int i = 0; i < unpack->ports->n_rails && !err; i++) {
		struct net_port *port = net_port_at(unpack->ports, i);

		err = frl_fragments_create(port->pd, frames, &unpack->shares[i]);
		if (!err)
			atomic_fetch_add(&port->held_frames, frames);
	}
	if (err)
		give_shares_back(unpack);
	return err;
}

/* Each path may end its piece of a message with a partial packet. */
static uint64_t frames_for(const struct comm *comm, uint64_t size)
{
	uint64_t frames = (size + comm->path_mtu - 1) / comm->path_mtu;

	return size ? frames + (uint64_t)comm->n_paths : 0;
}

/* Returns an error if a slice needs more packets than kernels accept. The connection would
 * otherwise fail at its first full slice. */
static int choose_least(const struct comm *comm, char *why, size_t size)
{
	size_t slice = net_settings()->nccl_slice;
	uint64_t frames = frames_for(comm, slice);

	if (frames > NCCL_UNPACK_PIECES) {
		snprintf(why, size,
			"receives of up to %zu bytes need %llu packets of %u bytes, but NCCL's "
			"kernels take %d: set a larger MTU or a smaller NCCL_BUFFSIZE",
			slice, (unsigned long long)frames, comm->path_mtu, NCCL_UNPACK_PIECES);
		return -EMSGSIZE;
	}
	comm->unpack->least = (uint32_t)frames;
	return 0;
}

/* The first connections of a port get enough frames for all of NCCL's steps. Later ones get fewer,
 * so that many connections get some. */
static uint32_t fair_share(const struct unpack *unpack)
{
	uint32_t frames = MOST_SLICES * unpack->least;

	for (int i = 0; i < unpack->ports->n_rails; i++) {
		struct net_port *port = net_port_at(unpack->ports, i);
		uint32_t held = atomic_load(&port->held_frames), all = port->attr.held_frames;

		if (held >= all / 2)
			frames = unpack->least;
		else if (held >= all / 4 && frames == MOST_SLICES * unpack->least)
			frames /= 2;
	}
	return frames;
}

static int take_some_shares(struct unpack *unpack, char *why, size_t size)
{
	uint32_t frames = fair_share(unpack);
	int err = take_shares(unpack, frames);

	while (err == -ENOSPC && frames / 2 >= unpack->least) {
		frames /= 2;
		err = take_shares(unpack, frames);
	}
	if (err)
		snprintf(why, size, "%s", frl_last_error());
	return err;
}

static int make_lists(struct unpack *unpack, char *why, size_t size)
{
	struct frl_fragment *list = mmap(NULL, list_bytes(unpack), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (list == MAP_FAILED) {
		snprintf(why, size, "no memory for lists of packets");
		return -ENOMEM;
	}
	unpack->lists = list;
	for (int slot = 0; slot < NCCL_UNPACK_SLOTS; slot++) {
		for (int i = 0; i < unpack->ports->n_rails; i++) {
			unpack->slots[slot].lists[i] = list;
			list += NCCL_UNPACK_PIECES;
		}
	}
	return 0;
}

/* Undoes net_unpack_for(). */
static void unmake(struct unpack *unpack)
{
	if (unpack->lists)
		munmap(unpack->lists, list_bytes(unpack));
	unpack->lists = NULL;
	if (unpack->block)
		net_bounce_give_block(unpack->bounce, unpack->block, unpack->is_in_doubt);
	unpack->block = NULL;
	if (unpack->bounce)
		net_bounce_put(unpack->bounce, unpack->ports);
	unpack->bounce = NULL;
}

/* Without Ferrule's tuner NCCL would use protocols that do not unpack. NCCL loads the tuner
 * after the connections that it makes with the communicator, but before those that it makes at
 * first use. */
static int check_tuner(const struct comm *comm, char *why, size_t size)
{
	if (net_settings()->unpack_rule != NET_UNPACK_WITH_TUNER ||
		net_tuner_is_used(comm->has_comm_id ? &comm->comm_id : NULL))
		return 0;
	snprintf(why, size,
		"NCCL does not use Ferrule's tuner (NCCL_TUNER_PLUGIN, libnccl-tuner.so, "
		"NCCL_RUNTIME_CONNECT=0, NCCL_CUMEM_ENABLE=0, or all ranks on one host): set "
		"NCCL_PROTO=Simple");
	return -ENOTSUP;
}

static int make(const struct comm *comm, const void *data, size_t size, char *why, size_t why_size)
{
	struct unpack *unpack = comm->unpack;
	int err = check_tuner(comm, why, why_size);

	if (!err)
		err = choose_least(comm, why, why_size);
	if (!err)
		err = net_bounce_get(unpack->ports, data, size, &unpack->bounce, why, why_size);
	if (!err)
		err = net_bounce_take_block(unpack->bounce, &unpack->block, why, why_size);
	if (!err)
		err = make_lists(unpack, why, why_size);
	if (!err)
		err = take_some_shares(unpack, why, why_size);
	if (err)
		unmake(unpack);
	return err;
}

struct unpack *net_unpack_for(struct comm *comm, const void *data, size_t size)
{
	struct unpack *unpack = comm->unpack;
	char why[WHY];

	if (!unpack || unpack->is_refused)
		return NULL;
	if (unpack->bounce)
		return unpack;
	unpack->is_refused = make(comm, data, size, why, sizeof(why)) != 0;
	if (unpack->is_refused) {
		net_log_warning(
			"a connection to %s works without UNPACK: %s", comm->device->name, why);
		return NULL;
	}
	unpack->device.type = NCCL_DEVICE_UNPACK;
	unpack->device.handle = (void *)(uintptr_t)unpack->block->handle_address;
	net_log_info(
		"a connection to %s: NCCL's kernels unpack receives, up to %u packets at a time",
		comm->device->name, unpack->frames);
	return unpack;
}

int net_unpack_register(
	struct unpack *unpack, int rail, void *data, size_t size, struct frl_mr **ret_mr)
{
	return frl_reg_fragments(unpack->shares[rail], data, size,
		FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE, ret_mr);
}

void net_unpack_hold(struct unpack *unpack)
{
	atomic_fetch_add_explicit(&unpack->holders, 1, memory_order_relaxed);
}

void net_unpack_release(struct unpack *unpack)
{
	if (atomic_fetch_sub_explicit(&unpack->holders, 1, memory_order_acq_rel) != 1)
		return;
	give_shares_back(unpack);
	unmake(unpack);
	pthread_mutex_destroy(&unpack->lock);
	free(unpack);
}

/* ---- slots; with the lock held */

static _Atomic uint64_t *count_of(const struct unpack *unpack, const struct slot *slot)
{
	return (_Atomic uint64_t *)&unpack->block->meta->counts[slot - unpack->slots];
}

/* Releases the slot's packets to the port. */
static void clear(struct unpack *unpack, struct slot *slot)
{
	atomic_store_explicit(count_of(unpack, slot), 0, memory_order_release);
	for (int i = 0; i < slot->n_armed; i++)
		frl_fragments_release(unpack->shares[i], slot->tokens[i]);
	slot->n_armed = 0;
	slot->registration = NULL;
}

/* Arms the buffer on all rails, because a message may arrive on any of them. Returns -EAGAIN, or
 * comm->err. */
static int arm(
	struct comm *comm, struct slot *slot, const struct net_buffer *buffer, uint32_t frames)
{
	struct unpack *unpack = comm->unpack;
	struct registration *registration = buffer->registration;
	int err = 0;

	for (int i = 0; i < unpack->ports->n_rails && buffer->size && !err; i++) {
		err = frl_fragments_arm(unpack->shares[i], registration->mrs[i], buffer->data,
			buffer->size, slot->lists[i], frames, &slot->tokens[i]);
		slot->n_armed += !err;
	}
	if (err)
		clear(unpack, slot);
	if (err && err != -EAGAIN)
		return net_comm_fail(comm, err, "%s", frl_last_error());
	slot->registration = err ? NULL : registration;
	return err;
}

/* ---- requests */

/* The receiver's requests: ANNOUNCEMENTS for ordinary receives, then one for each slot. */
static struct slot *slot_of(struct comm *comm, const struct request *request)
{
	return &comm->unpack->slots[request - comm->receive.requests - ANNOUNCEMENTS];
}

/* NCCL 2.19 to 2.25 repeats the call for ever, so log the reason once. */
static int refuse(const struct comm *comm, const char *reason)
{
	struct unpack *unpack = comm->unpack;

	if (strcmp(unpack->refused, reason) != 0)
		net_log_warning("a receive on %s cannot be unpacked by NCCL's kernel: %s",
			comm->device->name, reason);
	snprintf(unpack->refused, sizeof(unpack->refused), "%s", reason);
	return NCCL_INVALID_USAGE;
}

int net_unpack_check(const struct comm *comm, int n, const struct net_buffer *buffers)
{
	const struct net_buffer *buffer = &buffers[0];
	char text[256];
	uint64_t frames, most;

	if (n > 1)
		return refuse(comm, "it has several messages, but maxRecvs is 1");
	if (buffer->registration->unpack != comm->unpack)
		return refuse(comm, "its memory was registered for another connection");
	if (buffer->is_optional)
		return refuse(comm,
			"it uses protocol LL or LL128, which NCCL does not unpack: set "
			"NCCL_PROTO=Simple");
	frames = frames_for(comm, buffer->size);
	most = comm->unpack->frames < NCCL_UNPACK_PIECES ? comm->unpack->frames
							 : NCCL_UNPACK_PIECES;
	if (frames <= most)
		return NCCL_SUCCESS;
	snprintf(text, sizeof(text),
		"%zu bytes may need %llu packets of %u bytes, but a connection has %llu: set a "
		"smaller NCCL_BUFFSIZE, or a larger MTU%s",
		buffer->size, (unsigned long long)frames, comm->path_mtu, (unsigned long long)most,
		comm->unpack->frames < MOST_SLICES * comm->unpack->least ? " or FRL_HELD_FRAMES"
									 : "");
	return refuse(comm, text);
}

struct request *net_unpack_take(struct comm *comm, const struct net_buffer *buffer)
{
	struct unpack *unpack = comm->unpack;
	unsigned index = unpack->next % NCCL_UNPACK_SLOTS;
	struct slot *slot = &unpack->slots[index];
	struct request *request = &comm->receive.requests[ANNOUNCEMENTS + index];
	bool is_armed;

	if (request->kind != REQUEST_FREE)
		return NULL;
	pthread_mutex_lock(&unpack->lock);
	is_armed = !arm(comm, slot, buffer, (uint32_t)frames_for(comm, buffer->size));
	if (is_armed)
		slot->state = SLOT_ARMED;
	pthread_mutex_unlock(&unpack->lock);
	if (!is_armed)
		return NULL;
	unpack->next++;
	net_request_begin(request, REQUEST_RECEIVE);
	return request;
}

/* Kernels copy 16 bytes at a time if source and destination are aligned, else fewer, down to
 * one. Check the message's first packet: its last one may have longer headers in front of its
 * payload. */
static void check_alignment(
	const struct nccl_unpack_piece *pieces, uint64_t n, uint32_t full_length)
{
	static atomic_flag has_warned = ATOMIC_FLAG_INIT;
	bool is_full = n > 2 && pieces[0].length == full_length;
	uint64_t addresses = is_full ? pieces[0].src | pieces[0].dst : 0;

	if (addresses % FAST && !atomic_flag_test_and_set(&has_warned))
		net_log_info("payload lies at multiples of %llu bytes, so NCCL's kernels fetch it "
			     "slowly: they need 16, which VLANs and IPv6 prevent",
			(unsigned long long)(addresses & -addresses));
}

static int write_pieces(const struct unpack *unpack, const struct slot *slot,
	struct nccl_unpack_piece *pieces, uint64_t *ret_n, uint64_t *ret_bytes)
{
	uint64_t written = 0;

	for (int i = 0; i < slot->n_armed; i++) {
		const struct frl_fragment *list = slot->lists[i];
		uint32_t n = 0;
		size_t bytes = 0;
		int err = frl_fragments_count(unpack->shares[i], slot->tokens[i], &n, &bytes);

		if (err)
			return err;
		if (n > NCCL_UNPACK_PIECES - written)
			return -EMSGSIZE;
		for (uint32_t k = 0; k < n; k++) {
			struct nccl_unpack_piece *piece = &pieces[written++];

			piece->length = list[k].length;
			piece->dst = list[k].offset;
			if (!net_bounce_offset(
				    unpack->bounce, list[k].addr, list[k].length, &piece->src))
				return -ENODEV;
		}
		*ret_bytes += bytes;
	}
	*ret_n = written;
	return 0;
}

/* Publishes a message of `got` bytes to the kernel: writes the slot's pieces, then their count.
 * Returns comm->err. With the lock held. */
static int publish(struct comm *comm, struct slot *slot, uint64_t got)
{
	struct unpack *unpack = comm->unpack;
	struct nccl_unpack_piece *pieces = unpack->block->meta->pieces[slot - unpack->slots];
	uint64_t n = 0, bytes = 0;
	int err;

	if (slot->state == SLOT_PUBLISHED)
		return 0;
	if (slot->state == SLOT_LOST)
		return net_comm_fail(
			comm, -ECANCELED, "memory of a pending request was deregistered");
	err = write_pieces(unpack, slot, pieces, &n, &bytes);
	if (err == -ENODEV)
		return net_comm_fail(comm, err,
			"the GPU cannot access packet buffers any more: was its context reset?");
	if (!err && bytes != got)
		err = -EBADMSG;
	if (err)
		return net_comm_fail(comm, err,
			"a message of %llu bytes has %llu bytes in packets, in %llu pieces: its "
			"sender is not this plugin",
			(unsigned long long)got, (unsigned long long)bytes, (unsigned long long)n);
	check_alignment(pieces, n, comm->path_mtu);
	/* Release order: a kernel that reads the count also sees the pieces. */
	atomic_store_explicit(count_of(unpack, slot), n, memory_order_release);
	slot->state = SLOT_PUBLISHED;
	return 0;
}

int net_unpack_publish(struct request *request)
{
	struct comm *comm = request->comm;
	int err;

	pthread_mutex_lock(&comm->unpack->lock);
	err = publish(comm, slot_of(comm, request), request->receive.parts[0].got);
	pthread_mutex_unlock(&comm->unpack->lock);
	return err;
}

int net_consumed(struct comm *comm, const void *given)
{
	struct request *first, *request = NULL;
	struct unpack *unpack = comm->unpack;
	struct slot *slot;
	bool is_early;

	if (!unpack || comm->is_sender)
		return NCCL_SUCCESS;
	/* Requests of other protocols are freed already, and may be in use again. */
	first = &comm->receive.requests[ANNOUNCEMENTS];
	for (int i = 0; i < NCCL_UNPACK_SLOTS && !request; i++)
		request = given == &first[i] ? &first[i] : NULL;
	if (!request || request->kind == REQUEST_FREE)
		return NCCL_SUCCESS;
	slot = slot_of(comm, request);
	pthread_mutex_lock(&unpack->lock);
	is_early = slot->state == SLOT_ARMED;
	if (!is_early) {
		clear(unpack, slot);
		slot->state = SLOT_FREE;
	}
	pthread_mutex_unlock(&unpack->lock);
	if (is_early)
		return refuse(comm, "irecvConsumed was called before the receive was done");
	net_request_free(request);
	return NCCL_SUCCESS;
}

/* ---- closing */

void net_unpack_revoke(struct unpack *unpack, const struct registration *registration)
{
	bool is_used = false;

	pthread_mutex_lock(&unpack->lock);
	for (int i = 0; i < NCCL_UNPACK_SLOTS; i++)
		is_used |= unpack->slots[i].registration == registration;
	if (is_used && unpack->comm)
		net_comm_stop(unpack->comm);
	for (int i = 0; i < NCCL_UNPACK_SLOTS && is_used; i++) {
		struct slot *slot = &unpack->slots[i];

		if (slot->registration != registration)
			continue;
		clear(unpack, slot);
		slot->state = SLOT_LOST;
	}
	pthread_mutex_unlock(&unpack->lock);
}

void net_unpack_end(struct comm *comm)
{
	struct unpack *unpack = comm->unpack;

	if (!unpack)
		return;
	pthread_mutex_lock(&unpack->lock);
	unpack->is_in_doubt = comm->err != 0;
	for (int i = 0; i < NCCL_UNPACK_SLOTS && unpack->block; i++) {
		unpack->is_in_doubt |= unpack->slots[i].state != SLOT_FREE;
		clear(unpack, &unpack->slots[i]);
	}
	unpack->comm = NULL;
	pthread_mutex_unlock(&unpack->lock);
	comm->unpack = NULL;
	net_unpack_release(unpack);
}
