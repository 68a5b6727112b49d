/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows: loading, properties, connections. Data only to check that a connection works. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nccl/caller/row.h"

enum { MANY = 8 };

static void load(struct side *side)
{
	struct plugin net = { 0 };

	side_open(side, &net);
	REQUIRE(!side->setup->version || net.version == side->setup->version, "version %d",
		net.version);
	side_close(side);
	plugin_close(&net);
}

/* Communicators come and go: each has its own init and finalize from version 11 on. */
static void init_twice(struct side *side)
{
	struct plugin net = { 0 };
	struct side other = *side;

	side_open(side, &net);
	side_open(&other, &net);
	MUST(plugin_finalize(&net, other.context));
	self_try(side, 4096);
	side_close(side);
	plugin_close(&net);
}

static void check_properties(const struct nccl_properties_v12 *is, int dev, int version)
{
	REQUIRE(is->name && is->name[0], "device %d has no name", dev);
	REQUIRE(!is->pci_path || is->pci_path[0] == '/', "%s: pciPath \"%s\" is no path", is->name,
		is->pci_path);
	REQUIRE(is->pointers & NCCL_POINTER_HOST, "%s: ptrSupport 0x%x lacks host memory", is->name,
		is->pointers);
	REQUIRE(!(is->pointers & ~7), "%s: ptrSupport 0x%x", is->name, is->pointers);
	REQUIRE(is->speed_mbps > 0, "%s: speed %d, which NCCL takes for 10 Gb/s", is->name,
		is->speed_mbps);
	REQUIRE(is->latency_us >= 0 && is->latency_us < 1e6f, "%s: latency %g us", is->name,
		(double)is->latency_us);
	REQUIRE(is->max_comms > 0, "%s: maxComms %d", is->name, is->max_comms);
	REQUIRE(is->max_recvs >= 1 && is->max_recvs <= NCCL_MAX_RECVS, "%s: maxRecvs %d", is->name,
		is->max_recvs);
	REQUIRE(version < 7 || (is->device_type == 0 && is->device_version == 0),
		"%s: device type %d, version %d", is->name, is->device_type, is->device_version);
	REQUIRE(is->registration_is_global == 0 || is->registration_is_global == 1,
		"%s: regIsGlobal %d", is->name, is->registration_is_global);
	REQUIRE(is->force_flush == 0 || is->force_flush == 1, "%s: forceFlush %d", is->name,
		is->force_flush);
	REQUIRE(is->max_p2p_bytes > 0 && is->max_p2p_bytes <= NCCL_MAX_NET_BYTES,
		"%s: maxP2pBytes %zu", is->name, is->max_p2p_bytes);
	REQUIRE(is->max_coll_bytes > 0 && is->max_coll_bytes <= NCCL_MAX_NET_BYTES,
		"%s: maxCollBytes %zu", is->name, is->max_coll_bytes);
	REQUIRE(version < 11 ||
			(is->max_multi_request_size >= 0 && is->max_multi_request_size < 0x1000),
		"%s: maxMultiRequestSize %d", is->name, is->max_multi_request_size);
	REQUIRE(is->rail >= -1 && is->plane >= -1, "%s: railId %d, planeId %d", is->name, is->rail,
		is->plane);
}

/* The newest table's properties of the same device; older ones lack some. */
static void compare_properties(
	const struct nccl_properties_v12 *is, const struct nccl_properties_v12 *newest, int version)
{
	REQUIRE(strcmp(is->name, newest->name) == 0, "%s, but %s by the newest table", is->name,
		newest->name);
	REQUIRE(!is->pci_path == !newest->pci_path &&
			(!is->pci_path || strcmp(is->pci_path, newest->pci_path) == 0),
		"%s: another pciPath than by the newest table", is->name);
#define SAME(field, what)                                                                      \
	REQUIRE(is->field == newest->field, "%s: " what " %lld, but %lld by the newest table", \
		is->name, (long long)is->field, (long long)newest->field)
	SAME(guid, "guid");
	SAME(pointers, "ptrSupport");
	SAME(speed_mbps, "speed");
	SAME(port, "port");
	SAME(latency_us, "latency");
	SAME(max_comms, "maxComms");
	SAME(max_recvs, "maxRecvs");
	if (version >= 8)
		SAME(registration_is_global, "regIsGlobal");
	if (version < 9)
		return;
	SAME(force_flush, "forceFlush");
	SAME(virtual_device.n_devices, "devices");
	SAME(virtual_device.devices[0], "first device");
	SAME(max_p2p_bytes, "maxP2pBytes");
	SAME(max_coll_bytes, "maxCollBytes");
	if (version >= 11)
		SAME(max_multi_request_size, "maxMultiRequestSize");
#undef SAME
}

