"""What training pairs say about structure: degrees, adjacency, spectrum."""
