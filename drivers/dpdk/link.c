/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of one local link, a step at a time. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "drivers/dpdk/fabric.h"
#include "drivers/dpdk/in_place.h"
#include "drivers/dpdk/wake.h"
#include "lib/base/closer.h"
#include "lib/base/error.h"
#include "lib/base/memfd.h"
#include "lib/base/rights.h"
#include "lib/base/settings.h"

enum {
	MAGIC = 0x46524c37, /* "FRL7" */
	ASK_NS = 1000 * 1000 * 1000,
	SHAKE_NS = 2000 * 1000 * 1000,
	SHAKE_PASSES = 1000, /* at least in that time; there are some 10,000 on an idle processor */
	RETRY_NS = 1000 * 1000,
	RETRY_AFTER_FAILURE_NS = 50 * 1000 * 1000,
	LEAVE_NS = 100 * 1000 * 1000,
	LEAST_FRAME = MIN_PAYLOAD + PORT_HEADER_ROOM + PORT_TRAILER_ROOM,
	MOST_CLOSING = 32, /* sockets that are still being closed, before more are accepted */
};

static void meeting_place(const struct fabric_link *link, char place[static 96])
{
	snprintf(place, 96, "ferrule-link/%s", link->request.name);
}

int fabric_listen(struct fabric_link *link)
{
	char place[96];

	meeting_place(link, place);
	/* No descriptors before the secret: see answer_hello(). */
	link->meet_fd = meet_listen(place, false);
	return link->meet_fd < 0 ? link->meet_fd : 0;
}

static void set_stage(struct fabric_link *link, enum fabric_stage stage, uint64_t deadline_ns)
{
	link->stage = stage;
	link->deadline_ns = deadline_ns;
}

/*
 * Proofs need no message of their own: the server's is there when the answer has come, and the
 * client's when it has said MAPPED. That says whether the server's was.
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

/* An end that could not check this one's name would not wake it, nor expect to be woken. */
static void prove(struct fabric_link *link, uint64_t wake, uint64_t proof)
{
	link->told_wake = proof ? wake : 0;
	wake_prove(link->port->wake_fd, proof, link->request.name, link->request.server);
}

static bool stop_carrier(struct fabric_link *link, struct fabric_pass *pass)
{
	if (link->carrier && !link->carrier->stop(link, pass))
		return false;
	link->carrier = NULL;
	return true;
}

/* Back to the start: the peer may come again. */
static void start_over(struct fabric_link *link, struct fabric_pass *pass, uint64_t pause_ns)
{
	if (!stop_carrier(link, pass)) {
		set_stage(link, FABRIC_SHAKE, pass->now_ns);
		link->shakes = SHAKE_PASSES;
		return;
	}
	in_place_destroy(&link->in_place);
	meet_hang_up(&link->peer_fd);
	drop_proof(link);
	link->lost = false;
	link->peer_leaves = false;
	link->retry_ns = pass->now_ns + pause_ns;
	set_stage(link, FABRIC_MEET, UINT64_MAX);
}

static bool has_rings(void)
{
	return strcmp(settings_get()->local_link, "ring") == 0;
}

static void meet_as_client(struct fabric_link *link, struct fabric_pass *pass)
{
	struct meet_hello hello = {
		.magic = MAGIC,
		.max_frame = link->port->base.caps.max_frame,
		.in_place = link->port->base.caps.in_place,
		.ring = has_rings(),
		.wake = link->port->wake,
	};
	char place[96];
	int fd;

	meeting_place(link, place);
	fd = meet_connect(place);
	if (fd < 0) {
		/* No server yet, and nothing tells when it comes; or no descriptors left. */
		link->retry_ns = pass->now_ns + RETRY_NS;
		return;
	}
	link->peer_fd = fd;
	set_stage(link, FABRIC_ASK, pass->now_ns + ASK_NS);
	memcpy(hello.secret, link->request.secret, sizeof(hello.secret));
	hello.proof = await_proof(link, 0);
	if (meet_send(fd, &hello, sizeof(hello)))
		start_over(link, pass, RETRY_NS);
}

/* The ends have agreed on a carrier. Its first step is in the next turn, which comes at once. */
static void shake(struct fabric_link *link, struct fabric_pass *pass)
{
	set_stage(link, FABRIC_SHAKE, pass->now_ns + SHAKE_NS);
	link->shakes = 0;
	pass->wake_ns = pass->now_ns;
}

/* Before the carrier is made: what the ends have agreed on. */
static int agree(
	struct fabric_link *link, uint32_t peer_max_frame, bool peer_in_place, bool peer_ring)
{
	if (peer_max_frame < LEAST_FRAME)
		return -EPROTO;
	link->carrier = peer_ring && has_rings() ? &ring_carrier : &memif_carrier;
	link->max_frame = RTE_MIN(link->port->base.caps.max_frame, peer_max_frame);
	if (!peer_in_place || !link->port->base.caps.in_place)
		return 0;
	link->in_place = in_place_create();
	if (link->in_place)
		return 0;
	frl_log(FRL_LOG_ERROR, "no memory for the local link \"%s\"", link->request.name);
	link->error = -ENOMEM;
	return link->error;
}

