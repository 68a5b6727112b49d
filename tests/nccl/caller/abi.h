/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL's net plugin ABI, versions 6 to 12, as the caller sees it: the harness calls plugins by it,
 * and its own socket plugin implements it. Written from NCCL's interface and not from nccl/, which
 * has declarations of its own: so a mistake in one shows against the other. Order, types and sizes
 * are the contract; other people's code calls or fills every pointer here.
 */
#ifndef TESTS_NCCL_ABI_H
#define TESTS_NCCL_ABI_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum nccl_result {
	NCCL_SUCCESS = 0,
	NCCL_UNHANDLED_CUDA_ERROR = 1,
	NCCL_SYSTEM_ERROR = 2,
	NCCL_INTERNAL_ERROR = 3,
	NCCL_INVALID_ARGUMENT = 4,
	NCCL_INVALID_USAGE = 5,
	NCCL_REMOTE_ERROR = 6,
};

enum nccl_limits {
	NCCL_HANDLE_BYTES = 128,
	NCCL_MAX_REQUESTS = 32,
	NCCL_MAX_RECVS = 8,
	NCCL_DEVS_PER_NIC_V11 = 4,
	NCCL_DEVS_PER_NIC_V12 = 8,
	NCCL_OLDEST_VERSION = 6,
	NCCL_NEWEST_VERSION = 12,
};

enum nccl_pointer_type {
	NCCL_POINTER_HOST = 1,
	NCCL_POINTER_CUDA = 2,
	NCCL_POINTER_DMABUF = 4,
};

enum nccl_log_level {
	NCCL_LOG_VERSION = 1,
	NCCL_LOG_WARN = 2,
	NCCL_LOG_INFO = 3,
	NCCL_LOG_TRACE = 5,
};

enum nccl_profiler_call {
	NCCL_PROFILE_START,
	NCCL_PROFILE_STOP,
	NCCL_PROFILE_UPDATE,
	NCCL_PROFILE_UPDATE_AND_STOP,
};

/* The value of *request for irecv if completion may be left out: the data has flags of its own. */
#define NCCL_OPTIONAL_RECV_COMPLETION ((void *)0x1)
/* The largest message that NCCL sends, by version 9's properties and by older tables. */
#define NCCL_MAX_NET_BYTES     (1ull << 40)
#define NCCL_MAX_NET_BYTES_OLD (1ull << 30)

/* The id of an event is a kind of network, shifted by 16, and the version of `data`. The type is 1
 * in both: ncclProfilerNetIbDescr_v1_t (a queue pair's request) and ncclProfilerNetSockDescr_v1_t.
 * Profilers skip events of other networks. */
enum { NCCL_NET_TYPE_IB = 1, NCCL_NET_TYPE_SOCKET = 2 };

struct nccl_ib_event_v1 {
	uint8_t type;
	struct {
		int device;
		uint64_t wr_id;
		int opcode;
		int qp_num;
		size_t length;
	} qp;
};

struct nccl_socket_event_v1 {
	uint8_t type;
	struct {
		int fd;
		int op;
		size_t length;
	} socket;
};

typedef int (*nccl_profiler)(void **event, int call, void *parent, int64_t plugin, void *data);
typedef void (*nccl_logger)(
	int level, unsigned long flags, const char *file, int line, const char *format, ...);

struct nccl_device_handle {
	int device_type;
	int device_version;
	void *handle;
	size_t size;
	int needs_proxy_progress;
};
static_assert(sizeof(struct nccl_device_handle) == 32, "ncclNetDeviceHandle_v7_t");

/* The kernels' view of receives that they unpack: one of 16 slots, which connections take in
 * turn. */
enum {
	NCCL_DEVICE_UNPACK = 1,
	NCCL_DEVICE_UNPACK_VERSION = 0x7,
	NCCL_UNPACK_SLOTS = 16,
	NCCL_UNPACK_PIECES = 2048,
};

struct nccl_unpack_piece {
	uint32_t src; /* from the bounce buffer's start */
	uint32_t length;
	uint64_t dst; /* from that of the receive's memory */
};
static_assert(sizeof(struct nccl_unpack_piece) == 16, "loadMeta");

struct nccl_unpack_meta {
	struct nccl_unpack_piece pieces[NCCL_UNPACK_SLOTS][NCCL_UNPACK_PIECES];
	uint64_t counts[NCCL_UNPACK_SLOTS];
};
static_assert(sizeof(struct nccl_unpack_meta) == 524416, "netUnpackMeta");

