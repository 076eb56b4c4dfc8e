"""Fitting: factors of the physics terms, by robust regression of log time, from coarse to fine.

A family's kernels form a tree (family, then program variant, memory, format ...). Each node's
factors start from its parent's, and are pulled back to them, so that a node with three rows says
little and one with a hundred says much. Architectures are fitted from the best measured to the
least; a node that the next one lacks is carried over with the same ratio to its parent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from temper.chips import ARCHITECTURES
from temper.cost.records import Physics

Array = NDArray[Any]
Path = tuple[str, ...]
Tree = dict[Path, "Node"]

# Newest first: an older one starts from the factors of the next.
ARCHES = tuple(reversed(ARCHITECTURES))
# Log error at which a residual stops counting quadratically; near the noise of repeats.
NOISE = 0.12
# How far (log) a factor may lie: the root from nominal, kernels from the root, finer ones from
# their parent. The root stays near the physics, because kernels without rows take its factors.
PULL_ROOT, PULL_FIRST, PULL_CHILD = 0.4, 0.8, 0.45
# The same for the next arch from the one before: its root, and its kernels.
PULL_ROOT_ARCH, PULL_ARCH = 0.35, 0.7
MIN_ROWS = 6
# The next arch is shifted as a whole by half of what this many rows tell, by less for fewer.
SHIFT_ROWS = 3.0
STEPS = 60
TINY = 1e-3  # ns; keeps logarithms and powers defined


@dataclass(frozen=True)
class Node:
    """Factors (log) of one kernel variant, and the rows behind them."""

    theta: Array
    rows: int


@dataclass(frozen=True)
class Table:
    """Rows of one family as matrices."""

    serial: Array
    overlap: Array
    log_ns: Array
    weight: Array
    variants: Sequence[Path]

    def pick(self, index: Array) -> Table:
        chosen = [self.variants[i] for i in index]
        return Table(
            self.serial[index], self.overlap[index], self.log_ns[index], self.weight[index], chosen
        )


def table(
    physics: Sequence[Physics],
    serial: Sequence[str],
    overlap: Sequence[str],
    kernel_ns: Sequence[float],
    weight: Sequence[float],
) -> Table:
    """Rows of physics as arrays for the fit."""
    return Table(
        np.array([[p.serial.get(n, 0.0) for n in serial] for p in physics]),
        np.array([[max(p.overlap.get(n, 0.0), TINY) for n in overlap] for p in physics]),
        np.log(np.array(kernel_ns)),
        np.array(weight),
        [p.variant for p in physics],
    )


def log_time(theta: Array, serial: Array, overlap: Array, power: float) -> Array:
    """Logarithm of the modelled time: serial terms add up, overlapped ones join by a p-norm."""
    factors = np.exp(theta)
    split = serial.shape[1]
    joined = ((overlap * factors[split:]) ** power).sum(axis=1) ** (1 / power)
    return np.asarray(np.log(serial @ factors[:split] + joined))


def _jacobian(theta: Array, serial: Array, overlap: Array, power: float) -> Array:
    factors = np.exp(theta)
    split = serial.shape[1]
    s = serial * factors[:split]
    o = (overlap * factors[split:]) ** power
    total_o = o.sum(axis=1)
    joined = total_o ** (1 / power)
    time = s.sum(axis=1) + joined
    return np.hstack([s / time[:, None], o / total_o[:, None] * (joined / time)[:, None]])


def fit_node(rows: Table, start: Array, pull: float, power: float) -> Array:
    """Factors that fit the rows and stay near the start.

    Levenberg-Marquardt on a soft absolute error, by reweighting: a few parameters and many rows,
    so the normal equations are tiny.
    """
    theta: Array = start.copy()
    prior = np.eye(len(theta)) / pull**2
    damping = 1e-2
    error = log_time(theta, rows.serial, rows.overlap, power) - rows.log_ns
    cost = _cost(error, rows.weight, theta - start, pull)
    for _ in range(STEPS):
        weight = rows.weight / (NOISE**2 * np.sqrt(1 + (error / NOISE) ** 2))
        slope = _jacobian(theta, rows.serial, rows.overlap, power)
        weighted = slope * weight[:, None]
        gradient = weighted.T @ error + (theta - start) / pull**2
        curvature = weighted.T @ slope + prior
        step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), gradient)
        trial = theta - np.clip(step, -1.0, 1.0)
        trial_error = log_time(trial, rows.serial, rows.overlap, power) - rows.log_ns
        trial_cost = _cost(trial_error, rows.weight, trial - start, pull)
        if trial_cost < cost:
            done = cost - trial_cost < 1e-4 * cost
            theta, error, cost, damping = trial, trial_error, trial_cost, damping / 4
            if done:
                break
        else:
            damping *= 6
            if damping > 1e6:
                break
    return theta


def _cost(error: Array, weight: Array, away: Array, pull: float) -> float:
    soft = 2 * (np.sqrt(1 + (error / NOISE) ** 2) - 1)
    return float((weight * soft).sum() + (away**2).sum() / pull**2)


def fit_tree(rows: Table, power: float, base: Tree | None = None) -> Tree:
    """All nodes of one family on one architecture; ``base`` is the tree of the arch before.

    The terms are normalised by each chip's rates, so a node starts from the same kernel's factors
    on the arch before, all shifted by how the two differ over all rows.
    """
    width = rows.serial.shape[1] + rows.overlap.shape[1]
    shift = 0.0
    if base and len(rows.variants):
        shift = float(np.median(rows.log_ns - predict(base, rows, power)))
        weight = float(rows.weight.sum())
        shift *= weight / (weight + SHIFT_ROWS)
    groups: dict[Path, list[int]] = {(): list(range(len(rows.variants)))}
    for i, variant in enumerate(rows.variants):
        for depth in range(1, len(variant) + 1):
            groups.setdefault(variant[:depth], []).append(i)
    tree: Tree = {}
    for path in sorted({*groups, *(base or {})}, key=len):
        index = groups.get(path, [])
        start, pull = np.zeros(width), PULL_ROOT
        if base and path in base:
            start, pull = base[path].theta + shift, PULL_ARCH if path else PULL_ROOT_ARCH
        elif path:
            parent = path[:-1]
            while parent not in tree:
                parent = parent[:-1]
            start, pull = tree[parent].theta, PULL_CHILD if len(path) > 1 else PULL_FIRST
        if len(index) >= (MIN_ROWS if path else 1):
            theta = fit_node(rows.pick(np.array(index)), start, pull, power)
            tree[path] = Node(theta, len(index))
        elif not path or (base and path in base):
            tree[path] = Node(start, 0)
    return tree


def lookup(tree: Mapping[Path, Node], variant: Path) -> tuple[Path, Node]:
    """The finest node known for a variant."""
    path = variant
    while path not in tree:
        path = path[:-1]
    return path, tree[path]


def predict(tree: Mapping[Path, Node], rows: Table, power: float) -> Array:
    """Modelled times of rows by a fitted tree."""
    theta = np.stack([lookup(tree, v)[1].theta for v in rows.variants])
    factors = np.exp(theta)
    split = rows.serial.shape[1]
    joined = ((rows.overlap * factors[:, split:]) ** power).sum(axis=1) ** (1 / power)
    return np.asarray(np.log((rows.serial * factors[:, :split]).sum(axis=1) + joined))
