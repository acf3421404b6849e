"""Jobs over sessions: bringing up tasks, judging attempts, deriving the job's state."""