static void compare_tables(struct side *side, const struct nccl_properties_v12 *all, int n)
{
	struct plugin newest = { 0 };
	struct nccl_properties_v12 to;
	const char *error = plugin_load(&newest, side->setup->path, 0);
	void *context;

	REQUIRE(!error, "%s: %s", side->setup->path, error);
	MUST(plugin_init(&newest, &context, harness_log, harness_profiler));
	for (int i = 0; i < n; i++) {
		MUST(plugin_properties(&newest, i, &to));
		compare_properties(&all[i], &to, side->net->version);
	}
	MUST(plugin_finalize(&newest, context));
	plugin_close(&newest);
}

/* The documented values of the first device. */
static void check_expected(const struct side *side, const struct nccl_properties_v12 *is)
{
	const struct {
		const char *name;
		double value;
		int since; /* version of the table */
	} all[] = { { "speed", is->speed_mbps, 6 }, { "latency", (double)is->latency_us, 6 },
		{ "maxComms", is->max_comms, 6 }, { "maxRecvs", is->max_recvs, 6 },
		{ "regIsGlobal", is->registration_is_global, 8 } };

	for (unsigned int i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		const char *wanted = expected(side, all[i].name);

		if (side->net->version < all[i].since)
			continue;
		REQUIRE(!wanted || strtod(wanted, NULL) == all[i].value, "%s: %s %g, not %s",
			is->name, all[i].name, all[i].value, wanted);
	}
}

static void properties(struct side *side)
{
	struct nccl_properties_v12 all[64];
	struct plugin net = { 0 };
	int n = 0;

	side_open(side, &net);
	MUST(net.devices(&n));
	REQUIRE(n <= 64, "%d devices", n);
	for (int i = 0; i < n; i++) {
		MUST(plugin_properties(&net, i, &all[i]));
		check_properties(&all[i], i, net.version);
		REQUIRE(all[i].virtual_device.n_devices == 1 &&
				all[i].virtual_device.devices[0] == i,
			"%s: a plain device that is made of %d, the first being %d", all[i].name,
			all[i].virtual_device.n_devices, all[i].virtual_device.devices[0]);
		/* No known fabric numbers its rails; to NCCL 0 would be a number. */
		REQUIRE(all[i].rail == -1 && all[i].plane == -1, "%s: railId %d, planeId %d",
			all[i].name, all[i].rail, all[i].plane);
		for (int j = 0; j < i; j++)
			REQUIRE(strcmp(all[i].name, all[j].name) != 0,
				"devices %d and %d are both %s", j, i, all[i].name);
	}
	check_expected(side, &all[0]);
	compare_tables(side, all, n);
	side_close(side);
	plugin_close(&net);
}

static void bad_device(struct side *side)
{
	uint64_t handle[NCCL_HANDLE_BYTES / 8] = { 0 };
	struct nccl_properties_v12 to;
	struct plugin net = { 0 };
	void *comm = NULL;
	int n = 0;
	int bad[2];

	side_open(side, &net);
	MUST(net.devices(&n));
	bad[0] = -1;
	bad[1] = n;
	for (unsigned int i = 0; i < 2; i++) {
		REQUIRE(plugin_properties(&net, bad[i], &to) != NCCL_SUCCESS,
			"properties of device %d of %d", bad[i], n);
		REQUIRE(plugin_listen(&net, side->context, bad[i], handle, &comm) != NCCL_SUCCESS,
			"listen on device %d of %d", bad[i], n);
	}
	side_close(side);
	plugin_close(&net);
}

