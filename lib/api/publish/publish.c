/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Publishes this process's devices to the control daemon. Between up() and down() of the handler
 * changes are posted at once; up() posts the whole state. Both hold the mutex, so nothing is posted
 * twice or lost.
 */
#include "lib/api/publish/publish.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/api/objects.h"
#include "lib/base/clock.h"
#include "lib/base/limit.h"
#include "lib/control/client.h"
#include "lib/control/frame.h"

enum {
	LEASE_MS = 5000,
	REST_MS = 60000, /* limit of the wait for resting addresses */
	ADDRESSES_MAX = 4,
	ADDRESS_SIZE = 64,
	REASON_SIZE = 256,
	WHY_SIZE = 100,
};

#define NS_PER_MS UINT64_C(1000000)

struct publication {
	struct list node; /* publisher.ports */
	uint32_t number;
	bool counted;              /* it counts in publisher.users */
	struct frl_device *device; /* NULL: not open yet */
	char fabric[64];           /* "": none was requested */
	Ctl__Envelope *opened;     /* PortOpened, with the lease; NULL: no lease */
	int socket;                /* the lease's socket, until the device is open; or -1 */
	bool is_posted;            /* OpenPort was posted to the current daemon */
	bool ended;                /* a restarted daemon did not renew the lease */
	uint64_t open_seq;         /* of the last OpenPort posted */
	struct page *page;         /* or NULL */
	int page_fd;
};

static bool on_message(struct control_handler *handler, const Ctl__Envelope *envelope);
static void on_up(struct control_handler *handler, bool again);
static void on_down(struct control_handler *handler, int error, const char *why);

static struct {
	/* Protects registration, `users`, `last_number`, and devices' publication. */
	pthread_mutex_t life;
	pthread_mutex_t mutex; /* protects all other fields; taken after `life` */
	struct control_handler handler;
	unsigned users;
	uint32_t last_number;
	struct list ports;
	bool up;
	unsigned losses; /* number of lost daemons */
} publisher = {
	.life = PTHREAD_MUTEX_INITIALIZER,
	.mutex = PTHREAD_MUTEX_INITIALIZER,
	.handler = { .message = on_message, .up = on_up, .down = on_down },
	.ports = { &publisher.ports, &publisher.ports },
};

static void lock(void)
{
	pthread_mutex_lock(&publisher.mutex);
}

static void unlock(void)
{
	pthread_mutex_unlock(&publisher.mutex);
}

static void before_fork(void)
{
	pthread_mutex_lock(&publisher.life);
	lock();
}

static void after_fork(void)
{
	unlock();
	pthread_mutex_unlock(&publisher.life);
}

/* The parent owns the ports, as it owns the devices. */
static void after_fork_in_child(void)
{
	while (!list_empty(&publisher.ports)) {
		struct publication *p = container_of(
			publisher.ports.next, struct publication, node);

		list_remove(&p->node);
		p->counted = false;
	}
	publisher.users = 0;
	publisher.up = false;
	after_fork();
}

/*
 * Runs after init_client() (203). Prepare handlers run in reverse order, so these locks are taken
 * before the client's. Runs at load, because devices take the locks without a daemon too.
 */
__attribute__((constructor(204))) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* `life` held. */
static int acquire(struct publication *p, enum control_want want)
{
	int rc = control_register(&publisher.handler, want);

	if (rc)
		return rc;
	if (!p->counted) {
		publisher.users++;
		p->counted = true;
		p->number = ++publisher.last_number;
	}
	return 0;
}

/* `life` held. */
static void release(struct publication *p)
{
	if (!p->counted || --publisher.users)
		return;
	control_unregister(&publisher.handler);
	lock();
	publisher.up = false;
	unlock();
}

/* ---- messages to the daemon, with the mutex held */

static Ctl__OpenPort open_port(struct publication *p)
{
	Ctl__OpenPort message = CTL__OPEN_PORT__INIT;

	message.port = p->number;
	message.fabric = p->fabric;
	if (p->opened)
		message.lease = p->opened->port_opened->lease;
	return message;
}

static void post_open(struct publication *p)
{
	Ctl__OpenPort message = open_port(p);
	Ctl__Envelope envelope;

	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_OPEN_PORT;
	envelope.open_port = &message;
	envelope.seq = p->open_seq = control_next_seq();
	control_post(&envelope, -1);
}

