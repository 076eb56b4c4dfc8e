"""Compare our allocator's addresses with those of the real ttnn on a mocked device.

    python benchmarks/allocator_vs_ttnn.py MOCK-DIR [--board n150] [--seed 1] [--steps 200]

Tensors of random size and format are allocated in DRAM and SRAM and freed in random order; every
address must be equal (DRAM up to the base of its banks). With ``--probe`` the file is the other
side: it runs inside the mock's Python and prints what ttnn did.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any


def probe(seed: int, steps: int) -> None:
    import ttnn  # type: ignore[import-not-found]  # only in the mock's Python

    device = ttnn.open_device(device_id=0, l1_small_size=0)
    places = {"sram": ttnn.L1_MEMORY_CONFIG, "dram": ttnn.DRAM_MEMORY_CONFIG}
    pick = random.Random(seed)
    live: dict[int, Any] = {}
    for step in range(steps):
        if live and pick.random() < 0.45:
            name = pick.choice(sorted(live))
            ttnn.deallocate(live.pop(name))
            print("EVENT " + json.dumps(["free", name]))
            continue
        shape = [32 * pick.randint(1, 40), 32 * pick.randint(1, 40)]
        fmt = pick.choice(["bfloat16", "bfloat8_b", "float32"])
        where = pick.choice(["sram", "dram"])
        live[step] = ttnn.allocate_tensor_on_device(
            ttnn.Shape(shape), getattr(ttnn, fmt), ttnn.TILE_LAYOUT, device, places[where]
        )
        address = live[step].buffer_address()
        print("EVENT " + json.dumps(["take", step, shape, fmt, where, address]))
    ttnn.close_device(device)


def compare(mock: Path, board: str, seed: int, steps: int) -> int:
    from temper.chips import get
    from temper.program import DRAM, SRAM, TensorSpec
    from temper.program.allocator import dram_allocator, sram_allocator, tensor_bank_bytes

    activate, me = shlex.quote(str(mock / "activate")), shlex.quote(__file__)
    script = (
        f"source {activate} {board} && exec python {me} . --probe --seed {seed} --steps {steps}"
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    events = [json.loads(x[6:]) for x in done.stdout.splitlines() if x.startswith("EVENT ")]
    if len(events) != steps:
        sys.exit(f"ttnn answered {len(events)} of {steps} steps\n{done.stderr[-2000:]}")
    chip = get(board)
    banks = {"sram": sram_allocator(chip, l1_small_bytes=0), "dram": dram_allocator(chip)}
    base = {"sram": 0}
    where: dict[int, str] = {}
    wrong = 0
    for event in events:
        if event[0] == "free":
            banks[where[event[1]]].free(str(event[1]))
            continue
        _, name, shape, fmt, place, address = event
        where[name] = place
        spec = TensorSpec(tuple(shape), fmt, memory=SRAM if place == "sram" else DRAM)
        block = banks[place].allocate(str(name), tensor_bank_bytes(spec, chip))
        base.setdefault(place, address - block.start)
        wrong += address - block.start != base[place]
    print(f"{board}: {len(where)} allocations, {wrong} at other addresses than ttnn's")
    return 1 if wrong else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("mock", type=Path, help="folder made by the ttnn mock's setup script")
    parser.add_argument("--board", default="n150", choices=["n150", "p150"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.probe:
        probe(options.seed, options.steps)
        return
    if not (options.mock / "activate").exists():
        parser.error(f"{options.mock} has no 'activate'; make it with the mock's setup script")
    sys.exit(compare(options.mock, options.board, options.seed, options.steps))


if __name__ == "__main__":
    main()
