"""python -m mgformer."""

from mgformer.cli import main

main()
