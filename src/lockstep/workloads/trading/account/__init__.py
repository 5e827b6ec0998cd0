"""What an account does with the quotes: actions, positions, cash and margin, rewards and the episode's results."""
