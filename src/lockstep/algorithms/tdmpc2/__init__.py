"""TD-MPC2: model-based control by planning in a learned latent world model."""
