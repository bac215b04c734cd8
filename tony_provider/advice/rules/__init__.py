"""The advice rules, one per module. ``advise.RULES`` lists them."""
