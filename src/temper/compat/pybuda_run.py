"""PyBuda's compile and run functions on the virtual chip."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any

import torch

from temper.compat import pybuda_config as config
from temper.compat.missing import note
from temper.compat.pybuda_compiled import CompiledPipeline
from temper.compat.pybuda_device import Device, Inputs, TTDevice, as_inputs
from temper.compat.pybuda_module import RUN_INFERENCE, Tensor, torch_module
from temper.compat.pybuda_verify import VerifyConfig
from temper.errors import UsageError


def compile(
    module: Any, sample_inputs: Any = None, device: TTDevice | None = None,
    compiler_cfg: config.CompilerConfig | None = None, verify_cfg: VerifyConfig | None = None,
    **others: Any,
) -> CompiledPipeline:  # fmt: skip
    """The guide's ``pybuda.compile``: a callable; the sample inputs fix the first shape."""
    note(
        "compile",
        "PyBuda's own pybuda.compile is a module (its function is run_inference, its successor "
        "forge.compile); taken as a function that returns a callable",
    )
    unknown = sorted(set(others) - {"module_name", "name", "training", "optimizer", "attach_to"})
    if unknown:
        raise UsageError(
            f"pybuda.compile has no argument {unknown[0]!r}",
            allowed=["module", "sample_inputs", "device", "compiler_cfg", "verify_cfg"],
        )
    if others.get("training"):
        raise UsageError("Temper compiles inference; training runs eagerly on the device 'tt'")
    chips = [item for item in Device.all if isinstance(item, TTDevice)]
    used = device or (chips[-1] if chips else TTDevice())
    settings = compiler_cfg or config.global_compiler_config()
    options = {**settings.to_options(), **used.options()}
    made = CompiledPipeline(torch_module(module), options, verify_cfg)
    if sample_inputs is not None:
        args, kwargs = as_inputs(sample_inputs)
        made(*args, **kwargs)
    return made


class OutputQueue(queue.Queue[list[Tensor]]):
    """Outputs in order. Inputs pushed after the run began are run when their output is asked for:
    PyBuda's devices work in the background, this one when it is needed."""

    verify_cfg: VerifyConfig | None = None

    def get(self, block: bool = True, timeout: float | None = None) -> list[Tensor]:
        if self.empty():
            _run_pending(self, 1, self.verify_cfg)
        if self.empty() and block and timeout is None:
            raise UsageError(
                "no output is left, and no input was pushed that could make one",
                try_=["device.push_to_inputs(...)", "run_inference(module, inputs=[...])"],
            )
        return super().get(False)


_pipeline: list[OutputQueue | Any] = []  # the queue of initialize_pipeline, if it was called


def run_inference(
    module: Any = None, inputs: Sequence[Any] = (), input_count: int = 1,
    output_queue: Any = None, _sequential: bool = False, _perf_trace: bool = False,
    _verify_cfg: VerifyConfig | None = None, **_: Any,
) -> Any:  # fmt: skip
    """Runs placed modules, or ``module``, over the inputs; a queue yields lists of outputs.

    Of inputs that were pushed, ``input_count`` are run (0: all); inputs given here all are.
    """
    given = [as_inputs(item) for item in inputs]
    outputs: Any = output_queue if output_queue is not None else OutputQueue()
    if given and input_count not in (0, 1, len(given)):
        raise UsageError(
            f"input_count is {input_count}, but {len(given)} inputs are there",
            allowed=["1", str(len(given))],
        )
    if module is not None:
        device = _device_for(module)
        for item in given:
            _put(outputs, device.run(item, _verify_cfg))
        return outputs
    stages = _stages()
    for item in given:
        stages[0].inputs.put(item)
    if isinstance(outputs, OutputQueue):
        outputs.verify_cfg = _verify_cfg
    _run_pending(outputs, len(given) or input_count, _verify_cfg)
    return outputs


