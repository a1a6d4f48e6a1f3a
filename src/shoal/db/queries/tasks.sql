-- Tasks that have rows, and spans of those that never had one.
-- Lists of states come as one text, ",failed,lost,": a statement then stays one statement, however many there are.

-- name: put_task
-- Insert a task or overwrite it whole.
INSERT INTO tasks (
    run, element, state, attempt, winner, retries, losses, live, cause, message, exit_code, signal, leased, started,
    ended, duration, cpu, max_rss, pilot, host, site, last_line, new_files, reused, result, special
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run, element) DO UPDATE SET
    state = excluded.state, attempt = excluded.attempt, winner = excluded.winner, retries = excluded.retries,
    losses = excluded.losses, live = excluded.live, cause = excluded.cause, message = excluded.message,
    exit_code = excluded.exit_code, signal = excluded.signal, leased = excluded.leased, started = excluded.started,
    ended = excluded.ended, duration = excluded.duration, cpu = excluded.cpu, max_rss = excluded.max_rss,
    pilot = excluded.pilot, host = excluded.host, site = excluded.site, last_line = excluded.last_line,
    new_files = excluded.new_files, reused = excluded.reused, result = excluded.result,
    special = excluded.special;

-- name: add_successes
-- Insert rows of elements that succeeded together and had none: what they share, then what differs.
INSERT INTO tasks (
    run, element, state, attempt, winner, retries, losses, live, cause, message, exit_code, signal, leased, started,
    ended, duration, cpu, max_rss, pilot, host, site, last_line, new_files, reused, result, special
)
SELECT ?1, column1, 'succeeded', ?2, ?3, 0, 0, '', '', '', ?4, NULL, ?5, column2, ?6, column3, column4, column5, ?7, ?8, ?9,
    column6, '', '', column7, ''
FROM (VALUES (?, ?, ?, ?, ?, ?, ?));

-- name: open_tasks
-- The tasks of a run that are not final.
SELECT * FROM tasks
WHERE run = :run AND state IN ('waiting', 'ready', 'leased', 'running') ORDER BY element;

-- name: state_block
-- How many rows follow an element, up to a limit, their least and greatest elements and states.
SELECT count(*), min(element), max(element), min(state), max(state)
FROM (SELECT element, state FROM tasks WHERE run = :run AND element > :after ORDER BY element LIMIT :limit);

-- name: final_states
-- Element and state of each final task of a part of a run, in order.
SELECT element, state FROM tasks
WHERE run = :run AND element > :after AND element <= :last AND state IN ('succeeded', 'failed', 'cancelled', 'lost') ORDER BY element;

-- name: failed_tasks
-- The tasks of a run, or one of them, that are final without success.
SELECT * FROM tasks
WHERE run = :run AND element BETWEEN :low AND :high AND state IN ('failed', 'cancelled', 'lost') ORDER BY element;

-- name: settled_tasks
-- The tasks that a report made final, newest first, with their runs' nonces and the pilots that reported.
SELECT t.run, t.element, t.winner, ifnull(r.nonce, ''), t.pilot FROM tasks AS t LEFT JOIN runs AS r ON r.run = t.run
WHERE t.winner <> '' AND t.state IN ('succeeded', 'failed', 'cancelled', 'lost')
ORDER BY t.ended DESC, t.run DESC, t.element DESC LIMIT :limit;

-- name: list_tasks
-- A page of a run's tasks in order of their elements; no states: all.
SELECT * FROM tasks
WHERE run = :run AND element > :after AND (:states = '' OR instr(:states, ',' || state || ',') > 0)
ORDER BY element LIMIT :limit;

-- name: list_outcomes
-- A page of what became of a run's tasks, in order of their elements; results only where they are asked for and small, or name
-- outputs that are on the server.
SELECT element, state, exit_code, duration, host, cause, attempt, last_line, started, ended,
    CASE WHEN :values AND (length(result) <= :most OR substr(result, 1, 8) = '{"kept":') THEN result ELSE '' END
FROM tasks WHERE run = :run AND element > :after ORDER BY element LIMIT :limit;

-- name: get_task
-- One task.
SELECT * FROM tasks WHERE run = :run AND element = :element;

-- name: add_span
-- Insert a span; it may not overlap another.
INSERT INTO spans (run, low, high, state, cause, message, ended) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: drop_span
-- Delete one span.
DELETE FROM spans WHERE run = ? AND low = ?;

-- name: hit_spans
-- The spans that share an element with a range; only the nearest below can reach into it.
SELECT * FROM spans
WHERE run = :run AND low < :high AND high > :low
    AND low >= ifnull((SELECT max(low) FROM spans WHERE run = :run AND low <= :low), :low)
ORDER BY low;

-- name: spans_of_run
-- The spans of a run, in order.
SELECT * FROM spans WHERE run = :run ORDER BY low;

-- name: put_chunk
-- Insert a lease of neighbouring elements.
INSERT INTO chunks (run, low, high, number, incarnation, pilot, leased) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: drop_chunk
-- Every element has left this chunk.
DELETE FROM chunks WHERE run = ? AND low = ? AND number = ? AND incarnation = ?;

-- name: all_chunks
-- All leases of neighbouring elements of which something may be left.
SELECT * FROM chunks ORDER BY run, low;

-- name: drop_expelled_chunks
-- Delete the chunks of expelled pilots: their elements become free, with higher attempt numbers.
DELETE FROM chunks WHERE pilot IN (SELECT pilot FROM pilots WHERE revoked = 1);

-- name: kept_outputs
-- The tasks of a run that succeeded and left outputs on the server.
SELECT run, element, result FROM tasks WHERE run = :run AND state = 'succeeded' AND substr(result, 1, 8) = '{"kept":';

-- name: list_results
-- Final tasks of a run in the order of the journal, with the results of functions and the owners of the pilots.
SELECT e.seq AS seq, t.element, t.state, t.result, t.cause, t.message, t.attempt, t.last_line,
    coalesce(p.owner, '') AS holder
FROM events AS e JOIN tasks AS t ON t.run = e.run AND t.element = e.task LEFT JOIN pilots AS p ON p.pilot = t.pilot
WHERE e.run = :run AND e.seq > :after AND e.kind = 'task_finished'
    AND t.state IN ('succeeded', 'failed', 'cancelled', 'lost')
ORDER BY e.seq LIMIT :limit;
