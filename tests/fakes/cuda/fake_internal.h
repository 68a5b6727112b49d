/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations that the files of the double share. fake.lock guards everything, unless noted. */
#ifndef FERRULE_TESTS_FAKES_CUDA_FAKE_INTERNAL_H
#define FERRULE_TESTS_FAKES_CUDA_FAKE_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpudirect/kernels/batch.h"
#include "tests/fakes/cuda/driver.h"
#include "tests/fakes/cuda/fake_libcuda.h"

#define FAKE_EXPORT __attribute__((visibility("default")))

enum {
	FAKE_PAGE = 4096,
	FAKE_CONTEXTS = 64, /* at a time */
	FAKE_DEPTH = 32,    /* of a thread's stack of contexts */
	FAKE_FAULT_TEXT = 256,
};

/* Device addresses: reserved without any right. The bytes of an allocation lie at the same offset
 * in the other window. */
#define FAKE_WINDOW (64ull << 30)

struct fake_context {
	bool is_alive;
	bool is_primary;
	int device;
	unsigned flags;
	uint64_t id;
	unsigned retained; /* of a primary one */
	cu_result fatal;   /* 0, or what every call gives from then on */
	struct fake_stream *legacy, *per_thread;
};

/* The bytes behind device addresses: a file of their own. */
struct fake_block {
	int fd;
	uint64_t size; /* a multiple of FAKE_CUDA_BLOCK */
	int device;
	uint64_t id;
	unsigned holders; /* mappings, allocations, and the handle */
	bool is_rdma_capable;
	unsigned n_handles;      /* of cuMemCreate(): as often as they are to be released */
	struct fake_block *next; /* of those of cuMemCreate() */
};

enum fake_range_kind {
	FAKE_DEVICE,
	FAKE_POOL,
	FAKE_MANAGED,
	FAKE_HOST_ALLOCATED,
	FAKE_HOST_REGISTERED,
	FAKE_MAPPING,     /* cuMemMap(), */
	FAKE_RESERVATION, /* in one of these */
	FAKE_SHARED,      /* blocks of which small allocations are parts */
};

/* Address ranges with a meaning to the GPU. */
struct fake_range {
	enum fake_range_kind kind;
	uint64_t base, size; /* of the GPU's addresses; 0: none (registered without DEVICEMAP) */
	uint8_t *real;       /* where the bytes are */
	bool real_is_apart;  /* of registered memory: `base` is an address of the device's window */
	uint8_t *host;       /* what the processor calls it; NULL: nothing */
	uint64_t host_size;
	struct fake_context *context; /* NULL: none in particular */
	uint64_t context_id;
	int device;
	uint64_t buffer_id;
	unsigned flags;
	unsigned sync_memops;
	int access; /* of a mapping */
	struct fake_block *block;
	uint64_t block_offset;
	struct fake_range *next;
};

enum fake_work_kind {
	FAKE_KERNEL,
	FAKE_COPY,
	FAKE_SET,
	FAKE_FUNCTION,
	FAKE_RECORD,
	FAKE_WAIT,
	FAKE_FREE,
};

struct fake_work {
	enum fake_work_kind kind;
	uint64_t sequence; /* as it was queued, all streams together */
	uint64_t dst, src, size;
	bool is_dst_host, is_src_host; /* pageable memory, in a copy */
	uint8_t value;
	cu_host_function function;
	void *user_data;
	struct fake_event *event;
	uint64_t generation; /* of the event */
	unsigned grid, block;
	struct gpu_batch_many *batch; /* of a small parameter as well */
	uint8_t *staged;              /* the source, where it was taken at once */
	uint8_t *to, *from;           /* while it runs */
	struct fake_work *next;
};

struct fake_stream {
	bool is_alive; /* else it goes when its work is done */
	bool is_legacy;
	unsigned flags;
	int priority;
	bool is_held;
	struct fake_context *context;
	struct fake_work *first, **last;
	struct fake_work *running;
	int capture;          /* cu_capture_status */
	cu_capture_mode mode; /* of the capture */
	uint64_t capture_thread;
	struct fake_stream *next;
};

struct fake_event {
	bool is_alive;
	struct fake_context *context;
	uint64_t recorded, done; /* generations */
	bool is_captured;
	unsigned pending; /* works that refer to it */
	struct fake_event *next;
};