static void post_describe(struct publication *p)
{
	const struct frl_device_attr *attr = &p->device->attr;
	const struct gid_table *gids = &p->device->gids;
	Ctl__DescribePort message = CTL__DESCRIBE_PORT__INIT;
	char text[ADDRESSES_MAX][ADDRESS_SIZE], *addresses[ADDRESSES_MAX];
	char device[sizeof(attr->port)];
	Ctl__Envelope envelope;

	/* Skip the first one: the link-local address. */
	for (unsigned i = 1; i < gids->n && message.n_addresses < ADDRESSES_MAX; i++) {
		char *to = text[message.n_addresses];

		snprintf(to, ADDRESS_SIZE, "%s/%u", format_ip(&gids->gids[i].ip),
			gids->gids[i].prefix_len);
		addresses[message.n_addresses++] = to;
	}
	memcpy(device, attr->port, sizeof(device));
	frame_clean_text(device);
	message.port = p->number;
	message.device = device;
	message.mac = (ProtobufCBinaryData){ sizeof(attr->mac), p->device->attr.mac };
	message.addresses = addresses;
	message.path_mtu = attr->path_mtu;
	message.nonce = (ProtobufCBinaryData){ NONCE_SIZE, p->device->nonce };
	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_DESCRIBE_PORT;
	envelope.describe_port = &message;
	control_post(&envelope, p->page_fd);
}

static void post_close(const struct publication *p)
{
	Ctl__ClosePort message = CTL__CLOSE_PORT__INIT;
	Ctl__Envelope envelope;

	message.port = p->number;
	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_CLOSE_PORT;
	envelope.close_port = &message;
	control_post(&envelope, -1);
}

/* Posts the state of a publication, if there is a daemon. */
static void post_state(struct publication *p)
{
	if (!publisher.up || p->ended || !(p->device || p->opened))
		return;
	if (!p->is_posted)
		post_open(p);
	p->is_posted = true;
	if (p->device)
		post_describe(p);
}

static void on_up(struct control_handler *handler, bool again)
{
	lock();
	publisher.up = true;
	for (struct list *node = publisher.ports.next; node != &publisher.ports; node = node->next)
		post_state(container_of(node, struct publication, node));
	unlock();
}

static void on_down(struct control_handler *handler, int error, const char *why)
{
	lock();
	publisher.up = false;
	publisher.losses++;
	for (struct list *node = publisher.ports.next; node != &publisher.ports; node = node->next)
		container_of(node, struct publication, node)->is_posted = false;
	unlock();
}

/* ---- messages of the daemon */

static struct publication *find_port(uint32_t number)
{
	for (struct list *node = publisher.ports.next; node != &publisher.ports;
		node = node->next) {
		struct publication *p = container_of(node, struct publication, node);

		if (p->number == number)
			return p;
	}
	return NULL;
}

static struct publication *find_open(uint64_t seq)
{
	for (struct list *node = publisher.ports.next; node != &publisher.ports;
		node = node->next) {
		struct publication *p = container_of(node, struct publication, node);

		if (seq && p->open_seq == seq)
			return p;
	}
	return NULL;
}

static void publish_all(uint64_t seq)
{
	Ctl__Done done = CTL__DONE__INIT;
	Ctl__Envelope envelope;

	for (struct list *node = publisher.ports.next; node != &publisher.ports;
		node = node->next) {
		struct publication *p = container_of(node, struct publication, node);

		if (p->device && p->page)
			publish_page(p->device, p->page);
	}
	envelope_init(&envelope);
	envelope.seq = seq;
	envelope.body_case = CTL__ENVELOPE__BODY_DONE;
	envelope.done = &done;
	control_post(&envelope, -1);
}

static void fail_qp(const Ctl__FailQp *message)
{
	struct publication *p = find_port(message->port);
	struct frl_qp *qp;

	if (!p || !p->device)
		return;
	device_enter_first(p->device);
	qp = p->device->ops->find_qp(p->device, message->qpn);
	if (qp)
		qp_fail_held(qp, (int)message->error, message->reason);
	device_leave(p->device);
}

