-- Blobs and who holds them. Their bytes are files; only names, sizes and references are here.

-- name: put_blob
-- Insert a blob; the same bytes sent again are the same blob.
INSERT INTO blobs (digest, size, created) VALUES (?, ?, ?) ON CONFLICT (digest) DO NOTHING;

-- name: put_blob_ref
-- Insert a reference, or renew its time.
INSERT INTO blob_refs (digest, owner, run, since) VALUES (?, ?, ?, ?)
ON CONFLICT (digest, owner, run) DO UPDATE SET since = excluded.since;

-- name: drop_blob
-- Delete a blob.
DELETE FROM blobs WHERE digest = ?;

-- name: drop_blob_ref
-- Delete a reference.
DELETE FROM blob_refs WHERE digest = ? AND owner = ? AND run = ?;

-- name: all_blobs
-- Every blob, for a starting server.
SELECT * FROM blobs;

-- name: all_blob_refs
-- Every reference, for a starting server.
SELECT * FROM blob_refs;
