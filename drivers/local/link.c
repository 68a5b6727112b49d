/* SPDX-License-Identifier: BSD-3-Clause */
/* The life cycle of one local link, in steps. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "drivers/local/in_place.h"
#include "drivers/local/link.h"
#include "drivers/local/ring.h"
#include "drivers/local/wake.h"
#include "lib/base/error.h"
#include "lib/base/memory/memfd.h"
#include "lib/base/process/rights.h"

enum {
	ANSWER_NS = 1000 * 1000 * 1000,
	CONFIRM_NS = 2000 * 1000 * 1000,
	RETRY_NS = 1000 * 1000,
	RETRY_DOUBLINGS = 4, /* backoff of a client that waits for its server: up to 16 ms */
	RETRY_AFTER_FAILURE_NS = 50 * 1000 * 1000,
	LEAST_FRAME = MIN_PAYLOAD + PORT_HEADER_ROOM + PORT_TRAILER_ROOM,
};

static void socket_name(const struct fabric_link *link, char name[static 96])
{
	snprintf(name, 96, "ferrule-link/%s", link->request.name);
}

int fabric_listen(struct fabric_link *link)
{
	char name[96];

	socket_name(link, name);
	/* Accept no descriptors before the secret: see answer_hello(). */
	link->clients.listen_fd = handshake_listen(name);
	if (link->clients.listen_fd < 0)
		return link->clients.listen_fd;
	link_thread_watch(&link->watch, link->clients.listen_fd);
	return 0;
}

static void set_stage(struct fabric_link *link, enum fabric_stage stage, uint64_t deadline_ns)
{
	link->stage = stage;
	link->deadline_ns = deadline_ns;
}

/*
 * Proofs need no message of their own. The server's proof is there when its answer has come, and
 * the client's when it has sent MAPPED. MAPPED reports whether the server's proof was there.
 */
static uint64_t await_proof(struct fabric_link *link, uint64_t claimed)
{
	uint32_t name;

	link->proof_fd = wake_open_proof(claimed, &name);
	return link->proof_fd < 0 ? 0 : name;
}

static void drop_proof(struct fabric_link *link)
{
	if (link->proof_fd >= 0)
		close(link->proof_fd);
	link->proof_fd = -1;
}

void fabric_check_proof(struct fabric_link *link)
{
	link->peer_wake = wake_proven(
		link->proof_fd, link->claimed_wake, link->request.name, !link->request.server);
	drop_proof(link);
}

/* An end that could not verify this end's name neither wakes it nor expects wake-ups from it. */
static void prove(struct fabric_link *link, uint64_t wake, uint64_t proof)
{
	link->claimed_wake = proof ? wake : 0;
	wake_prove(link->port->wake_fd, proof, link->request.name, link->request.server);
}

static void destroy_ring(struct fabric_link *link)
{
	if (link->ring)
		ring_link_destroy(link->ring);
	link->ring = NULL;
	link->mapped = false;
}

/* Restarts the handshake: the peer may come again. No burst has seen the link. */
static void restart(struct fabric_link *link, struct fabric_pass *pass, uint64_t pause_ns)
{
	destroy_ring(link);
	in_place_destroy(&link->in_place);
	handshake_close(&link->peer_fd);
	drop_proof(link);
	link->lost = false;
	link->retry_ns = pass->now_ns + pause_ns;
	set_stage(link, FABRIC_CONNECTING, UINT64_MAX);
	pass->wake_ns = link->retry_ns;
}

static void connect_to_server(struct fabric_link *link, struct fabric_pass *pass)
{
	struct handshake_hello hello = {
		.magic = LINK_MAGIC,
		.max_frame = link->port->base.caps.max_frame,
		.in_place = link->port->base.caps.in_place,
		.ordinal = link->number + 1,
		.wake = link->port->wake,
		.features = link->port->features,
	};
	char name[96];
	int fd;

	socket_name(link, name);
	fd = handshake_connect(name, true);
	if (fd < 0) {
		/* The server is not there yet, and no event reports its start; or no descriptors
		 * are left. */
		link->retry_ns = pass->now_ns + ((uint64_t)RETRY_NS << link->n_retries);
		link->n_retries += link->n_retries < RETRY_DOUBLINGS;
		return;
	}
	link->n_retries = 0;
	link->peer_fd = fd;
	link_thread_watch(&link->watch, fd);
	set_stage(link, FABRIC_AWAITING_ANSWER, pass->now_ns + ANSWER_NS);
	memcpy(hello.secret, link->request.secret, sizeof(hello.secret));
	hello.proof = await_proof(link, 0);
	if (handshake_send(fd, &hello, sizeof(hello)))
		restart(link, pass, RETRY_NS);
}

