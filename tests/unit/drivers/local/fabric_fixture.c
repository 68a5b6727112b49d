/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/drivers/local/fabric_fixture.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "drivers/local/in_place.h"

struct side server, client;
struct fabric_pass pass;
uint64_t now_ns;

void open_side(struct side *side, bool is_server)
{
	memset(side, 0, sizeof(*side));
	side->port.base.caps.max_frame = MAX_FRAME;
	side->port.base.caps.in_place = true;
	side->port.wake_fd = -1;
	TAILQ_INIT(&side->port.all_links);
	LIST_INIT(&side->port.shares);
	side->link = (struct fabric_link){
		.port = &side->port,
		.request.server = is_server,
		.request.secret = "open sesame",
		.clients.listen_fd = -1,
		.peer_fd = -1,
		.proof_fd = -1,
		.deadline_ns = UINT64_MAX,
	};
	snprintf(side->link.request.name, sizeof(side->link.request.name), "test_fabric-%ld",
		(long)getpid());
}

void fabric_setup(void)
{
	now_ns = 1000 * 1000 * 1000;
	open_side(&server, true);
	open_side(&client, false);
	ck_assert_int_eq(fabric_listen(&server.link), 0);
}

void close_side(struct side *side)
{
	side->link.closing = true;
	fabric_publish(&side->link);
	ck_assert(fabric_try_free(&side->link, &pass));
	in_place_fini(&side->port);
}

void fabric_teardown(void)
{
	close_side(&client);
	close_side(&server);
}

void step(struct side *side)
{
	pass = (struct fabric_pass){ .now_ns = now_ns, .wake_ns = UINT64_MAX };
	fabric_advance(&side->link, &pass);
}

void come_together(void)
{
	step(&client);
	step(&server);
	ck_assert_int_eq(server.link.stage, FABRIC_CONFIRMING);
	ck_assert_uint_eq(pass.wake_ns, now_ns);
	step(&client);
	ck_assert_int_eq(client.link.stage, FABRIC_CONFIRMING);
	ck_assert_uint_eq(pass.wake_ns, now_ns);
}
