/* SPDX-License-Identifier: BSD-3-Clause */
/* The libibverbs in memory: queue pairs for raw packets, flow rules, and the switch between
 * them. */
#include <arpa/inet.h>
#include <errno.h>

#include "tests/fakes/verbs/fake_verbs_internal.h"

enum {
	LONGEST_FRAME = 9018 + 4, /* MTU 9000, a tag */
	MAX_LAYERS = 4,
	ETHERTYPE_IPV4 = 0x0800,
	ETHERTYPE_IPV6 = 0x86dd,
	ETHERTYPE_VLAN = 0x8100,
	NEXT_UDP = 17,
	ROCE_PORT = 4791,
};

/* --- Flow rules */

static bool is_layer(const struct ibv_flow_spec *spec)
{
	switch (spec->hdr.type) {
	case IBV_FLOW_SPEC_ETH: return spec->hdr.size == sizeof(spec->eth);
	case IBV_FLOW_SPEC_IPV4: return spec->hdr.size == sizeof(spec->ipv4);
	case IBV_FLOW_SPEC_IPV6: return spec->hdr.size == sizeof(spec->ipv6);
	case IBV_FLOW_SPEC_UDP: return spec->hdr.size == sizeof(spec->tcp_udp);
	default: return false;
	}
}

/* Reads a rule. Returns an errno value, or 0. */
static int read_rule(
	struct fake_flow *flow, const struct fake_qp *qp, const struct ibv_flow_attr *attr)
{
	const uint8_t *at = (const uint8_t *)(attr + 1);
	size_t left = attr->size - sizeof(*attr);

	if (!qp->object.device->is.has_flows)
		return EOPNOTSUPP;
	if (qp->ibv.qp_type != IBV_QPT_RAW_PACKET || attr->comp_mask != 0 ||
		attr->type != IBV_FLOW_ATTR_NORMAL || attr->size < sizeof(*attr) ||
		attr->port != qp->attr.port_num ||
		(attr->flags & ~(uint32_t)IBV_FLOW_ATTR_FLAGS_DONT_TRAP) != 0 ||
		attr->num_of_specs == 0 || attr->num_of_specs > MAX_LAYERS)
		return EINVAL;
	flow->port = attr->port;
	flow->priority = attr->priority;
	flow->dont_trap = attr->flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	for (; flow->n_layers < attr->num_of_specs; flow->n_layers++) {
		struct ibv_flow_spec *layer = &flow->layers[flow->n_layers];

		if (left < sizeof(layer->hdr))
			return EINVAL;
		memcpy(&layer->hdr, at, sizeof(layer->hdr));
		if (!is_layer(layer) || left < layer->hdr.size)
			return EINVAL;
		memcpy(layer, at, layer->hdr.size);
		at += layer->hdr.size;
		left -= layer->hdr.size;
	}
	return left == 0 ? 0 : EINVAL;
}

struct ibv_flow *fake_create_flow(struct ibv_qp *ibv, struct ibv_flow_attr *attr)
{
	struct fake_qp *qp = FAKE_OF(struct fake_qp, ibv, ibv);
	struct fake_flow *flow = fake_make("ibv_create_flow", FAKE_VERBS_FLOW, sizeof(*flow),
		qp->object.device, qp->object.context);
	int err;

	if (!flow)
		return NULL;
	err = read_rule(flow, qp, attr);
	if (err != 0)
		return fake_unmake(&flow->object, err);
	flow->qp = qp;
	flow->ibv.context = ibv->context;
	flow->ibv.handle = ++qp->object.device->next_handle;
	qp->object.n_users++;
	fake_leave();
	return &flow->ibv;
}

int fake_destroy_flow(struct ibv_flow *ibv)
{
	struct fake_flow *flow = FAKE_OF(struct fake_flow, ibv, ibv);
	int err = fake_destroy("ibv_destroy_flow", &flow->object);

	if (err != 0)
		return err;
	flow->qp->object.n_users--;
	return fake_destroyed(&flow->object);
}

/* --- What a rule looks at */

struct parsed {
	const uint8_t *frame;
	uint16_t ether_type;
	uint8_t next_header;
	const uint8_t *ip, *udp; /* NULL: none */
};

