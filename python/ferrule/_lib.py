# SPDX-License-Identifier: BSD-3-Clause
"""The C library: finds and loads it, and declares its functions and structures for ctypes.

Nothing else is here. A test compares the declarations with what a C program prints.
"""

import ctypes
import os
from ctypes import POINTER, Structure, c_bool, c_char_p, c_int, c_size_t, c_uint32, c_uint64
from ctypes import c_void_p
from typing import Any, Callable, List, cast

# The interface is that of 0.1.x. Structures may change with the second number.
VERSION = 100


def _load() -> ctypes.CDLL:
    """Loads FERRULE_LIBRARY, or the library of the wheel, or that of the system."""
    name = os.environ.get("FERRULE_LIBRARY", "")
    if not name:
        name = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_lib", "libferrule.so.0")
        if not os.path.exists(name):
            name = "libferrule.so.0"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise ImportError(
            f"Ferrule's library cannot be loaded: {error}. "
            "Install libferrule0, or set FERRULE_LIBRARY to the path of libferrule.so.0"
        ) from error
    found = library.frl_version() if hasattr(library, "frl_version") else 0
    if found // 100 != VERSION // 100:
        raise ImportError(
            f"{name} has version {found // 10000}.{found // 100 % 100}, but this package needs "
            f"{VERSION // 10000}.{VERSION // 100 % 100}: install packages of one release"
        )
    return library


library = _load()


class Bootstrap(Structure):
    _fields_ = [
        ("rank", c_int),
        ("ranks", c_int),
        ("ctx", c_void_p),
        ("allgather", c_void_p),
        ("check", c_void_p),
        ("abort", c_void_p),
        ("close", ctypes.CFUNCTYPE(None, c_void_p)),
        ("has_left", c_void_p),
        ("post", c_void_p),
        ("set_receiver", c_void_p),
    ]


class DeviceConfig(Structure):
    _fields_ = [
        ("fabric", c_char_p),
        ("port", c_char_p),
        ("ip", c_char_p),
        ("gateway", c_char_p),
        ("peer", c_char_p),
        ("path_mtu", c_uint32),
        ("progress", c_int),
        ("icrc", c_int),
        ("held_frames", c_uint32),
    ]


class CommConfig(Structure):
    _fields_ = [
        ("devices", POINTER(c_void_p)),
        ("n_devices", c_int),
        ("timeout_ms", c_int),
        ("algos", c_char_p),
        ("progress", c_int),
    ]


class Collective(Structure):
    _fields_ = [
        ("coll", c_int),
        ("send", c_void_p),
        ("recv", c_void_p),
        ("count", c_size_t),
        ("dtype", c_int),
        ("op", c_int),
        ("root", c_int),
        ("scalar", c_void_p),
        ("wire", c_int),
        ("send_counts", POINTER(c_size_t)),
        ("send_displs", POINTER(c_size_t)),
        ("recv_counts", POINTER(c_size_t)),
        ("recv_displs", POINTER(c_size_t)),
        ("on_stream", c_bool),
        ("stream", c_void_p),
    ]


class UniqueId(Structure):
    _fields_ = [("text", ctypes.c_char * 128)]


# enum frl_coll
ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST, REDUCE, ALLTOALL = range(6)
ALLTOALLV, GATHER, SCATTER, BARRIER, SEND, RECV = range(6, 12)

# enum frl_dtype, by the names of frl_dtype_name()
DTYPES = {
    "int8": 0,
    "uint8": 1,
    "int32": 2,
    "uint32": 3,
    "int64": 4,
    "uint64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
    "float8_e4m3": 10,
    "float8_e5m2": 11,
}

# enum frl_op, enum frl_wire and enum frl_progress
OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4, "premul_sum": 5}
WIRES = {"same": 0, "float16": 1, "bfloat16": 2, "int8": 3}
PROGRESS = {"auto": 0, "inline": 1, "thread": 2}


def _declare(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function = getattr(library, name)
    function.restype = result
    function.argtypes = arguments
    _declared.append(name)
    return cast(Callable[..., Any], function)


def _number(name: str, *arguments: Any) -> Callable[..., int]:
    """Declares a function that returns int: 0 or a number, or a negative errno."""
    return _declare(name, c_int, *arguments)


_declared: List[str] = []


_handle = POINTER(c_void_p)

strerror = _declare("frl_strerror", c_char_p, c_int)
last_error = _declare("frl_last_error", c_char_p)
version = _number("frl_version")

dtype_size = _declare("frl_dtype_size", c_size_t, c_int)
op_parse = _number("frl_op_parse", c_char_p, POINTER(c_int))
wire_parse = _number("frl_wire_parse", c_char_p, POINTER(c_int))
wire_encode = _declare("frl_wire_encode", c_size_t, c_void_p, c_void_p, c_size_t, c_int)

mem_alloc = _declare("frl_mem_alloc", c_void_p, c_size_t)
mem_free = _declare("frl_mem_free", None, c_void_p, c_size_t)

device_config_init = _declare("frl_device_config_init", None, POINTER(DeviceConfig))
device_open = _number("frl_device_open", POINTER(DeviceConfig), _handle)
device_close = _number("frl_device_close", c_void_p)

bootstrap_join = _number(
    "frl_bootstrap_join", c_char_p, c_int, c_int, c_int, POINTER(Bootstrap)
)
bootstrap_from_environment = _number(
    "frl_bootstrap_from_environment", c_int, POINTER(Bootstrap)
)
bootstrap_from_unique_id = _number(
    "frl_bootstrap_from_unique_id",
    POINTER(UniqueId),
    c_int,
    c_int,
    c_int,
    POINTER(Bootstrap),
)
bootstrap_set_timeout = _declare("frl_bootstrap_set_timeout", None, POINTER(Bootstrap), c_int)
unique_id_create = _number("frl_unique_id_create", POINTER(UniqueId))

comm_config_init = _declare("frl_comm_config_init", None, POINTER(CommConfig))
comm_create_with = _number(
    "frl_comm_create_with", POINTER(Bootstrap), POINTER(CommConfig), _handle
)
comm_split = _number("frl_comm_split", c_void_p, c_int, c_int, _handle)
comm_destroy = _declare("frl_comm_destroy", None, c_void_p)
comm_abort = _declare("frl_comm_abort", None, c_void_p, c_char_p)
comm_rank = _number("frl_comm_rank", c_void_p)
comm_size = _number("frl_comm_size", c_void_p)
comm_explain = _number(
    "frl_comm_explain", c_void_p, POINTER(Collective), c_char_p, c_size_t
)

start_group = _number(
    "frl_start_group", c_void_p, POINTER(Collective), c_int, POINTER(c_void_p)
)
request_wait_for = _number("frl_request_wait_for", c_void_p, c_int, POINTER(c_bool))
request_detach = _number("frl_request_detach", c_void_p, c_uint64)
comm_next_done = _number(
    "frl_comm_next_done", c_void_p, c_int, POINTER(c_uint64), POINTER(c_int)
)
comm_post_done = _number("frl_comm_post_done", c_void_p, c_uint64)
