/* SPDX-License-Identifier: BSD-3-Clause */
/* The ops of a port for links and introductions. They leave the work to the link thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/local/in_place.h"
#include "drivers/local/introduction.h"
#include "drivers/local/link.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

unsigned local_max_links = PORT_MAX_LINKS;

static int free_number(const struct local_port *port)
{
	for (unsigned i = 0; i < local_max_links; i++)
		if (!port->made[i])
			return (int)i;
	return -1;
}

static struct fabric_link *new_link(
	struct local_port *port, const struct port_link_request *request, uint16_t number)
{
	struct fabric_link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	*link = (struct fabric_link){
		.port = port,
		.number = number,
		.request = *request,
		.stage = FABRIC_CONNECTING,
		.watch.is_ready = true,
		.clients.listen_fd = -1,
		.peer_fd = -1,
		.proof_fd = -1,
		.deadline_ns = UINT64_MAX,
		.give_up_ns = request->limit_ns ? clock_now_ns() + request->limit_ns : 0,
	};
	return link;
}

static int check_request(const struct port_link_request *request)
{
	if (request->name[0] == '\0' || !memchr(request->name, '\0', sizeof(request->name)) ||
		!memchr(request->secret, '\0', sizeof(request->secret)))
		return frl_fail(
			-EINVAL, "a local link's name or secret is empty or not terminated");
	return 0;
}

static void add_link(struct fabric_link *link)
{
	struct local_port *port = link->port;

	port->made[link->number] = link;
	local_set_state(port, link->number, PORT_LINK_CONNECTING);
	link_thread_list(port);
	TAILQ_INSERT_TAIL(&port->all_links, link, next);
}

static int make_link(struct local_port *port, const struct port_link_request *request)
{
	int number = free_number(port);
	struct fabric_link *link;
	int err = 0;

	if (number < 0)
		return frl_fail(-ENOSPC, "this device has %u local links, which is its limit",
			local_max_links);
	link = new_link(port, request, (uint16_t)number);
	if (!link)
		return frl_fail(-ENOMEM, "no memory for a local link");
	if (request->server)
		err = fabric_listen(link);
	if (err) {
		frl_fail(err, "cannot listen for the local link \"%s\": %s%s", request->name,
			frl_strerror(err),
			err == -EADDRINUSE ? "; is its name used twice on this machine?" : "");
		free(link);
		return err;
	}
	add_link(link);
	return number;
}

int link_open(struct port *base, const struct port_link_request *request)
{
	struct local_port *port = (struct local_port *)base;
	int rc = check_request(request);

	if (rc)
		return rc;
	link_thread_lock();
	rc = link_thread_start();
	if (!rc)
		rc = make_link(port, request);
	link_thread_kick();
	link_thread_unlock();
	return rc;
}

void link_close(struct port *base, uint16_t number)
{
	struct local_port *port = (struct local_port *)base;
	struct fabric_link *link = port->made[number];

	if (!link)
		return;
	port->made[number] = NULL;
	in_place_hide(port, number);
	local_hide_ring(port, number);
	local_set_state(port, number, PORT_LINK_CLOSED);
	link_thread_lock();
	link->closing = true;
	link_thread_kick();
	link_thread_unlock();
}

void link_keep(struct port *base, uint16_t number)
{
	struct fabric_link *link = ((struct local_port *)base)->made[number];

	if (!link)
		return;
	link_thread_lock();
	link->give_up_ns = 0;
	/* The time has passed, but no publish has followed. */
	if (link->error == -ETIMEDOUT)
		link->error = 0;
	link_thread_unlock();
}

enum port_link_state link_state(struct port *base, uint16_t link)
{
	return ((struct local_port *)base)->links[link].state;
}

uint32_t link_frame(struct port *base, uint16_t link)
{
	const struct burst_link *at = &((struct local_port *)base)->links[link];

	return at->state == PORT_LINK_UP ? at->max_frame : 0;
}

uint32_t link_features(struct port *base, uint16_t link)
{
	const struct burst_link *at = &((struct local_port *)base)->links[link];

	return at->state == PORT_LINK_UP ? at->features : 0;
}

int introductions_open(struct port *base, const struct port_introductions *config)
{
	struct local_port *port = (struct local_port *)base;
	struct introductions *introductions = introductions_new(port, config);
	int rc;

	if (!introductions)
		return frl_fail(-ENOMEM, "no memory for introductions");
	link_thread_lock();
	rc = link_thread_start();
	if (rc) {
		free(introductions);
	} else {
		link_thread_list(port);
		port->introductions = introductions;
		link_thread_watch(&introductions->watch, config->listener);
		link_thread_kick();
	}
	link_thread_unlock();
	return rc;
}

int introductions_ask(struct port *base, const struct frl_ip *ip)
{
	struct introductions *introductions = ((struct local_port *)base)->introductions;
	int rc;

	if (!introductions || introductions->is_detached)
		return frl_fail(-EHOSTUNREACH,
			"the device was opened before fork(): open another one in this process");
	link_thread_lock();
	rc = introductions_start(introductions, ip);
	link_thread_kick();
	link_thread_unlock();
	return rc;
}

void introductions_close(struct port *base)
{
	struct local_port *port = (struct local_port *)base;

	link_thread_lock();
	if (port->introductions && port->introductions->is_detached) {
		introductions_free(port->introductions);
		port->introductions = NULL;
	}
	if (port->introductions) {
		port->introductions->closing = true;
		link_thread_kick();
	}
	while (port->introductions || port->is_held)
		link_thread_wait();
	link_thread_unlock();
}

void link_close_all(struct local_port *port)
{
	port->guard.lock(port->guard.arg);
	for (uint16_t i = 0; i < PORT_MAX_LINKS; i++)
		link_close(&port->base, i);
	port->guard.unlock(port->guard.arg);
	link_thread_lock();
	while (!TAILQ_EMPTY(&port->all_links) || port->is_held)
		link_thread_wait();
	link_thread_unlock();
}
