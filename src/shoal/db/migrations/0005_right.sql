-- Right before fast: identity of runs, who may report, bans by holder, checkpoints that travel.

-- Tokens know what they were made with; sessions of pilots that came over TLS are bound to their certificate.
ALTER TABLE tokens ADD COLUMN lineage TEXT NOT NULL DEFAULT '';
ALTER TABLE pilots ADD COLUMN bound INTEGER NOT NULL DEFAULT 0;
