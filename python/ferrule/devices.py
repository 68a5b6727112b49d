# SPDX-License-Identifier: BSD-3-Clause
"""Devices: the ports over which communicators send. A port is open once in a process."""

import ctypes
import threading
from collections import deque
from itertools import repeat
from typing import Deque, Dict, List, NamedTuple, Optional, Sequence, Union

from . import _lib, errors


class Device(NamedTuple):
    """A port of this process, as struct frl_device_config describes it. None: the setting.

    `fabric`: a fabric of the control daemon, which leases the port and its address.
    `port`: "packet:eth0", "verbs:mlx5_0", "raw:mlx5_0", a PCI address or DPDK's devargs.
    `ip`: addresses of the port: "10.1.1.1/24". `gateway`: next hop (DPDK). `peer`: with "verbs",
    the device on the route to this host.
    """

    port: Optional[str] = None
    ip: Optional[str] = None
    gateway: Optional[str] = None
    fabric: Optional[str] = None
    peer: Optional[str] = None


def parse(text: str) -> Device:
    """Returns the device of a text: "local", "fabric:NAME", "packet:eth0=10.1.1.1/24", "verbs"."""
    if text == "local":
        return Device(fabric="local")
    kind, _, rest = text.partition(":")
    if kind == "fabric" and rest:
        return Device(fabric=rest)
    port, equals, address = text.partition("=")
    if kind in ("packet", "verbs") and "," not in port and (not equals or address):
        return Device(port=port, ip=address or None)
    raise ValueError(
        f"{text!r} is no device: local, fabric:NAME, packet:INTERFACE=ADDRESS, verbs and "
        "verbs:NAME are; write others as ferrule.Device(port=..., ip=...)"
    )


class _Open:
    """An open device and the number of its users."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.users = 0


_lock = threading.Lock()
_open: Dict[Device, _Open] = {}
# Devices that were given back. The garbage collector may give back one in a thread that has the
# lock: whoever has it, or had it, takes them from here.
_returned: Deque[Device] = deque()


def _take_back() -> None:
    """Closes returned devices without another user, unless the holder of the lock will do it."""
    while _returned and _lock.acquire(blocking=False):
        try:
            while _returned:
                device = _returned.popleft()
                found = _open.get(device)
                if found is None:
                    continue
                found.users -= 1
                if found.users == 0:
                    del _open[device]
                    _lib.device_close(found.handle)
        finally:
            _lock.release()


def _encode(text: Optional[str]) -> Optional[bytes]:
    return None if text is None else text.encode()


def _open_device(device: Device) -> int:
    config = _lib.DeviceConfig()
    _lib.device_config_init(config)
    if device.port is not None or device.fabric is not None:
        config.fabric = _encode(device.fabric)
        config.port = _encode(device.port)
    if device.ip is not None or device.port is not None:
        config.ip = _encode(device.ip)
    if device.gateway is not None:
        config.gateway = _encode(device.gateway)
    if device.peer is not None:
        config.peer = _encode(device.peer)
    handle = ctypes.c_void_p()
    code = _lib.device_open(config, handle)
    if code != 0:
        raise errors.last(code)
    return handle.value or 0


class Lease:
    """Devices in use. close() gives them back, and closes those without another user."""

    def __init__(self, wanted: Union[None, str, Device, Sequence[Union[str, Device]]]) -> None:
        """Opens devices, or takes open ones. None: the device of the settings."""
        self._devices: List[Device] = []
        self.handles: List[int] = []
        if wanted is None:
            wanted = Device()
        listed = [wanted] if isinstance(wanted, (str, Device)) else wanted
        names = [_as_device(name) for name in listed]
        if not names or len(set(names)) != len(names):
            raise ValueError("devices= needs at least one device, and each device once")
        try:
            for device in names:
                with _lock:
                    if device not in _open:
                        _open[device] = _Open(_open_device(device))
                    _open[device].users += 1
                    self._devices.append(device)
                    self.handles.append(_open[device].handle)
        except BaseException:
            self.close()
            raise
        finally:
            _take_back()

    def close(self) -> None:
        """Idempotent. A child of fork() closes nothing."""
        self.handles = []
        # No bytecode is in between: a signal handler may raise, or close the same communicator.
        _returned.extend(map(list.pop, repeat(self._devices, len(self._devices))))
        _take_back()


def _as_device(name: Union[str, Device]) -> Device:
    return parse(name) if isinstance(name, str) else name


def forget() -> None:
    """In a child of fork(): the devices are the parent's, and must not be used or closed."""
    global _lock
    _lock = threading.Lock()
    _open.clear()
    _returned.clear()