def initialize_pipeline(
    training: bool = False, output_queue: Any = None, checkpoint_queue: Any = None,
    sample_inputs: Any = (), *_: Any, _verify_cfg: VerifyConfig | None = None, **__: Any,
) -> Any:  # fmt: skip
    """Compiles for the sample inputs; the queue returned is the one that run_forward fills."""
    if training:
        refuse_training()
    first = _stages()[0]
    if len(sample_inputs):
        several = vars(config.global_compiler_config())["compile_subgraphs"]
        samples = list(sample_inputs) if several else [sample_inputs]
        for index, sample in enumerate(samples):
            if several:
                first.set_active_subgraph(index)
            _through(first, as_inputs(sample), _verify_cfg)
        if several:
            first.set_active_subgraph(0)
    _pipeline[:] = [output_queue if output_queue is not None else OutputQueue()]
    return _pipeline[0]


def run_forward(input_count: int = 1, _sequential: bool = False, **_: Any) -> Any:
    """Runs inputs that were pushed; outputs go to the queue of initialize_pipeline."""
    outputs = _pipeline[0] if _pipeline else OutputQueue()
    _run_pending(outputs, input_count, None, must=True)
    return outputs


def run_generate(
    input_count: int = 1, write_index: int = -1, tokens_per_iter: int = -1, token_id: int = -1,
    _sequential: bool = False,
) -> Any:  # fmt: skip
    """One step of generation; a cache is an argument and an output of the module here."""
    return run_forward(input_count)


def run_generative_inference(*args: Any, **kwargs: Any) -> Any:
    """As ``run_inference``: the model keeps its own cache."""
    return run_inference(*args, **kwargs)


def refuse_training(*_: Any, **__: Any) -> Any:
    """What stands for PyBuda's training functions."""
    raise UsageError(
        "Temper compiles inference", try_="training in plain PyTorch, eagerly on the device 'tt'"
    )


def get_parameter_checkpoint(device: Device | None = None, **_: Any) -> list[dict[str, Tensor]]:
    """The parameters of each device by name."""
    return [
        {
            name: Tensor.create_from_torch(value.detach())
            for module in item.modules
            for name, value in torch_module(module).named_parameters()
        }
        for item in ([device] if device is not None else Device.all)
    ]


def update_device_parameters(
    device: Device | None = None, parameters: Sequence[dict[str, Any]] = (), **_: Any
) -> None:
    """New values for parameters by name."""
    for item, values in zip([device] if device else Device.all, parameters, strict=False):
        for module in item.modules:
            inner = torch_module(module)
            with torch.no_grad():
                for name, parameter in inner.named_parameters():
                    if name in values:
                        parameter.copy_(values[name])


def reset() -> None:
    """Forgets devices, queues and configuration."""
    Device.all.clear()
    _pipeline.clear()
    _own.clear()
    config.reset_configuration()


_own: dict[int, TTDevice] = {}  # devices made for modules that run_inference was given


def _device_for(module: Any) -> TTDevice:
    """A device that is no stage of the pipeline; kept, so that a second run need not compile."""
    key = id(torch_module(module))
    if key not in _own:
        _own[key] = TTDevice("tt0", module=module)
        Device.all.remove(_own[key])
    return _own[key]


def _stages() -> list[Device]:
    stages = [device for device in Device.all if device.modules]
    if not stages:
        raise UsageError(
            "no module is placed on a device",
            try_=["run_inference(module, inputs=[...])", "TTDevice('tt0', module=module)"],
        )
    if sum(isinstance(device, TTDevice) for device in stages) > 1:
        note("stages", "several TTDevices: their stages run one after the other on one chip")
    return stages


def _run_pending(
    outputs: Any, count: int, verify_cfg: VerifyConfig | None, must: bool = False
) -> None:
    """Up to ``count`` of the inputs pushed (0: all), each from the device it was pushed to on."""
    stages = _stages()
    waiting = sum(device.inputs.qsize() for device in stages)
    if must and waiting < count:
        raise UsageError(f"{count} inputs are to be run, but {waiting} were pushed")
    for _ in range(min(count or waiting, waiting)):
        device = next(item for item in stages if not item.inputs.empty())
        _put(outputs, _through(device, device.inputs.get(), verify_cfg))


def _through(device: Device, values: Inputs, verify_cfg: VerifyConfig | None) -> list[torch.Tensor]:
    stages = _stages()
    for stage in stages[stages.index(device) :]:
        found = stage.run(values, verify_cfg)
        values = tuple(found), {}
    return found


def _put(outputs: Any, found: Sequence[torch.Tensor]) -> None:
    outputs.put([Tensor.create_from_torch(value) for value in found])


RUN_INFERENCE[:] = [run_inference]
