-- Pilots: few thousands at most, so no index beside their names.

-- name: put_pilot
-- Insert a pilot or overwrite it whole.
INSERT INTO pilots (
    pilot, state, reason, owner, site, host, identity, session, former, cores, memory, disk, gpus, version, tags,
    joined, ended
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (pilot) DO UPDATE SET
    state = excluded.state, reason = excluded.reason, owner = excluded.owner, site = excluded.site,
    host = excluded.host, identity = excluded.identity, session = excluded.session, former = excluded.former,
    cores = excluded.cores, memory = excluded.memory, disk = excluded.disk, gpus = excluded.gpus,
    version = excluded.version, tags = excluded.tags, joined = excluded.joined, ended = excluded.ended;

-- name: living_pilots
-- The pilots that are not gone.
SELECT * FROM pilots WHERE state <> 'gone' ORDER BY joined, pilot;

-- name: list_pilots
-- Pilots newest first, of one state or of any.
SELECT * FROM pilots WHERE :state IS NULL OR state = :state ORDER BY joined DESC, pilot DESC LIMIT :limit;

-- name: get_pilot
-- One pilot.
SELECT * FROM pilots WHERE pilot = :pilot;
