/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The binary interface of NCCL's net plugins, versions 6 to 12, in Ferrule's own declarations: the
 * build needs neither NCCL's nor CUDA's headers. Each NCCL release looks for the tables that it
 * knows, the newest first: ncclNetPlugin_v12, ..., ncclNetPlugin_v6. docs/design/nccl.md lists the
 * releases and their versions.
 *
 * A type that did not change between versions is declared once, under the version that introduced
 * it. Sizes and offsets are those of the LP64 systems that NCCL supports; assertions check them.
 */
#ifndef FERRULE_NCCL_ABI_H
#define FERRULE_NCCL_ABI_H

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

enum {
	NCCL_HANDLE_SIZE = 128,
	NCCL_MAX_REQUESTS = 32, /* at least, of a connection; times maxRecvs for the sender */
	NCCL_PTR_HOST = 1,
	NCCL_PTR_CUDA = 2,
	NCCL_PTR_DMABUF = 4,
	NCCL_DEVICE_HOST = 0,            /* netDeviceType: no part of the plugin runs on the GPU */
	NCCL_DEVICE_INVALID_VERSION = 0, /* no version, because there is no device part */
	NCCL_DEVICE_UNPACK = 1,          /* NCCL's kernels unpack received data, see below */
	NCCL_DEVICE_UNPACK_VERSION = 7,
	NCCL_UNPACK_SLOTS = 16,
	NCCL_UNPACK_PIECES = 2048, /* of one slot */
	NCCL_TRAFFIC_CLASS_UNDEFINED = -1,
	NCCL_ID_UNDEFINED = -1, /* railId, planeId */
	NCCL_V9_DEVICES = 4,    /* the most in a virtual device, up to v11 */
	NCCL_V12_DEVICES = 8,
};

/* Since v9, the value of *request at irecv if NCCL does not need the completion (LL, LL128). */
#define NCCL_OPTIONAL_END ((void *)1)

/* ncclDebugLogger_t */
enum nccl_log_level {
	NCCL_LOG_WARN = 2,
	NCCL_LOG_INFO = 3,
};

enum nccl_log_subsystem {
	NCCL_LOG_INIT = 0x1,
	NCCL_LOG_NET = 0x10,
	NCCL_LOG_ALL = -1,
};

typedef void (*nccl_log_fn)(int level, unsigned long subsystems, const char *file, int line,
	const char *format, ...) __attribute__((format(printf, 5, 6)));

/* ncclProfilerCallback_t */
enum nccl_event {
	NCCL_EVENT_START = 0,
	NCCL_EVENT_STOP = 1,
};

typedef int (*nccl_profiler_fn)(
	void **event, int type, void *parent, int64_t plugin, void *description);

/* The queue pair events of NCCL's own transport, so that existing profilers know them. */
#define NCCL_EVENT_PLUGIN_IB ((INT64_C(1) << 16) | 1)
enum { NCCL_EVENT_QP = 1 };

struct nccl_event_v1 {
	uint8_t type;
	struct {
		int device;
		uint64_t wr_id;
		int opcode; /* a verbs opcode */
		int qp_num;
		size_t length;
	} qp;
};

static_assert(sizeof(struct nccl_event_v1) == 40, "ncclProfilerNetIbDescr_v1_t");
static_assert(offsetof(struct nccl_event_v1, qp.length) == 32, "ncclProfilerNetIbDescr_v1_t");

/* ---- properties */

struct nccl_properties_v6 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int ptr_support;
	int speed; /* Mbit/s */
	int port;
	float latency; /* us */
	int max_comms;
	int max_recvs;
};

struct nccl_properties_v7 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int ptr_support;
	int speed;
	int port;
	float latency;
	int max_comms;
	int max_recvs;
	int net_device_type;
	int net_device_version;
};

struct nccl_properties_v8 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int ptr_support;
	int reg_is_global;
	int speed;
	int port;
	float latency;
	int max_comms;
	int max_recvs;
	int net_device_type;
	int net_device_version;
};

