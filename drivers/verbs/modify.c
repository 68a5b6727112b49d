/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pair state transitions. Arguments that the specification forbids are refused here with the
 * name of the attribute. The kernel would only return EINVAL.
 */
#include "drivers/verbs/internal.h"

#include <stdio.h>

#include "lib/base/error.h"
#include "lib/base/qp_rules.h"

#define PRIVILEGED_QKEY 0x80000000u

_Static_assert(FRL_QP_STATE == (int)IBV_QP_STATE && FRL_QP_CUR_STATE == (int)IBV_QP_CUR_STATE &&
		FRL_QP_EN_SQD_ASYNC_NOTIFY == (int)IBV_QP_EN_SQD_ASYNC_NOTIFY &&
		FRL_QP_ACCESS_FLAGS == (int)IBV_QP_ACCESS_FLAGS &&
		FRL_QP_PKEY_INDEX == (int)IBV_QP_PKEY_INDEX && FRL_QP_PORT == (int)IBV_QP_PORT &&
		FRL_QP_QKEY == (int)IBV_QP_QKEY && FRL_QP_AV == (int)IBV_QP_AV &&
		FRL_QP_PATH_MTU == (int)IBV_QP_PATH_MTU && FRL_QP_TIMEOUT == (int)IBV_QP_TIMEOUT &&
		FRL_QP_RETRY_CNT == (int)IBV_QP_RETRY_CNT &&
		FRL_QP_RNR_RETRY == (int)IBV_QP_RNR_RETRY && FRL_QP_RQ_PSN == (int)IBV_QP_RQ_PSN &&
		FRL_QP_MAX_QP_RD_ATOMIC == (int)IBV_QP_MAX_QP_RD_ATOMIC &&
		FRL_QP_MIN_RNR_TIMER == (int)IBV_QP_MIN_RNR_TIMER &&
		FRL_QP_SQ_PSN == (int)IBV_QP_SQ_PSN &&
		FRL_QP_MAX_DEST_RD_ATOMIC == (int)IBV_QP_MAX_DEST_RD_ATOMIC &&
		FRL_QP_DEST_QPN == (int)IBV_QP_DEST_QPN,
	"masks are the same");

static enum ibv_qp_state state_to(enum frl_qp_state state)
{
	switch (state) {
	case FRL_QPS_RESET: return IBV_QPS_RESET;
	case FRL_QPS_INIT: return IBV_QPS_INIT;
	case FRL_QPS_RTR: return IBV_QPS_RTR;
	case FRL_QPS_RTS: return IBV_QPS_RTS;
	case FRL_QPS_SQD: return IBV_QPS_SQD;
	case FRL_QPS_SQE: return IBV_QPS_SQE;
	case FRL_QPS_ERR: return IBV_QPS_ERR;
	}
	return IBV_QPS_UNKNOWN;
}

static enum ibv_mtu mtu_to(uint32_t bytes)
{
	switch (bytes) {
	case 256: return IBV_MTU_256;
	case 512: return IBV_MTU_512;
	case 1024: return IBV_MTU_1024;
	case 2048: return IBV_MTU_2048;
	default: return IBV_MTU_4096;
	}
}

static int fail_modify(const struct verbs_qp *qp, const struct frl_qp_attr *attr, uint32_t mask,
	int rc, const char *why)
{
	return frl_fail(rc, "queue pair 0x%x, %s to %s: %s", qp->base.num,
		frl_qp_state_str(qp_state_of(qp)),
		mask & FRL_QP_STATE ? frl_qp_state_str(attr->state) : "the same state", why);
}

/* Returns the reason if this device cannot do what others can, or NULL. */
static const char *check_limits(const struct verbs_device *device, const struct frl_qp_attr *attr,
	uint32_t mask, char *text, size_t size)
{
	if ((mask & FRL_QP_PATH_MTU) && attr->path_mtu > device->active_mtu)
		snprintf(text, size,
			"path_mtu %u exceeds the port's %u: raise the MTU of its interface, or use "
			"less on both ends",
			attr->path_mtu, device->active_mtu);
	else if ((mask & FRL_QP_MAX_QP_RD_ATOMIC) && attr->max_rd_atomic > device->max_rd_atomic)
		snprintf(text, size, "max_rd_atomic %u is more than the %u of the device",
			attr->max_rd_atomic, device->max_rd_atomic);
	else if ((mask & FRL_QP_MAX_DEST_RD_ATOMIC) &&
		attr->max_dest_rd_atomic > device->max_dest_rd_atomic)
		snprintf(text, size, "max_dest_rd_atomic %u is more than the %u of the device",
			attr->max_dest_rd_atomic, device->max_dest_rd_atomic);
	else
		return NULL;
	return text;
}

