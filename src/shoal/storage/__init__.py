"""Where bytes rest that neither the server nor pilots keep: URLs that the submitter's side reads and writes."""