static void self(struct side *side)
{
	static const size_t sizes[] = { 0, 1, 4096, 131072, 1 << 20 };
	struct plugin net = { 0 };
	void *send, *recv;

	side_open(side, &net);
	self_connect(side, &send, &recv);
	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		self_transfer(side, send, recv, sizes[i]);
	MUST(plugin_close_send(&net, send));
	MUST(plugin_close_recv(&net, recv));
	side_close(side);
	plugin_close(&net);
}

/* Nobody connects for a while: accept must return each time. */
static void accept_first(struct side *side)
{
	uint64_t handle[NCCL_HANDLE_BYTES / 8] = { 0 };
	struct plugin net = { 0 };
	void *listener = NULL, *send = NULL, *recv = NULL;

	side_open(side, &net);
	MUST(plugin_listen(&net, side->context, side->dev, handle, &listener));
	for (unsigned int i = 0; i < 200; i++) {
		MUST(plugin_accept(&net, listener, &recv));
		REQUIRE(!recv, "accept gave a comm, and nobody connects");
	}
	while (!send || !recv) {
		if (!send)
			MUST(plugin_connect(&net, side->context, side->dev, handle, &send));
		if (!recv)
			MUST(plugin_accept(&net, listener, &recv));
	}
	MUST(plugin_close_listen(&net, listener));
	self_transfer(side, send, recv, 100000);
	MUST(plugin_close_send(&net, send));
	MUST(plugin_close_recv(&net, recv));
	side_close(side);
	plugin_close(&net);
}

/* Eight channels whose connects and accepts are in different orders, a call each in turn. */
static void interleaved(struct side *side)
{
	uint64_t handles[MANY][NCCL_HANDLE_BYTES / 8] = { 0 };
	void *listeners[MANY] = { 0 }, *sends[MANY] = { 0 }, *recvs[MANY] = { 0 };
	struct plugin net = { 0 };
	unsigned int open = 0;

	side_open(side, &net);
	for (unsigned int i = 0; i < MANY; i++)
		MUST(plugin_listen(&net, side->context, side->dev, handles[i], &listeners[i]));
	while (open < 2 * MANY) {
		open = 0;
		for (unsigned int i = 0; i < MANY; i++) {
			unsigned int j = (i * 3 + 1) % MANY;

			if (!sends[j])
				MUST(plugin_connect(
					&net, side->context, side->dev, handles[j], &sends[j]));
			if (!recvs[i])
				MUST(plugin_accept(&net, listeners[i], &recvs[i]));
			open += !!sends[j] + !!recvs[i];
		}
	}
	for (unsigned int i = 0; i < MANY; i++) {
		MUST(plugin_close_listen(&net, listeners[i]));
		self_transfer(side, sends[i], recvs[i], 1000 + i);
	}
	for (unsigned int i = 0; i < MANY; i++) {
		MUST(plugin_close_send(&net, sends[i]));
		MUST(plugin_close_recv(&net, recvs[MANY - 1 - i]));
	}
	side_close(side);
	plugin_close(&net);
}

/* The remains of an aborted communicator: half a connection, and connects to nobody. */
static void cancelled(struct side *side)
{
	uint64_t handle[NCCL_HANDLE_BYTES / 8] = { 0 };
	struct plugin net = { 0 };
	void *listener = NULL, *send = NULL, *recv = NULL;
	uint64_t until_ns;

	side_open(side, &net);
	MUST(plugin_listen(&net, side->context, side->dev, handle, &listener));
	MUST(plugin_close_listen(&net, listener));

	memset(handle, 0, sizeof(handle));
	MUST(plugin_listen(&net, side->context, side->dev, handle, &listener));
	MUST(plugin_connect(&net, side->context, side->dev, handle, &send));
	MUST(plugin_accept(&net, listener, &recv));
	MUST(plugin_close_listen(&net, listener));
	if (recv)
		MUST(plugin_close_recv(&net, recv));
	/* The listener is gone: an error, or no comm, but no wait. */
	until_ns = now_ns() + 300000000;
	while (!send && now_ns() < until_ns)
		if (plugin_connect(&net, side->context, side->dev, handle, &send))
			break;
	if (send)
		MUST(plugin_close_send(&net, send));

	self_try(side, 4096);
	side_close(side);
	plugin_close(&net);
}

