"""What Temper does in a Python that has not asked for it: as little as can be.

``site`` imports this at every start (temper_startup.pth) and torch calls ``autoload`` when it is
imported. Neither loads temper nor touches torch, unless the script has imported temper itself.
"""

import sys

# Found as a last resort, when no package of that name is installed. Libraries probe for others,
# such as torch_xla, and would behave differently: those need `temper run` or an import of these.
_NAMES = ("tt_torch", "tt_mlir")


class _LastResort:
    """Behind every other finder: whoever has the package wins."""

    @staticmethod
    def find_spec(name, path=None, target=None):  # type: ignore[no-untyped-def]
        """A stand-in for a script of tt-torch; all of them from then on."""
        if name.partition(".")[0] not in _NAMES:
            return None
        try:
            from temper.compat import install
        except ImportError:
            return None
        install.install()  # which takes this finder away
        return next(
            finder.find_spec(name, path, target)
            for finder in sys.meta_path
            if isinstance(finder, install.StandInFinder)
        )


def autoload() -> None:
    """Torch's entry point for added devices: the device "tt", if the script imported temper."""
    if "temper" in sys.modules:
        from temper.torch_device.autoload import register

        register()


if not any(finder is _LastResort for finder in sys.meta_path):
    sys.meta_path.append(_LastResort)  # type: ignore[arg-type]