/* The carrier cannot be had, at this end: for now (-EAGAIN) or for good. */
static void complain(struct fabric_link *link, int err)
{
	if (err != -EAGAIN) {
		frl_log(FRL_LOG_ERROR, "the local link \"%s\" gets no %s: %s", link->request.name,
			link->carrier->name, memfd_strerror(err));
		link->error = err;
	} else if (!link->said_trying) {
		frl_log(FRL_LOG_WARNING,
			"the local link \"%s\" gets no %s yet, and tries again; has the process "
			"no descriptors left?",
			link->request.name, link->carrier->name);
		link->said_trying = true;
	}
}

/* The interrupt thread may hold events of descriptors that were closed in this turn: a new socket
 * with the same number must not get them. */
static bool must_wait(struct fabric_pass *pass)
{
	if (pass->stopped)
		pass->wake_ns = pass->now_ns;
	return pass->stopped;
}

static int take_answer(struct fabric_link *link, const struct meet_answer *answer, int passed)
{
	int err;

	if (answer->magic != MAGIC || (answer->ring == 1 && !has_rings()))
		return -EPROTO;
	err = agree(link, answer->max_frame, answer->in_place == 1, answer->ring == 1);
	if (err)
		return err;
	if (link->carrier == &ring_carrier)
		prove(link, answer->wake, answer->proof);
	fabric_take_proof(link);
	err = link->carrier->take_up(link, answer, passed);
	if (err)
		complain(link, err);
	return err;
}

static void ask(struct fabric_link *link, struct fabric_pass *pass)
{
	struct meet_answer answer;
	int passed = -1, err;

	if (must_wait(pass))
		return;
	err = meet_receive_fd(link->peer_fd, &answer, sizeof(answer), &passed);
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
	int err = agree(link, hello->max_frame, hello->in_place == 1, hello->ring == 1);

	if (err)
		return err;
	/* The client's memory, once it has the answer. */
	if (link->in_place)
		rights_allow(link->peer_fd, true);
	answer.ring = link->carrier == &ring_carrier;
	if (answer.ring) {
		answer.proof = await_proof(link, hello->wake);
		prove(link, hello->wake, hello->proof);
	}
	err = link->carrier->offer(link, &answer, &passed);
	if (err)
		complain(link, err);
	if (!err)
		err = meet_send_fd(link->peer_fd, &answer, sizeof(answer), passed);
	if (passed >= 0)
		close(passed);
	return err;
}

/* ---- the server, and all who connect to it: every process of the machine can */

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

/* A client sends its hello as it connects. All that are accepted are also heard in this pass: any
 * number of others that say nothing cannot keep it out. */
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
		if (link->n_strangers == FABRIC_STRANGERS)
			drop_stranger(link, 0);
		link->strangers[link->n_strangers++] = (struct fabric_stranger){ .fd = fd,
			.deadline_ns = pass->now_ns + ASK_NS };
	}
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
			pass->wake_ns = RTE_MIN(pass->wake_ns, stranger->deadline_ns);
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
	if (must_wait(pass))
		return;
	if (is_due)
		accept_strangers(link, pass);
	hear_strangers(link, pass);
}

/* The time of a memif counts as far as this thread has run: its peer's end may be up already, and
 * would be down for good. */
static bool shook_too_long(struct fabric_link *link, const struct fabric_pass *pass)
{
	link->shakes++;
	if (pass->now_ns < link->deadline_ns)
		return false;
	if (link->carrier != &memif_carrier || link->shakes >= SHAKE_PASSES)
		return true;
	link->deadline_ns = pass->now_ns + SHAKE_NS;
	link->shakes = 0;
	return false;
}

static void handshake(struct fabric_link *link, struct fabric_pass *pass)
{
	int err = in_place_step(link, pass);

	if (!err && link->carrier)
		err = link->carrier->step(link, pass);
	if (err >= 0 && !shook_too_long(link, pass) && !meet_is_closed(link->peer_fd))
		return;
	/* A client may have said that it is up, have sent something and be gone again, all of it
	 * since we listened. */
	if (link->ring && !link->mapped)
		in_place_listen(link, pass);
	if (!link->ring || !link->mapped)
		start_over(link, pass, RETRY_AFTER_FAILURE_NS);
}

static void hang_up(struct fabric_link *link)
{
	drop_strangers(link);
	meet_hang_up(&link->peer_fd);
	meet_hang_up(&link->meet_fd);
	drop_proof(link);
}

/* What the two ends have together goes; no burst sees it. False: not yet. */
static bool part(struct fabric_link *link, struct fabric_pass *pass)
{
	if (!stop_carrier(link, pass))
		return false;
	hang_up(link);
	return true;
}