/* An invalid handle: an error, or never a comm; no crash. */
static void bad_handle(struct side *side)
{
	uint64_t handle[NCCL_HANDLE_BYTES / 8];
	struct plugin net = { 0 };
	uint64_t until_ns;
	void *comm = NULL;

	side_open(side, &net);
	for (unsigned int i = 0; i < 3; i++) {
		memset(handle, i == 0 ? 0 : 0xa5, sizeof(handle));
		/* The second half is where a plugin may keep its own state. */
		memset(handle + NCCL_HANDLE_BYTES / 16, 0, sizeof(handle) / 2);
		until_ns = now_ns() + 20000000;
		while (now_ns() < until_ns)
			if (plugin_connect(&net, side->context, side->dev, handle, &comm))
				break;
		REQUIRE(!comm, "connect made a comm of a handle that nobody gave");
	}
	side_close(side);
	plugin_close(&net);
}

/* A device that NCCL fused before it closed the plugin is no device of the next one. */
static void reload(struct side *side)
{
	int before = 0;

	for (unsigned int i = 0; i < 3; i++) {
		struct plugin net = { 0 };
		void *send, *recv;
		int n, fused;

		side_open(side, &net);
		MUST(net.devices(&n));
		REQUIRE(!i || n == before, "%d devices, and %d when it was loaded before", n,
			before);
		before = n;
		if (n > 1 && plugin_has_virtual(&net))
			MUST(plugin_make_virtual(&net, &fused, (const int[]){ 0, 1 }, 2));
		self_connect(side, &send, &recv);
		self_transfer(side, send, recv, 70000);
		MUST(plugin_close_send(&net, send));
		MUST(plugin_close_recv(&net, recv));
		side_close(side);
		plugin_close(&net);
	}
}

/* NCCL 2.28.3 to 2.29.7 forgets NCCL_NET_PLUGIN when its last communicator ends, and opens the next
 * one's network by the default name (src/plugin/net.cc, v2.28.9; issue 1978). */
static void forgotten(struct side *side)
{
	struct plugin net = { 0 };
	struct setup later = *side->setup;

	side_open(side, &net);
	side_close(side);
	plugin_close(&net);
	if (!plugin_stays(side->setup->path))
		skip("it is unloaded");
	later.path = "libnccl-net.so";
	side->setup = &later;
	side_open(side, &net);
	self_try(side, 70000);
	side_close(side);
	plugin_close(&net);
}

static void registration(struct side *side)
{
	static const size_t offsets[] = { 0, 1, 4095, 4096, 100001 };
	struct slots slots;
	struct plugin net = { 0 };
	void *send, *recv, *mrs[2][5], *bad = NULL;

	side_open(side, &net);
	self_connect(side, &send, &recv);
	slots_create(&slots, 1, 1 << 20);
	/* Overlapping registrations, on both comms, of odd places and sizes. They end in another
	 * order. */
	for (unsigned int i = 0; i < 5; i++) {
		MUST(plugin_reg(&net, send, slots.memory + offsets[i], 1 + 50000 * i,
			NCCL_POINTER_HOST, &mrs[0][i]));
		MUST(plugin_reg(&net, recv, slots.memory + offsets[i], 1 + 50000 * i,
			NCCL_POINTER_HOST, &mrs[1][i]));
	}
	for (unsigned int i = 0; i < 5; i++) {
		MUST(net.dereg_mr(send, mrs[0][i]));
		MUST(net.dereg_mr(recv, mrs[1][4 - i]));
		self_transfer(side, send, recv, 50000);
	}
	if (!(side->properties.pointers & NCCL_POINTER_CUDA))
		REQUIRE(plugin_reg(&net, send, slots.memory, 4096, NCCL_POINTER_CUDA, &bad) !=
				NCCL_SUCCESS,
			"registered memory of a GPU, which ptrSupport denies");
	if (net.reg_mr_dmabuf && !(side->properties.pointers & NCCL_POINTER_DMABUF))
		REQUIRE(net.reg_mr_dmabuf(send, slots.memory, 4096, NCCL_POINTER_CUDA, 0, -1,
				&bad) != NCCL_SUCCESS,
			"registered a DMA-BUF, which ptrSupport denies");
	MUST(plugin_close_send(&net, send));
	MUST(plugin_close_recv(&net, recv));
	slots_destroy(&slots);
	side_close(side);
	plugin_close(&net);
}

