"""Keeps results as data, and renders documents from them."""
