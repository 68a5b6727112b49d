/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A double of NVIDIA's driver library, for tests on machines without a GPU: libcuda.so.1 in this
 * folder of the build. It says nothing about GPUs; what it takes for granted about the driver is in
 * tests/unit/gpudirect/test_cuda_rules*.c, which run on NVIDIA's unchanged.
 *
 * It follows cuda.h 13.0, and where that leaves room the stricter reading:
 *  - Device memory has addresses that the processor must not touch (they are mapped without any
 *    right). Kernels and copies find it at another place, and only what is allocated when they run:
 *    anything else is CUDA_ERROR_ILLEGAL_ADDRESS (700), for good, for the whole context.
 *  - Addresses are used again as soon as they are free, buffer IDs never. With contexts and their
 *    IDs it is the same.
 *  - Allocations below 1 MiB lie in blocks of 2 MiB, at multiples of 512.
 *  - Memory of a context is not that of another one; that of pools and of cuMemMap() is no
 *    context's (CU_POINTER_ATTRIBUTE_CONTEXT is NULL).
 *  - No page of host memory is registered twice (712), not even for other bytes of it.
 *  - cuMemFree(), cuMemHostUnregister() and the like wait for what runs just now, not for what is
 *    queued: that fails when it is its turn, if it touches that memory.
 *  - Work runs in a thread of the double, that of one stream in order, one piece at a time, streams
 *    in random order; functions of the host run in a second one. The legacy stream waits for the
 *    blocking ones of its context, and they for it.
 *  - While a stream is captured in the global mode, in any thread, calls that allocate, free,
 *    register, load, query or synchronize fail with CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900),
 *    and end the capture, unless their thread has exchanged its mode.
 *  - A function whose module is loaded lazily is loaded when it is first asked for, which waits for
 *    all that is queued in its context; calls of other threads begin only after that.
 *  - A process that was forked after cuInit() gets CUDA_ERROR_NOT_INITIALIZED.
 *  - The kernels ferrule_work and ferrule_work_many are gpudirect/kernels/work_body.h, all threads
 *    in random order. Any image will do for a module, and has both.
 *  - A kernel's parameters have 4096 bytes at most before CUDA 12.1, and 32764 since: others are
 *    CUDA_ERROR_NOT_SUPPORTED when they are launched.
 *
 * Tests find it by fake_cuda_find(), which loads libcuda.so.1 and returns NULL where that is not
 * the double. Every function of the table may be called from any thread. Tests call reset() first.
 *
 * For tests of programs, some things are in the environment, read at the first call and by reset():
 *   FAKE_CUDA_DEVICES      how many devices (1); 0: cuInit() gives CUDA_ERROR_NO_DEVICE
 *   FAKE_CUDA_VERSION      of the driver (13000)
 *   FAKE_CUDA_LOADING      of modules: eager or lazy (else as CUDA_MODULE_LOADING says, as with
 *                          NVIDIA's driver; else lazy from version 12020 on)
 *   FAKE_CUDA_MEMORY       MiB of a device (1024)
 *   FAKE_CUDA_ATTRIBUTES   "124=0,116=0": attributes of all devices
 *   FAKE_CUDA_MISSING      "cuCtxGetId,...": functions that cuGetProcAddress() does not find
 *   FAKE_CUDA_FAIL         "cuMemAlloc:3:2:1,...": function, which call, result, how many times
 *   FAKE_CUDA_HOST_APART   1: device pointers of registered host memory differ from the host's
 *   FAKE_CUDA_DELAY_US     each piece of work takes up to this long (0)
 *   FAKE_CUDA_SEED         of all that is random (1)
 *   FAKE_CUDA_LEAKS        1: what is left at exit is told, and the exit status is then 86
 */
#ifndef FERRULE_TESTS_FAKES_CUDA_FAKE_LIBCUDA_H
#define FERRULE_TESTS_FAKES_CUDA_FAKE_LIBCUDA_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpudirect/cuda/cuda_abi.h"

enum {
	FAKE_CUDA_MAX_DEVICES = 8,
	FAKE_CUDA_BLOCK = 2 << 20, /* device memory comes in these */
};

/* Live objects, for leak checks. */
enum fake_cuda_kind {
	FAKE_CUDA_ALLOCATION, /* of any kind of device memory, managed memory among them */
	FAKE_CUDA_HOST,       /* cuMemAllocHost(), cuMemHostAlloc() */
	FAKE_CUDA_REGISTRATION,
	FAKE_CUDA_HANDLE,      /* cuMemCreate() */
	FAKE_CUDA_RESERVATION, /* cuMemAddressReserve() */
	FAKE_CUDA_CONTEXT,     /* cuCtxCreate() */
	FAKE_CUDA_RETAIN,      /* cuDevicePrimaryCtxRetain() without its release */
	FAKE_CUDA_STREAM,
	FAKE_CUDA_EVENT,
	FAKE_CUDA_MODULE,
	FAKE_CUDA_FD,    /* of cuMemGetHandleForAddressRange(), not closed */
	FAKE_CUDA_KINDS, /* all of them */
};

struct fake_cuda_stats {
	uint64_t launches;        /* kernels, as they were launched */
	uint64_t large_launches;  /* those of them whose parameter has more than 4096 bytes */
	uint64_t kernels;         /* kernels that ran to their end */
	uint64_t pieces;          /* in them */
	uint64_t copies;          /* copies and sets that ran */
	uint64_t functions;       /* of the host, that ran */
	uint64_t exports;         /* dma-bufs */
	uint64_t flushes;         /* cuFlushGPUDirectRDMAWrites() */
	uint64_t captures_broken; /* captures that calls of others have ended */
};

struct fake_cuda {
	/* Resets the library to its state after loading: nothing is alive, cuInit() has not been
	 * called, settings are those of the environment. The caller must not use anything of it
	 * meanwhile. Queued work is discarded. */
	void (*reset)(void);

	/* Before cuInit(): the number of devices, the driver's version, the memory of each
	 * device. */
	void (*set_devices)(int n);
	void (*set_version)(int version);
	void (*set_memory)(uint64_t bytes);
	/* Sets an attribute of a device; -1: of all. May be called at any time. */
	void (*set_attribute)(int ordinal, cu_device_attribute attribute, int value);
	/* Device pointers of registered host memory differ from the host's. Existing registrations
	 * keep theirs. */
	void (*set_host_apart)(bool is_apart);
	/* Limits the host memory that can be registered or allocated at a time. */
	void (*set_host_limit)(uint64_t bytes);
	/* Sets whether CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE works (default: no). */
	void (*set_pcie)(bool is_supported);
	/* Sets whether a mapping has the buffer ID of the reserved range, whatever is mapped there
	 * (default: one of its own). */
	void (*set_one_id)(bool is_one);
	/* Hides this function from cuGetProcAddress(); NULL: hides none. */
	void (*set_missing)(const char *name);
	/* Each piece of work takes a random time up to this. */
	void (*set_delay)(unsigned microseconds);
	void (*set_seed)(uint64_t seed);

	/* The n-th call from now of a function (1: the next), and `times` calls from there on (0:
	 * all), return `result` and do nothing else. Several failures can be planned; n = 0 removes
	 * those of this function, name NULL and n = 0 removes all. NULL is any function, with two
	 * exceptions. Functions that are called in loops do not count: cuStreamQuery(),
	 * cuEventQuery(). Functions that cannot sensibly fail do not count either: cuGetErrorName()
	 * and -String(), cuCtxPopCurrent(), cuThreadExchangeStreamCaptureMode(). "work" is a piece
	 * of work that begins to run: after a fatal result the context is unusable. */
	void (*fail_call)(const char *name, unsigned nth, cu_result result, unsigned times);
	/* Returns the function that failed last because of fail_call(), or NULL. */
	const char *(*failed)(void);
	/* Returns the calls since the reset, failed ones included; NULL: of all functions that NULL
	 * means above. */
	unsigned (*calls)(const char *name);

	/* Stops work, except that of the legacy stream (cuMemcpyDtoH() and the like): hold()
	 * stops all streams, hold_stream() one. Work that runs at the time of the call is done
	 * when it returns. cuCtxSynchronize() and the like wait, and end the process after half
	 * a minute. */
	void (*hold)(bool is_held);
	void (*hold_stream)(cu_stream stream, bool is_held);
	/* Runs up to this many pieces of work that hold() keeps, in random order of streams.
	 * Returns their number when they are done. */
	unsigned (*step)(unsigned n);
	/* Returns how many pieces of work are queued, all streams together. */
	unsigned (*queued)(void);
	/* Waits until nothing can run any more: all work is done or held. */
	void (*settle)(void);

	/* Begins or ends a capture in the global mode by another thread. */
	void (*set_capture)(bool is_going_on);

	/* Fails the context as a crashed kernel does: it is unusable from then on. */
	void (*kill)(cu_context context, cu_result result);
	/* Returns a description of the last access by work to memory that it must not touch, or
	 * "". */
	const char *(*fault)(void);

	/* Reads and writes device memory at once, whatever is queued. Returns false unless all of
	 * it is allocated. */
	bool (*read)(void *dst, cu_deviceptr src, size_t size);
	bool (*write)(cu_deviceptr dst, const void *src, size_t size);
	/* Returns an address at which the processor can read it while it is allocated, or NULL. */
	void *(*look)(cu_deviceptr address, size_t size);

	/* Reserves virtual memory of a device as PyTorch's expandable segments do: a range of
	 * `reserved` bytes, of which the first n blocks of 2 MiB are mapped, each by a handle of
	 * its own. Returns 0 or an error. free_virtual() frees all of it. */
	cu_result (*make_virtual)(int ordinal, size_t reserved, unsigned n, bool is_rdma_capable,
		cu_deviceptr *ret_address);
	cu_result (*free_virtual)(cu_deviceptr address);

	/* Returns the range of a descriptor that cuMemGetHandleForAddressRange() has made. Its file
	 * offset (lseek(fd, 0, SEEK_CUR)) is where the range begins in the file, which can be
	 * mapped. Returns false for other descriptors. */
	bool (*dma_buf)(int fd, cu_deviceptr *ret_address, size_t *ret_size);

	unsigned (*live)(enum fake_cuda_kind kind);
	/* Returns the live objects as text: "2 streams, 1 registration", or "". The next call
	 * overwrites it. */
	const char *(*leaks)(void);
	void (*stats)(struct fake_cuda_stats *ret_stats);
	/* Returns the depth of the calling thread's stack of contexts. */
	unsigned (*context_depth)(void);
	/* Returns the calling thread's mode: CU_STREAM_CAPTURE_MODE_.... */
	int (*capture_mode)(void);
};

/* A symbol that only the double has. */
__attribute__((visibility("default"))) const struct fake_cuda *fake_cuda_control(void);

/* Returns NULL if there is no libcuda.so.1, or it is NVIDIA's. */
static inline const struct fake_cuda *fake_cuda_find(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	const struct fake_cuda *(*control)(void) = NULL;

	if (library)
		*(void **)(void *)&control = dlsym(library, "fake_cuda_control");
	return control ? control() : NULL;
}

#endif
