"""What is known before each delivery, as numbers: match state, players, careers, entities."""
