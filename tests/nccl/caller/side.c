/* SPDX-License-Identifier: BSD-3-Clause */
/* Both sides of a row: load, connect, exchange messages, close. See row.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/nccl/caller/cuda.h"
#include "tests/nccl/caller/row.h"

#define PATIENCE_NS 5000000000u
enum { MOMENT_US = 50000 };

struct report *report;
/* Two sides in one process write the report. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void write_report(const char *format, va_list arguments)
{
	pthread_mutex_lock(&lock);
	/* The first reason counts. */
	if (!report->text[0])
		vsnprintf(report->text, sizeof(report->text), format, arguments);
	pthread_mutex_unlock(&lock);
}

_Noreturn void fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	write_report(format, arguments);
	va_end(arguments);
	_exit(1);
}

_Noreturn void skip(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	write_report(format, arguments);
	va_end(arguments);
	_exit(77);
}

const char *result_name(int result)
{
	static const char *const names[] = { "success", "an unhandled CUDA error", "a system error",
		"an internal error", "invalid argument", "invalid usage", "a remote error" };

	if (result < 0 || (size_t)result >= sizeof(names) / sizeof(names[0]))
		return "an unknown result";
	return names[result];
}

void say_bytes(struct side *side, const void *data, size_t size)
{
	if (send(side->channel, data, size, MSG_NOSIGNAL) != (ssize_t)size)
		fail("the other side has gone");
}

void hear_bytes(struct side *side, void *data, size_t size)
{
	ssize_t n;

	do
		n = recv(side->channel, data, size, MSG_WAITALL);
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)size)
		fail("the other side has gone");
}

void say(struct side *side, char what)
{
	say_bytes(side, &what, 1);
}

void hear(struct side *side, char what)
{
	char heard;

	hear_bytes(side, &heard, 1);
	REQUIRE(heard == what, "the other side is at '%c', not at '%c'", heard, what);
}

bool has_news(const struct side *side)
{
	struct pollfd news = { .fd = side->channel, .events = POLLIN };

	return poll(&news, 1, 0) > 0;
}

/* As `ip netns exec` does: sysfs shows the interfaces of the namespace it was mounted in. */
static int enter_namespace(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || setns(fd, CLONE_NEWNET))
		return -1;
	close(fd);
	if (unshare(CLONE_NEWNS) || mount("", "/", "none", MS_SLAVE | MS_REC, NULL))
		return -1;
	umount2("/sys", MNT_DETACH);
	return mount("sysfs", "/sys", "sysfs", 0, NULL);
}

void side_enter(const struct setup *setup, unsigned int index)
{
	char path[256];

	told_to(setup);
	plugin_traffic_class = setup->traffic_class;
	for (unsigned int i = 0; i < setup->n_settings[index]; i++)
		putenv((char *)(uintptr_t)setup->settings[index][i]);
	if (!setup->netns[index])
		return;
	snprintf(path, sizeof(path), "/run/netns/%s", setup->netns[index]);
	REQUIRE(enter_namespace(path) == 0, "cannot enter %s: %s", path, strerror(errno));
}

/* Fuses the first devices; the fused device is the last one. The other side may be in this process,
 * too. */
static int fuse(struct side *side)
{
	static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
	struct nccl_properties_v12 last;
	int members[NCCL_DEVS_PER_NIC_V12];
	int dev, n = 0;

	if (!plugin_has_virtual(side->net))
		skip("no makeVDevice");
	REQUIRE(side->setup->n_fused <= NCCL_DEVS_PER_NIC_V12, "too many to be fused");
	for (int i = 0; i < side->setup->n_fused; i++)
		members[i] = i;
	pthread_mutex_lock(&making);
	MUST(side->net->devices(&n));
	dev = n - 1;
	MUST(plugin_properties(side->net, dev, &last));
	if (last.virtual_device.n_devices == 1)
		MUST(plugin_make_virtual(side->net, &dev, members, side->setup->n_fused));
	pthread_mutex_unlock(&making);
	return dev;
}

void side_open(struct side *side, struct plugin *net)
{
	const struct setup *setup = side->setup;
	const char *error;
	int n = 0;

	if (!net->library) {
		error = plugin_load(net, setup->path, setup->version);
		REQUIRE(!error, "%s: %s", setup->path, error);
	}
	side->net = net;
	MUST(plugin_init(net, &side->context, harness_log, harness_profiler));
	MUST(net->devices(&n));
	REQUIRE(n > 0, "there are no devices");
	side->dev = setup->device[side->index];
	if (setup->n_fused && side->row && !side->row->solo)
		side->dev = fuse(side);
	MUST(net->devices(&n));
	REQUIRE(side->dev < n, "there is no device %d", side->dev);
	MUST(plugin_properties(net, side->dev, &side->properties));
	if (side->properties.device_type == NCCL_DEVICE_UNPACK)
		net->unpacks = true;
	pthread_mutex_lock(&lock);
	snprintf(report->plugin, sizeof(report->plugin), "%s", net->name);
	report->version = net->version;
	pthread_mutex_unlock(&lock);
	if (side->row && side->row->flags & ROW_GROUPS && side->properties.max_recvs < 2)
		skip("no grouped receives (maxRecvs 1)");
	if (side->row && net->version < side->row->min_version)
		skip("version %d has no such thing", net->version);
}

