"""Published experiments, run again: each returns a table beside the paper's claim and says where it does not hold."""
