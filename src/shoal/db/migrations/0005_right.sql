-- Right before fast: identity of runs, who may report, bans by holder, checkpoints that travel.

-- Identity of runs (ADR 0015): a nonce for each, one also for those that are here already; attempt numbers that a server
-- which crashed may have handed out; whether the last server ended in order; the key that proofs of leases are made with.
ALTER TABLE runs ADD COLUMN nonce TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN base INTEGER NOT NULL DEFAULT 0;
UPDATE runs SET nonce = lower(hex(randomblob(8)));
INSERT INTO meta (key, value) VALUES ('ended', 0), ('lease_key', lower(hex(randomblob(32))));