void side_close(struct side *side)
{
	uint64_t slowest_ns;
	enum plugin_call call = plugin_slowest(side->net, &slowest_ns);

	MUST(plugin_finalize(side->net, side->context));
	REQUIRE(slowest_ns / 1000000 <= side->setup->slow_ms, "%s blocked for %u ms",
		plugin_call_name[call], (unsigned int)(slowest_ns / 1000000));
}

static void accept_one(struct side *side, unsigned int index)
{
	union {
		char bytes[NCCL_HANDLE_BYTES + 64];
		uint64_t align;
	} handle;
	void *listen_comm = NULL;

	memset(&handle, 0x5a, sizeof(handle));
	memset(&handle, 0, NCCL_HANDLE_BYTES);
	MUST(plugin_listen(side->net, side->context, side->dev, &handle, &listen_comm));
	REQUIRE(listen_comm, "listen gave no comm");
	for (unsigned int i = NCCL_HANDLE_BYTES; i < sizeof(handle); i++)
		REQUIRE(handle.bytes[i] == 0x5a, "listen wrote beyond the handle's 128 bytes");
	say_bytes(side, &handle, NCCL_HANDLE_BYTES);
	while (!side->comms[index]) {
		MUST(plugin_accept(side->net, listen_comm, &side->comms[index]));
		sched_yield();
	}
	MUST(plugin_close_listen(side->net, listen_comm));
}

static void connect_one(struct side *side, unsigned int index)
{
	union {
		char bytes[NCCL_HANDLE_BYTES];
		uint64_t align;
	} handle;

	hear_bytes(side, &handle, sizeof(handle));
	while (!side->comms[index]) {
		MUST(plugin_connect(
			side->net, side->context, side->dev, &handle, &side->comms[index]));
		sched_yield();
	}
}

void side_connect(struct side *side, unsigned int n)
{
	for (side->n_comms = 0; side->n_comms < n; side->n_comms++) {
		side->comms[side->n_comms] = NULL;
		if (side->index == 0)
			connect_one(side, side->n_comms);
		else
			accept_one(side, side->n_comms);
	}
}

void side_disconnect(struct side *side)
{
	for (unsigned int i = 0; i < side->n_comms; i++) {
		if (!side->comms[i])
			continue;
		if (side->index == 0)
			MUST(plugin_close_send(side->net, side->comms[i]));
		else
			MUST(plugin_close_recv(side->net, side->comms[i]));
	}
	side->n_comms = 0;
}

static void *progress(void *argument)
{
	struct side *side = argument;

	if (side->index == 0)
		side->row->send(side);
	else
		side->row->recv(side);
	side->is_finished = true;
	return NULL;
}

static unsigned int count_threads(void)
{
	DIR *folder = opendir("/proc/self/task");
	unsigned int n = 0;

	REQUIRE(folder, "there is no /proc/self/task");
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

/* A thread that still writes there ends this process. Threads to which the close left work are
 * awaited. Others cannot be awaited and get a moment. */
static void unmap_left(struct side *side, unsigned int n_threads)
{
	uint64_t until_ns = now_ns() + PATIENCE_NS;

	slots_destroy(side->left);
	free(side->left);
	while (count_threads() > n_threads && now_ns() < until_ns)
		sched_yield();
	usleep(MOMENT_US);
}

void side_run(struct side *side, struct plugin *net)
{
	unsigned int n_threads = 0;
	struct plugin own = { 0 };
	pthread_t thread;

	side_open(side, net ? net : &own);
	side_connect(side, side->row->n_comms ? side->row->n_comms : 1);
	if (side->row->flags & ROW_NO_BARRIER) {
		/* A side leaves only after both sides have the connection. */
		say(side, 'c');
		hear(side, 'c');
	}
	REQUIRE(pthread_create(&thread, NULL, progress, side) == 0, "no thread");
	if (side->row->service)
		side->row->service(side);
	pthread_join(thread, NULL);
	if (!(side->row->flags & ROW_NO_BARRIER)) {
		say(side, 'e');
		hear(side, 'e');
	}
	if (side->left) {
		n_threads = count_threads();
		slots_deregister(side->left, side, side->comms[0]);
	}
	side_disconnect(side);
	if (side->left)
		unmap_left(side, n_threads);
	if (slots_are_on_gpu)
		cuda_check();
	side_close(side);
	if (!net)
		plugin_close(&own);
}

void await(struct side *side, void *request, int *sizes, const char *what)
{
	int done = 0;

	while (!done) {
		int result = plugin_test(side->net, request, &done, sizes);

		REQUIRE(result == NCCL_SUCCESS, "test of %s gave %s", what, result_name(result));
		if (!done)
			sched_yield();
	}
}