/* Another process may have its address from now on. */
static void end_lease(struct publication *p, const char *why)
{
	char reason[REASON_SIZE];

	snprintf(reason, sizeof(reason),
		"the lease of %s on fabric %s has ended, open the device again: %s",
		p->opened->port_opened->lease->ip, p->fabric, why);
	frl_log(FRL_LOG_ERROR, "%s", reason);
	p->ended = true;
	p->is_posted = false;
	if (p->device)
		device_revoke(p->device, reason);
}

/* Handles a lease that a restarted daemon has renewed or ended. */
static bool take_port_opened(const Ctl__Envelope *envelope)
{
	struct publication *p = find_open(envelope->seq);
	const Ctl__Lease *lease = envelope->port_opened->lease, *mine;
	char why[WHY_SIZE];

	if (!p)
		return false;
	if (!p->opened || p->ended)
		return true;
	mine = p->opened->port_opened->lease;
	if (lease && strcmp(lease->ip, mine->ip) == 0)
		return true;
	post_close(p);
	snprintf(why, sizeof(why), "the control daemon leased it %s instead",
		lease && *lease->ip ? lease->ip : "no address");
	end_lease(p, why);
	return true;
}

static bool take_failure(const Ctl__Envelope *envelope)
{
	struct publication *p = find_open(envelope->seq);

	if (!p)
		return false;
	/* Posted twice, because a daemon came during the first post. */
	if (envelope->failure->error == EEXIST)
		return true;
	if (p->opened && !p->ended)
		end_lease(p, envelope->failure->text);
	else
		frl_log(FRL_LOG_WARNING, "the control daemon refuses port %u: %s", p->number,
			envelope->failure->text);
	return true;
}

static bool on_message(struct control_handler *handler, const Ctl__Envelope *envelope)
{
	bool taken = true;

	lock();
	switch (envelope->body_case) {
	case CTL__ENVELOPE__BODY_PUBLISH: publish_all(envelope->seq); break;
	case CTL__ENVELOPE__BODY_FAIL_QP: fail_qp(envelope->fail_qp); break;
	case CTL__ENVELOPE__BODY_PORT_OPENED: taken = take_port_opened(envelope); break;
	case CTL__ENVELOPE__BODY_FAILURE: taken = take_failure(envelope); break;
	default: taken = false;
	}
	unlock();
	return taken;
}

/* ---- publications */

static struct publication *new_publication(const char *fabric)
{
	struct publication *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->page_fd = p->socket = -1;
	snprintf(p->fabric, sizeof(p->fabric), "%s", fabric);
	list_init(&p->node);
	return p;
}

static void add_publication(struct publication *p)
{
	lock();
	list_add_tail(&publisher.ports, &p->node);
	unlock();
}

static int request_lease(struct publication *p, uint32_t *ret_retry_ms)
{
	Ctl__OpenPort message = open_port(p);
	Ctl__Envelope request, *answer;
	unsigned losses;
	int rc;

	envelope_init(&request);
	request.body_case = CTL__ENVELOPE__BODY_OPEN_PORT;
	request.open_port = &message;
	lock();
	losses = publisher.losses;
	unlock();
	rc = control_call_fd(&request, limit_after_ms(clock_now_ns(), LEASE_MS), &answer,
		&p->socket, ret_retry_ms);
	if (rc)
		return rc;
	if (answer->body_case != CTL__ENVELOPE__BODY_PORT_OPENED) {
		ctl__envelope__free_unpacked(answer, NULL);
		return frl_fail(-EPROTO,
			"the control daemon's answer to OpenPort is invalid: use the same release "
			"of both");
	}
	lock();
	p->opened = answer;
	p->is_posted = losses == publisher.losses;
	if (!p->is_posted)
		post_state(p);
	unlock();
	/*
	 * The caller drops the publication. Without the socket the program would open a second one
	 * for addresses that the daemon has already opened one for.
	 */
	if (answer->port_opened->has_socket && p->socket < 0)
		return frl_fail(-EPROTO,
			"ferruled's packet socket for a port of fabric %s did not arrive: use the "
			"same release of both",
			p->fabric);
	return 0;
}

/*
 * Repeats while the addresses rest: those of a finished job rest for a while, and the job may be
 * restarted at once.
 */
