"""The HTTP edge: who asks, what they ask for, and the answer; decisions are control's."""
