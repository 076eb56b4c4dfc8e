"""The host and its cards as files and commands: sysfs, tt-smi, readings of sensors."""
