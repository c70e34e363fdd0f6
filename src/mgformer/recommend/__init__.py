"""Ask a trained recommender: queries, answers, lists for many users, exports."""
