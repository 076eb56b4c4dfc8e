"""A plan as a script that needs ttnn and numpy alone: the same calls that the target makes."""

from __future__ import annotations

import keyword
import re
from typing import Any

from temper.targets.ttnn.expressions import Make, Name, Ref, dtype, layout, memory_config
from temper.targets.ttnn.plan import CallPlan, OpCalls, Upload

_WIDTH = 100

_HEAD = '''"""{title}

Made by Temper for {chip}; needs ttnn and numpy, nothing of Temper. Never run on a card by us.

    python {file}                  one forward on inputs.safetensors; writes results.safetensors
    python {file} --check          and compares with what Temper computed (outputs.safetensors)
    python {file} --time 20        and times 20 forwards
    python {file} --trace          records the calls once and replays them

Weights are uploaded once, in load(), and stay: forward() may be called any number of times.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import ttnn

HERE = Path(__file__).resolve().parent
L1_SMALL_SIZE = {l1_small}
TRACE_REGION_SIZE = {trace_region}
INPUTS = {{{inputs}}}  # the arrays that an inputs file holds


def read_tensors(path, wanted=None):
    """Arrays of a safetensors file, of these shapes if given; bfloat16 becomes float32."""
    if not Path(path).is_file():
        raise SystemExit(f"there is no file {{path}}, with arrays {{wanted or 'of this model'}}")
    raw = np.memmap(path, np.uint8, "r")
    size = int.from_bytes(bytes(raw[:8]), "little")
    header = json.loads(bytes(raw[8 : 8 + size]))
    kinds = {{"F32": "<f4", "I32": "<i4", "I64": "<i8", "U8": "u1", "BOOL": "u1", "F64": "<f8",
             "F16": "<f2", "U16": "<u2", "U32": "<u4", "I16": "<i2", "I8": "i1"}}
    found = {{}}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = entry["data_offsets"]
        data = raw[8 + size + start : 8 + size + end]
        if entry["dtype"] == "BF16":
            array = (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            array = data.view(kinds[entry["dtype"]])
        found[name] = array.reshape(entry["shape"])
    for name, shape in (wanted or {{}}).items():
        if name not in found:
            raise SystemExit(f"{{path}} has no {{name!r}}; it has {{sorted(found)[:8]}}")
        if list(found[name].shape) != shape:
            has = list(found[name].shape)
            raise SystemExit(f"{{name!r}} in {{path}} has the shape {{has}}, not {{shape}}")
    return found


def write_tensors(path, arrays):
    """Arrays as a safetensors file."""
    kind = {{"float32": "F32", "int32": "I32", "int64": "I64", "uint32": "U32", "uint16": "U16"}}
    header, offset = {{}}, 0
    for name, array in arrays.items():
        entry = {{"dtype": kind[str(array.dtype)], "shape": list(array.shape)}}
        header[name] = {{**entry, "data_offsets": [offset, offset + array.nbytes]}}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(np.ascontiguousarray(a).tobytes() for a in arrays.values())
    Path(path).write_bytes(len(text).to_bytes(8, "little") + text + data)


def tensor(array, shape, dtype, layout, device=None, memory_config=None):
    """A ttnn tensor from numbers of the host."""
    whole = dtype in (ttnn.int32, ttnn.uint32, ttnn.uint16, ttnn.uint8)
    # A copy: ttnn takes no array that cannot be written, as those of a file are.
    data = np.array(array, np.int32 if whole else np.float32, order="C").reshape(shape)
    host = ttnn.Tensor(data, dtype, layout=layout)
    return host if device is None else ttnn.to_device(host, device, memory_config)


def numbers(value):
    """A tensor's numbers on the host."""
    host = ttnn.from_device(value)
    if host.dtype in (ttnn.bfloat16, ttnn.bfloat8_b, ttnn.bfloat4_b):
        host = ttnn.to_dtype(host, ttnn.float32)
    return host.to_numpy()

'''

_FOLD = '''
def fold(images, first, end, step, padding, deep):
    """Images in blocks of a step, channels last, as the first convolution reads them."""
    (down, across), (top, bottom, left, right) = step, padding
    part = np.asarray(images, np.float32)[first:end]
    count, channels, height, width = part.shape
    rows, columns = (top + height + bottom) // down, (left + width + right) // across
    below, beside = rows * down - top - height, columns * across - left - width
    padded = np.pad(part, ((0, 0), (0, deep - channels), (top, below), (left, beside)))
    blocks = padded.reshape(count, deep, rows, down, columns, across)
    return blocks.transpose(0, 2, 4, 3, 5, 1)

'''

