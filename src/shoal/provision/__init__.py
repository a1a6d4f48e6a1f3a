"""How to get machines: backends of batch systems as pure pairs of command and parser, and the shell that runs them."""
