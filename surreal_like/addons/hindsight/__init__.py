"""Hindsight: goals of sampled rows are replaced by goals that were achieved later."""
