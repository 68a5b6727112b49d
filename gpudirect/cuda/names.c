/* SPDX-License-Identifier: BSD-3-Clause */
/* The names of CUDA's results, their errno values, and the advice for error texts. */
#include "gpudirect/cuda/cuda.h"

#include <errno.h>

#include "lib/base/error.h"

/* Results with an errno of their own; all others are -EIO. */
struct meaning {
	cu_result result;
	int error;
	bool is_fatal;
	const char *advice; /* NULL: the name is enough */
};

#define NEWER_DRIVER "update NVIDIA's driver"
#define RELAUNCH     "CUDA is unusable in this process from now on: end it and start it again"
#define FAULT        "a kernel of this process has failed; " RELAUNCH
#define MPS          "look at the log of nvidia-cuda-mps-control"
#define CAPTURE                                                                                 \
	"a stream capture in this process forbids it just now: try again when the capture has " \
	"ended"

static const struct meaning meanings[] = {
	{ CUDA_ERROR_INVALID_VALUE, -EINVAL, false, "the driver rejects these arguments" },
	{ CUDA_ERROR_OUT_OF_MEMORY, -ENOMEM, false,
		"no GPU memory, or no more host memory that may be pinned: free some, or let other "
		"processes on this GPU end" },
	{ CUDA_ERROR_NOT_INITIALIZED, -ENODEV, true,
		"CUDA does not survive fork() in a process that has used it: fork before, or exec "
		"in the child (Python: multiprocessing's \"spawn\")" },
	{ CUDA_ERROR_DEINITIALIZED, -ENODEV, true, "this process is ending, CUDA has shut down" },
	{ CUDA_ERROR_STUB_LIBRARY, -ENOSYS, false,
		"libcuda.so.1 is the stub for linking, not the driver: remove the folder \"stubs\" "
		"from LD_LIBRARY_PATH" },
	{ CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, -ENOTSUP, false, NEWER_DRIVER },
	{ CUDA_ERROR_DEVICE_UNAVAILABLE, -EBUSY, false,
		"another process uses this GPU exclusively: wait for its end, or set the compute "
		"mode to default (nvidia-smi -c DEFAULT)" },
	{ CUDA_ERROR_NO_DEVICE, -ENODEV, false,
		"CUDA finds no GPU: check nvidia-smi, CUDA_VISIBLE_DEVICES, and whether the "
		"container was started with its GPUs" },
	{ CUDA_ERROR_INVALID_DEVICE, -ENODEV, false, "no such GPU: see CUDA_VISIBLE_DEVICES" },
	{ CUDA_ERROR_DEVICE_NOT_LICENSED, -EPERM, false, "this virtual GPU needs a license" },
	{ CUDA_ERROR_INVALID_IMAGE, -ENOTSUP, false,
		"the driver cannot read these kernels: " NEWER_DRIVER },
	{ CUDA_ERROR_INVALID_CONTEXT, -ENODEV, false,
		"the context is gone: the application has destroyed it, or reset the device" },
	{ CUDA_ERROR_NO_BINARY_FOR_GPU, -ENOTSUP, false,
		"Ferrule was built without kernels for this GPU: build it with a newer CUDA" },
	{ CUDA_ERROR_ECC_UNCORRECTABLE, -EIO, true,
		"the GPU's memory has an error (nvidia-smi -q -d ECC); " RELAUNCH },
	{ CUDA_ERROR_INVALID_PTX, -ENOTSUP, false,
		"the driver cannot translate these kernels: " NEWER_DRIVER },
	{ CUDA_ERROR_NVLINK_UNCORRECTABLE, -EIO, true, RELAUNCH },
	{ CUDA_ERROR_JIT_COMPILER_NOT_FOUND, -ENOTSUP, false,
		"libnvidia-ptxjitcompiler.so.1 is missing: install it with the driver" },
	{ CUDA_ERROR_UNSUPPORTED_PTX_VERSION, -ENOTSUP, false,
		"these kernels need a newer CUDA than the driver's:" NEWER_DRIVER },
	{ CUDA_ERROR_JIT_COMPILATION_DISABLED, -ENOTSUP, false,
		"unset CUDA_DISABLE_PTX_JIT, or build Ferrule with kernels for this GPU" },
	{ CUDA_ERROR_CONTAINED, -EIO, true, RELAUNCH },
	{ CUDA_ERROR_OPERATING_SYSTEM, -EIO, false,
		"a call to the system has failed: see the limits on open files and locked memory "
		"(ulimit -n, ulimit -l), and the kernel's log" },
	{ CUDA_ERROR_INVALID_HANDLE, -EINVAL, false,
		"a stream, event or context is invalid, or was destroyed" },
	{ CUDA_ERROR_NOT_FOUND, -ENOTSUP, false, NULL },
	{ CUDA_ERROR_NOT_READY, -EBUSY, false, NULL },
	{ CUDA_ERROR_ILLEGAL_ADDRESS, -EIO, true,
		"memory was freed while it was in use, or a kernel accessed invalid "
		"memory;" RELAUNCH },
	{ CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, -ENOMEM, false, NULL },
	{ CUDA_ERROR_LAUNCH_TIMEOUT, -EIO, true, FAULT },
	{ CUDA_ERROR_CONTEXT_IS_DESTROYED, -ENODEV, true,
		"the application has destroyed the context, or reset the device" },
	{ CUDA_ERROR_ASSERT, -EIO, true, FAULT },
	{ CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, -EBUSY, false, NULL },
	{ CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, -EINVAL, false, NULL },
	{ CUDA_ERROR_HARDWARE_STACK_ERROR, -EIO, true, FAULT },
	{ CUDA_ERROR_ILLEGAL_INSTRUCTION, -EIO, true, FAULT },
	{ CUDA_ERROR_MISALIGNED_ADDRESS, -EIO, true, FAULT },
	{ CUDA_ERROR_INVALID_ADDRESS_SPACE, -EIO, true, FAULT },
	{ CUDA_ERROR_INVALID_PC, -EIO, true, FAULT },
	{ CUDA_ERROR_LAUNCH_FAILED, -EIO, true, FAULT },
	{ CUDA_ERROR_TENSOR_MEMORY_LEAK, -EIO, true, FAULT },
	{ CUDA_ERROR_NOT_PERMITTED, -EPERM, false, NULL },
	{ CUDA_ERROR_NOT_SUPPORTED, -ENOTSUP, false, "not on this GPU or system" },
	{ CUDA_ERROR_SYSTEM_NOT_READY, -EBUSY, false,
		"the machine's fabric is not up: wait for nvidia-fabricmanager (systemctl status "
		"nvidia-fabricmanager), or start the one that belongs to the driver" },
	{ CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, -ENODEV, false,
		"the kernel module and libcuda.so.1 have different versions, as after an update or "
		"in a container: load the new module, or reboot" },
	{ CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, -ENODEV, false,
		"this GPU cannot be used with CUDA's compatibility package: " NEWER_DRIVER
		", and take the package's folder out of LD_LIBRARY_PATH" },
	{ CUDA_ERROR_MPS_CONNECTION_FAILED, -EBUSY, false,
		"no MPS server runs at CUDA_MPS_PIPE_DIRECTORY: start it, or unset the variable" },
	{ CUDA_ERROR_MPS_RPC_FAILURE, -EIO, true, MPS "; " RELAUNCH },
	{ CUDA_ERROR_MPS_SERVER_NOT_READY, -EBUSY, false, "the MPS server is starting: " MPS },
	{ CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, -EBUSY, false,
		"the MPS server has reached its limit of clients: end other processes" },
	{ CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, -EBUSY, false,
		"the MPS server has reached its limit of connections: end other processes, or "
		"lower CUDA_DEVICE_MAX_CONNECTIONS" },
	{ CUDA_ERROR_MPS_CLIENT_TERMINATED, -EIO, true,
		"the MPS server has terminated this client;" RELAUNCH },
	{ CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, -EBUSY, false, CAPTURE },
	{ CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, -EBUSY, false, CAPTURE },
	{ CUDA_ERROR_STREAM_CAPTURE_MERGE, -EBUSY, false, CAPTURE },
	{ CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, -EBUSY, false, CAPTURE },
	{ CUDA_ERROR_STREAM_CAPTURE_UNJOINED, -EBUSY, false, CAPTURE },
	{ CUDA_ERROR_STREAM_CAPTURE_ISOLATION, -EBUSY, false, CAPTURE },
	{ CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, -EBUSY, false, CAPTURE },
	{ CUDA_ERROR_CAPTURED_EVENT, -EBUSY, false, CAPTURE },
	{ CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, -EBUSY, false, CAPTURE },
	{ CUDA_ERROR_EXTERNAL_DEVICE, -EIO, true, RELAUNCH },
	{ CUDA_ERROR_UNKNOWN, -EIO, false,
		"see the kernel's log for lines with NVRM or Xid; after a suspend, or where "
		"/dev/nvidia-uvm is missing, load the module nvidia_uvm anew" },
};

