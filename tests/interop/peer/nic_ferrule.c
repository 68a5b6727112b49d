/* SPDX-License-Identifier: BSD-3-Clause */
/* The peer program's NIC by Ferrule. */
#include "tests/interop/peer/nic.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ferrule/ferrule.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct queue {
	struct frl_cq *cq;
	struct frl_comp_channel *channel;
};

static struct frl_device *device;
static struct frl_pd *domain;

const char *const nic_backend = "ferrule";

int nic_open(const char *port, const char *ip)
{
	struct frl_device_config config;
	int err;

	frl_device_config_init(&config);
	config.port = port;
	config.ip = ip;
	config.progress = FRL_PROGRESS_THREAD;
	err = frl_device_open(&config, &device);
	return err ? err : frl_pd_create(device, &domain);
}

void nic_close(void)
{
	frl_pd_destroy(domain);
	frl_device_close(device);
}

int nic_path_mtu(void)
{
	struct frl_device_attr attr;

	frl_device_query(device, &attr);
	return (int)attr.path_mtu;
}

int nic_gid(unsigned index, uint8_t gid[NIC_GID_SIZE])
{
	struct frl_gid answer;
	int err = frl_query_gid(device, index, &answer);

	if (!err)
		memcpy(gid, answer.ip.bytes, NIC_GID_SIZE);
	return err;
}

const char *nic_error(int err)
{
	return frl_last_error();
}

int nic_mr_create(void *addr, size_t length, const uint64_t *iova, uint32_t access, void **ret_mr)
{
	struct frl_mr *mr;
	int err = iova ? frl_reg_mr_iova(domain, addr, length, *iova, access, &mr)
		       : frl_reg_mr(domain, addr, length, access, &mr);

	if (!err)
		*ret_mr = mr;
	return err;
}

int nic_mr_destroy(void *mr)
{
	return frl_dereg_mr(mr);
}

uint32_t nic_mr_lkey(void *mr)
{
	return frl_mr_lkey(mr);
}

uint32_t nic_mr_rkey(void *mr)
{
	return frl_mr_rkey(mr);
}

int nic_mw_create(void **ret_mw)
{
	struct frl_mw *mw;
	int err = frl_mw_alloc(domain, &mw);

	if (!err)
		*ret_mw = mw;
	return err;
}

int nic_mw_destroy(void *mw)
{
	frl_mw_dealloc(mw);
	return 0;
}

uint32_t nic_mw_rkey(void *mw)
{
	return frl_mw_rkey(mw);
}

int nic_cq_create(uint32_t depth, void **ret_cq)
{
	struct queue *queue = calloc(1, sizeof(*queue));
	int err;

	if (!queue)
		return -ENOMEM;
	err = frl_comp_channel_create(device, &queue->channel);
	if (!err)
		err = frl_cq_create_on_channel(device, depth, queue->channel, NULL, &queue->cq);
	if (err) {
		frl_comp_channel_destroy(queue->channel);
		free(queue);
		return err;
	}
	*ret_cq = queue;
	return 0;
}

int nic_cq_destroy(void *cq)
{
	struct queue *queue = cq;
	int err = frl_cq_destroy(queue->cq);

	if (err)
		return err;
	err = frl_comp_channel_destroy(queue->channel);
	free(queue);
	return err;
}

int nic_cq_poll(void *cq, struct nic_wc *ret_wc)
{
	struct frl_wc wc;
	int n = frl_poll_cq(((struct queue *)cq)->cq, 1, &wc);

	if (n <= 0)
		return n;
	*ret_wc = (struct nic_wc){
		.wr_id = wc.wr_id,
		.status = wc.status,
		.opcode = wc.opcode,
		.byte_len = wc.byte_len,
		.imm_data = wc.flags & FRL_WC_WITH_INV ? wc.invalidated_rkey : ntohl(wc.imm_data),
		.qp_num = wc.qp_num,
		.src_qp = wc.src_qp,
		.flags = wc.flags,
	};
	return 1;
}

int nic_cq_arm(void *cq, bool solicited_only)
{
	return frl_req_notify_cq(((struct queue *)cq)->cq, solicited_only);
}

int nic_cq_event(void *cq, int timeout_ms)
{
	struct frl_cq *which;
	int err = frl_get_cq_event(((struct queue *)cq)->channel, timeout_ms, &which);

	return err == -EAGAIN ? 0 : err ? err : 1;
}

int nic_srq_create(uint32_t max_wr, uint32_t max_sge, uint32_t limit, void **ret_srq)
{
	struct frl_srq_config config = { .max_wr = max_wr, .max_sge = max_sge, .limit = limit };
	struct frl_srq *srq;
	int err = frl_srq_create(domain, &config, &srq);

	if (!err)
		*ret_srq = srq;
	return err;
}

int nic_srq_set_limit(void *srq, uint32_t limit)
{
	return frl_srq_set_limit(srq, limit);
}

int nic_srq_destroy(void *srq)
{
	return frl_srq_destroy(srq);
}

int nic_qp_create(const struct nic_qp_config *from, void **ret_qp)
{
	struct frl_qp_config config = {
		.type = (enum frl_qp_type)from->type,
		.send_cq = ((struct queue *)from->send_cq)->cq,
		.recv_cq = ((struct queue *)from->recv_cq)->cq,
		.srq = from->srq,
		.max_send_wr = from->max_send_wr,
		.max_recv_wr = from->max_recv_wr,
		.max_send_sge = from->max_sge,
		.max_recv_sge = from->max_sge,
		.max_inline = from->max_inline,
	};
	struct frl_qp *qp;
	int err = frl_qp_create(domain, &config, &qp);

	if (!err)
		*ret_qp = qp;
	return err;
}

