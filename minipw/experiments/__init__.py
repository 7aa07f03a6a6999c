"""Many runs: the store, the workers, the paper's tables and figures, tuning."""
