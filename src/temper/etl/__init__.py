"""Feature-preprocessing operators and pipelines."""
