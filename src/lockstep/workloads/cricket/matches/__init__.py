"""Matches: reading Cricsheet files, simulating a league, and splitting into parts."""
