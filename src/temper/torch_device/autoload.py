"""What ``import torch`` runs, through torch's entry point for added devices.

So that ``x.to("tt")`` and ``torch.ops.tt.weight_dtype_override`` work in a script that imports
nothing of ours. It registers names only; ``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` switches it off.
"""

from __future__ import annotations

import os

# torch takes the added device for *the* accelerator of the machine. Where a graphics card is, that
# would be a surprise, so there the device waits for the first use of Temper.
_OTHER_ACCELERATORS = ("/dev/nvidiactl", "/dev/kfd", "/dev/accel/accel0")


def autoload() -> None:
    """Register the device and the op; never keep torch from importing."""
    try:
        from temper.weights.op import ensure_op_defined

        ensure_op_defined()
        if not any(os.path.exists(path) for path in _OTHER_ACCELERATORS):
            from temper.torch_device.device import ensure_registered

            ensure_registered()
    except Exception as error:  # torch would turn any error into a failed import of torch
        import warnings

        warnings.warn(f"temper could not add the device 'tt' to torch: {error}", stacklevel=2)