/* For rxe seven retries mean an unlimited number, as with RNR retries. */
static uint8_t retry_cnt_to(const struct verbs_device *device, uint8_t retry_cnt)
{
	return device->is_rxe && retry_cnt == 7 ? 6 : retry_cnt;
}

/* Fields that are not in the mask are ignored. */
static struct ibv_qp_attr translate(
	const struct verbs_device *device, const struct frl_qp_attr *attr)
{
	return (struct ibv_qp_attr){
		.qp_state = state_to(attr->state),
		.cur_qp_state = state_to(attr->cur_state),
		.path_mtu = mtu_to(attr->path_mtu),
		.qkey = attr->qkey,
		.rq_psn = attr->rq_psn,
		.sq_psn = attr->sq_psn,
		.dest_qp_num = attr->dest_qpn,
		/* Permission to bind windows is a right of regions only. */
		.qp_access_flags = attr->access_flags & ~(uint32_t)FRL_ACCESS_MW_BIND,
		.pkey_index = attr->pkey_index,
		.en_sqd_async_notify = attr->en_sqd_async_notify,
		.max_rd_atomic = attr->max_rd_atomic,
		.max_dest_rd_atomic = attr->max_dest_rd_atomic,
		.min_rnr_timer = attr->min_rnr_timer,
		.port_num = device->port,
		.timeout = attr->timeout,
		.retry_cnt = retry_cnt_to(device, attr->retry_cnt),
		.rnr_retry = attr->rnr_retry,
	};
}

