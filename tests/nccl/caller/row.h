/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of the harness' rows. A row is a function that runs in a process of its own (solo), or
 * two: one that sends and one that receives (pair). These run in processes of their own, or both in
 * threads of one. Each side does as NCCL does: the thread that runs `side_run` is its "service"
 * thread (listen, connect, accept, registration, close). The row's function runs in a second
 * thread, "progress" (isend, irecv, test, flush). A row ends with a return, or with fail() or
 * skip(), which end the process.
 */
#ifndef TESTS_NCCL_ROW_H
#define TESTS_NCCL_ROW_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "tests/nccl/caller/plugin.h"

enum { MAX_COMMS = 16, MAX_SIDE_SETTINGS = 32, MAX_EXPECTED = 16, GUARD_BYTES = 256 };

enum row_flags {
	ROW_SLOW = 1 << 0,       /* only when asked for by name, or with --slow */
	ROW_PROCESSES = 1 << 1,  /* needs sides in processes of their own */
	ROW_GROUPS = 1 << 2,     /* needs grouped receives */
	ROW_THREADS = 1 << 3,    /* worth a run under ThreadSanitizer */
	ROW_NO_BARRIER = 1 << 4, /* the sides do not wait for each other at the end */
	ROW_SENDER_DIES = 1 << 5,
	ROW_RECEIVER_DIES = 1 << 6,
	ROW_BY_NAME = 1 << 7, /* for one kind of network or setting: only when asked for */
	ROW_GPU = 1 << 8,     /* also with slots on a GPU */
};

/* The set-up of a run, filled by harness.c and bench.c. */
struct setup {
	const char *path;
	int version; /* 0: the newest */
	int device[2];
	const char *netns[2];
	const char *settings[2][MAX_SIDE_SETTINGS]; /* NAME=VALUE for the environment */
	unsigned int n_settings[2];
	bool has_processes;
	int n_fused;      /* pairs use the first devices as one; 0: they do not */
	const char *meet; /* HOST:PORT where the receiver's side is; NULL: both are here */
	unsigned int own_side;
	int meeting; /* the socket there */
	bool is_verbose;
	int traffic_class;                  /* for NCCL's configuration; -1: none */
	unsigned int slow_ms;               /* calls that take longer count as blocking */
	unsigned int dead_s;                /* within which a peer that died is noticed */
	const char *expected[MAX_EXPECTED]; /* NAME=VALUE, see expected() */
	unsigned int n_expected;
	int log_fd;
};

/* Shared by a row's processes. */
struct report {
	char text[512];
	char plugin[64];
	int version;
};

/* Slots, each between guards, all in one registration. Aligned to 128 bytes. With --mem cuda they
 * are on a GPU, and `memory` is the processor's copy: see slot_give() and slot_take(). */
struct slots {
	uint8_t *memory;
	uint8_t *gpu; /* or NULL */
	size_t bytes;
	size_t size; /* of a slot */
	size_t stride;
	unsigned int n;
	void *mr;
};

struct side {
	const struct setup *setup;
	const struct row *row;
	unsigned int index; /* 0 sends (and connects), 1 receives (and listens) */
	int channel;        /* a socket to the other side */
	int other_channel;  /* that side's end, which is not this process's to keep; or -1 */
	struct plugin *net;
	void *context;
	int dev;
	unsigned int n_comms;
	void *comms[MAX_COMMS];
	struct nccl_properties_v12 properties;
	_Atomic bool is_finished; /* the progress thread has */
	/* Memory of requests in flight, of malloc(): unmapped and freed after the close. */
	struct slots *left;
};

struct row {
	const char *name;
	const char *what;
	void (*solo)(struct side *side);
	void (*send)(struct side *side);
	void (*recv)(struct side *side);
	void (*service)(struct side *side); /* beside the progress thread, on both sides */
	unsigned int flags;
	unsigned int n_comms; /* 0: one */
	unsigned int seconds; /* deadline; 0: 20 */
	int min_version;
};

extern const struct row setup_rows[];
extern const struct row data_rows[];
extern const struct row group_rows[];
extern const struct row flag_rows[];
extern const struct row thread_rows[];
extern const struct row fault_rows[];
extern const struct row life_rows[];
extern const struct row end_rows[];
extern const struct row tuner_rows[];
extern const struct row unpack_rows[];
extern const struct row share_rows[];

extern struct report *report;