static void virtual_device(struct side *side)
{
	struct nccl_properties_v12 to;
	struct plugin net = { 0 };
	int members[2] = { 0, 1 };
	void *send, *recv;
	int dev = -1;
	int n = 0;

	side_open(side, &net);
	MUST(net.devices(&n));
	if (!plugin_has_virtual(&net))
		skip("no makeVDevice");
	if (n < 2)
		skip("one device: nothing to make one of");
	MUST(plugin_make_virtual(&net, &dev, members, 2));
	REQUIRE(dev >= n, "makeVDevice gave device %d of %d", dev, n);
	MUST(plugin_properties(&net, dev, &to));
	check_properties(&to, dev, net.version);
	REQUIRE(to.virtual_device.n_devices == 2, "a device of two is made of %d",
		to.virtual_device.n_devices);
	REQUIRE(to.virtual_device.devices[0] == 0 && to.virtual_device.devices[1] == 1,
		"devices 0 and 1 became one of %d and %d", to.virtual_device.devices[0],
		to.virtual_device.devices[1]);
	side->dev = dev;
	self_connect(side, &send, &recv);
	self_transfer(side, send, recv, 3 << 20);
	MUST(plugin_close_send(&net, send));
	MUST(plugin_close_recv(&net, recv));
	side_close(side);
	plugin_close(&net);
}

static void attributes(struct side *side)
{
	struct nccl_net_attributes hints;
	struct plugin net = { 0 };

	side_open(side, &net);
	if (!plugin_has_attributes(&net))
		skip("no setNetAttr");
	memset(&hints, 0xff, sizeof(hints));
	MUST(plugin_set_attributes(&net, side->context, &hints));
	hints.send = (struct nccl_comm_attributes){ 8, 1, 4, 1 };
	hints.recv = hints.send;
	hints.op = hints.algorithm = hints.protocol = 1;
	MUST(plugin_set_attributes(&net, side->context, &hints));
	self_try(side, 4096);
	side_close(side);
	plugin_close(&net);
}

const struct row setup_rows[] = {
	{ .name = "load", .what = "dlopen, table, init, finalize", .solo = load },
	{ .name = "init-twice", .what = "two communicators, one ends", .solo = init_twice },
	{ .name = "properties", .what = "as NCCL checks them", .solo = properties },
	{ .name = "bad-device", .what = "devices that there are not", .solo = bad_device },
	{ .name = "self",
		.what = "connection with itself in one thread",
		.solo = self,
		.flags = ROW_GPU },
	{ .name = "accept-first", .what = "accept when nobody connects", .solo = accept_first },
	{ .name = "interleaved", .what = "eight connections, interleaved", .solo = interleaved },
	{ .name = "cancelled", .what = "connections given up half-way", .solo = cancelled },
	{ .name = "bad-handle", .what = "handles that nobody gave", .solo = bad_handle },
	{ .name = "forgotten",
		.what = "closed, and opened by the default name",
		.solo = forgotten },
	{ .name = "reload", .what = "dlclose, dlopen, three times", .solo = reload },
	{ .name = "registration", .what = "regMr, overlapping and odd", .solo = registration },
	{ .name = "virtual", .what = "two devices made one", .solo = virtual_device },
	{ .name = "attributes", .what = "setNetAttr", .solo = attributes },
	{ .name = NULL },
};
