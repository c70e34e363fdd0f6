"""Read files and tables into numbered interactions, and split them."""