static uint16_t be16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static struct parsed parse(const uint8_t *frame, size_t length)
{
	struct parsed is = { .frame = frame };
	size_t at = 14;

	if (length < 14)
		return is;
	is.ether_type = be16(frame + 12);
	if (is.ether_type == ETHERTYPE_VLAN && length >= 18) {
		is.ether_type = be16(frame + 16);
		at = 18;
	}
	if (is.ether_type == ETHERTYPE_IPV4 && length >= at + 20) {
		is.ip = frame + at;
		is.next_header = is.ip[9];
		at += (size_t)(is.ip[0] & 15) * 4;
	} else if (is.ether_type == ETHERTYPE_IPV6 && length >= at + 40) {
		is.ip = frame + at;
		is.next_header = is.ip[6];
		at += 40;
	}
	if (is.ip && is.next_header == NEXT_UDP && length >= at + 8)
		is.udp = frame + at;
	return is;
}

/* Whether `n` bytes match a rule; no bytes match a rule that requires nothing. */
static bool fits(const void *bytes, const void *value, const void *mask, size_t n)
{
	const uint8_t *is = bytes, *wants = value, *by = mask;

	for (size_t i = 0; i < n; i++)
		if (((is[i] ^ wants[i]) & by[i]) != 0)
			return false;
	return true;
}

static bool fits_eth(const struct parsed *is, const struct ibv_flow_spec_eth *spec)
{
	uint16_t type = htons(is->ether_type);

	return fits(is->frame, spec->val.dst_mac, spec->mask.dst_mac, 6) &&
		fits(is->frame + 6, spec->val.src_mac, spec->mask.src_mac, 6) &&
		fits(&type, &spec->val.ether_type, &spec->mask.ether_type, 2);
}

static bool fits_layer(const struct parsed *is, const struct ibv_flow_spec *spec)
{
	switch (spec->hdr.type) {
	case IBV_FLOW_SPEC_ETH: return fits_eth(is, &spec->eth);
	case IBV_FLOW_SPEC_IPV4:
		return is->ip && is->ether_type == ETHERTYPE_IPV4 &&
			fits(is->ip + 12, &spec->ipv4.val, &spec->ipv4.mask, 8);
	case IBV_FLOW_SPEC_IPV6:
		return is->ip && is->ether_type == ETHERTYPE_IPV6 &&
			fits(is->ip + 8, spec->ipv6.val.src_ip, spec->ipv6.mask.src_ip, 16) &&
			fits(is->ip + 24, spec->ipv6.val.dst_ip, spec->ipv6.mask.dst_ip, 16) &&
			fits(&is->next_header, &spec->ipv6.val.next_hdr, &spec->ipv6.mask.next_hdr,
				1);
	case IBV_FLOW_SPEC_UDP:
		return is->udp &&
			fits(is->udp + 2, &spec->tcp_udp.val.dst_port, &spec->tcp_udp.mask.dst_port,
				2) &&
			fits(is->udp, &spec->tcp_udp.val.src_port, &spec->tcp_udp.mask.src_port, 2);
	default: return false;
	}
}

static bool fits_rule(const struct parsed *is, const struct fake_flow *flow)
{
	for (unsigned i = 0; i < flow->n_layers; i++)
		if (!fits_layer(is, &flow->layers[i]))
			return false;
	return true;
}

/* --- Frames come */

static void complete_recv(struct fake_qp *qp, uint64_t wr_id, enum ibv_wc_status status,
	size_t length, bool is_checked)
{
	struct fake_cqe cqe = { .qp = qp };

	cqe.wc.wr_id = wr_id;
	cqe.wc.status = status;
	cqe.wc.opcode = IBV_WC_RECV;
	cqe.wc.byte_len = (uint32_t)length;
	cqe.wc.qp_num = qp->ibv.qp_num;
	cqe.wc.vendor_err = status == IBV_WC_SUCCESS ? 0 : 0x80u + status;
	cqe.wc.wc_flags = is_checked ? IBV_WC_IP_CSUM_OK : 0;
	fake_cq_add(FAKE_OF(struct fake_cq, ibv, qp->ibv.recv_cq), &cqe, false);
}

