# SPDX-License-Identifier: BSD-3-Clause
"""How arrays of other packages are read, without ranks."""

import array
import ctypes
import gc
import mmap
import os
import struct
import unittest
import weakref
from typing import Any, Optional
from unittest import mock

import ranks
import numpy as np

import ferrule
from ferrule import _lib, buffers, devices, dlpack, dtypes, operations

KNOWN = [*_lib.DTYPES, "bool", "complex64", "complex128"]


class OnlyDlpack:
    """An array that has DLPack alone, as it is or with a version."""

    def __init__(self, inner: Any, versioned: bool = False, flags: int = 0, code: int = -1) -> None:
        self.inner = inner
        self.versioned = versioned
        self.flags = flags
        self.code = code
        self.device = 1

    def __dlpack_device__(self) -> Any:
        return (self.device, 0)

    def __dlpack__(
        self, stream: Any = None, max_version: Any = None, copy: Optional[bool] = None
    ) -> Any:
        assert (max_version is None) == (copy is None) and not copy
        if max_version is not None and not self.versioned:
            raise TypeError("max_version")
        capsule = self.inner.__dlpack__()
        tensor = dlpack._Tensor.from_address(dlpack._pointer(capsule, b"dltensor"))
        if self.code >= 0:
            tensor.code = self.code
        if not self.versioned:
            return capsule
        self.full = dlpack._Versioned(major=1, minor=0, flags=self.flags, tensor=tensor)
        self.capsule = capsule
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.full), b"dltensor_versioned", None)


class OnlyCuda:
    def __init__(self, inner: Any, stream: Optional[int]) -> None:
        interface = dict(inner.__array_interface__)
        if stream is not None:
            interface["stream"] = stream
        self.__cuda_array_interface__ = interface


