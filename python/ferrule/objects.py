# SPDX-License-Identifier: BSD-3-Clause
"""Python objects as messages, by pickle: only between ranks that trust each other."""

import pickle
from typing import Any, List, Optional

from .reductions import Reductions
from .transfers import Transfers


def _lengths(number: int) -> memoryview:
    return memoryview(bytearray(8 * number)).cast("Q")


class Objects(Reductions, Transfers):
    """broadcast_object, gather_object and all_gather_object.

    A rank that may send can run code in the others, as unpickling does. Ranks of a job are of one
    user.
    """

    def all_gather_object(self, obj: Any) -> List[Any]:
        """Returns the objects of all ranks, in the order of ranks."""
        mine = pickle.dumps(obj)
        length, lengths = _lengths(1), _lengths(self.size)
        length[0] = len(mine)
        self.all_gather(length, out=lengths)
        all_bytes = bytearray(sum(lengths))
        self.all_to_all_v(
            memoryview(mine),
            [len(mine)] * self.size,
            lengths.tolist(),
            send_displs=[0] * self.size,
            out=memoryview(all_bytes),
        )
        return self._loads(all_bytes, lengths)

    def gather_object(self, obj: Any, dst: int = 0) -> Optional[List[Any]]:
        """Returns the objects of all ranks at rank `dst`, and None at the others."""
        mine = pickle.dumps(obj)
        length = _lengths(1)
        length[0] = len(mine)
        lengths = _lengths(self.size)
        is_target = self.gather(length, dst, out=lengths) is not None
        send_counts = [len(mine) if rank == dst else 0 for rank in range(self.size)]
        recv_counts = lengths.tolist() if is_target else [0] * self.size
        all_bytes = bytearray(sum(recv_counts))
        self.all_to_all_v(
            memoryview(mine), send_counts, recv_counts, out=memoryview(all_bytes),
            send_displs=[0] * self.size,
        )
        return self._loads(all_bytes, lengths) if is_target else None

    def broadcast_object(self, obj: Any = None, src: int = 0) -> Any:
        """Returns the object of rank `src`; that of other ranks is not used."""
        is_source = src == self.rank
        data = bytearray(pickle.dumps(obj)) if is_source else bytearray()
        length = _lengths(1)
        length[0] = len(data)
        self.broadcast(length, src)
        if is_source:
            self.broadcast(data, src)
            return obj
        data = bytearray(length[0])
        self.broadcast(data, src)
        return pickle.loads(data)

    @staticmethod
    def _loads(data: bytearray, lengths: memoryview) -> List[Any]:
        objects, start = [], 0
        for length in lengths:
            objects.append(pickle.loads(memoryview(data)[start : start + length]))
            start += length
        return objects