static void keep(struct frl_qp_attr *own, const struct frl_qp_attr *attr, uint32_t mask)
{
#define KEEP(bit, field)         \
	if (mask & FRL_QP_##bit) \
	own->field = attr->field
	KEEP(EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify);
	KEEP(ACCESS_FLAGS, access_flags);
	KEEP(PKEY_INDEX, pkey_index);
	KEEP(PORT, port_num);
	KEEP(QKEY, qkey);
	KEEP(AV, ah);
	KEEP(PATH_MTU, path_mtu);
	KEEP(TIMEOUT, timeout);
	KEEP(RETRY_CNT, retry_cnt);
	KEEP(RNR_RETRY, rnr_retry);
	KEEP(RQ_PSN, rq_psn);
	KEEP(MAX_QP_RD_ATOMIC, max_rd_atomic);
	KEEP(MIN_RNR_TIMER, min_rnr_timer);
	KEEP(SQ_PSN, sq_psn);
	KEEP(MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	KEEP(DEST_QPN, dest_qpn);
#undef KEEP
}

static void clear_attributes(struct verbs_qp *qp)
{
	qp->attr = (struct frl_qp_attr){ 0 };
	qp->error_status = FRL_WC_SUCCESS;
	qp->vendor_error = 0;
	qp->error[0] = '\0';
	qp->error_ns = 0;
}

static void done(struct verbs_qp *qp, const struct frl_qp_attr *attr, uint32_t mask)
{
	if ((mask & FRL_QP_STATE) && attr->state == FRL_QPS_RESET)
		clear_attributes(qp);
	keep(&qp->attr, attr, mask);
	/* The port's MTU limits datagrams. */
	if (is_datagram(&qp->base))
		qp->attr.path_mtu = qp->base.pd->device->attr.path_mtu;
	atomic_store(&qp->qkey, qp->attr.qkey);
	if (mask & FRL_QP_STATE)
		verbs_qp_set_state(qp, attr->state);
}

static int refused(struct verbs_qp *qp, const struct frl_qp_attr *attr, uint32_t mask, int err)
{
	char why[REASON_SIZE];

	if ((mask & FRL_QP_AV) && verbs_is_silence(err)) {
		verbs_describe_silence(&attr->ah.dgid, why, sizeof(why));
		return fail_modify(qp, attr, mask, -EHOSTUNREACH, why);
	}
	if (err == EINVAL) {
		enum frl_qp_state before = qp_state_of(qp), now = before;

		/* A queue pair in ERR stays there until it is reset. */
		if (before != FRL_QPS_ERR)
			now = verbs_qp_query_state(qp);
		snprintf(why, sizeof(why), "the device refuses it (EINVAL): %s %s, and see dmesg",
			now == before ? "it is in" : "it is now in", frl_qp_state_str(now));
		return fail_modify(qp, attr, mask, -EINVAL, why);
	}
	/* For callers, these two errnos mean that neighbour resolution is in progress. */
	if (err == ETIMEDOUT)
		return fail_modify(qp, attr, mask, -EIO,
			"the device's firmware does not respond: see dmesg; if this persists, "
			"reset the device");
	if (err == EAGAIN)
		return fail_modify(qp, attr, mask, -EBUSY, "the device is busy: try again");
	if (err == EPERM && (mask & FRL_QP_QKEY) && (attr->qkey & PRIVILEGED_QKEY))
		return fail_modify(qp, attr, mask, -EPERM,
			"a qkey with bit 31 set is privileged: grant CAP_NET_RAW, or use a qkey "
			"without this bit");
	verbs_explain(err, why, sizeof(why));
	return fail_modify(qp, attr, mask, err == ENOSYS ? -ENOTSUP : -err, why);
}

/* Waits until no other thread modifies it. Releases the guard during the wait. */
static void wait_for_turn(struct verbs_qp *qp)
{
	struct frl_device *device = qp->base.pd->device;
	struct frl_backoff backoff;

	frl_backoff_reset(&backoff);
	while (qp->is_moving) {
		device_leave(device);
		frl_backoff_idle(&backoff);
		device_enter(device);
	}
}

/* Queries the state that could not be queried during the modify call. */
static void settle(struct verbs_qp *qp)
{
	const char *why = qp->query_reason;

	qp->needs_state_query = false;
	qp->query_reason = NULL;
	if (verbs_qp_query_state(qp) == FRL_QPS_ERR && why)
		verbs_qp_note_error(qp, why);
}

/* Returns 0 or an errno. The kernel may resolve a neighbour, and the firmware may be slow. The
 * guard is released during the call, because other threads need it, including the one for
 * events. */
static int move(struct verbs_qp *qp, struct ibv_qp_attr *attr, uint32_t mask)
{
	struct frl_device *device = qp->base.pd->device;
	int rc;

	qp->is_moving = true;
	device_leave(device);
	rc = ibv_modify_qp(qp->qp, attr, (int)mask);
	if (rc)
		rc = verbs_errno(rc);
	device_enter(device);
	qp->is_moving = false;
	qp->changes++;
	if (qp->needs_state_query)
		settle(qp);
	return rc;
}

/* A failure was recorded during the call, which overrides the new state. The device may not know
 * it. */
static bool has_failed_meanwhile(const struct verbs_qp *qp, enum frl_qp_state before,
	const struct frl_qp_attr *attr, uint32_t mask)
{
	if ((mask & FRL_QP_STATE) && (attr->state == FRL_QPS_RESET || attr->state == FRL_QPS_ERR))
		return false;
	return before != FRL_QPS_ERR && qp_state_of(qp) == FRL_QPS_ERR;
}

static int failed_meanwhile(struct verbs_qp *qp, const struct frl_qp_attr *attr, uint32_t mask)
{
	char reason[REASON_SIZE], why[REASON_SIZE + 32];

	verbs_qp_to_error(qp);
	verbs_qp_describe_error(&qp->base, reason, sizeof(reason));
	snprintf(why, sizeof(why), "it has failed meanwhile: %s",
		*reason ? reason : "its completions have the reason");
	return fail_modify(qp, attr, mask, -EINVAL, why);
}

static int check_and_move(struct verbs_qp *qp, const struct frl_qp_attr *attr, uint32_t mask)
{
	const struct verbs_device *device = device_of_pd(qp->base.pd);
	enum frl_qp_state before = qp_state_of(qp);
	const struct qp_rules_subject subject = { qp->base.type, before, true };
	struct ibv_qp_attr translated = translate(device, attr);
	char text[REASON_SIZE];
	const char *why = qp_rules_check(&subject, attr, mask);
	int err;

	if (!why)
		why = check_limits(device, attr, mask, text, sizeof(text));
	if (!why && (mask & FRL_QP_AV))
		verbs_fill_path(device, &attr->ah, &translated.ah_attr, &why);
	if (why)
		return fail_modify(qp, attr, mask, -EINVAL, why);
	/* Hardware packets have an ICRC, independent of what was negotiated. */
	mask &= ~(uint32_t)FRL_QP_CAPABILITIES;
	err = move(qp, &translated, mask);
	if (has_failed_meanwhile(qp, before, attr, mask))
		return failed_meanwhile(qp, attr, mask);
	if (err)
		return refused(qp, attr, mask, err);
	done(qp, attr, mask);
	return 0;
}

int verbs_qp_modify(struct frl_qp *base, const struct frl_qp_attr *attr, uint32_t mask)
{
	struct verbs_qp *qp = verbs_qp(base);

	wait_for_turn(qp);
	return check_and_move(qp, attr, mask);
}

int verbs_qp_unanswered(struct frl_qp *base, const struct frl_qp_attr *attr, uint32_t mask)
{
	return refused(verbs_qp(base), attr, mask | FRL_QP_AV, EHOSTUNREACH);
}

void verbs_qp_to_error(struct verbs_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	int rc = qp->is_moving ? 0 : ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE);

	/* A queue pair of a failed device makes no progress either. */
	if (rc && !atomic_load(&device_of_pd(qp->base.pd)->is_fatal))
		verbs_warn(verbs_errno(rc), "cannot move a queue pair to ERR");
	verbs_qp_set_state(qp, FRL_QPS_ERR);
}
