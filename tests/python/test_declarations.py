# SPDX-License-Identifier: BSD-3-Clause
"""The ctypes declarations against the C headers: a C program prints sizes, offsets and values."""

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any, Dict, List

import ranks

from ferrule import _lib

HEADERS = ranks.ROOT / "lib" / "include"
STRUCTURES: Dict[str, Any] = {
    "struct frl_bootstrap": _lib.Bootstrap,
    "struct frl_device_config": _lib.DeviceConfig,
    "struct frl_comm_config": _lib.CommConfig,
    "struct frl_collective": _lib.Collective,
    "struct frl_unique_id": _lib.UniqueId,
}
CONSTANTS: Dict[str, int] = {
    **{f"FRL_{name.upper()}": value for name, value in _lib.DTYPES.items()},
    **{f"FRL_{name.upper()}": value for name, value in _lib.OPS.items()},
    **{f"FRL_WIRE_{name.upper()}": value for name, value in _lib.WIRES.items()},
    **{f"FRL_PROGRESS_{name.upper()}": value for name, value in _lib.PROGRESS.items()},
    "FRL_DTYPES": len(_lib.DTYPES),
    "FRL_OPS": len(_lib.OPS),
    "FRL_WIRES": len(_lib.WIRES),
    "FRL_VERSION": _lib.VERSION,
}
COLLS = ["ALLREDUCE", "REDUCE_SCATTER", "ALLGATHER", "BROADCAST", "REDUCE", "ALLTOALL"]
COLLS += ["ALLTOALLV", "GATHER", "SCATTER", "BARRIER", "SEND", "RECV"]
CONSTANTS.update({f"FRL_{name}": getattr(_lib, name) for name in COLLS})
CONSTANTS["FRL_COLLS"] = len(COLLS)


def printed(expressions: List[str]) -> List[int]:
    """Returns the values of C expressions."""
    compiler = shutil.which(os.environ.get("CC", "cc").split()[0])
    if compiler is None:
        raise unittest.SkipTest("there is no C compiler")
    lines = "".join(f'\tprintf("%lld\\n", (long long)({text}));\n' for text in expressions)
    program = (
        "#include <stddef.h>\n#include <stdio.h>\n#include <ferrule/ferrule.h>\n"
        "int main(void)\n{\n" + lines + "\treturn 0;\n}\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "print.c"
        source.write_text(program)
        subprocess.run(
            [compiler, "-I", str(HEADERS), "-o", f"{folder}/print", str(source)], check=True
        )
        output = subprocess.run([f"{folder}/print"], check=True, capture_output=True, text=True)
    return [int(line) for line in output.stdout.split()]


class Declarations(unittest.TestCase):
    def test_values(self) -> None:
        names = list(CONSTANTS)
        for name, value in zip(names, printed(names)):
            self.assertEqual(CONSTANTS[name], value, name)

    def test_structures(self) -> None:
        expressions, wanted = [], []
        for name, structure in STRUCTURES.items():
            expressions.append(f"sizeof({name})")
            wanted.append(ctypes.sizeof(structure))
            for field, *_ in structure._fields_:
                expressions += [f"offsetof({name}, {field})", f"sizeof((({name} *)0)->{field})"]
                wanted += [getattr(structure, field).offset, getattr(structure, field).size]
        for text, value, found in zip(expressions, wanted, printed(expressions)):
            self.assertEqual(value, found, text)

    def test_names(self) -> None:
        def names(what: str) -> Any:
            function = getattr(_lib.library, f"frl_{what}_name")
            function.restype = ctypes.c_char_p
            return lambda value: function(value).decode()

        for table, name_of in (
            (_lib.DTYPES, names("dtype")),
            (_lib.OPS, names("op")),
            (_lib.WIRES, names("wire")),
        ):
            for name, value in table.items():
                self.assertEqual(name_of(value), name)
        for name in COLLS:
            self.assertEqual(names("coll")(getattr(_lib, name)), name.lower())

    def test_functions(self) -> None:
        """Every declared function is in the headers, with as many arguments."""
        text = "".join(path.read_text() for path in (HEADERS / "ferrule").glob("*.h"))
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        for name in _lib._declared:
            found = re.search(rf"FRL_API ([^;{{}}()]*?)\b{name}\(([^;]*)\);", text, re.S)
            assert found is not None, name
            arguments = found[2].strip()
            number = 0 if arguments == "void" else arguments.count(",") + 1
            function = getattr(_lib.library, name)
            self.assertEqual(len(function.argtypes), number, name)
            result = {"void": None, "int": ctypes.c_int, "size_t": ctypes.c_size_t}
            if found[1].strip() in result:
                self.assertIs(function.restype, result[found[1].strip()], name)


if __name__ == "__main__":
    unittest.main()
