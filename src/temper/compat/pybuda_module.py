"""PyBuda's modules and tensors: torch underneath."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from temper.errors import UsageError


class Tensor(torch.Tensor):
    """A torch tensor with PyBuda's accessors."""

    @staticmethod
    def create_from_torch(tensor: torch.Tensor, constant: bool = False, dev_data_format: Any = None
                          ) -> Tensor:  # fmt: skip
        return tensor.as_subclass(Tensor)

    def value(self) -> torch.Tensor:
        return self.as_subclass(torch.Tensor)

    def to_pytorch(self) -> torch.Tensor:
        return self.as_subclass(torch.Tensor)


class Parameter(torch.nn.Parameter):
    """A parameter from a tensor or, as PyBuda also allows, from a shape."""

    def __new__(  # type: ignore[misc]
        cls, *args: Any, requires_grad: bool = True, name: str = "", **_: Any
    ) -> torch.nn.Parameter:
        if len(args) == 1 and isinstance(args[0], torch.Tensor):
            return torch.nn.Parameter(args[0], requires_grad)
        return torch.nn.Parameter(torch.zeros(*args), requires_grad)


# Set by pybuda_run, which stands above modules and devices.
RUN_INFERENCE: list[Callable[..., Any]] = []


class _Runs:
    """``run``: what PyBuda's own check of an installation calls."""

    def run(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        outputs: list[Tensor] = RUN_INFERENCE[0](self, inputs=[kwargs or args]).get()
        return outputs


class PyBudaModule(torch.nn.Module, _Runs):
    """A module whose ``forward`` uses torch or ``pybuda.op``; the name is optional here."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self.name = name or type(self).__name__

    def add_parameter(self, name: str, parameter: torch.nn.Parameter,
                      prepend_name: bool = False) -> None:  # fmt: skip
        self.register_parameter(name, parameter)

    def add_constant(self, name: str, prepend_name: bool = False, shape: Any = None) -> None:
        self.register_buffer(name, torch.zeros(tuple(shape or (1,))))

    def set_parameter(self, name: str, value: torch.Tensor) -> None:
        with torch.no_grad():
            self.get_parameter(name).copy_(value)

    def set_constant(self, name: str, value: torch.Tensor) -> None:
        self.register_buffer(name, value)

    def get_constant(self, name: str) -> torch.Tensor:
        return self.get_buffer(name)

    def get_name(self) -> str:
        return self.name


class PyTorchModule(_Runs):
    """A torch module under PyBuda's wrapper."""

    def __init__(self, name: str, module: torch.nn.Module, **_: Any) -> None:
        if not isinstance(module, torch.nn.Module):
            raise UsageError(
                f"PyTorchModule {name!r} wraps a torch.nn.Module, not {type(module).__name__}"
            )
        self.name = name
        self.module = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    forward = __call__


class _Foreign:
    """A model of another framework."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise UsageError(
            f"{type(self).__name__}: Temper takes PyTorch models",
            try_="pybuda.PyTorchModule with the same model in PyTorch",
        )


class OnnxModule(_Foreign):
    """A model of ONNX, which is refused."""

    pass


class TFModule(_Foreign):
    """A model of TensorFlow, which is refused."""

    pass


class TFGraphDefModule(_Foreign):
    """A model of a TensorFlow graph, which is refused."""

    pass


class TFLiteModule(_Foreign):
    """A model of TFLite, which is refused."""

    pass


class JaxModule(_Foreign):
    """A model of JAX, which is refused."""

    pass


def torch_module(module: Any) -> torch.nn.Module:
    """The torch module inside whatever a script hands over."""
    inner = module.module if isinstance(module, PyTorchModule) else module
    if isinstance(inner, torch.nn.Module):
        return inner
    raise UsageError(
        f"a {type(module).__name__} cannot be compiled",
        allowed=["PyBudaModule", "PyTorchModule", "torch.nn.Module"],
    )
