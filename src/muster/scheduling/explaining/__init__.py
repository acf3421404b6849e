"""The reasons why a session waits, in numbers: pure functions of a snapshot.
``control.session.explaining`` makes answers to people of them."""