/* Both ends have rings. The next step follows at once. */
static void enter_confirming(struct fabric_link *link, struct fabric_pass *pass)
{
	set_stage(link, FABRIC_CONFIRMING, pass->now_ns + CONFIRM_NS);
	pass->wake_ns = pass->now_ns;
}

/* Selects what both ends support. */
static int agree(
	struct fabric_link *link, uint32_t peer_max_frame, bool peer_in_place, uint32_t features)
{
	const struct port_caps *caps = &link->port->base.caps;

	if (peer_max_frame < LEAST_FRAME)
		return -EPROTO;
	link->max_frame = (uint32_t)least(caps->max_frame, peer_max_frame);
	link->features = features & link->port->features;
	if (!peer_in_place || !caps->in_place)
		return 0;
	link->in_place = in_place_create(link->port);
	if (link->in_place)
		return 0;
	frl_log(FRL_LOG_ERROR, "no memory for the local link \"%s\"", link->request.name);
	link->error = -ENOMEM;
	return link->error;
}

/* Reports that this end cannot have rings: temporarily (-EAGAIN) or permanently. */
static void report_no_rings(struct fabric_link *link, int err)
{
	if (err != -EAGAIN) {
		frl_log(FRL_LOG_ERROR, "no shared memory for the local link \"%s\": %s",
			link->request.name, memfd_strerror(err));
		link->error = err;
	} else if (!link->logged_retry) {
		frl_log(FRL_LOG_WARNING,
			"no shared memory for the local link \"%s\" yet, retrying: does the "
			"process have descriptors left?",
			link->request.name);
		link->logged_retry = true;
	}
}

static int handle_answer(
	struct fabric_link *link, const struct handshake_answer *answer, int passed)
{
	int err = answer->magic == LINK_MAGIC ? 0 : -EPROTO;

	if (!err)
		err = agree(link, answer->max_frame, answer->in_place == 1, answer->features);
	if (err)
		return err;
	prove(link, answer->wake, answer->proof);
	fabric_check_proof(link);
	err = ring_link_join(passed, ring_bytes_for(link->number + 1), &link->ring);
	/* This process had no room for the descriptor, or the peer is not a Ferrule process. The
	 * next connection may succeed. */
	if (err == -EINVAL)
		err = -EAGAIN;
	if (err)
		report_no_rings(link, err);
	return err;
}

static void step_awaiting_answer(struct fabric_link *link, struct fabric_pass *pass)
{
	struct handshake_answer answer;
	int passed = -1;
	int err = handshake_receive_fd(link->peer_fd, &answer, sizeof(answer), &passed);

	if (err == -EAGAIN && pass->now_ns < link->deadline_ns)
		return;
	if (!err)
		err = handle_answer(link, &answer, passed);
	handshake_close_passed(passed, !err && link->ring);
	if (err)
		restart(link, pass, RETRY_AFTER_FAILURE_NS);
	else
		enter_confirming(link, pass);
}

/* Makes rings of this size, or shorter ones if memory is limited. Fails as ring_link_make(). */
static int make_rings(uint32_t bytes, struct ring_link **ret_link, int *ret_fd)
{
	int err = ring_link_make(bytes, ret_link, ret_fd);

	while ((err == -ENOMEM || err == -EFBIG) && bytes > RING_SMALL_BYTES) {
		bytes = ring_shorter(bytes);
		err = ring_link_make(bytes, ret_link, ret_fd);
	}
	return err;
}

