"""Jobs: their tasks become sessions, ended attempts are judged, and the state of a job is
derived."""