struct fake_module {
	struct fake_context *context;
	bool is_loaded[2]; /* the functions, ferrule_work first */
	bool is_launched;  /* one of them, once */
	char many; /* its address stands for ferrule_work_many, the module's for ferrule_work */
	struct fake_module *next;
};

struct fake_device {
	uint64_t used; /* bytes */
	struct fake_context *primary;
};

struct fake_world {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* anything of the work */

	/* Settings; they are there before cuInit(). */
	bool is_set;
	int n_devices, version;
	cu_module_loading_mode loading; /* 0: as drivers of this version by default */
	uint64_t memory;
	bool is_host_apart, is_pcie, is_held, is_one_id;
	uint64_t host_limit;
	unsigned delay_us;
	uint64_t random;
	bool tells_leaks;

	pid_t owner;     /* who called cuInit(); 0: nobody */
	uint64_t number; /* reset() counts it up */
	uint64_t next_id, next_sequence;
	uint64_t host_used;
	unsigned n_blocks; /* each has a descriptor */
	struct fake_device devices[FAKE_CUDA_MAX_DEVICES];
	struct fake_context contexts[FAKE_CONTEXTS];
	struct fake_range *ranges; /* by address */
	struct fake_block *handles;
	struct fake_stream *streams;
	struct fake_event *events;
	struct fake_module *modules;
	uint8_t *device_window, *real_window; /* of FAKE_WINDOW bytes */

	bool is_capture_elsewhere;
	unsigned n_keepers; /* calls that keep calls of other threads out just now */
	pthread_t keeper;
	bool is_thread_running, is_ending;
	unsigned pausing; /* who waits for that to end: nothing else begins meanwhile */
	unsigned steps;   /* that step() still allows */
	struct fake_cuda_stats stats;
	char fault[FAKE_FAULT_TEXT];
};
extern struct fake_world fake;

/* ---- fake_enter.c */

/* The conditions of a call. */
enum {
	FAKE_NO_INIT = 1,   /* may be called before cuInit() */
	FAKE_CONTEXTED = 2, /* a current context, which works */
	FAKE_UNSAFE = 4,    /* not while a stream is captured */
	FAKE_QUIET = 8,     /* is not among "any function" of fail_call() */
};
/* Takes the lock, whatever it returns. The call must do nothing unless that is 0. */
cu_result fake_enter(const char *name, unsigned needs);
/* Releases the lock. Returns its argument. */
cu_result fake_leave(cu_result result);
/* Returns the failure that fail_call() has planned for "work"; 0: none. */
cu_result fake_work_failure(void);
void fake_failures_reset(void);
void fake_fail_call(const char *name, unsigned nth, cu_result result, unsigned times);
const char *fake_failed(void);
unsigned fake_calls(const char *name);
uint64_t fake_random(void);

/* ---- fake_control.c */

/* Reads the settings if they have not been read yet. */
void fake_settings(void);
void fake_live(unsigned live[FAKE_CUDA_KINDS]);

/* ---- fake_procs.c */
void fake_set_missing(const char *name);

/* ---- fake_device.c */
int fake_attribute(int device, cu_device_attribute attribute);
void fake_set_attribute(int ordinal, cu_device_attribute attribute, int value);
void fake_attributes_reset(void);

/* ---- fake_context.c */

/* The calling thread's context. *ret_context is NULL if there is none or it is destroyed. */
cu_result fake_current(struct fake_context **ret_context);
/* Returns the context of a handle, or NULL if it is none or not alive. */
struct fake_context *fake_context_of(cu_context context);
cu_context fake_context_handle(const struct fake_context *context);
void fake_contexts_reset(void);
unsigned fake_context_depth(void);

/* Waits until all its work is done. No other thread's call begins meanwhile. */
cu_result fake_context_wait(struct fake_context *context);

/* ---- fake_memory.c */
int fake_windows_make(void);
/* Returns the allocation of [address, address + size) by the GPU's addresses; NULL: none, or not
 * one alone. */
struct fake_range *fake_range_at(uint64_t address, uint64_t size);
/* The same by the processor's addresses. */
struct fake_range *fake_range_of_host(const void *host, uint64_t size);
struct fake_range *fake_range_add(const struct fake_range *range);
void fake_range_remove(struct fake_range *range);
/* Returns free addresses of the device's window, at a multiple of `alignment`; 0: there are
 * none. */