_TAIL = '''

def compare(results, expected):
    """Correlation and largest error of every output; False where one is below 0.99."""
    good = True
    for name, given in results.items():
        a, b = (x.astype(np.float64).ravel() for x in (given, expected[name]))
        flat = a.std() == 0 or b.std() == 0
        pcc = float(np.allclose(a, b)) if flat else float(np.corrcoef(a, b)[0, 1])
        print(f"{name}: PCC {pcc:.6f}, largest error {np.abs(a - b).max():.6g}")
        good = good and pcc >= 0.99
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", default=HERE / "inputs.safetensors")
    parser.add_argument("--check", action="store_true", help="compare with outputs.safetensors")
    parser.add_argument("--time", type=int, default=0, metavar="N", help="time N forwards")
    parser.add_argument("--trace", action="store_true", help="record once, then replay")
    asked = parser.parse_args()
    given = read_tensors(asked.inputs, INPUTS)
    expected = read_tensors(HERE / "outputs.safetensors") if asked.check else {}
    data = read_tensors(HERE / "weights.safetensors")
    device = ttnn.open_device(
        device_id=0, l1_small_size=L1_SMALL_SIZE,
        trace_region_size=TRACE_REGION_SIZE if asked.trace else 0,
    )
    device.enable_program_cache()
    weights = load(data, device)
    # An input in SRAM goes with its last reader, so every forward uploads its own.
    run = lambda: forward(weights, upload(given, device), device)
    results = run()
    if asked.trace:
        inputs = upload(given, device)
        trace = ttnn.begin_trace_capture(device, cq_id=0)
        results = forward(weights, inputs, device)
        ttnn.end_trace_capture(device, trace, cq_id=0)
        run = lambda: ttnn.execute_trace(device, trace, cq_id=0, blocking=True)
        run()
    if asked.time:
        ttnn.synchronize_device(device)
        started = time.perf_counter()
        for _ in range(asked.time):
            run()
        ttnn.synchronize_device(device)
        each = (time.perf_counter() - started) / asked.time
        what = "replays" if asked.trace else "forwards, upload of inputs included"
        print(f"{each * 1e3:.3f} ms a forward (measured on this host, {asked.time} {what})")
    made = {name: numbers(value) for name, value in results.items()}
    write_tensors(HERE / "results.safetensors", made)
    good = not asked.check or compare(made, expected)
    if not good and os.environ.get("TT_METAL_MOCK_CLUSTER_DESC_PATH"):
        print("a mocked device computes nothing: its results are zeros")
    if asked.trace:
        ttnn.release_trace(device, trace)
    ttnn.close_device(device)
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
'''


def script(plan: CallPlan, *, file: str = "model.py") -> str:
    """The whole script."""
    return _Printer(plan).text(file)


