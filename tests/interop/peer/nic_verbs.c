/* SPDX-License-Identifier: BSD-3-Clause */
/* The peer program's NIC by libibverbs: rxe in the guest, or any other RDMA device. */
#include "tests/interop/peer/nic.h"

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT = 1 };

struct queue {
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
};

static struct ibv_context *context;
static struct ibv_pd *domain;
static struct ibv_port_attr port_attr;

/* A queue pair in a multicast group; there is one at a time. */
static struct {
	struct ibv_qp *qp;
	union ibv_gid group;
	int fd;
} attached;

const char *const nic_backend = "verbs";

int nic_open(const char *device, const char *ip)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	for (int i = 0; i < n; i++)
		if (!context && !strcmp(ibv_get_device_name(list[i]), device))
			context = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	if (!context)
		return -ENODEV;
	domain = ibv_alloc_pd(context);
	if (!domain)
		return -errno;
	return -ibv_query_port(context, PORT, &port_attr);
}

void nic_close(void)
{
	ibv_dealloc_pd(domain);
	ibv_close_device(context);
}

static int mtu_bytes(int mtu)
{
	return 128 << mtu;
}

static enum ibv_mtu mtu_enum(uint32_t bytes)
{
	int mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && mtu_bytes(mtu) < (int)bytes)
		mtu++;
	return (enum ibv_mtu)mtu;
}

int nic_path_mtu(void)
{
	return mtu_bytes(port_attr.active_mtu);
}

int nic_gid(unsigned index, uint8_t gid[NIC_GID_SIZE])
{
	static const union ibv_gid none;
	union ibv_gid answer;

	if ((int)index >= port_attr.gid_tbl_len ||
		ibv_query_gid(context, PORT, (int)index, &answer) ||
		!memcmp(&answer, &none, sizeof(none)))
		return -ENOENT;
	memcpy(gid, answer.raw, NIC_GID_SIZE);
	return 0;
}

const char *nic_error(int err)
{
	return strerror(-err);
}

int nic_mr_create(void *addr, size_t length, const uint64_t *iova, uint32_t access, void **ret_mr)
{
	struct ibv_mr *mr = iova ? ibv_reg_mr_iova(domain, addr, length, *iova, access)
				 : ibv_reg_mr(domain, addr, length, (int)access);

	if (!mr)
		return -errno;
	*ret_mr = mr;
	return 0;
}

int nic_mr_destroy(void *mr)
{
	return -ibv_dereg_mr(mr);
}

uint32_t nic_mr_lkey(void *mr)
{
	return ((struct ibv_mr *)mr)->lkey;
}

uint32_t nic_mr_rkey(void *mr)
{
	return ((struct ibv_mr *)mr)->rkey;
}

int nic_mw_create(void **ret_mw)
{
	struct ibv_mw *mw = ibv_alloc_mw(domain, IBV_MW_TYPE_2);

	if (!mw)
		return -errno;
	*ret_mw = mw;
	return 0;
}

int nic_mw_destroy(void *mw)
{
	return -ibv_dealloc_mw(mw);
}

uint32_t nic_mw_rkey(void *mw)
{
	return ((struct ibv_mw *)mw)->rkey;
}

int nic_cq_create(uint32_t depth, void **ret_cq)
{
	struct queue *queue = calloc(1, sizeof(*queue));

	if (!queue)
		return -ENOMEM;
	queue->channel = ibv_create_comp_channel(context);
	if (queue->channel)
		queue->cq = ibv_create_cq(context, (int)depth, NULL, queue->channel, 0);
	if (!queue->cq) {
		if (queue->channel)
			ibv_destroy_comp_channel(queue->channel);
		free(queue);
		return -ENOMEM;
	}
	*ret_cq = queue;
	return 0;
}

int nic_cq_destroy(void *cq)
{
	struct queue *queue = cq;
	int err = ibv_destroy_cq(queue->cq);

	if (err)
		return -err;
	ibv_destroy_comp_channel(queue->channel);
	free(queue);
	return 0;
}

int nic_cq_poll(void *cq, struct nic_wc *ret_wc)
{
	struct queue *queue = cq;
	struct ibv_wc wc;
	int n = ibv_poll_cq(queue->cq, 1, &wc);

	if (n <= 0)
		return n < 0 ? -EIO : 0;
	*ret_wc = (struct nic_wc){
		.wr_id = wc.wr_id,
		.status = wc.status,
		.opcode = wc.opcode,
		.byte_len = wc.byte_len,
		.imm_data = wc.wc_flags & IBV_WC_WITH_INV ? wc.invalidated_rkey
							  : ntohl(wc.imm_data),
		.qp_num = wc.qp_num,
		.src_qp = wc.src_qp,
		.flags = wc.wc_flags,
	};
	return 1;
}

int nic_cq_arm(void *cq, bool solicited_only)
{
	return -ibv_req_notify_cq(((struct queue *)cq)->cq, solicited_only);
}

