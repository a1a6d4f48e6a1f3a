"""What the leader of a site decides for its pilots."""