class _Printer:
    def __init__(self, plan: CallPlan) -> None:
        self.plan = plan
        self._names: dict[str, str] = {}
        self._fixed = {u.name for u in plan.constants}
        self._fixed |= {n for s in plan.setup for c in s.calls for n in c.outputs}
        self._inputs = {u.name for u in plan.inputs}

    def text(self, file: str) -> str:
        plan = self.plan
        head = _HEAD.format(
            title=f"{plan.name}: one forward as ttnn calls.",
            chip=plan.chip,
            file=file,
            l1_small=plan.options["l1_small_size"],
            trace_region=plan.options["trace_region_size"],
            inputs=", ".join(f"{name!r}: {list(shape)}" for name, shape in plan.given.items()),
        )
        folds = _FOLD if plan.folds else ""
        return head + folds + self._load() + self._upload() + self._forward() + _TAIL

    # --- the three functions ------------------------------------------------------------------

    def _load(self) -> str:
        lines = ["", "def load(data, device):", '    """Weights, uploaded and prepared once."""',
                 "    w = {}"]  # fmt: skip
        for upload in self.plan.constants:
            lines += _wrapped(f"    w[{upload.name!r}] = {self._tensor(upload, 'data')}")
        for step in self.plan.setup:
            for call in step.calls:
                target = f"    w[{call.outputs[0]!r}] = "
                lines += _wrapped(target + self.show(call.make, "w"))
            lines += [f"    del w[{name!r}]" for name in step.free]
        return "\n".join([*lines, "    return w", "", ""])

    def _upload(self) -> str:
        lines = ["", "def upload(data, device):", '    """The inputs of a forward."""',
                 "    x = {}"]  # fmt: skip
        lines += ["    data = dict(data)"] if self.plan.folds else []
        for fold in self.plan.folds:
            op = fold.op
            first, end = op.attr("images") or (0, self.plan.given[fold.given][0])
            told = f"{first}, {end}, {list(op.attr('step'))}, {list(op.attr('padding'))}"
            folded = f"fold(data[{fold.given!r}], {told}, {op.attr('channels')})"
            lines += _wrapped(f"    data[{fold.value!r}] = {folded}")
        for upload in self.plan.inputs:
            lines += _wrapped(f"    x[{upload.name!r}] = {self._tensor(upload, 'data')}")
        return "\n".join([*lines, "    return x", "", ""])

    def _tensor(self, upload: Upload, data: str) -> str:
        spec = upload.spec
        place = "" if upload.on_host else f", device, {self.show(memory_config(spec))}"
        return (
            f"tensor({data}[{upload.value!r}], {list(upload.shape)}, {dtype(spec.format).path}, "
            f"{layout(spec.layout).path}{place})"
        )

    def _forward(self) -> str:
        lines = ["", "def forward(w, x, device):",
                 '    """One forward; tensors go when their last reader has run."""']  # fmt: skip
        module = ""
        for step in self.plan.steps:
            if step.label.split("__")[0] != module:
                module = step.label.split("__")[0]
                lines.append(f"    # {module}" + (f"  ({step.source})" if step.source else ""))
            lines += self._step(step)
        results = ", ".join(f"{name!r}: {self._value(name)}" for name in self.plan.outputs)
        return "\n".join([*lines, f"    return {{{results}}}", "", ""])

    def _step(self, step: OpCalls) -> list[str]:
        lines = []
        for call in step.calls:
            targets = ", ".join(self._variable(name) for name in call.outputs)
            lines += _wrapped(f"    {targets} = {self.show(call.make)}")
        gone = [self._variable(n) for n in step.free if n in self._names]
        if gone:
            lines.append(f"    del {', '.join(gone)}")
        return lines

    # --- expressions --------------------------------------------------------------------------

    def _variable(self, name: str) -> str:
        if name not in self._names:
            plain = re.sub(r"\W", "_", name)
            plain = f"v_{plain}" if keyword.iskeyword(plain) or plain in _TAKEN else plain
            plain = f"v{plain}" if plain[0].isdigit() else plain
            fresh, number = plain, 2
            while fresh in self._names.values():
                fresh, number = f"{plain}_{number}", number + 1
            self._names[name] = fresh
        return self._names[name]

    def _value(self, name: str) -> str:
        if name in self._names:
            return self._names[name]
        if name in self._fixed:
            return f"w[{name!r}]"
        return f"x[{name!r}]" if name in self._inputs else self._variable(name)

    def show(self, value: Any, held: str = "") -> str:
        """An expression as Python."""
        if isinstance(value, Ref):
            return f"{held}[{value.name!r}]" if held else self._value(value.name)
        if isinstance(value, Name):
            return value.path
        if isinstance(value, Make):
            parts = [self.show(v, held) for v in value.args]
            parts += [f"{name}={self.show(v, held)}" for name, v in value.kwargs.items()]
            return f"{value.function}({', '.join(parts)})"
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self.show(v, held) for v in value)}]"
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            return f"float('{value}')"
        return repr(value)


_TAKEN = frozenset({"w", "x", "device", "ttnn", "np", "json", "time", "tensor", "numbers", "load",
                    "upload", "forward", "compare", "main", "Path", "argparse", "fold",
                    "os"})  # fmt: skip


def _wrapped(line: str) -> list[str]:
    """A call over several lines where it is long: one argument a line."""
    if len(line) <= _WIDTH or "(" not in line:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    start, rest = line.split("(", 1)
    parts, depth, current = [], 0, ""
    for letter in rest[:-1]:
        depth += letter in "([{"
        depth -= letter in ")]}"
        if letter == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += letter
    parts.append(current.strip())
    return [f"{start}(", *(f"{indent}{part}," for part in parts if part), f"{indent[4:]})"]