static bool readable(int fd, int timeout_ms)
{
	struct pollfd entry = { .fd = fd, .events = POLLIN };

	return poll(&entry, 1, timeout_ms) > 0;
}

int nic_cq_event(void *cq, int timeout_ms)
{
	struct queue *queue = cq;
	struct ibv_cq *which;
	void *arg;

	if (!readable(queue->channel->fd, timeout_ms))
		return 0;
	if (ibv_get_cq_event(queue->channel, &which, &arg))
		return -errno;
	ibv_ack_cq_events(which, 1);
	return 1;
}

int nic_srq_create(uint32_t max_wr, uint32_t max_sge, uint32_t limit, void **ret_srq)
{
	struct ibv_srq_init_attr init = {
		.attr = { .max_wr = max_wr, .max_sge = max_sge, .srq_limit = limit },
	};
	struct ibv_srq *srq = ibv_create_srq(domain, &init);
	int err;

	if (!srq)
		return -errno;
	err = limit ? nic_srq_set_limit(srq, limit) : 0;
	if (err)
		ibv_destroy_srq(srq);
	else
		*ret_srq = srq;
	return err;
}

int nic_srq_set_limit(void *srq, uint32_t limit)
{
	struct ibv_srq_attr attr = { .srq_limit = limit };

	return -ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT);
}

int nic_srq_destroy(void *srq)
{
	return -ibv_destroy_srq(srq);
}

int nic_qp_create(const struct nic_qp_config *config, void **ret_qp)
{
	struct ibv_qp_init_attr init = {
		.send_cq = ((struct queue *)config->send_cq)->cq,
		.recv_cq = ((struct queue *)config->recv_cq)->cq,
		.srq = config->srq,
		.cap = {
			.max_send_wr = config->max_send_wr,
			.max_recv_wr = config->max_recv_wr,
			.max_send_sge = config->max_sge,
			.max_recv_sge = config->max_sge,
			.max_inline_data = config->max_inline,
		},
		.qp_type = (enum ibv_qp_type)config->type,
	};
	struct ibv_qp *qp = ibv_create_qp(domain, &init);

	if (!qp)
		return -errno;
	*ret_qp = qp;
	return 0;
}

int nic_qp_destroy(void *qp)
{
	if (attached.qp == qp) {
		ibv_detach_mcast(qp, &attached.group, 0);
		close(attached.fd);
		attached.qp = NULL;
	}
	return -ibv_destroy_qp(qp);
}

uint32_t nic_qp_num(void *qp)
{
	return ((struct ibv_qp *)qp)->qp_num;
}

static void to_ah_attr(const struct nic_ah_attr *from, struct ibv_ah_attr *to)
{
	memset(to, 0, sizeof(*to));
	to->is_global = 1;
	to->port_num = PORT;
	memcpy(to->grh.dgid.raw, from->dgid, NIC_GID_SIZE);
	to->grh.sgid_index = from->sgid_index;
	to->grh.hop_limit = from->hop_limit;
	to->grh.traffic_class = from->traffic_class;
	to->grh.flow_label = from->flow_label;
}

int nic_qp_modify(void *qp, const struct nic_qp_attr *from, unsigned mask)
{
	struct ibv_qp_attr attr = {
		.qp_state = (enum ibv_qp_state)from->state,
		.port_num = PORT,
		.qp_access_flags = from->access_flags,
		.qkey = from->qkey,
		.dest_qp_num = from->dest_qpn,
		.rq_psn = from->rq_psn,
		.sq_psn = from->sq_psn,
		.max_rd_atomic = from->max_rd_atomic,
		.max_dest_rd_atomic = from->max_dest_rd_atomic,
		.min_rnr_timer = from->min_rnr_timer,
		.timeout = from->timeout,
		.retry_cnt = from->retry_cnt,
		.rnr_retry = from->rnr_retry,
		.en_sqd_async_notify = from->en_sqd_async_notify,
	};

	attr.path_mtu = mtu_enum(from->path_mtu);
	to_ah_attr(&from->ah, &attr.ah_attr);
	return -ibv_modify_qp(qp, &attr, (int)mask);
}

int nic_qp_state(void *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int err = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);

	return err ? -err : (int)attr.qp_state;
}

/* Verbs attach to a group, but the IP stack drops packets of groups that it has not joined. A user
 * of verbs without rdma_cm must join, too, on the network interface of the GIDs. Returns the socket
 * that has joined. */
static int join(const uint8_t gid[NIC_GID_SIZE])
{
	struct sockaddr_in6 addr = { .sin6_family = AF_INET6 };
	struct group_req request = { 0 };
	struct ibv_gid_entry entry;
	int fd, level = IPPROTO_IPV6;

	errno = ibv_query_gid_ex(context, PORT, 0, &entry, 0);
	if (errno)
		return -1;
	memcpy(addr.sin6_addr.s6_addr, gid, NIC_GID_SIZE);
	memcpy(&request.gr_group, &addr, sizeof(addr));
	request.gr_interface = entry.ndev_ifindex;
	if (IN6_IS_ADDR_V4MAPPED(&addr.sin6_addr)) {
		struct sockaddr_in four = { .sin_family = AF_INET };

		memcpy(&four.sin_addr, gid + 12, 4);
		memcpy(&request.gr_group, &four, sizeof(four));
		level = IPPROTO_IP;
	}
	fd = socket(level == IPPROTO_IP ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && setsockopt(fd, level, MCAST_JOIN_GROUP, &request, sizeof(request))) {
		close(fd);
		return -1;
	}
	return fd;
}