static int answer_hello(struct fabric_link *link, const struct handshake_hello *hello)
{
	struct handshake_answer answer = {
		.magic = LINK_MAGIC,
		.max_frame = link->port->base.caps.max_frame,
		.in_place = link->port->base.caps.in_place,
		.features = link->port->features,
		.wake = link->port->wake,
	};
	int passed = -1;
	uint32_t ordinal = link->number + 1;
	int err = agree(link, hello->max_frame, hello->in_place == 1, hello->features);

	if (err)
		return err;
	/* Start with the client's memory once it has the answer. */
	if (link->in_place)
		rights_allow(link->peer_fd, true);
	answer.proof = await_proof(link, hello->wake);
	prove(link, hello->wake, hello->proof);
	if (ordinal < hello->ordinal)
		ordinal = hello->ordinal;
	err = make_rings(ring_bytes_for(ordinal), &link->ring, &passed);
	if (err) {
		report_no_rings(link, err);
		return err;
	}
	err = handshake_send_fd(link->peer_fd, &answer, sizeof(answer), passed);
	close(passed);
	return err;
}

/* ---- the server and its clients */

static bool has_secret(void *arg, const void *message)
{
	const struct handshake_hello *hello = message;
	struct fabric_link *link = arg;

	if (hello->magic == LINK_MAGIC &&
		strncmp(hello->secret, link->request.secret, sizeof(hello->secret)) == 0)
		return true;
	if (!link->logged_wrong_secret)
		frl_log(FRL_LOG_WARNING, "local link \"%s\": refused a peer with a wrong secret",
			link->request.name);
	link->logged_wrong_secret = true;
	return false;
}

static void read_hellos(struct fabric_link *link, struct fabric_pass *pass)
{
	struct handshake_hello hello;
	int fd = fabric_clients_read(&link->clients, &hello, sizeof(hello), has_secret, link, pass);

	if (fd < 0)
		return;
	link->peer_fd = fd;
	fabric_clients_drop(&link->clients);
	if (answer_hello(link, &hello))
		restart(link, pass, 0);
	else
		enter_confirming(link, pass);
}

static void step_connecting(struct fabric_link *link, struct fabric_pass *pass)
{
	bool is_due = pass->now_ns >= link->retry_ns;

	if (!link->request.server) {
		if (is_due)
			connect_to_server(link, pass);
		return;
	}
	if (is_due)
		link->retry_ns = fabric_clients_accept(&link->clients, &link->watch, pass);
	read_hellos(link, pass);
}

/* Reports that the client has mapped the rings. Returns a negative errno if the peer is gone. */
static int send_mapped(struct fabric_link *link, struct fabric_pass *pass)
{
	int err;

	if (link->request.server || link->mapped)
		return 0;
	err = in_place_send_mapped(link);
	if (!err) {
		link->mapped = true;
		pass->publish = true;
	} else if (err == -EAGAIN) {
		pass->wake_ns = least(pass->wake_ns, pass->now_ns + RETRY_NS);
		err = 0;
	}
	return err;
}

static void step_confirming(struct fabric_link *link, struct fabric_pass *pass)
{
	int err = in_place_step(link, pass);

	if (!err)
		err = send_mapped(link, pass);
	if (err >= 0 && pass->now_ns < link->deadline_ns && !handshake_is_closed(link->peer_fd))
		return;
	/* A client may have sent MAPPED and frames, and exited again, since the last read. */
	if (!link->mapped)
		in_place_receive(link, pass);
	if (!link->mapped)
		restart(link, pass, RETRY_AFTER_FAILURE_NS);
}

static void close_sockets(struct fabric_link *link)
{
	fabric_clients_drop(&link->clients);
	handshake_close(&link->peer_fd);
	handshake_close(&link->clients.listen_fd);
	drop_proof(link);
}

bool fabric_try_free(struct fabric_link *link, struct fabric_pass *pass)
{
	if (!in_place_destroy(&link->in_place)) {
		pass->publish = true;
		return false;
	}
	destroy_ring(link);
	close_sockets(link);
	set_stage(link, FABRIC_DOWN, UINT64_MAX);
	return true;
}

static bool is_late(const struct fabric_link *link, uint64_t now_ns)
{
	return link->give_up_ns && link->give_up_ns <= now_ns && link->stage < FABRIC_UP;
}

static void watch_again(struct fabric_link *link)
{
	link->watch.is_unwatched = false;
	fabric_clients_watch(&link->clients, &link->watch);
	if (link->peer_fd >= 0)
		link_thread_watch(&link->watch, link->peer_fd);
}