/* Ends the process: the row has failed, or does not apply, with the reason. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define REQUIRE(condition, ...)            \
	do {                               \
		if (!(condition))          \
			fail(__VA_ARGS__); \
	} while (0)
/* A call that must succeed. */
#define MUST(call)                                                                             \
	do {                                                                                   \
		int result_ = (call);                                                          \
		REQUIRE(result_ == NCCL_SUCCESS, "%s:%d: %s gave %s", __FILE_NAME__, __LINE__, \
			#call, result_name(result_));                                          \
	} while (0)
#ifndef __FILE_NAME__
#define __FILE_NAME__ __FILE__
#endif

const char *result_name(int result);

/* Loads and initialises the plugin and picks the side's device. Calls fail() on errors. */
void side_open(struct side *side, struct plugin *net);
void side_close(struct side *side);
/* A pair row's side, from load to close. `net`: already loaded, by both threads; or NULL. */
void side_run(struct side *side, struct plugin *net);
/* Enters the environment and the network namespace of the setup for a side. */
void side_enter(const struct setup *setup, unsigned int index);
/* Connects `n` comms with the other side, on the calling thread. */
void side_connect(struct side *side, unsigned int n);
void side_disconnect(struct side *side);

/* One byte to, or from, the other side. hear() calls fail() when the other side has gone. */
void say(struct side *side, char what);
void hear(struct side *side, char what);
/* Whether the other side has sent a byte, or gone. */
bool has_news(const struct side *side);
void say_bytes(struct side *side, const void *data, size_t size);
void hear_bytes(struct side *side, void *data, size_t size);

/* Callbacks for plugins. The log goes to the setup's file. Parents of events are sides. */
void told_to(const struct setup *setup);
void harness_log(int level, unsigned long flags, const char *file, int line, const char *format,
	...) __attribute__((format(printf, 5, 6)));
int harness_profiler(void **event, int call, void *parent, int64_t plugin, void *data);
/* Whether a line at level WARN of this process matches an extended regular expression. */
bool harness_has_warned(const char *pattern);

/* A side's events so far. */
struct events {
	unsigned int started, stopped;
	unsigned int torn; /* of a length that is no multiple of 128 */
	uint64_t bytes;
};
struct events harness_events(const struct side *side);

/*
 * The expected values of a plugin, if the caller gave them (--expect NAME=VALUE, the first counts);
 * or NULL. "failure": the log line of a connection that fails. "speed", "latency", "maxComms",
 * "maxRecvs" and "regIsGlobal": of the first device. "pointers=gpu": devices take those of GPUs.
 * "unpack=1": NCCL's kernels unpack receives. "on=N": that many connections of unpack-quota can.
 * "warning=PATTERN": the log of unpack-properties.
 */
const char *expected(const struct side *side, const char *name);

/* Makes both ends of a connection in the calling thread, as the oldest NCCL probes. */
void self_connect(struct side *side, void **ret_send, void **ret_recv);
/* Sends `size` bytes over it and checks them. */
void self_transfer(struct side *side, void *send, void *recv, size_t size);
/* Both, and ends the connection. */
void self_try(struct side *side, size_t size);

/* Fills memory with bytes that identify their place: of message `key`, at `offset`. */
void pattern_fill(void *data, size_t size, uint64_t key);
/* Returns the offset of the first byte that differs, or -1. */
ssize_t pattern_find(const void *data, size_t size, uint64_t key);

extern bool slots_are_on_gpu; /* those that are created from now on */
void slots_create(struct slots *slots, unsigned int n, size_t size);
void slots_register(struct slots *slots, struct side *side, void *comm);
void slots_deregister(struct slots *slots, struct side *side, void *comm);
void slots_destroy(struct slots *slots);
/* From now on slots are in memory of the host. Call it before they are registered. */
void slots_leave_gpu(struct slots *slots);
uint8_t *slot_at(const struct slots *slots, unsigned int index);
/* The address for the plugin; on the host it is the same. */
uint8_t *slot_data(const struct slots *slots, unsigned int index);
/* For a GPU: slot_give() copies the processor's writes there, slot_take() copies the bytes back,
 * guards included. Created slots have been given. */
void slot_give(const struct slots *slots, unsigned int index);
void slot_take(const struct slots *slots, unsigned int index);
/* Checks the guards before and behind, and the poison of a slot from `from` on. */
void slot_poison(struct slots *slots, unsigned int index);
void slot_check(const struct slots *slots, unsigned int index, size_t from, const char *when);

/* Selects the side that posts all its requests before the other starts. */
enum stream_first { FIRST_NEITHER, FIRST_SEND, FIRST_RECV };

/*
 * A stream of messages on each of a side's comms, checked to the last byte: `in_flight` requests at
 * once, the oldest tested first. Slots are reused, and poisoned in between.
 */
struct stream {
	unsigned int n_messages; /* a comm; with groups: of groups */
	unsigned int in_flight;
	const size_t *sizes; /* taken in turns */
	unsigned int n_sizes;
	size_t capacity;    /* of a receive */
	unsigned int group; /* largest number of parts of a receive; 0: 1 */
	bool is_mixed;      /* groups of 1 to `group` parts in turns */
	bool has_same_tags;
	bool is_optional; /* receives ask for no completion */
	bool has_events;
	enum stream_first first;
	bool is_whole; /* the one that posts first is never refused */
	uint64_t key;
};

void stream_send(struct side *side, const struct stream *stream);
void stream_recv(struct side *side, const struct stream *stream);

/* Tests until the request is done. Calls fail() on an error. */
void await(struct side *side, void *request, int *sizes, const char *what);

#endif
