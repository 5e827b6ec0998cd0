"""Prepared tables: built once from matches, cached on disk, and gathered into samples."""
