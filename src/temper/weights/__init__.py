"""Number formats of weights: overrides, their files and templates, and what came of them."""