static const struct meaning *meaning_of(cu_result result)
{
	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++)
		if (meanings[i].result == result)
			return &meanings[i];
	return NULL;
}

const char *cuda_result_name(cu_result result)
{
	switch (result) {
#define CUDA_RESULT(name, number) \
	case number:              \
		return #name;
#include "gpudirect/cuda/cuda_results.inc"
#undef CUDA_RESULT
	default: return "unknown error";
	}
}

bool cuda_is_fatal(cu_result result)
{
	const struct meaning *meaning = meaning_of(result);

	return meaning && meaning->is_fatal;
}

bool cuda_is_passing(cu_result result)
{
	switch (result) {
	case CUDA_ERROR_OUT_OF_MEMORY:
	case CUDA_ERROR_NOT_READY:
	case CUDA_ERROR_NOT_PERMITTED: return true;
	default:
		return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
			result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	}
}

bool cuda_is_passing_error(int rc)
{
	return rc == -EBUSY || rc == -ENOMEM || rc == -EPERM;
}

/* Returns the driver's own description of a result, also for a result newer than this table; NULL
 * if there is none. */
static const char *driver_text(cu_result result)
{
	const struct cuda_api *cuda = cuda_if_looked();
	const char *text = NULL;

	if (!cuda || cuda->cuGetErrorString(result, &text) != CUDA_SUCCESS)
		return NULL;
	return text;
}

int cuda_fail(cu_result result, const char *call, const char *what)
{
	const struct meaning *meaning = meaning_of(result);
	const char *advice = meaning ? meaning->advice : NULL;

	if (!advice)
		advice = driver_text(result);
	return frl_fail(meaning ? meaning->error : -EIO, "%s%s%s: %s (%d)%s%s", what ? what : "",
		what ? ": " : "", call, cuda_result_name(result), result, advice ? ": " : "",
		advice ? advice : "");
}