/* Addresses as the GPU has them. */
struct nccl_unpack_handle {
	uint64_t meta;
	uint64_t bounce;
	uint64_t head; /* of the last slot */
};
static_assert(sizeof(struct nccl_unpack_handle) == 24, "unpackNetDeviceHandle");

struct nccl_comm_config {
	int traffic_class;
};

struct nccl_comm_attributes {
	int32_t max_concurrent_peers;
	int32_t min_concurrent_peers;
	int32_t max_flows_per_peer;
	int32_t min_flows_per_peer;
};

struct nccl_net_attributes {
	struct nccl_comm_attributes send;
	struct nccl_comm_attributes recv;
	uint32_t op;
	uint32_t algorithm;
	uint32_t protocol;
};
static_assert(sizeof(struct nccl_net_attributes) == 44, "ncclNetAttr_v11_t");

struct nccl_virtual_v9 {
	int n_devices;
	int devices[NCCL_DEVS_PER_NIC_V11];
};

struct nccl_virtual_v12 {
	int n_devices;
	int devices[NCCL_DEVS_PER_NIC_V12];
};

struct nccl_properties_v6 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int pointers;
	int speed_mbps;
	int port;
	float latency_us;
	int max_comms;
	int max_recvs;
};
static_assert(sizeof(struct nccl_properties_v6) == 48, "ncclNetProperties_v6_t");

struct nccl_properties_v7 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int pointers;
	int speed_mbps;
	int port;
	float latency_us;
	int max_comms;
	int max_recvs;
	int device_type;
	int device_version;
};
static_assert(sizeof(struct nccl_properties_v7) == 56, "ncclNetProperties_v7_t");

struct nccl_properties_v8 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int pointers;
	int registration_is_global;
	int speed_mbps;
	int port;
	float latency_us;
	int max_comms;
	int max_recvs;
	int device_type;
	int device_version;
};
static_assert(sizeof(struct nccl_properties_v8) == 64, "ncclNetProperties_v8_t");

/* Version 10 has the same. */
struct nccl_properties_v9 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int pointers;
	int registration_is_global;
	int force_flush;
	int speed_mbps;
	int port;
	float latency_us;
	int max_comms;
	int max_recvs;
	int device_type;
	int device_version;
	struct nccl_virtual_v9 virtual_device;
	size_t max_p2p_bytes;
	size_t max_coll_bytes;
};
static_assert(sizeof(struct nccl_properties_v9) == 104, "ncclNetProperties_v9_t");

struct nccl_properties_v11 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int pointers;
	int registration_is_global;
	int force_flush;
	int speed_mbps;
	int port;
	float latency_us;
	int max_comms;
	int max_recvs;
	int device_type;
	int device_version;
	struct nccl_virtual_v9 virtual_device;
	size_t max_p2p_bytes;
	size_t max_coll_bytes;
	int max_multi_request_size;
};
static_assert(sizeof(struct nccl_properties_v11) == 112, "ncclNetProperties_v11_t");

struct nccl_properties_v12 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int pointers;
	int registration_is_global;
	int force_flush;
	int speed_mbps;
	int port;
	float latency_us;
	int max_comms;
	int max_recvs;
	int device_type;
	int device_version;
	struct nccl_virtual_v12 virtual_device;
	size_t max_p2p_bytes;
	size_t max_coll_bytes;
	int max_multi_request_size;
	int16_t rail;
	int16_t plane;
};
static_assert(sizeof(struct nccl_properties_v12) == 128, "ncclNetProperties_v12_t");
static_assert(offsetof(struct nccl_properties_v12, rail) == 124, "ncclNetProperties_v12_t.railId");

struct nccl_net_v6 {
	const char *name;
	int (*init)(nccl_logger log);
	int (*devices)(int *n);
	int (*get_properties)(int dev, struct nccl_properties_v6 *properties);
	int (*listen)(int dev, void *handle, void **listen_comm);
	int (*connect)(int dev, void *handle, void **send_comm);
	int (*accept)(void *listen_comm, void **recv_comm);
	int (*reg_mr)(void *comm, void *data, int size, int type, void **mr);
	int (*reg_mr_dmabuf)(
		void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mr);
	int (*dereg_mr)(void *comm, void *mr);
	int (*isend)(void *comm, void *data, int size, int tag, void *mr, void **request);
	int (*irecv)(
		void *comm, int n, void **data, int *sizes, int *tags, void **mrs, void **request);
	int (*iflush)(void *comm, int n, void **data, int *sizes, void **mrs, void **request);
	int (*test)(void *request, int *done, int *sizes);
	int (*close_send)(void *comm);
	int (*close_recv)(void *comm);
	int (*close_listen)(void *comm);
};

