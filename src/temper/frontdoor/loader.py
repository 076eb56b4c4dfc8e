"""Model arguments of the commands: ``file.py:callable``, ``package.module:callable``, or a folder
with the config.json of a language model."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from temper.errors import UsageError, raised_at
from temper.files import nearest_files


@dataclass
class Loaded:
    """A model, its inputs, and whether the batch can be chosen."""

    model: torch.nn.Module
    inputs: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    batch: int | None = None  # None: the callable takes none
    made_in: torch.dtype | None = None  # floating-point type of the weights as the callable made it

    def __iter__(self) -> Any:
        """Unpacks as ``model, inputs``."""
        return iter((self.model, self.inputs))


def find(argument: str) -> Callable[..., Any]:
    """The callable that a model argument names."""
    where, _, name = argument.rpartition(":")
    if not where:
        raise UsageError(
            f"{argument!r} is no model argument",
            needs="file.py:callable or package.module:callable",
            try_=[f"{argument}:make"],
        )
    if where.endswith(".py") or "/" in where:
        module = _load_file(Path(where))
    else:
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        try:
            module = importlib.import_module(where)
        except ImportError as error:
            raise UsageError(
                f"cannot import {where}: {error}", try_=[f"{where.replace('.', '/')}.py:{name}"]
            ) from None
    found = getattr(module, name, None)
    if not callable(found):
        names = [
            n
            for n, v in vars(module).items()
            if inspect.isfunction(v) and v.__module__ == module.__name__
        ]
        raise UsageError(f"{where} has no callable {name!r}", try_=names[:5])
    return found  # type: ignore[no-any-return]


def takes_batch(function: Callable[..., Any]) -> bool:
    """Whether the callable has a parameter for the batch."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


def load(argument: str | Callable[..., Any], batch: int | None = None) -> Loaded:
    """Call it, with the batch where it takes one, and check what comes back.

    A folder with a config.json is a language model, given a prompt of random tokens.
    """
    if isinstance(argument, str) and (Path(argument) / "config.json").is_file():
        return _language_model(argument, batch)
    function = find(argument) if isinstance(argument, str) else argument
    label = argument if isinstance(argument, str) else getattr(function, "__name__", "callable")
    scalable = takes_batch(function)
    if batch is not None and not scalable:
        raise UsageError(
            f"{label} takes no batch", try_=["def make(batch): ...", "leave the batch out"]
        )
    required = (
        scalable
        and next(iter(inspect.signature(function).parameters.values())).default
        is inspect.Parameter.empty
    )
    try:
        made = function(batch) if batch is not None else function(1) if required else function()
    except Exception as error:
        raise UsageError(
            f"{label} raised {type(error).__name__}: {error}",
            at=raised_at(error),
            see="'temper --debug ...' shows the whole traceback",
        ) from error
    return _checked(
        made, label, batch if batch is not None else (1 if required else None) if scalable else None
    )


# Tokens of the prompt that a folder's model is called with.
_PROMPT = 128


def _language_model(folder: str, batch: int | None) -> Loaded:
    from temper.frontdoor.language.folder import load_folder

    model = load_folder(folder)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, model.config.vocab_size, (batch or 1, _PROMPT), generator=generator)
    return Loaded(model, (ids,), {"use_cache": False}, batch or 1)


def _checked(made: Any, label: str, batch: int | None) -> Loaded:
    if not (
        isinstance(made, tuple) and len(made) in (2, 3) and isinstance(made[0], torch.nn.Module)
    ):
        given = (
            type(made).__name__
            if not isinstance(made, tuple)
            else f"a tuple of {', '.join(type(m).__name__ for m in made)}"
        )
        raise UsageError(
            f"{label} must return (model, inputs)",
            given=given,
            needs="a torch.nn.Module and a tensor, a tuple or a dict of inputs",
        )
    model, inputs = made[0], made[1]
    kwargs = dict(made[2]) if len(made) == 3 else {}
    if isinstance(inputs, Mapping):
        kwargs, inputs = {**dict(inputs), **kwargs}, ()
    elif isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    return Loaded(model.eval(), tuple(inputs), kwargs, batch)


def _load_file(path: Path) -> Any:
    if not path.is_file():
        raise UsageError(f"no file {path}", try_=nearest_files(path))
    name = f"temper_model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(
            f"{path} raised {type(error).__name__}: {error}",
            at=raised_at(error),
            see="'temper --debug ...' shows the whole traceback",
        ) from error
    finally:
        sys.path.pop(0)
    return module