struct nccl_vdevice_v9 {
	int n;
	int devices[NCCL_V9_DEVICES];
};

struct nccl_vdevice_v12 {
	int n;
	int devices[NCCL_V12_DEVICES];
};

/* Versions 9 and 10. */
struct nccl_properties_v9 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int ptr_support;
	int reg_is_global;
	int force_flush;
	int speed;
	int port;
	float latency;
	int max_comms;
	int max_recvs;
	int net_device_type;
	int net_device_version;
	struct nccl_vdevice_v9 vdevice;
	size_t max_p2p_bytes;
	size_t max_coll_bytes;
};

struct nccl_properties_v11 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int ptr_support;
	int reg_is_global;
	int force_flush;
	int speed;
	int port;
	float latency;
	int max_comms;
	int max_recvs;
	int net_device_type;
	int net_device_version;
	struct nccl_vdevice_v9 vdevice;
	size_t max_p2p_bytes;
	size_t max_coll_bytes;
	int max_multi_request;
};

struct nccl_properties_v12 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int ptr_support;
	int reg_is_global;
	int force_flush;
	int speed;
	int port;
	float latency;
	int max_comms;
	int max_recvs;
	int net_device_type;
	int net_device_version;
	struct nccl_vdevice_v12 vdevice;
	size_t max_p2p_bytes;
	size_t max_coll_bytes;
	int max_multi_request;
	int16_t rail_id;
	int16_t plane_id;
};

static_assert(sizeof(struct nccl_properties_v6) == 48, "ncclNetProperties_v6_t");
static_assert(offsetof(struct nccl_properties_v6, latency) == 36, "ncclNetProperties_v6_t");
static_assert(sizeof(struct nccl_properties_v7) == 56, "ncclNetProperties_v7_t");
static_assert(offsetof(struct nccl_properties_v7, net_device_type) == 48, "ncclNetProperties_v7_t");
static_assert(sizeof(struct nccl_properties_v8) == 64, "ncclNetProperties_v8_t");
static_assert(offsetof(struct nccl_properties_v8, net_device_type) == 52, "ncclNetProperties_v8_t");
static_assert(sizeof(struct nccl_properties_v9) == 104, "ncclNetProperties_v9_t");
static_assert(offsetof(struct nccl_properties_v9, vdevice) == 64, "ncclNetProperties_v9_t");
static_assert(offsetof(struct nccl_properties_v9, max_p2p_bytes) == 88, "ncclNetProperties_v9_t");
static_assert(sizeof(struct nccl_properties_v11) == 112, "ncclNetProperties_v11_t");
static_assert(
	offsetof(struct nccl_properties_v11, max_multi_request) == 104, "ncclNetProperties_v11_t");
static_assert(sizeof(struct nccl_properties_v12) == 128, "ncclNetProperties_v12_t");
static_assert(
	offsetof(struct nccl_properties_v12, max_p2p_bytes) == 104, "ncclNetProperties_v12_t");
static_assert(offsetof(struct nccl_properties_v12, rail_id) == 124, "ncclNetProperties_v12_t");

/* ---- receives that NCCL's kernels unpack, since v7 */

/* ncclNetDeviceHandle_v7_t of a connection. NCCL copies it after it has registered the connection's
 * memory. */
struct nccl_device_handle_v7 {
	int type; /* NCCL_DEVICE_* */
	int version;
	void *handle; /* GPU address of a struct nccl_unpack_handle */
	size_t size;
	int needs_proxy_progress; /* NCCL's proxy threads still call isend, irecv and test */
};

static_assert(sizeof(struct nccl_device_handle_v7) == 32, "ncclNetDeviceHandle_v7_t");

/* A piece of a message: copied from offset `src` in the bounce buffer to offset `dst` in the
 * receive's buffer. */
