/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions that librdmacm and drivers expect of libibverbs beside the verbs: copies of the
 * kernel's structures, files of sysfs, and the calls around fork(). No state; any thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dropin/ibverbs/newer.h"

void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *to, const struct ib_uverbs_ah_attr *from)
{
	struct ibv_ah_attr copy = {
		.grh = {
			.flow_label = from->grh.flow_label,
			.sgid_index = from->grh.sgid_index,
			.hop_limit = from->grh.hop_limit,
			.traffic_class = from->grh.traffic_class,
		},
		.dlid = from->dlid,
		.sl = from->sl,
		.src_path_bits = from->src_path_bits,
		.static_rate = from->static_rate,
		.is_global = from->is_global,
		.port_num = from->port_num,
	};

	memcpy(copy.grh.dgid.raw, from->grh.dgid, sizeof(copy.grh.dgid.raw));
	*to = copy;
}

void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *to, const struct ib_uverbs_qp_attr *from)
{
	struct ibv_qp_attr copy = {
		.qp_state = to->qp_state,
		.cur_qp_state = from->cur_qp_state,
		.path_mtu = from->path_mtu,
		.path_mig_state = from->path_mig_state,
		.qkey = from->qkey,
		.rq_psn = from->rq_psn,
		.sq_psn = from->sq_psn,
		.dest_qp_num = from->dest_qp_num,
		.qp_access_flags = from->qp_access_flags,
		.cap = {
			.max_send_wr = from->max_send_wr,
			.max_recv_wr = from->max_recv_wr,
			.max_send_sge = from->max_send_sge,
			.max_recv_sge = from->max_recv_sge,
			.max_inline_data = from->max_inline_data,
		},
		.pkey_index = from->pkey_index,
		.alt_pkey_index = from->alt_pkey_index,
		.en_sqd_async_notify = from->en_sqd_async_notify,
		.sq_draining = from->sq_draining,
		.max_rd_atomic = from->max_rd_atomic,
		.max_dest_rd_atomic = from->max_dest_rd_atomic,
		.min_rnr_timer = from->min_rnr_timer,
		.port_num = from->port_num,
		.timeout = from->timeout,
		.retry_cnt = from->retry_cnt,
		.rnr_retry = from->rnr_retry,
		.alt_port_num = from->alt_port_num,
		.alt_timeout = from->alt_timeout,
		.rate_limit = to->rate_limit,
	};

	ibv_copy_ah_attr_from_kern(&copy.ah_attr, &from->ah_attr);
	ibv_copy_ah_attr_from_kern(&copy.alt_ah_attr, &from->alt_ah_attr);
	*to = copy;
}

void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *to, const struct ib_user_path_rec *from)
{
	struct ibv_sa_path_rec copy = {
		.dlid = from->dlid,
		.slid = from->slid,
		.raw_traffic = (int)from->raw_traffic,
		.flow_label = from->flow_label,
		.hop_limit = (uint8_t)from->hop_limit,
		.traffic_class = from->traffic_class,
		.reversible = (int)from->reversible,
		.numb_path = from->numb_path,
		.pkey = from->pkey,
		.sl = from->sl,
		.mtu_selector = from->mtu_selector,
		.mtu = from->mtu,
		.rate_selector = from->rate_selector,
		.rate = from->rate,
		.packet_life_time_selector = from->packet_life_time_selector,
		.packet_life_time = from->packet_life_time,
		.preference = from->preference,
	};

	memcpy(copy.dgid.raw, from->dgid, sizeof(copy.dgid.raw));
	memcpy(copy.sgid.raw, from->sgid, sizeof(copy.sgid.raw));
	*to = copy;
}

void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *to, const struct ibv_sa_path_rec *from)
{
	struct ib_user_path_rec copy = {
		.dlid = from->dlid,
		.slid = from->slid,
		.raw_traffic = (uint32_t)from->raw_traffic,
		.flow_label = from->flow_label,
		.reversible = (uint32_t)from->reversible,
		.pkey = from->pkey,
		.hop_limit = from->hop_limit,
		.traffic_class = from->traffic_class,
		.numb_path = from->numb_path,
		.sl = from->sl,
		.mtu_selector = from->mtu_selector,
		.rate_selector = from->rate_selector,
		.mtu = from->mtu,
		.rate = from->rate,
		.packet_life_time = from->packet_life_time,
		.packet_life_time_selector = from->packet_life_time_selector,
		.preference = from->preference,
	};

	memcpy(copy.dgid, from->dgid.raw, sizeof(copy.dgid));
	memcpy(copy.sgid, from->sgid.raw, sizeof(copy.sgid));
	*to = copy;
}

const char *ibv_get_sysfs_path(void)
{
	return "/sys";
}

int ibv_read_sysfs_file(const char *folder, const char *name, char *buffer, size_t size)
{
	char path[PATH_MAX];
	ssize_t len;
	int fd;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, name) >= sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	len = read(fd, buffer, size);
	close(fd);
	if (len < 0)
		return -1;
	if (len > 0 && buffer[len - 1] == '\n')
		len--;
	if ((size_t)len >= size) {
		errno = EOVERFLOW;
		return -1;
	}
	buffer[len] = '\0';
	return (int)len;
}

/* No hardware writes to memory of the parent: a child needs no protection from it. */
int ibv_fork_init(void)
{
	return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

int ibv_dontfork_range(void *start, size_t size)
{
	return 0;
}

int ibv_dofork_range(void *start, size_t size)
{
	return 0;
}
