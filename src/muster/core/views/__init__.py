"""The answers of the API: one model for each thing, shared by the server and the typed client; a
module for each topic, so that a command imports only what it shows."""
