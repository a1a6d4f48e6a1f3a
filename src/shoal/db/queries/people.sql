-- Users, groups, tokens and the audit. Secrets are known by their digests only.

-- name: put_user
-- Insert a user or overwrite them whole.
INSERT INTO users (name, grp, role, created) VALUES (?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET grp = excluded.grp, role = excluded.role, created = excluded.created;

-- name: put_group
-- Insert a group; one that is there stays.
INSERT INTO groups (name, created) VALUES (?, ?) ON CONFLICT (name) DO NOTHING;

-- name: put_site
-- Insert a site or overwrite its holders.
INSERT INTO sites (name, holders, created) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET holders = excluded.holders, created = excluded.created;

-- name: all_sites
-- Every site that belongs to somebody.
SELECT * FROM sites ORDER BY name;

-- name: put_token
-- Insert a token or overwrite it whole.
INSERT INTO tokens (
    token, kind, digest, owner, grp, site, scopes, max_pilots, uses, note, maker, created, expires, revoked, used, address,
    lineage
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (token) DO UPDATE SET
    uses = excluded.uses, note = excluded.note, revoked = excluded.revoked, used = excluded.used,
    address = excluded.address;

-- name: add_audit
-- Append one use.
INSERT INTO audit (seq, time, token, owner, address, what, about, outcome, times) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: all_users
-- Everyone.
SELECT * FROM users ORDER BY name;

-- name: all_groups
-- Every group.
SELECT * FROM groups ORDER BY name;

-- name: live_tokens
-- Tokens that may still be used; an enrolment token stays for a while, because its pilots may come back, and one of one use, which a ticket may go with, also when it is revoked.
SELECT * FROM tokens
WHERE (revoked IS NULL AND (expires > :now OR (kind = 'enrol' AND expires > :now - 2678400)))
    OR (revoked IS NOT NULL AND kind = 'enrol' AND uses IN (0, 1) AND expires > :now - 86400) ORDER BY created, token;

-- name: list_tokens
-- Tokens of one owner or of all, newest first; revoked and expired ones only on request.
SELECT * FROM tokens
WHERE (:owner IS NULL OR owner = :owner OR (grp <> '' AND grp = :grp)) AND (:dead OR (revoked IS NULL AND expires > :now))
ORDER BY created DESC, token LIMIT :limit;

-- name: revoked_tokens
-- The revoked tokens, and when.
SELECT revoked, digest FROM tokens WHERE revoked IS NOT NULL;

-- name: keep_revoked
-- A token that was revoked elsewhere is revoked here, too.
UPDATE tokens SET revoked = ? WHERE digest = ? AND revoked IS NULL;

-- name: drop_tokens
-- Delete tokens that ended long ago.
DELETE FROM tokens WHERE expires < :before;

-- name: last_audit
-- The highest number used.
SELECT ifnull(max(seq), 0) FROM audit;

-- name: list_audit
-- Uses newest first; each filter is off while its value is NULL.
SELECT * FROM audit
WHERE seq < :before AND (:token IS NULL OR token = :token) AND (:owner IS NULL OR owner = :owner)
ORDER BY seq DESC LIMIT :limit;

-- name: drop_audit
-- Delete the oldest uses if they are from before a time.
DELETE FROM audit WHERE seq IN (SELECT seq FROM audit ORDER BY seq LIMIT :limit) AND time < :before;
