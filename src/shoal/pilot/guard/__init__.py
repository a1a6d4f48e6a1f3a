"""The guard process: parent of every task process; starts, watches and ends them."""