struct nccl_unpack_piece {
	uint32_t src;
	uint32_t length;
	uint64_t dst;
};

/* Receives use the slots in turn. A kernel reads a slot's pieces after NCCL's thread has reported
 * the receive as done. */
struct nccl_unpack_meta {
	struct nccl_unpack_piece pieces[NCCL_UNPACK_SLOTS][NCCL_UNPACK_PIECES];
	uint64_t counts[NCCL_UNPACK_SLOTS];
};

/* All addresses are GPU addresses. */
struct nccl_unpack_handle {
	uint64_t meta;
	uint64_t bounce; /* the same for all connections of a GPU in this process */
	uint64_t head;   /* the last slot of a kernel, counted up; -1 before the first */
};

static_assert(sizeof(struct nccl_unpack_piece) == 16, "loadMeta");
static_assert(sizeof(struct nccl_unpack_meta) == 16 * 2048 * 16 + 16 * 8, "netUnpackMeta");
static_assert(offsetof(struct nccl_unpack_meta, counts) == 524288, "netUnpackMeta");
static_assert(sizeof(struct nccl_unpack_handle) == 24, "unpackNetDeviceHandle");

/* ---- tables */

/* ncclNetCommConfig_v10_t */
struct nccl_config_v10 {
	int traffic_class;
};

/* Hints about a communicator's use of the network; -1: unknown. */
struct nccl_attr_v11 {
	struct {
		int32_t max_concurrent_peers, min_concurrent_peers;
		int32_t max_flows_per_peer, min_flows_per_peer;
	} send, recv;
	uint32_t op, algo, proto; /* bit masks */
};

static_assert(sizeof(struct nccl_attr_v11) == 44, "ncclNetAttr_v11_t");

typedef int (*nccl_devices_fn)(int *n);
typedef int (*nccl_listen_fn)(int dev, void *handle, void **listen_comm);
typedef int (*nccl_listen_v11_fn)(void *ctx, int dev, void *handle, void **listen_comm);
/*
 * `offload`: a sender gets NULL. For a receiver, NCCL passes a handle of its own here if it
 * requests device offload. Leave the handle until the connection is established, then replace it,
 * or set it to NULL.
 */
typedef int (*nccl_connect_v7_fn)(int dev, void *handle, void **send_comm, void **offload);
typedef int (*nccl_accept_fn)(
	void *listen_comm, void **recv_comm, struct nccl_device_handle_v7 **offload);
typedef int (*nccl_reg_fn)(void *comm, void *data, size_t size, int type, void **mhandle);
typedef int (*nccl_reg_dmabuf_fn)(
	void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle);
typedef int (*nccl_dereg_fn)(void *comm, void *mhandle);
typedef int (*nccl_isend_v6_fn)(
	void *comm, void *data, int size, int tag, void *mhandle, void **request);
typedef int (*nccl_irecv_v6_fn)(
	void *comm, int n, void **data, int *sizes, int *tags, void **mhandles, void **request);
typedef int (*nccl_isend_v9_fn)(
	void *comm, void *data, size_t size, int tag, void *mhandle, void **request);
typedef int (*nccl_irecv_v9_fn)(
	void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **request);
typedef int (*nccl_isend_v10_fn)(
	void *comm, void *data, size_t size, int tag, void *mhandle, void *parent, void **request);
typedef int (*nccl_irecv_v10_fn)(void *comm, int n, void **data, size_t *sizes, int *tags,
	void **mhandles, void **parents, void **request);
typedef int (*nccl_flush_fn)(
	void *comm, int n, void **data, int *sizes, void **mhandles, void **request);
typedef int (*nccl_test_fn)(void *request, int *done, int *sizes);
typedef int (*nccl_close_fn)(void *comm);
typedef int (*nccl_device_mr_fn)(void *comm, void *mhandle, void **device_mhandle);
typedef int (*nccl_consumed_fn)(void *comm, int n, void *request);

