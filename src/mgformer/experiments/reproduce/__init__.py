"""The paper's tables and figures, run again: the runs each consists of, and what is made of them.

Runs lie in `<out>/<dataset>/<name>/seed-<n>` and are shared: one that is there is not repeated.
"""