/* Delivers to one queue pair; a bad receive ends it. */
static void receive(struct fake_qp *qp, const uint8_t *frame, size_t length, bool is_checked)
{
	struct fake_span from = { (uint8_t *)(uintptr_t)frame, length }, to[FAKE_MAX_SGE];
	struct fake_recv_ring *ring = &qp->recvs;
	const struct fake_recv *slot;
	uint64_t room = 0;
	int n;

	if ((qp->ibv.state != IBV_QPS_RTR && qp->ibv.state != IBV_QPS_RTS) || qp->is_cut ||
		ring->taken == ring->posted) {
		fake_world.stats.lost++;
		return;
	}
	slot = &ring->slots[ring->taken++ % ring->max_wr];
	n = fake_spans(to, FAKE_OF(struct fake_pd, ibv, qp->ibv.pd), slot->sges, slot->n_sge,
		IBV_ACCESS_LOCAL_WRITE);
	for (int i = 0; i < n; i++)
		room += to[i].length;
	if (n < 0 || room < length) {
		complete_recv(qp, slot->wr_id, n < 0 ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_LEN_ERR, 0,
			false);
		fake_qp_fail(qp, IBV_QPS_ERR);
		return;
	}
	fake_copy(to, n, &from, 1);
	complete_recv(qp, slot->wr_id, IBV_WC_SUCCESS, length, is_checked);
}

static bool has_roce(const struct fake_verbs_port *port)
{
	for (int i = 0; i < FAKE_VERBS_GIDS; i++)
		if (port->gids[i].type == IBV_GID_TYPE_ROCE_V2)
			return true;
	return false;
}

/* The rule that traps the frame: the first of the lowest priority. */
static struct fake_flow *find_trap(
	const struct fake_device *device, uint8_t port, const struct parsed *is)
{
	struct fake_flow *found = NULL;
	struct fake_object *at = NULL;

	while ((at = fake_next(FAKE_VERBS_FLOW, at)) != NULL) {
		struct fake_flow *flow = (struct fake_flow *)at;

		if (at->device == device && flow->port == port && !flow->dont_trap &&
			fits_rule(is, flow) && (!found || flow->priority < found->priority))
			found = flow;
	}
	return found;
}

/* Delivers at a port of a device: to all rules without a trap, then to one with. Returns false if
 * no rule trapped it, so the kernel gets it. */
static bool arrive(struct fake_device *device, uint8_t number, const uint8_t *frame, size_t length,
	bool is_checked)
{
	const struct fake_verbs_port *port = fake_port_of(device, number);
	struct parsed is = parse(frame, length);
	struct fake_object *at = NULL;
	struct fake_flow *trap;

	if (is.udp && be16(is.udp + 2) == ROCE_PORT && has_roce(port)) {
		fake_world.stats.lost++;
		return true;
	}
	trap = find_trap(device, number, &is);
	while ((at = fake_next(FAKE_VERBS_FLOW, at)) != NULL) {
		struct fake_flow *flow = (struct fake_flow *)at;

		if (at->device == device && flow->port == number && flow->dont_trap &&
			fits_rule(&is, flow))
			receive(flow->qp, frame, length, is_checked);
	}
	if (trap)
		receive(trap->qp, frame, length, is_checked);
	return trap;
}

bool fake_verbs_frame(
	const char *name, uint8_t port, const void *frame, size_t length, bool is_checked)
{
	bool is_taken;

	fake_enter_always(__func__);
	is_taken = arrive(fake_find_device(name), port, frame, length, is_checked);
	fake_wire_run();
	fake_leave();
	return !is_taken;
}

/* --- Frames go */

static struct {
	bool (*look)(void *arg, const char *device, const uint8_t *frame, size_t length);
	void *arg;
} tap;

void fake_verbs_tap(
	bool (*look)(void *arg, const char *device, const uint8_t *frame, size_t length), void *arg)
{
	fake_enter_always(__func__);
	tap.look = look;
	tap.arg = arg;
	fake_leave();
}

void fake_raw_reset(void)
{
	tap.look = NULL;
}

enum ibv_wc_status fake_raw_send(
	struct fake_qp *qp, const struct fake_span *local, int n_local, uint64_t length)
{
	struct fake_device *device = qp->object.device;
	uint8_t number = qp->attr.port_num;
	uint8_t frame[LONGEST_FRAME];
	struct fake_span to = { frame, length };

	if (length < 14 || length > sizeof(frame))
		return IBV_WC_LOC_LEN_ERR;
	fake_copy(&to, 1, local, n_local);
	if (tap.look && !tap.look(tap.arg, device->is.name, frame, length))
		return IBV_WC_SUCCESS;
	for (unsigned i = 0; i < fake_world.n_devices; i++) {
		struct fake_device *other = fake_world.devices[i];

		for (uint8_t j = 1; j <= other->is.attr.phys_port_cnt; j++)
			if ((other != device || j != number) &&
				fake_is_linked(device, fake_port_of(device, number), other,
					fake_port_of(other, j)))
				arrive(other, j, frame, length, true);
	}
	return IBV_WC_SUCCESS;
}