struct nccl_net_v7 {
	const char *name;
	int (*init)(nccl_logger log);
	int (*devices)(int *n);
	int (*get_properties)(int dev, struct nccl_properties_v7 *properties);
	int (*listen)(int dev, void *handle, void **listen_comm);
	int (*connect)(int dev, void *handle, void **send_comm, struct nccl_device_handle **device);
	int (*accept)(void *listen_comm, void **recv_comm, struct nccl_device_handle **device);
	int (*reg_mr)(void *comm, void *data, int size, int type, void **mr);
	int (*reg_mr_dmabuf)(
		void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mr);
	int (*dereg_mr)(void *comm, void *mr);
	int (*isend)(void *comm, void *data, int size, int tag, void *mr, void **request);
	int (*irecv)(
		void *comm, int n, void **data, int *sizes, int *tags, void **mrs, void **request);
	int (*iflush)(void *comm, int n, void **data, int *sizes, void **mrs, void **request);
	int (*test)(void *request, int *done, int *sizes);
	int (*close_send)(void *comm);
	int (*close_recv)(void *comm);
	int (*close_listen)(void *comm);
	int (*get_device_mr)(void *comm, void *mr, void **device_mr);
	int (*irecv_consumed)(void *comm, int n, void *request);
};

struct nccl_net_v8 {
	const char *name;
	int (*init)(nccl_logger log);
	int (*devices)(int *n);
	int (*get_properties)(int dev, struct nccl_properties_v8 *properties);
	int (*listen)(int dev, void *handle, void **listen_comm);
	int (*connect)(int dev, void *handle, void **send_comm, struct nccl_device_handle **device);
	int (*accept)(void *listen_comm, void **recv_comm, struct nccl_device_handle **device);
	int (*reg_mr)(void *comm, void *data, size_t size, int type, void **mr);
	int (*reg_mr_dmabuf)(
		void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mr);
	int (*dereg_mr)(void *comm, void *mr);
	int (*isend)(void *comm, void *data, int size, int tag, void *mr, void **request);
	int (*irecv)(
		void *comm, int n, void **data, int *sizes, int *tags, void **mrs, void **request);
	int (*iflush)(void *comm, int n, void **data, int *sizes, void **mrs, void **request);
	int (*test)(void *request, int *done, int *sizes);
	int (*close_send)(void *comm);
	int (*close_recv)(void *comm);
	int (*close_listen)(void *comm);
	int (*get_device_mr)(void *comm, void *mr, void **device_mr);
	int (*irecv_consumed)(void *comm, int n, void *request);
};

struct nccl_net_v9 {
	const char *name;
	int (*init)(nccl_logger log);
	int (*devices)(int *n);
	int (*get_properties)(int dev, struct nccl_properties_v9 *properties);
	int (*listen)(int dev, void *handle, void **listen_comm);
	int (*connect)(int dev, void *handle, void **send_comm, struct nccl_device_handle **device);
	int (*accept)(void *listen_comm, void **recv_comm, struct nccl_device_handle **device);
	int (*reg_mr)(void *comm, void *data, size_t size, int type, void **mr);
	int (*reg_mr_dmabuf)(
		void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mr);
	int (*dereg_mr)(void *comm, void *mr);
	int (*isend)(void *comm, void *data, size_t size, int tag, void *mr, void **request);
	int (*irecv)(void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs,
		void **request);
	int (*iflush)(void *comm, int n, void **data, int *sizes, void **mrs, void **request);
	int (*test)(void *request, int *done, int *sizes);
	int (*close_send)(void *comm);
	int (*close_recv)(void *comm);
	int (*close_listen)(void *comm);
	int (*get_device_mr)(void *comm, void *mr, void **device_mr);
	int (*irecv_consumed)(void *comm, int n, void *request);
	int (*make_virtual)(int *dev, struct nccl_virtual_v9 *members);
};
static_assert(sizeof(struct nccl_net_v9) == 20 * sizeof(void *), "ncclNet_v9_t");

