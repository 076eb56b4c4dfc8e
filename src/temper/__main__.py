"""``python -m temper`` is the ``temper`` command."""

from temper.cli import main

main()
