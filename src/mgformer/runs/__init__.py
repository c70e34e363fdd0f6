"""One run: its config, its data, its training, its record, and the bundle it ends as."""