uint64_t fake_address(uint64_t size, uint64_t alignment);
/* Returns where the processor finds the bytes of a device address. */
uint8_t *fake_real(uint64_t address);
struct fake_block *fake_block_new(int device, uint64_t size);
void fake_block_put(struct fake_block *block);
bool fake_block_map(struct fake_block *block, uint64_t offset, uint64_t address, uint64_t size);
void fake_block_unmap(uint64_t address, uint64_t size);
void fake_range_free(struct fake_range *range);
/* Frees the objects of a context (NULL: of all). */
void fake_memory_drop(const struct fake_context *context);

/* ---- fake_virtual.c */
cu_result fake_make_virtual(
	int ordinal, size_t reserved, unsigned n, bool is_rdma_capable, cu_deviceptr *ret_address);
cu_result fake_free_virtual(cu_deviceptr address);
void fake_virtual_reset(void);

/* ---- fake_export.c */
bool fake_dma_buf(int fd, cu_deviceptr *ret_address, size_t *ret_size);
unsigned fake_export_count(void);
void fake_exports_reset(void);

/* ---- fake_stream.c */

/* The stream of a handle in the current context: *ret_stream, or an error. */
cu_result fake_stream_of(cu_stream stream, struct fake_stream **ret_stream);
struct fake_stream *fake_stream_new(struct fake_context *context, unsigned flags, int priority);
void fake_stream_free(struct fake_stream *stream);
/* Queues a copy of this work. Returns CUDA_ERROR_STREAM_CAPTURE_* or 0. A captured stream accepts
 * the work and discards it. */
cu_result fake_queue(struct fake_stream *stream, const struct fake_work *work);
/* Waits until `done` is true or the context has failed. Releases the lock meanwhile. */
cu_result fake_wait(struct fake_context *context, bool (*is_so)(const void *), const void *what);
bool fake_stream_is_idle(const void *stream);
void fake_streams_drop(const struct fake_context *context);

/* ---- fake_event.c */
void fake_event_put(struct fake_event *event);
void fake_events_drop(const struct fake_context *context);

/* ---- fake_worker.c */
void fake_worker_start(void);
void fake_worker_stop(void);
bool fake_is_worker(void);
/* Waits until no work of the GPU runs. Releases the lock meanwhile, so pointers that were looked up
 * before may be stale. */
void fake_worker_pause(void);
/* Waits until no work of this context runs, functions of the host included. */
void fake_worker_pause_context(const struct fake_context *context);
void fake_work_free(struct fake_work *work);
unsigned fake_step(unsigned n);
void fake_settle(void);
unsigned fake_queued(void);
/* The context has failed: all its work is dropped. */
void fake_fatal(struct fake_context *context, cu_result result);

/* ---- fake_access.c */

/* The same without a message. With context NULL an allocation is enough. */
uint8_t *fake_find_bytes(
	const struct fake_context *context, uint64_t address, uint64_t size, bool is_written);

/* Returns the bytes that a context's work may touch; NULL, with fake.fault set: it must not. */
uint8_t *fake_reach(const struct fake_context *context, uint64_t address, uint64_t size,
	bool is_written, const char *what);

/* ---- fake_kernel.c */

/* Returns a batch with the locations of its bytes; false: some of them must not be touched. */
bool fake_kernel_translate(const struct fake_context *context, struct gpu_batch_many *batch);
/* Called without the lock. */
void fake_kernel_run(
	const struct gpu_batch_many *batch, unsigned grid, unsigned block, uint64_t seed);

/* ---- fake_module.c */
void fake_modules_drop(const struct fake_context *context);

/* ---- fake_capture.c */

/* Whether a potentially unsafe call of this thread is refused, which ends the capture. */
cu_result fake_capture_check(void);
/* A call that a captured stream cannot take, which ends the capture. */
cu_result fake_capture_conflict(struct fake_stream *stream);
/* The legacy stream while a stream that it waits for is captured. */
cu_result fake_capture_implicit(const struct fake_stream *stream);
int fake_capture_mode(void);
uint64_t fake_thread_id(void);

#endif
