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
#include "lib/base/closer.h"
#include "lib/base/error.h"
#include "lib/base/memfd.h"
#include "lib/base/rights.h"

enum {
	MAGIC = 0x46524c38, /* "FRL8" */
	ASK_NS = 1000 * 1000 * 1000,
	SHAKE_NS = 2000 * 1000 * 1000,
	RETRY_NS = 1000 * 1000,
	RETRY_DOUBLINGS = 4, /* backoff of a client that waits for its server: up to 16 ms */
	RETRY_AFTER_FAILURE_NS = 50 * 1000 * 1000,
	LEAST_FRAME = MIN_PAYLOAD + PORT_HEADER_ROOM + PORT_TRAILER_ROOM,
	FEW_LINKS = 32, /* links of a device that has large rings */
	MOST_CLOSING =
		32, /* limit of sockets still being closed before more connections are accepted */
};

static void meeting_place(const struct fabric_link *link, char place[static 96])
{
	snprintf(place, 96, "ferrule-link/%s", link->request.name);
}

int fabric_listen(struct fabric_link *link)
{
	char place[96];

	meeting_place(link, place);
	/* Accept no descriptors before the secret: see answer_hello(). */
	link->meet_fd = meet_listen(place);
	if (link->meet_fd < 0)
		return link->meet_fd;
	link_thread_watch(link, link->meet_fd);
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
static uint64_t await_proof(struct fabric_link *link, uint64_t told)
{
	uint32_t name;

	link->proof_fd = wake_open_proof(told, &name);
	return link->proof_fd < 0 ? 0 : name;
}

static void drop_proof(struct fabric_link *link)
{
	if (link->proof_fd >= 0)
		close(link->proof_fd);
	link->proof_fd = -1;
}

void fabric_take_proof(struct fabric_link *link)
{
	link->peer_wake = wake_proven(
		link->proof_fd, link->told_wake, link->request.name, !link->request.server);
	drop_proof(link);
}

/* An end that could not verify this end's name neither wakes it nor expects wake-ups from it. */
static void prove(struct fabric_link *link, uint64_t wake, uint64_t proof)
{
	link->told_wake = proof ? wake : 0;
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
static void start_over(struct fabric_link *link, struct fabric_pass *pass, uint64_t pause_ns)
{
	destroy_ring(link);
	in_place_destroy(&link->in_place);
	meet_hang_up(&link->peer_fd);
	drop_proof(link);
	link->lost = false;
	link->retry_ns = pass->now_ns + pause_ns;
	set_stage(link, FABRIC_MEET, UINT64_MAX);
	pass->wake_ns = link->retry_ns;
}

static bool has_many_links(const struct fabric_link *link)
{
	return link->number >= FEW_LINKS;
}

static void meet_as_client(struct fabric_link *link, struct fabric_pass *pass)
{
	struct meet_hello hello = {
		.magic = MAGIC,
		.max_frame = link->port->base.caps.max_frame,
		.in_place = link->port->base.caps.in_place,
		.is_small = has_many_links(link),
		.wake = link->port->wake,
	};
	char place[96];
	int fd;

	meeting_place(link, place);
	fd = meet_connect(place);
	if (fd < 0) {
		/* The server is not there yet, and no event reports its start; or no descriptors
		 * are left. */
		link->retry_ns = pass->now_ns + ((uint64_t)RETRY_NS << link->n_retries);
		link->n_retries += link->n_retries < RETRY_DOUBLINGS;
		return;
	}
	link->n_retries = 0;
	link->peer_fd = fd;
	link_thread_watch(link, fd);
	set_stage(link, FABRIC_ASK, pass->now_ns + ASK_NS);
	memcpy(hello.secret, link->request.secret, sizeof(hello.secret));
	hello.proof = await_proof(link, 0);
	if (meet_send(fd, &hello, sizeof(hello)))
		start_over(link, pass, RETRY_NS);
}

/* Both ends have rings. The next step follows at once. */
static void shake(struct fabric_link *link, struct fabric_pass *pass)
{
	set_stage(link, FABRIC_SHAKE, pass->now_ns + SHAKE_NS);
	pass->wake_ns = pass->now_ns;
}

/* Selects the features that both ends support. */
static int agree(struct fabric_link *link, uint32_t peer_max_frame, bool peer_in_place)
{
	const struct port_caps *caps = &link->port->base.caps;

	if (peer_max_frame < LEAST_FRAME)
		return -EPROTO;
	link->max_frame = (uint32_t)least(caps->max_frame, peer_max_frame);
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
static void complain(struct fabric_link *link, int err)
{
	if (err != -EAGAIN) {
		frl_log(FRL_LOG_ERROR, "the local link \"%s\" gets no shared memory: %s",
			link->request.name, memfd_strerror(err));
		link->error = err;
	} else if (!link->said_trying) {
		frl_log(FRL_LOG_WARNING,
			"the local link \"%s\" gets no shared memory yet, and tries again; has the "
			"process no descriptors left?",
			link->request.name);
		link->said_trying = true;
	}
}

static int take_answer(struct fabric_link *link, const struct meet_answer *answer, int passed)
{
	int err = answer->magic == MAGIC ? 0 : -EPROTO;

	if (!err)
		err = agree(link, answer->max_frame, answer->in_place == 1);
	if (err)
		return err;
	prove(link, answer->wake, answer->proof);
	fabric_take_proof(link);
	err = ring_link_join(passed, &link->ring);
	/* This process had no room for the descriptor, or the peer is not a Ferrule process. The
	 * next connection may succeed. */
	if (err == -EINVAL)
		err = -EAGAIN;
	if (err)
		complain(link, err);
	return err;
}

static void ask(struct fabric_link *link, struct fabric_pass *pass)
{
	struct meet_answer answer;
	int passed = -1;
	int err = meet_receive_fd(link->peer_fd, &answer, sizeof(answer), &passed);

	if (err == -EAGAIN && pass->now_ns < link->deadline_ns)
		return;
	if (!err)
		err = take_answer(link, &answer, passed);
	meet_close_passed(passed, !err && link->ring);
	if (err)
		start_over(link, pass, RETRY_AFTER_FAILURE_NS);
	else
		shake(link, pass);
}

static int answer_hello(struct fabric_link *link, const struct meet_hello *hello)
{
	struct meet_answer answer = {
		.magic = MAGIC,
		.max_frame = link->port->base.caps.max_frame,
		.in_place = link->port->base.caps.in_place,
		.wake = link->port->wake,
	};
	int passed = -1;
	bool is_small;
	int err = agree(link, hello->max_frame, hello->in_place == 1);

	if (err)
		return err;
	/* Start with the client's memory once it has the answer. */
	if (link->in_place)
		rights_allow(link->peer_fd, true);
	answer.proof = await_proof(link, hello->wake);
	prove(link, hello->wake, hello->proof);
	is_small = hello->is_small == 1 || has_many_links(link);
	err = ring_link_make(is_small ? RING_SMALL_BYTES : RING_BYTES, &link->ring, &passed);
	if (err) {
		complain(link, err);
		return err;
	}
	err = meet_send_fd(link->peer_fd, &answer, sizeof(answer), passed);
	close(passed);
	return err;
}

/* ---- the server and its clients: every process of the machine can connect */

static void remove_stranger(struct fabric_link *link, uint32_t index)
{
	link->n_strangers--;
	memmove(&link->strangers[index], &link->strangers[index + 1],
		(link->n_strangers - index) * sizeof(link->strangers[0]));
}

static void drop_stranger(struct fabric_link *link, uint32_t index)
{
	meet_hang_up(&link->strangers[index].fd);
	remove_stranger(link, index);
}

static void drop_strangers(struct fabric_link *link)
{
	while (link->n_strangers)
		drop_stranger(link, link->n_strangers - 1);
}

/* A client sends its hello when it connects. Each accepted connection is read in the same pass, so
 * any number of silent connections cannot keep the client out. */
static void accept_strangers(struct fabric_link *link, struct fabric_pass *pass)
{
	for (int i = 0; i < FABRIC_STRANGERS; i++) {
		int fd = closer_pending() < MOST_CLOSING ? meet_accept(link->meet_fd) : -EBUSY;

		if (fd == -EAGAIN)
			return;
		if (fd < 0) {
			link->retry_ns = pass->now_ns + RETRY_NS;
			return;
		}
		link_thread_watch(link, fd);
		if (link->n_strangers == FABRIC_STRANGERS)
			drop_stranger(link, 0);
		link->strangers[link->n_strangers++] = (struct fabric_stranger){ .fd = fd,
			.deadline_ns = pass->now_ns + ASK_NS };
	}
	pass->wake_ns = pass->now_ns; /* more connections may be pending */
}

static bool knows_secret(struct fabric_link *link, const struct meet_hello *hello)
{
	if (hello->magic == MAGIC &&
		strncmp(hello->secret, link->request.secret, sizeof(hello->secret)) == 0)
		return true;
	if (!link->said_wrong)
		frl_log(FRL_LOG_WARNING, "local link \"%s\": a peer with a wrong secret",
			link->request.name);
	link->said_wrong = true;
	return false;
}

static void welcome(struct fabric_link *link, uint32_t index, const struct meet_hello *hello,
	struct fabric_pass *pass)
{
	link->peer_fd = link->strangers[index].fd;
	remove_stranger(link, index);
	drop_strangers(link);
	if (answer_hello(link, hello))
		start_over(link, pass, 0);
	else
		shake(link, pass);
}

static void hear_strangers(struct fabric_link *link, struct fabric_pass *pass)
{
	uint32_t i = 0;

	while (i < link->n_strangers) {
		const struct fabric_stranger *stranger = &link->strangers[i];
		struct meet_hello hello;
		int err = meet_receive(stranger->fd, &hello, sizeof(hello));

		if (err == -EAGAIN && pass->now_ns < stranger->deadline_ns) {
			pass->wake_ns = least(pass->wake_ns, stranger->deadline_ns);
			i++;
		} else if (!err && knows_secret(link, &hello)) {
			welcome(link, i, &hello, pass);
			return;
		} else {
			drop_stranger(link, i);
		}
	}
}

static void meet(struct fabric_link *link, struct fabric_pass *pass)
{
	bool is_due = pass->now_ns >= link->retry_ns;

	if (!link->request.server) {
		if (is_due)
			meet_as_client(link, pass);
		return;
	}
	if (is_due)
		accept_strangers(link, pass);
	hear_strangers(link, pass);
}

/* Reports that the client has mapped the rings. Returns a negative errno if the peer is gone. */
static int say_mapped(struct fabric_link *link, struct fabric_pass *pass)
{
	int err;

	if (link->request.server || link->mapped)
		return 0;
	err = in_place_say_mapped(link);
	if (!err) {
		link->mapped = true;
		pass->publish = true;
	} else if (err == -EAGAIN) {
		pass->wake_ns = least(pass->wake_ns, pass->now_ns + RETRY_NS);
		err = 0;
	}
	return err;
}

static void handshake(struct fabric_link *link, struct fabric_pass *pass)
{
	int err = in_place_step(link, pass);

	if (!err)
		err = say_mapped(link, pass);
	if (err >= 0 && pass->now_ns < link->deadline_ns && !meet_is_closed(link->peer_fd))
		return;
	/* A client may have sent MAPPED and frames, and exited again, since the last read. */
	if (!link->mapped)
		in_place_listen(link, pass);
	if (!link->mapped)
		start_over(link, pass, RETRY_AFTER_FAILURE_NS);
}

static void hang_up(struct fabric_link *link)
{
	drop_strangers(link);
	meet_hang_up(&link->peer_fd);
	meet_hang_up(&link->meet_fd);
	drop_proof(link);
}

bool fabric_take_apart(struct fabric_link *link, struct fabric_pass *pass)
{
	if (!in_place_destroy(&link->in_place)) {
		pass->publish = true;
		return false;
	}
	destroy_ring(link);
	hang_up(link);
	set_stage(link, FABRIC_DOWN, UINT64_MAX);
	return true;
}

void fabric_advance(struct fabric_link *link, struct fabric_pass *pass)
{
	switch (link->stage) {
	case FABRIC_MEET: meet(link, pass); break;
	case FABRIC_ASK: ask(link, pass); break;
	case FABRIC_SHAKE: handshake(link, pass); break;
	case FABRIC_UP:
		link->lost = link->lost || meet_is_closed(link->peer_fd) ||
			in_place_step(link, pass) < 0;
		link->to_drain = link->lost;
		pass->publish = pass->publish || link->to_drain;
		break;
	case FABRIC_DRAIN: hang_up(link); break;
	case FABRIC_DOWN: fabric_take_apart(link, pass); break;
	}
	pass->publish = pass->publish || (link->error && link->stage != FABRIC_DOWN);
	pass->wake_ns = least(pass->wake_ns, link->deadline_ns);
	if (link->retry_ns > pass->now_ns)
		pass->wake_ns = least(pass->wake_ns, link->retry_ns);
}

static void go_down(struct fabric_link *link)
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

static void come_up(struct fabric_link *link, struct burst_link *seen)
{
	set_stage(link, FABRIC_UP, UINT64_MAX);
	meet_hang_up(&link->meet_fd);
	seen->ring = link->ring;
	seen->wake = link->peer_wake;
	seen->draining = seen->drained = false;
	seen->max_frame = link->max_frame;
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
	local_rouse(link->port);
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
		go_down(link);
	if (link->stage == FABRIC_SHAKE && link->mapped)
		come_up(link, seen);
	/* Exports of a draining link are not used any more: their ids are free. */
	if (link->ring && link->in_place &&
		(link->stage == FABRIC_SHAKE || link->stage == FABRIC_UP))
		has_changed = in_place_publish(link->port, link->in_place);
	return has_changed || link->stage != before;
}
