"""The stored study: opened, locked, checked to be of this model; trials in and out of it."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temper._version import __version__
from temper.errors import BadFileError, TemperError, UsageError
from temper.files import only_one
from temper.program.text import to_text

if TYPE_CHECKING:
    from temper.compiler.pipeline import Built

_ENERGIES = "sensitivities"
_TRIES = 5


def fingerprint(built: Built, goal: Sequence[object]) -> str:
    """A name for what a study is about: the graph, its weights and input shapes, and the goal."""
    program = built.program
    # What the model computes, op by op: relu made tanh is another model.
    digest = hashlib.sha256(to_text(program).encode())
    for name, path in sorted(program.weights.items()):
        digest.update(f"{path} {program.spec(name).shape}\n".encode())
        # A retrained model is another one; a few values tell, and are quick to read.
        digest.update(built.weights[name].detach().flatten()[:64].double().numpy().tobytes())
    for name in program.inputs:
        digest.update(f"{program.spec(name).shape[1:]} {program.spec(name).format}".encode())
    digest.update(repr(list(goal)).encode())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def open_study(where: str, mark: str, label: str) -> Iterator[Any]:
    """The study of one model and goal, in an SQLite file or at a database URL.

    A file or database keeps any number of studies apart by their marks; one process a file.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with contextlib.ExitStack() as stack:
        if "://" not in where:
            path = Path(where)
            if path.is_dir():
                raise UsageError(f"{path} is a folder, not a study file")
            path.parent.mkdir(parents=True, exist_ok=True)
            busy = TemperError(
                f"the study {path} is in use by another process",
                try_=["wait for it", "another --study", "a database URL, which several can share"],
            )
            stack.enter_context(only_one(path.with_name(path.name + ".lock"), busy))
            url = f"sqlite:///{path}"
        else:
            url = with_driver(where)
        # Processes that share a study must not all propose the same.
        seed = os.getpid() if "://" in where else 0
        try:
            study = optuna.create_study(
                storage=_storage(url),
                study_name=f"temper-tune-{mark}",
                direction="maximize",
                load_if_exists=True,
                sampler=optuna.samplers.TPESampler(
                    seed=seed, multivariate=True, constant_liar=True
                ),
            )
        except ImportError as error:
            raise UsageError(
                f"the database of {shown(where)} needs a driver that is not installed",
                found=str(error).splitlines()[0],
                try_=["pip install the driver", "a file: --study tune.db"],
            ) from None
        except Exception as error:
            found = str(error).splitlines()[0][:200]
            if "://" in where:
                raise UsageError(
                    f"cannot use the database at {shown(where)}",
                    found=found,
                    needs="a URL of SQLAlchemy, such as postgresql://user@host/name",
                ) from None
            if any(word in found for word in ("disk is full", "readonly", "unable to open")):
                raise UsageError(
                    f"cannot write the study {where}", found=found, try_="--study in another folder"
                ) from None
            raise BadFileError(
                f"{where} is no study, or is damaged",
                found=found,
                try_=["another --study", "delete the file to start over"],
            ) from None
        if "label" not in study.user_attrs:
            study.set_user_attr("label", label)
            study.set_user_attr("version", __version__)
        yield study


def with_driver(url: str) -> str:
    """A PostgreSQL URL with the driver that is installed, where it names none."""
    scheme, colon, rest = url.partition("://")
    if scheme not in ("postgresql", "postgres"):
        return url
    for driver in ("psycopg2", "psycopg", "pg8000"):
        if importlib.util.find_spec(driver) is not None:
            return f"postgresql+{driver}{colon}{rest}"
    raise UsageError(
        "a study in PostgreSQL needs a driver that is not installed",
        try_=["pip install psycopg", "pip install pg8000", "a file: --study tune.db"],
    )


def _storage(url: str) -> Any:
    """The database; its tables may be made by another process at the same moment."""
    import optuna
    from sqlalchemy.exc import IntegrityError, ProgrammingError

    for _ in range(_TRIES):
        try:
            return optuna.storages.RDBStorage(url)
        except (IntegrityError, ProgrammingError):
            time.sleep(0.5)
    return optuna.storages.RDBStorage(url)


def owner() -> str:
    """Who runs a trial: this process on this host."""
    return f"{socket.gethostname()}:{os.getpid()}"


def abandon_dead(study: Any) -> list[dict[str, Any]]:
    """End the trials whose process is gone, and give back their parameters to be tried again."""
    from optuna.trial import TrialState

    found = []
    host = socket.gethostname()
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        name, _, pid = str(trial.user_attrs.get("owner", "")).rpartition(":")
        if name != host or not pid.isdigit() or _alive(int(pid)):
            continue  # of another machine, or at work
        with contextlib.suppress(RuntimeError):  # another process ended it first
            study._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
            found.append(dict(trial.params))
    return found


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def shown(where: str) -> str:
    """A study's place as it may be printed: without the password of a URL."""
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", where)


def labels(study: Any) -> list[str]:
    """What each study beside this one, and this one, is about."""
    import optuna

    found = optuna.get_all_study_summaries(storage=study._storage)
    return sorted(str(summary.user_attrs.get("label", "")) for summary in found)


def stored_energies(study: Any) -> dict[str, dict[str, float]]:
    """Sensitivities that an earlier run of this study measured."""
    try:
        found = json.loads(study.user_attrs.get(_ENERGIES, "{}"))
        return {n: {f: float(e) for f, e in row.items()} for n, row in found.items()}
    except (ValueError, AttributeError, TypeError):
        return {}


def keep_energies(study: Any, table: Mapping[str, Mapping[str, float]]) -> None:
    """Store the sensitivities in the study."""
    study.set_user_attr(_ENERGIES, json.dumps(table))
