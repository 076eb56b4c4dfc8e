"""From a torch model to a graph: torch.compile backend, capture, device, weight overrides."""
