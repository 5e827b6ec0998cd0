"""The Jidi competition's formats: its interface, game logs and submissions."""
