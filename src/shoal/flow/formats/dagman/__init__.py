"""DAGMan input files and HTCondor submit descriptions, as HTCondor's manual describes them [ADR 0051]."""
