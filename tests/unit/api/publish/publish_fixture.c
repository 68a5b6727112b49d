/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/api/publish/publish_fixture.h"

#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct fake_daemon daemon_fake;

static void answer(uint64_t seq, const Ctl__Lease *lease, bool has_socket)
{
	Ctl__PortOpened opened = CTL__PORT_OPENED__INIT;
	Ctl__Lease none = CTL__LEASE__INIT;
	Ctl__Envelope envelope;

	if (lease)
		none = *lease;
	envelope_init(&envelope);
	envelope.seq = seq;
	opened.port = 1;
	opened.lease = &none;
	opened.has_socket = has_socket;
	envelope.body_case = CTL__ENVELOPE__BODY_PORT_OPENED;
	envelope.port_opened = &opened;
	fake_write(&daemon_fake, &envelope);
}

void answer_open(uint64_t seq, const Ctl__Lease *lease)
{
	answer(seq, lease, false);
}

void answer_without_its_socket(uint64_t seq, const Ctl__Lease *lease)
{
	answer(seq, lease, true);
}

void read_open(struct known *known)
{
	Ctl__Envelope *envelope = fake_expect(&daemon_fake, CTL__ENVELOPE__BODY_OPEN_PORT);
	const Ctl__OpenPort *open = envelope->open_port;

	*known = (struct known){ .number = open->port, .open_seq = envelope->seq };
	snprintf(known->fabric, sizeof(known->fabric), "%s", open->fabric);
	known->has_lease = open->lease != NULL;
	known->lease_id = open->lease ? open->lease->id : 0;
	ck_assert_uint_ne(known->number, 0);
	ck_assert_uint_ne(known->open_seq, 0);
	ctl__envelope__free_unpacked(envelope, NULL);
}

void read_description(struct known *known)
{
	Ctl__Envelope *envelope = fake_expect(&daemon_fake, CTL__ENVELOPE__BODY_DESCRIBE_PORT);
	const Ctl__DescribePort *port = envelope->describe_port;
	const char *why;

	ck_assert_uint_eq(port->port, known->number);
	snprintf(known->device, sizeof(known->device), "%s", port->device);
	ck_assert_uint_ge(port->n_addresses, 1);
	snprintf(known->address, sizeof(known->address), "%s", port->addresses[0]);
	known->path_mtu = port->path_mtu;
	ck_assert_uint_eq(port->mac.len, 6);
	ctl__envelope__free_unpacked(envelope, NULL);
	ck_assert_int_ge(daemon_fake.passed_fd, 0);
	why = page_open(daemon_fake.passed_fd, &known->page);
	ck_assert_msg(!why, "%s", why);
	ck_assert_uint_eq(known->page.slots, PAGE_SLOTS);
	daemon_fake.passed_fd = -1;
}

void forget(struct known *known)
{
	if (known->page.close)
		known->page.close(&known->page);
	known->page.close = NULL;
}

void read_port(struct known *known)
{
	read_open(known);
	answer_open(known->open_seq, NULL);
	read_description(known);
}

void read_close(struct known *known)
{
	Ctl__Envelope *envelope = fake_expect(&daemon_fake, CTL__ENVELOPE__BODY_CLOSE_PORT);

	ck_assert_uint_eq(envelope->close_port->port, known->number);
	ctl__envelope__free_unpacked(envelope, NULL);
	forget(known);
}

void publish_now(void)
{
	Ctl__Publish publish = CTL__PUBLISH__INIT;
	Ctl__Envelope envelope, *answer;

	envelope_init(&envelope);
	envelope.seq = 4711;
	envelope.body_case = CTL__ENVELOPE__BODY_PUBLISH;
	envelope.publish = &publish;
	fake_write(&daemon_fake, &envelope);
	answer = fake_expect(&daemon_fake, CTL__ENVELOPE__BODY_DONE);
	ck_assert_uint_eq(answer->seq, 4711);
	ctl__envelope__free_unpacked(answer, NULL);
}

static struct page read_head(const struct known *known)
{
	struct page head;

	ck_assert(page_read_head(&known->page, &head));
	ck_assert_uint_le(head.used_slots, known->page.slots);
	return head;
}

bool find_qp(const struct known *known, uint32_t qpn, struct page_qp *ret)
{
	const struct page head = read_head(known);

	for (uint32_t i = 0; i < head.used_slots; i++)
		if (page_read_qp(&known->page, i, ret) && ret->qpn == qpn)
			return true;
	return false;
}

unsigned count_qps(const struct known *known)
{
	const struct page head = read_head(known);
	struct page_qp qp;
	unsigned n = 0;

	for (uint32_t i = 0; i < head.used_slots; i++)
		n += page_read_qp(&known->page, i, &qp);
	return n;
}

uint64_t counter(const struct known *known, const char *name)
{
	const struct page head = read_head(known);

	for (uint32_t i = 0; i < head.counters; i++)
		if (strcmp(head.counter[i].name, name) == 0)
			return head.counter[i].value;
	ck_abort_msg("no counter %s", name);
	return 0;
}
void publish_setup(void)
{
	fake_listen(&daemon_fake);
}

void publish_teardown(void)
{
	fake_close(&daemon_fake);
}
