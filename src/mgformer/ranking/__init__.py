"""From scores to lists, and from lists to numbers."""
