"""Tasks of one server that another organisation's server runs: a pilot of the first is a user of the second [SPHINX S9]."""
