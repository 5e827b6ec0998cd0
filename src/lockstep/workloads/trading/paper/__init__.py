"""A paper account that is traded from day to day as new bars arrive."""