void fabric_advance(struct fabric_link *link, struct fabric_pass *pass)
{
	if (link->watch.is_unwatched)
		watch_again(link);
	if (is_late(link, pass->now_ns) && !link->error)
		link->error = -ETIMEDOUT;
	switch (link->stage) {
	case FABRIC_CONNECTING: step_connecting(link, pass); break;
	case FABRIC_AWAITING_ANSWER: step_awaiting_answer(link, pass); break;
	case FABRIC_CONFIRMING: step_confirming(link, pass); break;
	case FABRIC_UP:
		link->lost = link->lost || handshake_is_closed(link->peer_fd) ||
			in_place_step(link, pass) < 0;
		link->to_drain = link->lost;
		pass->publish = pass->publish || link->to_drain;
		break;
	case FABRIC_DRAIN: close_sockets(link); break;
	case FABRIC_DOWN: fabric_try_free(link, pass); break;
	}
	pass->publish = pass->publish || (link->error && link->stage != FABRIC_DOWN);
	pass->wake_ns = least(pass->wake_ns, link->deadline_ns);
	if (link->retry_ns > pass->now_ns)
		pass->wake_ns = least(pass->wake_ns, link->retry_ns);
	if (link->give_up_ns > pass->now_ns && link->stage < FABRIC_UP)
		pass->wake_ns = least(pass->wake_ns, link->give_up_ns);
}

static void take_down(struct fabric_link *link)
{
	struct local_port *port = link->port;

	set_stage(link, FABRIC_DOWN, UINT64_MAX);
	local_set_state(port, link->number, PORT_LINK_DOWN);
	in_place_hide(port, link->number);
	local_hide_ring(port, link->number);
	if (link->in_place)
		link->in_place->detached = true;
}

/* Returns true before the link is up, when bursts have not seen it. */
static bool is_over(const struct fabric_link *link, const struct burst_link *seen)
{
	if (link->stage == FABRIC_UP)
		return seen->broken;
	return link->stage == FABRIC_DRAIN && (seen->broken || seen->drained);
}

static void bring_up(struct fabric_link *link, struct burst_link *seen)
{
	set_stage(link, FABRIC_UP, UINT64_MAX);
	handshake_close(&link->clients.listen_fd);
	seen->ring = link->ring;
	seen->store_times = (struct store_times){ 0 };
	seen->wake = link->peer_wake;
	seen->draining = seen->drained = false;
	seen->max_frame = link->max_frame;
	seen->features = link->features;
	seen->in_place = link->in_place;
	if (link->in_place)
		link->in_place->visible = true;
	local_set_state(link->port, link->number, PORT_LINK_UP);
}

/* The peer is gone: bursts must receive the frames that it has sent. A peer that still writes after
 * hanging up gets at most one ring of frames through. */
static void drain(struct fabric_link *link, struct burst_link *seen)
{
	link->to_drain = false;
	seen->draining = true;
	seen->left = link->ring->rx.bytes / RING_LINE;
	seen->drained = seen->broken || ring_look(&link->ring->rx, RING_MAX_FRAME) == -EAGAIN;
	set_stage(link, FABRIC_DRAIN, UINT64_MAX);
	/* The owner may be asleep. */
	local_wake_owner(link->port);
}

bool fabric_publish(struct fabric_link *link)
{
	struct burst_link *seen = &link->port->links[link->number];
	enum fabric_stage before = link->stage;
	bool has_changed = false;

	/* The owner has removed the link from the table: bursts no longer see its memory. */
	if (link->closing && link->in_place)
		link->in_place->detached = true;
	if (link->closing || link->stage == FABRIC_DOWN)
		return link->closing;
	if (link->to_drain)
		drain(link, seen);
	if (link->error || is_over(link, seen))
		take_down(link);
	if (link->stage == FABRIC_CONFIRMING && link->mapped)
		bring_up(link, seen);
	/* Exports of a draining link are not used any more: their ids are free. */
	if (link->ring && link->in_place &&
		(link->stage == FABRIC_CONFIRMING || link->stage == FABRIC_UP))
		has_changed = in_place_publish(link->port, link->in_place);
	return has_changed || link->stage != before;
}
