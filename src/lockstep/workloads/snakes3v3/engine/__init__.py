"""The game itself: rules, state and steps of many boards at once, on CPU and GPU."""
