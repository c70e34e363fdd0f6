"""Users of the demo dataset that tests look at."""

SHOWCASE = {"one taste": "amir-186", "two tastes": "elif-004", "few interactions": "bella-787"}
