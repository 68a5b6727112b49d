/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connect two processes by name, and WRITE into the memory of the other one.
 *
 * The server offers a service. When it accepts a connection, it sends the address and the key of a
 * buffer along as private data. The client writes a text into that buffer. The WRITE carries
 * immediate data, so it also completes a receive of the server.
 *
 * Build:   cc -o write write.c $(pkg-config --cflags --libs ferrule)
 * Run:     ./write hello                # the server
 *          ./write hello localhost      # the client, in another terminal
 * Prints:  server: the client wrote "written by the client", immediate data 42
 *          client: wrote 22 bytes
 */
#include <stdio.h>
#include <stdlib.h>

#include <ferrule/ferrule.h>

enum { BUFFER_SIZE = 4096, IMMEDIATE = 42 };

/* Where the client may write. */
struct target {
	uint64_t addr;
	uint32_t rkey;
};

static char buffer[BUFFER_SIZE];

/* Ends the program if a call failed. The library says what failed, why, and what to do. */
static void check(int err, const char *what)
{
	if (err >= 0)
		return;
	fprintf(stderr, "write: %s: %s\n", what, frl_last_error());
	exit(EXIT_FAILURE);
}

/* Waits for a completion without a time limit. If the peer dies, the request fails. */
static struct frl_wc wait_completion(struct frl_cq *cq, struct frl_qp *qp)
{
	struct frl_wc wc;
	char why[256];

	check(frl_cq_wait(cq, 1, &wc, -1), "wait for a completion");
	if (wc.status == FRL_WC_SUCCESS)
		return wc;
	fprintf(stderr, "write: a request failed: %s. %s\n", frl_wc_status_str(wc.status),
		frl_qp_error(qp, why, sizeof(why)));
	exit(EXIT_FAILURE);
}

static void serve(struct frl_device *device, const char *service, struct frl_qp *qp,
	struct frl_cq *cq, struct frl_mr *mr)
{
	struct target target = { .addr = (uintptr_t)buffer, .rkey = frl_mr_rkey(mr) };
	struct frl_recv_wr receive = { .wr_id = 1 }; /* no memory: only immediate data arrives */
	struct frl_listener *listener;
	struct frl_conn *conn;
	struct frl_wc wc;

	check(frl_listen(device, service, NULL, &listener), "offer the service");
	printf("server: waiting for a client\n");
	fflush(stdout);
	check(frl_wait_request(listener, -1, &conn), "wait for a client");
	check(frl_accept(conn, qp, &target, sizeof(target), NULL), "accept");
	check(frl_conn_wait(conn, -1), "connect");
	/*
	 * frl_accept() brings the queue pair from RESET, which accepts no receives, to RTS. The
	 * client's device repeats a WRITE that arrives before this receive (RNR retry).
	 */
	check(frl_post_recv(qp, &receive, 1, NULL), "post a receive");
	wc = wait_completion(cq, qp);
	/* The client may have left no zero byte at the end of the text. */
	printf("server: the client wrote \"%.*s\", immediate data %u\n", BUFFER_SIZE, buffer,
		wc.imm_data);
	frl_conn_close(conn);
	frl_listener_close(listener);
}

static void write_to(const char *host, const char *service, struct frl_qp *qp, struct frl_cq *cq,
	struct frl_mr *mr)
{
	struct frl_sge piece = { .addr = buffer, .lkey = frl_mr_lkey(mr) };
	struct frl_send_wr request = {
		.opcode = FRL_WR_RDMA_WRITE_WITH_IMM,
		.flags = FRL_SEND_SIGNALED,
		.sge = &piece,
		.n_sge = 1,
		.imm_data = IMMEDIATE,
	};
	struct target target = { 0 };
	struct frl_conn *conn;

	check(frl_connect(qp, host, service, NULL, 0, NULL, &conn), "connect");
	check(frl_conn_wait(conn, -1), "connect");
	if (frl_conn_private_data(conn, &target, sizeof(target)) != sizeof(target)) {
		fprintf(stderr, "write: the service is not of this program\n");
		exit(EXIT_FAILURE);
	}
	piece.length = (uint32_t)snprintf(buffer, sizeof(buffer), "written by the client") + 1;
	request.remote_addr = target.addr;
	request.rkey = target.rkey;
	check(frl_post_send(qp, &request, 1, NULL), "post the WRITE");
	wait_completion(cq, qp);
	printf("client: wrote %u bytes\n", piece.length);
	frl_conn_close(conn);
}

int main(int argc, char **argv)
{
	struct frl_qp_config config = { .max_send_wr = 1, .max_recv_wr = 1 };
	struct frl_device *device;
	struct frl_pd *pd;
	struct frl_mr *mr;
	struct frl_qp *qp;

	if (argc != 2 && argc != 3) {
		fprintf(stderr, "usage: write SERVICE [HOST]\n");
		return 2;
	}
	check(frl_device_open(NULL, &device), "open a device");
	check(frl_pd_create(device, &pd), "create a protection domain");
	check(frl_reg_mr(pd, buffer, sizeof(buffer),
		      FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE, &mr),
		"register the buffer");
	check(frl_cq_create(device, 2, &config.send_cq), "create a completion queue");
	config.recv_cq = config.send_cq;
	check(frl_qp_create(pd, &config, &qp), "create a queue pair");

	if (argc == 2)
		serve(device, argv[1], qp, config.recv_cq, mr);
	else
		write_to(argv[2], argv[1], qp, config.send_cq, mr);

	frl_qp_destroy(qp);
	check(frl_cq_destroy(config.send_cq), "destroy the completion queue");
	check(frl_dereg_mr(mr), "deregister the buffer");
	check(frl_pd_destroy(pd), "destroy the protection domain");
	check(frl_device_close(device), "close the device");
	return EXIT_SUCCESS;
}
