/* SPDX-License-Identifier: BSD-3-Clause */
/* The socket plugin's devices, connections and registrations. See socket_net.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/nccl/socket/socket_defects.h"
#include "tests/nccl/socket/socket_net.h"

#define MR_MAGIC 0x6d72u

struct socket_mr {
	_Atomic unsigned int users; /* requests; one more until it is deregistered */
	_Atomic bool is_gone;
	uint32_t magic;
	uint8_t *data;
	size_t size;
};

nccl_logger socket_log;
nccl_profiler socket_profiler;
enum socket_defect socket_defect;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct socket_comm *all_comms; /* under `lock` */
static struct socket_mr *largest_mr;  /* under `lock` */
static struct socket_device devices[SOCKET_MAX_DEVICES];
static int n_devices;
static unsigned int n_threads;
static unsigned int n_sockets;

#define WARN(...) socket_log(NCCL_LOG_WARN, ~0ul, __FILE__, __LINE__, __VA_ARGS__)
#define INFO(...) socket_log(NCCL_LOG_INFO, ~0ul, __FILE__, __LINE__, __VA_ARGS__)

bool socket_read_defect(void)
{
#define SOCKET_DEFECT_NAME(name, text) text,
	static const char *const names[] = { SOCKET_DEFECTS(SOCKET_DEFECT_NAME) };
	const char *wanted = getenv("SOCKET_NET_DEFECT");

	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(wanted ? wanted : "none", names[i]) == 0) {
			socket_defect = (enum socket_defect)i;
			return true;
		}
	}
	return false;
}

int socket_max_recvs(void)
{
	const char *text = getenv("SOCKET_NET_RECVS");
	int n = text ? atoi(text) : 1;

	return n < 1 || n > NCCL_MAX_RECVS ? 1 : n;
}

static void describe(struct socket_device *device, const struct ifaddrs *interface)
{
	char path[PATH_MAX];
	char real[PATH_MAX];
	FILE *file;

	snprintf(device->name, sizeof(device->name), "%s", interface->ifa_name);
	memcpy(&device->address, interface->ifa_addr, sizeof(device->address));
	snprintf(path, sizeof(path), "/sys/class/net/%s/device", device->name);
	if (realpath(path, real) && strlen(real) < sizeof(device->pci_path))
		memcpy(device->pci_path, real, strlen(real) + 1);
	device->speed_mbps = 10000;
	snprintf(path, sizeof(path), "/sys/class/net/%s/speed", device->name);
	file = fopen(path, "re");
	if (!file)
		return;
	if (fscanf(file, "%d", &device->speed_mbps) != 1 || device->speed_mbps <= 0)
		device->speed_mbps = 10000;
	fclose(file);
}

/* Interfaces whose names begin as NCCL_SOCKET_IFNAME says; otherwise all but the loopback,
 * otherwise that. */
static void find_devices(void)
{
	const char *prefix = getenv("NCCL_SOCKET_IFNAME");
	struct ifaddrs *all;

	n_devices = 0;
	if (getifaddrs(&all))
		return;
	for (int loopback = 0; loopback < 2 && !n_devices; loopback++) {
		for (struct ifaddrs *i = all; i && n_devices < SOCKET_MAX_DEVICES;
			i = i->ifa_next) {
			if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET ||
				!(i->ifa_flags & IFF_UP))
				continue;
			if (prefix ? strncmp(i->ifa_name, prefix, strlen(prefix)) != 0
				   : !!(i->ifa_flags & IFF_LOOPBACK) != loopback)
				continue;
			describe(&devices[n_devices++], i);
		}
	}
	freeifaddrs(all);
	if (has_defect(DEFECT_DUPLICATE_NAMES) && n_devices == 1)
		devices[n_devices++] = devices[0];
}

static unsigned int number(const char *name, unsigned int otherwise, unsigned int most)
{
	const char *text = getenv(name);
	int value = text ? atoi(text) : (int)otherwise;

	if (value < 0)
		return otherwise;
	return (unsigned int)value < most ? (unsigned int)value : most;
}