static int lease(struct publication *p)
{
	uint64_t limit_ns = limit_after_ms(clock_now_ns(), REST_MS);
	uint32_t retry_ms = 0;
	bool is_logged = false;
	int rc;

	while ((rc = request_lease(p, &retry_ms)) != 0 && retry_ms &&
		clock_now_ns() + retry_ms * NS_PER_MS <= limit_ns) {
		if (!is_logged)
			frl_log(FRL_LOG_WARNING, "waiting for a port of fabric %s: %s", p->fabric,
				frl_last_error());
		is_logged = true;
		usleep((useconds_t)retry_ms * 1000);
	}
	return rc;
}

int publish_lease(const char *fabric, struct publication **ret_publication)
{
	struct publication *p;
	int rc;

	if (strlen(fabric) >= sizeof(p->fabric))
		return frl_fail(-EINVAL, "fabric \"%.80s\": a name has at most %zu characters",
			fabric, sizeof(p->fabric) - 1);
	p = new_publication(fabric);
	if (!p)
		return frl_fail(-ENOMEM, "no memory for a port");
	pthread_mutex_lock(&publisher.life);
	/* A private daemon would have no fabrics: do not start one. */
	rc = acquire(p, CONTROL_IF_THERE);
	pthread_mutex_unlock(&publisher.life);
	if (!rc) {
		add_publication(p);
		rc = lease(p);
	}
	if (!rc)
		*ret_publication = p;
	else
		publish_drop(p);
	return rc;
}

const Ctl__Lease *publication_lease(const struct publication *p)
{
	return p->opened->port_opened->lease;
}

int publication_socket(const struct publication *p)
{
	return p->socket;
}

void publication_close_socket(struct publication *p)
{
	if (p->socket >= 0)
		close(p->socket);
	p->socket = -1;
}

void publish_drop(struct publication *p)
{
	if (!p)
		return;
	publication_close_socket(p);
	lock();
	list_remove(&p->node);
	if (p->counted && publisher.up && p->is_posted)
		post_close(p);
	unlock();
	pthread_mutex_lock(&publisher.life);
	release(p);
	pthread_mutex_unlock(&publisher.life);
	if (p->opened)
		ctl__envelope__free_unpacked(p->opened, NULL);
	if (p->page)
		munmap(p->page, page_size(PAGE_SLOTS));
	if (p->page_fd >= 0)
		close(p->page_fd);
	free(p);
}

static int check_ended(struct publication *p)
{
	bool ended;

	lock();
	ended = p->ended;
	unlock();
	return ended ? frl_fail(-ENETDOWN,
			       "the lease of the device's port on fabric %s has ended: open the "
			       "device again",
			       p->fabric)
		     : 0;
}

/* Publishes a device, now or when a daemon comes. `life` held. */
static int publish(struct frl_device *device, struct publication *p, enum control_want want)
{
	struct publication *fresh = NULL;
	int rc;

	if (!p)
		p = fresh = new_publication("");
	if (!p)
		return frl_fail(-ENOMEM, "no memory for a port");
	rc = acquire(p, want);
	if (rc) {
		free(fresh);
		return rc;
	}
	/* Without a page the daemon only has fewer statistics. */
	p->page = page_create(PAGE_SLOTS, &p->page_fd);
	lock();
	p->device = device;
	if (fresh)
		list_add_tail(&publisher.ports, &p->node);
	post_state(p);
	unlock();
	device->publication = p;
	return check_ended(p);
}

int publish_device(struct frl_device *device, struct publication *publication)
{
	int rc;

	pthread_mutex_lock(&publisher.life);
	rc = publish(device, publication, CONTROL_IF_THERE);
	pthread_mutex_unlock(&publisher.life);
	return rc == -EINVAL || rc == -ENOMEM || publication ? rc : 0;
}

int publish_require(struct frl_device *device, uint32_t *ret_port)
{
	int rc;

	pthread_mutex_lock(&publisher.life);
	if (!device->publication)
		rc = publish(device, NULL, CONTROL_START);
	else if (!(rc = check_ended(device->publication)))
		rc = acquire(device->publication, CONTROL_START);
	if (!rc)
		*ret_port = device->publication->number;
	pthread_mutex_unlock(&publisher.life);
	return rc;
}

void publish_close(struct frl_device *device)
{
	struct publication *p = device->publication;

	lock();
	/* Update the page for the daemon's sums: counts since its last query would be lost. */
	if (p && p->page)
		publish_page(device, p->page);
	if (p)
		p->device = NULL;
	unlock();
}
