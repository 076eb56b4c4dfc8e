"""A program and its weights as one file: JSON and safetensors in a zip, nothing executable.

Entries are stored without compression, so a file cannot unfold to more than its own size, and
nothing is ever extracted to disk.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from numpy.typing import NDArray

from temper._version import __version__
from temper.errors import BadFileError, UsageError
from temper.files import replacing
from temper.program import tensor_file
from temper.program.codec import from_json, to_json
from temper.program.program import Program
from temper.program.verify import problems, verify

VERSION = 1
_MANIFEST, _PROGRAM, _WEIGHTS = "temper.json", "program.json", "weights.safetensors"
_ENTRIES = {_MANIFEST, _PROGRAM, _WEIGHTS}


def save(
    program: Program,
    weights: Mapping[str, NDArray[Any]],
    path: str | os.PathLike[str],
    *,
    key: str = "",
) -> None:
    """Writes a program and weights by parameter path; an existing file is replaced at the end.

    ``key`` says what the program was made for; who loads it by key is refused any other. float32
    weights that bfloat16 holds exactly are stored as bfloat16 and come back as float32.
    """
    verify(program)
    manifest = {"format": "temper-program", "version": VERSION, "temper": __version__}
    if key:
        manifest["key"] = key
    text = json.dumps(to_json(program), allow_nan=False, separators=(",", ":"))
    packed = tensor_file.dump(weights)
    target = Path(path)
    with replacing(target) as whole, zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED) as file:
        _write(file, _MANIFEST, json.dumps(manifest).encode())
        _write(file, _PROGRAM, text.encode())
        _write(file, _WEIGHTS, packed)


def load(path: str | os.PathLike[str], *, key: str = "") -> tuple[Program, dict[str, NDArray[Any]]]:
    """The program and weights of a file that `save` wrote; BadFileError for any other file."""
    source = Path(path)
    try:
        with zipfile.ZipFile(source) as file:
            entries = _entries(source, file)
    except FileNotFoundError:
        raise UsageError(f"there is no file {source}") from None
    except OSError as error:
        raise BadFileError(f"cannot read {source}: {error.strerror or error}") from None
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError, ValueError) as error:
        _fail(source, f"it is no program file or is truncated ({error})")
    manifest = _json(source, entries[_MANIFEST])
    _check_manifest(source, manifest)
    if key and manifest.get("key") != key:
        _fail(source, "it was stored under another key")
    try:
        program = from_json(_json(source, entries[_PROGRAM]))
        weights = tensor_file.parse(entries[_WEIGHTS])
        wrong = problems(program)
    except BadFileError as error:
        _fail(source, error.what)
    if wrong:
        _fail(source, f"the program is not well formed: {wrong[0]}")
    _check_sizes(source, program, weights)
    return program, weights


def _write(file: zipfile.ZipFile, name: str, data: bytes) -> None:
    # A fixed date makes equal programs equal files.
    file.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)


def _entries(source: Path, file: zipfile.ZipFile) -> dict[str, bytes]:
    size_bytes = source.stat().st_size
    infos = file.infolist()
    names = [info.filename for info in infos]
    unknown = sorted(set(names) - _ENTRIES)
    if unknown:
        _fail(source, f"it holds a foreign entry {unknown[0][:80]!r}")
    missing = sorted(_ENTRIES - set(names))
    if missing:
        _fail(source, f"it has no {missing[0]}")
    if len(names) != len(_ENTRIES):
        _fail(source, "an entry appears twice")
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 0x1:
            _fail(source, f"{info.filename} is compressed or encrypted; program files are neither")
        if info.file_size != info.compress_size or info.file_size > size_bytes:
            _fail(source, f"{info.filename} states {info.file_size} B in a file of {size_bytes} B")
    return {info.filename: file.read(info) for info in infos}


def _json(source: Path, data: bytes) -> Any:
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        _fail(source, f"its JSON is damaged ({error})")


def _check_manifest(source: Path, manifest: Any) -> None:
    if not isinstance(manifest, dict) or manifest.get("format") != "temper-program":
        _fail(source, "it is no temper program")
    version = manifest.get("version")
    if type(version) is not int or version < 1:
        _fail(source, f"its format version is {version!r}")
    if version > VERSION:
        raise BadFileError(
            f"{source} has format version {version}; this temper reads up to {VERSION}",
            needs=f"a newer temper; the file is from temper {manifest.get('temper', '?')}",
        )


def _check_sizes(source: Path, program: Program, weights: Mapping[str, NDArray[Any]]) -> None:
    for value, path in program.weights.items():
        expected = program.values[value].shape
        if path in weights and weights[path].size != math.prod(expected):
            _fail(source, f"weight {path!r} is {weights[path].shape}, the program needs {expected}")


def _fail(source: Path, what: str) -> NoReturn:
    raise BadFileError(f"cannot load {source}: {what}")
