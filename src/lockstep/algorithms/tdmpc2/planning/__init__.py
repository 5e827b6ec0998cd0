"""Acting with the world model: planning, and the actors and evaluations that use it."""
