"""The builders of records: each module with a main is a command."""

from xlnet_tf import signals

signals.end_while_importing()