static bool destroy(struct fabric_link *link, struct fabric_pass *pass)
{
	if (!in_place_destroy(&link->in_place)) {
		pass->publish = true;
		return false;
	}
	if (!part(link, pass))
		return false;
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
		/* The server's memif is up a message before the client's: keep passing on. */
		link->lost = link->lost || meet_is_closed(link->peer_fd) ||
			in_place_step(link, pass) < 0 || link->carrier->step(link, pass) < 0;
		link->to_drain = link->lost || link->peer_leaves;
		pass->drain = pass->drain || link->to_drain;
		break;
	case FABRIC_DRAIN:
		if (link->carrier && link->carrier->outlives_peer)
			hang_up(link);
		else
			part(link, pass);
		break;
	case FABRIC_DOWN: destroy(link, pass); break;
	}
	pass->publish = pass->publish || (link->error && link->stage != FABRIC_DOWN);
	pass->shaking = pass->shaking ||
		(link->stage == FABRIC_SHAKE && link->carrier == &memif_carrier);
	pass->wake_ns = RTE_MIN(pass->wake_ns, link->deadline_ns);
	if (link->retry_ns > pass->now_ns)
		pass->wake_ns = RTE_MIN(pass->wake_ns, link->retry_ns);
}

static void go_down(struct fabric_link *link)
{
	struct burst_link *seen = &link->port->links[link->number];

	set_stage(link, FABRIC_DOWN, UINT64_MAX);
	burst_set_state(link->port, link->number, PORT_LINK_DOWN);
	burst_drop_stash(link->port, link->number);
	seen->ethdev = NO_ETHDEV;
	burst_hide_ring(link->port, link->number);
	in_place_hide(link->port, link->number);
	if (link->in_place)
		link->in_place->detached = true;
}

/* Before it is up bursts have not seen it, and the guard may not be held: its port may be new. */
static bool is_over(const struct fabric_link *link, const struct burst_link *seen)
{
	if (link->stage == FABRIC_UP)
		return seen->broken;
	return link->stage == FABRIC_DRAIN && (seen->broken || seen->drained);
}

void fabric_publish(struct fabric_link *link)
{
	struct burst_link *seen = &link->port->links[link->number];
	bool up;

	/* Its owner has taken it out of the table: no burst sees its memory after this. */
	if (link->closing && link->in_place)
		link->in_place->detached = true;
	if (link->closing || link->stage == FABRIC_DOWN)
		return;
	if (link->error || is_over(link, seen))
		go_down(link);
	/* Exports are not looked at any more: their ids are free. */
	if (!link->carrier || link->stage == FABRIC_DRAIN)
		return;
	up = link->carrier->is_up(link);
	if (link->stage == FABRIC_SHAKE && up) {
		set_stage(link, FABRIC_UP, UINT64_MAX);
		meet_hang_up(&link->meet_fd);
		link->carrier->show(link, seen);
		seen->drained = false;
		seen->max_frame = link->max_frame;
		seen->in_place = link->in_place;
		if (link->in_place)
			link->in_place->visible = true;
		burst_set_state(link->port, link->number, PORT_LINK_UP);
	} else if (link->stage == FABRIC_UP && !up) {
		go_down(link);
	}
	if (link->in_place)
		in_place_publish(link->port, link->in_place);
}

void fabric_drain(struct fabric_link *link, struct fabric_pass *pass)
{
	struct burst_link *seen = &link->port->links[link->number];

	link->carrier->drain(link, seen);
	burst_rouse(link->port);
	link->to_drain = false;
	set_stage(link, FABRIC_DRAIN, UINT64_MAX);
	pass->publish = pass->publish || seen->drained;
	pass->wake_ns = pass->now_ns;
}

/* Until the peer has what is in the ring, or will not have it. */
static bool leave(struct fabric_link *link, struct fabric_pass *pass)
{
	int err;

	if (link->stage != FABRIC_UP || link->lost || link->carrier->outlives_peer)
		return true;
	if (link->deadline_ns == UINT64_MAX)
		link->deadline_ns = pass->now_ns + LEAVE_NS;
	err = link->said_leaving ? 0 : in_place_say_leaving(link);
	link->said_leaving = err == 0;
	if (!err)
		err = in_place_listen(link, pass);
	if (!err)
		err = link->carrier->step(link, pass);
	if ((err && err != -EAGAIN) || link->peer_leaves || pass->now_ns >= link->deadline_ns ||
		meet_is_closed(link->peer_fd)) {
		link->lost = true;
		return true;
	}
	pass->wake_ns = RTE_MIN(
		pass->wake_ns, link->said_leaving ? link->deadline_ns : pass->now_ns + RETRY_NS);
	return false;
}

bool fabric_take_apart(struct fabric_link *link, struct fabric_pass *pass)
{
	return leave(link, pass) && destroy(link, pass);
}
