"""What TD-MPC2 learns from: steps collected in environments, or recorded episodes."""
