"""A card through ttnn: op kinds to calls as data, an interpreter, a worker, a script printer."""
