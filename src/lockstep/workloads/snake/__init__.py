"""Snake on a square board: rules, tensor environment, network, and exports."""
