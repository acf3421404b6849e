"""Words that control shares with those who probe replicas and who send them traffic."""
