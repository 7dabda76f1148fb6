"""Random network distillation: a bonus for what is new, as a part of any plan."""
