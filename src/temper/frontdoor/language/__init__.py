"""Generative models of transformers on the chip: prefill and decode programs over one cache."""