class Buffers(unittest.TestCase):
    def test_numpy(self) -> None:
        for name in KNOWN:
            if name.startswith(("bfloat", "float8")):
                continue
            x = np.zeros((3, 0, 2), name) if name == "int8" else np.zeros((3, 2), name)
            view = buffers.writable(x, "x")
            self.assertEqual(view.dtype.name, name)
            self.assertEqual(view.shape, x.shape)
            self.assertEqual(view.count, x.size)
            self.assertEqual(view.address, x.ctypes.data)
            self.assertFalse(view.on_gpu)
            self.assertIsNone(view.stream)
        for x, itemsize in (
            (np.zeros(2, "U3"), 12),
            (np.zeros(2, "S3"), 3),
            (np.zeros(2, "datetime64[ms]"), 8),
            (np.zeros(2, [("a", "i4"), ("b", "f8")]), 12),
            (np.zeros(2, np.longdouble), 16),
            (np.zeros(2, np.int16), 2),
        ):
            dtype = buffers.readable(x, "x").dtype
            self.assertEqual((dtype.itemsize, dtype.code), (itemsize, None), x.dtype)

    def test_numpy_scalars(self) -> None:
        """They are values: what is read of them is a copy, and nothing is written into it."""
        for scalar in (np.float64(3), np.int32(-7), np.datetime64(12345, "s"), np.str_("abc")):
            view = buffers.readable(scalar, "x")
            gc.collect()
            others = list(np.zeros(100, scalar.dtype))
            for other in others:
                buffers.readable(other, "x")
            size = view.dtype.itemsize
            self.assertEqual(ctypes.string_at(view.address, size), scalar.tobytes())
            with self.assertRaisesRegex(ValueError, "read-only"):
                buffers.writable(scalar, "x")
            made = buffers.new_like(scalar, view, (2,), "x")
            self.assertEqual((made.shape, made.dtype), ((2,), scalar.dtype))

    def test_interface_without_address(self) -> None:
        class Other(bytearray):
            @property
            def __array_interface__(self) -> Any:
                return {"version": 3, "typestr": "|u1", "shape": (3,)}

        self.assertEqual(buffers.writable(Other(3), "x").dtype.name, "uint8")

    def test_masked(self) -> None:
        with self.assertRaisesRegex(ValueError, "mask"):
            buffers.readable(np.ma.array([1, 2], mask=[0, 1]), "x")

    def test_units_and_fields(self) -> None:
        """Types that the library does not know are the same if they are those of one array."""
        kinds = ["M8[s]", "M8[ms]", "m8[s]", [("a", "i4")], [("b", "i4")], [("a", "f4")], "S4", "V4"]
        views = [buffers.readable(np.zeros(2, kind), "x") for kind in kinds]
        for first in range(len(kinds)):
            again = buffers.readable(np.zeros(3, kinds[first]), "x")
            for second, view in enumerate(views):
                if first == second:
                    operations.check_same_type("x", again, view)
                else:
                    with self.assertRaises(ValueError, msg=(kinds[first], kinds[second])):
                        operations.check_same_type("x", again, view)
        self.assertEqual(dtypes.of_format("T{i:Offset:f:OP:}", 8).itemsize, 8)
        with self.assertRaisesRegex(ValueError, "pointers"):
            dtypes.of_format("T{i:a:O:b:}", 16)

    def test_order(self) -> None:
        x = np.zeros((4, 3, 2))
        for good in (x[1:], x[:1], x[2], x[0, 1:], x[:1, 1:], x[4:, ::2], x.reshape(2, 12)):
            buffers.writable(good, "x")
        for bad in (x.T, x[::2], x[:, 1:], x[::-1], np.broadcast_to(np.zeros(1), 5)):
            with self.assertRaisesRegex(ValueError, "^x: .*(C-contiguous|read-only)"):
                buffers.writable(bad, "x")
            if bad.ndim > 1:
                with self.assertRaisesRegex(ValueError, "C-contiguous"):
                    buffers.writable(OnlyDlpack(bad), "x")

        buffers._check_strides((4, 3, 2), (48, 16, 8), 8)
        buffers._check_strides((4, 1, 2), (16, 0, 8), 8)
        buffers._check_strides((0, 3), (1, 1), 8)
        with self.assertRaises(ValueError):
            buffers._check_strides((4, 3, 2), (48, 16, 16), 8)

    def test_buffer_protocol(self) -> None:
        self.assertTrue(buffers.readable(b"abc", "x").readonly)
        for letter in "bBhHiIlLqQfd":
            x = array.array(letter, [1, 2, 3])
            view = buffers.writable(x, "x")
            self.assertEqual(view.address, x.buffer_info()[0])
            self.assertEqual(view.dtype.itemsize, x.itemsize)
            kind = "float" if letter in "fd" else "uint" if letter.isupper() else "int"
            self.assertEqual(view.dtype.name, f"{kind}{8 * x.itemsize}")
            with self.assertRaises(BufferError):
                x.append(1)
            del view
            x.append(1)
        self.assertEqual(buffers.writable((ctypes.c_float * 3)(), "x").dtype.name, "float32")
        self.assertEqual(buffers.writable((ctypes.c_bool * 3)(), "x").dtype.name, "bool")
        self.assertEqual(buffers.writable(bytearray(), "x").count, 0)
        with mmap.mmap(-1, 4096) as memory:
            self.assertEqual(buffers.writable(memory, "x").count, 4096)
        with self.assertRaisesRegex(ValueError, "pointers"):
            buffers.writable((ctypes.py_object * 3)(), "x")
        big = (ctypes.c_float.__ctype_be__ * 3)()
        with self.assertRaisesRegex(ValueError, "processor's order"):
            buffers.writable(big, "x")

    def test_dlpack(self) -> None:
        x = np.zeros((2, 3), np.float32)
        watch = weakref.ref(x)
        for versioned in (False, True):
            view = buffers.writable(OnlyDlpack(x[1:], versioned), "x")
            self.assertEqual((view.address, view.shape), (x[1:].ctypes.data, (1, 3)))
            self.assertEqual(view.dtype.name, "float32")
        del x
        gc.collect()
        self.assertIsNotNone(watch(), "the view holds the array")
        del view
        gc.collect()
        self.assertIsNone(watch())
        for name in ("int8", "uint16", "int64", "float16", "complex64"):
            self.assertEqual(buffers.writable(OnlyDlpack(np.zeros(2, name)), "x").dtype.name, name)
        halves, bytes_ = np.zeros(2, np.uint16), np.zeros(2, np.uint8)
        for inner, code, name in (
            (halves, 4, "bfloat16"),
            (bytes_, 10, "float8_e4m3"),
            (bytes_, 12, "float8_e5m2"),
            (bytes_, 6, "bool"),
        ):
            view = buffers.writable(OnlyDlpack(inner, code=code), "x")
            self.assertEqual(view.dtype.name, name)
        with self.assertRaisesRegex(ValueError, "read-only"):
            buffers.writable(OnlyDlpack(halves, True, flags=1), "x")
        buffers.readable(OnlyDlpack(halves, True, flags=1), "x")
        with self.assertRaisesRegex(ValueError, "copy"):
            buffers.readable(OnlyDlpack(halves, True, flags=2), "x")
        other = OnlyDlpack(halves)
        other.device = 10
        with self.assertRaisesRegex(ValueError, "CUDA"):
            buffers.readable(other, "x")
        failing = mock.Mock(spec=["__dlpack__", "__dlpack_device__"])
        failing.__dlpack_device__ = lambda: (1, 0)
        failing.__dlpack__ = mock.Mock(side_effect=RuntimeError("requires grad"))
        with self.assertRaisesRegex(ValueError, "^x: requires grad"):
            buffers.readable(failing, "x")

    def test_gpu_types(self) -> None:
        """DLPack is asked where the interface for CUDA cannot tell the type."""

        class Both(OnlyDlpack):
            interface: Any = None

            @property
            def __cuda_array_interface__(self) -> Any:
                if self.interface is None:
                    raise KeyError("bfloat16")
                return self.interface

        x = np.zeros(2, np.uint16)
        for interface, name in (
            (None, "bfloat16"),
            (dict(x.__array_interface__, typestr="<V2"), "bfloat16"),
            (x.__array_interface__, "uint16"),
        ):
            both = Both(x, code=4)
            both.interface = interface
            both.device = dlpack.CUDA
            view = buffers.readable(both, "x")
            self.assertEqual((view.dtype.name, view.on_gpu, view.stream), (name, True, 0))

    def test_cuda(self) -> None:
        x = np.zeros(3, np.float32)
        for stream, wanted in ((None, 0), (2, 2), (12345, 12345)):
            view = buffers.writable(OnlyCuda(x, stream), "x")
            self.assertTrue(view.on_gpu)
            self.assertEqual(view.stream, wanted)
        with self.assertRaisesRegex(ValueError, "out="):
            buffers.new_like(OnlyCuda(x, None), view, (3,), "all_gather")

    def test_lazy(self) -> None:
        """A tensor whose memory is not its value is refused, as PyTorch marks it by a bit."""
        x = np.zeros(3, np.float32)
        for make in (OnlyDlpack, lambda inner: OnlyCuda(inner, None)):
            for name in ("neg", "conj"):
                tensor = make(x)
                setattr(tensor, f"is_{name}", lambda: False)
                buffers.readable(tensor, "x")
                setattr(tensor, f"is_{name}", lambda: True)
                with self.assertRaisesRegex(ValueError, f"^x: .*resolve_{name}"):
                    buffers.readable(tensor, "x")

    def test_more_types(self) -> None:
        """Packages of further types (ml_dtypes) show them as "V", with a name."""

        class Named:
            def __init__(self, name: str, size: int, kind: str = "|V") -> None:
                self.x = np.zeros(2, f"V{size}")
                self.__array_interface__ = dict(self.x.__array_interface__)
                self.__array_interface__["typestr"] = f"{kind}{size}"
                self.dtype = type("dtype", (), {"name": name, "hasobject": False})()

        view = buffers.writable(Named("bfloat16", 2), "x")
        self.assertEqual(view.dtype.code, _lib.DTYPES["bfloat16"])
        view = buffers.writable(Named("float8_e4m3fn", 1), "x")
        self.assertEqual(view.dtype.code, _lib.DTYPES["float8_e4m3"])
        view = buffers.writable(Named("float8_e5m2", 1, "<f"), "x")
        self.assertEqual(view.dtype.code, _lib.DTYPES["float8_e5m2"])
        self.assertIsNone(buffers.writable(Named("int4", 1), "x").dtype.code)
        self.assertIsNone(buffers.writable(Named("float8_e4m3", 1), "x").dtype.code)

    def test_new(self) -> None:
        x = np.zeros(2, np.int16)
        made = buffers.new_like(x, buffers.readable(x, "x"), (3, 2), "x")
        self.assertEqual((made.shape, made.dtype), ((3, 2), np.int16))
        y = bytearray(2)
        made = buffers.new_like(y, buffers.readable(y, "x"), (3, 2), "x")
        self.assertEqual((made.shape, made.dtype), ((3, 2), np.uint8))

    def test_empty(self) -> None:
        def mapped() -> int:
            with open("/proc/self/maps") as maps:
                return sum("frl" in line or "memfd" in line for line in maps)

        before = mapped()
        x = ferrule.empty((1000, 3), "float64")
        self.assertEqual((x.shape, x.dtype, x.flags.writeable), ((1000, 3), np.float64, True))
        self.assertEqual(x.ctypes.data % mmap.PAGESIZE, 0)
        self.assertFalse(x.any())
        part = x[10:20].copy(), x[5:]
        del x
        gc.collect()
        self.assertGreater(mapped(), before)
        part[1][:] = 1
        del part
        gc.collect()
        self.assertEqual(mapped(), before)
        self.assertEqual(ferrule.empty(0).shape, (0,))
        self.assertEqual(ferrule.empty(5).dtype, np.float32)
        self.assertEqual(ferrule.empty((), np.int8).shape, ())
        with self.assertRaises(ValueError):
            ferrule.empty(1, "nonsense")
        with self.assertRaisesRegex(ValueError, "ml_dtypes"):
            ferrule.empty(1, "bfloat16")
        with self.assertRaises(ValueError):
            ferrule.empty(1, object)
        with self.assertRaises(ValueError):
            ferrule.empty(-1)
        with self.assertRaises(MemoryError):
            ferrule.empty(1 << 60, "int8")

    def test_devices(self) -> None:
        made = devices.Device
        for text, wanted in (
            ("local", made(fabric="local")),
            ("fabric:roce", made(fabric="roce")),
            ("packet:eth0=10.1.1.1/24", made(port="packet:eth0", ip="10.1.1.1/24")),
            ("verbs", made(port="verbs")),
            ("verbs:mlx5_0/2", made(port="verbs:mlx5_0/2")),
            ("verbs:mlx5_0=10.1.1.1", made(port="verbs:mlx5_0", ip="10.1.1.1")),
        ):
            self.assertEqual(devices.parse(text), wanted)
        for text in ("", "eth0", "fabric:", "packet:eth0=", "net_ring0,a=b", "packet:a,b=1"):
            with self.assertRaisesRegex(ValueError, "Device"):
                devices.parse(text)

    def test_scalars(self) -> None:
        def encoded(name: str, number: Any) -> bytes:
            view = buffers.View(0, dtypes.named(name), (1,), False, None)
            return bytes(operations._scalar(view, number))

        self.assertEqual(encoded("float32", 1.5), struct.pack("f", 1.5))
        self.assertEqual(encoded("int64", -2), struct.pack("q", -2))
        self.assertEqual(encoded("float16", np.float16(0.5)), struct.pack("e", 0.5))
        self.assertEqual(encoded("float16", np.array([0.5], "f2")), struct.pack("e", 0.5))
        self.assertEqual(encoded("int32", np.float64(7)), struct.pack("i", 7))
        self.assertEqual(encoded("bfloat16", 1.5), struct.pack("f", 1.5)[2:])
        with self.assertRaisesRegex(ValueError, "one element of type float8_e5m2"):
            encoded("float8_e5m2", 1.5)


if __name__ == "__main__":
    unittest.main()
