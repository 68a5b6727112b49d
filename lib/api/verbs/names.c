/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of enum values. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include <ferrule/event.h>
#include <ferrule/queue.h>
#include <ferrule/stats.h>

const char *frl_wc_status_str(enum frl_wc_status status)
{
	switch (status) {
	case FRL_WC_SUCCESS: return "success";
	case FRL_WC_LOC_LEN_ERR:
		return "local length error: the message does not fit the posted receive";
	case FRL_WC_LOC_QP_OP_ERR:
		return "local queue pair operation error: the queue pair could not carry the "
		       "request out";
	case FRL_WC_LOC_PROT_ERR:
		return "local protection error: the request's memory region was deregistered, or "
		       "does not allow it";
	case FRL_WC_WR_FLUSH_ERR:
		return "flushed: the queue pair went to the error state before the request was "
		       "done";
	case FRL_WC_MW_BIND_ERR:
		return "memory window bind error: the window is bound already, or the region does "
		       "not allow it: check MW_BIND, bounds, rights and the new key";
	case FRL_WC_BAD_RESP_ERR:
		return "bad response: the response of the peer matches no request";
	case FRL_WC_LOC_ACCESS_ERR: return "local access error";
	case FRL_WC_REM_INV_REQ_ERR:
		return "remote invalid request: the peer does not allow the operation, or its "
		       "receive "
		       "is too small";
	case FRL_WC_REM_ACCESS_ERR:
		return "remote access error: wrong rkey, or address range or rights outside the "
		       "peer's "
		       "region";
	case FRL_WC_REM_OP_ERR:
		return "remote operational error: the peer could not complete the request";
	case FRL_WC_RETRY_EXC_ERR:
		return "transport retries exhausted: the peer does not answer; check that it runs "
		       "(no debugger has stopped it) and the network, or raise FRL_ACK_TIMEOUT";
	case FRL_WC_RNR_RETRY_EXC_ERR:
		return "receiver-not-ready retries exhausted: the peer posts no receives";
	case FRL_WC_REM_INV_RD_REQ_ERR:
		return "remote invalid READ request: the peer refuses it; check both ends' "
		       "max_rd_atomic and max_dest_rd_atomic";
	case FRL_WC_REM_ABORT_ERR: return "the link to the peer is gone: its process has ended";
	case FRL_WC_FATAL_ERR: return "fatal error";
	case FRL_WC_RESP_TIMEOUT_ERR: return "response timeout: the peer does not answer";
	case FRL_WC_GENERAL_ERR: return "general error";
	}
	return "unknown status";
}

const char *frl_qp_state_str(enum frl_qp_state state)
{
	switch (state) {
	case FRL_QPS_RESET: return "RESET";
	case FRL_QPS_INIT: return "INIT";
	case FRL_QPS_RTR: return "RTR";
	case FRL_QPS_RTS: return "RTS";
	case FRL_QPS_SQD: return "SQD";
	case FRL_QPS_SQE: return "SQE";
	case FRL_QPS_ERR: return "ERR";
	}
	return "unknown state";
}

const char *frl_event_type_str(enum frl_event_type type)
{
	switch (type) {
	case FRL_EVENT_CQ_ERR: return "CQ_ERR";
	case FRL_EVENT_QP_FATAL: return "QP_FATAL";
	case FRL_EVENT_QP_REQ_ERR: return "QP_REQ_ERR";
	case FRL_EVENT_QP_ACCESS_ERR: return "QP_ACCESS_ERR";
	case FRL_EVENT_COMM_EST: return "COMM_EST";
	case FRL_EVENT_SQ_DRAINED: return "SQ_DRAINED";
	case FRL_EVENT_DEVICE_FATAL: return "DEVICE_FATAL";
	case FRL_EVENT_PORT_ACTIVE: return "PORT_ACTIVE";
	case FRL_EVENT_PORT_ERR: return "PORT_ERR";
	case FRL_EVENT_SRQ_ERR: return "SRQ_ERR";
	case FRL_EVENT_SRQ_LIMIT_REACHED: return "SRQ_LIMIT_REACHED";
	case FRL_EVENT_QP_LAST_WQE_REACHED: return "QP_LAST_WQE_REACHED";
	}
	return "unknown event";
}

static const struct {
	const char *name;
	const char *what;
	size_t offset;
} counters[] = {
#define COUNTER_ROW(member, text) { #member, text, offsetof(struct frl_stats, member) },
	FRL_COUNTERS(COUNTER_ROW)
#undef COUNTER_ROW
};

int frl_stats_entry(const struct frl_stats *stats, size_t index, const char **ret_name,
	const char **ret_what, uint64_t *ret_value)
{
	if (index >= sizeof(counters) / sizeof(counters[0]))
		return -ENOENT;
	if (ret_name)
		*ret_name = counters[index].name;
	if (ret_what)
		*ret_what = counters[index].what;
	if (ret_value)
		memcpy(ret_value, (const char *)stats + counters[index].offset, sizeof(*ret_value));
	return 0;
}
