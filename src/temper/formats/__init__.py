"""Number formats of the chip: quantise, pack, tiles, fidelity, error measures."""