struct nccl_net_v6 {
	const char *name;
	int (*init)(nccl_log_fn log);
	nccl_devices_fn devices;
	int (*get_properties)(int dev, struct nccl_properties_v6 *properties);
	nccl_listen_fn listen;
	int (*connect)(int dev, void *handle, void **send_comm);
	int (*accept)(void *listen_comm, void **recv_comm);
	int (*reg_mr)(void *comm, void *data, int size, int type, void **mhandle);
	nccl_reg_dmabuf_fn reg_mr_dmabuf;
	nccl_dereg_fn dereg_mr;
	nccl_isend_v6_fn isend;
	nccl_irecv_v6_fn irecv;
	nccl_flush_fn iflush;
	nccl_test_fn test;
	nccl_close_fn close_send, close_recv, close_listen;
};

struct nccl_net_v7 {
	const char *name;
	int (*init)(nccl_log_fn log);
	nccl_devices_fn devices;
	int (*get_properties)(int dev, struct nccl_properties_v7 *properties);
	nccl_listen_fn listen;
	nccl_connect_v7_fn connect;
	nccl_accept_fn accept;
	int (*reg_mr)(void *comm, void *data, int size, int type, void **mhandle);
	nccl_reg_dmabuf_fn reg_mr_dmabuf;
	nccl_dereg_fn dereg_mr;
	nccl_isend_v6_fn isend;
	nccl_irecv_v6_fn irecv;
	nccl_flush_fn iflush;
	nccl_test_fn test;
	nccl_close_fn close_send, close_recv, close_listen;
	nccl_device_mr_fn get_device_mr;
	nccl_consumed_fn irecv_consumed;
};

struct nccl_net_v8 {
	const char *name;
	int (*init)(nccl_log_fn log);
	nccl_devices_fn devices;
	int (*get_properties)(int dev, struct nccl_properties_v8 *properties);
	nccl_listen_fn listen;
	nccl_connect_v7_fn connect;
	nccl_accept_fn accept;
	nccl_reg_fn reg_mr;
	nccl_reg_dmabuf_fn reg_mr_dmabuf;
	nccl_dereg_fn dereg_mr;
	nccl_isend_v6_fn isend;
	nccl_irecv_v6_fn irecv;
	nccl_flush_fn iflush;
	nccl_test_fn test;
	nccl_close_fn close_send, close_recv, close_listen;
	nccl_device_mr_fn get_device_mr;
	nccl_consumed_fn irecv_consumed;
};

struct nccl_net_v9 {
	const char *name;
	int (*init)(nccl_log_fn log);
	nccl_devices_fn devices;
	int (*get_properties)(int dev, struct nccl_properties_v9 *properties);
	nccl_listen_fn listen;
	nccl_connect_v7_fn connect;
	nccl_accept_fn accept;
	nccl_reg_fn reg_mr;
	nccl_reg_dmabuf_fn reg_mr_dmabuf;
	nccl_dereg_fn dereg_mr;
	nccl_isend_v9_fn isend;
	nccl_irecv_v9_fn irecv;
	nccl_flush_fn iflush;
	nccl_test_fn test;
	nccl_close_fn close_send, close_recv, close_listen;
	nccl_device_mr_fn get_device_mr;
	nccl_consumed_fn irecv_consumed;
	int (*make_vdevice)(int *dev, struct nccl_vdevice_v9 *vdevice);
};

struct nccl_net_v10 {
	const char *name;
	int (*init)(nccl_log_fn log, nccl_profiler_fn profiler);
	nccl_devices_fn devices;
	int (*get_properties)(int dev, struct nccl_properties_v9 *properties);
	nccl_listen_fn listen;
	int (*connect)(int dev, struct nccl_config_v10 *config, void *handle, void **send_comm,
		void **offload);
	nccl_accept_fn accept;
	nccl_reg_fn reg_mr;
	nccl_reg_dmabuf_fn reg_mr_dmabuf;
	nccl_dereg_fn dereg_mr;
	nccl_isend_v10_fn isend;
	nccl_irecv_v10_fn irecv;
	nccl_flush_fn iflush;
	nccl_test_fn test;
	nccl_close_fn close_send, close_recv, close_listen;
	nccl_device_mr_fn get_device_mr;
	nccl_consumed_fn irecv_consumed;
	int (*make_vdevice)(int *dev, struct nccl_vdevice_v9 *vdevice);
};

