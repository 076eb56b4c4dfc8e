"""Executes plans with ttnn and numpy alone: no torch, and nothing of Temper is imported here.

The worker runs this file in ttnn's own Python; where Temper itself runs there, it imports it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

State = tuple[dict[str, Any], Any]  # an upload of a plan, and its tensor on the device


class Refused(Exception):
    """ttnn refused a call, or gave another tensor than planned; ``step`` is the plan's step."""

    def __init__(self, step: dict[str, Any], message: str) -> None:
        super().__init__(message)
        self.step = step


def first_line(error: BaseException) -> str:
    """The sentence of a ttnn error that says what was wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = next((i for i, line in enumerate(lines) if line.startswith("info:")), None)
    if told is not None and told + 1 < len(lines):
        return lines[told + 1][:400]
    fatal = next((line for line in lines if "TT_FATAL" in line or "TT_THROW" in line), None)
    return (fatal or (lines[0] if lines else type(error).__name__))[:400]


class Interpreter:
    """One plan on one open device. ``observe`` is told every step before it runs."""

    def __init__(self, ttnn: Any, device: Any, plan: dict[str, Any]) -> None:
        self.ttnn = ttnn
        self.device = device
        self.plan = plan
        self.values: dict[str, Any] = {}
        self.addresses: dict[str, int] = {}  # where inputs were written
        self.state: dict[str, State] = {}  # what programs share and change, by name
        self.observe: Any = None
        self.host_op: Any = None  # called with a step and its operands for ops of the host

    # --- expressions --------------------------------------------------------------------------

    def evaluate(self, form: Any) -> Any:
        """The object that an expression of a plan stands for."""
        if isinstance(form, list):
            return [self.evaluate(item) for item in form]
        if not isinstance(form, dict):
            return form
        if "$ref" in form:
            return self.values[form["$ref"]]
        if "$name" in form:
            return self._named(form["$name"])
        kwargs = {name: self.evaluate(value) for name, value in form["kwargs"].items()}
        return self._named(form["$make"])(*self.evaluate(form["args"]), **kwargs)

    def _named(self, path: str) -> Any:
        if path == "device":
            return self.device
        first, *rest = path.split(".")
        if first != "ttnn":
            raise ValueError(f"a plan names only ttnn's own things, not {path!r}")
        found = self.ttnn
        for part in rest:
            found = getattr(found, part)
        return found

    # --- tensors ------------------------------------------------------------------------------

    def tensor(self, upload: dict[str, Any], data: Any) -> Any:
        """A tensor of the plan from numbers of the host."""
        kind = np.int32 if upload["integer"] else np.float32
        # ttnn takes no array that cannot be written, as those of a mapped file are.
        array = np.require(data, kind, ["C", "W"]).reshape(upload["shape"])
        dtype, layout = self.evaluate(upload["dtype"]), self.evaluate(upload["layout"])
        host = self.ttnn.Tensor(array, dtype, layout=layout)
        if upload["on_host"]:
            return host
        return self.ttnn.to_device(host, self.device, self.evaluate(upload["memory"]))

    def load(self, constants: dict[str, Any]) -> None:
        """Upload the constants by value name and prepare what ttnn prepares."""
        self.values.clear()
        for upload in self.plan["constants"]:
            held = self.state.get(upload["state"])
            made = held[1] if held else self.tensor(upload, constants[upload["value"]])
            self.values[upload["name"]] = made
            if upload["state"] and held is None:
                self.state[upload["state"]] = (upload, made)
        for step in self.plan["setup"]:
            self.step(step)

    def upload(self, inputs: list[Any]) -> None:
        """The inputs of a call."""
        for upload, data in zip(self.plan["inputs"], inputs, strict=True):
            made = self.values[upload["name"]] = self.tensor(upload, data)
            if not upload["on_host"]:
                self.addresses[upload["name"]] = made.buffer_address()

    # --- calls --------------------------------------------------------------------------------

    def step(self, step: dict[str, Any]) -> None:
        """The calls of one op; what nobody reads any more is dropped.

        A view shares its memory with what it views: memory goes with its last reference.
        """
        if self.observe is not None:
            self.observe(step)
        if step["kind"] == "Host":
            self.host_op(self, step)
        for call in step["calls"]:
            try:
                made = self.evaluate(call["make"])
            except RuntimeError as error:
                raise Refused(step, first_line(error)) from error
            except TypeError as error:
                raise Refused(step, f"arguments: {first_line(error)}") from error
            several = list(made) if isinstance(made, (list, tuple)) else [made]
            self.values.update(zip(call["to"], several, strict=False))
            del made, several  # references keep memory alive
        for name in step["free"]:
            self.values.pop(name, None)

    def run(self) -> None:
        """Every step on the inputs that were uploaded."""
        for step in self.plan["steps"]:
            self.step(step)

    def outputs(self) -> list[Any]:
        """The results as numpy arrays; block formats and bfloat16 come as float32."""
        return [self.numbers(self.values[name]) for name in self.plan["outputs"]]

    def numbers(self, tensor: Any) -> Any:
        """A tensor's numbers in its logical shape."""
        ttnn = self.ttnn
        if tensor.dtype in (ttnn.bfloat16, ttnn.bfloat8_b, ttnn.bfloat4_b):
            host = (
                ttnn.from_device(tensor)
                if tensor.storage_type() == ttnn.StorageType.DEVICE
                else tensor
            )
            return ttnn.to_dtype(host, ttnn.float32).to_numpy()
        return tensor.cpu().to_numpy()

    def drop(self) -> None:
        """Forget what the call left; constants stay."""
        kept = {u["name"] for u in self.plan["constants"]}
        kept |= {name for step in self.plan["setup"] for c in step["calls"] for name in c["to"]}
        for name in [n for n in self.values if n not in kept]:
            del self.values[name]

    # --- what ttnn made of it -----------------------------------------------------------------

    def differences(self, step: dict[str, Any]) -> list[str]:
        """How the results of a step differ from the specs that the program gives them."""
        found = []
        for check in step["checks"]:
            tensor = self.values.get(check["name"])
            if tensor is not None:
                found += [f"{check['name']}: {text}" for text in self._compare(check, tensor)]
        return found

    def _compare(self, check: dict[str, Any], tensor: Any) -> list[str]:
        if check["buffer"] == "host":
            return []
        memory = tensor.memory_config()
        sharding = str(memory.memory_layout).rsplit(".", 1)[-1].lower().removesuffix("_sharded")
        pairs: list[tuple[str, Any, Any]] = [
            ("shape", check["shape"], list(tensor.shape)),
            ("format", check["dtype"], str(tensor.dtype).rsplit(".", 1)[-1].lower()),
            ("layout", check["layout"], str(tensor.layout).rsplit(".", 1)[-1].lower()),
            ("memory", "l1" if check["buffer"] == "sram" else check["buffer"],
             str(memory.buffer_type).rsplit(".", 1)[-1].lower()),
            ("sharding", check["sharding"], sharding),
        ]  # fmt: skip
        if memory.shard_spec is not None and check["shard"]:
            pairs.append(("shard", check["shard"], list(memory.shard_spec.shape)))
            pairs.append(("cores", check["cores"], memory.shard_spec.grid.num_cores()))
        return [f"{what} planned {ours}, ttnn gave {theirs}" for what, ours, theirs in pairs
                if ours != theirs]  # fmt: skip
