/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/ports_fixture.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/ip.h"

static struct frl_ip ip_of(const char *text)
{
	struct frl_ip ip;
	uint8_t prefix_len;

	ck_assert_int_eq(parse_ip(text, &ip, &prefix_len), 0);
	return ip;
}

static struct config *fabric_config(void)
{
	struct config *config = config_new();
	struct config_fabric *fabric = calloc(1, sizeof(*fabric));

	ck_assert(config && fabric);
	config->fabrics = fabric;
	config->n_fabrics = 1;
	config->hold_ms = 1000;
	config->relearn_ms = 2000;
	config->max_ports_per_user = 4;
	fabric->name = strdup("eth");
	fabric->ports = calloc(PORTS, sizeof(*fabric->ports));
	fabric->n_ports = PORTS;
	for (unsigned i = 0; i < PORTS; i++) {
		char devargs[] = "net_test0";

		devargs[sizeof(devargs) - 2] = (char)('0' + i);
		fabric->ports[i].devargs = strdup(devargs);
	}
	fabric->addresses = calloc(2, sizeof(*fabric->addresses));
	fabric->n_addresses = 2;
	fabric->addresses[0] = (struct config_range){ ip_of("10.1.0.254"), ip_of("10.1.1.1"), 16 };
	fabric->addresses[1] = (struct config_range){ ip_of("fd00::1"), ip_of("fd00::4"), 64 };
	fabric->vlan = 7;
	fabric->gateway = strdup("10.1.0.1");
	fabric->has_macs = true;
	memcpy(fabric->mac_first, (uint8_t[]){ 2, 0, 0, 0, 0, 0xff }, 6);
	fabric->n_macs = MACS;
	fabric->path_mtu = 1024;
	fabric->qpns = QPNS;
	fabric->users = calloc(1, sizeof(uid_t));
	fabric->users[0] = UID;
	fabric->n_users = 1;
	return config;
}

struct town town_new(void)
{
	struct town town = { .config = fabric_config(), .world = world_create(1) };

	world_add_host(town.world, "a", town.config);
	town.process = world_process(town.world, 0, UID, 11);
	return town;
}

void town_free(struct town *town)
{
	world_destroy(town->world);
	config_free(town->config);
}

void town_limit_ports(struct town *town, uint32_t n)
{
	struct config_fabric *fabric = town->config->fabrics;

	while (fabric->n_ports > n)
		free(fabric->ports[--fabric->n_ports].devargs);
}

Ctl__Envelope *open_port(
	struct process *process, uint32_t number, const char *fabric, Ctl__Lease *lease)
{
	Ctl__OpenPort open = CTL__OPEN_PORT__INIT;

	open.port = number;
	open.fabric = (char *)(uintptr_t)fabric;
	open.lease = lease;
	return process_ask(process, CTL__ENVELOPE__BODY_OPEN_PORT, &open);
}

Ctl__Envelope *must_open(struct process *process, uint32_t number)
{
	Ctl__Envelope *answer = open_port(process, number, "eth", NULL);

	ck_assert_ptr_nonnull(answer);
	ck_assert_msg(answer->body_case == CTL__ENVELOPE__BODY_PORT_OPENED, "%s",
		answer->body_case == CTL__ENVELOPE__BODY_FAILURE ? answer->failure->text : "?");
	return answer;
}

void drop(Ctl__Envelope *envelope)
{
	ctl__envelope__free_unpacked(envelope, NULL);
}

void check_opened(Ctl__Envelope *answer)
{
	ck_assert_ptr_nonnull(answer);
	ck_assert_msg(answer->body_case == CTL__ENVELOPE__BODY_PORT_OPENED, "%s",
		answer->body_case == CTL__ENVELOPE__BODY_FAILURE ? answer->failure->text : "?");
	drop(answer);
}

void check_failure(Ctl__Envelope *answer, int error, const char *part)
{
	ck_assert_ptr_nonnull(answer);
	ck_assert_int_eq(answer->body_case, CTL__ENVELOPE__BODY_FAILURE);
	ck_assert_int_eq((int)answer->failure->error, error);
	ck_assert_msg(strstr(answer->failure->text, part) != NULL, "\"%s\" lacks \"%s\"",
		answer->failure->text, part);
	drop(answer);
}

void close_port(struct process *process, uint32_t number)
{
	Ctl__ClosePort close = CTL__CLOSE_PORT__INIT;

	close.port = number;
	process_say(process, CTL__ENVELOPE__BODY_CLOSE_PORT, &close);
	world_settle(process->world);
}

Ctl__Envelope *describe(struct process *process, uint32_t number, const char *address,
	const uint8_t mac[6], const uint8_t nonce[16])
{
	Ctl__DescribePort message = CTL__DESCRIBE_PORT__INIT;
	char *addresses = (char *)(uintptr_t)address;

	message.port = number;
	message.device = (char *)"net_test0";
	message.mac = (ProtobufCBinaryData){ 6, (uint8_t *)(uintptr_t)mac };
	message.nonce = (ProtobufCBinaryData){ 16, (uint8_t *)(uintptr_t)nonce };
	message.addresses = &addresses;
	message.n_addresses = 1;
	return process_ask(process, CTL__ENVELOPE__BODY_DESCRIBE_PORT, &message);
}
