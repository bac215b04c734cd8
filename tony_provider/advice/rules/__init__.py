"""The advice rules, by subject. ``advise.RULES`` lists them."""
