"""Methods without gradient training: the floor of an honest comparison."""
