"""The stages from a captured graph to a placed program tied together, and the compile cache."""
