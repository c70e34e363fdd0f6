"""Models without gradient training: the simple methods that every comparison needs."""
