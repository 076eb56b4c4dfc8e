"""Loader files as tt-xla's models have them: a ``ModelLoader`` class with variants."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from temper.errors import UsageError

# A loader imports from its package by up to this many levels (`from ....base import ...`).
_PACKAGE_DEPTH = 6


@dataclass(frozen=True)
class LoaderFile:
    """The ``ModelLoader`` of a file and the variants that it knows."""

    path: Path
    loader: Any
    variants: Mapping[Any, Any]

    @property
    def names(self) -> list[str]:
        return [_text(key) for key in self.variants]

    def key(self, name: str | None) -> Any:
        """The variant of that name; its own default without one."""
        if name is None:
            return getattr(self.loader, "DEFAULT_VARIANT", None)
        for key in self.variants:
            if name in (_text(key), str(key), getattr(key, "name", None)):
                return key
        raise UsageError(
            f"{self.path} has no variant {name!r}",
            allowed=", ".join(self.names) or "none: leave --variant out",
            try_=difflib.get_close_matches(name, self.names, n=2),
        )


@dataclass(frozen=True)
class NamedModel:
    """A model and the name under which its override file is kept."""

    name: str
    model: torch.nn.Module


def read_loader(path: Path) -> LoaderFile:
    """Import a loader file, inside its package where it has one."""
    if path.is_dir():
        path = path / "loader.py"
    if not path.is_file():
        raise UsageError(f"no loader file {path}")
    module = _import(path.resolve())
    loader = getattr(module, "ModelLoader", None)
    if not inspect.isclass(loader):
        raise UsageError(
            f"{path} has no class ModelLoader",
            try_=[f"--loader {path}:make, with a function that returns (model, inputs)"],
        )
    query = getattr(loader, "query_available_variants", None)
    found = _called(f"{path}: query_available_variants", query) if callable(query) else {}
    if not isinstance(found, Mapping):
        found = dict.fromkeys(found or ())
    return LoaderFile(path, loader, found)


def build(file: LoaderFile, variant: str | None, auto_class: str) -> NamedModel:
    """The model of a variant: from its configuration without weights, else as the loader loads."""
    key = file.key(variant)
    config = file.variants.get(key)
    pretrained = getattr(config, "pretrained_model_name", None)
    if isinstance(pretrained, str):
        made = _from_local_config(pretrained, auto_class)
        if made is not None:
            return NamedModel(pretrained.rsplit("/", 1)[-1], made)
    arguments = [] if key is None else [key]
    loader = _called(f"{file.path}: ModelLoader", file.loader, *arguments)
    model = _called(f"{file.path}: load_model", loader.load_model)
    if not isinstance(model, torch.nn.Module):
        raise UsageError(f"{file.path}: load_model gave a {type(model).__name__}, no torch module")
    name = pretrained or getattr(loader, "model_name", None) or (_text(key) if key else None)
    return NamedModel(str(name or file.path.resolve().parent.name).rsplit("/", 1)[-1], model)


def _from_local_config(pretrained: str, auto_class: str) -> torch.nn.Module | None:
    """Names need no weights: build on the meta device if the configuration is on this machine."""
    try:
        import transformers
    except ImportError:
        return None
    builder = getattr(transformers, auto_class, None)
    if builder is None or not hasattr(builder, "from_config"):
        known = [name for name in dir(transformers) if name.startswith("AutoModel")]
        raise UsageError(
            f"transformers has no class {auto_class!r} for --auto-class",
            try_=difflib.get_close_matches(auto_class, known, n=2),
        )
    try:
        config = transformers.AutoConfig.from_pretrained(pretrained, local_files_only=True)
        with torch.device("meta"):
            made: torch.nn.Module = builder.from_config(config)
    except (OSError, ValueError):
        return None  # not on this machine, or not of that class: the loader knows better
    return made


def _import(path: Path) -> Any:
    """Import by file; with each parent folder as a package until relative imports resolve."""
    for depth in range(_PACKAGE_DEPTH):
        parts = [*path.parts[-1 - depth : -1], path.stem]
        root = str(path.parents[depth])
        sys.path.insert(0, root)
        try:
            sys.modules.pop(".".join(parts), None)
            return importlib.import_module(".".join(parts))
        except ImportError as error:
            if "relative import" not in str(error):
                raise UsageError(f"{path} raised {type(error).__name__}: {error}") from error
        except Exception as error:
            raise UsageError(f"{path} raised {type(error).__name__}: {error}") from error
        finally:
            sys.path.remove(root)
    raise UsageError(f"{path} imports from a package around it that was not found")


def _called(what: str, function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        raise UsageError(f"{what} raised {type(error).__name__}: {error}") from error


def _text(key: Any) -> str:
    return str(getattr(key, "value", key))


def variant_lines(file: LoaderFile) -> Iterable[str]:
    """One line a variant, for ``--list-variants``."""
    default = getattr(file.loader, "DEFAULT_VARIANT", None)
    for key in file.variants:
        yield f"{_text(key)} (default)" if key == default else _text(key)
