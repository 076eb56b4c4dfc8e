"""Draw the README's pictures into docs/pictures: the ladder of a small CNN, the page of a BERT.

python scripts/pictures.py [ladder|page ...]; the page needs transformers and chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from temper.files import replacing
from temper.report.advise import advise_profile
from temper.report.html import write_html
from temper.run.opening import profile_of_run

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "docs" / "pictures"
LARGEST_BYTES = 300_000


def ladder() -> Path:
    """As ``temper explain --picture`` draws it."""
    path = PLACE / "ladder.png"
    words = ["explain", "examples/models/mnist.py:make", "--quiet", "--picture", str(path)]
    done = subprocess.run(
        [sys.executable, "-m", "temper", *words], cwd=ROOT, check=True, capture_output=True
    )
    assert done.stdout
    return path


def page() -> Path:
    """The page of a BERT of four layers, down to its graph, as a browser shows it."""
    import torch
    from PIL import Image
    from transformers import BertConfig, BertModel

    import temper

    torch.manual_seed(0)
    model = BertModel(BertConfig(num_hidden_layers=4)).eval().to(torch.bfloat16)
    compiled = temper.compile(model, chip="n150", level=2, enable_trace=True)
    tokens = torch.randint(0, 1000, (1, 128))
    path = PLACE / "page.png"
    with tempfile.TemporaryDirectory() as place:
        shown, shot = Path(place) / "page.html", Path(place) / "shot.png"
        with torch.no_grad(), temper.profile() as session:
            for _ in range(4):
                compiled(tokens)
        profile = profile_of_run(session.run, "BERT, four layers")
        write_html(profile, shown, advice=advise_profile(profile)[:2])
        subprocess.run(
            [
                _browser(), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-background-networking", "--hide-scrollbars", f"--screenshot={shot}",
                f"--user-data-dir={place}/user", "--window-size=1280,1790",
                "--virtual-time-budget=3000", shown.as_uri(),
            ],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip
        with Image.open(shot) as picture, replacing(path) as file:
            # 128 colours are enough for flat boxes, in a quarter of the bytes.
            picture.convert("RGB").quantize(128).save(file, "PNG", optimize=True)
    return path


def _browser() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
    if found is None:
        raise SystemExit("the page's picture needs chromium: it is not on the PATH")
    return found


def main() -> int:
    """Draw what is asked for, everything without a name; one that is too large is an error."""
    drawn = [{"ladder": ladder, "page": page}[name] for name in sys.argv[1:] or ("ladder", "page")]
    PLACE.mkdir(parents=True, exist_ok=True)
    for draw in drawn:
        path = draw()
        size = path.stat().st_size
        print(f"{path.relative_to(ROOT)}: {size / 1e3:.0f} kB")
        if size > LARGEST_BYTES:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