int nic_qp_attach(void *qp, const uint8_t gid[NIC_GID_SIZE])
{
	int err;

	if (attached.qp)
		return -EBUSY;
	memcpy(attached.group.raw, gid, NIC_GID_SIZE);
	attached.fd = join(gid);
	if (attached.fd < 0)
		return -errno;
	err = ibv_attach_mcast(qp, &attached.group, 0);
	if (err)
		close(attached.fd);
	else
		attached.qp = qp;
	return -err;
}

int nic_ah_create(const struct nic_ah_attr *attr, void **ret_ah)
{
	struct ibv_ah_attr to;
	struct ibv_ah *ah;

	to_ah_attr(attr, &to);
	ah = ibv_create_ah(domain, &to);
	if (!ah)
		return -errno;
	*ret_ah = ah;
	return 0;
}

int nic_ah_destroy(void *ah)
{
	return -ibv_destroy_ah(ah);
}

static void to_sges(const struct nic_sge *from, int n, struct ibv_sge to[])
{
	for (int i = 0; i < n; i++)
		to[i] = (struct ibv_sge){ from[i].addr, from[i].length, from[i].lkey };
}

static bool is_atomic(int opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

int nic_post_send(void *qp, const struct nic_send_wr *from)
{
	struct ibv_sge sge[NIC_MAX_SGE];
	struct ibv_send_wr wr = {
		.wr_id = from->wr_id,
		.sg_list = sge,
		.num_sge = from->n_sge,
		.opcode = (enum ibv_wr_opcode)from->opcode,
		.send_flags = from->flags,
		.imm_data = htonl(from->imm_data),
	}, *bad;
	int err;

	to_sges(from->sge, from->n_sge, sge);
	if (from->opcode == IBV_WR_SEND_WITH_INV || from->opcode == IBV_WR_LOCAL_INV)
		wr.invalidate_rkey = from->invalidate_rkey;
	if (from->ah) {
		wr.wr.ud.ah = from->ah;
		wr.wr.ud.remote_qpn = from->remote_qpn;
		wr.wr.ud.remote_qkey = from->remote_qkey;
	} else if (is_atomic(from->opcode)) {
		wr.wr.atomic.remote_addr = from->remote_addr;
		wr.wr.atomic.rkey = from->rkey;
		wr.wr.atomic.compare_add = from->compare_add;
		wr.wr.atomic.swap = from->swap;
	} else if (from->opcode == IBV_WR_BIND_MW) {
		wr.bind_mw.mw = from->bind_mw;
		wr.bind_mw.rkey = from->bind_rkey;
		wr.bind_mw.bind_info.mr = from->bind_mr;
		wr.bind_mw.bind_info.addr = from->bind_addr;
		wr.bind_mw.bind_info.length = from->bind_length;
		wr.bind_mw.bind_info.mw_access_flags = from->bind_access;
	} else {
		wr.wr.rdma.remote_addr = from->remote_addr;
		wr.wr.rdma.rkey = from->rkey;
	}
	err = -ibv_post_send(qp, &wr, &bad);
	/* The next bind is looked up by the window's key before it. */
	if (!err && from->opcode == IBV_WR_BIND_MW)
		wr.bind_mw.mw->rkey = from->bind_rkey;
	return err;
}

int nic_post_recv(void *qp, const struct nic_recv_wr *from)
{
	struct ibv_sge sge[NIC_MAX_SGE];
	struct ibv_recv_wr wr = { .wr_id = from->wr_id, .sg_list = sge, .num_sge = from->n_sge },
			   *bad;

	to_sges(from->sge, from->n_sge, sge);
	return -ibv_post_recv(qp, &wr, &bad);
}

int nic_post_srq_recv(void *srq, const struct nic_recv_wr *from)
{
	struct ibv_sge sge[NIC_MAX_SGE];
	struct ibv_recv_wr wr = { .wr_id = from->wr_id, .sg_list = sge, .num_sge = from->n_sge },
			   *bad;

	to_sges(from->sge, from->n_sge, sge);
	return -ibv_post_srq_recv(srq, &wr, &bad);
}

int nic_async_event(int timeout_ms)
{
	struct ibv_async_event event;
	int type;

	if (!readable(context->async_fd, timeout_ms))
		return -EAGAIN;
	if (ibv_get_async_event(context, &event))
		return -errno;
	type = event.event_type;
	ibv_ack_async_event(&event);
	return type;
}

void nic_counters(char *line, size_t size)
{
	line[0] = '\0';
}
