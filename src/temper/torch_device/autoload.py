"""The device "tt" and the weight-format op in a process that uses Temper.

Importing torch changes nothing in it: registering the device renames torch's spare backend, which
makes it *the* accelerator of the process. So that happens with the first ``import temper`` of a
process that has torch (or the import of torch after it), with a stand-in, under ``temper run`` and
``tt_profile``, or when the backend is used.
"""

from __future__ import annotations

import os
import warnings

# Where a graphics card is, torch's accelerator would change: there the device waits for its use.
_OTHER_ACCELERATORS = ("/dev/nvidiactl", "/dev/kfd", "/dev/accel/accel0")


def register() -> None:
    """Register the device and the op; never keep torch from importing."""
    try:
        from temper.weights.op import ensure_op_defined

        ensure_op_defined()
        if not any(os.path.exists(path) for path in _OTHER_ACCELERATORS):
            from temper.torch_device.device import ensure_registered

            ensure_registered()
    except Exception as error:  # torch would turn any error into a failed import of torch
        warnings.warn(f"temper could not add the device 'tt' to torch: {error}", stacklevel=2)


autoload = register  # the name that an installation before 0.2 has as its entry point
