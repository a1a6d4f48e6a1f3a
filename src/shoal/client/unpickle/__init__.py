"""Results of other people's pilots: what may be loaded, and how, without running their code."""
