"""Reports and comparisons of recorded runs. Reading runs needs no torch."""
