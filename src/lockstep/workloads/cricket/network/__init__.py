"""The graph network: graph, encoders, message passing, and its kernels."""