struct nccl_net_v11 {
	const char *name;
	int (*init)(void **ctx, uint64_t comm_id, struct nccl_config_v10 *config, nccl_log_fn log,
		nccl_profiler_fn profiler);
	nccl_devices_fn devices;
	int (*get_properties)(int dev, struct nccl_properties_v11 *properties);
	nccl_listen_v11_fn listen;
	int (*connect)(void *ctx, int dev, void *handle, void **send_comm, void **offload);
	nccl_accept_fn accept;
	nccl_reg_fn reg_mr;
	nccl_reg_dmabuf_fn reg_mr_dmabuf;
	nccl_dereg_fn dereg_mr;
	nccl_isend_v10_fn isend;
	nccl_irecv_v10_fn irecv;
	nccl_flush_fn iflush;
	nccl_test_fn test;
	nccl_close_fn close_send, close_recv, close_listen;
	nccl_device_mr_fn get_device_mr;
	nccl_consumed_fn irecv_consumed;
	int (*make_vdevice)(int *dev, struct nccl_vdevice_v9 *vdevice);
	int (*finalize)(void *ctx);
	int (*set_net_attr)(void *ctx, struct nccl_attr_v11 *attr);
};

struct nccl_net_v12 {
	const char *name;
	int (*init)(void **ctx, uint64_t comm_id, struct nccl_config_v10 *config, nccl_log_fn log,
		nccl_profiler_fn profiler);
	nccl_devices_fn devices;
	int (*get_properties)(int dev, struct nccl_properties_v12 *properties);
	nccl_listen_v11_fn listen;
	int (*connect)(void *ctx, int dev, void *handle, void **send_comm, void **offload);
	nccl_accept_fn accept;
	nccl_reg_fn reg_mr;
	nccl_reg_dmabuf_fn reg_mr_dmabuf;
	nccl_dereg_fn dereg_mr;
	nccl_isend_v10_fn isend;
	nccl_irecv_v10_fn irecv;
	nccl_flush_fn iflush;
	nccl_test_fn test;
	nccl_close_fn close_send, close_recv, close_listen;
	nccl_device_mr_fn get_device_mr;
	nccl_consumed_fn irecv_consumed;
	int (*make_vdevice)(int *dev, struct nccl_vdevice_v12 *vdevice);
	int (*finalize)(void *ctx);
	int (*set_net_attr)(void *ctx, struct nccl_attr_v11 *attr);
};

#define NCCL_TABLE_IS(version, functions)                                                       \
	static_assert(sizeof(struct nccl_net_v##version) == (1 + (functions)) * sizeof(void *), \
		"ncclNet_v" #version "_t")
NCCL_TABLE_IS(6, 16);
NCCL_TABLE_IS(7, 18);
NCCL_TABLE_IS(8, 18);
NCCL_TABLE_IS(9, 19);
NCCL_TABLE_IS(10, 19);
NCCL_TABLE_IS(11, 21);
NCCL_TABLE_IS(12, 21);
#undef NCCL_TABLE_IS
static_assert(offsetof(struct nccl_net_v6, test) == 13 * sizeof(void *), "ncclNet_v6_t");
static_assert(offsetof(struct nccl_net_v12, test) == 13 * sizeof(void *), "ncclNet_v12_t");
static_assert(offsetof(struct nccl_net_v12, finalize) == 20 * sizeof(void *), "ncclNet_v12_t");

#endif
