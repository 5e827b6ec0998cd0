"""The networks of TD-MPC2 and where their initial weights come from."""
