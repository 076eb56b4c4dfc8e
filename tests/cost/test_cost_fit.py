"""The fit finds factors that were put in, leans on parents, and judges by sources left out."""

from __future__ import annotations

import numpy as np

from temper.cost import evidence, fit
from temper.cost.records import Physics


def rows(count: int, variant: tuple[str, ...], factors: tuple[float, float, float], seed: int):
    random = np.random.default_rng(seed)
    made, times = [], []
    for _ in range(count):
        dram, noc = random.uniform(1e3, 1e6, 2)
        made.append(Physics("f", variant, 1, {"launch": 1000.0}, {"dram": dram, "noc": noc}))
        joined = ((dram * factors[1]) ** 2 + (noc * factors[2]) ** 2) ** 0.5
        times.append((1000.0 * factors[0] + joined) * float(random.normal(1, 0.01)))
    return made, times


def table(made, times):
    return fit.table(made, ("launch",), ("dram", "noc"), times, [1.0] * len(times))


def test_factors_that_were_put_in_come_out() -> None:
    made, times = rows(80, ("a",), (1.5, 2.0, 0.7), 1)
    found = np.exp(fit.fit_tree(table(made, times), 2.0)["a",].theta)
    np.testing.assert_allclose(found[1:], (2.0, 0.7), rtol=0.05)


def test_one_wild_row_does_not_move_the_fit() -> None:
    made, times = rows(60, ("a",), (1.0, 2.0, 0.7), 2)
    times[5] *= 50
    found = np.exp(fit.fit_tree(table(made, times), 2.0)["a",].theta)
    np.testing.assert_allclose(found[1:], (2.0, 0.7), rtol=0.1)


def test_a_variant_with_few_rows_keeps_its_parent() -> None:
    made, times = rows(60, ("a",), (1.0, 2.0, 0.7), 3)
    few, slow = rows(2, ("b",), (1.0, 20.0, 7.0), 4)
    tree = fit.fit_tree(table(made + few, times + slow), 2.0)
    assert ("b",) not in tree
    assert fit.lookup(tree, ("b", "c"))[0] == ()


def test_the_next_arch_starts_from_the_one_before() -> None:
    made, times = rows(60, ("a",), (1.0, 2.0, 0.7), 5)
    base = fit.fit_tree(table(made, times), 2.0)
    none = fit.Table(np.zeros((0, 1)), np.zeros((0, 2)), np.zeros(0), np.zeros(0), [])
    carried = fit.fit_tree(none, 2.0, base)
    np.testing.assert_allclose(carried["a",].theta, base["a",].theta)
    assert carried["a",].rows == 0


def test_the_evidence_table_names_rows_errors_and_the_worst() -> None:
    for arch in ("wormhole_b0", "blackhole", "grayskull"):
        found = evidence.table(arch)
        assert found
        assert found[0].rows >= found[-1].rows
        assert all(e.median_ape is not None for e in found)
        assert evidence.worst(found)
    assert evidence.summary()["rows"] > 1000