int socket_init(nccl_logger log, nccl_profiler profiler)
{
	int result = NCCL_SUCCESS;

	pthread_mutex_lock(&lock);
	/* The first call of all: its settings are read without the lock from then on. */
	if (n_devices == 0) {
		socket_log = log;
		socket_profiler = profiler;
		if (!socket_read_defect()) {
			WARN("NET/TestSocket: unknown SOCKET_NET_DEFECT");
			result = NCCL_INVALID_USAGE;
		} else if (has_defect(DEFECT_NOT_AGAIN) && getenv("SOCKET_NET_WAS_HERE")) {
			result = NCCL_SYSTEM_ERROR;
		} else {
			setenv("SOCKET_NET_WAS_HERE", "1", 1);
			find_devices();
			n_threads = number("NCCL_SOCKET_NTHREADS", 0, SOCKET_MAX_THREADS);
			n_sockets = n_threads *
				number("NCCL_NSOCKS_PERTHREAD", 1, SOCKET_MAX_SOCKETS);
			if (n_sockets > SOCKET_MAX_SOCKETS)
				n_sockets = n_threads * (SOCKET_MAX_SOCKETS / n_threads);
			INFO("NET/TestSocket: %d interfaces, %u threads, %u sockets", n_devices,
				n_threads, n_sockets);
		}
	}
	pthread_mutex_unlock(&lock);
	return result;
}

int socket_devices(int *n)
{
	*n = n_devices;
	return NCCL_SUCCESS;
}

int socket_properties(int dev, struct nccl_properties_v12 *to)
{
	memset(to, 0, sizeof(*to));
	if (has_defect(DEFECT_ANY_DEVICE))
		dev = 0;
	if (dev < 0 || dev >= n_devices)
		return NCCL_INVALID_ARGUMENT;
	to->name = devices[dev].name;
	to->pci_path = devices[dev].pci_path[0] ? devices[dev].pci_path : NULL;
	to->guid = (uint64_t)dev;
	to->pointers = NCCL_POINTER_HOST;
	to->speed_mbps = devices[dev].speed_mbps;
	to->max_comms = 65536;
	to->max_recvs = socket_max_recvs();
	to->registration_is_global = 1;
	if (has_defect(DEFECT_RAIL_ZERO))
		return NCCL_SUCCESS;
	to->virtual_device.n_devices = 1;
	to->virtual_device.devices[0] = dev;
	to->max_p2p_bytes = NCCL_MAX_NET_BYTES_OLD;
	to->max_coll_bytes = NCCL_MAX_NET_BYTES_OLD;
	to->max_multi_request_size = 1;
	to->rail = -1;
	to->plane = -1;
	return NCCL_SUCCESS;
}

static struct socket_comm *new_comm(void)
{
	struct socket_comm *comm = calloc(1, sizeof(*comm));

	if (!comm)
		return NULL;
	comm->listen_fd = -1;
	comm->control_fd = -1;
	comm->greeting_fd = -1;
	for (unsigned int i = 0; i < SOCKET_MAX_SOCKETS; i++)
		comm->fds[i] = -1;
	pthread_mutex_lock(&lock);
	comm->next = all_comms;
	all_comms = comm;
	pthread_mutex_unlock(&lock);
	return comm;
}

static void free_comm(struct socket_comm *comm)
{
	socket_stop_workers(comm);
	for (unsigned int i = 0; i < SOCKET_MAX_SOCKETS; i++)
		if (comm->fds[i] >= 0)
			close(comm->fds[i]);
	if (comm->control_fd >= 0 && (comm->is_send || !has_defect(DEFECT_LEAKS_FILES)))
		close(comm->control_fd);
	if (comm->greeting_fd >= 0)
		close(comm->greeting_fd);
	if (comm->listen_fd >= 0)
		close(comm->listen_fd);
	for (unsigned int i = 0; i < SOCKET_MAX_REQUESTS; i++) {
		struct socket_request *request = &comm->requests[i];

		free(request->bounce);
		for (unsigned int part = 0; request->is_used && part < request->n_parts; part++)
			socket_drop(request->parts[part].mr);
	}
	free(comm);
}

int socket_listen(int dev, void *opaque, void **listen_comm)
{
	struct socket_handle *handle = opaque;
	socklen_t length = sizeof(handle->address);
	struct socket_comm *comm;

	*listen_comm = NULL;
	if (dev < 0 || dev >= n_devices)
		return NCCL_INVALID_ARGUMENT;
	comm = new_comm();
	if (!comm)
		return NCCL_SYSTEM_ERROR;
	memset(handle, 0, has_defect(DEFECT_HUGE_HANDLE) ? NCCL_HANDLE_BYTES + 1 : sizeof(*handle));
	handle->magic = SOCKET_MAGIC;
	handle->n_sockets = n_sockets;
	handle->address = devices[dev].address;
	handle->address.sin_port = 0;
	comm->is_listener = true;
	comm->n_threads = n_threads;
	comm->n_sockets = n_sockets;
	comm->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (comm->listen_fd < 0 ||
		bind(comm->listen_fd, (struct sockaddr *)&handle->address, length) ||
		listen(comm->listen_fd, SOCKET_MAX_SOCKETS + 1) ||
		getsockname(comm->listen_fd, (struct sockaddr *)&handle->address, &length)) {
		WARN("NET/TestSocket: cannot listen: %m");
		socket_close(comm);
		return NCCL_SYSTEM_ERROR;
	}
	*listen_comm = comm;
	return NCCL_SUCCESS;
}

