"""From files and tables to numbered pairs, and from pairs to train, validation and test."""
