-- Pilots: few thousands at most, so no index beside their names.

-- name: put_pilot
-- Insert a pilot or overwrite it whole.
INSERT INTO pilots (
    pilot, state, reason, owner, site, host, identity, session, former, cores, memory, disk, gpus, version, tags,
    joined, ended, grp, token, revoked, ends, bound
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (pilot) DO UPDATE SET
    state = excluded.state, reason = excluded.reason, owner = excluded.owner, site = excluded.site,
    host = excluded.host, identity = excluded.identity, session = excluded.session, former = excluded.former,
    cores = excluded.cores, memory = excluded.memory, disk = excluded.disk, gpus = excluded.gpus,
    version = excluded.version, tags = excluded.tags, joined = excluded.joined, ended = excluded.ended,
    grp = excluded.grp, token = excluded.token, revoked = excluded.revoked, ends = excluded.ends,
    bound = excluded.bound;

-- name: living_pilots
-- The pilots that are not gone.
SELECT * FROM pilots WHERE state <> 'gone' ORDER BY joined, pilot;

-- name: list_pilots
-- Pilots newest first, of one state or of any; lists of holders come as one text, ",anna,@phys,"; none: all.
SELECT * FROM pilots
WHERE (:state IS NULL OR state = :state)
    AND (:holders = '' OR instr(:holders, ',' || CASE WHEN owner = '' THEN '@' || grp ELSE owner END || ',') > 0)
ORDER BY joined DESC, pilot DESC LIMIT :limit;

-- name: gone_pilots
-- Pilots that ended lately, oldest first.
SELECT * FROM (
    SELECT * FROM pilots WHERE state = 'gone' AND ended > :after ORDER BY ended DESC LIMIT :limit
) ORDER BY ended;

-- name: expel_revoked
-- Pilots whose token is revoked are gone and may not come back.
UPDATE pilots SET
    state = 'gone', revoked = 1, ended = ifnull(ended, :now),
    reason = CASE state WHEN 'gone' THEN reason ELSE 'its enrolment token was revoked' END
WHERE revoked = 0 AND token IN (SELECT token FROM tokens WHERE revoked IS NOT NULL);

-- name: put_host
-- Insert a host or overwrite it whole.
INSERT INTO hosts (identity, owner, grp, site, host, first, seen, pilots, succeeded, failed, lost, busy)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (identity, owner, grp, site) DO UPDATE SET
    host = excluded.host, seen = excluded.seen, pilots = excluded.pilots, succeeded = excluded.succeeded,
    failed = excluded.failed, lost = excluded.lost, busy = excluded.busy;

-- name: list_hosts
-- Hosts, the one seen last first.
SELECT * FROM hosts
WHERE :holders = '' OR instr(:holders, ',' || CASE WHEN owner = '' THEN '@' || grp ELSE owner END || ',') > 0
ORDER BY seen DESC, identity LIMIT :limit;

-- name: get_pilot
-- One pilot.
SELECT * FROM pilots WHERE pilot = :pilot;
