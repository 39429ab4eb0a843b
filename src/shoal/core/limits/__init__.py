"""What runs out: budgets of a period, run times, waiting times, and what work declares of them."""
