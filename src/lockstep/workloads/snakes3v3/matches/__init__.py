"""Games between policies: contests with statistics, and games to watch."""