struct nccl_net_v10 {
	const char *name;
	int (*init)(nccl_logger log, nccl_profiler profiler);
	int (*devices)(int *n);
	int (*get_properties)(int dev, struct nccl_properties_v9 *properties);
	int (*listen)(int dev, void *handle, void **listen_comm);
	int (*connect)(int dev, struct nccl_comm_config *config, void *handle, void **send_comm,
		struct nccl_device_handle **device);
	int (*accept)(void *listen_comm, void **recv_comm, struct nccl_device_handle **device);
	int (*reg_mr)(void *comm, void *data, size_t size, int type, void **mr);
	int (*reg_mr_dmabuf)(
		void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mr);
	int (*dereg_mr)(void *comm, void *mr);
	int (*isend)(void *comm, void *data, size_t size, int tag, void *mr, void *parent,
		void **request);
	int (*irecv)(void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs,
		void **parents, void **request);
	int (*iflush)(void *comm, int n, void **data, int *sizes, void **mrs, void **request);
	int (*test)(void *request, int *done, int *sizes);
	int (*close_send)(void *comm);
	int (*close_recv)(void *comm);
	int (*close_listen)(void *comm);
	int (*get_device_mr)(void *comm, void *mr, void **device_mr);
	int (*irecv_consumed)(void *comm, int n, void *request);
	int (*make_virtual)(int *dev, struct nccl_virtual_v9 *members);
};

struct nccl_net_v11 {
	const char *name;
	int (*init)(void **context, uint64_t comm_id, struct nccl_comm_config *config,
		nccl_logger log, nccl_profiler profiler);
	int (*devices)(int *n);
	int (*get_properties)(int dev, struct nccl_properties_v11 *properties);
	int (*listen)(void *context, int dev, void *handle, void **listen_comm);
	int (*connect)(void *context, int dev, void *handle, void **send_comm,
		struct nccl_device_handle **device);
	int (*accept)(void *listen_comm, void **recv_comm, struct nccl_device_handle **device);
	int (*reg_mr)(void *comm, void *data, size_t size, int type, void **mr);
	int (*reg_mr_dmabuf)(
		void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mr);
	int (*dereg_mr)(void *comm, void *mr);
	int (*isend)(void *comm, void *data, size_t size, int tag, void *mr, void *parent,
		void **request);
	int (*irecv)(void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs,
		void **parents, void **request);
	int (*iflush)(void *comm, int n, void **data, int *sizes, void **mrs, void **request);
	int (*test)(void *request, int *done, int *sizes);
	int (*close_send)(void *comm);
	int (*close_recv)(void *comm);
	int (*close_listen)(void *comm);
	int (*get_device_mr)(void *comm, void *mr, void **device_mr);
	int (*irecv_consumed)(void *comm, int n, void *request);
	int (*make_virtual)(int *dev, struct nccl_virtual_v9 *members);
	int (*finalize)(void *context);
	int (*set_attributes)(void *context, struct nccl_net_attributes *attributes);
};

struct nccl_net_v12 {
	const char *name;
	int (*init)(void **context, uint64_t comm_id, struct nccl_comm_config *config,
		nccl_logger log, nccl_profiler profiler);
	int (*devices)(int *n);
	int (*get_properties)(int dev, struct nccl_properties_v12 *properties);
	int (*listen)(void *context, int dev, void *handle, void **listen_comm);
	int (*connect)(void *context, int dev, void *handle, void **send_comm,
		struct nccl_device_handle **device);
	int (*accept)(void *listen_comm, void **recv_comm, struct nccl_device_handle **device);
	int (*reg_mr)(void *comm, void *data, size_t size, int type, void **mr);
	int (*reg_mr_dmabuf)(
		void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mr);
	int (*dereg_mr)(void *comm, void *mr);
	int (*isend)(void *comm, void *data, size_t size, int tag, void *mr, void *parent,
		void **request);
	int (*irecv)(void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs,
		void **parents, void **request);
	int (*iflush)(void *comm, int n, void **data, int *sizes, void **mrs, void **request);
	int (*test)(void *request, int *done, int *sizes);
	int (*close_send)(void *comm);
	int (*close_recv)(void *comm);
	int (*close_listen)(void *comm);
	int (*get_device_mr)(void *comm, void *mr, void **device_mr);
	int (*irecv_consumed)(void *comm, int n, void *request);
	int (*make_virtual)(int *dev, struct nccl_virtual_v12 *members);
	int (*finalize)(void *context);
	int (*set_attributes)(void *context, struct nccl_net_attributes *attributes);
};
static_assert(sizeof(struct nccl_net_v12) == 22 * sizeof(void *), "ncclNet_v12_t");

#endif
