/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/pingpong/compat.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	QKEY = 0x11111111, /* of ibv_ud_pingpong */
	SEND_ID = 1,       /* bits of the completions that are missing before the next send */
	RECV_ID = 2,
	MAX_WAIT_S = 3600,
	LINE_GAP = 64,
};

struct options {
	enum frl_qp_type type;
	bool srq;
	const char *server;
	uint64_t port, size, iters, rx_depth, n_qps, gid_index, traffic_class, sl, wait_s;
	struct device_options device;
};

/* `memory` has the message to send, followed by room for the received one. */
struct compat {
	const struct options *options;
	struct frl_device *device;
	struct frl_pd *pd;
	struct frl_cq *cq;
	struct frl_srq *srq;
	struct frl_mr *mr;
	struct frl_ah *ah;
	struct frl_qp *qps[COMPAT_MAX_QPS];
	struct compat_address mine[COMPAT_SRQ_LINES], theirs[COMPAT_SRQ_LINES];
	unsigned pending[COMPAT_MAX_QPS]; /* bits SEND_ID, RECV_ID */
	uint32_t path_mtu;
	uint8_t *memory;
	size_t receive_at, receive_size;
	uint64_t sent, received;
	unsigned posted_receives;
};

static const char help[] =
	"The peer of ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong or ibv_srq_pingpong.\n"
	"\n"
	"  ferrule-pingpong --compat ibv [options]           waits for a client\n"
	"  ferrule-pingpong --compat ibv [options] SERVER    connects to a server\n"
	"\n"
	"SERVER is a host for TCP, not the address of the data (--ip). Both ends need the same\n"
	"size, number of messages and path MTU, and GID indices (-g) of the same address family.\n"
	"\n"
	"  --type TYPE         rc, uc, ud or srq (default: rc)\n"
	"  --tcp-port PORT     TCP port of the exchange (default: 18515)\n"
	"  --size BYTES        size of a message (default: 4096; ud: 1024)\n"
	"  --iters N           messages in each direction (default: 1000)\n"
	"  --rx-depth N        posted receives (default: 500)\n"
	"  --num-qp N          queue pairs of srq, 1 to 16 (default: 16)\n"
	"  --gid-index N       index of the own address; 0 is the link-local one (default: 1)\n"
	"  --tclass N          traffic class, 0 to 255 (default: 0)\n"
	"  --sl N              service level, 0 to 7 (default: 0)\n"
	"  --wait S            fail if no message arrives for S seconds (default: 10)\n"
	"\n" DEVICE_HELP "\n"
	"The default path MTU is 1024, as in rdma-core's programs.\n"
	"\n"
	"Exit status: 0 success, 1 a failure, 2 invalid usage.\n";

enum {
	OPT_COMPAT = OPT_OWN,
	OPT_TYPE,
	OPT_TCP_PORT,
	OPT_SIZE,
	OPT_ITERS,
	OPT_RX_DEPTH,
	OPT_NUM_QP,
	OPT_GID_INDEX,
	OPT_TCLASS,
	OPT_SL,
	OPT_WAIT,
};

