"""Our models beside those of implicit and LensKit: the same split, trials, users and measure.

    python -m benchmarks.peers [--dataset amazon-beauty] [--trials 5] [--only NAME] [--save]

The peers run in an environment of their own (build/peers), with the versions of requirements.txt.
Each trial is a process of its own that gets the split as a file and answers with lists, seconds and
its highest memory. All lists are measured here, by our metrics.

The options of a contestant are its defaults, then random draws from its grid, as many for each. The
best on validation is fitted again on train and validation, and makes the lists of all users with a
test pair. `guided` chooses its epochs on validation first, which its time includes.
"""
