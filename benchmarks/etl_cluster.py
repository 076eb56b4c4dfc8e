"""One large file on a local Ray cluster of 1 and of 2 workers, side by side in one run.

    python benchmarks/etl_cluster.py [--rows 2000000] [--split-mib 64]

Each cluster is a process of its own; a worker has one core and one thread. Measured times of the
whole run: counting, merging, mapping, writing. Starting the cluster is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def child(workers: int, path: str, output: str, split_bytes: int) -> None:
    """One run on a cluster of that many workers; prints its seconds and rows."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["TEMPER_ETL_THREADS"] = "1"
    import ray

    from temper.etl import criteo_pipeline
    from temper.etl.distributed import run_on_ray

    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    started = time.perf_counter()
    report = run_on_ray(criteo_pipeline(), path, output, split_bytes=split_bytes)
    seconds = time.perf_counter() - started
    print(json.dumps({"workers": workers, "seconds": seconds, "rows": report.rows}))


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--split-mib", type=int, default=64)
    given = parser.parse_args()
    from temper.etl.synthetic import write_criteo_like

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day.tsv"
        write_criteo_like(path, given.rows)
        found = []
        for workers in (1, 2):
            command = [sys.executable, __file__, "--child", str(workers), str(path),
                       f"{folder}/out{workers}", str(given.split_mib << 20)]  # fmt: skip
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found.append(json.loads(done.stdout.splitlines()[-1]))
            print(f"{workers} worker(s): {found[-1]['seconds']:.2f} s measured, "
                  f"{found[-1]['rows']:,} rows")  # fmt: skip
        print(f"2 workers are {found[0]['seconds'] / found[1]['seconds']:.2f}x as fast as 1")


if __name__ == "__main__":
    main()
