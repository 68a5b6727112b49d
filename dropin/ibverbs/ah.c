/* SPDX-License-Identifier: BSD-3-Clause */
/* Address handles and multicast groups. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dropin/ibverbs/dropin.h"

enum { SL_MASK = 7 }; /* see cq.c: completions carry more than the service level */

static struct frl_ip ip_of(const union ibv_gid *gid)
{
	struct frl_ip ip;

	memcpy(ip.bytes, gid->raw, sizeof(ip.bytes));
	return ip;
}

int ah_attr_to_frl(const struct ibv_ah_attr *attr, struct frl_ah_attr *ret_attr)
{
	if (!attr->is_global)
		return dropin_refuse(
			EINVAL, "a path needs a GID (is_global, grh): RoCE has no other addresses");
	if (attr->port_num != PORT_NUM)
		return dropin_refuse(EINVAL, "a device has one port, number 1");
	*ret_attr = (struct frl_ah_attr){
		.dgid = ip_of(&attr->grh.dgid),
		.sgid_index = attr->grh.sgid_index,
		.hop_limit = attr->grh.hop_limit,
		.traffic_class = attr->grh.traffic_class,
		.sl = attr->sl & SL_MASK,
		.flow_label = attr->grh.flow_label & 0xfffff,
	};
	return 0;
}

void ah_attr_from_frl(const struct frl_ah_attr *attr, struct ibv_ah_attr *ret_attr)
{
	*ret_attr = (struct ibv_ah_attr){
		.grh = {
			.flow_label = attr->flow_label,
			.sgid_index = attr->sgid_index,
			.hop_limit = attr->hop_limit,
			.traffic_class = attr->traffic_class,
		},
		.sl = attr->sl,
		.is_global = 1,
		.port_num = PORT_NUM,
	};
	memcpy(ret_attr->grh.dgid.raw, attr->dgid.bytes, sizeof(attr->dgid.bytes));
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct frl_ah_attr wanted;
	struct dropin_ah *ah;
	int rc;

	if (ah_attr_to_frl(attr, &wanted))
		return NULL;
	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;
	rc = frl_ah_create(pd_use(pd), &wanted, &ah->frl);
	if (rc) {
		pd_unuse(pd);
		free(ah);
		dropin_errno(rc);
		return NULL;
	}
	ah->process = process_now();
	ah->ibv.context = pd->context;
	ah->ibv.pd = pd;
	return &ah->ibv;
}

int ibv_destroy_ah(struct ibv_ah *ibv)
{
	struct dropin_ah *ah = dropin_ah(ibv);

	if (ah->process != process_now())
		return 0;
	frl_ah_destroy(ah->frl);
	pd_unuse(ibv->pd);
	free(ah);
	return 0;
}

/* `grh` is the first 40 bytes of the receive buffer. An IPv4 header is at its end. */
int ibv_init_ah_from_wc(struct ibv_context *ibv, uint8_t port, struct ibv_wc *wc,
	struct ibv_grh *grh, struct ibv_ah_attr *ret_attr)
{
	const struct frl_wc received = { .flags = wc->wc_flags & FRL_WC_GRH };
	struct frl_ah_attr attr;
	int rc;

	if (port != PORT_NUM) {
		dropin_refuse(EINVAL, "a device has one port, number 1");
		return -1;
	}
	rc = frl_ah_attr_from_wc(dropin_context(ibv)->frl, &received, (const uint8_t *)grh, &attr);
	if (rc) {
		dropin_errno(rc);
		return -1;
	}
	ah_attr_from_frl(&attr, ret_attr);
	return 0;
}

struct ibv_ah *ibv_create_ah_from_wc(
	struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;

	if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr))
		return NULL;
	return ibv_create_ah(pd, &attr);
}

/* ---- multicast */

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct frl_ip group = ip_of(gid);
	int rc = frl_attach_mcast(dropin_qp(qp)->frl, &group);

	return rc ? dropin_errno(rc) : 0;
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct frl_ip group = ip_of(gid);
	int rc = frl_detach_mcast(dropin_qp(qp)->frl, &group);

	return rc ? dropin_errno(rc) : 0;
}
