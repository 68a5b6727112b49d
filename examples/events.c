/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sleep in epoll until a message arrives or the peer leaves. Completion channels and connections
 * have descriptors, so that they fit into any event loop. Listeners have one too.
 *
 * The server prints the messages of one client. The client sends the words of its command line.
 *
 * Build:   cc -o events events.c $(pkg-config --cflags --libs ferrule)
 * Run:     ./events words                        # the server
 *          ./events words localhost one two      # the client, in another terminal
 * Prints:  server: one
 *          server: two
 *          server: the client has left: the peer has closed the connection
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include <ferrule/ferrule.h>

enum { SLOTS = 8, SLOT_SIZE = 256 };

static char slots[SLOTS][SLOT_SIZE]; /* each has room for a message */
static struct frl_mr *mr;
static struct frl_cq *cq;
static struct frl_qp *qp;

/* Ends the program if a call failed. The library says why, and what to do. */
static void check(int err, const char *what)
{
	if (err >= 0)
		return;
	fprintf(stderr, "events: %s: %s\n", what, frl_last_error());
	exit(EXIT_FAILURE);
}

static void watch(int epoll, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	check(fd, "get a descriptor");
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) {
		perror("events: epoll_ctl");
		exit(EXIT_FAILURE);
	}
}

static void receive_into(uint64_t slot)
{
	struct frl_sge piece = { slots[slot], SLOT_SIZE, frl_mr_lkey(mr) };
	struct frl_recv_wr receive = { .wr_id = slot, .sge = &piece, .n_sge = 1 };

	check(frl_post_recv(qp, &receive, 1, NULL), "post a receive");
}

/* Takes all completions. When the connection ends, receives without a message are flushed. */
static void print_messages(void)
{
	struct frl_wc wc;
	int n;

	while ((n = frl_poll_cq(cq, 1, &wc)) > 0) {
		if (wc.status != FRL_WC_SUCCESS)
			continue;
		printf("server: %.*s\n", (int)wc.byte_len, slots[wc.wr_id]);
		receive_into(wc.wr_id);
	}
	check(n, "poll the completion queue");
}

static void serve(struct frl_device *device, struct frl_comp_channel *channel, const char *service)
{
	struct frl_listener *listener;
	struct epoll_event event;
	struct frl_conn *conn;
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	check(frl_listen(device, service, NULL, &listener), "offer the service");
	printf("server: waiting for a client\n");
	fflush(stdout);
	check(frl_wait_request(listener, -1, &conn), "wait for a client");
	check(frl_accept(conn, qp, NULL, 0, NULL), "accept");
	check(frl_conn_wait(conn, -1), "connect");
	/* Before frl_accept() the queue pair is in RESET. The client repeats early SENDs. */
	check(frl_req_notify_cq(cq, false), "request an event");
	for (uint64_t slot = 0; slot < SLOTS; slot++)
		receive_into(slot);
	watch(epoll, frl_comp_channel_fd(channel));
	watch(epoll, frl_conn_fd(conn));
	while (frl_conn_test(conn) == 0) {
		epoll_wait(epoll, &event, 1, -1);
		/* Request the next event first: completions after the last poll then raise it. */
		if (frl_get_cq_event(channel, 0, &cq) == 0)
			check(frl_req_notify_cq(cq, false), "request an event");
		print_messages();
	}
	print_messages();
	printf("server: the client has left: %s\n", frl_last_error());
	frl_conn_close(conn);
}

static void send_words(const char *service, const char *host, char **words)
{
	struct frl_conn *conn;

	check(frl_connect(qp, host, service, NULL, 0, NULL, &conn), "connect");
	check(frl_conn_wait(conn, -1), "connect");
	for (; *words; words++) {
		int length = snprintf(slots[0], SLOT_SIZE, "%s", *words);
		struct frl_sge piece = { slots[0], (uint32_t)length, frl_mr_lkey(mr) };
		struct frl_send_wr request = {
			.opcode = FRL_WR_SEND, .flags = FRL_SEND_SIGNALED, .sge = &piece, .n_sge = 1
		};
		struct frl_wc wc;

		check(frl_post_send(qp, &request, 1, NULL), "send");
		check(frl_cq_wait(cq, 1, &wc, -1), "wait for a completion");
		if (wc.status != FRL_WC_SUCCESS) {
			fprintf(stderr, "events: SEND: %s\n", frl_wc_status_str(wc.status));
			exit(EXIT_FAILURE);
		}
	}
	frl_conn_close(conn);
}

int main(int argc, char **argv)
{
	struct frl_qp_config config = { .max_send_wr = 1, .max_recv_wr = SLOTS };
	struct frl_comp_channel *channel;
	struct frl_device *device;
	struct frl_pd *pd;

	if (argc < 2) {
		fprintf(stderr, "usage: events SERVICE [HOST WORD...]\n");
		return 2;
	}
	check(frl_device_open(NULL, &device), "open a device");
	check(frl_pd_create(device, &pd), "create a protection domain");
	check(frl_reg_mr(pd, slots, sizeof(slots), FRL_ACCESS_LOCAL_WRITE, &mr), "register");
	check(frl_comp_channel_create(device, &channel), "create a completion channel");
	check(frl_cq_create_on_channel(device, 2 * SLOTS, channel, NULL, &cq), "create a queue");
	config.send_cq = config.recv_cq = cq;
	check(frl_qp_create(pd, &config, &qp), "create a queue pair");
	if (argc == 2)
		serve(device, channel, argv[1]);
	else
		send_words(argv[1], argv[2], argv + 3);
	return EXIT_SUCCESS; /* the rest ends with the process */
}
