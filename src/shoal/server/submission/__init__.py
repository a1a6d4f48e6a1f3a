"""What is checked, looked up and compared before a submission becomes a run."""