static const struct option long_options[] = {
	{ "compat", required_argument, NULL, OPT_COMPAT },
	{ "type", required_argument, NULL, OPT_TYPE },
	{ "tcp-port", required_argument, NULL, OPT_TCP_PORT },
	{ "size", required_argument, NULL, OPT_SIZE },
	{ "iters", required_argument, NULL, OPT_ITERS },
	{ "rx-depth", required_argument, NULL, OPT_RX_DEPTH },
	{ "num-qp", required_argument, NULL, OPT_NUM_QP },
	{ "gid-index", required_argument, NULL, OPT_GID_INDEX },
	{ "tclass", required_argument, NULL, OPT_TCLASS },
	{ "sl", required_argument, NULL, OPT_SL },
	{ "wait", required_argument, NULL, OPT_WAIT },
	DEVICE_LONG_OPTIONS,
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static int take_type(const char *value, struct options *o)
{
	static const struct {
		const char *name;
		enum frl_qp_type type;
	} types[] = {
		{ "rc", FRL_QPT_RC },
		{ "uc", FRL_QPT_UC },
		{ "ud", FRL_QPT_UD },
		{ "srq", FRL_QPT_RC },
	};

	for (unsigned i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		if (strcmp(value, types[i].name) == 0) {
			o->type = types[i].type;
			o->srq = strcmp(value, "srq") == 0;
			return 0;
		}
	}
	return usage_error("--type '%s': use rc, uc, ud or srq", value);
}

static int take_number(
	int code, const char *value, uint64_t min, uint64_t max, uint64_t *ret_number)
{
	if (parse_number(value, min, max, ret_number))
		return 0;
	return usage_error("--%s '%s': not a whole number from %ju to %ju",
		long_options[code - OPT_COMPAT].name, value, (uintmax_t)min, (uintmax_t)max);
}

static int take_option(int code, const char *value, struct options *o)
{
	switch (code) {
	case OPT_COMPAT:
		return strcmp(value, "ibv") == 0 ? 0 : usage_error("--compat '%s': use ibv", value);
	case OPT_TYPE: return take_type(value, o);
	case OPT_TCP_PORT: return take_number(code, value, 1, 65535, &o->port);
	case OPT_SIZE: return take_number(code, value, 1, 1 << 30, &o->size);
	case OPT_ITERS: return take_number(code, value, 1, 100000000, &o->iters);
	case OPT_RX_DEPTH: return take_number(code, value, 1, 16384, &o->rx_depth);
	case OPT_NUM_QP: return take_number(code, value, 1, COMPAT_MAX_QPS, &o->n_qps);
	case OPT_GID_INDEX: return take_number(code, value, 0, FRL_MAX_GIDS - 1, &o->gid_index);
	case OPT_TCLASS: return take_number(code, value, 0, 255, &o->traffic_class);
	case OPT_SL: return take_number(code, value, 0, 7, &o->sl);
	case OPT_WAIT: return take_number(code, value, 1, MAX_WAIT_S, &o->wait_s);
	case '?': return EXIT_USAGE;
	}
	return device_option(code, value, &o->device);
}

/* Parses the command line. Returns 0, EXIT_USAGE, or -1 if there is nothing else to do. */
static int parse_options(int argc, char **argv, struct options *o)
{
	int code, rc = 0;

	*o = (struct options){
		.type = FRL_QPT_RC,
		.port = 18515,
		.iters = 1000,
		.rx_depth = 500,
		.wait_s = 10,
		.n_qps = COMPAT_MAX_QPS,
		.gid_index = 1,
	};
	argv[0] = program_invocation_short_name; /* getopt prints it in messages */
	while (!rc && (code = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		if (code == 'h') {
			fputs(help, stdout);
			return -1;
		}
		rc = take_option(code, optarg, o);
	}
	if (!rc && optind < argc)
		o->server = argv[optind++];
	if (!rc && optind < argc)
		rc = usage_error("'%s': at most one server is allowed", argv[optind]);
	if (!o->srq)
		o->n_qps = 1;
	if (!o->size)
		o->size = o->type == FRL_QPT_UD ? 1024 : 4096;
	return rc ? rc : device_options_check(&o->device, 1);
}

static int post_receives(struct compat *c)
{
	struct frl_sge sge = {
		.addr = c->memory + c->receive_at,
		.length = (uint32_t)c->receive_size,
		.lkey = frl_mr_lkey(c->mr),
	};
	const struct frl_recv_wr wr = { .wr_id = RECV_ID, .sge = &sge, .n_sge = 1 };

	while (c->posted_receives < c->options->rx_depth) {
		int rc = c->srq ? frl_post_srq_recv(c->srq, &wr, 1, NULL)
				: frl_post_recv(c->qps[0], &wr, 1, NULL);

		if (rc < 0) {
			say_failure(rc, "cannot post a receive");
			return rc;
		}
		c->posted_receives++;
	}
	return 0;
}

static int post_send(struct compat *c, unsigned i)
{
	struct frl_sge sge = {
		.addr = c->memory,
		.length = (uint32_t)c->options->size,
		.lkey = frl_mr_lkey(c->mr),
	};
	const struct frl_send_wr wr = {
		.wr_id = SEND_ID,
		.opcode = FRL_WR_SEND,
		.flags = FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = 1,
		.ah = c->ah,
		.remote_qpn = c->theirs[i].qpn,
		.remote_qkey = QKEY,
	};
	int rc = frl_post_send(c->qps[i], &wr, 1, NULL);

	if (rc < 0) {
		say_failure(rc, "cannot send");
		return rc;
	}
	c->pending[i] = SEND_ID | RECV_ID;
	return 0;
}

static int create_queues(struct compat *c)
{
	const struct options *o = c->options;
	struct frl_qp_config config = {
		.type = o->type,
		.max_send_wr = 1,
		.max_recv_wr = (uint32_t)o->rx_depth,
	};
	const struct frl_srq_config srq = { .max_wr = (uint32_t)o->rx_depth };
	int rc = frl_cq_create(c->device, (uint32_t)(o->rx_depth + o->n_qps), &c->cq);

	if (!rc && o->srq)
		rc = frl_srq_create(c->pd, &srq, &c->srq);
	config.send_cq = config.recv_cq = c->cq;
	config.srq = c->srq;
	for (unsigned i = 0; i < o->n_qps && !rc; i++) {
		const struct frl_qp_attr attr = {
			.state = FRL_QPS_INIT, .port_num = 1, .qkey = QKEY
		};
		bool datagrams = o->type == FRL_QPT_UD;

		rc = frl_qp_create(c->pd, &config, &c->qps[i]);
		if (!rc)
			rc = frl_qp_modify(c->qps[i], &attr,
				FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT |
					(datagrams ? FRL_QP_QKEY : FRL_QP_ACCESS_FLAGS));
	}
	if (rc)
		say_failure(rc, "cannot create the queues");
	return rc;
}

/* Creates device, memory and queues, and the addresses for the peer. */
static int set_up(struct compat *c)
{
	const struct options *o = c->options;
	struct frl_device_attr attr;
	struct frl_gid gid;
	int rc = device_options_open(&o->device, 0, -1, &c->device);

	if (rc)
		return rc;
	frl_device_query(c->device, &attr);
	c->path_mtu = o->device.mtu || attr.path_mtu < 1024 ? attr.path_mtu : 1024;
	rc = frl_query_gid(c->device, (unsigned)o->gid_index, &gid);
	if (rc) {
		say_failure(rc, "--gid-index %" PRIu64, o->gid_index);
		return rc;
	}
	/* The two parts are at least a cache line apart, with room for a datagram's header. */
	c->receive_at = (o->size + LINE_GAP) & ~(size_t)(LINE_GAP - 1);
	c->receive_size = o->size + (o->type == FRL_QPT_UD ? FRL_GRH_SIZE : 0);
	c->memory = frl_mem_alloc(c->receive_at + c->receive_size);
	rc = c->memory ? frl_pd_create(c->device, &c->pd) : -ENOMEM;
	if (!rc)
		rc = frl_reg_mr(c->pd, c->memory, c->receive_at + c->receive_size,
			FRL_ACCESS_LOCAL_WRITE, &c->mr);
	if (rc) {
		say_failure(rc, "no memory for messages of %" PRIu64 " bytes", o->size);
		return rc;
	}
	memset(c->memory, 0x7b, o->size);
	rc = create_queues(c);
	for (unsigned i = 0; i < o->n_qps && !rc; i++)
		c->mine[i] = (struct compat_address){
			.qpn = frl_qp_num(c->qps[i]),
			.psn = (uint32_t)(now_ns() >> 7) & 0xffffff,
			.gid = gid.ip,
		};
	return rc ? rc : post_receives(c);
}

static int connect_one(
	struct compat *c, struct frl_qp *qp, const struct frl_ah_attr *ah, unsigned i)
{
	bool reliable = c->options->type == FRL_QPT_RC;
	struct frl_qp_attr attr = {
		.state = FRL_QPS_RTR,
		.ah = *ah,
		.path_mtu = c->path_mtu,
		.dest_qpn = c->theirs[i].qpn,
		.rq_psn = c->theirs[i].psn,
		.sq_psn = c->mine[i].psn,
		.max_rd_atomic = 1,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
	};
	uint32_t rtr = FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN | FRL_QP_RQ_PSN;
	uint32_t rts = FRL_QP_SQ_PSN;
	int rc;

	if (c->options->type == FRL_QPT_UD)
		rtr = 0;
	if (reliable) {
		rtr |= FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_MIN_RNR_TIMER;
		rts |= FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT | FRL_QP_RNR_RETRY |
			FRL_QP_MAX_QP_RD_ATOMIC;
	}
	rc = frl_qp_modify(qp, &attr, FRL_QP_STATE | rtr);
	if (rc)
		return rc;
	attr.state = FRL_QPS_RTS;
	return frl_qp_modify(qp, &attr, FRL_QP_STATE | rts);
}

static int connect_all(const struct compat_address theirs[], void *arg)
{
	struct compat *c = arg;
	const struct options *o = c->options;
	struct frl_ah_attr ah = {
		.dgid = theirs[0].gid,
		.sgid_index = (uint8_t)o->gid_index,
		.traffic_class = (uint8_t)o->traffic_class,
		.sl = (uint8_t)o->sl,
	};
	int rc = 0;

	for (unsigned i = 0; i < o->n_qps && !rc; i++)
		rc = connect_one(c, c->qps[i], &ah, i);
	if (!rc && o->type == FRL_QPT_UD)
		rc = frl_ah_create(c->pd, &ah, &c->ah);
	if (rc)
		say_failure(rc, "cannot connect to the peer's queue pair");
	return rc;
}

static unsigned index_of(const struct compat *c, uint32_t qpn)
{
	unsigned i = 0;

	while (c->mine[i].qpn != qpn)
		i++;
	return i;
}

static int take_completion(struct compat *c, const struct frl_wc *wc)
{
	unsigned i = index_of(c, wc->qp_num);

	if (wc->status != FRL_WC_SUCCESS) {
		say("a %s failed: %s", wc->wr_id == SEND_ID ? "send" : "receive",
			frl_wc_status_str(wc->status));
		return -EIO;
	}
	if (wc->wr_id == SEND_ID) {
		c->sent++;
	} else {
		c->received++;
		if (wc->byte_len != c->receive_size) {
			say("received a message of %u bytes instead of %zu: give both ends the "
			    "same size",
				wc->byte_len, c->receive_size);
			return -EMSGSIZE;
		}
		if (--c->posted_receives <= c->options->n_qps) {
			int rc = post_receives(c);

			if (rc)
				return rc;
		}
	}
	c->pending[i] &= ~(unsigned)wc->wr_id;
	/* Each end sends `iters` messages in total. */
	if (!c->pending[i] && c->sent < c->options->iters)
		return post_send(c, i);
	return 0;
}

static int play(struct compat *c)
{
	const struct options *o = c->options;
	struct frl_wc wc[16];
	int rc = 0;

	for (unsigned i = 0; i < o->n_qps && !rc; i++) {
		c->pending[i] = RECV_ID;
		if (o->server)
			rc = post_send(c, i);
	}
	while (!rc && (c->sent < o->iters || c->received < o->iters)) {
		int n = frl_cq_wait(c->cq, 16, wc, (int)o->wait_s * 1000);

		if (n < 0) {
			say_failure(n, "cannot poll for completions");
			rc = n;
		}
		if (n == 0) {
			say("no message for %" PRIu64 " s after %" PRIu64
			    " messages sent and %" PRIu64
			    " received: the peer is gone, or a message was lost",
				o->wait_s, c->sent, c->received);
			rc = -ETIMEDOUT;
		}
		for (int i = 0; i < n && !rc; i++)
			rc = take_completion(c, &wc[i]);
	}
	return rc;
}

static void tear_down(struct compat *c)
{
	frl_ah_destroy(c->ah);
	for (unsigned i = 0; i < COMPAT_MAX_QPS; i++)
		frl_qp_destroy(c->qps[i]);
	frl_srq_destroy(c->srq);
	frl_cq_destroy(c->cq);
	frl_dereg_mr(c->mr);
	frl_pd_destroy(c->pd);
	frl_device_close(c->device);
	if (c->memory)
		frl_mem_free(c->memory, c->receive_at + c->receive_size);
}

int compat_main(int argc, char **argv)
{
	struct options options;
	struct compat c = { .options = &options };
	uint64_t start_ns, ns;
	int rc = parse_options(argc, argv, &options);

	if (rc)
		return rc < 0 ? finish_output(EXIT_SUCCESS) : rc;
	rc = set_up(&c);
	if (!rc)
		rc = compat_exchange(options.server, (uint16_t)options.port, c.mine, c.theirs,
			options.srq ? COMPAT_SRQ_LINES : 1, connect_all, &c);
	start_ns = now_ns();
	if (!rc)
		rc = play(&c);
	ns = now_ns() - start_ns;
	if (!rc)
		printf("%" PRIu64 " messages of %" PRIu64 " bytes each way in %.3f s: %.2f us a "
		       "round trip, %.2f MB/s each way\n",
			options.iters, options.size, (double)ns / 1e9,
			(double)ns / 1e3 / (double)options.iters,
			(double)options.size * (double)options.iters * 1e3 / (double)ns);
	tear_down(&c);
	return finish_output(rc ? EXIT_FAILURE : EXIT_SUCCESS);
}
