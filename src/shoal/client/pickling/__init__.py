"""Functions, arguments and modules of the submitter as payloads."""