static int *socket_of(struct socket_comm *comm, uint32_t index)
{
	return index < comm->n_sockets ? &comm->fds[index] : &comm->control_fd;
}

/* Advances one connection. Returns 1 when it is made and has identified itself, 0: not yet, or
 * -1. */
static int greet(struct socket_comm *comm, const struct socket_handle *handle)
{
	uint32_t greeting[2] = { SOCKET_MAGIC, comm->n_greeted };
	struct pollfd ready = { .events = POLLOUT };
	socklen_t length = sizeof(int);
	int error = 0;
	int one = 1;

	if (comm->greeting_fd < 0) {
		comm->greeting_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (comm->greeting_fd < 0)
			return -1;
		setsockopt(comm->greeting_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (connect(comm->greeting_fd, (const struct sockaddr *)&handle->address,
			    sizeof(handle->address)) &&
			errno != EINPROGRESS)
			return -1;
	}
	ready.fd = comm->greeting_fd;
	if (poll(&ready, 1, 0) <= 0)
		return 0;
	if (getsockopt(comm->greeting_fd, SOL_SOCKET, SO_ERROR, &error, &length) || error) {
		errno = error;
		return -1;
	}
	/* An empty socket buffer always has room for eight bytes. */
	if (send(comm->greeting_fd, greeting, sizeof(greeting), MSG_NOSIGNAL) != sizeof(greeting))
		return -1;
	*socket_of(comm, comm->n_greeted++) = comm->greeting_fd;
	comm->greeting_fd = -1;
	return 1;
}

int socket_connect(int dev, void *opaque, void **send_comm, struct nccl_device_handle **device)
{
	struct socket_handle *handle = opaque;
	struct socket_comm *comm;
	int made = 1;

	*send_comm = NULL;
	if (has_defect(DEFECT_TRUSTS_HANDLES) && handle->magic != SOCKET_MAGIC) {
		*send_comm = new_comm();
		return NCCL_SUCCESS;
	}
	if (dev < 0 || dev >= n_devices || handle->magic != SOCKET_MAGIC ||
		handle->n_sockets > SOCKET_MAX_SOCKETS)
		return NCCL_INVALID_ARGUMENT;
	if (!handle->pending) {
		comm = new_comm();
		if (!comm)
			return NCCL_SYSTEM_ERROR;
		comm->is_send = true;
		comm->n_sockets = handle->n_sockets;
		comm->n_threads = comm->n_sockets ? n_threads : 0;
		handle->pending = comm;
	}
	comm = handle->pending;
	while (made > 0 && comm->n_greeted <= comm->n_sockets)
		made = greet(comm, handle);
	if (made == 0)
		return NCCL_SUCCESS;
	handle->pending = NULL;
	if (made < 0) {
		WARN("NET/TestSocket: cannot connect: %m");
		socket_close(comm);
		return NCCL_SYSTEM_ERROR;
	}
	*send_comm = comm;
	if (device)
		*device = NULL;
	return NCCL_SUCCESS;
}

/* Advances one connection, as greet() does. */
static int be_greeted(struct socket_comm *listener, struct socket_comm *comm)
{
	uint32_t greeting[2];
	ssize_t size;
	int one = 1;
	int *fd;

	if (comm->greeting_fd < 0) {
		comm->greeting_fd = accept4(
			listener->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (comm->greeting_fd < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -1;
		setsockopt(comm->greeting_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	}
	size = recv(comm->greeting_fd, greeting, sizeof(greeting), 0);
	if (size < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (size != sizeof(greeting) || greeting[0] != SOCKET_MAGIC ||
		greeting[1] > comm->n_sockets)
		return -1;
	fd = socket_of(comm, greeting[1]);
	if (*fd >= 0)
		return -1;
	*fd = comm->greeting_fd;
	comm->greeting_fd = -1;
	comm->n_greeted++;
	return 1;
}

int socket_accept(void *listen_comm, void **recv_comm, struct nccl_device_handle **device)
{
	struct socket_comm *listener = listen_comm;
	struct pollfd ready = { .fd = listener->listen_fd, .events = POLLIN };
	struct socket_comm *comm = listener->pending;
	int made = 1;

	*recv_comm = NULL;
	if (has_defect(DEFECT_ACCEPT_BLOCKS))
		poll(&ready, 1, 2500);
	if (!comm) {
		comm = new_comm();
		if (!comm)
			return NCCL_SYSTEM_ERROR;
		comm->n_sockets = listener->n_sockets;
		comm->n_threads = listener->n_threads;
		listener->pending = comm;
	}
	while (made > 0 && comm->n_greeted <= comm->n_sockets)
		made = be_greeted(listener, comm);
	if (made == 0)
		return NCCL_SUCCESS;
	listener->pending = NULL;
	if (made < 0) {
		WARN("NET/TestSocket: cannot accept: %m");
		socket_close(comm);
		return NCCL_SYSTEM_ERROR;
	}
	listener->child = comm;
	*recv_comm = comm;
	if (device)
		*device = NULL;
	return NCCL_SUCCESS;
}

struct late_write {
	uint8_t *to;
};

static void *write_late(void *argument)
{
	struct late_write *late = argument;

	usleep(50000);
	*late->to = 0xff;
	free(late);
	return NULL;
}

static void write_after_close(struct socket_comm *comm)
{
	struct late_write *late = malloc(sizeof(*late));
	pthread_t thread;

	for (unsigned int i = 0; late && i < SOCKET_MAX_REQUESTS; i++) {
		if (!comm->requests[i].is_used || comm->is_send)
			continue;
		late->to = comm->requests[i].parts[0].data;
		if (pthread_create(&thread, NULL, write_late, late) == 0)
			pthread_detach(thread);
		return;
	}
	free(late);
}

int socket_close(void *opaque)
{
	struct socket_comm *comm = opaque;
	struct socket_comm **link;

	if (!comm)
		return NCCL_SUCCESS;
	if (has_defect(DEFECT_CLOSE_BLOCKS))
		sleep(3);
	if (has_defect(DEFECT_WRITES_AFTER_CLOSE))
		write_after_close(comm);
	if (has_defect(DEFECT_NEEDS_LISTENER) && comm->is_listener && comm->child)
		shutdown(comm->child->control_fd, SHUT_RDWR);
	if (comm->pending)
		socket_close(comm->pending);
	pthread_mutex_lock(&lock);
	for (link = &all_comms; *link != comm; link = &(*link)->next)
		;
	*link = comm->next;
	pthread_mutex_unlock(&lock);
	free_comm(comm);
	return NCCL_SUCCESS;
}

/* Left by a cancelled connect or a careless application. */
__attribute__((destructor)) static void free_all(void)
{
	while (all_comms) {
		struct socket_comm *comm = all_comms;

		all_comms = comm->next;
		free_comm(comm);
	}
}

int socket_reg(void *comm, void *data, size_t size, int type, void **mhandle)
{
	struct socket_mr *mr;

	*mhandle = NULL;
	if (type != NCCL_POINTER_HOST && !has_defect(DEFECT_ANY_POINTER))
		return NCCL_INTERNAL_ERROR;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NCCL_SYSTEM_ERROR;
	mr->users = 1;
	mr->magic = MR_MAGIC;
	mr->data = data;
	mr->size = size;
	pthread_mutex_lock(&lock);
	if (!largest_mr || size > largest_mr->size)
		largest_mr = mr;
	pthread_mutex_unlock(&lock);
	*mhandle = mr;
	return NCCL_SUCCESS;
}

int socket_reg_dmabuf(
	void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mr)
{
	return NCCL_INTERNAL_ERROR;
}

int socket_dereg(void *comm, void *mhandle)
{
	struct socket_mr *mr = mhandle;

	pthread_mutex_lock(&lock);
	if (largest_mr && has_defect(DEFECT_WRONG_MR))
		largest_mr->magic = 0;
	if (largest_mr == mr)
		largest_mr = NULL;
	pthread_mutex_unlock(&lock);
	mr->is_gone = true;
	socket_drop(mr);
	return NCCL_SUCCESS;
}

void *socket_hold(void *mhandle)
{
	struct socket_mr *mr = mhandle;

	mr->users++;
	return mr;
}

void socket_drop(void *mhandle)
{
	struct socket_mr *mr = mhandle;

	if (--mr->users == 0)
		free(mr);
}

bool socket_is_gone(const void *mhandle)
{
	const struct socket_mr *mr = mhandle;

	return mr->is_gone && !has_defect(DEFECT_USES_GONE);
}

bool socket_covers(const void *mhandle, const void *data, size_t size)
{
	const struct socket_mr *mr = mhandle;
	const uint8_t *start = data;

	return mr && mr->magic == MR_MAGIC && start >= mr->data && size <= mr->size &&
		(size_t)(start - mr->data) <= mr->size - size;
}
