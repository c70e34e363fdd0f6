"""The graph of training pairs: degrees, adjacency, singular vectors, nearest nodes."""
