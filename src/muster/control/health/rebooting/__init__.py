"""Hard reboots: machines rebooted from outside, by their provider or an operator's command."""