int nic_qp_destroy(void *qp)
{
	frl_qp_destroy(qp);
	return 0;
}

uint32_t nic_qp_num(void *qp)
{
	return frl_qp_num(qp);
}

static void to_ah_attr(const struct nic_ah_attr *from, struct frl_ah_attr *to)
{
	memset(to, 0, sizeof(*to));
	memcpy(to->dgid.bytes, from->dgid, NIC_GID_SIZE);
	to->sgid_index = from->sgid_index;
	to->hop_limit = from->hop_limit;
	to->traffic_class = from->traffic_class;
	to->flow_label = from->flow_label;
}

int nic_qp_modify(void *qp, const struct nic_qp_attr *from, unsigned mask)
{
	struct frl_qp_attr attr = {
		.state = (enum frl_qp_state)from->state,
		.en_sqd_async_notify = from->en_sqd_async_notify,
		.access_flags = from->access_flags,
		.port_num = 1,
		.qkey = from->qkey,
		.path_mtu = from->path_mtu,
		.dest_qpn = from->dest_qpn,
		.rq_psn = from->rq_psn,
		.sq_psn = from->sq_psn,
		.max_rd_atomic = from->max_rd_atomic,
		.max_dest_rd_atomic = from->max_dest_rd_atomic,
		.min_rnr_timer = from->min_rnr_timer,
		.timeout = from->timeout,
		.retry_cnt = from->retry_cnt,
		.rnr_retry = from->rnr_retry,
	};

	to_ah_attr(&from->ah, &attr.ah);
	return frl_qp_modify(qp, &attr, mask);
}

int nic_qp_state(void *qp)
{
	struct frl_qp_attr attr;

	frl_qp_query(qp, &attr);
	return (int)attr.state;
}

int nic_qp_attach(void *qp, const uint8_t gid[NIC_GID_SIZE])
{
	struct frl_ip group;

	memcpy(group.bytes, gid, NIC_GID_SIZE);
	return frl_attach_mcast(qp, &group);
}

int nic_ah_create(const struct nic_ah_attr *attr, void **ret_ah)
{
	struct frl_ah_attr to;
	struct frl_ah *ah;
	int err;

	to_ah_attr(attr, &to);
	err = frl_ah_create(domain, &to, &ah);
	if (!err)
		*ret_ah = ah;
	return err;
}

int nic_ah_destroy(void *ah)
{
	frl_ah_destroy(ah);
	return 0;
}

static void to_sges(const struct nic_sge *from, int n, struct frl_sge to[])
{
	for (int i = 0; i < n; i++)
		to[i] = (struct frl_sge){ (void *)(uintptr_t)from[i].addr, from[i].length,
			from[i].lkey };
}

int nic_post_send(void *qp, const struct nic_send_wr *from)
{
	struct frl_sge sge[NIC_MAX_SGE];
	struct frl_send_wr wr = {
		.wr_id = from->wr_id,
		.opcode = (enum frl_wr_opcode)from->opcode,
		.flags = from->flags,
		.sge = sge,
		.n_sge = from->n_sge,
		.imm_data = htonl(from->imm_data),
		.remote_addr = from->remote_addr,
		.rkey = from->rkey,
		.compare_add = from->compare_add,
		.swap = from->swap,
		.ah = from->ah,
		.remote_qpn = from->remote_qpn,
		.remote_qkey = from->remote_qkey,
		.bind = {
			.mw = from->bind_mw,
			.mr = from->bind_mr,
			.addr = from->bind_addr,
			.length = from->bind_length,
			.rkey = from->bind_rkey,
			.access = from->bind_access,
		},
	};
	int rc;

	to_sges(from->sge, from->n_sge, sge);
	if (from->opcode == FRL_WR_SEND_WITH_INV || from->opcode == FRL_WR_LOCAL_INV)
		wr.invalidate_rkey = from->invalidate_rkey;
	rc = frl_post_send(qp, &wr, 1, NULL);
	return rc < 0 ? rc : 0;
}

int nic_post_recv(void *qp, const struct nic_recv_wr *from)
{
	struct frl_sge sge[NIC_MAX_SGE];
	struct frl_recv_wr wr = { .wr_id = from->wr_id, .sge = sge, .n_sge = from->n_sge };
	int rc;

	to_sges(from->sge, from->n_sge, sge);
	rc = frl_post_recv(qp, &wr, 1, NULL);
	return rc < 0 ? rc : 0;
}

int nic_post_srq_recv(void *srq, const struct nic_recv_wr *from)
{
	struct frl_sge sge[NIC_MAX_SGE];
	struct frl_recv_wr wr = { .wr_id = from->wr_id, .sge = sge, .n_sge = from->n_sge };
	int rc;

	to_sges(from->sge, from->n_sge, sge);
	rc = frl_post_srq_recv(srq, &wr, 1, NULL);
	return rc < 0 ? rc : 0;
}

int nic_async_event(int timeout_ms)
{
	struct frl_async_event event;
	int err = frl_get_async_event(device, timeout_ms, &event);

	return err ? err : (int)event.type;
}

void nic_counters(char *line, size_t size)
{
	struct frl_stats stats;
	const char *name;
	uint64_t value;
	size_t n = 0;

	line[0] = '\0';
	frl_device_stats(device, &stats);
	for (size_t i = 0; !frl_stats_entry(&stats, i, &name, NULL, &value); i++)
		if (value && n < size)
			n += (size_t)snprintf(
				line + n, size - n, "%s=%llu ", name, (unsigned long long)value);
}
