/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shared parts of the tables of NCCL's interface. A function of a version is in the file of the
 * oldest version that uses the same form.
 */
#ifndef FERRULE_NCCL_TABLES_H
#define FERRULE_NCCL_TABLES_H

#include "nccl/api/abi_tuner.h"
#include "nccl/net.h"

#define TABLE __attribute__((visibility("default")))

extern TABLE const struct nccl_net_v6 ncclNetPlugin_v6;
extern TABLE const struct nccl_net_v7 ncclNetPlugin_v7;
extern TABLE const struct nccl_net_v8 ncclNetPlugin_v8;
extern TABLE const struct nccl_net_v9 ncclNetPlugin_v9;
extern TABLE const struct nccl_net_v10 ncclNetPlugin_v10;
extern TABLE const struct nccl_net_v11 ncclNetPlugin_v11;
extern TABLE const struct nccl_net_v12 ncclNetPlugin_v12;
extern TABLE const struct nccl_tuner_v3 ncclTunerPlugin_v3;
extern TABLE const struct nccl_tuner_v4 ncclTunerPlugin_v4;
extern TABLE const struct nccl_tuner_v5 ncclTunerPlugin_v5;

/*
 * get_device_mr and irecv_consumed are for receives that NCCL's kernels unpack. NCCL calls
 * irecv_consumed after each receive if the plugin has the function, for every device. So it must be
 * fast.
 */

/* NCCL_NET selects the plugin by this name. NCCL's log shows "via NET/Ferrule". */
#define TABLE_NAME "Ferrule"

enum { TABLE_MAX_REQUEST = 1 };

/* The largest message: NCCL rejects larger values. */
#define TABLE_MAX_BYTES ((size_t)1 << 40)

int table_init_v6(nccl_log_fn log);
int table_listen_v6(int dev, void *handle, void **listen_comm);
int table_connect_v7(int dev, void *handle, void **send_comm, void **offload);
int table_accept_v7(void *listen_comm, void **recv_comm, struct nccl_device_handle_v7 **offload);
int table_reg_mr_v8(void *comm, void *data, size_t size, int type, void **mhandle);
int table_reg_mr_dmabuf(
	void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle);
int table_dereg_mr(void *comm, void *mhandle);
int table_isend_v10(
	void *comm, void *data, size_t size, int tag, void *mhandle, void *parent, void **request);
int table_irecv_v10(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
	void **parents, void **request);
int table_iflush(void *comm, int n, void **data, int *sizes, void **mhandles, void **request);
/* Logs the error. */
int table_bad_count(int n);
int table_test(void *request, int *done, int *sizes);
int table_get_device_mr(void *comm, void *mhandle, void **device_mhandle);
int table_irecv_consumed(void *comm, int n, void *request);
int table_close(void *comm);
int table_close_listen(void *listen_comm);
/* Same as in v9. Older versions have a subset; `version` is the caller's version. */
int table_get_properties(int version, int dev, struct nccl_properties_v9 *properties);
int table_get_properties_v9(int dev, struct nccl_properties_v9 *properties);
int table_make_vdevice_v9(int *dev, struct nccl_vdevice_v9 *vdevice);

#endif
